/*
 * mean.h - the arithmetic of an aggregation, and nothing else.  float64, + - *
 * and / only, in a fixed order, no contraction to FMA: the same bits from
 * every compiler, instruction set and number of threads.
 */
#ifndef NG_FED_MEAN_H
#define NG_FED_MEAN_H

#include "common/base/compat.h"

#define NG_LANES 8

/* Sum of squares of one tensor, met in pieces: element i of the tensor goes to
 * lane i % 8, so that the sum does not depend on the pieces. */
struct ng_square_sum {
	double lane[NG_LANES];
};
/* Adds x(n), whose first element is number `at` of the tensor.  Returns false
 * if one is NaN or infinite (the sum is then of no use). */
bool ng_square_add(struct ng_square_sum *s, uint64_t at, const float *x, size_t n);
double ng_square_total(const struct ng_square_sum *s);

/* acc(n) += w * x(n) */
void ng_mean_add(double *acc, const float *x, double w, size_t n);
/* out(n) = (float)(base(n) + acc(n) / W), rounded once, to nearest even.
 * Returns false if one is not finite. out may be base. */
bool ng_mean_finish(float *out, const float *base, const double *acc, double W, size_t n);

#endif
