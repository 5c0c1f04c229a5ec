/*
 * cpu.c - the CPU device: cuts each operation of device.h into pieces, which
 * the threads take from a queue.
 *
 * A piece is fixed by the operation's arguments alone, is done whole by one
 * thread, and partial sums are added in the order of the pieces: hence the
 * same bits for any number of threads.  The BLAS is only ever called for one
 * piece, and told to use one thread.
 */
#include "kernels/cpu.h"
#include "kernels/threads.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces of a product's result.  Measured (OpenBLAS 0.3.21, Zen): 128 x 192 of a linear layer runs at 92-97% of a
 * large sgemm, 192 x 192 of a weight gradient at 90-95% (128 x 128: 84-88%); smaller would feed more threads, but
 * packing shows.  Where a weight gradient has fewer pieces than DW_PIECES, its tokens are split too, in parts of no
 * fewer than DW_TOKENS. */
#define GEMM_ROWS 128
#define GEMM_COLS 192
#define DW_SIDE 192
#define DW_PIECES 32
#define DW_TOKENS 512
#define FLAT 32768 /* elements of a piece of a flat vector */
#define SLAB 32	   /* channels of a piece where tables are scattered to */

/* Of whichever BLAS is linked. */
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));
extern void *blas_memory_alloc(int procpos) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));
extern void bli_thread_set_num_threads(long n) __attribute__((weak));
extern void MKL_Set_Num_Threads(int n) __attribute__((weak));

struct cpu {
	struct ng_device dev;
	const struct ng_cpu_ops *ops;
	struct ng_threads *pool;
	ng_sgemm_fn *sgemm;
	const char *error;
	float *scratch; /* of all threads, or partial sums; grows, never shrinks */
	size_t scratch_size;
};

static struct cpu *cpu_of(struct ng_device *dev)
{
	return dev->self;
}

static float *at(struct ng_ref ref)
{
	return ref.mem ? (float *)ref.mem + ref.off : NULL;
}

static int32_t *ints(struct ng_ref ref)
{
	return ref.mem ? (int32_t *)ref.mem + ref.off : NULL;
}

static size_t count(size_t n, size_t piece)
{
	return n / piece + (n % piece != 0);
}

static size_t part(size_t n, size_t piece, size_t i)
{
	return n - i * piece < piece ? n - i * piece : piece;
}

static int fail(struct cpu *cpu, enum ng_dev_status status, const char *text)
{
	cpu->error = text;
	return status;
}

static float *get_floats(size_t n)
{
	if (n > (SIZE_MAX - 64) / sizeof(float))
		return NULL;
	return aligned_alloc(64, (n * sizeof(float) / 64 + 1) * 64);
}

/* At least each * n floats at cpu->scratch; 0 or NG_DEV_MEMORY. */
static int need_scratch(struct cpu *cpu, size_t each, size_t n)
{
	if (n > 0 && each > SIZE_MAX / sizeof(float) / n)
		return fail(cpu, NG_DEV_MEMORY, "scratch memory would not fit the address space");
	if (each * n <= cpu->scratch_size)
		return 0;
	free(cpu->scratch);
	cpu->scratch_size = 0;
	cpu->scratch = get_floats(each * n);
	if (!cpu->scratch)
		return fail(cpu, NG_DEV_MEMORY, "out of memory for scratch");
	cpu->scratch_size = each * n;
	return 0;
}

static void cpu_close(struct ng_device *dev)
{
	if (!dev)
		return;
	struct cpu *cpu = cpu_of(dev);
	ng_threads_free(cpu->pool);
	free(cpu->scratch);
	free(cpu);
}

static const char *cpu_last_error(struct ng_device *dev)
{
	return cpu_of(dev)->error;
}

/* ---- memory ---- */

static int cpu_alloc(struct ng_device *dev, struct ng_ref *out, size_t elements)
{
	out->off = 0;
	out->mem = get_floats(elements);
	return out->mem ? NG_DEV_OK : fail(cpu_of(dev), NG_DEV_MEMORY, "out of memory for tensors");
}

static void cpu_free(struct ng_device *dev, struct ng_ref ref)
{
	(void)dev;
	free(ref.mem);
}

static int cpu_upload(struct ng_device *dev, struct ng_ref dst, const void *src, size_t elements)
{
	(void)dev;
	if (elements > 0)
		memcpy(at(dst), src, elements * sizeof(float));
	return NG_DEV_OK;
}

static int cpu_download(struct ng_device *dev, void *dst, struct ng_ref src, size_t elements)
{
	(void)dev;
	if (elements > 0)
		memcpy(dst, at(src), elements * sizeof(float));
	return NG_DEV_OK;
}

static int cpu_sync(struct ng_device *dev)
{
	(void)dev;
	return NG_DEV_OK;
}

/* ---- flat vectors ---- */

struct flat {
	const struct ng_cpu_ops *ops;
	float *y, *m, *v;
	const float *x;
	size_t n;
	float a, lr, b1, b2, eps, wd, c1, c2, gscale;
	double *sums;
	enum ng_act act;
};

static void run_flat(struct cpu *cpu, ng_threads_fn *fn, struct flat *f)
{
	f->ops = cpu->ops;
	ng_threads_run(cpu->pool, fn, f, count(f->n, FLAT));
}

static void copy_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	memcpy(f->y + i * FLAT, f->x + i * FLAT, part(f->n, FLAT, i) * sizeof(float));
}

static int cpu_copy(struct ng_device *dev, struct ng_ref dst, struct ng_ref src, size_t elements)
{
	struct flat f = { .y = at(dst), .x = at(src), .n = elements };

	run_flat(cpu_of(dev), copy_piece, &f);
	return NG_DEV_OK;
}

static void zero_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	memset(f->y + i * FLAT, 0, part(f->n, FLAT, i) * sizeof(float));
}

static int cpu_zero(struct ng_device *dev, struct ng_ref dst, size_t elements)
{
	struct flat f = { .y = at(dst), .n = elements };

	run_flat(cpu_of(dev), zero_piece, &f);
	return NG_DEV_OK;
}

static void act_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->ops->act(f->y + i * FLAT, f->x + i * FLAT, part(f->n, FLAT, i), f->act);
}

static int cpu_act(struct ng_device *dev, struct ng_ref y, struct ng_ref pre, size_t T, size_t N, enum ng_act act)
{
	struct flat f = { .y = at(y), .x = at(pre), .n = T * N, .act = act };

	run_flat(cpu_of(dev), act_piece, &f);
	return NG_DEV_OK;
}

static void act_bwd_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->ops->act_bwd(f->y + i * FLAT, f->m + i * FLAT, f->x + i * FLAT, part(f->n, FLAT, i), f->act);
}

static int cpu_act_bwd(struct ng_device *dev, struct ng_ref dpre, struct ng_ref dy, struct ng_ref pre, size_t T,
	size_t N, enum ng_act act)
{
	struct flat f = { .y = at(dpre), .m = at(dy), .x = at(pre), .n = T * N, .act = act };

	run_flat(cpu_of(dev), act_bwd_piece, &f);
	return NG_DEV_OK;
}

static void sumsq_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->sums[i] = f->ops->sumsq(f->x + i * FLAT, part(f->n, FLAT, i));
}

static int cpu_sumsq(struct ng_device *dev, double *out, struct ng_ref x, size_t n)
{
	struct cpu *cpu = cpu_of(dev);
	struct flat f = { .x = at(x), .n = n };
	int status = need_scratch(cpu, sizeof(double) / sizeof(float), count(n, FLAT));

	if (status != 0)
		return status;
	f.sums = (double *)(void *)cpu->scratch;
	run_flat(cpu, sumsq_piece, &f);
	*out = 0;
	for (size_t i = 0; i < count(n, FLAT); i++)
		*out += f.sums[i];
	return NG_DEV_OK;
}

static void scale_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->ops->scale(f->y + i * FLAT, f->a, part(f->n, FLAT, i));
}

static int cpu_scale(struct ng_device *dev, struct ng_ref x, float a, size_t n)
{
	struct flat f = { .y = at(x), .a = a, .n = n };

	run_flat(cpu_of(dev), scale_piece, &f);
	return NG_DEV_OK;
}

static void axpy_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->ops->axpy(f->y + i * FLAT, f->a, f->x + i * FLAT, part(f->n, FLAT, i));
}

static int cpu_axpy(struct ng_device *dev, struct ng_ref y, float a, struct ng_ref x, size_t n)
{
	struct flat f = { .y = at(y), .a = a, .x = at(x), .n = n };

	run_flat(cpu_of(dev), axpy_piece, &f);
	return NG_DEV_OK;
}

static void adamw_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;
	size_t o = i * FLAT;

	(void)who;
	f->ops->adamw(f->y + o, f->m + o, f->v + o, f->x + o, part(f->n, FLAT, i), f->lr, f->b1, f->b2, f->eps, f->wd,
		f->c1, f->c2, f->gscale);
}

static int cpu_adamw(struct ng_device *dev, struct ng_ref w, struct ng_ref m, struct ng_ref v, struct ng_ref g,
	size_t n, float lr, float b1, float b2, float eps, float wd, float c1, float c2, float gscale)
{
	struct flat f = { .y = at(w),
		.m = at(m),
		.v = at(v),
		.x = at(g),
		.n = n,
		.lr = lr,
		.b1 = b1,
		.b2 = b2,
		.eps = eps,
		.wd = wd,
		.c1 = c1,
		.c2 = c2,
		.gscale = gscale };

	run_flat(cpu_of(dev), adamw_piece, &f);
	return NG_DEV_OK;
}

static void sgd_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;
	size_t o = i * FLAT;

	(void)who;
	f->ops->sgd(f->y + o, f->m ? f->m + o : NULL, f->x + o, part(f->n, FLAT, i), f->lr, f->a, f->wd, f->gscale);
}

static int cpu_sgd(struct ng_device *dev, struct ng_ref w, struct ng_ref m, struct ng_ref g, size_t n, float lr,
	float mu, float wd, float gscale)
{
	struct flat f = { .y = at(w), .m = at(m), .x = at(g), .n = n, .lr = lr, .a = mu, .wd = wd, .gscale = gscale };

	run_flat(cpu_of(dev), sgd_piece, &f);
	return NG_DEV_OK;
}

/* ---- products ---- */

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
	ng_threads_run(cpu->pool, product_piece, p, count(p->M, p->rows) * p->across);
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
		w->p.cpu->ops->axpy(w->dw + i * FLAT, 1.0f, w->parts + (s - 1) * w->n + i * FLAT, part(w->n, FLAT, i));
}

static int cpu_linear_dw(struct ng_device *dev, struct ng_ref dw, struct ng_ref db, struct ng_ref dy, struct ng_ref x,
	size_t T, size_t K, size_t N)
{
	struct cpu *cpu = cpu_of(dev);

	if (db.mem) {
		struct column_sum c = { .ops = cpu->ops, .db = at(db), .dy = at(dy), .T = T, .N = N };

		ng_threads_run(cpu->pool, column_piece, &c, count(N, NG_CPU_COLSUM));
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
	int status = need_scratch(cpu, w.n, w.splits - 1);
	if (status != 0)
		return status;
	w.parts = cpu->scratch;
	w.tokens = count(T, w.splits);
	w.splits = count(T, w.tokens);
	ng_threads_run(cpu->pool, split_piece, &w, w.pieces * w.splits);
	if (w.splits > 1)
		ng_threads_run(cpu->pool, join_piece, &w, count(w.n, FLAT));
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

/* ---- embeddings ---- */

struct embedding {
	const struct ng_cpu_ops *ops;
	float *x, *dwte, *dwpe, *dwtt;
	const float *wte, *wpe, *wtt, *dx;
	const int32_t *ids, *pos;
	size_t T, C;
};

static void embed_piece(void *arg, size_t i, int who)
{
	struct embedding *e = arg;
	size_t t0 = i * NG_PIECE;

	(void)who;
	e->ops->embed(e->x, e->ids, e->pos, e->wte, e->wpe, e->wtt, t0, t0 + part(e->T, NG_PIECE, i), e->C);
}

static int cpu_embed(struct ng_device *dev, struct ng_ref x, struct ng_ref ids, struct ng_ref pos, struct ng_ref wte,
	struct ng_ref wpe, struct ng_ref wtt, size_t T, size_t C)
{
	struct cpu *cpu = cpu_of(dev);
	struct embedding e = { .ops = cpu->ops,
		.x = at(x),
		.ids = ints(ids),
		.pos = ints(pos),
		.wte = at(wte),
		.wpe = at(wpe),
		.wtt = at(wtt),
		.T = T,
		.C = C };

	ng_threads_run(cpu->pool, embed_piece, &e, count(T, NG_PIECE));
	return NG_DEV_OK;
}

static void embed_bwd_piece(void *arg, size_t i, int who)
{
	struct embedding *e = arg;
	size_t c0 = i * SLAB;

	(void)who;
	e->ops->embed_bwd(e->dwte, e->dwpe, e->dwtt, e->dx, e->ids, e->pos, e->T, e->C, c0, c0 + part(e->C, SLAB, i));
}

static int cpu_embed_bwd(struct ng_device *dev, struct ng_ref dwte, struct ng_ref dwpe, struct ng_ref dwtt,
	struct ng_ref dx, struct ng_ref ids, struct ng_ref pos, size_t T, size_t C)
{
	struct cpu *cpu = cpu_of(dev);
	struct embedding e = { .ops = cpu->ops,
		.dx = at(dx),
		.ids = ints(ids),
		.pos = ints(pos),
		.dwte = at(dwte),
		.dwpe = at(dwpe),
		.dwtt = at(dwtt),
		.T = T,
		.C = C };

	/* by channels: every row of the tables is then added to in token order, whoever does it */
	ng_threads_run(cpu->pool, embed_bwd_piece, &e, count(C, SLAB));
	return NG_DEV_OK;
}

/* ---- layer norm ---- */

struct norm {
	const struct ng_cpu_ops *ops;
	struct ng_ln_args a;
	float *parts;
};

static const struct ng_dropout *on(const struct ng_dropout *drop)
{
	return drop && drop->p16 > 0 ? drop : NULL;
}

static void layernorm_piece(void *arg, size_t i, int who)
{
	struct norm *n = arg;
	size_t t0 = i * NG_PIECE;

	(void)who;
	n->ops->layernorm(&n->a, t0, t0 + part(n->a.T, NG_PIECE, i));
}

static int cpu_layernorm(struct ng_device *dev, struct ng_ref y, struct ng_ref s, struct ng_ref mean,
	struct ng_ref rstd, struct ng_ref x, struct ng_ref res, struct ng_ref gamma, struct ng_ref beta, float eps,
	struct ng_ref cu, size_t S, size_t T, size_t C, const struct ng_dropout *drop_x,
	const struct ng_dropout *drop_y)
{
	struct cpu *cpu = cpu_of(dev);
	struct norm n = { .ops = cpu->ops,
		.a = { .y = at(y),
			.s = at(s),
			.mean = at(mean),
			.rstd = at(rstd),
			.x = at(x),
			.res = at(res),
			.gamma = at(gamma),
			.beta = at(beta),
			.eps = eps,
			.cu = ints(cu),
			.S = S,
			.T = T,
			.C = C,
			.drop_x = on(drop_x),
			.drop_y = on(drop_y) } };

	ng_threads_run(cpu->pool, layernorm_piece, &n, count(T, NG_PIECE));
	return NG_DEV_OK;
}

static void layernorm_bwd_piece(void *arg, size_t i, int who)
{
	struct norm *n = arg;
	size_t t0 = i * NG_PIECE;

	(void)who;
	n->ops->layernorm_bwd(&n->a, t0, t0 + part(n->a.T, NG_PIECE, i), n->parts ? n->parts + i * 2 * n->a.C : NULL);
}

static int cpu_layernorm_bwd(struct ng_device *dev, struct ng_ref ds, struct ng_ref dx, struct ng_ref dgamma,
	struct ng_ref dbeta, struct ng_ref dy, struct ng_ref s, struct ng_ref mean, struct ng_ref rstd,
	struct ng_ref gamma, struct ng_ref cu, size_t S, size_t T, size_t C, const struct ng_dropout *drop_x,
	const struct ng_dropout *drop_y)
{
	struct cpu *cpu = cpu_of(dev);
	size_t pieces = count(T, NG_PIECE);
	struct norm n = { .ops = cpu->ops,
		.a = { .ds = at(ds),
			.dx = on(drop_x) ? at(dx) : NULL,
			.dy = at(dy),
			.sin = at(s),
			.mean_in = at(mean),
			.rstd_in = at(rstd),
			.gamma = at(gamma),
			.cu = ints(cu),
			.S = S,
			.T = T,
			.C = C,
			.drop_x = on(drop_x),
			.drop_y = on(drop_y) } };

	if (dgamma.mem || dbeta.mem) {
		int status = need_scratch(cpu, 2 * C, pieces);

		if (status != 0)
			return status;
		n.parts = cpu->scratch;
	}
	ng_threads_run(cpu->pool, layernorm_bwd_piece, &n, pieces);
	for (size_t i = 0; n.parts && i < pieces; i++) {
		if (dgamma.mem)
			cpu->ops->axpy(at(dgamma), 1.0f, n.parts + i * 2 * C, C);
		if (dbeta.mem)
			cpu->ops->axpy(at(dbeta), 1.0f, n.parts + i * 2 * C + C, C);
	}
	return NG_DEV_OK;
}

/* ---- attention ---- */

struct attend {
	const struct ng_cpu_ops *ops;
	struct ng_attn_args a;
	float *scratch;
	size_t each;
};

static void attention_piece(void *arg, size_t i, int who)
{
	struct attend *t = arg;

	t->ops->attention(&t->a, i / t->a.H, i % t->a.H, t->scratch + (size_t)who * t->each);
}

static void attention_bwd_piece(void *arg, size_t i, int who)
{
	struct attend *t = arg;

	t->ops->attention_bwd(&t->a, i / t->a.H, i % t->a.H, t->scratch + (size_t)who * t->each);
}

static size_t longest(const int32_t *cu, size_t S)
{
	int32_t most = 0;

	for (size_t s = 0; s < S; s++)
		most = cu[s + 1] - cu[s] > most ? cu[s + 1] - cu[s] : most;
	return (size_t)most;
}

static int cpu_attention(struct ng_device *dev, struct ng_ref ctx, struct ng_ref lse, struct ng_ref qkv,
	struct ng_ref bias, struct ng_ref cu, size_t S, size_t T, size_t C, size_t H, const struct ng_dropout *drop)
{
	struct cpu *cpu = cpu_of(dev);
	struct attend t = { .ops = cpu->ops,
		.a = { .ctx = at(ctx),
			.lse = at(lse),
			.qkv = at(qkv),
			.bias = at(bias),
			.cu = ints(cu),
			.S = S,
			.C = C,
			.H = H,
			.drop = on(drop) } };

	(void)T;
	t.each = cpu->ops->attention_scratch(longest(t.a.cu, S), C / H, false);
	int status = need_scratch(cpu, t.each, (size_t)ng_threads_count(cpu->pool));
	if (status != 0)
		return status;
	t.scratch = cpu->scratch;
	ng_threads_run(cpu->pool, attention_piece, &t, S * H);
	return NG_DEV_OK;
}

static int cpu_attention_bwd(struct ng_device *dev, struct ng_ref dqkv, struct ng_ref dbias, struct ng_ref dctx,
	struct ng_ref qkv, struct ng_ref ctx, struct ng_ref lse, struct ng_ref bias, struct ng_ref cu, size_t S,
	size_t T, size_t C, size_t H, const struct ng_dropout *drop)
{
	struct cpu *cpu = cpu_of(dev);
	struct attend t = { .ops = cpu->ops,
		.a = { .dqkv = at(dqkv),
			.dctx = at(dctx),
			.qkv = at(qkv),
			.ctx_in = at(ctx),
			.lse_in = at(lse),
			.bias = at(bias),
			.cu = ints(cu),
			.S = S,
			.C = C,
			.H = H,
			.drop = on(drop) } };
	const size_t threads = (size_t)ng_threads_count(cpu->pool), parts = dbias.mem ? S * H * NG_BUCKETS : 0;

	(void)T;
	t.each = cpu->ops->attention_scratch(longest(t.a.cu, S), C / H, true);
	int status = need_scratch(cpu, t.each * threads + parts, 1);
	if (status != 0)
		return status;
	t.scratch = cpu->scratch;
	if (parts > 0)
		t.a.dbias_parts = cpu->scratch + t.each * threads;
	ng_threads_run(cpu->pool, attention_bwd_piece, &t, S * H);
	for (size_t i = 0; i < parts; i++) {
		size_t h = i / NG_BUCKETS % H, bucket = i % NG_BUCKETS;

		at(dbias)[bucket * H + h] += t.a.dbias_parts[i];
	}
	return NG_DEV_OK;
}

/* ---- pooling and what follows it ---- */

struct pooling {
	const struct ng_cpu_ops *ops;
	float *out;
	const float *in, *x;
	const int32_t *cu, *first;
	size_t C, ld;
	enum ng_pool mode;
	bool accumulate;
};

static void pool_piece(void *arg, size_t s, int who)
{
	struct pooling *p = arg;
	size_t t0 = (size_t)p->cu[s], L = (size_t)p->cu[s + 1] - t0;

	(void)who;
	p->ops->pool(p->out + s * p->ld, p->in + t0 * p->C, L, p->first ? (size_t)p->first[s] : 0, p->C, p->mode);
}

static int cpu_pool(struct ng_device *dev, struct ng_ref e, size_t lde, struct ng_ref x, struct ng_ref cu,
	struct ng_ref first, size_t S, size_t T, size_t C, enum ng_pool mode)
{
	struct cpu *cpu = cpu_of(dev);
	struct pooling p = { .ops = cpu->ops,
		.out = at(e),
		.ld = lde,
		.in = at(x),
		.cu = ints(cu),
		.first = ints(first),
		.C = C,
		.mode = mode };

	(void)T;
	ng_threads_run(cpu->pool, pool_piece, &p, S);
	return NG_DEV_OK;
}

static void pool_bwd_piece(void *arg, size_t s, int who)
{
	struct pooling *p = arg;
	size_t t0 = (size_t)p->cu[s], L = (size_t)p->cu[s + 1] - t0;

	(void)who;
	p->ops->pool_bwd(p->out + t0 * p->C, p->in + s * p->ld, p->x ? p->x + t0 * p->C : NULL, L,
		p->first ? (size_t)p->first[s] : 0, p->C, p->mode, p->accumulate);
}

static int cpu_pool_bwd(struct ng_device *dev, struct ng_ref dx, struct ng_ref de, size_t ldde, struct ng_ref x,
	struct ng_ref cu, struct ng_ref first, size_t S, size_t T, size_t C, enum ng_pool mode, bool accumulate)
{
	struct cpu *cpu = cpu_of(dev);
	struct pooling p = { .ops = cpu->ops,
		.out = at(dx),
		.in = at(de),
		.ld = ldde,
		.x = at(x),
		.cu = ints(cu),
		.first = ints(first),
		.C = C,
		.mode = mode,
		.accumulate = accumulate };

	(void)T;
	ng_threads_run(cpu->pool, pool_bwd_piece, &p, S);
	return NG_DEV_OK;
}

struct rows {
	const struct ng_cpu_ops *ops;
	float *out, *m, *l;
	const float *in, *y;
	size_t R, N, each;
	float scale;
};

/* Rows are independent, so a piece may hold as many as make about FLAT elements. */
static void run_rows(struct cpu *cpu, ng_threads_fn *fn, struct rows *r)
{
	r->ops = cpu->ops;
	r->each = r->N >= FLAT || r->N == 0 ? 1 : FLAT / r->N;
	ng_threads_run(cpu->pool, fn, r, count(r->R, r->each));
}

static void normalize_piece(void *arg, size_t i, int who)
{
	struct rows *r = arg;
	size_t at0 = i * r->each;

	(void)who;
	r->ops->normalize(r->out + at0 * r->N, r->m + at0, r->in + at0 * r->N, part(r->R, r->each, i), r->N);
}

static int cpu_normalize(
	struct ng_device *dev, struct ng_ref y, struct ng_ref norm, struct ng_ref x, size_t B, size_t C)
{
	struct rows r = { .out = at(y), .m = at(norm), .in = at(x), .R = B, .N = C };

	run_rows(cpu_of(dev), normalize_piece, &r);
	return NG_DEV_OK;
}

static void normalize_bwd_piece(void *arg, size_t i, int who)
{
	struct rows *r = arg;
	size_t at0 = i * r->each, o = at0 * r->N;

	(void)who;
	r->ops->normalize_bwd(r->out + o, r->in + o, r->y + o, r->m + at0, part(r->R, r->each, i), r->N);
}

static int cpu_normalize_bwd(struct ng_device *dev, struct ng_ref dx, struct ng_ref dy, struct ng_ref y,
	struct ng_ref norm, size_t B, size_t C)
{
	struct rows r = { .out = at(dx), .in = at(dy), .y = at(y), .m = at(norm), .R = B, .N = C };

	run_rows(cpu_of(dev), normalize_bwd_piece, &r);
	return NG_DEV_OK;
}

static void lse_piece(void *arg, size_t i, int who)
{
	struct rows *r = arg;
	size_t at0 = i * r->each;

	(void)who;
	r->ops->lse_update(r->m + at0, r->l + at0, r->in + at0 * r->N, part(r->R, r->each, i), r->N);
}

static int cpu_lse_update(struct ng_device *dev, struct ng_ref m, struct ng_ref l, struct ng_ref z, size_t R, size_t N)
{
	struct rows r = { .m = at(m), .l = at(l), .in = at(z), .R = R, .N = N };

	run_rows(cpu_of(dev), lse_piece, &r);
	return NG_DEV_OK;
}

static void softmax_piece(void *arg, size_t i, int who)
{
	struct rows *r = arg;
	size_t at0 = i * r->each;

	(void)who;
	r->ops->softmax_from_lse(r->out + at0 * r->N, r->m + at0, r->l + at0, r->scale, part(r->R, r->each, i), r->N);
}

static int cpu_softmax_from_lse(
	struct ng_device *dev, struct ng_ref z, struct ng_ref m, struct ng_ref l, float scale, size_t R, size_t N)
{
	struct rows r = { .out = at(z), .m = at(m), .l = at(l), .scale = scale, .R = R, .N = N };

	run_rows(cpu_of(dev), softmax_piece, &r);
	return NG_DEV_OK;
}

/* ---- opening ---- */

static bool has_avx2(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
	return false;
#endif
}

static bool has_sse2(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("sse2") != 0;
#else
	return false;
#endif
}

static const struct ng_cpu_ops *choose(const char *isa)
{
	const struct ng_cpu_ops *all[3] = { has_avx2() ? ng_cpu_ops_avx2() : NULL,
		has_sse2() ? ng_cpu_ops_sse2() : NULL, ng_cpu_ops_c() };

	for (int i = 0; i < 3; i++)
		if (all[i] && (!isa || strcmp(isa, all[i]->isa) == 0))
			return all[i];
	return NULL;
}

/* One thread for the BLAS; its name for people. */
static const char *quiet_blas(void)
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
static void warm_blas(int threads)
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

static const struct ng_device functions = {
	.abi = NG_DEVICE_ABI,
	.size = sizeof(struct ng_device),
	.close = cpu_close,
	.last_error = cpu_last_error,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.upload = cpu_upload,
	.download = cpu_download,
	.copy = cpu_copy,
	.zero = cpu_zero,
	.sync = cpu_sync,
	.linear = cpu_linear,
	.act_bwd = cpu_act_bwd,
	.act = cpu_act,
	.linear_dx = cpu_linear_dx,
	.linear_dw = cpu_linear_dw,
	.gemm = cpu_gemm,
	.embed = cpu_embed,
	.embed_bwd = cpu_embed_bwd,
	.layernorm = cpu_layernorm,
	.layernorm_bwd = cpu_layernorm_bwd,
	.attention = cpu_attention,
	.attention_bwd = cpu_attention_bwd,
	.pool = cpu_pool,
	.pool_bwd = cpu_pool_bwd,
	.normalize = cpu_normalize,
	.normalize_bwd = cpu_normalize_bwd,
	.lse_update = cpu_lse_update,
	.softmax_from_lse = cpu_softmax_from_lse,
	.sumsq = cpu_sumsq,
	.scale = cpu_scale,
	.axpy = cpu_axpy,
	.adamw = cpu_adamw,
	.sgd = cpu_sgd,
};

int ng_cpu_open(struct ng_device **out, int threads, const char *isa, ng_sgemm_fn *sgemm, const char **why)
{
	const struct ng_cpu_ops *ops = choose(isa);
	const char *none, *core;

	*out = NULL;
	if (!why)
		why = &none;
	if (!ops) {
		*why = "this processor or build has no such instruction set";
		return NG_DEV_MISSING;
	}
	core = quiet_blas();
	if (!ng_cpu_blas_works(sgemm ? sgemm : cblas_sgemm)) {
		*why = "the BLAS multiplies wrongly on this processor (it may be newer than the library: set "
		       "OPENBLAS_CORETYPE=Haswell in the environment, or install a newer OpenBLAS)";
		return NG_DEV_FAILED;
	}
	struct cpu *cpu = calloc(1, sizeof(*cpu));
	if (!cpu) {
		*why = "out of memory";
		return NG_DEV_MEMORY;
	}
	cpu->pool = ng_threads_new(threads);
	if (!cpu->pool) {
		free(cpu);
		*why = "cannot start the threads";
		return NG_DEV_MEMORY;
	}
	if (!sgemm)
		warm_blas(threads);
	cpu->dev = functions;
	cpu->dev.self = cpu;
	cpu->ops = ops;
	cpu->sgemm = sgemm ? sgemm : cblas_sgemm;
	cpu->error = "";
	cpu->dev.info.threads = ng_threads_count(cpu->pool);
	snprintf(cpu->dev.info.name, sizeof(cpu->dev.info.name), "cpu: %s, %s%s%s, %d thread%s", ops->name,
		core ? "OpenBLAS" : "BLAS", core ? " " : "", core ? core : "", cpu->dev.info.threads,
		cpu->dev.info.threads == 1 ? "" : "s");
	*out = &cpu->dev;
	return NG_DEV_OK;
}

int ng_device_open(struct ng_device **out, const char *spec, int threads, const char *isa, const char **why)
{
	*out = NULL;
	if (strcmp(spec, "auto") == 0 || strcmp(spec, "cpu") == 0)
		return ng_cpu_open(out, threads, isa, NULL, why);
	if (why)
		*why = "no such device (auto or cpu)";
	return NG_DEV_MISSING;
}
