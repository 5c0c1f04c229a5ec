/*
 * sampler.h - which rows form which batch, laid out before the first step.
 *
 * The layout depends on seed, round, epoch, the number of rows and (sampler
 * no_duplicates) which texts are equal; on nothing else.  Exactly:
 *
 * Permutation of epoch e (from 0): p = 0..n-1; for i = n-1 down to 1:
 *     w = philox4x32-10(counter {i, e, 0, 0x6f726472}, key {seed, round})
 *     u = w[0] + 2^32 * w[1];  j = floor(u * (i+1) / 2^64);  swap p[i], p[j]
 * (seed and round modulo 2^32).
 *
 * B = min(batch, n).
 * random: p is cut into pieces of B, the last one may be shorter.
 * no_duplicates: rows are taken in the order of p; each goes to the first
 *     batch, in order of number, that holds fewer than B rows and none of the
 *     row's texts in any column (texts compare as bytes after decoding, before
 *     prompts; only the columns trained on count); if there is none, to a new
 *     batch.  That is what sentence-transformers' NoDuplicatesBatchSampler
 *     yields when it walks a permutation again and again, without its
 *     quadratic cost.
 * Rows keep the order in which they joined.  Then batches of fewer than 2 rows
 * are dropped (a contrastive loss of one row without negatives has no
 * gradient) and their rows counted.  Batches are trained on in order of number.
 *
 * Dropout: the text in column c (0 anchor, 1 positive, 2.. negatives) of the
 * row at position r of its batch has example number r * 16384 + c.
 * `step` there is the optimiser step within the round, from 0, over all epochs.
 */
#ifndef NG_SAMPLER_H
#define NG_SAMPLER_H

#include "common/base/err.h"

#define NG_SAMPLER_COLUMNS 16384 /* most texts a row */
#define NG_SAMPLER_BATCH 262144	 /* most rows a batch */
#define NG_EXAMPLE(r, c) ((uint32_t)(r) * (uint32_t)NG_SAMPLER_COLUMNS + (uint32_t)(c))

enum ng_sampler { NG_SAMPLER_NO_DUPLICATES, NG_SAMPLER_RANDOM };

struct ng_layout {
	uint32_t n;	/* rows */
	uint32_t batch; /* min(batch, n): the effective batch */
	uint32_t epochs;
	uint64_t steps;		      /* of all epochs */
	uint64_t *epoch_steps;	      /* (epochs) */
	uint64_t dropped;	      /* rows of all epochs in batches of fewer than 2 */
	uint64_t in_batch_duplicates; /* sampler random: rows of the first epoch that share a text with their batch */
	/* the epoch that ng_layout_epoch laid out last */
	uint32_t epoch;
	uint64_t batches;
	uint32_t *row;	 /* rows, batch after batch */
	uint64_t *start; /* (batches + 1) into row */
	/* private */
	enum ng_sampler sampler;
	uint32_t seed, round;
	size_t columns;
	const uint64_t *hash;
};

/* hash: (n, columns) of ng_rows_hashes, kept by the caller while the layout
 * lives; NULL is allowed with NG_SAMPLER_RANDOM.  Counts the steps of every
 * epoch and leaves epoch 0 laid out.  NG_DATA when no batch is left,
 * NG_USAGE when n, batch or columns are over the limits. */
int ng_layout_init(struct ng_layout *out, enum ng_sampler sampler, size_t n, size_t columns, const uint64_t *hash,
	size_t batch, size_t epochs, uint64_t seed, uint64_t round, struct ng_err *err);
void ng_layout_epoch(struct ng_layout *layout, uint32_t epoch);
void ng_layout_release(struct ng_layout *layout);
/* "no_duplicates" or "random" */
bool ng_sampler_parse(enum ng_sampler *out, const char *name);
/* p (n), the permutation above */
void ng_permutation(uint32_t *p, uint32_t n, uint32_t seed, uint32_t round, uint32_t epoch);

#endif
