/*
 * cpu_products.c - the CPU device's matrix products: single-threaded calls of
 * the BLAS on fixed pieces of the result; see cpu.c.
 */
#include "kernels/cpu.h"

#include <limits.h>

/* Pieces of a product's result.  Measured (OpenBLAS 0.3.21, Zen): 128 x 192 of a linear layer runs at 92-97% of a
 * large sgemm, 192 x 192 of a weight gradient at 90-95% (128 x 128: 84-88%); smaller would feed more threads, but
 * packing shows.  Where a weight gradient has fewer pieces than DW_PIECES, its tokens are split too, in parts of no
 * fewer than DW_TOKENS. */
#define GEMM_ROWS 128
#define GEMM_COLS 192
#define DW_SIDE 192
#define DW_PIECES 32
#define DW_TOKENS 512

struct product {
	struct cpu *cpu;
	bool ta, tb;
	size_t M, N, K, lda, ldb, ldc, rows, cols, across; /* a piece is rows x cols, `across` of them in a row */
	const float *a, *b, *bias;
	float *c, *post; /* post: act(c + bias) goes here */
	enum ng_act act;
	bool biased; /* c begins as the bias (or 0) */
	float alpha, beta;
};

static void product_piece(void *arg, size_t i, int who)
{
	struct product *p = arg;
	const struct ng_cpu_ops *ops = p->cpu->ops;
	size_t m0 = i / p->across * p->rows, n0 = i % p->across * p->cols;
	size_t m = p->M - m0 < p->rows ? p->M - m0 : p->rows, n = p->N - n0 < p->cols ? p->N - n0 : p->cols;
	float *c = p->c + m0 * p->ldc + n0;

	(void)who;
	if (p->biased)
		ops->fill_rows(c, p->ldc, p->bias + n0, m, n);
	p->cpu->sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans, (blasint)m,
		(blasint)n, (blasint)p->K, p->alpha, p->ta ? p->a + m0 : p->a + m0 * p->lda, (blasint)p->lda,
		p->tb ? p->b + n0 * p->ldb : p->b + n0, (blasint)p->ldb, p->beta, c, (blasint)p->ldc);
	if (p->act != NG_ACT_NONE || p->post != p->c)
		for (size_t r = 0; r < m; r++)
			ops->act(p->post + (m0 + r) * p->ldc + n0, c + r * p->ldc, n, p->act);
}

/* Near-equal widths, multiples of 16, of at most `most`. */
static size_t even_cols(size_t N, size_t most)
{
	size_t pieces = count(N, most), cols = count(N, pieces ? pieces : 1);

	return count(cols, 16) * 16;
}

static const char too_large[] = "a matrix has more than 2147483647 rows or columns";

static bool product_fits(const struct product *p)
{
	return p->K <= INT_MAX && p->lda <= INT_MAX && p->ldb <= INT_MAX && p->ldc <= INT_MAX;
}

static int run_product(struct cpu *cpu, struct product *p)
{
	if (p->M == 0 || p->N == 0)
		return NG_DEV_OK;
	if (!product_fits(p))
		return fail(cpu, NG_DEV_FAILED, too_large);
	p->cpu = cpu;
	p->across = count(p->N, p->cols);
	ng_threads_run(cpu->pool, product_piece, p, count(p->M, p->rows) * p->across,
		product_ns(p->M, p->N, p->K) + pass_ns(p->M, p->N));
	return NG_DEV_OK;
}

static int cpu_linear(struct ng_device *dev, struct ng_ref y, struct ng_ref pre, struct ng_ref x, struct ng_ref w,
	struct ng_ref b, size_t T, size_t K, size_t N, enum ng_act act)
{
	struct product p = { .tb = true,
		.M = T,
		.N = N,
		.K = K,
		.a = at(x),
		.lda = K,
		.b = at(w),
		.ldb = K,
		.c = pre.mem ? at(pre) : at(y),
		.post = at(y),
		.ldc = N,
		.bias = at(b),
		.biased = at(b) != NULL,
		.act = act,
		.alpha = 1,
		.beta = at(b) ? 1 : 0,
		.rows = GEMM_ROWS,
		.cols = even_cols(N, GEMM_COLS) };

	return run_product(cpu_of(dev), &p);
}

static int cpu_linear_dx(struct ng_device *dev, struct ng_ref dx, struct ng_ref dy, struct ng_ref w, size_t T, size_t K,
	size_t N, bool accumulate)
{
	struct product p = { .M = T,
		.N = K,
		.K = N,
		.a = at(dy),
		.lda = N,
		.b = at(w),
		.ldb = K,
		.c = at(dx),
		.post = at(dx),
		.ldc = K,
		.alpha = 1,
		.beta = accumulate ? 1 : 0,
		.rows = GEMM_ROWS,
		.cols = even_cols(K, GEMM_COLS) };

	return run_product(cpu_of(dev), &p);
}

struct column_sum {
	const struct ng_cpu_ops *ops;
	float *db;
	const float *dy;
	size_t T, N;
};

static void column_piece(void *arg, size_t i, int who)
{
	struct column_sum *c = arg;

	(void)who;
	c->ops->colsum(c->db + i * NG_CPU_COLSUM, c->dy + i * NG_CPU_COLSUM, c->N, c->T, part(c->N, NG_CPU_COLSUM, i));
}

/* The first part of the tokens is added to dw, the others lie in parts until they are added in order. */
struct split_dw {
	struct product p;
	float *dw, *parts;
	size_t n, pieces, splits, tokens;
};

static void split_piece(void *arg, size_t i, int who)
{
	struct split_dw *w = arg;
	struct product p = w->p;
	size_t split = i / w->pieces, t0 = split * w->tokens;

	p.a += t0 * p.lda;
	p.b += t0 * p.ldb;
	p.K = part(w->p.K, w->tokens, split);
	p.c = split == 0 ? w->dw : w->parts + (split - 1) * w->n;
	p.post = p.c;
	p.beta = split == 0 ? 1 : 0;
	product_piece(&p, i % w->pieces, who);
}

static void join_piece(void *arg, size_t i, int who)
{
	struct split_dw *w = arg;

	(void)who;
	for (size_t s = 1; s < w->splits; s++)
		w->p.cpu->ops->axpy(w->dw + i * NG_CPU_FLAT, 1.0f, w->parts + (s - 1) * w->n + i * NG_CPU_FLAT,
			part(w->n, NG_CPU_FLAT, i));
}

static int cpu_linear_dw(struct ng_device *dev, struct ng_ref dw, struct ng_ref db, struct ng_ref dy, struct ng_ref x,
	size_t T, size_t K, size_t N)
{
	struct cpu *cpu = cpu_of(dev);

	if (db.mem) {
		struct column_sum c = { .ops = cpu->ops, .db = at(db), .dy = at(dy), .T = T, .N = N };

		ng_threads_run(cpu->pool, column_piece, &c, count(N, NG_CPU_COLSUM), pass_ns(T, N) / 4);
	}
	if (!dw.mem || T == 0)
		return NG_DEV_OK;
	struct split_dw w = { .dw = at(dw), .n = N * K };
	w.p = (struct product){ .cpu = cpu,
		.ta = true,
		.M = N,
		.N = K,
		.K = T,
		.a = at(dy),
		.lda = N,
		.b = at(x),
		.ldb = K,
		.ldc = K,
		.alpha = 1,
		.rows = even_cols(N, DW_SIDE),
		.cols = even_cols(K, DW_SIDE) };
	if (!product_fits(&w.p))
		return fail(cpu, NG_DEV_FAILED, too_large);
	if (w.n == 0)
		return NG_DEV_OK;
	w.p.across = count(K, w.p.cols);
	w.pieces = count(N, w.p.rows) * w.p.across;
	w.splits = w.pieces < DW_PIECES ? DW_PIECES / w.pieces : 1;
	if (w.splits > T / DW_TOKENS)
		w.splits = T < DW_TOKENS ? 1 : T / DW_TOKENS;
	int status = ng_cpu_scratch(cpu, w.n, w.splits - 1);
	if (status != 0)
		return status;
	w.parts = cpu->scratch;
	w.tokens = count(T, w.splits);
	w.splits = count(T, w.tokens);
	ng_threads_run(cpu->pool, split_piece, &w, w.pieces * w.splits, product_ns(N, K, T));
	if (w.splits > 1)
		ng_threads_run(cpu->pool, join_piece, &w, count(w.n, NG_CPU_FLAT), pass_ns(w.n, w.splits));
	return NG_DEV_OK;
}

static int cpu_gemm(struct ng_device *dev, bool ta, bool tb, size_t M, size_t N, size_t K, float alpha, struct ng_ref a,
	size_t lda, struct ng_ref b, size_t ldb, float beta, struct ng_ref c, size_t ldc)
{
	struct product p = { .ta = ta,
		.tb = tb,
		.M = M,
		.N = N,
		.K = K,
		.a = at(a),
		.lda = lda,
		.b = at(b),
		.ldb = ldb,
		.c = at(c),
		.post = at(c),
		.ldc = ldc,
		.alpha = alpha,
		.beta = beta,
		.rows = GEMM_ROWS,
		.cols = even_cols(N, GEMM_COLS) };

	return run_product(cpu_of(dev), &p);
}

void ng_cpu_products(struct ng_device *dev)
{
	dev->linear = cpu_linear;
	dev->linear_dx = cpu_linear_dx;
	dev->linear_dw = cpu_linear_dw;
	dev->gemm = cpu_gemm;
}
