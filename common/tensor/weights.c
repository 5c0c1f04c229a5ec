/*
 * weights.c - the weights of a model folder as one list; see safetensors.h.
 *
 * File names come from three places: fixed names, modules.json and the index
 * of a sharded model.  The last two are hostile until checked: relative, no
 * "..", no empty or hidden part, and a shard lies in the index's own folder.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/tensor/safetensors.h"

#define JSON_MAX (64u << 20)
#define MODULES_MAX 64
#define SHARDS_MAX 10000
#define BLOCK (1u << 20)

static bool path_fit(const char *p, bool slash)
{
	if (!*p || strlen(p) > 255 || !ng_utf8_valid(p, strlen(p), NULL))
		return false;
	for (const char *part = p;;) {
		size_t n = strcspn(part, "/");
		if (n == 0 || part[0] == '.')
			return false;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)part[i] < 0x20 || part[i] == '\\')
				return false;
		if (!part[n])
			return true;
		if (!slash)
			return false;
		part += n + 1;
	}
}

/* One more file: `rel` relative to the folder, its tensors named prefix + name. */
static int add_file(struct ng_weights *w, const char *rel, const char *prefix, unsigned flags, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/%s", w->dir, rel);
	size_t n = w->n_files;

	w->file = ng_xrealloc(w->file, n + 1, sizeof *w->file);
	w->file_name = ng_xrealloc(w->file_name, n + 1, sizeof *w->file_name);
	w->file_prefix = ng_xrealloc(w->file_prefix, n + 1, sizeof *w->file_prefix);
	int rc = ng_safetensors_open(&w->file[n], path, flags, err);
	free(path);
	if (rc < 0)
		return -1;
	w->file_name[n] = ng_xstrdup(rel);
	w->file_prefix[n] = ng_xstrdup(prefix);
	w->n_files++;
	const struct ng_header *h = &w->file[n].header;
	for (size_t i = 0; i < h->n; i++) {
		const struct ng_tensor *t = &h->tensor[i];
		char *name = ng_xasprintf("%s%s", prefix, t->name);
		rc = ng_header_add(&w->header, name, t->dtype, t->rank, t->dim, err);
		free(name);
		if (rc < 0)
			return -1;
		w->header.tensor[w->header.n - 1].file = (unsigned)n;
	}
	return 0;
}

static int string_cmp(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

/* Every tensor that the index names must lie in the shard that it names. */
static int check_index(
	const struct ng_weights *w, const json_t *map, const char *where, const char *base, struct ng_err *err)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)map, name, v)
	{
		const struct ng_tensor *t = NULL;
		for (size_t f = 0; f < w->n_files && !t; f++) {
			const char *slash = strrchr(w->file_name[f], '/');
			const char *last = slash ? slash + 1 : w->file_name[f];
			if (strcmp(last, json_string_value(v)) == 0 &&
				strncmp(w->file_name[f], base, strlen(base)) == 0)
				t = ng_header_find(&w->file[f].header, name);
		}
		if (!t)
			return ng_fail(err, NG_DATA, "'%s': tensor '%.200s' is not in '%s'", where, name,
				json_string_value(v));
	}
	return 0;
}

/* base: "" or "0_Transformer/" */
static int add_shards(struct ng_weights *w, const char *base, unsigned flags, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/%smodel.safetensors.index.json", w->dir, base);
	const char **shard = NULL;
	json_t *index = ng_json_load(path, JSON_MAX, err), *v;
	const char *name;
	size_t n = 0, cap = 0;
	int rc = -1;

	if (!index)
		goto out;
	const json_t *map = json_object_get(index, "weight_map");
	if (!json_is_object(map)) {
		ng_fail(err, NG_DATA, "'%s' has no weight_map", path);
		goto out;
	}
	json_object_foreach((json_t *)(uintptr_t)map, name, v)
	{
		const char *s = json_string_value(v);
		if (!s || !path_fit(s, false)) {
			ng_fail(err, NG_DATA, "'%s': tensor '%.200s' points at '%.200s', not at a file of this folder",
				path, name, s ? s : "(no string)");
			goto out;
		}
		ng_grow(&shard, &cap, n + 1, sizeof *shard);
		shard[n++] = s;
	}
	if (n == 0) {
		ng_fail(err, NG_DATA, "'%s' names no tensor", path);
		goto out;
	}
	qsort(shard, n, sizeof *shard, string_cmp);
	size_t files = 0;
	for (size_t i = 0; i < n; i++) {
		if (i && strcmp(shard[i], shard[i - 1]) == 0)
			continue;
		if (++files > SHARDS_MAX) {
			ng_fail(err, NG_DATA, "'%s' names over %d shards", path, SHARDS_MAX);
			goto out;
		}
		char *rel = ng_xasprintf("%s%s", base, shard[i]);
		int bad = add_file(w, rel, "", flags, err);
		free(rel);
		if (bad < 0)
			goto out;
	}
	rc = check_index(w, map, path, base, err);
out:
	free(shard);
	json_decref(index);
	free(path);
	return rc;
}

static bool there(const struct ng_weights *w, const char *base, const char *name)
{
	char *path = ng_xasprintf("%s/%s%s", w->dir, base, name);
	bool yes = access(path, F_OK) == 0;

	free(path);
	return yes;
}

static int add_transformer(struct ng_weights *w, const char *base, unsigned flags, struct ng_err *err)
{
	if (there(w, base, "model.safetensors")) {
		char *rel = ng_xasprintf("%smodel.safetensors", base);
		int rc = add_file(w, rel, "", flags, err);
		free(rel);
		return rc;
	}
	if (there(w, base, "model.safetensors.index.json"))
		return add_shards(w, base, flags, err);
	if (!there(w, "", ""))
		return ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", w->dir);
	if (there(w, base, "pytorch_model.bin"))
		return ng_fail(err, NG_NOINPUT,
			"'%s' has only pytorch_model.bin, which is a program when loaded: convert it to model.safetensors",
			w->dir);
	return ng_fail(err, NG_NOINPUT, "'%s' has no model.safetensors", w->dir);
}

/* "" -> "", "2_Dense" or "2_Dense/" -> "2_Dense/"; NULL when unfit. Caller frees. */
static char *module_base(const char *path)
{
	size_t n = strlen(path);

	while (n > 0 && path[n - 1] == '/')
		n--;
	char *p = ng_xstrndup(path, n);
	if (n > 0 && !path_fit(p, true)) {
		free(p);
		return NULL;
	}
	char *base = n > 0 ? ng_xasprintf("%s/", p) : ng_xstrdup("");
	free(p);
	return base;
}

static int add_modules(struct ng_weights *w, unsigned flags, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/modules.json", w->dir), *base = NULL;
	json_t *list = NULL;
	int rc = -1;

	if (!there(w, "", "modules.json")) {
		rc = add_transformer(w, "", flags, err);
		goto out;
	}
	list = ng_json_load(path, JSON_MAX, err);
	if (!list)
		goto out;
	if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > MODULES_MAX) {
		ng_fail(err, NG_DATA, "'%s' is no list of modules", path);
		goto out;
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *p = json_string_value(json_object_get(json_array_get(list, i), "path"));
		free(base);
		base = p ? module_base(p) : NULL;
		if (!base) {
			ng_fail(err, NG_DATA, "'%s': the path of module %zu is missing or unfit", path, i);
			goto out;
		}
		if (i == 0) {
			if (add_transformer(w, base, flags, err) < 0)
				goto out;
		} else if (*base && there(w, base, "model.safetensors")) {
			char *rel = ng_xasprintf("%smodel.safetensors", base);
			int bad = add_file(w, rel, base, flags, err);
			free(rel);
			if (bad < 0)
				goto out;
		}
	}
	rc = 0;
out:
	free(base);
	free(path);
	json_decref(list);
	return rc;
}

int ng_weights_open(struct ng_weights *out, const char *dir, unsigned flags, struct ng_err *err)
{
	memset(out, 0, sizeof *out);
	out->dir = ng_xstrdup(dir);
	if (add_modules(out, flags, err) < 0)
		goto fail;
	if (ng_header_finish(&out->header, err) < 0) {
		ng_fail_prefix(err, "'%s'", dir);
		goto fail;
	}
	out->own = ng_xarray(out->header.n, sizeof *out->own);
	for (size_t i = 0; i < out->header.n; i++) {
		const struct ng_tensor *t = &out->header.tensor[i];
		out->own[i] = ng_header_find(&out->file[t->file].header, t->name + strlen(out->file_prefix[t->file]));
	}
	return 0;
fail:
	ng_weights_close(out);
	return -1;
}

void ng_weights_close(struct ng_weights *w)
{
	for (size_t i = 0; i < w->n_files; i++) {
		ng_safetensors_close(&w->file[i]);
		free(w->file_name[i]);
		free(w->file_prefix[i]);
	}
	free(w->file);
	free(w->file_name);
	free(w->file_prefix);
	free(w->own);
	free(w->dir);
	ng_header_release(&w->header);
	memset(w, 0, sizeof *w);
}

static const struct ng_tensor *own(const struct ng_weights *w, const struct ng_tensor *t)
{
	return w->own[t - w->header.tensor];
}

int ng_weights_read(
	const struct ng_weights *w, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err)
{
	return ng_safetensors_read(&w->file[t->file], own(w, t), at, buf, n, err);
}

int ng_weights_read_f32(const struct ng_weights *w, const struct ng_tensor *t, uint64_t first, float *out, size_t count,
	struct ng_err *err)
{
	unsigned char block[16384];
	size_t width = ng_dtype_bits(t->dtype) / 8;

	if (!ng_dtype_float(t->dtype))
		return ng_fail(
			err, NG_DATA, "tensor '%s' is %s, not of a float type", t->name, ng_dtype_name(t->dtype));
	if (first > t->count || count > t->count - first)
		return ng_fail(err, NG_SOFTWARE, "elements beyond tensor '%s' are asked for", t->name);
	if (t->dtype == NG_F32)
		return ng_weights_read(w, t, first * 4, out, count * 4, err);
	while (count > 0) {
		size_t n = count < sizeof block / width ? count : sizeof block / width;
		if (ng_weights_read(w, t, first * width, block, n * width, err) < 0)
			return -1;
		ng_to_f32(out, block, t->dtype, n);
		out += n;
		first += n;
		count -= n;
	}
	return 0;
}

const void *ng_weights_map(const struct ng_weights *w, const struct ng_tensor *t)
{
	const struct ng_safetensors *st = &w->file[t->file];

	return st->map ? st->map + st->data_start + own(w, t)->offset : NULL;
}

int ng_weights_digest(char hex[NG_HASH_HEX], const struct ng_weights *w, struct ng_err *err)
{
	struct ng_hash hash;
	struct ng_str text;
	unsigned char *block = ng_xmalloc(BLOCK);
	int rc;

	ng_str_init(&text, NG_HEADER_MAX + 64);
	ng_hash_init(&hash);
	rc = ng_header_encode(&text, &w->header, false, err);
	if (rc == 0)
		ng_hash_update(&hash, text.data, text.len);
	for (size_t i = 0; i < w->header.n && rc == 0; i++) {
		const struct ng_tensor *t = &w->header.tensor[i];
		for (uint64_t at = 0; at < t->bytes && rc == 0;) {
			size_t n = t->bytes - at < BLOCK ? (size_t)(t->bytes - at) : BLOCK;
			rc = ng_weights_read(w, t, at, block, n, err);
			if (rc == 0)
				ng_hash_update(&hash, block, n);
			at += n;
		}
	}
	if (rc == 0)
		ng_hash_final(&hash, hex);
	ng_str_release(&text);
	free(block);
	return rc;
}
