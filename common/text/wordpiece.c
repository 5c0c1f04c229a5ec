/*
 * wordpiece.c - see wordpiece.h.
 */
#include "common/base/compat.h"

#include "common/text/wordpiece.h"

#include "common/base/mem.h"
#include "common/text/unicode_table.h"

void ng_wordpiece_init(struct ng_wordpiece *w, const char *prefix)
{
	memset(w, 0, sizeof *w);
	ng_trie_init(&w->trie);
	w->initial = ng_trie_root(&w->trie);
	w->next = ng_trie_root(&w->trie);
	w->prefix = ng_xstrdup(prefix);
	w->prefix_len = strlen(prefix);
	w->max_chars = 100;
	w->unk = -1;
}

void ng_wordpiece_release(struct ng_wordpiece *w)
{
	ng_trie_release(&w->trie);
	free(w->prefix);
	memset(w, 0, sizeof *w);
}

int ng_wordpiece_add(struct ng_wordpiece *w, const char *token, size_t len, int32_t id, bool replace, int32_t *had)
{
	*had = -1;
	int32_t *value = ng_trie_add(&w->trie, w->initial, token, len);
	if (value == NULL)
		return -1;
	if (*value >= 0 && *value != id && !replace) {
		*had = *value;
		return -1;
	}
	*value = id;
	if (len >= w->prefix_len && memcmp(token, w->prefix, w->prefix_len) == 0) {
		value = ng_trie_add(&w->trie, w->next, token + w->prefix_len, len - w->prefix_len);
		if (value == NULL)
			return -1;
		*value = id;
	}
	return 0;
}

static void push(struct ng_id_vector *out, int32_t id)
{
	if (out->n == out->cap)
		ng_grow(&out->id, &out->cap, out->n + 1, sizeof *out->id);
	out->id[out->n++] = id;
}

static void pieces(struct ng_id_vector *out, const struct ng_wordpiece *w, const unsigned char *s, size_t len)
{
	size_t first = out->n;
	uint32_t root = w->initial;
	for (size_t at = 0; at < len;) {
		uint32_t node = root;
		int32_t id = -1;
		size_t best = at;
		for (size_t i = at; i < len; i++) {
			node = ng_trie_step(&w->trie, node, s[i]);
			if (node == NG_TRIE_NONE)
				break;
			if (w->trie.value[node] >= 0) {
				id = w->trie.value[node];
				best = i + 1;
			}
		}
		if (id < 0) {
			out->n = first;
			push(out, w->unk);
			return;
		}
		push(out, id);
		at = best;
		root = w->next;
	}
}

/* Bits 0 .. 8n-1 of the word, the rest 0; reads 16 bytes. */
static void load(uint64_t out[2], const unsigned char *s, size_t len)
{
	memcpy(out, s, 16);
#if defined __BYTE_ORDER__ && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	if (len <= 8) {
		out[0] &= UINT64_MAX >> (64 - 8 * len);
		out[1] = 0;
	} else {
		out[1] &= UINT64_MAX >> (128 - 8 * len);
	}
#else
	memset((unsigned char *)out + len, 0, 16 - len);
#endif
}

static void word(struct ng_id_vector *out, const struct ng_wordpiece *w, struct ng_word_cache *cache,
	const unsigned char *s, size_t len, size_t chars)
{
	if (chars > w->max_chars) {
		push(out, w->unk);
		return;
	}
	if (len > 16) {
		pieces(out, w, s, len);
		return;
	}
	uint64_t key[2];
	load(key, s, len);
	uint64_t hash = (key[0] ^ key[1] * 0x9FB21C651E98DF25u) * 0xD6E8FEB86659FD93u;
	struct ng_word_slot *slot = &cache->slot[(hash ^ hash >> 32) >> 20 & (NG_WORD_SLOTS - 1)];
	if (slot->len != len || memcmp(slot->word, key, 16) != 0) {
		size_t first = out->n;
		pieces(out, w, s, len);
		size_t n = out->n - first;
		if (n <= NG_COUNT(slot->id)) {
			memcpy(slot->word, key, 16);
			memcpy(slot->id, out->id + first, n * sizeof *out->id);
			slot->len = (unsigned char)len;
			slot->n = (unsigned char)n;
		}
		return;
	}
	for (size_t i = 0; i < slot->n; i++)
		push(out, slot->id[i]);
}

enum word_class { WORD, SPACE, ALONE, OTHER };

static unsigned char classify(uint32_t cp, enum ng_split split)
{
	unsigned flags = ng_unicode(cp).flags;
	if (flags & NG_UNICODE_SPACE)
		return SPACE;
	if (split == NG_SPLIT_BERT)
		return flags & NG_UNICODE_PUNCT ? ALONE : WORD;
	if (split == NG_SPLIT_WORDS)
		return flags & NG_UNICODE_WORD ? WORD : OTHER;
	return WORD;
}

void ng_wordpiece_ready(struct ng_wordpiece *w)
{
	for (uint32_t c = 0; c < 128; c++)
		w->ascii[c] = classify(c, w->split);
}

void ng_wordpiece_encode(struct ng_id_vector *out, const struct ng_wordpiece *w, struct ng_word_cache *cache,
	const unsigned char *s, size_t len, size_t stop)
{
	const unsigned char *p = s, *end = s + len;
	while (p < end && out->n <= stop) {
		const unsigned char *begin = p;
		size_t more = 0; /* bytes of characters beyond their first */
		enum word_class first = SPACE;
		uint32_t cp;
		while (p < end) {
			size_t n = 1;
			enum word_class kind;
			if (*p < 0x80) {
				kind = (enum word_class)w->ascii[*p];
			} else {
				n = ng_unicode_decode(&cp, p);
				kind = (enum word_class)classify(cp, w->split);
			}
			if (p == begin)
				first = kind;
			else if (kind != first || kind == ALONE)
				break;
			p += n;
			more += n - 1;
		}
		if (first != SPACE)
			word(out, w, cache, begin, (size_t)(p - begin), (size_t)(p - begin) - more);
	}
}
