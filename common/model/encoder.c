/* encoder.c - see encoder.h. */
#include "common/base/compat.h"

#include "common/model/encoder.h"

#include <math.h>

#include "common/base/mem.h"

#define ROUND(n) (((n) + 15) & ~(size_t)15)
#define TRY(call)                      \
	do {                           \
		if ((status = (call))) \
			goto failed;   \
	} while (0)

/* Streams of the dropout generator: heads of a layer count up from ATTENTION. */
enum { STREAM_EMBEDDING = 0x100, STREAM_LAYER = 0x10000, STREAM_OUT = 1, STREAM_DOWN = 2, STREAM_ATTENTION = 0x1000 };

struct ng_ref ng_arena_take(struct ng_arena *a, size_t elements)
{
	size_t n = ROUND(elements);

	if (a->cap - a->used < n)
		NG_BUG("arena of %zu elements is full: %zu used, %zu wanted", a->cap, a->used, n);
	struct ng_ref r = ng_at(a->base, a->used);
	a->used += n;
	return r;
}

void ng_acts_init(struct ng_acts *a, const struct ng_model *m)
{
	memset(a, 0, sizeof(*a));
	a->layer = ng_xcalloc(m->cfg.layers, sizeof(*a->layer));
}

void ng_acts_release(struct ng_acts *a)
{
	free(a->layer);
	memset(a, 0, sizeof(*a));
}

/* Widest matrix of S rows at the end. */
static size_t tail_width(const struct ng_model_config *c)
{
	size_t w = c->hidden * c->pools;

	for (size_t i = 0; i < c->tails; i++)
		w = c->tail[i].out > w ? c->tail[i].out : w;
	return w;
}

static size_t wide(const struct ng_model_config *c)
{
	return c->inner > 4 * c->hidden ? c->inner : 4 * c->hidden;
}

size_t ng_acts_elements(const struct ng_model_config *c, size_t S, size_t T, bool keep)
{
	size_t n = 2 * ROUND(T) + ROUND(S + 1) + ROUND(S), C = c->hidden;

	if (keep) {
		n += ROUND(T * C) + 2 * ROUND(T);
		n += c->layers *
		     (ROUND(3 * T * C) + 3 * ROUND(T * C) + ROUND(T * c->heads) + ROUND(T * c->inner) + 4 * ROUND(T));
	}
	n += ROUND(S * C * c->pools);
	for (size_t i = 0; i < c->tails; i++)
		n += 2 * ROUND(S * c->tail[i].out);
	return n;
}

size_t ng_scratch_elements(const struct ng_model_config *c, size_t S, size_t T)
{
	return 3 * ROUND(T * c->hidden) + ROUND(T * wide(c)) + 2 * ROUND(S * tail_width(c));
}

/* The same places in forward and backward. */
struct scratch {
	struct ng_ref a, b, c; /* (T,C) each */
	struct ng_ref wide;    /* (T, max(F, 4C)) */
	struct ng_ref e, f;    /* (S, widest tail) */
};

static struct scratch split(const struct ng_model_config *c, struct ng_ref base, size_t S, size_t T)
{
	size_t tc = ROUND(T * c->hidden), st = ROUND(S * tail_width(c));
	struct scratch s;

	s.a = base;
	s.b = ng_at(base, tc);
	s.c = ng_at(base, 2 * tc);
	s.wide = ng_at(base, 3 * tc);
	s.e = ng_at(base, 3 * tc + ROUND(T * wide(c)));
	s.f = ng_at(s.e, st);
	return s;
}

static void take(
	struct ng_acts *a, const struct ng_model_config *c, struct ng_arena *arena, bool keep, size_t S, size_t T)
{
	size_t C = c->hidden;

	a->S = S;
	a->T = T;
	a->ids = ng_arena_take(arena, T);
	a->pos = ng_arena_take(arena, T);
	a->cu = ng_arena_take(arena, S + 1);
	a->first = ng_arena_take(arena, S);
	a->s0 = a->mean0 = a->rstd0 = ng_absent;
	memset(a->layer, 0, c->layers * sizeof(*a->layer));
	if (keep) {
		a->s0 = ng_arena_take(arena, T * C);
		a->mean0 = ng_arena_take(arena, T);
		a->rstd0 = ng_arena_take(arena, T);
		for (size_t i = 0; i < c->layers; i++) {
			struct ng_layer_acts *l = &a->layer[i];

			l->qkv = ng_arena_take(arena, 3 * T * C);
			l->ctx = ng_arena_take(arena, T * C);
			l->lse = ng_arena_take(arena, T * c->heads);
			l->s1 = ng_arena_take(arena, T * C);
			l->mean1 = ng_arena_take(arena, T);
			l->rstd1 = ng_arena_take(arena, T);
			l->pre = ng_arena_take(arena, T * c->inner);
			l->s2 = ng_arena_take(arena, T * C);
			l->mean2 = ng_arena_take(arena, T);
			l->rstd2 = ng_arena_take(arena, T);
		}
	}
	a->pooled = ng_arena_take(arena, S * C * c->pools);
	for (size_t i = 0; i < c->tails; i++) {
		a->y[i] = ng_arena_take(arena, S * c->tail[i].out);
		a->aux[i] = ng_arena_take(arena, S * c->tail[i].out);
	}
}

/* ---- dropout ---- */

static const struct ng_dropout *dropout(
	struct ng_dropout *out, const struct ng_drop *drop, const struct ng_grain *g, uint32_t stream)
{
	if (drop == NULL || drop->p <= 0)
		return NULL;
	long p16 = lround(drop->p * 65536);
	out->p16 = (uint32_t)(p16 > 65535 ? 65535 : p16);
	out->seed = drop->seed;
	out->round = drop->round;
	out->step = drop->step;
	out->stream = stream;
	out->example = g->example;
	return out->p16 ? out : NULL;
}

static uint32_t layer_stream(size_t layer, uint32_t what)
{
	return (uint32_t)(layer + 1) * STREAM_LAYER + what;
}

/* ---- forward ---- */

/* Positions: 0.. within a text; MPNet: 2.., a literal padding token stays at 1 and is not counted. */
static void positions(int32_t *pos, const struct ng_model_config *c, const struct ng_grain *g)
{
	for (size_t s = 0; s < g->S; s++) {
		int32_t n = 0;

		for (int32_t t = g->cu[s]; t < g->cu[s + 1]; t++) {
			if (c->family == NG_FAMILY_MPNET && g->ids[t] == c->pad_id)
				pos[t] = c->pad_id;
			else
				pos[t] = c->position_offset + n++;
		}
	}
}

static int upload(const struct ng_model *m, const struct ng_grain *g, struct ng_acts *a)
{
	struct ng_device *dev = m->dev;
	int32_t *pos = ng_xarray(g->T, sizeof(*pos));
	int status;

	positions(pos, &m->cfg, g);
	TRY(dev->upload(dev, a->ids, g->ids, g->T));
	TRY(dev->upload(dev, a->pos, pos, g->T));
	TRY(dev->upload(dev, a->cu, g->cu, g->S + 1));
	if (g->first)
		TRY(dev->upload(dev, a->first, g->first, g->S));
	else
		a->first = ng_absent;
failed:
	free(pos);
	return status;
}

static int forward_tail(const struct ng_model *m, struct ng_acts *a, struct ng_ref h, struct ng_ref out)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	size_t S = a->S, P = c->hidden * c->pools;
	struct ng_ref cur = a->pooled;
	int status;

	for (size_t i = 0; i < c->pools; i++)
		TRY(dev->pool(
			dev, ng_at(a->pooled, i * c->hidden), P, h, a->cu, a->first, S, a->T, c->hidden, c->pool[i]));
	for (size_t i = 0; i < c->tails; i++) {
		const struct ng_tail *t = &c->tail[i];

		if (t->kind == NG_TAIL_NORMALIZE)
			TRY(dev->normalize(dev, a->y[i], a->aux[i], cur, S, t->out));
		else
			TRY(dev->linear(dev, a->y[i], a->aux[i], cur, ng_at(m->w, m->tail[i].w),
				t->bias ? ng_at(m->w, m->tail[i].b) : ng_absent, S, t->in, t->out, t->act));
		cur = a->y[i];
	}
	TRY(dev->copy(dev, out, cur, S * c->dim));
failed:
	return status;
}

/* h (T,C) is replaced by the layer's output; h1, o (T,C). */
static int forward_layer(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop, size_t i,
	const struct ng_acts *a, struct scratch *s, bool keep)
{
	const struct ng_model_config *c = &m->cfg;
	const struct ng_layer_at *at = &m->layer[i];
	struct ng_device *dev = m->dev;
	const struct ng_layer_acts *l = &a->layer[i];
	size_t S = a->S, T = a->T, C = c->hidden, F = c->inner;
	struct ng_ref qkv = keep ? l->qkv : s->wide, ctx = keep ? l->ctx : s->c, h = s->a, o = s->b, h1 = s->c;
	struct ng_ref bias = m->relative == SIZE_MAX ? ng_absent : ng_at(m->w, m->relative);
	struct ng_dropout da, d1, d2;
	int status;

	TRY(dev->linear(
		dev, qkv, ng_absent, h, ng_at(m->w, at->qkv.w), ng_at(m->w, at->qkv.b), T, C, 3 * C, NG_ACT_NONE));
	TRY(dev->attention(dev, ctx, l->lse, qkv, bias, a->cu, S, T, C, c->heads,
		dropout(&da, drop, g, layer_stream(i, STREAM_ATTENTION))));
	TRY(dev->linear(dev, o, ng_absent, ctx, ng_at(m->w, at->out.w), ng_at(m->w, at->out.b), T, C, C, NG_ACT_NONE));
	TRY(dev->layernorm(dev, h1, l->s1, l->mean1, l->rstd1, o, h, ng_at(m->w, at->norm1.w), ng_at(m->w, at->norm1.b),
		c->eps, a->cu, S, T, C, dropout(&d1, drop, g, layer_stream(i, STREAM_OUT)), NULL));
	TRY(dev->linear(dev, s->wide, l->pre, h1, ng_at(m->w, at->up.w), ng_at(m->w, at->up.b), T, C, F, c->act));
	TRY(dev->linear(
		dev, o, ng_absent, s->wide, ng_at(m->w, at->down.w), ng_at(m->w, at->down.b), T, F, C, NG_ACT_NONE));
	TRY(dev->layernorm(dev, h, l->s2, l->mean2, l->rstd2, o, h1, ng_at(m->w, at->norm2.w), ng_at(m->w, at->norm2.b),
		c->eps, a->cu, S, T, C, dropout(&d2, drop, g, layer_stream(i, STREAM_DOWN)), NULL));
failed:
	return status;
}

/* y = the layer's normalised output again, from the sum before it. */
static int renorm(const struct ng_model *m, const struct ng_acts *a, struct ng_ref y, struct ng_ref s,
	const struct ng_linear_at *norm, const struct ng_dropout *drop_y)
{
	return m->dev->layernorm(m->dev, y, ng_absent, ng_absent, ng_absent, s, ng_absent, ng_at(m->w, norm->w),
		ng_at(m->w, norm->b), m->cfg.eps, a->cu, a->S, a->T, m->cfg.hidden, NULL, drop_y);
}

int ng_forward(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop, bool keep,
	struct ng_acts *a, struct ng_arena *arena, struct ng_ref scratch, struct ng_ref out, const struct ng_stop *stop,
	struct ng_err *err)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	struct ng_dropout d0;
	int status;

	take(a, c, arena, keep, g->S, g->T);
	struct scratch s = split(c, scratch, g->S, g->T);
	TRY(upload(m, g, a));
	TRY(dev->embed(dev, s.b, a->ids, a->pos, ng_at(m->w, m->word), ng_at(m->w, m->position),
		m->type == SIZE_MAX ? ng_absent : ng_at(m->w, m->type), g->T, c->hidden));
	TRY(dev->layernorm(dev, s.a, a->s0, a->mean0, a->rstd0, s.b, ng_absent, ng_at(m->w, m->norm0.w),
		ng_at(m->w, m->norm0.b), c->eps, a->cu, g->S, g->T, c->hidden, NULL,
		dropout(&d0, drop, g, STREAM_EMBEDDING)));
	for (size_t i = 0; i < c->layers; i++) {
		if (stop && stop->fn && stop->fn(stop->arg))
			return 1;
		TRY(forward_layer(m, g, drop, i, a, &s, keep));
	}
	TRY(forward_tail(m, a, s.a, out));
	return 0;
failed:
	return ng_model_device_error(m, status, "cannot run the encoder", err);
}

/* ---- backward ---- */

/* de (S, hidden * pools), in s->e or s->f, = gradient at the pooling */
static int backward_tail(const struct ng_model *m, const struct ng_acts *a, struct scratch *s, struct ng_ref dout,
	struct ng_ref grad, struct ng_ref *de)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	struct ng_ref d = s->e, other = s->f;
	size_t S = a->S;
	int status;

	TRY(dev->copy(dev, d, dout, S * c->dim));
	for (size_t i = c->tails; i-- > 0;) {
		const struct ng_tail *t = &c->tail[i];
		struct ng_ref in = i ? a->y[i - 1] : a->pooled;

		if (t->kind == NG_TAIL_NORMALIZE) {
			TRY(dev->normalize_bwd(dev, d, d, a->y[i], a->aux[i], S, t->out));
			continue;
		}
		TRY(dev->act_bwd(dev, d, d, a->aux[i], S, t->out, t->act));
		TRY(dev->linear_dw(dev, ng_at(grad, m->tail[i].w), t->bias ? ng_at(grad, m->tail[i].b) : ng_absent, d,
			in, S, t->in, t->out));
		TRY(dev->linear_dx(dev, other, d, ng_at(m->w, m->tail[i].w), S, t->in, t->out, false));
		struct ng_ref swap = d;
		d = other;
		other = swap;
	}
	*de = d;
failed:
	return status;
}

/* s->a: gradient at the layer's output in, at its input out. */
static int backward_layer(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop, size_t i,
	const struct ng_acts *a, struct scratch *s, struct ng_ref grad)
{
	const struct ng_model_config *c = &m->cfg;
	const struct ng_layer_at *at = &m->layer[i];
	const struct ng_layer_acts *l = &a->layer[i];
	struct ng_device *dev = m->dev;
	size_t S = a->S, T = a->T, C = c->hidden, F = c->inner;
	struct ng_ref d = s->a, dx = s->b, h = s->c, qkv = s->wide, dctx = ng_at(s->wide, 3 * T * C);
	bool mpnet = m->relative != SIZE_MAX;
	struct ng_dropout da, d0;
	const struct ng_dropout *drop_out, *drop_down;
	struct ng_dropout d1, d2;
	int status;

	drop_down = dropout(&d2, drop, g, layer_stream(i, STREAM_DOWN));
	drop_out = dropout(&d1, drop, g, layer_stream(i, STREAM_OUT));

	/* feed-forward: d = gradient at s2 (and so at h1), dx = at the product before the dropout */
	if (drop_down == NULL)
		dx = d;
	TRY(dev->layernorm_bwd(dev, d, drop_down ? dx : ng_absent, ng_at(grad, at->norm2.w), ng_at(grad, at->norm2.b),
		d, l->s2, l->mean2, l->rstd2, ng_at(m->w, at->norm2.w), a->cu, S, T, C, drop_down, NULL));
	TRY(dev->act(dev, s->wide, l->pre, T, F, c->act));
	TRY(dev->linear_dw(dev, ng_at(grad, at->down.w), ng_at(grad, at->down.b), dx, s->wide, T, F, C));
	TRY(dev->linear_dx(dev, s->wide, dx, ng_at(m->w, at->down.w), T, F, C, false));
	TRY(dev->act_bwd(dev, s->wide, s->wide, l->pre, T, F, c->act));
	TRY(renorm(m, a, h, l->s1, &at->norm1, NULL));
	TRY(dev->linear_dw(dev, ng_at(grad, at->up.w), ng_at(grad, at->up.b), s->wide, h, T, C, F));
	TRY(dev->linear_dx(dev, d, s->wide, ng_at(m->w, at->up.w), T, C, F, true));

	/* attention: the same around s1 */
	dx = drop_out ? s->b : d;
	TRY(dev->layernorm_bwd(dev, d, drop_out ? dx : ng_absent, ng_at(grad, at->norm1.w), ng_at(grad, at->norm1.b), d,
		l->s1, l->mean1, l->rstd1, ng_at(m->w, at->norm1.w), a->cu, S, T, C, drop_out, NULL));
	TRY(dev->linear_dw(dev, ng_at(grad, at->out.w), ng_at(grad, at->out.b), dx, l->ctx, T, C, C));
	TRY(dev->linear_dx(dev, dctx, dx, ng_at(m->w, at->out.w), T, C, C, false));
	TRY(dev->attention_bwd(dev, qkv, mpnet ? ng_at(grad, m->relative) : ng_absent, dctx, l->qkv, l->ctx, l->lse,
		mpnet ? ng_at(m->w, m->relative) : ng_absent, a->cu, S, T, C, c->heads,
		dropout(&da, drop, g, layer_stream(i, STREAM_ATTENTION))));
	if (i)
		TRY(renorm(m, a, h, a->layer[i - 1].s2, &m->layer[i - 1].norm2, NULL));
	else
		TRY(renorm(m, a, h, a->s0, &m->norm0, dropout(&d0, drop, g, STREAM_EMBEDDING)));
	TRY(dev->linear_dw(dev, ng_at(grad, at->qkv.w), ng_at(grad, at->qkv.b), qkv, h, T, C, 3 * C));
	TRY(dev->linear_dx(dev, d, qkv, ng_at(m->w, at->qkv.w), T, C, 3 * C, true));
failed:
	return status;
}

/* s->a = gradient at the last layer's output */
static int backward_pool(
	const struct ng_model *m, const struct ng_acts *a, struct scratch *s, struct ng_ref dout, struct ng_ref grad)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	struct ng_ref de;
	bool max = false;
	int status;

	TRY(backward_tail(m, a, s, dout, grad, &de));
	for (size_t i = 0; i < c->pools; i++)
		max = max || c->pool[i] == NG_POOL_MAX;
	if (max)
		TRY(renorm(m, a, s->c, a->layer[c->layers - 1].s2, &m->layer[c->layers - 1].norm2, NULL));
	for (size_t i = 0; i < c->pools; i++)
		TRY(dev->pool_bwd(dev, s->a, ng_at(de, i * c->hidden), c->hidden * c->pools, max ? s->c : ng_absent,
			a->cu, a->first, a->S, a->T, c->hidden, c->pool[i], i > 0));
failed:
	return status;
}

int ng_backward(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop, const struct ng_acts *a,
	struct ng_ref scratch, struct ng_ref dout, struct ng_ref grad, size_t *left, const struct ng_stop *stop,
	struct ng_err *err)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	struct scratch s = split(c, scratch, a->S, a->T);
	struct ng_dropout d0;
	int status;

	if (*left > c->layers) {
		TRY(backward_pool(m, a, &s, dout, grad));
		*left = c->layers;
	}
	while (*left > 0) {
		if (stop && stop->fn && stop->fn(stop->arg))
			return 1;
		TRY(backward_layer(m, g, drop, *left - 1, a, &s, grad));
		--*left;
	}
	TRY(dev->layernorm_bwd(dev, s.a, ng_absent, ng_at(grad, m->norm0.w), ng_at(grad, m->norm0.b), s.a, a->s0,
		a->mean0, a->rstd0, ng_at(m->w, m->norm0.w), a->cu, a->S, a->T, c->hidden, NULL,
		dropout(&d0, drop, g, STREAM_EMBEDDING)));
	TRY(dev->embed_bwd(dev, ng_at(grad, m->word), ng_at(grad, m->position),
		m->type == SIZE_MAX ? ng_absent : ng_at(grad, m->type), s.a, a->ids, a->pos, a->T, c->hidden));
	return 0;
failed:
	return ng_model_device_error(m, status, "cannot run the encoder backwards", err);
}

int ng_backward_finish(const struct ng_model *m, struct ng_ref grad, struct ng_err *err)
{
	const struct ng_model_config *c = &m->cfg;
	struct ng_device *dev = m->dev;
	int status = 0;

	if (c->pad_id >= 0) {
		TRY(dev->zero(dev, ng_at(grad, m->word + (size_t)c->pad_id * c->hidden), c->hidden));
		if (c->family == NG_FAMILY_MPNET)
			TRY(dev->zero(dev, ng_at(grad, m->position + (size_t)c->pad_id * c->hidden), c->hidden));
	}
	return 0;
failed:
	return ng_model_device_error(m, status, "cannot clear a gradient", err);
}
