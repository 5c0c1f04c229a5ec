/*
 * frame.c - the ng.* metadata; see frame.h.
 */
#include "common/base/compat.h"

#include <math.h>

#include "common/base/json.h"
#include "common/base/str.h"
#include "common/tensor/frame.h"

static const char *const kinds[NG_KINDS] = { "global", "update", "adapter", "state" };

const char *ng_kind_name(enum ng_kind k)
{
	return kinds[k];
}

bool ng_kind_parse(enum ng_kind *out, const char *name)
{
	for (int k = 0; k < NG_KINDS; k++)
		if (strcmp(kinds[k], name) == 0) {
			*out = (enum ng_kind)k;
			return true;
		}
	return false;
}

void ng_frame_init(struct ng_frame *f)
{
	memset(f, 0, sizeof *f);
	f->examples = f->batch = f->steps = -1;
	f->loss = (double)NAN;
}

static int bad(struct ng_err *err, const char *key, const char *value, const char *what)
{
	return ng_fail(err, NG_DATA, "metadata %s: '%.100s' is no %s", key, value, what);
}

static int missing(struct ng_err *err, const char *key)
{
	return ng_fail(err, NG_DATA, "metadata %s is missing", key);
}

static int get_count(long long *out, const struct ng_meta *m, const char *key, struct ng_err *err)
{
	const char *v = ng_meta_get(m, key);

	if (v && !ng_parse_long(out, v, 0, INT64_MAX))
		return bad(err, key, v, "count");
	return 0;
}

static int get_digest(char out[NG_HASH_HEX], const struct ng_meta *m, const char *key, struct ng_err *err)
{
	const char *v = ng_meta_get(m, key);

	if (v && !ng_hash_valid(v))
		return bad(err, key, v, "digest (64 hexadecimal digits)");
	if (v)
		memcpy(out, v, NG_HASH_HEX);
	return 0;
}

static int get_experiment(struct ng_frame *out, const struct ng_meta *m, struct ng_err *err)
{
	const char *v = ng_meta_get(m, "ng.experiment"), *name = NULL, *id = NULL;

	if (!v)
		return missing(err, "ng.experiment");
	json_t *j = ng_json_parse(v, strlen(v), "metadata ng.experiment", err);
	if (!j)
		return -1;
	int rc = 0;
	if (!json_is_object(j) || ng_json_string(&name, j, "name", "ng.experiment", NULL) < 0 ||
		ng_json_string(&id, j, "id", "ng.experiment", NULL) < 0 || !name || !id || !ng_name_valid(name) ||
		!ng_hash_valid(id)) {
		rc = bad(err, "ng.experiment", v, "{\"id\": digest, \"name\": name}");
	} else {
		snprintf(out->name, sizeof out->name, "%s", name);
		memcpy(out->id, id, NG_HASH_HEX);
	}
	json_decref(j);
	return rc;
}

/* A JSON text of one of the types in `types`: 'o' object, 'a' array, 's' string. */
static int get_json(const char **out, const struct ng_meta *m, const char *key, const char *types, struct ng_err *err)
{
	const char *v = ng_meta_get(m, key);

	if (!v)
		return 0;
	json_t *j = ng_json_parse(v, strlen(v), key, err);
	if (!j)
		return -1;
	bool ok = (json_is_object(j) && strchr(types, 'o')) || (json_is_array(j) && strchr(types, 'a')) ||
		  (json_is_string(j) && strchr(types, 's'));
	json_decref(j);
	if (!ok)
		return bad(err, key, v, "JSON of the expected type");
	*out = v;
	return 0;
}

static int parse_values(struct ng_frame *out, const struct ng_meta *m, struct ng_err *err)
{
	const char *v;
	long long round;

	v = ng_meta_get(m, "ng.version");
	if (!v)
		return ng_fail(err, NG_DATA, "metadata ng.version is missing: not a frame of ng");
	if (strcmp(v, "1") != 0)
		return ng_fail(err, NG_DATA, "metadata ng.version is '%.40s', not 1: written by a newer ng?", v);
	v = ng_meta_get(m, "ng.kind");
	if (!v)
		return missing(err, "ng.kind");
	if (!ng_kind_parse(&out->kind, v))
		return bad(err, "ng.kind", v, "kind that this ng knows");
	if (get_experiment(out, m, err) < 0)
		return -1;
	v = ng_meta_get(m, "ng.round");
	if (!v)
		return missing(err, "ng.round");
	if (!ng_parse_long(&round, v, 0, NG_ROUND_MAX))
		return bad(err, "ng.round", v, "round");
	out->round = (long)round;
	v = ng_meta_get(m, "ng.site");
	if (v && !ng_name_valid(v))
		return bad(err, "ng.site", v, "site name");
	if (v)
		snprintf(out->site, sizeof out->site, "%s", v);
	v = ng_meta_get(m, "ng.loss");
	if (v && (!ng_parse_double(&out->loss, v) || !isfinite(out->loss)))
		return bad(err, "ng.loss", v, "finite number");
	out->device = ng_meta_get(m, "ng.device");
	out->build = ng_meta_get(m, "ng.build");
	if (get_digest(out->base, m, "ng.base", err) < 0 || get_count(&out->examples, m, "ng.examples", err) < 0 ||
		get_count(&out->batch, m, "ng.batch", err) < 0 || get_count(&out->steps, m, "ng.steps", err) < 0 ||
		get_json(&out->codec, m, "ng.codec", "so", err) < 0 ||
		get_json(&out->inputs, m, "ng.inputs", "a", err) < 0 ||
		get_json(&out->config, m, "ng.config", "o", err) < 0)
		return -1;
	return 0;
}

int ng_frame_parse(struct ng_frame *out, const struct ng_meta *m, struct ng_err *err)
{
	ng_frame_init(out);
	if (parse_values(out, m, err) < 0)
		return -1;
	if (out->kind == NG_KIND_UPDATE) {
		if (!out->site[0])
			return missing(err, "ng.site");
		if (!out->base[0])
			return missing(err, "ng.base");
		if (out->examples < 0)
			return missing(err, "ng.examples");
		if (out->steps < 0)
			return missing(err, "ng.steps");
	}
	if (out->kind == NG_KIND_GLOBAL && !out->config)
		return missing(err, "ng.config");
	if (out->kind == NG_KIND_GLOBAL && out->site[0])
		return ng_fail(err, NG_DATA, "metadata ng.site in a global");
	return 0;
}

/* Set when wanted, else remove. */
static void put(struct ng_meta *m, const char *key, bool present, const char *value)
{
	ng_meta_set(m, key, present ? value : NULL);
}

static void put_count(struct ng_meta *m, const char *key, long long value)
{
	char text[32];

	snprintf(text, sizeof text, "%lld", value);
	put(m, key, value >= 0, text);
}

int ng_frame_fill(struct ng_meta *m, const struct ng_frame *f, struct ng_err *err)
{
	struct ng_frame check;
	char number[32];

	ng_meta_set(m, "format", "pt");
	ng_meta_set(m, "ng.version", "1");
	ng_meta_set(m, "ng.kind", ng_kind_name(f->kind));
	ng_meta_setf(m, "ng.experiment", "{\"id\":\"%s\",\"name\":\"%s\"}", f->id, f->name);
	put_count(m, "ng.round", f->round);
	put(m, "ng.site", f->site[0], f->site);
	put(m, "ng.base", f->base[0], f->base);
	put_count(m, "ng.examples", f->examples);
	put_count(m, "ng.batch", f->batch);
	put_count(m, "ng.steps", f->steps);
	snprintf(number, sizeof number, "%.9g", f->loss);
	put(m, "ng.loss", isfinite(f->loss), number);
	put(m, "ng.codec", f->codec, f->codec);
	put(m, "ng.device", f->device, f->device);
	put(m, "ng.build", f->build, f->build);
	put(m, "ng.inputs", f->inputs, f->inputs);
	put(m, "ng.config", f->config, f->config);
	if (ng_frame_parse(&check, m, err) < 0) {
		if (err)
			err->code = NG_SOFTWARE;
		return ng_fail_prefix(err, "metadata to be written");
	}
	return 0;
}

void ng_frame_version(char out[96], const struct ng_frame *f)
{
	if (f->site[0])
		snprintf(out, 96, "%ld.%s", f->round, f->site);
	else
		snprintf(out, 96, "%ld.0.0", f->round);
}
