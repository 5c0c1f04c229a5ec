/*
 * trie.h - sets of byte strings, matched one byte at a time.
 *
 * Edges lie in one open-addressed hash table keyed (node, byte): building is
 * trivial and linear, a step is one probe.  Several roots may share a trie.
 */
#ifndef NG_TRIE_H
#define NG_TRIE_H

#include "common/base/err.h"

#define NG_TRIE_NONE 0u /* no such node */
#define NG_TRIE_NODES (1u << 24)

struct ng_trie_edge {
	uint32_t key; /* node << 8 | byte; 0 = free, since node 0 is no node */
	uint32_t child;
};

struct ng_trie {
	struct ng_trie_edge *edge; /* (mask + 1) */
	int32_t *value;		   /* (nodes), -1 = no string ends here */
	size_t mask, edges;
	uint32_t nodes;
	unsigned shift;
	size_t value_cap;
};

void ng_trie_init(struct ng_trie *t); /* without a root */
void ng_trie_release(struct ng_trie *t);
/* NG_TRIE_NONE when there are NG_TRIE_NODES already */
uint32_t ng_trie_root(struct ng_trie *t);
/* The value slot of the string below root, made if need be; valid until the next add.  NULL: full. */
int32_t *ng_trie_add(struct ng_trie *t, uint32_t root, const char *s, size_t len);
/* -1 when absent */
int32_t ng_trie_get(const struct ng_trie *t, uint32_t root, const char *s, size_t len);

static inline size_t ng_trie_slot(const struct ng_trie *t, uint32_t key)
{
	return (size_t)(key * 0x9E3779B1u >> t->shift);
}

static inline uint32_t ng_trie_step(const struct ng_trie *t, uint32_t node, unsigned char byte)
{
	uint32_t key = node << 8 | byte;
	for (size_t i = ng_trie_slot(t, key);; i = (i + 1) & t->mask) {
		if (t->edge[i].key == key)
			return t->edge[i].child;
		if (t->edge[i].key == 0)
			return NG_TRIE_NONE;
	}
}

#endif
