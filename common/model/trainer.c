/* trainer.c - see trainer.h. */
#include "common/base/compat.h"

#include "common/model/trainer.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/text/sampler.h"

size_t ng_grains_cut(size_t *cut, const size_t *off, size_t n)
{
	size_t grains = 0, start = 0;

	cut[0] = 0;
	for (size_t i = 0; i < n; i++)
		if (i > start && off[i + 1] - off[start] > NG_GRAIN_TOKENS) {
			cut[++grains] = i;
			start = i;
		}
	if (n)
		cut[++grains] = n;
	return grains;
}

static int reserve(struct ng_trainer *t, struct ng_ref *out, size_t n, const char *what, struct ng_err *err)
{
	struct ng_device *dev = t->m->dev;
	int status = dev->alloc(dev, out, n);
	char text[128];

	if (status == 0)
		return 0;
	snprintf(text, sizeof(text), "cannot hold the %s", what);
	return ng_model_device_error(t->m, status, text, err);
}

int ng_trainer_init(struct ng_trainer *t, struct ng_err *err)
{
	struct ng_model *m = t->m;
	size_t N = t->B * t->columns, D = m->cfg.dim, moments = ng_optim_moments(&t->optim);

	if (reserve(t, &t->grad, m->count, "gradient", err) ||
		(moments > 0 && reserve(t, &t->optim.m, m->count, "moments", err)) ||
		(moments > 1 && reserve(t, &t->optim.v, m->count, "moments", err)) ||
		reserve(t, &t->e, N * D, "vectors", err) || reserve(t, &t->de, N * D, "vectors", err) ||
		reserve(t, &t->norm, N, "vectors", err) || reserve(t, &t->work, ng_loss_work(t->B, D), "loss", err) ||
		reserve(t, &t->scratch, (size_t)(t->plan.scratch / 4), "scratch", err) ||
		reserve(t, &t->arena, (size_t)((t->plan.grain + t->plan.keep) / 4), "activations", err))
		goto failed;
	t->arena_elements = (size_t)((t->plan.grain + t->plan.keep) / 4);
	t->cut = ng_xarray(N + 1, sizeof(*t->cut));
	t->kept = ng_xarray(N, sizeof(*t->kept));
	t->optim.steps = 0;
	t->phase = NG_PHASE_EMBED;
	t->grain = 0;
	for (size_t i = 0; i < moments; i++) {
		int status = m->dev->zero(m->dev, i ? t->optim.v : t->optim.m, m->count);

		if (status) {
			ng_model_device_error(m, status, "cannot reset the moments", err);
			goto failed;
		}
	}
	return 0;
failed:
	ng_trainer_release(t);
	return -1;
}

void ng_trainer_release(struct ng_trainer *t)
{
	struct ng_ref *all[] = { &t->grad, &t->optim.m, &t->optim.v, &t->e, &t->de, &t->norm, &t->work, &t->scratch,
		&t->arena };

	for (size_t i = 0; i < NG_COUNT(all); i++) {
		if (all[i]->mem)
			t->m->dev->free(t->m->dev, *all[i]);
		*all[i] = ng_absent;
	}
	for (size_t i = 0; i < t->acts_cap; i++)
		ng_acts_release(&t->acts[i]);
	free(t->acts);
	free(t->taken_up);
	t->taken_up = NULL;
	free(t->cut);
	free(t->kept);
	t->acts = NULL;
	t->acts_cap = 0;
	t->cut = NULL;
	t->kept = NULL;
}

/* Host side of one grain; its pointers are good until the next call. */
struct view {
	struct ng_grain g;
	int32_t *cu, *example;
	size_t cap;
};

static void view_release(struct view *v)
{
	free(v->cu);
	free(v->example);
}

static void view(struct view *v, const struct ng_batch *b, size_t from, size_t to)
{
	size_t S = to - from;

	if (S > v->cap) {
		free(v->cu);
		free(v->example);
		v->cap = S;
		v->cu = ng_xarray(S + 1, sizeof(*v->cu));
		v->example = ng_xarray(S, sizeof(*v->example));
	}
	for (size_t i = 0; i < S; i++) {
		size_t text = from + i;

		v->cu[i] = (int32_t)(b->off[text] - b->off[from]);
		v->example[i] = (int32_t)NG_EXAMPLE(text % b->B, text / b->B);
	}
	v->cu[S] = (int32_t)(b->off[to] - b->off[from]);
	v->g.S = S;
	v->g.T = b->off[to] - b->off[from];
	v->g.ids = b->id + b->off[from];
	v->g.cu = v->cu;
	v->g.example = v->example;
	v->g.first = b->first ? b->first + from : NULL;
}

/* Cut the batch; choose whose activations are kept: the first ones, as many as fit beside the largest. */
static int lay_out(struct ng_trainer *t, const struct ng_batch *b, struct ng_err *err)
{
	size_t N = b->B * b->columns, sum = 0, largest = 0, used = 0;
	const struct ng_model_config *c = &t->m->cfg;

	t->grains = ng_grains_cut(t->cut, b->off, N);
	if (t->grains > t->acts_cap) {
		t->acts = ng_xrealloc(t->acts, t->grains, sizeof(*t->acts));
		for (size_t i = t->acts_cap; i < t->grains; i++)
			ng_acts_init(&t->acts[i], t->m);
		t->acts_cap = t->grains;
	}
	for (size_t i = 0; i < t->grains; i++) {
		size_t T = b->off[t->cut[i + 1]] - b->off[t->cut[i]], S = t->cut[i + 1] - t->cut[i];
		size_t need = ng_acts_elements(c, S, T, true);

		if (ng_scratch_elements(c, S, T) > t->plan.scratch / 4 || need > t->arena_elements)
			return ng_fail(err, NG_SOFTWARE, "a grain of %zu texts and %zu tokens is over the plan", S, T);
		largest = need > largest ? need : largest;
		sum += need;
	}
	if (t->grain > t->grains)
		return ng_fail(err, NG_DATA, "the state of an earlier run is of another batch");
	bool all = sum <= t->arena_elements;
	/* taken up in the middle from a checkpoint: what an earlier process kept is gone */
	bool first_pass = t->phase == NG_PHASE_EMBED && t->grain == 0;
	for (size_t i = 0; i < t->grains; i++) {
		size_t need = ng_acts_elements(
			c, t->cut[i + 1] - t->cut[i], b->off[t->cut[i + 1]] - b->off[t->cut[i]], true);

		t->kept[i] = first_pass && (all || used + need + largest <= t->arena_elements);
		if (t->kept[i])
			used += need;
	}
	t->used = 0;
	t->laid_out = true;
	return 0;
}

static int embed(struct ng_trainer *t, const struct ng_batch *b, const struct ng_drop *drop, struct ng_arena *arena,
	struct view *v, const struct ng_stop *stop, struct ng_err *err)
{
	for (; t->grain < t->grains; t->grain++) {
		size_t i = t->grain;
		struct ng_arena slot = *arena;

		if (stop && stop->fn && stop->fn(stop->arg))
			return 1;
		view(v, b, t->cut[i], t->cut[i + 1]);
		int rc = ng_forward(t->m, &v->g, drop, t->kept[i], &t->acts[i], &slot, t->scratch,
			ng_at(t->e, t->cut[i] * t->m->cfg.dim), stop, err);
		if (rc)
			return rc;
		if (t->kept[i]) {
			*arena = slot;
			t->used = arena->used;
		}
	}
	return 0;
}

static int backward(struct ng_trainer *t, const struct ng_batch *b, const struct ng_drop *drop,
	const struct ng_arena *arena, struct view *v, const struct ng_stop *stop, struct ng_err *err)
{
	struct ng_device *dev = t->m->dev;
	size_t D = t->m->cfg.dim;

	for (; t->grain < t->grains; t->grain++) {
		size_t i = t->grain;

		if (stop && stop->fn && stop->fn(stop->arg))
			return 1;
		view(v, b, t->cut[i], t->cut[i + 1]);
		/* stopped within this grain in this process: activations and gradient are where they were */
		bool begun = t->left > 0 && t->taken_up == NULL;
		if (!begun && !t->kept[i]) {
			struct ng_arena slot = *arena;
			/* the vectors come out again; nobody needs them, so they go where the loss worked */
			int rc = ng_forward(t->m, &v->g, drop, true, &t->acts[i], &slot, t->scratch,
				ng_at(t->e, t->cut[i] * D), stop, err);
			if (rc)
				return rc;
		}
		if (t->taken_up) {
			if (t->taken_tokens != v->g.T)
				return ng_fail(err, NG_DATA, "the state of an earlier run is of another batch");
			int status = dev->upload(dev, t->scratch, t->taken_up, v->g.T * t->m->cfg.hidden);

			if (status)
				return ng_model_device_error(t->m, status, "cannot go on", err);
			free(t->taken_up);
			t->taken_up = NULL;
		}
		size_t left = t->left ? t->left : NG_BACKWARD_ALL;
		int rc = ng_backward(t->m, &v->g, drop, &t->acts[i], t->scratch, ng_at(t->de, t->cut[i] * D), t->grad,
			&left, stop, err);
		t->left = rc == 1 ? left : 0;
		if (rc)
			return rc;
	}
	return 0;
}

struct ng_position ng_trainer_position(const struct ng_trainer *t)
{
	return (struct ng_position){ t->phase, t->grain, t->left };
}

bool ng_trainer_moved(const struct ng_trainer *t, const struct ng_position *since)
{
	return t->phase != since->phase || t->grain != since->grain || t->left != since->left;
}

/* On NG_DATA: which texts. */
static int loss_error(struct ng_step_result *r, size_t bad, size_t B, struct ng_err *err)
{
	if (err == NULL || err->code == NG_DATA)
		r->bad = bad % B;
	return -1;
}

int ng_trainer_step(struct ng_trainer *t, const struct ng_batch *b, uint32_t step, double lr, struct ng_step_result *r,
	const struct ng_stop *stop, struct ng_err *err)
{
	struct ng_drop drop = { .p = t->dropout, .seed = t->seed, .round = t->round, .step = step };
	struct ng_arena arena = { .base = t->arena, .cap = t->arena_elements };
	struct ng_loss loss = { .B = b->B,
		.columns = b->columns,
		.D = t->m->cfg.dim,
		.scale = t->scale,
		.e = t->e,
		.norm = t->norm,
		.de = t->de,
		.work = t->work };
	struct view v = { 0 };
	size_t bad = 0;
	int rc;

	r->bad = SIZE_MAX;
	rc = t->laid_out ? 0 : lay_out(t, b, err);
	arena.used = t->used;
	if (rc == 0 && t->phase == NG_PHASE_EMBED) {
		rc = embed(t, b, &drop, &arena, &v, stop, err);
		if (rc == 0 && ng_loss_begin(&loss, t->m, &bad, err))
			rc = loss_error(r, bad, b->B, err);
		if (rc == 0)
			t->phase = NG_PHASE_LOSS;
	}
	if (rc == 0 && t->phase == NG_PHASE_LOSS) {
		rc = ng_loss_run(&loss, t->m, &t->loss, &bad, stop, err);
		if (rc < 0)
			loss_error(r, bad, b->B, err);
		if (rc == 0) {
			int status = t->m->dev->zero(t->m->dev, t->grad, t->m->count);

			if (status)
				rc = ng_model_device_error(t->m, status, "cannot clear the gradient", err);
			t->phase = NG_PHASE_BACKWARD;
			t->grain = 0;
		}
	}
	if (rc == 0)
		rc = backward(t, b, &drop, &arena, &v, stop, err);
	if (rc == 0) {
		rc = ng_backward_finish(t->m, t->grad, err);
		if (rc == 0)
			rc = ng_optim_step(&t->optim, t->m, t->grad, lr, &r->norm, err);
	}
	if (rc == 0) {
		r->loss = t->loss;
		r->grains = t->grains;
		r->kept = 0;
		for (size_t i = 0; i < t->grains; i++)
			r->kept += t->kept[i];
		t->phase = NG_PHASE_EMBED;
		t->grain = 0;
	}
	if (rc != 1)
		t->laid_out = false;
	view_release(&v);
	return rc;
}
