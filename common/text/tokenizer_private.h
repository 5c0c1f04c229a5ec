/*
 * tokenizer_private.h - what the reading of a tokenizer (tokenizer_json.c,
 * tokenizer_vocab.c) and the use of it (tokenizer.c) share.
 */
#ifndef NG_TOKENIZER_PRIVATE_H
#define NG_TOKENIZER_PRIVATE_H

#include "common/base/json.h"
#include "common/text/added.h"
#include "common/text/normalize.h"
#include "common/text/tokenizer.h"
#include "common/text/wordpiece.h"

#define NG_TOKENIZER_FILE_MAX (256u << 20)
#define NG_TOKENIZER_TOKENS (1u << 22)

struct ng_token_text {
	const char *s; /* in pool, or of an added token */
	uint32_t len;
};

struct ng_tokenizer {
	struct ng_tokenizer_info info;
	uint64_t serial; /* tells apart the tokenizers that a scratch is used with */
	struct ng_normalizer normalizer;
	struct ng_wordpiece model;
	uint32_t extra;			/* root of the model's trie for added tokens that are not in its vocabulary */
	struct ng_added_set raw;	/* looked for before the normaliser */
	struct ng_added_set normalized; /* and after it */
	int32_t *before, *after;	/* the template's ids around a text */
	size_t before_n, after_n;
	struct ng_token_text *token; /* (token_n) by id */
	size_t token_n, token_cap;
	char **owned; /* texts that tokens point at */
	size_t owned_n, owned_cap;
	size_t entries; /* of the model's vocabulary */
	bool escape;
};

/* One added token of tokenizer.json or tokenizer_config.json; content is not NUL-terminated. */
struct ng_added_spec {
	const char *content;
	size_t len;
	long id; /* -1: whatever it gets */
	bool single_word, lstrip, rstrip, normalized, special;
};

struct ng_tokenizer *ng_tokenizer_new(const char *prefix);
/* Add a token of the model's vocabulary; s is copied.  replace: the last of equal tokens counts (vocab.txt). */
int ng_tokenizer_add(struct ng_tokenizer *tok, const char *s, size_t len, int32_t id, bool replace, const char *name,
	struct ng_err *err);
/* All added tokens, in the order of the file.  Vocabulary and normaliser must be complete. */
int ng_tokenizer_add_specials(
	struct ng_tokenizer *tok, const struct ng_added_spec *spec, size_t n, const char *name, struct ng_err *err);
/* One token of added_tokens, or a named one of tokenizer_config.json given as an object. */
int ng_tokenizer_read_added(struct ng_added_spec *out, const json_t *obj, const char *name, struct ng_err *err);
/* The template: one more id before, or after, the text. */
int ng_tokenizer_around(struct ng_tokenizer *tok, bool after, int32_t id, const char *name, struct ng_err *err);
/* Last of all: ids of the special tokens, checks. */
int ng_tokenizer_finish(struct ng_tokenizer *tok, unsigned flags, const char *name, struct ng_err *err);

/* From vocab.txt and what tokenizer_config.json (NULL: there is none) says. */
int ng_tokenizer_from_vocab(struct ng_tokenizer **out, const char *text, size_t len, const char *name,
	const json_t *config, bool lower_first, unsigned flags, struct ng_err *err);
int ng_tokenizer_from_json(struct ng_tokenizer **out, const char *json, size_t len, const char *name, bool lower_first,
	unsigned flags, struct ng_err *err);

#endif
