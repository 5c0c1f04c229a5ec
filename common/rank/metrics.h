/*
 * metrics.h - ranking and similarity metrics as sentence-transformers' 6.0
 * evaluators define them (InformationRetrievalEvaluator,
 * EmbeddingSimilarityEvaluator).  Relevance is a set; a query has at least one
 * relevant document; averages are over all queries.
 */
#ifndef NG_RANK_METRICS_H
#define NG_RANK_METRICS_H

#include "common/base/compat.h"

#define NG_AT_MAX 32

/* The cut-offs of each metric. */
struct ng_at {
	long k[NG_AT_MAX];
	size_t n;
};
struct ng_ir_at {
	struct ng_at accuracy, precision_recall, ndcg, mrr, map;
};
/* sentence-transformers' defaults: accuracy, precision, recall at 1, 3, 5, 10; MRR@10, NDCG@10, MAP@100. */
void ng_ir_at_default(struct ng_ir_at *at);
long ng_ir_at_max(const struct ng_ir_at *at);

/* Sums over queries; ng_ir_mean divides.  For query q with its ranked list and
 * relevant set R:
 *   accuracy@k  1 if one of the first k is in R
 *   precision@k hits in the first k / k (k fixed even when fewer came)
 *   recall@k    hits in the first k / |R|
 *   mrr@k       1 / rank of the first hit within k, else 0
 *   ndcg@k      sum_{i<=k} rel_i / log2(i + 1), over the same sum of min(k, |R|) ones
 *   map@k       sum of precision at each hit within k, over min(k, |R|)  */
struct ng_ir {
	struct ng_ir_at at;
	size_t queries;
	double accuracy[NG_AT_MAX], precision[NG_AT_MAX], recall[NG_AT_MAX], ndcg[NG_AT_MAX], mrr[NG_AT_MAX],
		map[NG_AT_MAX];
};
void ng_ir_init(struct ng_ir *ir, const struct ng_ir_at *at);
/* hit(n): relevant? of each result of the ranking, best first; relevant = |R| > 0. */
void ng_ir_add(struct ng_ir *ir, const bool *hit, size_t n, size_t relevant);
/* Calls emit(key, value, arg) for each mean in sentence-transformers' order,
 * key = "cosine_accuracy@1" with fn = "cosine". */
void ng_ir_report(
	const struct ng_ir *ir, const char *fn, void (*emit)(const char *key, double value, void *arg), void *arg);

/* Pearson's r of x(n), y(n) in float64; NaN when either is constant or n < 2. */
double ng_pearson(const double *x, const double *y, size_t n);
/* Spearman: Pearson on average ranks (ties share their mean rank). NaN likewise. */
double ng_spearman(const double *x, const double *y, size_t n);

#endif
