/*
 * trie.c - see trie.h.
 */
#include "common/base/compat.h"

#include "common/text/trie.h"

#include "common/base/mem.h"

#define FIRST_BITS 10

void ng_trie_init(struct ng_trie *t)
{
	memset(t, 0, sizeof *t);
	t->mask = ((size_t)1 << FIRST_BITS) - 1;
	t->shift = 32 - FIRST_BITS;
	t->edge = ng_xcalloc(t->mask + 1, sizeof *t->edge);
	t->nodes = 1; /* node 0 is none */
	ng_grow(&t->value, &t->value_cap, 64, sizeof *t->value);
	t->value[0] = -1;
}

void ng_trie_release(struct ng_trie *t)
{
	free(t->edge);
	free(t->value);
	memset(t, 0, sizeof *t);
}

uint32_t ng_trie_root(struct ng_trie *t)
{
	if (t->nodes >= NG_TRIE_NODES)
		return NG_TRIE_NONE;
	ng_grow(&t->value, &t->value_cap, (size_t)t->nodes + 1, sizeof *t->value);
	t->value[t->nodes] = -1;
	return t->nodes++;
}

static void insert(struct ng_trie *t, uint32_t key, uint32_t child)
{
	size_t i = ng_trie_slot(t, key);
	while (t->edge[i].key != 0)
		i = (i + 1) & t->mask;
	t->edge[i] = (struct ng_trie_edge){ key, child };
}

/* At most half full, so that a step rarely needs a second probe. */
static void widen(struct ng_trie *t)
{
	if (2 * (t->edges + 1) <= t->mask)
		return;
	struct ng_trie_edge *old = t->edge;
	size_t n = t->mask + 1;
	t->mask = 2 * n - 1;
	t->shift--;
	t->edge = ng_xcalloc(2 * n, sizeof *t->edge);
	for (size_t i = 0; i < n; i++)
		if (old[i].key != 0)
			insert(t, old[i].key, old[i].child);
	free(old);
}

int32_t *ng_trie_add(struct ng_trie *t, uint32_t root, const char *s, size_t len)
{
	uint32_t node = root;
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)s[i];
		uint32_t next = ng_trie_step(t, node, byte);
		if (next == NG_TRIE_NONE) {
			next = ng_trie_root(t);
			if (next == NG_TRIE_NONE)
				return NULL;
			widen(t);
			insert(t, node << 8 | byte, next);
			t->edges++;
		}
		node = next;
	}
	return &t->value[node];
}

int32_t ng_trie_get(const struct ng_trie *t, uint32_t root, const char *s, size_t len)
{
	uint32_t node = root;
	for (size_t i = 0; i < len && node != NG_TRIE_NONE; i++)
		node = ng_trie_step(t, node, (unsigned char)s[i]);
	return t->value[node];
}
