/*
 * kernels.c - how fast is each operation beside a large sgemm?
 *
 * usage: make build/perf/kernels && build/perf/kernels [-t threads] [-i isa] [-m ms]
 *
 * Prints a line an operation: time, GFLOP/s of its products where it has some,
 * share of the sgemm peak measured in the same run; then the time of one layer
 * and of six, forward and backward, for a grain of 2048 tokens of a MiniLM.
 * One thread is measured in processor time, so that a shared machine disturbs
 * little; more threads by the clock on the wall.  Compare lines of one run,
 * never two runs.
 */
#include "kernels/device.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct ng_device *dev;
static clockid_t watch = CLOCK_MONOTONIC;
static double peak, budget = 0.1;

static double now(void)
{
	struct timespec t;

	clock_gettime(watch, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct ng_ref make(size_t n, double size)
{
	struct ng_ref r;
	float *p;

	if (dev->alloc(dev, &r, n) != 0 || !(p = malloc(n * sizeof(float))))
		exit(71);
	for (size_t i = 0; i < n; i++)
		p[i] = (float)(size * ((double)(i * 2654435761u % 65536) / 32768 - 1));
	dev->upload(dev, r, p, n);
	free(p);
	return r;
}

/* Best time of call in the budget. */
#define TIME(best, call)                                    \
	do {                                                \
		double from_ = now(), t_;                   \
		int n_ = 0;                                 \
		best = 1e9;                                 \
		do {                                        \
			t_ = now();                         \
			if ((call) != 0)                    \
				exit(70);                   \
			t_ = now() - t_;                    \
			best = t_ < best ? t_ : best;       \
			n_++;                               \
		} while (n_ < 3 || now() - from_ < budget); \
	} while (0)

static void line(const char *name, double t, double flop)
{
	if (flop > 0)
		printf("%-34s %9.3f ms %7.1f GFLOP/s %5.0f%%\n", name, t * 1e3, flop / t * 1e-9,
			flop / t * 1e-9 / peak * 100);
	else
		printf("%-34s %9.3f ms\n", name, t * 1e3);
}

static double layer(size_t L, size_t T, size_t C, size_t H, bool show)
{
	size_t S = T / L, F = 4 * C;
	int32_t *cus = malloc((S + 1) * sizeof(*cus)), *ex = malloc(S * sizeof(*ex));
	struct ng_ref none = { NULL, 0 }, cu = { cus, 0 };
	struct ng_ref x = make(T * C, 1), qkv = make(T * 3 * C, 1), ctx = make(T * C, 1), lse = make(T * H, 1);
	struct ng_ref o = make(T * C, 1), s = make(T * C, 1), y = make(T * C, 1), mean = make(T, 1), rstd = make(T, 1);
	struct ng_ref pre = make(T * F, 1), h = make(T * F, 1), wq = make(3 * C * C, .05), wo = make(C * C, .05);
	struct ng_ref w1 = make(F * C, .05), w2 = make(F * C, .05), b = make(F, 1), g = make(C, 1), gg = make(F * C, 0);
	struct ng_ref gb = make(F, 0);
	double c = (double)C, t = (double)T, gemm = 0, rest = 0, q, flop;
	struct ng_dropout d = { 6553, 1, 2, 3, 4, ex };

	T = S * L;
	t = (double)T;
	for (size_t i = 0; i <= S; i++)
		cus[i] = (int32_t)(i * L);
	for (size_t i = 0; i < S; i++)
		ex[i] = (int32_t)i;
#define GEMM(name, flops, call) \
	TIME(q, dev->call);     \
	gemm += q;              \
	if (show)               \
		line(name, q, flops);
#define REST(name, flops, call) \
	TIME(q, dev->call);     \
	rest += q;              \
	if (show)               \
		line(name, q, flops);
	if (show)
		printf("-- %zu sequences of %zu tokens, C %zu, H %zu, dropout 0.1\n", S, L, C, H);
	GEMM("linear qkv", 6 * t * c * c, linear(dev, qkv, none, x, wq, b, T, C, 3 * C, NG_ACT_NONE));
	flop = 4 * t * (double)L * c;
	REST("attention", flop, attention(dev, ctx, lse, qkv, none, cu, S, T, C, H, &d));
	GEMM("linear out", 2 * t * c * c, linear(dev, o, none, ctx, wo, b, T, C, C, NG_ACT_NONE));
	REST("layernorm", 0, layernorm(dev, y, s, mean, rstd, o, x, g, g, 1e-12f, cu, S, T, C, &d, NULL));
	GEMM("linear up + gelu", 8 * t * c * c, linear(dev, h, pre, y, w1, b, T, C, F, NG_ACT_GELU));
	GEMM("linear down", 8 * t * c * c, linear(dev, o, none, h, w2, b, T, F, C, NG_ACT_NONE));
	REST("layernorm", 0, layernorm(dev, y, s, mean, rstd, o, x, g, g, 1e-12f, cu, S, T, C, &d, NULL));
	double fwd = gemm + rest;
	REST("layernorm_bwd", 0, layernorm_bwd(dev, o, x, g, g, y, s, mean, rstd, g, cu, S, T, C, &d, NULL));
	GEMM("linear_dw down", 8 * t * c * c, linear_dw(dev, gg, gb, o, h, T, F, C));
	GEMM("linear_dx down", 8 * t * c * c, linear_dx(dev, h, o, w2, T, F, C, false));
	REST("act_bwd gelu", 0, act_bwd(dev, h, h, pre, T, F, NG_ACT_GELU));
	GEMM("linear_dw up", 8 * t * c * c, linear_dw(dev, gg, gb, h, y, T, C, F));
	GEMM("linear_dx up", 8 * t * c * c, linear_dx(dev, o, h, w1, T, C, F, true));
	REST("layernorm_bwd", 0, layernorm_bwd(dev, o, x, g, g, y, s, mean, rstd, g, cu, S, T, C, &d, NULL));
	GEMM("linear_dw out", 2 * t * c * c, linear_dw(dev, gg, gb, o, y, T, C, C));
	GEMM("linear_dx out", 2 * t * c * c, linear_dx(dev, ctx, o, wo, T, C, C, false));
	REST("attention_bwd", 10 * t * (double)L * c,
		attention_bwd(dev, qkv, none, ctx, qkv, x, lse, none, cu, S, T, C, H, &d));
	GEMM("linear_dw qkv", 6 * t * c * c, linear_dw(dev, gg, gb, qkv, y, T, C, 3 * C));
	GEMM("linear_dx qkv", 6 * t * c * c, linear_dx(dev, x, qkv, wq, T, C, 3 * C, true));
	flop = 3 * (24 * t * c * c + 4 * t * (double)L * c);
	printf("layer, L %3zu: forward %.2f, all %.2f ms; not products %.0f%%; useful %.1f GFLOP/s = %.0f%% of the peak; "
	       "6 layers %.0f tokens/s\n",
		L, fwd * 1e3, (gemm + rest) * 1e3, rest / (gemm + rest) * 100, flop / (gemm + rest) * 1e-9,
		flop / (gemm + rest) * 1e-9 / peak * 100, t / (6 * (gemm + rest)));
	struct ng_ref all[] = { x, qkv, ctx, lse, o, s, y, mean, rstd, pre, h, wq, wo, w1, w2, b, g, gg, gb };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		dev->free(dev, all[i]);
	free(cus);
	free(ex);
	return gemm + rest;
}

int main(int argc, char **argv)
{
	const char *isa = NULL, *why = "";
	int threads = 1, o;
	double q;

	while ((o = getopt(argc, argv, "t:i:m:")) != -1) {
		if (o == 't')
			threads = (int)strtol(optarg, NULL, 10);
		else if (o == 'i')
			isa = optarg;
		else if (o == 'm')
			budget = strtod(optarg, NULL) / 1e3;
		else
			return 64;
	}
	if (ng_device_open(&dev, "cpu", threads, isa, &why) != 0) {
		fprintf(stderr, "kernels: error: %s\n", why);
		return 69;
	}
	if (threads == 1)
		watch = CLOCK_PROCESS_CPUTIME_ID;
	printf("%s\n", dev->info.name);
	size_t n = 1024;
	struct ng_ref a = make(2 * n * n, 1), b = make(2 * n * n, 1), c = make(2 * n * n, 1);
	/* one whole call of the BLAS, which opening the device has set to one thread */
	for (int i = 0; i < 3; i++) {
		TIME(q, (cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 2048, 1024, 1024, 1, a.mem, 1024, b.mem,
				 1024, 0, c.mem, 1024),
				0));
		double rate = threads * 4 * (double)n * (double)n * (double)n / q * 1e-9;
		peak = rate > peak ? rate : peak;
	}
	printf("sgemm 2048x1024x1024: %.1f GFLOP/s%s, the peak here\n", peak,
		threads > 1 ? " (of one thread, times threads)" : "");
	static const size_t lengths[] = { 256, 128, 64, 16 };
	for (int i = 0; i < 4; i++)
		layer(lengths[i], 2048, 384, 12, i < 2 || i == 3);
	layer(256, 2048, 768, 12, true);
	n = 4 << 20;
	struct ng_ref w = make(n, 1), g = make(n, 1), m = make(n, 1), v = make(n, 0);
	double sum;
	TIME(q, dev->adamw(dev, w, m, v, g, n, 1e-5f, .9f, .999f, 1e-8f, .01f, .1f, .001f, 1));
	printf("adamw of 4 M: %.2f ms, %.1f GB/s\n", q * 1e3, 28 * (double)n / q * 1e-9);
	TIME(q, dev->sumsq(dev, &sum, g, n));
	printf("sumsq of 4 M: %.2f ms, %.1f GB/s\n", q * 1e3, 4 * (double)n / q * 1e-9);
	TIME(q, dev->zero(dev, g, n));
	printf("zero of 4 M: %.2f ms, %.1f GB/s\n", q * 1e3, 4 * (double)n / q * 1e-9);
	TIME(q, dev->copy(dev, g, w, n));
	printf("copy of 4 M: %.2f ms, %.1f GB/s\n", q * 1e3, 8 * (double)n / q * 1e-9);
	dev->close(dev);
	return 0;
}
