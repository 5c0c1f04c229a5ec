/*
 * test_model.c - the encoder, its gradients, the loss and the optimiser
 * against sentence-transformers and PyTorch in float64 (t/golden/make.py).
 *
 * The tiny models always run.  all-MiniLM-L6-v2 runs when NG_TEST_MINILM names
 * its folder.  Limits: embeddings 2e-6 max abs, loss 1e-6 relative, gradients
 * ||g - ref|| <= 1e-4 max(||ref||, 1e-3 ||all||) per tensor.
 */
#include "common/base/compat.h"

#include "t/unit/check.h"

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/model/checkpoint.h"
#include "common/model/encoder.h"
#include "common/model/model.h"
#include "common/model/trainer.h"
#include "common/tensor/safetensors.h"
#include "common/text/tokenizer.h"

struct golden {
	struct ng_safetensors st;
	const char *name;
};

static struct ng_err err;

/* All elements of a golden array as double; NULL when absent. */
static double *values(const struct golden *g, const char *name, size_t *n)
{
	const struct ng_tensor *t = ng_header_find(&g->st.header, name);

	if (t == NULL)
		return NULL;
	char *raw = ng_xmalloc((size_t)t->bytes);
	if (ng_safetensors_read(&g->st, t, 0, raw, (size_t)t->bytes, &err)) {
		free(raw);
		return NULL;
	}
	double *out = ng_xarray((size_t)t->count, sizeof(*out));
	for (size_t i = 0; i < t->count; i++) {
		float f;
		int32_t k;

		switch (t->dtype) {
		case NG_F64:
			memcpy(&out[i], raw + 8 * i, 8);
			break;
		case NG_F32:
			memcpy(&f, raw + 4 * i, 4);
			out[i] = (double)f;
			break;
		case NG_I32:
			memcpy(&k, raw + 4 * i, 4);
			out[i] = k;
			break;
		default:
			NG_BUG("golden array '%s' of an unexpected type", name);
		}
	}
	free(raw);
	if (n)
		*n = (size_t)t->count;
	return out;
}

static bool open_model(struct ng_model *m, struct ng_device *dev, const char *dir)
{
	struct ng_model_config cfg;

	if (ng_model_config_load(&cfg, dir, &err) || ng_model_open(m, &cfg, dev, dir, &err)) {
		printf("# %s\n", err.text);
		return CHECK_MSG(false, "the model folder opens");
	}
	if (ng_model_read_folder(m, &err)) {
		printf("# %s\n", err.text);
		return CHECK_MSG(false, "the weights are read");
	}
	return true;
}

/* A grain of the golden texts from..to. */
static void cut(struct ng_grain *g, const double *ids, const double *cu, size_t from, size_t to)
{
	memset(g, 0, sizeof(*g));
	g->S = to - from;
	g->T = (size_t)(cu[to] - cu[from]);
	g->ids = ng_xarray(g->T, sizeof(*g->ids));
	g->cu = ng_xarray(g->S + 1, sizeof(*g->cu));
	for (size_t i = 0; i < g->T; i++)
		g->ids[i] = (int32_t)ids[(size_t)cu[from] + i];
	for (size_t i = 0; i <= g->S; i++)
		g->cu[i] = (int32_t)(cu[from + i] - cu[from]);
}

static void grain_release(struct ng_grain *g)
{
	free(g->ids);
	free(g->cu);
}

/* out (S, dim) */
static bool embed(const struct ng_model *m, struct ng_grain *g, bool keep, float *out)
{
	struct ng_device *dev = m->dev;
	struct ng_arena arena = { .cap = ng_acts_elements(&m->cfg, g->S, g->T, keep) };
	struct ng_ref scratch, e;
	struct ng_acts acts;

	ng_acts_init(&acts, m);
	dev->alloc(dev, &arena.base, arena.cap);
	dev->alloc(dev, &scratch, ng_scratch_elements(&m->cfg, g->S, g->T));
	dev->alloc(dev, &e, g->S * m->cfg.dim);
	bool ok = ng_forward(m, g, NULL, keep, &acts, &arena, scratch, e, NULL, &err) == 0;
	if (ok)
		ok = dev->download(dev, out, e, g->S * m->cfg.dim) == 0;
	else
		printf("# %s\n", err.text);
	dev->free(dev, arena.base);
	dev->free(dev, scratch);
	dev->free(dev, e);
	ng_acts_release(&acts);
	return ok;
}

static void test_embeddings(const struct ng_model *m, const struct golden *gold)
{
	size_t n = 0, texts, dim = m->cfg.dim;
	double *ids = values(gold, "ids", NULL), *cu = values(gold, "cu", &texts), *want = values(gold, "emb64", &n);
	struct ng_grain g;

	texts--;
	CHECK_INT_EQ(n, texts * dim);
	float *all = ng_xarray(n, sizeof(*all)), *kept = ng_xarray(n, sizeof(*kept)),
	      *one = ng_xarray(dim, sizeof(*one));
	cut(&g, ids, cu, 0, texts);
	CHECK(embed(m, &g, false, all));
	CHECK(embed(m, &g, true, kept));
	CHECK_MSG(memcmp(all, kept, n * sizeof(*all)) == 0, "the same bits whether activations are kept or not");
	grain_release(&g);
	double worst = 0, alone = 0, size = 0;
	for (size_t i = 0; i < texts; i++) {
		cut(&g, ids, cu, i, i + 1);
		embed(m, &g, false, one);
		grain_release(&g);
		for (size_t k = 0; k < dim; k++) {
			double d = fabs((double)all[i * dim + k] - want[i * dim + k]);

			worst = d > worst ? d : worst;
			d = fabs((double)one[k] - want[i * dim + k]);
			alone = d > alone ? d : alone;
			size = fabs(want[i * dim + k]) > size ? fabs(want[i * dim + k]) : size;
		}
	}
	/* not all of these models give unit vectors: the limit goes with their size */
	double limit = 2e-6 * (size > 1 ? size : 1);
	printf("# %s: max abs difference %.3g packed, %.3g alone\n", gold->name, worst, alone);
	CHECK_NEAR(worst, 0, limit);
	CHECK_NEAR(alone, 0, limit);
	free(ids);
	free(cu);
	free(want);
	free(all);
	free(kept);
	free(one);
}

/* Other poolings of the same encoder, not normalised. */
static void test_poolings(struct ng_model *m, const struct golden *gold)
{
	static const struct {
		const char *name;
		enum ng_pool pool;
	} modes[] = { { "cls", NG_POOL_CLS }, { "max", NG_POOL_MAX }, { "mean_sqrt_len_tokens", NG_POOL_MEAN_SQRT },
		{ "weightedmean", NG_POOL_WEIGHTED }, { "lasttoken", NG_POOL_LAST } };
	size_t texts, n, tails = m->cfg.tails;
	enum ng_pool was = m->cfg.pool[0];
	double *ids = values(gold, "ids", NULL), *cu = values(gold, "cu", &texts);
	struct ng_grain g;
	char name[64];

	texts--;
	m->cfg.tails = 0;
	cut(&g, ids, cu, 0, texts);
	for (size_t i = 0; i < NG_COUNT(modes); i++) {
		snprintf(name, sizeof(name), "pool/%s", modes[i].name);
		double *want = values(gold, name, &n), worst = 0, size = 1;

		if (want == NULL)
			continue;
		CHECK_INT_EQ(n, texts * m->cfg.dim);
		float *got = ng_xarray(n, sizeof(*got));
		m->cfg.pool[0] = modes[i].pool;
		CHECK(embed(m, &g, false, got));
		for (size_t k = 0; k < n; k++) {
			worst = fmax(worst, fabs((double)got[k] - want[k]));
			size = fmax(size, fabs(want[k]));
		}
		CHECK_MSG(worst <= 2e-6 * size, name);
		free(got);
		free(want);
	}
	m->cfg.pool[0] = was;
	m->cfg.tails = tails;
	grain_release(&g);
	free(ids);
	free(cu);
}

/* A prompt in front whose tokens the pooling leaves out. */
static void test_prompt(
	const struct ng_model *m, const struct golden *gold, const struct ng_tokenizer *tok, const json_t *texts)
{
	size_t n, count = json_array_size(json_object_get(texts, "texts")), dim = m->cfg.dim;
	const char *prompt = json_string_value(json_object_get(texts, "prompt"));
	double *want = values(gold, "prompt", &n), worst = 0;
	struct ng_tokens alone = { 0 };
	float *got = ng_xarray(dim, sizeof(*got));

	if (want == NULL)
		goto out;
	CHECK_INT_EQ(n, count * dim);
	ng_tokenizer_encode(&alone, tok, NULL, prompt, strlen(prompt), 0, NULL, NULL, &err);
	int32_t first = (int32_t)alone.n - 1;
	for (size_t i = 0; i < count; i++) {
		const char *text = json_string_value(json_array_get(json_object_get(texts, "texts"), i));
		struct ng_tokens ids = { 0 };

		if (ng_tokenizer_encode(&ids, tok, prompt, text, strlen(text), m->cfg.max_length, NULL, NULL, &err)) {
			CHECK_MSG(false, "tokens");
			continue;
		}
		int32_t cu[2] = { 0, (int32_t)ids.n };
		struct ng_grain g = { .S = 1, .T = ids.n, .ids = ids.id, .cu = cu, .first = &first };
		embed(m, &g, false, got);
		for (size_t k = 0; k < dim; k++)
			worst = fmax(worst, fabs((double)got[k] - want[i * dim + k]));
		ng_tokens_release(&ids);
	}
	printf("# %s: with a prompt left out %.3g\n", gold->name, worst);
	CHECK(worst <= 2e-6);
out:
	ng_tokens_release(&alone);
	free(want);
	free(got);
}

/* Rows from.. of "pairs" as a batch of B rows. */
static bool make_batch(
	struct ng_batch *b, const struct ng_tokenizer *tok, const json_t *rows, size_t from, size_t B, size_t columns)
{
	struct ng_tokens ids = { 0 };
	bool ok = true;

	memset(b, 0, sizeof(*b));
	b->B = B;
	b->columns = columns;
	b->off = ng_xcalloc(B * columns + 1, sizeof(*b->off));
	for (size_t t = 0; t < B * columns; t++) {
		const char *text = json_string_value(json_array_get(json_array_get(rows, from + t % B), t / B));

		ok = ok && ng_tokenizer_encode(&ids, tok, NULL, text, strlen(text), 0, NULL, NULL, &err) == 0;
		b->off[t + 1] = ids.n;
	}
	b->id = ng_xarray(ids.n, sizeof(*b->id));
	memcpy(b->id, ids.id, ids.n * sizeof(*b->id));
	ng_tokens_release(&ids);
	if (!ok)
		printf("# %s\n", err.text);
	return ok;
}

static void batch_release(struct ng_batch *b)
{
	free(b->id);
	free(b->off);
}

/* memory 0: the least that works */
static bool make_trainer(struct ng_trainer *t, struct ng_model *m, size_t B, size_t columns, size_t length,
	uint64_t memory, double dropout)
{
	struct ng_optim optim = { .kind = NG_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1 };

	memset(t, 0, sizeof(*t));
	t->m = m;
	t->optim = optim;
	t->scale = 20;
	t->dropout = dropout;
	t->seed = 42;
	t->round = 3;
	t->B = B;
	t->columns = columns;
	t->max_length = length;
	struct ng_plan_input in = {
		.cfg = &m->cfg, .count = m->count, .moments = 2, .B = B, .columns = columns, .max_length = length
	};
	if (memory == 0 && ng_plan_make(&t->plan, &in, UINT64_MAX, "test", &err) == 0)
		memory = t->plan.total - t->plan.keep;
	if (ng_plan_make(&t->plan, &in, memory, "test", &err) || ng_trainer_init(t, &err)) {
		printf("# %s\n", err.text);
		return CHECK_MSG(false, "the trainer starts");
	}
	return true;
}

static void test_gradient(struct ng_model *m, const struct golden *gold, const struct ng_tokenizer *tok,
	const json_t *rows, size_t negatives)
{
	struct ng_trainer t;
	struct ng_batch b;
	struct ng_step_result r;
	char name[256];
	double *want;

	snprintf(name, sizeof(name), "loss/%zu", negatives);
	want = values(gold, name, NULL);
	if (want == NULL || !make_batch(&b, tok, rows, 0, 8, 2 + negatives)) {
		CHECK_MSG(false, name);
		return;
	}
	if (!make_trainer(&t, m, 8, 2 + negatives, 64, (uint64_t)1 << 30, 0))
		return;
	/* rate 0: the weights stay */
	CHECK_INT_EQ(ng_trainer_step(&t, &b, 0, 0, &r, NULL, &err), 0);
	printf("# %s: loss with %zu negatives %.9g, want %.9g\n", gold->name, negatives, r.loss, want[0]);
	CHECK_NEAR(r.loss / want[0], 1, 2e-6);
	float *grad = ng_xarray(m->count, sizeof(*grad));
	m->dev->download(m->dev, grad, t.grad, m->count);
	double all = 0;
	for (size_t i = 0; i < m->count; i++)
		all += (double)grad[i] * (double)grad[i];
	all = sqrt(all);
	CHECK_NEAR(all / r.norm, 1, 1e-6);
	double worst = 0;
	const char *worst_name = "";
	size_t compared = 0;
	for (size_t p = 0; p < m->params; p++) {
		const struct ng_param *at = &m->param[p];
		size_t n = 0;
		double sum = 0, size = 0;

		snprintf(name, sizeof(name), "grad/%zu/%s", negatives, at->name);
		double *g = values(gold, name, &n), *norm = NULL;
		bool picked = false;
		if (g == NULL) {
			snprintf(name, sizeof(name), "gradnorm/%zu/%s", negatives, at->name);
			norm = values(gold, name, NULL);
			snprintf(name, sizeof(name), "gradpick/%zu/%s", negatives, at->name);
			g = values(gold, name, &n);
			picked = true;
		}
		if (g == NULL || (!picked && n != at->count))
			continue;
		compared++;
		for (size_t i = 0; i < n; i++) {
			size_t k = picked ? (size_t)(((uint64_t)i * 2654435761u) % at->count) : i;
			double d = (double)grad[at->off + k] - g[i];

			sum += d * d;
			size += g[i] * g[i];
		}
		size = norm ? *norm : sqrt(size);
		/* 64 values of a tensor stand for all: their difference is held against their share of the norm */
		double share = picked ? sqrt(64.0 / (double)at->count) : 1;
		double rel = sqrt(sum) / share / (size > 1e-3 * all ? size : 1e-3 * all);
		if (rel > worst) {
			worst = rel;
			worst_name = at->name;
		}
		if (norm) {
			double own = 0;

			for (size_t i = 0; i < at->count; i++)
				own += (double)grad[at->off + i] * (double)grad[at->off + i];
			if (fabs(sqrt(own) - *norm) > 1e-4 * (*norm > 1e-3 * all ? *norm : 1e-3 * all))
				CHECK_MSG(false, at->name);
		}
		free(g);
		free(norm);
	}
	printf("# %s: %zu of %zu gradients compared, worst %.3g (%s)\n", gold->name, compared, m->params, worst,
		worst_name);
	CHECK_INT_EQ(compared, m->params);
	CHECK(worst <= 1e-4);
	free(want);
	free(grad);
	batch_release(&b);
	ng_trainer_release(&t);
}

static void test_curve(struct ng_device *dev, const char *dir, const struct golden *gold,
	const struct ng_tokenizer *tok, const json_t *rows, const char *kind)
{
	char name[64];
	struct ng_model m;
	struct ng_trainer t;
	double worst = 0, worst_norm = 0;

	snprintf(name, sizeof(name), "curve/%s/loss64", kind);
	double *loss = values(gold, name, NULL);
	snprintf(name, sizeof(name), "curve/%s/norm64", kind);
	double *norm = values(gold, name, NULL);
	snprintf(name, sizeof(name), "curve/%s/lr", kind);
	double *lr = values(gold, name, NULL);
	if (loss == NULL || norm == NULL || lr == NULL)
		goto out;
	if (!open_model(&m, dev, dir) || !make_trainer(&t, &m, 8, 2, 64, (uint64_t)1 << 30, 0))
		goto out;
	if (strcmp(kind, "adamw_wd") == 0)
		t.optim.decay = 0.01;
	if (strcmp(kind, "sgd") == 0) {
		t.optim.kind = NG_OPTIM_SGD;
		t.optim.momentum = 0.9;
	}
	for (size_t s = 0; s < 20; s++) {
		struct ng_batch b;
		struct ng_step_result r;

		if (!make_batch(&b, tok, rows, 8 * (s % 4), 8, 2) ||
			ng_trainer_step(&t, &b, (uint32_t)s, lr[s], &r, NULL, &err)) {
			CHECK_MSG(false, "a step");
			break;
		}
		worst = fmax(worst, fabs(r.loss - loss[s]) / fabs(loss[s]));
		worst_norm = fmax(worst_norm, fabs(r.norm - norm[s]) / norm[s]);
		batch_release(&b);
	}
	printf("# %s %s: loss curve differs by %.3g, gradient norms by %.3g\n", gold->name, kind, worst, worst_norm);
	CHECK_MSG(worst <= 1e-4, "the loss curve");
	CHECK_MSG(worst_norm <= 1e-3, "the gradient norms");
	ng_trainer_release(&t);
	ng_model_release(&m);
out:
	free(loss);
	free(norm);
	free(lr);
}

struct countdown {
	int left, every;
};

static bool stop_now(void *arg)
{
	struct countdown *c = arg;

	if (--c->left > 0)
		return false;
	c->left = ++c->every; /* longer each time, so that it gets somewhere */
	return true;
}

/* A timer that is always due, as of a checkpoint that is wanted more often than a grain takes. */
struct timer {
	const struct ng_trainer *t;
	struct ng_position saved;
};

static bool stop_if_moved(void *arg)
{
	struct timer *timer = arg;

	return ng_trainer_moved(timer->t, &timer->saved);
}

#define ALWAYS_DUE (-1) /* for stop_every */
#define STOPS_MAX 1000

/* Three steps of 32 rows, two negatives and dropout; the weights after them, which the caller frees. */
static float *three_steps(const char *dir, int threads, const struct ng_tokenizer *tok, const json_t *rows,
	uint64_t memory, int stop_every, const char *state, size_t *n, struct ng_step_result *r)
{
	struct ng_model m;
	struct ng_trainer t;
	struct countdown count = { stop_every, stop_every };
	struct timer timer = { &t, { NG_PHASE_EMBED, 0, 0 } };
	struct ng_stop stop = { stop_now, &count };
	struct ng_device *dev;
	float *out = NULL;
	int stopped = 0, inside = 0;

	*n = 0;
	if (stop_every == ALWAYS_DUE)
		stop = (struct ng_stop){ stop_if_moved, &timer };
	if (ng_device_open(&dev, "cpu", threads, NULL, NULL))
		return NULL;
	if (!open_model(&m, dev, dir) || !make_trainer(&t, &m, 32, 4, 64, memory, 0.1))
		return NULL;
	for (size_t s = 0; s < 3; s++) {
		struct ng_batch b;
		int rc;

		make_batch(&b, tok, rows, 0, 32, 4);
		while ((rc = ng_trainer_step(&t, &b, (uint32_t)s, 1e-3, r, stop_every ? &stop : NULL, &err)) == 1) {
			struct ng_checkpoint ck = { .key = "key", .step = s, .steps = 3, .loss_sum = 0.1 };

			timer.saved = ng_trainer_position(&t);
			if (++stopped == STOPS_MAX)
				break;
			inside += t.left > 0;
			if (state == NULL)
				continue;
			/* as if another process went on */
			CHECK_INT_EQ(ng_checkpoint_save(state, &ck, &t, &err), 0);
			ng_trainer_release(&t);
			ng_model_release(&m);
			ck.step = 99;
			if (!open_model(&m, dev, dir) || !make_trainer(&t, &m, 32, 4, 64, memory, 0.1))
				return NULL;
			if (!CHECK(ng_checkpoint_load(state, &ck, &t, &err) == 1))
				printf("# %s\n", err.text);
			CHECK(ck.step == s && ck.loss_sum == 0.1);
		}
		CHECK_INT_EQ(rc, 0);
		batch_release(&b);
	}
	if (stop_every == ALWAYS_DUE)
		CHECK_MSG(stopped >= 3 && stopped < STOPS_MAX, "what is stopped all the time gets to its end");
	else if (stop_every)
		CHECK(stopped >= 3 && inside >= 1);
	*n = m.count;
	out = ng_xarray(m.count, sizeof(*out));
	dev->download(dev, out, m.w, m.count);
	ng_trainer_release(&t);
	ng_model_release(&m);
	dev->close(dev);
	return out;
}

static void test_bits(const char *name, const char *dir, const struct ng_tokenizer *tok, const json_t *rows)
{
	struct ng_step_result all, none, other;
	const char *tmp = getenv("TMPDIR");
	char state[256];
	size_t n, k;

	snprintf(state, sizeof(state), "%s/ng-test-model-%ld", tmp ? tmp : "/tmp", (long)getpid());
	float *a = three_steps(dir, 2, tok, rows, (uint64_t)1 << 30, 0, NULL, &n, &all);
	float *b = three_steps(dir, 2, tok, rows, 0, 0, NULL, &k, &none);

	printf("# %s: kept %zu of %zu grains, and %zu of %zu\n", name, all.kept, all.grains, none.kept, none.grains);
	CHECK(all.grains > 1 && all.kept == all.grains && none.kept == 0);
	CHECK_MSG(n && n == k && memcmp(a, b, n * sizeof(*a)) == 0, "the same bits whatever memory allows to keep");
	free(b);
	b = three_steps(dir, 1, tok, rows, (uint64_t)1 << 30, 0, NULL, &k, &other);
	CHECK_MSG(n == k && memcmp(a, b, n * sizeof(*a)) == 0, "the same bits from one thread");
	free(b);
	for (int every = 2; every < 9; every += 3) {
		b = three_steps(dir, 2, tok, rows, (uint64_t)1 << 30, every, NULL, &k, &other);
		CHECK_MSG(n == k && memcmp(a, b, n * sizeof(*a)) == 0, "the same bits when stopped inside the steps");
		free(b);
		b = three_steps(
			dir, 1 + every % 2, tok, rows, every % 2 ? 0 : (uint64_t)1 << 30, every, state, &k, &other);
		CHECK_MSG(b && n == k && memcmp(a, b, n * sizeof(*a)) == 0, "the same bits when taken up from a file");
		free(b);
	}
	b = three_steps(dir, 2, tok, rows, (uint64_t)1 << 30, ALWAYS_DUE, state, &k, &other);
	CHECK_MSG(
		b && n == k && memcmp(a, b, n * sizeof(*a)) == 0, "the same bits when saved wherever there is a place");
	free(b);
	unlink(state);
	free(a);
}

static void test_folder(struct ng_device *dev, const char *name, const char *dir)
{
	struct golden gold = { .name = name };
	struct ng_model m;
	char path[512];

	snprintf(path, sizeof(path), "t/golden/%s.golden.safetensors", name);
	if (ng_safetensors_open(&gold.st, path, 0, &err)) {
		printf("# %s\n", err.text);
		CHECK_MSG(false, "the golden values open");
		return;
	}
	struct ng_tokenizer *tok = NULL;
	json_t *texts = ng_json_load("t/golden/texts.json", 1u << 24, &err);
	const json_t *rows = json_object_get(texts, strcmp(name, "minilm") ? "pairs" : "rolled_pairs");
	if (rows == NULL || ng_tokenizer_load(&tok, dir, 0, &err)) {
		printf("# %s\n", err.text);
		CHECK_MSG(false, "texts and tokenizer open");
	} else if (open_model(&m, dev, dir)) {
		test_embeddings(&m, &gold);
		test_poolings(&m, &gold);
		test_prompt(&m, &gold, tok, texts);
		test_gradient(&m, &gold, tok, rows, 0);
		test_gradient(&m, &gold, tok, rows, 2);
		ng_model_release(&m);
		test_curve(dev, dir, &gold, tok, rows, "adamw");
		test_curve(dev, dir, &gold, tok, rows, "adamw_wd");
		test_curve(dev, dir, &gold, tok, rows, "sgd");
		test_bits(name, dir, tok, json_object_get(texts, "pairs"));
	}
	ng_tokenizer_free(tok);
	json_decref(texts);
	ng_safetensors_close(&gold.st);
}

/* The float64 values of ../shared for its tiny BERTs: vectors, the loss of three pairs, some gradients. */
static void test_oracle(struct ng_device *dev, const char *name)
{
	char path[256], dir[256];
	struct ng_model m;
	json_t *o;

	snprintf(path, sizeof(path), "../shared/data/reference/%s_oracle.json", name);
	snprintf(dir, sizeof(dir), "../shared/data/models/%s", name);
	if (!HAVE(path) || !HAVE(dir)) {
		SKIP(path);
		return;
	}
	o = ng_json_load(path, 1u << 24, &err);
	if (o == NULL || !open_model(&m, dev, dir)) {
		CHECK_MSG(false, path);
		json_decref(o);
		return;
	}
	double worst = 0;
	size_t i;
	json_t *one;
	m.cfg.tails = 0;
	m.cfg.pool[0] = NG_POOL_MEAN;
	json_array_foreach(json_object_get(o, "cases"), i, one)
	{
		const json_t *list = json_object_get(one, "ids"), *want = json_object_get(one, "mean");
		int32_t ids[128], cu[2] = { 0, (int32_t)json_array_size(list) };
		struct ng_grain g = { .S = 1, .T = json_array_size(list), .ids = ids, .cu = cu };
		float got[1024];

		for (size_t k = 0; k < g.T && k < 128; k++)
			ids[k] = (int32_t)json_integer_value(json_array_get(list, k));
		embed(&m, &g, false, got);
		for (size_t k = 0; k < m.cfg.dim; k++)
			worst = fmax(worst, fabs((double)got[k] - json_number_value(json_array_get(want, k))));
	}
	CHECK(i > 0);
	CHECK_NEAR(worst, 0, 3e-6);

	const json_t *nce = json_object_get(o, "infonce");
	const json_t *column[2] = { json_object_get(nce, "anchor_ids"), json_object_get(nce, "positive_ids") };
	size_t B = json_array_size(column[0]), off[65] = { 0 };
	int32_t id[1024];
	struct ng_batch b = { .B = B, .columns = 2, .id = id, .off = off };
	struct ng_trainer t;
	struct ng_step_result r;
	for (size_t k = 0; k < 2 * B; k++) {
		const json_t *list = json_array_get(column[k / B], k % B);

		off[k + 1] = off[k] + json_array_size(list);
		for (size_t j = 0; j < json_array_size(list); j++)
			id[off[k] + j] = (int32_t)json_integer_value(json_array_get(list, j));
	}
	if (nce && make_trainer(&t, &m, B, 2, 64, (uint64_t)1 << 30, 0)) {
		CHECK_INT_EQ(ng_trainer_step(&t, &b, 0, 0, &r, NULL, &err), 0);
		CHECK_NEAR(r.loss, json_number_value(json_object_get(nce, "value")), 2e-6);
		double off_by = 0;
		json_array_foreach(json_object_get(nce, "numeric_gradients"), i, one)
		{
			const struct ng_param *p = ng_model_param(
				&m, json_string_value(json_object_get(one, "tensor")));
			const json_t *at = json_object_get(one, "index");
			size_t flat = 0;
			float got;

			if (p == NULL) {
				CHECK_MSG(false, json_string_value(json_object_get(one, "tensor")));
				continue;
			}
			for (size_t k = 0; k < json_array_size(at); k++)
				flat = flat * (size_t)p->dim[k] + (size_t)json_integer_value(json_array_get(at, k));
			dev->download(dev, &got, ng_at(t.grad, p->off + flat), 1);
			off_by = fmax(off_by, fabs((double)got - json_number_value(json_object_get(one, "dloss"))));
		}
		printf("# %s: vectors differ by %.3g, %zu gradients by %.3g\n", name, worst, i, off_by);
		CHECK(i > 0);
		CHECK_NEAR(off_by, 0, 1e-5);
		ng_trainer_release(&t);
	}
	ng_model_release(&m);
	json_decref(o);
}

int main(void)
{
	struct ng_device *dev;
	const char *why = NULL, *minilm = getenv("NG_TEST_MINILM");

	if (ng_device_open(&dev, "cpu", 2, NULL, &why)) {
		printf("# %s\n", why ? why : "?");
		return 1;
	}
	printf("# %s\n", dev->info.name);
	test_folder(dev, "tiny-bert", "t/golden/tiny-bert");
	test_folder(dev, "tiny-dense", "t/golden/tiny-dense");
	test_folder(dev, "tiny-mpnet", "t/golden/tiny-mpnet");
	if (minilm)
		test_folder(dev, "minilm", minilm);
	else
		SKIP("all-MiniLM-L6-v2 (NG_TEST_MINILM)");
	test_oracle(dev, "tiny_bert_32x1");
	test_oracle(dev, "tiny_bert_32x2");
	dev->close(dev);
	return check_done();
}
