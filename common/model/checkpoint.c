/* checkpoint.c - see checkpoint.h. */
#include "common/base/compat.h"

#include "common/model/checkpoint.h"

#include <math.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/tensor/safetensors.h"

#define BLOCK (1u << 18) /* elements */
#define PARTS 8

/* A part of the file: its name and the buffer it is of. */
struct part {
	const char *name;
	struct ng_ref ref;
	size_t count; /* 0: not held */
};

/* What a trainer in its present position has to hold. */
static void list(struct part part[PARTS], const struct ng_trainer *t, bool done, size_t batch_texts, size_t grain_texts,
	size_t tokens)
{
	size_t D = t->m->cfg.dim, moments = ng_optim_moments(&t->optim), count = t->m->count;
	bool loss = t->phase == NG_PHASE_LOSS, back = t->phase == NG_PHASE_BACKWARD;
	struct part all[PARTS] = {
		{ "w", t->m->w, count },
		{ "m", t->optim.m, !done && moments > 0 ? count : 0 },
		{ "v", t->optim.v, !done && moments > 1 ? count : 0 },
		{ "e", t->e, back ? 0 : (loss ? batch_texts : grain_texts) * D },
		{ "norm", t->norm, loss ? batch_texts : 0 },
		{ "de", t->de, back ? batch_texts * D : 0 },
		{ "grad", t->grad, back ? count : 0 },
		/* the gradient between two layers stands at the front of the scratch (encoder.h) */
		{ "d", t->scratch, back && t->left ? tokens * t->m->cfg.hidden : 0 },
	};

	for (int i = 3; done && i < PARTS; i++)
		all[i].count = 0;
	memcpy(part, all, sizeof(all));
}

static int write_part(
	FILE *fp, const struct ng_trainer *t, const struct part *p, float *buf, const char *path, struct ng_err *err)
{
	struct ng_device *dev = t->m->dev;

	for (size_t done = 0; done < p->count;) {
		size_t n = p->count - done < BLOCK ? p->count - done : BLOCK;
		int status = dev->download(dev, buf, ng_at(p->ref, done), n);

		if (status)
			return ng_model_device_error(t->m, status, "cannot save the state", err);
		if (fwrite(buf, sizeof(*buf), n, fp) != n)
			return ng_fail_errno(err, NG_IOERR, "cannot write '%s'", path);
		done += n;
	}
	return 0;
}

int ng_checkpoint_save(const char *path, const struct ng_checkpoint *ck, const struct ng_trainer *t, struct ng_err *err)
{
	struct part part[PARTS];
	struct ng_header h;
	struct ng_out out;
	char loss[64], sum[64], seconds[64];
	float *buf = NULL;
	int rc = -1;
	/* between two steps the trainer stands at the start, and no batch is laid out */
	bool inside = t->phase != NG_PHASE_EMBED || t->grain > 0;
	size_t texts = inside ? t->cut[t->grains] : 0;

	size_t tokens = t->taken_up ? t->taken_tokens : t->left ? t->acts[t->grain].T : 0;

	if (t->taken_up) { /* stopped again before it was needed */
		int status = t->m->dev->upload(t->m->dev, t->scratch, t->taken_up, tokens * t->m->cfg.hidden);

		if (status)
			return ng_model_device_error(t->m, status, "cannot save the state", err);
	}
	list(part, t, ck->step == ck->steps, texts, inside ? t->cut[t->grain] : 0, tokens);
	ng_header_init(&h);
	for (int i = 0; i < PARTS; i++) {
		uint64_t n = part[i].count;

		if (n && ng_header_add(&h, part[i].name, NG_F32, 1, &n, err))
			goto out;
	}
	if (ng_header_finish(&h, err))
		goto out;
	/* doubles as hexadecimal: the same bits after a resume */
	snprintf(loss, sizeof(loss), "%a", inside && t->phase == NG_PHASE_BACKWARD ? t->loss : 0.0);
	snprintf(sum, sizeof(sum), "%a", ck->loss_sum);
	snprintf(seconds, sizeof(seconds), "%a", ck->seconds);
	json_t *o = json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:I, s:I, s:s}", "key", ck->key, "step",
		(json_int_t)ck->step, "steps", (json_int_t)ck->steps, "loss_sum", sum, "seconds", seconds, "phase",
		(int)t->phase, "grain", (json_int_t)t->grain, "left", (json_int_t)t->left, "loss", loss);
	char *text = ng_json_canonical(o);
	json_decref(o);
	ng_meta_set(&h.meta, "format", "pt");
	ng_meta_set(&h.meta, "ng.train", text);
	free(text);
	if (ng_out_open(&out, path, err))
		goto out;
	buf = ng_xarray(BLOCK, sizeof(*buf));
	rc = ng_safetensors_write_header(out.fp, &h, path, err);
	for (size_t k = 0; rc == 0 && k < h.n; k++)
		for (int i = 0; i < PARTS; i++)
			if (rc == 0 && strcmp(part[i].name, h.tensor[k].name) == 0)
				rc = write_part(out.fp, t, &part[i], buf, path, err);
	if (rc == 0)
		rc = ng_out_commit(&out, err);
	ng_out_abort(&out);
out:
	free(buf);
	ng_header_release(&h);
	return rc;
}

static bool parse_hex(double *out, const char *text)
{
	char *end;

	*out = text ? strtod(text, &end) : 0;
	return text && *text && *end == '\0' && isfinite(*out);
}

static int read_part(const struct ng_safetensors *st, struct ng_trainer *t, const struct part *p, size_t count,
	float *buf, struct ng_err *err)
{
	const struct ng_tensor *at = ng_header_find(&st->header, p->name);
	struct ng_device *dev = t->m->dev;

	if (count == 0)
		return 0;
	if (at == NULL || at->dtype != NG_F32 || at->count != count)
		return ng_fail(err, NG_DATA, "'%s' lacks '%s' or has it in another size", st->path, p->name);
	for (size_t done = 0; done < count;) {
		size_t n = count - done < BLOCK ? count - done : BLOCK;

		if (ng_safetensors_read(st, at, done * sizeof(*buf), buf, n * sizeof(*buf), err))
			return -1;
		int status = dev->upload(dev, ng_at(p->ref, done), buf, n);
		if (status)
			return ng_model_device_error(t->m, status, "cannot load the state", err);
		done += n;
	}
	return 0;
}

/* The gradient between two layers waits on the host: the grain's forward goes over the scratch first. */
static int read_gradient(const struct ng_safetensors *st, struct ng_trainer *t, struct ng_err *err)
{
	const struct ng_tensor *at = ng_header_find(&st->header, "d");

	if (at == NULL || at->dtype != NG_F32 || at->count == 0 || at->count % t->m->cfg.hidden ||
		at->bytes > t->plan.scratch)
		return ng_fail(err, NG_DATA, "'%s' is damaged", st->path);
	free(t->taken_up);
	t->taken_up = ng_xmalloc((size_t)at->bytes);
	t->taken_tokens = (size_t)at->count / t->m->cfg.hidden;
	return ng_safetensors_read(st, at, 0, t->taken_up, (size_t)at->bytes, err);
}

int ng_checkpoint_load(const char *path, struct ng_checkpoint *ck, struct ng_trainer *t, struct ng_err *err)
{
	struct ng_safetensors st = { .fd = -1 };
	struct part part[PARTS];
	json_t *o = NULL;
	float *buf = NULL;
	const char *key = NULL, *loss = NULL, *sum = NULL, *seconds = NULL;
	long step = -1, steps = -1, phase = -1, grain = -1, left = 0;
	size_t D = t->m->cfg.dim, N = t->B * t->columns;
	int rc = -1;

	if (ng_safetensors_open(&st, path, 0, err))
		return err->code == NG_NOINPUT ? 0 : -1;
	const char *text = ng_meta_get(&st.header.meta, "ng.train");
	if (text == NULL) {
		ng_fail(err, NG_DATA, "'%s' is no state of ng-train", path);
		goto out;
	}
	o = ng_json_parse(text, strlen(text), path, err);
	if (o == NULL || ng_json_string(&key, o, "key", path, err) || ng_json_string(&loss, o, "loss", path, err) ||
		ng_json_string(&sum, o, "loss_sum", path, err) || ng_json_string(&seconds, o, "seconds", path, err) ||
		ng_json_long(&step, o, "step", 0, 1l << 40, path, err) ||
		ng_json_long(&steps, o, "steps", 0, 1l << 40, path, err) ||
		ng_json_long(&phase, o, "phase", NG_PHASE_EMBED, NG_PHASE_BACKWARD, path, err) ||
		ng_json_long(&grain, o, "grain", 0, 1l << 40, path, err) ||
		ng_json_long(&left, o, "left", 0, (long)t->m->cfg.layers, path, err))
		goto out;
	if (key == NULL || strcmp(key, ck->key) != 0) {
		rc = 0;
		goto out;
	}
	if (step < 0 || steps != (long)ck->steps || step > steps || phase < 0 || grain < 0 ||
		!parse_hex(&t->loss, loss) || !parse_hex(&ck->loss_sum, sum) || !parse_hex(&ck->seconds, seconds)) {
		ng_fail(err, NG_DATA, "'%s' is damaged", path);
		goto out;
	}
	t->phase = (enum ng_phase)phase;
	t->grain = (size_t)grain;
	t->left = (size_t)left;
	ck->step = (uint64_t)step;
	t->optim.steps = ck->step;
	/* sizes that depend on the batch come from the file, and are at most the largest batch's */
	list(part, t, step == steps, N, grain ? N : 0, 0);
	buf = ng_xarray(BLOCK, sizeof(*buf));
	for (int i = 0; i < PARTS; i++) {
		const struct ng_tensor *at = ng_header_find(&st.header, part[i].name);
		size_t count = part[i].count;

		if (i >= 3 && i < 6 && count && at) {
			if (at->count > count || (i != 4 && at->count % D)) {
				ng_fail(err, NG_DATA, "'%s' is damaged", path);
				goto out;
			}
			count = (size_t)at->count;
		}
		if (read_part(&st, t, &part[i], count, buf, err))
			goto out;
	}
	if (t->left && read_gradient(&st, t, err))
		goto out;
	rc = 1;
out:
	free(buf);
	json_decref(o);
	ng_safetensors_close(&st);
	return rc;
}
