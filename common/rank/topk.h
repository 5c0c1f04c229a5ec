/*
 * topk.h - the k best documents of each query, over a corpus that comes in
 * blocks; never a matrix of scores.
 *
 * Order: score descending, then the tie key ascending (sentence-transformers
 * 6.0: corpus id, compared as a string).  The result does not depend on how
 * the corpus was cut into blocks or on the number of threads.
 *
 * Scores are made by a loop of our own, not by a BLAS: a BLAS adds the products
 * in an order that changes with the place in its block, so equal documents
 * would score differently in the last bit and would not tie (seen with
 * OpenBLAS 0.3.21).
 */
#ifndef NG_RANK_TOPK_H
#define NG_RANK_TOPK_H

#include "common/base/err.h"

#define NG_TOPK_QUERIES 1024

struct ng_hit {
	float score;
	uint32_t doc; /* number of the document in the corpus */
};

struct ng_topk;
/* query(Q,C): the rows are copied (divided by max(norm, 1e-12) when cosine);
 * Q at most NG_TOPK_QUERIES.  tie(documents): rank of each document's id among all ids;
 * must outlive it; NULL: the document's number. */
struct ng_topk *ng_topk_new(
	const float *query, size_t Q, size_t C, size_t k, bool cosine, const uint32_t *tie, int threads);
void ng_topk_free(struct ng_topk *t);
/* Documents first .. first+n-1, doc(n,C), any n. NG_DATA on a non-finite score, naming query and document. */
int ng_topk_add(struct ng_topk *t, const float *doc, size_t n, size_t first, struct ng_err *err);
/* Best first; returns how many (min(k, documents)). Valid until the next call; after the first call add no more. */
size_t ng_topk_get(struct ng_topk *t, const struct ng_hit **out, size_t q);

/* x(n,C) /= max(norm, 1e-12) row by row; the norm in float64, so that equal rows stay equal. */
void ng_unit_rows(float *x, size_t n, size_t C);
/* rank[i] of the decimal string of i among those of 0..n-1, compared as strings. */
void ng_decimal_ranks(uint32_t *rank, uint32_t n);

#endif
