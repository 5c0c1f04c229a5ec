/*
 * test_device.c - opening the CPU device: its table, its memory, the check of
 * the BLAS and the threads.
 */
#include "kernels/cpu.h"
#include "t/unit/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_int calls;

static void count_calls(void *arg, size_t piece, int who)
{
	atomic_int *seen = arg;

	(void)who;
	atomic_fetch_add(&seen[piece], 1);
	atomic_fetch_add(&calls, 1);
}

static void test_threads(void)
{
	static atomic_int seen[1000];
	int early = 0, uneven = 0;

	for (int threads = 1; threads <= 5; threads++) {
		struct ng_threads *pool = ng_threads_new(threads);
		int runs = 200, total = 0, want[1000] = { 0 };

		for (size_t i = 0; i < 1000; i++)
			atomic_store(&seen[i], 0);
		atomic_store(&calls, 0);
		for (int r = 0; r < runs; r++) {
			size_t n = (size_t)(r * 37 % 1000);

			total += (int)n;
			for (size_t i = 0; i < n; i++)
				want[i]++;
			ng_threads_run(pool, count_calls, seen, n, 1e9);
			if (atomic_load(&calls) != total)
				early++;
		}
		for (size_t i = 0; i < 1000; i++)
			uneven += atomic_load(&seen[i]) != want[i];
		ng_threads_free(pool);
	}
	ng_threads_free(NULL);
	CHECK_MSG(early == 0, "a run returns when all pieces are done, for 1 to 5 threads");
	CHECK_MSG(uneven == 0, "every piece is done exactly once");
}

static void nap(void *arg, size_t piece, int who)
{
	int *helped = arg;

	(void)piece;
	if (who != 0)
		helped[who]++;
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

static void test_little_work(void)
{
	struct ng_threads *pool = ng_threads_new(3);
	int few[3] = { 0 }, many[3] = { 0 };

	ng_threads_run(pool, nap, few, 8, 1000);
	ng_threads_run(pool, nap, many, 64, 1e6);
	CHECK_MSG(few[1] + few[2] == 0, "what is told to be little work wakes nobody");
	CHECK_MSG(many[1] + many[2] > 0, "and much is shared out");
	ng_threads_free(pool);
}

/* Right but for one element of tall results, as the bug this check was made for. */
static void broken_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb,
	const blasint M, const blasint N, const blasint K, const float alpha, const float *a, const blasint lda,
	const float *b, const blasint ldb, const float beta, float *c, const blasint ldc)
{
	cblas_sgemm(order, ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
	if (M > 64)
		c[64 * ldc] *= 1.01f;
}

static void nan_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb,
	const blasint M, const blasint N, const blasint K, const float alpha, const float *a, const blasint lda,
	const float *b, const blasint ldb, const float beta, float *c, const blasint ldc)
{
	cblas_sgemm(order, ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
	if (M == 1 && N == 193)
		c[192] = NAN;
}

static void writing_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb,
	const blasint M, const blasint N, const blasint K, const float alpha, const float *a, const blasint lda,
	const float *b, const blasint ldb, const float beta, float *c, const blasint ldc)
{
	cblas_sgemm(order, ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
	if (N % 8)
		c[N] = 0;
}

static void test_open(void)
{
	struct ng_device *d;
	const char *why = NULL;
	struct timespec t0, t1;

	CHECK_MSG(ng_device_open(&d, "cpu", 2, NULL, &why) == 0, "the best instruction set opens");
	printf("# %s\n", d->info.name);
	CHECK_INT_EQ(d->abi, NG_DEVICE_ABI);
	CHECK_INT_EQ(d->size, sizeof(*d));
	CHECK_INT_EQ(d->info.threads, 2);
	void **entry = (void **)(void *)&d->close, **end = (void **)(void *)(d + 1);
	size_t missing = 0;
	for (; entry < end; entry++)
		missing += *entry == NULL;
	CHECK_MSG(missing == 0, "every function of the table is there");
	struct ng_ref r;
	CHECK_MSG(d->alloc(d, &r, SIZE_MAX / 2) == NG_DEV_MEMORY && d->last_error(d)[0],
		"an absurd allocation is refused");
	CHECK(d->alloc(d, &r, 0) == 0 && r.mem);
	d->free(d, r);
	CHECK(d->alloc(d, &r, 5) == 0 && (uintptr_t)r.mem % 64 == 0);
	float in[5] = { 1, 2, 3, 4, 5 }, out[5];
	CHECK(d->upload(d, r, in, 5) == 0 && d->sync(d) == 0 && d->download(d, out, r, 5) == 0);
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	d->free(d, r);
	d->close(d);
	CHECK(ng_device_open(&d, "quantum", 1, NULL, &why) == NG_DEV_MISSING && !d && why);
	CHECK(ng_device_open(&d, "cpu", 1, "vax", &why) == NG_DEV_MISSING && !d && why);

	clock_gettime(CLOCK_MONOTONIC, &t0);
	CHECK_MSG(ng_cpu_blas_works(cblas_sgemm), "the BLAS here multiplies");
	clock_gettime(CLOCK_MONOTONIC, &t1);
	printf("# the check took %.2f ms\n",
		(double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
	CHECK_MSG(!ng_cpu_blas_works(broken_sgemm), "a BLAS with one wrong element is found");
	CHECK_MSG(!ng_cpu_blas_works(nan_sgemm), "a BLAS that makes a NaN is found");
	CHECK_MSG(!ng_cpu_blas_works(writing_sgemm), "a BLAS that writes beyond a row is found");
	CHECK(ng_cpu_open(&d, 1, NULL, broken_sgemm, &why) == NG_DEV_FAILED && !d);
	CHECK_MSG(strstr(why, "OPENBLAS_CORETYPE") != NULL, "and the message says what to try");
}

int main(void)
{
	test_threads();
	test_little_work();
	test_open();
	return check_done();
}
