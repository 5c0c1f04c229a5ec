/*
 * tokenizer.h - text to token ids, equal to the Rust `tokenizers` package
 * (0.23) for WordPiece models: BERT, MiniLM, BGE, E5, GTE and MPNet.
 *
 * A tokenizer is read from tokenizer.json (its own truncation and padding
 * blocks are ignored, as transformers does), else from vocab.txt and
 * tokenizer_config.json.  After loading it is constant: any number of threads
 * may encode with it, each into a struct ng_tokens of its own.
 *
 * Time is linear in the text; about one table look-up a byte.
 *
 * Where it differs from the package, on purpose:
 * - an added token of which the normaliser leaves nothing never matches (the
 *   package then runs until memory is out);
 * - of two added tokens that normalise to the same text, the special one, then
 *   the first in the file, is taken (the package: either, by chance);
 * - added tokens that overlap through lstrip and rstrip give their ids (the
 *   package may stop with a panic);
 * - an added token whose id is neither its id in the vocabulary nor the next
 *   free one is an error (the package gives it another id), as are an unknown
 *   token that is not in the vocabulary, and NUL in a token.
 * transformers 5 makes the normaliser of a BertTokenizer from
 * tokenizer_config.json even if there is a tokenizer.json; we follow the
 * latter, and warn if they disagree on lower case.
 */
#ifndef NG_TOKENIZER_H
#define NG_TOKENIZER_H

#include "common/base/err.h"

struct ng_tokenizer;

enum ng_tokenizer_flags {
	/* Special tokens that stand literally in a text ("[SEP]", "</s>") are
	 * tokenized as the characters they are.  Off: they become their ids, as
	 * everywhere else, which lets a text steer the model. */
	NG_TOKENIZER_ESCAPE_SPECIAL = 1 << 0,
};

/* -1 where the tokenizer has no such token. */
struct ng_tokenizer_info {
	size_t vocab;	 /* highest id + 1; a model's word table must have at least as many rows */
	size_t specials; /* ids that the template puts around a text: 2 for BERT and MPNet */
	int32_t unk, pad, cls, sep, mask;
	bool lowercase;
};

/* Ids, appended to by encode; the caller sets n back to 0 when it wants to.
 * Zero-initialise before the first use; one for each thread. */
struct ng_tokens {
	int32_t *id;
	size_t n;
	/* private */
	size_t cap;
	struct ng_tokenizer_scratch *scratch;
};

/* dir: the folder of the transformer module (usually the model folder).
 * NG_NOINPUT when it has neither tokenizer.json nor vocab.txt, NG_DATA when
 * malformed, NG_REFUSED for a kind of tokenizer that ng does not have (the
 * text names it).  flags: enum ng_tokenizer_flags. */
int ng_tokenizer_load(struct ng_tokenizer **out, const char *dir, unsigned flags, struct ng_err *err);
/* The same from the bytes of a tokenizer.json; name is for messages. */
int ng_tokenizer_parse(
	struct ng_tokenizer **out, const char *json, size_t len, const char *name, unsigned flags, struct ng_err *err);
void ng_tokenizer_free(struct ng_tokenizer *tok); /* NULL is harmless */
const struct ng_tokenizer_info *ng_tokenizer_info(const struct ng_tokenizer *tok);

/* Append the ids of prefix + text (prefix NUL-terminated, may be NULL; text
 * may hold NUL bytes), special tokens included.
 * max_length: most ids of one text, special tokens included, cut at the right
 *     before the special tokens are put around it; 0 = no limit.
 * truncated, total: may be NULL.  *total is the number of ids without the
 *     limit; asking for it makes a long text be read to its end, which is
 *     otherwise left as soon as max_length ids are certain.
 * NG_DATA when the text is not UTF-8 (the byte is named; nothing is appended),
 * NG_USAGE when max_length has no room for the special tokens. */
int ng_tokenizer_encode(struct ng_tokens *out, const struct ng_tokenizer *tok, const char *prefix, const char *text,
	size_t len, size_t max_length, bool *truncated, size_t *total, struct ng_err *err);
void ng_tokens_release(struct ng_tokens *tokens);

/* The token of an id, not NUL-terminated within *len unless it ends there; NULL for an id without one.
 * Borrowed from tok. */
const char *ng_tokenizer_token(const struct ng_tokenizer *tok, int32_t id, size_t *len);
/* The id of a token, added tokens included; -1. */
int32_t ng_tokenizer_id(const struct ng_tokenizer *tok, const char *token, size_t len);

/* The effective max length of conventions/embedding.md 1.1.7: max_seq_length
 * of sentence_bert_config.json (or an old name of it), else the lesser of
 * tokenizer_config.json's model_max_length and max_positions.
 * max_positions: tokens that the model's position table allows (MPNet with 514
 * rows: 512).  NG_DATA when max_seq_length is more than that, or malformed. */
int ng_text_max_length(size_t *out, const char *dir, size_t max_positions, struct ng_err *err);

#endif
