/*
 * loss.h - the multiple-negatives ranking loss over a whole virtual batch
 * (conventions/embedding.md 4.1; sentence-transformers'
 * MultipleNegativesRankingLoss with its defaults).
 *
 * e (N, D) holds the vectors of N = B * columns texts, column by column:
 * anchors, positives, negatives 1, negatives 2, ...  With u = e / max(||e||,
 * 1e-12) and candidates c = rows B.. of u
 *	S_ij = scale u_i . c_j  (i < B, j < N - B)
 *	loss = mean_i( logsumexp_j S_ij - S_ii )
 * S is made in blocks of NG_LOSS_BLOCK squared, twice, and never held whole.
 */
#ifndef NG_MODEL_LOSS_H
#define NG_MODEL_LOSS_H

#include "common/base/err.h"
#include "common/model/encoder.h"

#define NG_LOSS_BLOCK 512

struct ng_loss {
	size_t B, columns, D;
	double scale;
	struct ng_ref e;    /* (N, D): vectors, normalised in place by ng_loss_begin */
	struct ng_ref norm; /* (N) */
	struct ng_ref de;   /* (N, D): gradient at the vectors as they were */
	struct ng_ref work; /* ng_loss_work(...) elements */
};

size_t ng_loss_work(size_t B, size_t D);
/* Normalise.  NG_DATA when a vector is not finite: *bad is its number (column * B + row). */
int ng_loss_begin(const struct ng_loss *l, const struct ng_model *m, size_t *bad, struct ng_err *err);
/* *loss in double and l->de.  1: stopped; call again, it starts over.  NG_DATA when a row's loss is not finite:
 * *bad is the row. */
int ng_loss_run(const struct ng_loss *l, const struct ng_model *m, double *loss, size_t *bad,
	const struct ng_stop *stop, struct ng_err *err);

#endif
