/* cpu_encoder.c - the CPU device's embeddings, layer norm, attention and pooling; see cpu.c. */
#include "kernels/cpu.h"

#define SLAB 32 /* channels of a piece where tables are scattered to */

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

	ng_threads_run(cpu->pool, embed_piece, &e, count(T, NG_PIECE), pass_ns(T, C));
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
	ng_threads_run(cpu->pool, embed_bwd_piece, &e, count(C, SLAB), pass_ns(T, C));
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

	ng_threads_run(cpu->pool, layernorm_piece, &n, count(T, NG_PIECE), 2 * pass_ns(T, C));
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
		int status = ng_cpu_scratch(cpu, 2 * C, pieces);

		if (status != 0)
			return status;
		n.parts = cpu->scratch;
	}
	ng_threads_run(cpu->pool, layernorm_bwd_piece, &n, pieces, 2 * pass_ns(T, C));
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

/* Two products of L x L by C, and a pass over L x L in each head. */
static double attention_ns(const struct ng_attn_args *a)
{
	double squares = 0;

	for (size_t s = 0; s < a->S; s++) {
		double L = (double)(a->cu[s + 1] - a->cu[s]);

		squares += L * L;
	}
	return squares * ((double)a->C / 8 + (double)a->H);
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
	int status = ng_cpu_scratch(cpu, t.each, (size_t)ng_threads_count(cpu->pool));
	if (status != 0)
		return status;
	t.scratch = cpu->scratch;
	ng_threads_run(cpu->pool, attention_piece, &t, S * H, attention_ns(&t.a));
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
	int status = ng_cpu_scratch(cpu, t.each * threads + parts, 1);
	if (status != 0)
		return status;
	t.scratch = cpu->scratch;
	if (parts > 0)
		t.a.dbias_parts = cpu->scratch + t.each * threads;
	ng_threads_run(cpu->pool, attention_bwd_piece, &t, S * H, 3 * attention_ns(&t.a));
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

	ng_threads_run(cpu->pool, pool_piece, &p, S, pass_ns(T, C) / 2);
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

	ng_threads_run(cpu->pool, pool_bwd_piece, &p, S, pass_ns(T, C) / 2);
	return NG_DEV_OK;
}

void ng_cpu_encoder(struct ng_device *dev)
{
	dev->embed = cpu_embed;
	dev->embed_bwd = cpu_embed_bwd;
	dev->layernorm = cpu_layernorm;
	dev->layernorm_bwd = cpu_layernorm_bwd;
	dev->attention = cpu_attention;
	dev->attention_bwd = cpu_attention_bwd;
	dev->pool = cpu_pool;
	dev->pool_bwd = cpu_pool_bwd;
}
