/*
 * stats.h - norm, least, greatest and non-finite values of a tensor in blocks.
 */
#ifndef NG_TENSOR_STATS_H
#define NG_TENSOR_STATS_H

#include "common/base/compat.h"

struct ng_stats {
	double squares; /* sum over finite values, in float64 */
	float min, max; /* of finite values; 0 when there are none */
	uint64_t finite, nonfinite;
};

void ng_stats_init(struct ng_stats *s);
void ng_stats_add(struct ng_stats *s, const float *x, size_t n);
void ng_stats_merge(struct ng_stats *into, const struct ng_stats *from);
double ng_stats_norm(const struct ng_stats *s); /* sqrt of the sum of squares */

#endif
