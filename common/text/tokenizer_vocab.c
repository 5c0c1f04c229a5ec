/*
 * tokenizer_vocab.c - finding a folder's tokenizer: tokenizer.json, else
 * vocab.txt and tokenizer_config.json, which say what transformers' BertTokenizer
 * and MPNetTokenizer would be made of.
 */
#include "common/base/compat.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/tokenizer_private.h"

#define CONFIG_MAX (64u << 20)

/* The special tokens of a class, in the order in which transformers adds them. */
enum { UNK, SEP, PAD, CLS, MASK, NAMED };
static const char *const named_keys[NAMED] = { "unk_token", "sep_token", "pad_token", "cls_token", "mask_token" };
static const char *const bert_tokens[NAMED] = { "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" };
static const char *const mpnet_tokens[NAMED] = { "[UNK]", "</s>", "<pad>", "<s>", "<mask>" };

static const char *const bert_classes[] = { "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer" };

static bool is_class(const char *class, const char *base)
{
	size_t n = strlen(base);
	return strncmp(class, base, n) == 0 && (class[n] == '\0' || strcmp(class + n, "Fast") == 0);
}

/* The tokens that the class names, or tokenizer_config.json instead. */
static int read_named(
	struct ng_added_spec spec[NAMED], const json_t *config, bool mpnet, const char *name, struct ng_err *err)
{
	for (int i = 0; i < NAMED; i++) {
		const char *token = mpnet ? mpnet_tokens[i] : bert_tokens[i];
		const json_t *given = json_object_get(config, named_keys[i]);
		spec[i] = (struct ng_added_spec){ .content = token, .len = strlen(token), .id = -1 };
		spec[i].lstrip = mpnet && i == MASK;
		if (json_is_object(given)) {
			if (ng_tokenizer_read_added(&spec[i], given, name, err) < 0)
				return -1;
			if (json_object_get(given, "normalized") == NULL)
				spec[i].normalized = false;
		} else if (json_is_string(given)) {
			spec[i].content = json_string_value(given);
			spec[i].len = json_string_length(given);
		} else if (given != NULL && !json_is_null(given)) {
			return ng_fail(err, NG_DATA, "%s: %s is not a string", name, named_keys[i]);
		}
		spec[i].special = true;
	}
	return 0;
}

/* added_tokens_decoder: {"30522": {"content": ...}}, what was added to the vocabulary later. */
static int read_decoder(
	struct ng_added_spec **out, size_t *n, const json_t *decoder, const char *name, struct ng_err *err)
{
	const char *key;
	json_t *value;
	size_t cap = *n, first = *n;
	json_object_foreach((json_t *)(uintptr_t)decoder, key, value)
	{
		long long id;
		ng_grow(out, &cap, *n + 1, sizeof **out);
		if (!ng_parse_long(&id, key, 0, INT32_MAX) ||
			ng_tokenizer_read_added(&(*out)[*n], value, name, err) < 0)
			return ng_fail(err, NG_DATA, "%s: added_tokens_decoder is malformed", name);
		(*out)[*n].id = (long)id;
		/* by id: each new one must be the next (insertion, as files are sorted already) */
		size_t at = (*n)++;
		struct ng_added_spec spec = (*out)[at];
		for (; at > first && (*out)[at - 1].id > spec.id; at--)
			(*out)[at] = (*out)[at - 1];
		(*out)[at] = spec;
	}
	return 0;
}

static int read_steps(
	struct ng_tokenizer *tok, const json_t *config, bool lower_first, const char *name, struct ng_err *err)
{
	struct ng_normalizer *z = &tok->normalizer;
	bool lower = true, cjk = true, strip;
	if (ng_json_bool(&lower, config, "do_lower_case", name, err) < 0 ||
		ng_json_bool(&cjk, config, "tokenize_chinese_chars", name, err) < 0)
		return -1;
	strip = lower;
	if (ng_json_bool(&strip, config, "strip_accents", name, err) < 0)
		return -1;
	if (lower_first)
		ng_normalizer_add(z, NG_NORMALIZE_LOWER);
	ng_normalizer_add(z, NG_NORMALIZE_CLEAN);
	if (cjk)
		ng_normalizer_add(z, NG_NORMALIZE_CJK);
	if (strip) {
		ng_normalizer_add(z, NG_NORMALIZE_NFD);
		ng_normalizer_add(z, NG_NORMALIZE_MARKS);
	}
	if (lower)
		ng_normalizer_add(z, NG_NORMALIZE_LOWER);
	return ng_normalizer_ready(z, err);
}

static int read_lines(struct ng_tokenizer *tok, const char *text, size_t len, const char *name, struct ng_err *err)
{
	size_t bad;
	int32_t id = 0;
	if (!ng_utf8_valid(text, len, &bad))
		return ng_fail(err, NG_DATA, "%s is not UTF-8 at byte %zu", name, bad);
	for (size_t at = 0; at < len; id++) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end != NULL ? (size_t)(end - (text + at)) : len - at;
		size_t next = at + n + (end != NULL);
		/* nothing but the line's end is taken off: some tokens are odd white space */
		if (n > 0 && text[at + n - 1] == '\r')
			n--;
		if ((uint32_t)id >= NG_TOKENIZER_TOKENS)
			return ng_fail(err, NG_DATA, "%s: more than %u tokens", name, NG_TOKENIZER_TOKENS);
		if (ng_tokenizer_add(tok, text + at, n, id, true, name, err) < 0)
			return -1;
		at = next;
	}
	return 0;
}

static int read_vocab(struct ng_tokenizer *tok, const char *text, size_t len, const char *name, const json_t *config,
	bool lower_first, struct ng_err *err)
{
	struct ng_added_spec named[NAMED], *spec = NULL;
	const char *class = NULL;
	size_t n = 0;
	bool bert = false;

	if (read_lines(tok, text, len, name, err) < 0 ||
		ng_json_string(&class, config, "tokenizer_class", "tokenizer_config.json", err) < 0)
		return -1;
	bool mpnet = class != NULL ? is_class(class, "MPNetTokenizer") : ng_tokenizer_id(tok, "[CLS]", 5) < 0;
	for (size_t i = 0; class != NULL && i < NG_COUNT(bert_classes); i++)
		bert = bert || is_class(class, bert_classes[i]);
	if (class != NULL && !bert && !mpnet)
		return ng_fail(err, NG_REFUSED, "%s: ng has no tokenizer of class '%s'", name, class);

	int rc = -1;
	if (read_steps(tok, config, lower_first, name, err) < 0 || read_named(named, config, mpnet, name, err) < 0 ||
		read_decoder(&spec, &n, json_object_get(config, "added_tokens_decoder"), name, err) < 0)
		goto out;
	tok->model.unk = ng_tokenizer_id(tok, named[UNK].content, named[UNK].len);
	/* What the decoder describes is not described twice; pad and mask are not needed. */
	size_t decoded = n;
	spec = ng_xrealloc(spec, n + NAMED, sizeof *spec);
	for (int i = 0; i < NAMED; i++) {
		bool skip = ng_tokenizer_id(tok, named[i].content, named[i].len) < 0;
		for (size_t j = 0; j < decoded; j++)
			skip = skip || (spec[j].len == named[i].len &&
					       memcmp(spec[j].content, named[i].content, spec[j].len) == 0);
		if (!skip)
			spec[n++] = named[i];
	}
	if (ng_tokenizer_add_specials(tok, spec, n, name, err) < 0)
		goto out;
	for (int i = CLS; i >= SEP; i -= CLS - SEP) {
		int32_t id = ng_tokenizer_id(tok, named[i].content, named[i].len);
		if (id < 0) {
			ng_fail(err, NG_DATA, "%s: '%s' is not in the vocabulary", name,
				i == CLS ? "cls_token" : "sep_token");
			goto out;
		}
		if (ng_tokenizer_around(tok, i == SEP, id, name, err) < 0)
			goto out;
	}
	rc = 0;
out:
	free(spec);
	return rc;
}

int ng_tokenizer_from_vocab(struct ng_tokenizer **out, const char *text, size_t len, const char *name,
	const json_t *config, bool lower_first, unsigned flags, struct ng_err *err)
{
	struct ng_tokenizer *tok = ng_tokenizer_new("##");
	*out = NULL;
	if (read_vocab(tok, text, len, name, config, lower_first, err) < 0 ||
		ng_tokenizer_finish(tok, flags, name, err) < 0) {
		ng_tokenizer_free(tok);
		return -1;
	}
	*out = tok;
	return 0;
}

/* *out NULL when the file is not there. */
static int load_config(json_t **out, const char *dir, const char *file, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/%s", dir, file);
	int rc = 0;
	*out = NULL;
	if (ng_file_exists(path)) {
		*out = ng_json_load(path, CONFIG_MAX, err);
		if (*out == NULL)
			rc = -1;
		else if (!json_is_object(*out))
			rc = ng_fail(err, NG_DATA, "'%s' is not a JSON object", path);
	}
	free(path);
	return rc;
}

static const char *const sentence_configs[] = { "sentence_bert_config.json", "sentence_roberta_config.json",
	"sentence_distilbert_config.json", "sentence_camembert_config.json", "sentence_albert_config.json",
	"sentence_xlm-roberta_config.json", "sentence_xlnet_config.json" };

static int load_sentence_config(json_t **out, const char **name, const char *dir, struct ng_err *err)
{
	*out = NULL;
	for (size_t i = 0; i < NG_COUNT(sentence_configs) && *out == NULL; i++) {
		*name = sentence_configs[i];
		if (load_config(out, dir, sentence_configs[i], err) < 0)
			return -1;
	}
	return 0;
}

/* transformers 5 makes the normaliser of a BertTokenizer from tokenizer_config.json, the
 * Rust package from tokenizer.json.  We follow the latter and say so where it matters. */
static void compare_config(const struct ng_tokenizer *tok, const json_t *config, const char *dir)
{
	const json_t *lower = json_object_get(config, "do_lower_case");
	if (json_is_boolean(lower) && json_is_true(lower) != tok->info.lowercase)
		ng_warn("'%s': tokenizer.json and tokenizer_config.json disagree on lower case; tokenizer.json is followed",
			dir);
}

int ng_tokenizer_load(struct ng_tokenizer **out, const char *dir, unsigned flags, struct ng_err *err)
{
	char *json_path = ng_xasprintf("%s/tokenizer.json", dir), *vocab_path = ng_xasprintf("%s/vocab.txt", dir);
	json_t *config = NULL, *sentence = NULL;
	const char *sentence_name = NULL;
	char *text = NULL;
	size_t len;
	bool lower = false;
	int rc = -1;

	*out = NULL;
	if (load_config(&config, dir, "tokenizer_config.json", err) < 0 ||
		load_sentence_config(&sentence, &sentence_name, dir, err) < 0 ||
		ng_json_bool(&lower, sentence, "do_lower_case", sentence_name, err) < 0)
		goto out;
	if (ng_file_exists(json_path)) {
		if (ng_file_read(&text, &len, json_path, NG_TOKENIZER_FILE_MAX, err) < 0)
			goto out;
		rc = ng_tokenizer_from_json(out, text, len, json_path, lower, flags, err);
		if (rc == 0 && !lower)
			compare_config(*out, config, dir);
	} else if (ng_file_exists(vocab_path)) {
		if (ng_file_read(&text, &len, vocab_path, NG_TOKENIZER_FILE_MAX, err) < 0)
			goto out;
		rc = ng_tokenizer_from_vocab(out, text, len, vocab_path, config, lower, flags, err);
	} else {
		ng_fail(err, NG_NOINPUT, "'%s' has neither tokenizer.json nor vocab.txt", dir);
	}
out:
	free(text);
	json_decref(config);
	json_decref(sentence);
	free(json_path);
	free(vocab_path);
	return rc;
}

int ng_text_max_length(size_t *out, const char *dir, size_t max_positions, struct ng_err *err)
{
	json_t *config = NULL, *sentence = NULL;
	const char *name = NULL;
	long given = 0;
	int rc = -1;

	if (load_sentence_config(&sentence, &name, dir, err) < 0 ||
		ng_json_long(&given, sentence, "max_seq_length", 1, 1L << 30, name, err) < 0 ||
		load_config(&config, dir, "tokenizer_config.json", err) < 0)
		goto out;
	if (given > 0) {
		if ((size_t)given > max_positions) {
			ng_fail(err, NG_DATA, "'%s/%s': max_seq_length %ld is more than the %zu positions of the model",
				dir, name, given, max_positions);
			goto out;
		}
		*out = (size_t)given;
	} else {
		/* may be 1e30, "very large integer" */
		const json_t *model = json_object_get(config, "model_max_length");
		double most = json_is_number(model) ? json_number_value(model) : (double)max_positions;
		if (!(most >= 1)) {
			ng_fail(err, NG_DATA, "'%s/tokenizer_config.json': model_max_length is less than 1", dir);
			goto out;
		}
		*out = most < (double)max_positions ? (size_t)most : max_positions;
	}
	rc = 0;
out:
	json_decref(config);
	json_decref(sentence);
	return rc;
}
