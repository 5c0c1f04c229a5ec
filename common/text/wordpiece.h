/*
 * wordpiece.h - a vocabulary, and normalised text cut into words and the words
 * into its pieces.
 *
 * Words: as the pre-tokenizer says.  Pieces: the longest that the vocabulary
 * has, from the left, those after the first with the continuation prefix; a
 * word of more than max_chars characters, or with a rest that no piece begins,
 * is one unknown token.  A piece is found by one walk down a trie, so a text
 * costs at most its bytes times the longest piece, and a cache of short words
 * makes it far less.
 */
#ifndef NG_WORDPIECE_H
#define NG_WORDPIECE_H

#include "common/base/err.h"
#include "common/text/trie.h"

enum ng_split {
	NG_SPLIT_BERT,	/* at white space, punctuation characters by themselves */
	NG_SPLIT_SPACE, /* WhitespaceSplit: at white space */
	NG_SPLIT_WORDS, /* Whitespace: runs of \w, runs of what is neither \w nor space */
};

struct ng_wordpiece {
	struct ng_trie trie;
	uint32_t initial, next; /* roots: whole tokens; tokens less the continuation prefix */
	char *prefix;
	size_t prefix_len;
	size_t max_chars;
	int32_t unk;
	enum ng_split split;
	unsigned char ascii[128]; /* private, made by ready */
};

/* Per thread: words of at most 16 bytes and 3 pieces. */
struct ng_word_slot {
	unsigned char word[16];
	int32_t id[3];
	unsigned char len, n;
};
#define NG_WORD_SLOTS 4096

struct ng_word_cache {
	struct ng_word_slot slot[NG_WORD_SLOTS];
};

struct ng_id_vector {
	int32_t *id;
	size_t n, cap;
};

void ng_wordpiece_init(struct ng_wordpiece *w, const char *prefix);
void ng_wordpiece_release(struct ng_wordpiece *w);
/* -1: the token has another id already (*had), or the vocabulary is too large (*had = -1). */
int ng_wordpiece_add(struct ng_wordpiece *w, const char *token, size_t len, int32_t id, bool replace, int32_t *had);
/* Call once, when split is set and before the first encode. */
void ng_wordpiece_ready(struct ng_wordpiece *w);
/* Append the ids of s, valid UTF-8.  s[len .. len + 15] must be readable.  Stops early, at
 * a word's end, once out->n > stop. */
void ng_wordpiece_encode(struct ng_id_vector *out, const struct ng_wordpiece *w, struct ng_word_cache *cache,
	const unsigned char *s, size_t len, size_t stop);

#endif
