/*
 * added.h - added and special tokens: found in the text before (normalized
 * false) or after (true) the normaliser, leftmost and longest first, with the
 * lstrip, rstrip and single_word rules of the Rust tokenizers package.
 */
#ifndef NG_ADDED_H
#define NG_ADDED_H

#include "common/text/trie.h"

struct ng_added {
	char *content; /* as matched: normalised if normalized */
	size_t len;
	int32_t id;
	bool single_word, lstrip, rstrip, special;
};

struct ng_added_set {
	struct ng_added *token;
	size_t n, cap;
	/* private */
	struct ng_trie trie;
	uint32_t root;
	bool first[256]; /* bytes that a token begins with */
	int only_first;	 /* the one such byte, or -1 */
};

/* What was found at one place: [begin, end) goes to the tokenizer as text,
 * then comes id (-1 at the end of the text). */
struct ng_added_piece {
	size_t begin, end;
	int32_t id;
};

/* Where a search stands: zero-initialise. */
struct ng_added_search {
	size_t at;    /* where the next match is looked for */
	size_t start; /* behind the last match, and what it stripped */
	bool done;
};

void ng_added_init(struct ng_added_set *set);
void ng_added_release(struct ng_added_set *set);
/* token->content is taken over. An empty content, or one that is there already, never matches.
 * NG_DATA when there are too many. */
int ng_added_add(struct ng_added_set *set, const struct ng_added *token, struct ng_err *err);
/* The next piece of s (valid UTF-8); false when there is no more.  With
 * escape, special tokens are not looked at. */
bool ng_added_next(struct ng_added_piece *out, struct ng_added_search *search, const struct ng_added_set *set,
	const unsigned char *s, size_t len, bool escape);

#endif
