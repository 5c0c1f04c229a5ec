/*
 * blocks.h - who does what next when many readers, a sum and a writer go
 * through the same blocks side by side.
 *
 * Each reader reads its blocks in order; a block is summed, in parts, when all
 * have read it, and written when it is summed; blocks are written in order.
 * NG_BLOCK_SLOTS blocks are under way at once, so that a thread that the
 * system stops for a while does not stop the others.  What is computed does not
 * depend on who computes it, or when.
 */
#ifndef NG_FED_BLOCKS_H
#define NG_FED_BLOCKS_H

#include "common/fed/pool.h"

#define NG_BLOCK_SLOTS 3

struct ng_blocks {
	size_t blocks, readers, parts;
	/* Block b lies in slot b % NG_BLOCK_SLOTS of each buffer. */
	void (*read)(void *arg, size_t reader, size_t block); /* never twice at once for one reader */
	void (*sum)(void *arg, size_t part, size_t block);
	void (*write)(void *arg, size_t block); /* never twice at once */
	void *arg;
};

/* Returns when the last block was written. */
void ng_blocks_run(const struct ng_blocks *work, struct ng_pool *pool);

#endif
