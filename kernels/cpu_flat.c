/* cpu_flat.c - the CPU device's operations on flat vectors and on independent rows; see cpu.c. */
#include "kernels/cpu.h"

#include <string.h>

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
	ng_threads_run(cpu->pool, fn, f, count(f->n, NG_CPU_FLAT), pass_ns(f->n, 1));
}

static void copy_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	memcpy(f->y + i * NG_CPU_FLAT, f->x + i * NG_CPU_FLAT, part(f->n, NG_CPU_FLAT, i) * sizeof(float));
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
	memset(f->y + i * NG_CPU_FLAT, 0, part(f->n, NG_CPU_FLAT, i) * sizeof(float));
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
	f->ops->act(f->y + i * NG_CPU_FLAT, f->x + i * NG_CPU_FLAT, part(f->n, NG_CPU_FLAT, i), f->act);
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
	f->ops->act_bwd(f->y + i * NG_CPU_FLAT, f->m + i * NG_CPU_FLAT, f->x + i * NG_CPU_FLAT,
		part(f->n, NG_CPU_FLAT, i), f->act);
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
	f->sums[i] = f->ops->sumsq(f->x + i * NG_CPU_FLAT, part(f->n, NG_CPU_FLAT, i));
}

static int cpu_sumsq(struct ng_device *dev, double *out, struct ng_ref x, size_t n)
{
	struct cpu *cpu = cpu_of(dev);
	struct flat f = { .x = at(x), .n = n };
	int status = ng_cpu_scratch(cpu, sizeof(double) / sizeof(float), count(n, NG_CPU_FLAT));

	if (status != 0)
		return status;
	f.sums = (double *)(void *)cpu->scratch;
	run_flat(cpu, sumsq_piece, &f);
	*out = 0;
	for (size_t i = 0; i < count(n, NG_CPU_FLAT); i++)
		*out += f.sums[i];
	return NG_DEV_OK;
}

static void scale_piece(void *arg, size_t i, int who)
{
	struct flat *f = arg;

	(void)who;
	f->ops->scale(f->y + i * NG_CPU_FLAT, f->a, part(f->n, NG_CPU_FLAT, i));
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
	f->ops->axpy(f->y + i * NG_CPU_FLAT, f->a, f->x + i * NG_CPU_FLAT, part(f->n, NG_CPU_FLAT, i));
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
	size_t o = i * NG_CPU_FLAT;

	(void)who;
	f->ops->adamw(f->y + o, f->m + o, f->v + o, f->x + o, part(f->n, NG_CPU_FLAT, i), f->lr, f->b1, f->b2, f->eps,
		f->wd, f->c1, f->c2, f->gscale);
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
	size_t o = i * NG_CPU_FLAT;

	(void)who;
	f->ops->sgd(
		f->y + o, f->m ? f->m + o : NULL, f->x + o, part(f->n, NG_CPU_FLAT, i), f->lr, f->a, f->wd, f->gscale);
}

static int cpu_sgd(struct ng_device *dev, struct ng_ref w, struct ng_ref m, struct ng_ref g, size_t n, float lr,
	float mu, float wd, float gscale)
{
	struct flat f = { .y = at(w), .m = at(m), .x = at(g), .n = n, .lr = lr, .a = mu, .wd = wd, .gscale = gscale };

	run_flat(cpu_of(dev), sgd_piece, &f);
	return NG_DEV_OK;
}

/* ---- rows ---- */

struct rows {
	const struct ng_cpu_ops *ops;
	float *out, *m, *l;
	const float *in, *y;
	size_t R, N, each;
	float scale;
};

/* Rows are independent, so a piece may hold as many as make about NG_CPU_FLAT elements. */
static void run_rows(struct cpu *cpu, ng_threads_fn *fn, struct rows *r)
{
	r->ops = cpu->ops;
	r->each = r->N >= NG_CPU_FLAT || r->N == 0 ? 1 : NG_CPU_FLAT / r->N;
	ng_threads_run(cpu->pool, fn, r, count(r->R, r->each), pass_ns(r->R, r->N));
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

void ng_cpu_flat(struct ng_device *dev)
{
	dev->copy = cpu_copy;
	dev->zero = cpu_zero;
	dev->act = cpu_act;
	dev->act_bwd = cpu_act_bwd;
	dev->sumsq = cpu_sumsq;
	dev->scale = cpu_scale;
	dev->axpy = cpu_axpy;
	dev->adamw = cpu_adamw;
	dev->sgd = cpu_sgd;
	dev->normalize = cpu_normalize;
	dev->normalize_bwd = cpu_normalize_bwd;
	dev->lse_update = cpu_lse_update;
	dev->softmax_from_lse = cpu_softmax_from_lse;
}
