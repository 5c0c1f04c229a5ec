/*
 * tokenizer_json.c - a tokenizer from its tokenizer.json.  What ng does not
 * have is refused by name: a tokenizer that does nearly the same gives vectors
 * that are nearly right, which nobody notices.
 */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/tokenizer_private.h"

#define PREFIX_MAX 64
#define CHARS_MAX 1000000

struct source {
	struct ng_tokenizer *tok;
	const char *name; /* of the file */
	struct ng_err *err;
};

static const char *type_of(const json_t *obj)
{
	const char *type = json_string_value(json_object_get(obj, "type"));
	return type != NULL ? type : "(no type)";
}

static int refuse(const struct source *in, const char *what, const json_t *obj)
{
	return ng_fail(in->err, NG_REFUSED, "%s: ng has no %s of type '%s'", in->name, what, type_of(obj));
}

static int steps(const struct source *in, bool ok)
{
	return ok ? 0 : ng_fail(in->err, NG_REFUSED, "%s: the normalizer has too many steps", in->name);
}

static int read_bert_normalizer(const struct source *in, const json_t *obj)
{
	struct ng_normalizer *z = &in->tok->normalizer;
	bool clean = true, cjk = true, lower = true, strip = false;
	if (ng_json_bool(&clean, obj, "clean_text", in->name, in->err) < 0 ||
		ng_json_bool(&cjk, obj, "handle_chinese_chars", in->name, in->err) < 0 ||
		ng_json_bool(&lower, obj, "lowercase", in->name, in->err) < 0)
		return -1;
	strip = lower; /* null: as lowercase */
	if (ng_json_bool(&strip, obj, "strip_accents", in->name, in->err) < 0)
		return -1;
	bool ok = true;
	if (clean)
		ok = ok && ng_normalizer_add(z, NG_NORMALIZE_CLEAN) == 0;
	if (cjk)
		ok = ok && ng_normalizer_add(z, NG_NORMALIZE_CJK) == 0;
	if (strip)
		ok = ok && ng_normalizer_add(z, NG_NORMALIZE_NFD) == 0 && ng_normalizer_add(z, NG_NORMALIZE_MARKS) == 0;
	if (lower)
		ok = ok && ng_normalizer_add(z, NG_NORMALIZE_LOWER) == 0;
	return steps(in, ok);
}

static int read_normalizer(const struct source *in, const json_t *obj, int depth)
{
	struct ng_normalizer *z = &in->tok->normalizer;
	const char *type = type_of(obj);
	if (obj == NULL || json_is_null(obj))
		return 0;
	if (strcmp(type, "BertNormalizer") == 0)
		return read_bert_normalizer(in, obj);
	if (strcmp(type, "Lowercase") == 0)
		return steps(in, ng_normalizer_add(z, NG_NORMALIZE_LOWER) == 0);
	if (strcmp(type, "NFD") == 0)
		return steps(in, ng_normalizer_add(z, NG_NORMALIZE_NFD) == 0);
	if (strcmp(type, "StripAccents") == 0)
		return steps(in, ng_normalizer_add(z, NG_NORMALIZE_COMBINING) == 0);
	const json_t *list = json_object_get(obj, "normalizers");
	if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
		return refuse(in, "normalizer", obj);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (read_normalizer(in, json_array_get(list, i), depth + 1) < 0)
			return -1;
	return 0;
}

static int read_pre_tokenizer(const struct source *in, const json_t *obj)
{
	const char *type = type_of(obj);
	if (strcmp(type, "BertPreTokenizer") == 0)
		in->tok->model.split = NG_SPLIT_BERT;
	else if (strcmp(type, "WhitespaceSplit") == 0)
		in->tok->model.split = NG_SPLIT_SPACE;
	else if (strcmp(type, "Whitespace") == 0)
		in->tok->model.split = NG_SPLIT_WORDS;
	else
		return refuse(in, "pre_tokenizer", obj);
	return 0;
}

static int read_vocab(const struct source *in, const json_t *vocab)
{
	const char *token;
	json_t *value;
	size_t n = json_object_size(vocab);
	if (n > NG_TOKENIZER_TOKENS)
		return ng_fail(in->err, NG_DATA, "%s: the vocabulary has %zu tokens, more than %u", in->name, n,
			NG_TOKENIZER_TOKENS);
	json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
	{
		json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
		/* Some ids may be free (of tokens that stood twice in a vocab.txt), not most of them. */
		if (id < 0 || (size_t)id >= 2 * n + 1024) {
			char shown[64];
			ng_printable(shown, sizeof shown, token, strlen(token));
			return ng_fail(in->err, NG_DATA, "%s: token '%s' has id %lld in a vocabulary of %zu tokens",
				in->name, shown, (long long)id, n);
		}
		if (ng_tokenizer_add(in->tok, token, strlen(token), (int32_t)id, false, in->name, in->err) < 0)
			return -1;
	}
	return 0;
}

static int read_model(struct source *in, const json_t *model)
{
	const char *prefix = "##", *unk = "[UNK]";
	long chars = 100;
	const json_t *vocab = json_object_get(model, "vocab");
	/* old files do not say; a WordPiece is then known by its prefix */
	bool untyped = json_object_get(model, "type") == NULL &&
		       json_object_get(model, "max_input_chars_per_word") != NULL;
	if (!json_is_object(model))
		return ng_fail(in->err, NG_DATA, "%s: there is no model", in->name);
	if (!untyped && strcmp(type_of(model), "WordPiece") != 0)
		return refuse(in, "model", model);
	if (!json_is_object(vocab))
		return ng_fail(in->err, NG_DATA, "%s: the model has no vocab", in->name);
	if (ng_json_string(&prefix, model, "continuing_subword_prefix", in->name, in->err) < 0 ||
		ng_json_string(&unk, model, "unk_token", in->name, in->err) < 0 ||
		ng_json_long(&chars, model, "max_input_chars_per_word", 0, CHARS_MAX, in->name, in->err) < 0)
		return -1;
	if (strlen(prefix) > PREFIX_MAX)
		return ng_fail(in->err, NG_DATA, "%s: continuing_subword_prefix is longer than %d bytes", in->name,
			PREFIX_MAX);
	in->tok = ng_tokenizer_new(prefix);
	in->tok->model.max_chars = (size_t)chars;
	if (read_vocab(in, vocab) < 0)
		return -1;
	in->tok->model.unk = ng_tokenizer_id(in->tok, unk, strlen(unk));
	return 0;
}

int ng_tokenizer_read_added(struct ng_added_spec *out, const json_t *obj, const char *name, struct ng_err *err)
{
	const json_t *content = json_object_get(obj, "content");
	if (!json_is_string(content))
		return ng_fail(err, NG_DATA, "%s: an added token has no content", name);
	*out = (struct ng_added_spec){ .content = json_string_value(content), .id = -1 };
	out->len = json_string_length(content);
	if (ng_json_bool(&out->special, obj, "special", name, err) < 0)
		return -1;
	out->normalized = !out->special;
	if (ng_json_long(&out->id, obj, "id", 0, INT32_MAX, name, err) < 0 ||
		ng_json_bool(&out->normalized, obj, "normalized", name, err) < 0 ||
		ng_json_bool(&out->single_word, obj, "single_word", name, err) < 0 ||
		ng_json_bool(&out->lstrip, obj, "lstrip", name, err) < 0 ||
		ng_json_bool(&out->rstrip, obj, "rstrip", name, err) < 0)
		return -1;
	return 0;
}

static int read_added(const struct source *in, const json_t *list)
{
	size_t n = json_array_size(list);
	if (list != NULL && !json_is_null(list) && !json_is_array(list))
		return ng_fail(in->err, NG_DATA, "%s: added_tokens is not a list", in->name);
	struct ng_added_spec *spec = ng_xarray(n, sizeof *spec);
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = ng_tokenizer_read_added(&spec[i], json_array_get(list, i), in->name, in->err);
	if (rc == 0)
		rc = ng_tokenizer_add_specials(in->tok, spec, n, in->name, in->err);
	free(spec);
	return rc;
}

static int add_around(const struct source *in, bool after, const json_t *id)
{
	json_int_t n = json_is_integer(id) ? json_integer_value(id) : -1;
	return ng_tokenizer_around(in->tok, after, n < 0 || n > INT32_MAX ? -1 : (int32_t)n, in->name, in->err);
}

static int read_template(const struct source *in, const json_t *obj)
{
	const json_t *single = json_object_get(obj, "single"), *tokens = json_object_get(obj, "special_tokens");
	size_t texts = 0;
	for (size_t i = 0; i < json_array_size(single); i++) {
		const json_t *piece = json_array_get(single, i);
		const json_t *special = json_object_get(piece, "SpecialToken"),
			     *text = json_object_get(piece, "Sequence");
		const char *id = json_string_value(json_object_get(special != NULL ? special : text, "id"));
		if (id == NULL || (text != NULL && strcmp(id, "A") != 0))
			return ng_fail(in->err, NG_DATA, "%s: the template for one text is malformed", in->name);
		if (text != NULL) {
			texts++;
			continue;
		}
		const json_t *ids = json_object_get(json_object_get(tokens, id), "ids");
		if (json_array_size(ids) == 0)
			return ng_fail(
				in->err, NG_DATA, "%s: the template's special token '%s' has no ids", in->name, id);
		for (size_t j = 0; j < json_array_size(ids); j++)
			if (add_around(in, texts > 0, json_array_get(ids, j)) < 0)
				return -1;
	}
	if (texts != 1)
		return ng_fail(in->err, NG_REFUSED, "%s: the template does not hold the text once", in->name);
	return 0;
}

static int read_post_processor(const struct source *in, const json_t *obj)
{
	const char *type = type_of(obj);
	if (obj == NULL || json_is_null(obj))
		return 0;
	if (strcmp(type, "TemplateProcessing") == 0)
		return read_template(in, obj);
	if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
		return refuse(in, "post_processor", obj);
	/* ["[CLS]", 101] */
	if (add_around(in, false, json_array_get(json_object_get(obj, "cls"), 1)) < 0)
		return -1;
	return add_around(in, true, json_array_get(json_object_get(obj, "sep"), 1));
}

static bool lowers(const json_t *normalizer)
{
	const json_t *list = json_object_get(normalizer, "normalizers");
	for (size_t i = 0; i < json_array_size(list); i++)
		if (strcmp(type_of(json_array_get(list, i)), "Lowercase") == 0)
			return true;
	return strcmp(type_of(normalizer), "Lowercase") == 0;
}

static int read_all(struct source *in, const json_t *root, bool lower_first)
{
	const json_t *normalizer = json_object_get(root, "normalizer");
	if (!json_is_object(root))
		return ng_fail(in->err, NG_DATA, "%s is not a JSON object", in->name);
	if (read_model(in, json_object_get(root, "model")) < 0 || read_normalizer(in, normalizer, 0) < 0 ||
		read_pre_tokenizer(in, json_object_get(root, "pre_tokenizer")) < 0)
		return -1;
	if (lower_first && !lowers(normalizer))
		if (steps(in, ng_normalizer_prepend(&in->tok->normalizer, NG_NORMALIZE_LOWER) == 0) < 0)
			return -1;
	if (ng_normalizer_ready(&in->tok->normalizer, in->err) < 0)
		return ng_fail_prefix(in->err, "%s", in->name);
	if (read_added(in, json_object_get(root, "added_tokens")) < 0)
		return -1;
	return read_post_processor(in, json_object_get(root, "post_processor"));
}

int ng_tokenizer_from_json(struct ng_tokenizer **out, const char *json, size_t len, const char *name, bool lower_first,
	unsigned flags, struct ng_err *err)
{
	struct source in = { NULL, name, err };
	json_t *root = ng_json_parse(json, len, name, err);
	*out = NULL;
	int rc = -1;
	if (root != NULL && read_all(&in, root, lower_first) == 0)
		rc = ng_tokenizer_finish(in.tok, flags, name, err);
	json_decref(root);
	if (rc < 0)
		ng_tokenizer_free(in.tok);
	else
		*out = in.tok;
	return rc;
}

int ng_tokenizer_parse(
	struct ng_tokenizer **out, const char *json, size_t len, const char *name, unsigned flags, struct ng_err *err)
{
	return ng_tokenizer_from_json(out, json, len, name, false, flags, err);
}
