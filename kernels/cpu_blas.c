/*
 * cpu_blas.c - may the BLAS be trusted, and how is it made quick?
 *
 * Some OpenBLAS versions compute wrong products on processors newer than they
 * are.  A training that starts on one would look like a bad learning rate, so
 * every start multiplies a few small matrices first.
 */
#include "kernels/cpu.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 259 * 260 };

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
	{ 259, 97, 65 },
};

/* -1 .. 1 in no pattern that a wrong kernel could hide behind. */
static float draw(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/*
 * c v against a (b v) in float64, v random: one wrong element of c is one wrong
 * sum, and the reference costs a matrix times a vector (Freivalds 1977).
 */
static bool try_one(ng_sgemm_fn *sgemm, float *mem, int M, int N, int K, bool ta, bool tb, unsigned *state)
{
	float *a = mem, *b = mem + MOST, *c = mem + 2 * MOST;
	const size_t m = (size_t)M, n = (size_t)N, k = (size_t)K, ldc = n + 2;
	const double beta = (M + K + ta) % 2 ? 1 : 0;
	double v[200], bv[200], was[260];

	for (size_t i = 0; i < m * k; i++)
		a[i] = draw(state);
	for (size_t i = 0; i < k * n; i++)
		b[i] = draw(state);
	for (size_t i = 0; i < m * ldc; i++)
		c[i] = draw(state);
	for (size_t j = 0; j < n; j++) {
		v[j] = (double)draw(state);
		v[j] += v[j] < 0 ? -0.5 : 0.5;
	}
	for (size_t p = 0; p < k; p++) {
		bv[p] = 0;
		for (size_t j = 0; j < n; j++)
			bv[p] += (double)(tb ? b[j * k + p] : b[p * n + j]) * v[j];
	}
	for (size_t i = 0; i < m; i++) {
		was[i] = 0;
		for (size_t j = 0; j < n; j++)
			was[i] += (double)c[i * ldc + j] * v[j];
		/* between the rows nothing may be written */
		c[i * ldc + n] = c[i * ldc + n + 1] = 7;
	}
	sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, M, N, K, 0.5f, a,
		ta ? M : K, b, tb ? K : N, (float)beta, c, N + 2);
	for (size_t i = 0; i < m; i++) {
		double want = beta * was[i], got = 0, ab = 0;

		for (size_t p = 0; p < k; p++)
			ab += (double)(ta ? a[p * m + i] : a[i * k + p]) * bv[p];
		want += 0.5 * ab;
		for (size_t j = 0; j < n; j++)
			got += (double)c[i * ldc + j] * v[j];
		/* the negation catches NaN */
		if (!(fabs(got - want) <= 1e-6 * (1 + sqrt((double)(n * k)))))
			return false;
		if (c[i * ldc + n] != 7.0f || c[i * ldc + n + 1] != 7.0f)
			return false;
	}
	return true;
}

bool ng_cpu_blas_works(ng_sgemm_fn *sgemm)
{
	float *mem = malloc(3 * MOST * sizeof(float));
	unsigned state = 1;
	bool works = mem != NULL;

	for (size_t i = 0; works && i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (int t = 0; works && t < 4; t++)
			/* all transposes, of the larger ones two each */
			if (shapes[i].M < 100 || (t + (int)i) % 2)
				works = try_one(
					sgemm, mem, shapes[i].M, shapes[i].N, shapes[i].K, t & 1, t & 2, &state);
	free(mem);
	return works;
}

/* Of whichever BLAS is linked. */
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));
extern void *blas_memory_alloc(int procpos) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));
extern void bli_thread_set_num_threads(long n) __attribute__((weak));
extern void MKL_Set_Num_Threads(int n) __attribute__((weak));

const char *ng_cpu_blas_quiet(void)
{
	if (bli_thread_set_num_threads)
		bli_thread_set_num_threads(1);
	if (MKL_Set_Num_Threads)
		MKL_Set_Num_Threads(1);
	if (openblas_set_num_threads)
		openblas_set_num_threads(1);
	if (openblas_get_corename)
		return openblas_get_corename();
	return NULL;
}

/*
 * OpenBLAS packs into buffers it maps once and keeps.  Its kernels prefetch
 * ahead of what a small product has packed; where those pages were never
 * touched, every prefetch walks the page tables in vain, and pieces such as
 * ours run at a third of the speed (13 instead of 35 GFLOP/s on Zen under a
 * hypervisor).  So touch the front of as many buffers as there will be calls
 * at once.  The two functions are OpenBLAS's own, exported by every build; one
 * without them is merely slower.
 */
void ng_cpu_blas_warm(int threads)
{
	enum { FRONT = 5 << 18, PAGE = 4096, MOST_THREADS = 256 };
	void *buffer[MOST_THREADS];
	int n = 0;

	if (!blas_memory_alloc || !blas_memory_free)
		return;
	for (; n < threads && n < MOST_THREADS; n++) {
		buffer[n] = blas_memory_alloc(0);
		if (!buffer[n])
			break;
		for (size_t i = 0; i < FRONT; i += PAGE)
			((volatile char *)buffer[n])[i] = 0;
	}
	while (n > 0)
		blas_memory_free(buffer[--n]);
}
