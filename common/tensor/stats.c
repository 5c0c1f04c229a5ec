/*
 * stats.c - see stats.h.
 */
#include "common/base/compat.h"

#include <math.h>

#include "common/tensor/stats.h"

void ng_stats_init(struct ng_stats *s)
{
	memset(s, 0, sizeof *s);
}

void ng_stats_merge(struct ng_stats *into, const struct ng_stats *from)
{
	if (from->finite > 0) {
		if (into->finite == 0 || from->min < into->min)
			into->min = from->min;
		if (into->finite == 0 || from->max > into->max)
			into->max = from->max;
	}
	into->squares += from->squares;
	into->finite += from->finite;
	into->nonfinite += from->nonfinite;
}

void ng_stats_add(struct ng_stats *s, const float *x, size_t n)
{
	struct ng_stats b = { .min = INFINITY, .max = -INFINITY };

	for (size_t i = 0; i < n; i++) {
		if (!isfinite(x[i])) {
			b.nonfinite++;
			continue;
		}
		b.min = x[i] < b.min ? x[i] : b.min;
		b.max = x[i] > b.max ? x[i] : b.max;
		b.squares += (double)x[i] * (double)x[i];
	}
	b.finite = n - b.nonfinite;
	ng_stats_merge(s, &b);
}

double ng_stats_norm(const struct ng_stats *s)
{
	return sqrt(s->squares);
}
