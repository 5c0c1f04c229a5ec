/* model.c - see model.h. */
#include "common/base/compat.h"

#include "common/model/model.h"

#include <math.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/tensor/safetensors.h"

#define ALIGN 16 /* elements between groups of slices: 64 bytes */
#define BLOCK (1u << 18)

int ng_model_device_error(const struct ng_model *m, int status, const char *what, struct ng_err *err)
{
	const char *why = m->dev->last_error ? m->dev->last_error(m->dev) : NULL;

	return ng_fail(err, status == NG_DEV_MEMORY ? NG_OSERR : NG_UNAVAILABLE, "%s: %s", what,
		why && *why ? why : (status == NG_DEV_MEMORY ? "out of memory" : "the device failed"));
}

/* ---- names ---- */

bool ng_model_trains(const char *name)
{
	static const char *const parts[] = { "pooler.", "cls.", "lm_head.", "classifier.", "dropout." };
	static const char *const ends[] = { "position_ids", "token_type_ids" };

	for (size_t i = 0; i < NG_COUNT(parts); i++) {
		const char *at = name;

		while ((at = strstr(at, parts[i])) != NULL) {
			if (at == name || at[-1] == '.')
				return false;
			at++;
		}
	}
	for (size_t i = 0; i < NG_COUNT(ends); i++) {
		size_t n = strlen(name), k = strlen(ends[i]);

		if (n >= k && strcmp(name + n - k, ends[i]) == 0)
			return false;
	}
	return true;
}

/* What stands before "embeddings.word_embeddings.weight" in this folder's names, the shortest if several do. */
static int find_prefix(char **out, const struct ng_model *m, struct ng_err *err)
{
	static const char word[] = "embeddings.word_embeddings.weight";
	size_t best = SIZE_MAX;

	*out = NULL;
	for (size_t i = 0; i < m->folder.n; i++) {
		const char *name = m->folder.tensor[i].name;
		size_t n = strlen(name), k = sizeof(word) - 1;

		if (n < k || strcmp(name + n - k, word) != 0 || (n > k && name[n - k - 1] != '.') || n - k >= best)
			continue;
		best = n - k;
		free(*out);
		*out = ng_xstrndup(name, best);
	}
	if (*out == NULL)
		return ng_fail(err, NG_DATA, "the weights in '%s' have no tensor '%s'", m->dir, word);
	return 0;
}

/* ---- layout ---- */

struct layout {
	struct ng_model *m;
	const char *prefix;
	size_t cap;
	bool decay; /* the pass */
	size_t at;
	struct ng_err *err;
	bool failed;
};

/* One tensor (rows, cols), cols 0: a vector.  Gives its offset. Does nothing in the other pass. */
static void put(struct layout *l, size_t *at, bool decay, const char *name, size_t rows, size_t cols)
{
	struct ng_model *m = l->m;

	if (l->failed || decay != l->decay)
		return;
	const struct ng_tensor *t = ng_header_find(&m->folder, name);
	if (t == NULL) { /* very old files: LayerNorm.gamma, LayerNorm.beta */
		size_t n = strlen(name);
		char *old = NULL;

		if (n >= 16 && strcmp(name + n - 16, "LayerNorm.weight") == 0)
			old = ng_xasprintf("%.*sgamma", (int)(n - 6), name);
		else if (n >= 14 && strcmp(name + n - 14, "LayerNorm.bias") == 0)
			old = ng_xasprintf("%.*sbeta", (int)(n - 4), name);
		if (old)
			t = ng_header_find(&m->folder, old);
		free(old);
	}
	unsigned rank = cols ? 2 : 1;
	if (t == NULL) {
		l->failed = true;
		ng_fail(l->err, NG_DATA, "the weights in '%s' have no tensor '%s'", m->dir, name);
		return;
	}
	if (t->rank != rank || t->dim[0] != rows || (cols && t->dim[1] != cols)) {
		char shape[128];

		ng_tensor_shape(shape, sizeof(shape), t);
		l->failed = true;
		if (cols)
			ng_fail(l->err, NG_DATA, "tensor '%s' is %s, config.json wants [%zu,%zu]", t->name, shape, rows,
				cols);
		else
			ng_fail(l->err, NG_DATA, "tensor '%s' is %s, config.json wants [%zu]", t->name, shape, rows);
		return;
	}
	if (!ng_dtype_float(t->dtype)) {
		l->failed = true;
		ng_fail(l->err, NG_DATA, "tensor '%s' is of type %s, which ng does not compute with", t->name,
			ng_dtype_name(t->dtype));
		return;
	}
	ng_grow(&m->param, &l->cap, m->params + 1, sizeof(*m->param));
	struct ng_param *p = &m->param[m->params++];
	memset(p, 0, sizeof(*p));
	p->name = ng_xstrdup(t->name);
	p->off = l->at;
	p->count = rows * (cols ? cols : 1);
	p->rank = rank;
	p->dim[0] = rows;
	p->dim[1] = cols;
	p->decay = decay;
	if (at)
		*at = l->at;
	l->at += p->count;
}

static void align(struct layout *l)
{
	l->at = (l->at + ALIGN - 1) / ALIGN * ALIGN;
}

static void put_linear(struct layout *l, struct ng_linear_at *at, const char *name, size_t out, size_t in, bool bias)
{
	char *w = ng_xasprintf("%s.weight", name), *b = ng_xasprintf("%s.bias", name);

	align(l);
	put(l, &at->w, true, w, out, in);
	if (bias)
		put(l, &at->b, false, b, out, 0);
	free(w);
	free(b);
}

static void put_norm(struct layout *l, struct ng_linear_at *at, const char *name, size_t C)
{
	char *w = ng_xasprintf("%s.weight", name), *b = ng_xasprintf("%s.bias", name);

	align(l);
	put(l, &at->w, false, w, C, 0);
	align(l);
	put(l, &at->b, false, b, C, 0);
	free(w);
	free(b);
}

static void put_layer(struct layout *l, size_t n)
{
	static const char *const bert[] = { "attention.self.query", "attention.self.key", "attention.self.value",
		"attention.output.dense", "attention.output.LayerNorm" };
	static const char *const mpnet[] = { "attention.attn.q", "attention.attn.k", "attention.attn.v",
		"attention.attn.o", "attention.LayerNorm" };
	struct ng_model *m = l->m;
	const char *const *names = m->cfg.family == NG_FAMILY_MPNET ? mpnet : bert;
	struct ng_layer_at *at = &m->layer[n];
	size_t C = m->cfg.hidden, F = m->cfg.inner;
	char name[1024];

#define NAME(x) (snprintf(name, sizeof(name), "%sencoder.layer.%zu.%s", l->prefix, n, x), name)
	/* the three stand together as one (3C,C) and one (3C): no alignment between them */
	align(l);
	for (int i = 0; i < 3; i++) {
		char *w = ng_xasprintf("%s.weight", NAME(names[i])), *b = ng_xasprintf("%s.bias", NAME(names[i]));

		put(l, i == 0 ? &at->qkv.w : NULL, true, w, C, C);
		put(l, i == 0 ? &at->qkv.b : NULL, false, b, C, 0);
		free(w);
		free(b);
	}
	put_linear(l, &at->out, NAME(names[3]), C, C, true);
	put_norm(l, &at->norm1, NAME(names[4]), C);
	put_linear(l, &at->up, NAME("intermediate.dense"), F, C, true);
	put_linear(l, &at->down, NAME("output.dense"), C, F, true);
	put_norm(l, &at->norm2, NAME("output.LayerNorm"), C);
#undef NAME
}

static void put_all(struct layout *l)
{
	struct ng_model *m = l->m;
	const struct ng_model_config *c = &m->cfg;
	char name[1024];

#define NAME(x) (snprintf(name, sizeof(name), "%s%s", l->prefix, x), name)
	align(l);
	put(l, &m->word, true, NAME("embeddings.word_embeddings.weight"), c->vocab, c->hidden);
	align(l);
	put(l, &m->position, true, NAME("embeddings.position_embeddings.weight"), c->positions, c->hidden);
	align(l);
	if (c->types)
		put(l, &m->type, true, NAME("embeddings.token_type_embeddings.weight"), c->types, c->hidden);
	put_norm(l, &m->norm0, NAME("embeddings.LayerNorm"), c->hidden);
	align(l);
	/* "bias" is in its name, so it does not decay (conventions 4.5.2) */
	if (c->family == NG_FAMILY_MPNET)
		put(l, &m->relative, false, NAME("encoder.relative_attention_bias.weight"), 32, c->heads);
	for (size_t i = 0; i < c->layers; i++)
		put_layer(l, i);
	for (size_t i = 0; i < c->tails; i++)
		if (c->tail[i].kind == NG_TAIL_DENSE) {
			snprintf(name, sizeof(name), "%s/linear", c->tail[i].path);
			put_linear(l, &m->tail[i], name, c->tail[i].out, c->tail[i].in, c->tail[i].bias);
		}
#undef NAME
}

int ng_model_open(
	struct ng_model *out, struct ng_model_config *cfg, struct ng_device *dev, const char *dir, struct ng_err *err)
{
	struct ng_model *m = out;
	struct ng_weights w;
	char *prefix = NULL;
	int rc = -1;

	memset(m, 0, sizeof(*m));
	m->cfg = *cfg;
	memset(cfg, 0, sizeof(*cfg));
	m->dev = dev;
	m->dir = ng_xstrdup(dir);
	if (ng_weights_open(&w, dir, 0, err))
		goto out;
	ng_header_copy(&m->folder, &w.header);
	ng_weights_close(&w);
	if (find_prefix(&prefix, m, err))
		goto out;
	m->layer = ng_xcalloc(m->cfg.layers, sizeof(*m->layer));
	m->type = m->relative = SIZE_MAX;
	for (size_t i = 0; i < NG_MODEL_TAILS; i++)
		m->tail[i].b = SIZE_MAX;
	struct layout l = { .m = m, .prefix = prefix, .decay = true, .err = err };
	put_all(&l);
	align(&l);
	m->decay_count = l.at;
	l.decay = false;
	put_all(&l);
	align(&l);
	m->count = l.at;
	if (l.failed)
		goto out;
	int status = dev->alloc(dev, &m->w, m->count);
	if (status == NG_DEV_OK)
		status = dev->zero(dev, m->w, m->count);
	if (status) {
		ng_model_device_error(m, status, "cannot hold the weights", err);
		goto out;
	}
	rc = 0;
out:
	free(prefix);
	if (rc)
		ng_model_release(m);
	return rc;
}

void ng_model_release(struct ng_model *m)
{
	if (m->w.mem)
		m->dev->free(m->dev, m->w);
	for (size_t i = 0; i < m->params; i++)
		free(m->param[i].name);
	free(m->param);
	free(m->layer);
	free(m->dir);
	ng_header_release(&m->folder);
	ng_model_config_release(&m->cfg);
	memset(m, 0, sizeof(*m));
}

const struct ng_param *ng_model_param(const struct ng_model *m, const char *name)
{
	for (size_t i = 0; i < m->params; i++)
		if (strcmp(m->param[i].name, name) == 0)
			return &m->param[i];
	return NULL;
}

/* ---- values ---- */

static int check_finite(const float *x, size_t n, const char *name, struct ng_err *err)
{
	/* the sum of 0 * x is 0 unless some x is not finite; only then look closer */
	float acc = 0;

	for (size_t i = 0; i < n; i++)
		acc += x[i] * 0.0f;
	if (acc == 0.0f)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (!isfinite(x[i]))
			return ng_fail(err, NG_DATA, "tensor '%s' holds %s", name, isnan(x[i]) ? "NaN" : "infinity");
	return 0;
}

int ng_model_read_folder(struct ng_model *m, struct ng_err *err)
{
	struct ng_weights w;
	float *buf = NULL;
	int rc = -1;

	if (ng_weights_open(&w, m->dir, 0, err))
		return -1;
	buf = ng_xarray(BLOCK, sizeof(*buf));
	for (size_t i = 0; i < m->params; i++) {
		const struct ng_param *p = &m->param[i];
		const struct ng_tensor *t = ng_header_find(&w.header, p->name);

		if (t == NULL || t->count != p->count) {
			ng_fail(err, NG_DATA, "the weights in '%s' changed under us", m->dir);
			goto out;
		}
		for (size_t done = 0; done < p->count;) {
			size_t n = p->count - done < BLOCK ? p->count - done : BLOCK;

			if (ng_weights_read_f32(&w, t, done, buf, n, err) || check_finite(buf, n, p->name, err))
				goto out;
			int status = m->dev->upload(m->dev, ng_at(m->w, p->off + done), buf, n);
			if (status) {
				ng_model_device_error(m, status, "cannot load the weights", err);
				goto out;
			}
			done += n;
		}
	}
	rc = 0;
out:
	free(buf);
	ng_weights_close(&w);
	return rc;
}

int ng_model_load_stream(struct ng_model *m, struct ng_stream *s, int keep_fd, struct ng_err *err)
{
	const struct ng_tensor *t;
	float *buf = ng_xarray(BLOCK, sizeof(*buf));
	size_t came = 0;
	int rc = -1, got;

	while ((got = ng_stream_tensor(s, &t, err)) == 1) {
		const struct ng_tensor *own = ng_header_find(&m->folder, t->name);
		const struct ng_param *p = ng_model_param(m, t->name);
		char a[128], b[128];

		if (own == NULL) {
			ng_fail(err, NG_REFUSED, "the global has a tensor '%s' that the model folder '%s' lacks",
				t->name, m->dir);
			goto out;
		}
		if (!ng_tensor_same_shape(own, t)) {
			ng_tensor_shape(a, sizeof(a), t);
			ng_tensor_shape(b, sizeof(b), own);
			ng_fail(err, NG_REFUSED, "tensor '%s' of the global is %s, in the model folder %s", t->name, a,
				b);
			goto out;
		}
		if (t->dtype != NG_F32) {
			ng_fail(err, NG_REFUSED, "tensor '%s' of the global is of type %s, not F32", t->name,
				ng_dtype_name(t->dtype));
			goto out;
		}
		came += p != NULL;
		for (uint64_t done = 0; done < t->count;) {
			size_t n = t->count - done < BLOCK ? (size_t)(t->count - done) : BLOCK;

			if (ng_stream_read_f32(s, buf, n, err) || check_finite(buf, n, t->name, err))
				goto out;
			int status = p ? m->dev->upload(m->dev, ng_at(m->w, p->off + (size_t)done), buf, n) : 0;
			if (status) {
				ng_model_device_error(m, status, "cannot load the weights", err);
				goto out;
			}
			if (keep_fd >= 0 && ng_write_full(keep_fd, buf, n * sizeof(*buf))) {
				ng_fail_errno(err, NG_IOERR, "cannot keep the global in the state folder");
				goto out;
			}
			done += n;
		}
	}
	if (got < 0)
		goto out;
	if (came < m->params) {
		const struct ng_header *h = ng_stream_header(s);

		for (size_t i = 0; i < m->params; i++)
			if (ng_header_find(h, m->param[i].name) == NULL) {
				ng_fail(err, NG_REFUSED, "the global lacks tensor '%s' of the model", m->param[i].name);
				goto out;
			}
	}
	rc = 0;
out:
	free(buf);
	return rc;
}
