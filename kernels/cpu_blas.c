/*
 * cpu_blas.c - may the BLAS be trusted?
 *
 * Some OpenBLAS versions compute wrong products on processors newer than they
 * are.  A training that starts on one would look like a bad learning rate, so
 * every start multiplies a few small matrices first.
 */
#include "kernels/cpu.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 193 * 131 };

static const struct {
	int M, N, K;
} shapes[] = {
	{ 1, 1, 1 },
	{ 3, 5, 2 },
	{ 7, 33, 129 },
	{ 65, 31, 17 },
	{ 128, 65, 33 },
	{ 67, 129, 65 },
	{ 1, 193, 64 },
	{ 131, 1, 96 },
};

/* Values of the same few sizes in no pattern that a wrong kernel could hide behind. */
static void fill(float *x, size_t n, unsigned *state)
{
	for (size_t i = 0; i < n; i++) {
		*state = *state * 1664525u + 1013904223u;
		x[i] = (float)(*state >> 8) / 8388608.0f - 1.0f;
	}
}

static bool try_one(ng_sgemm_fn *sgemm, float *a, float *b, float *c, float *was, int M, int N, int K, bool ta, bool tb,
	unsigned *state)
{
	const size_t m = (size_t)M, n = (size_t)N, k = (size_t)K, ldc = n + 2;
	const float beta = (M + K) % 2 ? 1.0f : 0.0f;

	fill(a, m * k, state);
	fill(b, k * n, state);
	fill(c, m * ldc, state);
	for (size_t i = 0; i < m * ldc; i++)
		was[i] = c[i];
	sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, M, N, K, 0.5f, a,
		ta ? M : K, b, tb ? K : N, beta, c, N + 2);
	for (size_t i = 0; i < m; i++) {
		for (size_t j = 0; j < n; j++) {
			double sum = 0;

			for (size_t p = 0; p < k; p++)
				sum += (double)(ta ? a[p * m + i] : a[i * k + p]) *
				       (double)(tb ? b[j * k + p] : b[p * n + j]);
			sum = 0.5 * sum + (double)beta * (double)was[i * ldc + j];
			/* the negation catches NaN */
			if (!(fabs((double)c[i * ldc + j] - sum) <= 1e-6 * (1.0 + K)))
				return false;
		}
		/* nothing is written between the rows */
		for (size_t j = n; j < ldc; j++)
			if (c[i * ldc + j] != was[i * ldc + j])
				return false;
	}
	return true;
}

bool ng_cpu_blas_works(ng_sgemm_fn *sgemm)
{
	float *mem = malloc(4 * MOST * sizeof(float));
	unsigned state = 1;
	bool works = mem != NULL;

	for (size_t i = 0; works && i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (int t = 0; works && t < 4; t++) {
			/* two transposes of each, all four over the list */
			if ((t + (int)i) % 2)
				continue;
			works = try_one(sgemm, mem, mem + MOST, mem + 2 * MOST, mem + 3 * MOST, shapes[i].M,
				shapes[i].N, shapes[i].K, t & 1, t & 2, &state);
		}
	free(mem);
	return works;
}
