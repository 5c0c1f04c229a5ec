/*
 * added.c - see added.h.
 *
 * The order of the checks, and that a discarded match is still stepped over,
 * follow AddedVocabulary of the Rust tokenizers package.
 */
#include "common/base/compat.h"

#include "common/text/added.h"

#include "common/base/mem.h"
#include "common/text/unicode_table.h"

void ng_added_init(struct ng_added_set *set)
{
	memset(set, 0, sizeof *set);
	ng_trie_init(&set->trie);
	set->root = ng_trie_root(&set->trie);
	set->only_first = -1;
}

void ng_added_release(struct ng_added_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		free(set->token[i].content);
	free(set->token);
	ng_trie_release(&set->trie);
	memset(set, 0, sizeof *set);
}

int ng_added_add(struct ng_added_set *set, const struct ng_added *token, struct ng_err *err)
{
	size_t at = set->n;
	ng_grow(&set->token, &set->cap, at + 1, sizeof *set->token);
	set->token[set->n++] = *token;
	if (token->len == 0)
		return 0;
	int32_t *value = ng_trie_add(&set->trie, set->root, token->content, token->len);
	if (value == NULL || at > INT32_MAX)
		return ng_fail(err, NG_DATA, "too many added tokens");
	if (*value < 0)
		*value = (int32_t)at;
	unsigned char first = (unsigned char)token->content[0];
	if (!set->first[first]) {
		set->first[first] = true;
		set->only_first = at == 0 || set->only_first == first ? first : -1;
	}
	return 0;
}

/* Leftmost, then longest match at or after *at; NULL when there is none. */
static const struct ng_added *find(
	size_t *start, const struct ng_added_set *set, const unsigned char *s, size_t len, size_t at)
{
	while (at < len) {
		if (set->only_first >= 0) {
			const unsigned char *p = memchr(s + at, set->only_first, len - at);
			if (p == NULL)
				return NULL;
			at = (size_t)(p - s);
		} else {
			while (at < len && !set->first[s[at]])
				at++;
		}
		uint32_t node = set->root;
		int32_t found = -1;
		for (size_t i = at; i < len; i++) {
			node = ng_trie_step(&set->trie, node, s[i]);
			if (node == NG_TRIE_NONE)
				break;
			if (set->trie.value[node] >= 0)
				found = set->trie.value[node];
		}
		if (found >= 0) {
			*start = at;
			return &set->token[found];
		}
		at++;
	}
	return NULL;
}

/* Flags of the character before, or at, a place; 0 at either end of the text. */
static unsigned flags_before(const unsigned char *s, size_t at)
{
	uint32_t cp;
	if (at == 0)
		return 0;
	do
		at--;
	while ((s[at] & 0xc0) == 0x80);
	ng_unicode_decode(&cp, s + at);
	return ng_unicode(cp).flags;
}

static unsigned flags_at(size_t *n, const unsigned char *s, size_t len, size_t at)
{
	uint32_t cp;
	if (at >= len)
		return 0;
	*n = ng_unicode_decode(&cp, s + at);
	return ng_unicode(cp).flags;
}

bool ng_added_next(struct ng_added_piece *out, struct ng_added_search *search, const struct ng_added_set *set,
	const unsigned char *s, size_t len, bool escape)
{
	const struct ng_added *token;
	size_t begin, n;

	if (search->done)
		return false;
	while ((token = find(&begin, set, s, len, search->at)) != NULL) {
		size_t end = begin + token->len;
		search->at = end;
		if (escape && token->special)
			continue;
		if (token->single_word && ((flags_before(s, begin) | flags_at(&n, s, len, end)) & NG_UNICODE_WORD))
			continue;
		/* not into what the match before took */
		while (token->lstrip && begin > search->start && flags_before(s, begin) & NG_UNICODE_SPACE)
			do
				begin--;
			while ((s[begin] & 0xc0) == 0x80);
		while (token->rstrip && flags_at(&n, s, len, end) & NG_UNICODE_SPACE)
			end += n;
		out->begin = search->start;
		out->end = begin > search->start ? begin : search->start;
		out->id = token->id;
		search->start = end;
		return true;
	}
	search->done = true;
	out->begin = search->start < len ? search->start : len;
	out->end = len;
	out->id = -1;
	return true;
}
