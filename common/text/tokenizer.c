/*
 * tokenizer.c - text to ids: special tokens out of the raw text, the rest
 * through the normaliser, special tokens out of that, the rest into words and
 * pieces.  Long texts go through in chunks cut before white space, which no
 * step but the search for added tokens can look across, so that the buffers
 * stay in the cache and a truncated text is left early.
 */
#include "common/base/compat.h"

#include "common/text/tokenizer.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/tokenizer_private.h"

#define CHUNK 4096 /* bytes, at least, when the text is longer */

struct ng_tokenizer_scratch {
	uint64_t serial;
	struct ng_bytes joined; /* prefix + text */
	struct ng_bytes norm;
	struct ng_id_vector ids;
	struct ng_word_cache cache;
};

/* One text on its way. */
struct run {
	const struct ng_tokenizer *tok;
	struct ng_tokenizer_scratch *scratch;
	size_t stop; /* no need to go on once there are more ids than this */
};

struct ng_tokenizer *ng_tokenizer_new(const char *prefix)
{
	static atomic_ulong count;
	struct ng_tokenizer *tok = ng_xcalloc(1, sizeof *tok);
	tok->serial = (uint64_t)atomic_fetch_add(&count, 1) + 1;
	ng_wordpiece_init(&tok->model, prefix);
	tok->extra = ng_trie_root(&tok->model.trie);
	ng_added_init(&tok->raw);
	ng_added_init(&tok->normalized);
	return tok;
}

void ng_tokenizer_free(struct ng_tokenizer *tok)
{
	if (tok == NULL)
		return;
	ng_normalizer_release(&tok->normalizer);
	ng_wordpiece_release(&tok->model);
	ng_added_release(&tok->raw);
	ng_added_release(&tok->normalized);
	for (size_t i = 0; i < tok->owned_n; i++)
		free(tok->owned[i]);
	free(tok->owned);
	free(tok->before);
	free(tok->after);
	free(tok->token);
	free(tok);
}

static int set_token(struct ng_tokenizer *tok, const char *s, size_t len, int32_t id)
{
	ng_grow(&tok->token, &tok->token_cap, (size_t)id + 1, sizeof *tok->token);
	while (tok->token_n <= (size_t)id)
		tok->token[tok->token_n++] = (struct ng_token_text){ NULL, 0 };
	if (tok->token[id].s != NULL)
		return -1;
	tok->token[id] = (struct ng_token_text){ s, (uint32_t)len };
	return 0;
}

static char *own(struct ng_tokenizer *tok, const char *s, size_t len)
{
	char *copy = ng_xstrndup(s, len);
	ng_grow(&tok->owned, &tok->owned_cap, tok->owned_n + 1, sizeof *tok->owned);
	tok->owned[tok->owned_n++] = copy;
	return copy;
}

int ng_tokenizer_add(struct ng_tokenizer *tok, const char *s, size_t len, int32_t id, bool replace, const char *name,
	struct ng_err *err)
{
	int32_t had = -1;
	bool fits = id >= 0 && (uint32_t)id < NG_TOKENIZER_TOKENS && len <= INT32_MAX;
	int added = fits ? ng_wordpiece_add(&tok->model, s, len, id, replace, &had) : 0;
	bool unique = fits && added == 0 && set_token(tok, own(tok, s, len), len, id) == 0;
	if (!unique) {
		char shown[64];
		ng_printable(shown, sizeof shown, s, len);
		if (!fits)
			return ng_fail(err, NG_DATA, "%s: token '%s' has id %ld, outside the vocabulary", name, shown,
				(long)id);
		if (added == 0)
			return ng_fail(err, NG_DATA, "%s: two tokens have id %ld, one is '%s'", name, (long)id, shown);
		if (had < 0)
			return ng_fail(err, NG_DATA, "%s: the vocabulary is too large", name);
		return ng_fail(
			err, NG_DATA, "%s: token '%s' has both id %ld and %ld", name, shown, (long)had, (long)id);
	}
	tok->entries++;
	return 0;
}

static int add_special_id(
	struct ng_tokenizer *tok, int32_t *out, const struct ng_added_spec *spec, const char *name, struct ng_err *err)
{
	char shown[64];
	int32_t id = ng_tokenizer_id(tok, spec->content, spec->len);
	bool fresh = id < 0;
	ng_printable(shown, sizeof shown, spec->content, spec->len);
	if (fresh) {
		/* as the Rust package numbers them: behind the vocabulary, one after the other */
		id = (int32_t)(tok->token_n > tok->entries ? tok->token_n : tok->entries);
		if ((uint32_t)id >= NG_TOKENIZER_TOKENS)
			return ng_fail(err, NG_DATA, "%s: too many added tokens", name);
	}
	if (spec->id >= 0 && spec->id != id)
		return ng_fail(err, NG_DATA, "%s: added token '%s' has id %ld, but %s is %ld", name, shown, spec->id,
			fresh ? "the next free one" : "its id in the vocabulary", (long)id);
	if (fresh) {
		int32_t *value = ng_trie_add(&tok->model.trie, tok->extra, spec->content, spec->len);
		if (value == NULL)
			return ng_fail(err, NG_DATA, "%s: too many added tokens", name);
		*value = id;
		set_token(tok, own(tok, spec->content, spec->len), spec->len, id);
	}
	*out = id;
	return 0;
}

static int add_special_match(struct ng_tokenizer *tok, int32_t id, const struct ng_added_spec *spec, struct ng_err *err)
{
	struct ng_added added = {
		.id = id,
		.single_word = spec->single_word,
		.lstrip = spec->lstrip,
		.rstrip = spec->rstrip,
		.special = spec->special,
	};
	if (spec->normalized) {
		struct ng_bytes norm = { 0 };
		ng_normalize(&norm, &tok->normalizer, (const unsigned char *)spec->content, spec->len);
		added.content = (char *)norm.data;
		added.len = norm.n;
		return ng_added_add(&tok->normalized, &added, err);
	}
	added.content = ng_xstrndup(spec->content, spec->len);
	added.len = spec->len;
	return ng_added_add(&tok->raw, &added, err);
}

int ng_tokenizer_add_specials(
	struct ng_tokenizer *tok, const struct ng_added_spec *spec, size_t n, const char *name, struct ng_err *err)
{
	int32_t *id = ng_xarray(n, sizeof *id);
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		if (spec[i].len > 0)
			rc = add_special_id(tok, &id[i], &spec[i], name, err);
	/* of two that match the same text, a special one is the first */
	for (int special = 1; special >= 0; special--)
		for (size_t i = 0; i < n && rc == 0; i++)
			if (spec[i].len > 0 && spec[i].special == (special == 1))
				rc = add_special_match(tok, id[i], &spec[i], err);
	free(id);
	return rc;
}

int ng_tokenizer_around(struct ng_tokenizer *tok, bool after, int32_t id, const char *name, struct ng_err *err)
{
	int32_t **v = after ? &tok->after : &tok->before;
	size_t *n = after ? &tok->after_n : &tok->before_n;
	if (id < 0 || (size_t)id >= tok->token_n || tok->token[id].s == NULL)
		return ng_fail(err, NG_DATA, "%s: the template's id %ld is not in the vocabulary", name, (long)id);
	*v = ng_xrealloc(*v, *n + 1, sizeof **v);
	(*v)[(*n)++] = id;
	return 0;
}

static int32_t first_of(const struct ng_tokenizer *tok, const char *a, const char *b)
{
	int32_t id = ng_tokenizer_id(tok, a, strlen(a));
	return id >= 0 ? id : ng_tokenizer_id(tok, b, strlen(b));
}

int ng_tokenizer_finish(struct ng_tokenizer *tok, unsigned flags, const char *name, struct ng_err *err)
{
	struct ng_tokenizer_info *info = &tok->info;
	ng_wordpiece_ready(&tok->model);
	if (tok->model.unk < 0)
		return ng_fail(err, NG_DATA, "%s: the unknown token is not in the vocabulary", name);
	tok->escape = flags & NG_TOKENIZER_ESCAPE_SPECIAL;
	info->vocab = tok->token_n;
	info->specials = tok->before_n + tok->after_n;
	info->unk = tok->model.unk;
	info->cls = tok->before_n > 0 ? tok->before[0] : -1;
	info->sep = tok->after_n > 0 ? tok->after[0] : -1;
	size_t len = 0;
	const char *cls = ng_tokenizer_token(tok, info->cls, &len);
	/* MPNet's vocabulary has BERT's special tokens too, unused */
	if (cls != NULL && len == 3 && memcmp(cls, "<s>", 3) == 0) {
		info->pad = first_of(tok, "<pad>", "[PAD]");
		info->mask = first_of(tok, "<mask>", "[MASK]");
	} else {
		info->pad = first_of(tok, "[PAD]", "<pad>");
		info->mask = first_of(tok, "[MASK]", "<mask>");
	}
	for (size_t i = 0; i < tok->normalizer.steps; i++)
		if (tok->normalizer.step[i] == NG_NORMALIZE_LOWER)
			info->lowercase = true;
	return 0;
}

const struct ng_tokenizer_info *ng_tokenizer_info(const struct ng_tokenizer *tok)
{
	return &tok->info;
}

const char *ng_tokenizer_token(const struct ng_tokenizer *tok, int32_t id, size_t *len)
{
	if (id < 0 || (size_t)id >= tok->token_n)
		return NULL;
	*len = tok->token[id].len;
	return tok->token[id].s;
}

int32_t ng_tokenizer_id(const struct ng_tokenizer *tok, const char *token, size_t len)
{
	int32_t id = ng_trie_get(&tok->model.trie, tok->model.initial, token, len);
	return id >= 0 ? id : ng_trie_get(&tok->model.trie, tok->extra, token, len);
}

static struct ng_tokenizer_scratch *scratch_for(struct ng_tokens *out, const struct ng_tokenizer *tok)
{
	struct ng_tokenizer_scratch *s = out->scratch;
	if (s == NULL)
		s = out->scratch = ng_xcalloc(1, sizeof *s);
	if (s->serial != tok->serial) {
		memset(&s->cache, 0, sizeof s->cache);
		s->serial = tok->serial;
	}
	return s;
}

void ng_tokens_release(struct ng_tokens *tokens)
{
	if (tokens->scratch != NULL) {
		free(tokens->scratch->joined.data);
		free(tokens->scratch->norm.data);
		free(tokens->scratch->ids.id);
	}
	free(tokens->scratch);
	free(tokens->id);
	memset(tokens, 0, sizeof *tokens);
}

static bool enough(const struct run *r)
{
	return r->scratch->ids.n > r->stop;
}

static void add_id(struct run *r, int32_t id)
{
	struct ng_id_vector *ids = &r->scratch->ids;
	ng_grow(&ids->id, &ids->cap, ids->n + 1, sizeof *ids->id);
	ids->id[ids->n++] = id;
}

/* Where a piece of text may be cut: at ASCII white space (which stays or becomes white space). */
static size_t chunk_end(const unsigned char *s, size_t len)
{
	for (size_t i = CHUNK; i < len; i++)
		if (s[i] == ' ' || s[i] == '\n')
			return i;
	return len;
}

/* Text without added tokens that are looked for before the normaliser. */
static void encode_text(struct run *r, const unsigned char *s, size_t len)
{
	const struct ng_tokenizer *tok = r->tok;
	struct ng_tokenizer_scratch *scratch = r->scratch;
	struct ng_bytes *norm = &scratch->norm;

	if (tok->normalized.n == 0) {
		while (len > 0 && !enough(r)) {
			size_t n = chunk_end(s, len);
			ng_normalize(norm, &tok->normalizer, s, n);
			ng_wordpiece_encode(&scratch->ids, &tok->model, &scratch->cache, norm->data, norm->n, r->stop);
			s += n;
			len -= n;
		}
		return;
	}
	ng_normalize(norm, &tok->normalizer, s, len);
	struct ng_added_search search = { 0 };
	struct ng_added_piece piece;
	while (!enough(r) && ng_added_next(&piece, &search, &tok->normalized, norm->data, norm->n, tok->escape)) {
		ng_wordpiece_encode(&scratch->ids, &tok->model, &scratch->cache, norm->data + piece.begin,
			piece.end - piece.begin, r->stop);
		if (piece.id >= 0)
			add_id(r, piece.id);
	}
}

static void append(struct ng_tokens *out, const int32_t *id, size_t n)
{
	if (n > 0)
		memcpy(out->id + out->n, id, n * sizeof *id);
	out->n += n;
}

int ng_tokenizer_encode(struct ng_tokens *out, const struct ng_tokenizer *tok, const char *prefix, const char *text,
	size_t len, size_t max_length, bool *truncated, size_t *total, struct ng_err *err)
{
	struct ng_tokenizer_scratch *scratch = scratch_for(out, tok);
	const unsigned char *s = (const unsigned char *)text;
	size_t specials = tok->before_n + tok->after_n, bad;

	if (max_length > 0 && max_length < specials)
		return ng_fail(err, NG_USAGE, "a max length of %zu has no room for the %zu special tokens", max_length,
			specials);
	if (prefix != NULL && *prefix != '\0') {
		size_t n = strlen(prefix);
		struct ng_bytes *joined = &scratch->joined;
		ng_grow(&joined->data, &joined->cap, n + len, 1);
		memcpy(joined->data, prefix, n);
		if (len > 0)
			memcpy(joined->data + n, text, len);
		s = joined->data;
		len += n;
	}
	if (!ng_utf8_valid((const char *)s, len, &bad))
		return ng_fail(err, NG_DATA, "the text is not UTF-8 at byte %zu", bad);

	size_t budget = max_length == 0 ? SIZE_MAX : max_length - specials;
	struct run r = { tok, scratch, total != NULL ? SIZE_MAX : budget };
	struct ng_added_search search = { 0 };
	struct ng_added_piece piece;
	scratch->ids.n = 0;
	while (!enough(&r) && ng_added_next(&piece, &search, &tok->raw, s, len, tok->escape)) {
		encode_text(&r, s + piece.begin, piece.end - piece.begin);
		if (piece.id >= 0)
			add_id(&r, piece.id);
	}

	size_t n = scratch->ids.n;
	if (truncated != NULL)
		*truncated = n > budget;
	if (total != NULL)
		*total = n + specials;
	if (n > budget)
		n = budget;
	ng_grow(&out->id, &out->cap, out->n + n + specials, sizeof *out->id);
	append(out, tok->before, tok->before_n);
	append(out, scratch->ids.id, n);
	append(out, tok->after, tok->after_n);
	return 0;
}
