#include "common/base/compat.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/rank/metrics.h"

void ng_ir_at_default(struct ng_ir_at *at)
{
	static const struct ng_at few = { { 1, 3, 5, 10 }, 4 }, ten = { { 10 }, 1 }, hundred = { { 100 }, 1 };

	at->accuracy = few;
	at->precision_recall = few;
	at->ndcg = ten;
	at->mrr = ten;
	at->map = hundred;
}

static long at_max(const struct ng_at *at, long most)
{
	for (size_t i = 0; i < at->n; i++)
		most = at->k[i] > most ? at->k[i] : most;
	return most;
}

long ng_ir_at_max(const struct ng_ir_at *at)
{
	long most = at_max(&at->accuracy, 1);

	most = at_max(&at->precision_recall, most);
	most = at_max(&at->ndcg, most);
	most = at_max(&at->mrr, most);
	return at_max(&at->map, most);
}

void ng_ir_init(struct ng_ir *ir, const struct ng_ir_at *at)
{
	memset(ir, 0, sizeof *ir);
	ir->at = *at;
}

static size_t hits_within(const bool *hit, size_t n, long k)
{
	size_t hits = 0;

	for (size_t i = 0; i < n && i < (size_t)k; i++)
		hits += hit[i];
	return hits;
}

static double ndcg(const bool *hit, size_t n, long k, size_t relevant)
{
	double dcg = 0, ideal = 0;

	for (size_t i = 0; i < (size_t)k; i++) {
		if (i < n && hit[i])
			dcg += 1 / log2((double)(i + 2));
		if (i < relevant)
			ideal += 1 / log2((double)(i + 2));
	}
	return dcg / ideal;
}

static double reciprocal_rank(const bool *hit, size_t n, long k)
{
	for (size_t i = 0; i < n && i < (size_t)k; i++)
		if (hit[i])
			return 1 / (double)(i + 1);
	return 0;
}

static double average_precision(const bool *hit, size_t n, long k, size_t relevant)
{
	double sum = 0;
	size_t hits = 0, possible = relevant < (size_t)k ? relevant : (size_t)k;

	for (size_t i = 0; i < n && i < (size_t)k; i++)
		if (hit[i])
			sum += (double)++hits / (double)(i + 1);
	return sum / (double)possible;
}

void ng_ir_add(struct ng_ir *ir, const bool *hit, size_t n, size_t relevant)
{
	const struct ng_ir_at *at = &ir->at;

	ir->queries++;
	for (size_t i = 0; i < at->accuracy.n; i++)
		ir->accuracy[i] += hits_within(hit, n, at->accuracy.k[i]) > 0;
	for (size_t i = 0; i < at->precision_recall.n; i++) {
		double hits = (double)hits_within(hit, n, at->precision_recall.k[i]);
		ir->precision[i] += hits / (double)at->precision_recall.k[i];
		ir->recall[i] += hits / (double)relevant;
	}
	for (size_t i = 0; i < at->ndcg.n; i++)
		ir->ndcg[i] += ndcg(hit, n, at->ndcg.k[i], relevant);
	for (size_t i = 0; i < at->mrr.n; i++)
		ir->mrr[i] += reciprocal_rank(hit, n, at->mrr.k[i]);
	for (size_t i = 0; i < at->map.n; i++)
		ir->map[i] += average_precision(hit, n, at->map.k[i], relevant);
}

void ng_ir_report(
	const struct ng_ir *ir, const char *fn, void (*emit)(const char *key, double value, void *arg), void *arg)
{
	const struct {
		const char *name;
		const struct ng_at *at;
		const double *sum;
	} rows[] = { { "accuracy", &ir->at.accuracy, ir->accuracy },
		{ "precision", &ir->at.precision_recall, ir->precision },
		{ "recall", &ir->at.precision_recall, ir->recall }, { "ndcg", &ir->at.ndcg, ir->ndcg },
		{ "mrr", &ir->at.mrr, ir->mrr }, { "map", &ir->at.map, ir->map } };
	char key[64];

	for (size_t r = 0; r < NG_COUNT(rows); r++)
		for (size_t i = 0; i < rows[r].at->n; i++) {
			snprintf(key, sizeof key, "%s_%s@%ld", fn, rows[r].name, rows[r].at->k[i]);
			emit(key, rows[r].sum[i] / (double)ir->queries, arg);
		}
}

double ng_pearson(const double *x, const double *y, size_t n)
{
	double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;

	if (n < 2)
		return NAN;
	for (size_t i = 0; i < n; i++) {
		mx += x[i];
		my += y[i];
	}
	mx /= (double)n;
	my /= (double)n;
	bool x_const = true, y_const = true;
	for (size_t i = 0; i < n; i++) {
		double dx = x[i] - mx, dy = y[i] - my;
		xx += dx * dx;
		yy += dy * dy;
		xy += dx * dy;
		x_const = x_const && x[i] == x[0];
		y_const = y_const && y[i] == y[0];
	}
	/* a constant whose mean rounds has a tiny variance, not none */
	if (x_const || y_const || !(xx > 0) || !(yy > 0))
		return NAN;
	double r = xy / (sqrt(xx) * sqrt(yy));
	return r > 1 ? 1 : r < -1 ? -1 : r;
}

struct ranked {
	double value;
	size_t index;
};

static int by_value(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static double *average_ranks(const double *x, size_t n)
{
	struct ranked *r = ng_xarray(n, sizeof *r);
	double *rank = ng_xarray(n, sizeof *rank);

	for (size_t i = 0; i < n; i++)
		r[i] = (struct ranked){ x[i], i };
	qsort(r, n, sizeof *r, by_value);
	for (size_t i = 0; i < n;) {
		size_t j = i;
		while (j < n && r[j].value == r[i].value)
			j++;
		/* ranks i+1 .. j share their mean */
		for (size_t t = i; t < j; t++)
			rank[r[t].index] = (double)(i + 1 + j) / 2;
		i = j;
	}
	free(r);
	return rank;
}

double ng_spearman(const double *x, const double *y, size_t n)
{
	if (n < 2)
		return NAN;
	for (size_t i = 0; i < n; i++)
		if (isnan(x[i]) || isnan(y[i]))
			return NAN;
	double *rx = average_ranks(x, n), *ry = average_ranks(y, n);
	double r = ng_pearson(rx, ry, n);
	free(rx);
	free(ry);
	return r;
}
