/*
 * manifest.c - the manifest's JSON, and a model folder made from the board;
 * see manifest.h.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/base/str.h"
#include "common/board/manifest.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/stream.h"

#define DEPTH 4

void ng_manifest_release(struct ng_manifest *m)
{
	for (size_t i = 0; i < m->n_files; i++)
		free(m->file[i].path);
	free(m->file);
	free(m->name);
	free(m->config_text);
	ng_config_release(&m->config);
	ng_experiment_release(&m->experiment);
	memset(m, 0, sizeof *m);
}

/* ---- making ---- */

/* Weights in any format, and lists of shards: they are `base`, or of no use. */
static bool is_weights(const char *name)
{
	static const char *const suffix[] = { ".safetensors", ".index.json", ".bin", ".h5", ".onnx", ".onnx_data",
		".ot", ".msgpack", ".pt", ".pth", ".ckpt", ".gguf", ".tflite", ".mlmodel", ".pkl", ".npz", ".npy" };
	size_t n = strlen(name);

	for (size_t i = 0; i < NG_COUNT(suffix); i++) {
		size_t k = strlen(suffix[i]);
		if (n > k && strcmp(name + n - k, suffix[i]) == 0)
			return true;
	}
	return false;
}

static int add_file(struct ng_manifest *m, size_t *cap, const char *rel, const char *path, struct ng_err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
	if (st.st_size > (off_t)NG_SMALL_FILE_MAX) {
		ng_verbose("'%s' is large and stays behind", path);
		return 0;
	}
	if (m->n_files == NG_MANIFEST_FILES)
		return ng_fail(err, NG_DATA, "more than %d files in the model folder", NG_MANIFEST_FILES);
	ng_grow(&m->file, cap, m->n_files + 1, sizeof *m->file);
	struct ng_manifest_file *f = &m->file[m->n_files];
	if (ng_hash_file(f->hex, path) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", path);
	f->size = (uint64_t)st.st_size;
	f->path = ng_xstrdup(rel);
	m->n_files++;
	return 0;
}

/* Links are followed: a cache of models is made of them. */
static int walk(struct ng_manifest *m, size_t *cap, const char *dir, const char *prefix, int depth, struct ng_err *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int rc = 0;

	if (!d)
		return ng_fail_errno(err, NG_NOINPUT, "cannot read the model folder '%s'", dir);
	while (rc == 0 && (errno = 0, e = readdir(d)) != NULL) {
		struct stat st;
		if (e->d_name[0] == '.' || is_weights(e->d_name))
			continue;
		char *path = ng_xasprintf("%s/%s", dir, e->d_name), *rel = ng_xasprintf("%s%s", prefix, e->d_name);
		if (stat(path, &st) < 0)
			rc = ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
		else if (S_ISREG(st.st_mode) && ng_object_rel_valid(rel))
			rc = add_file(m, cap, rel, path, err);
		else if (S_ISDIR(st.st_mode) && depth < DEPTH && strcmp(e->d_name, "onnx") != 0 &&
			 strcmp(e->d_name, "openvino") != 0) {
			char *below = ng_xasprintf("%s/", rel);
			rc = walk(m, cap, path, below, depth + 1, err);
			free(below);
		}
		free(path);
		free(rel);
	}
	if (rc == 0 && errno)
		rc = ng_fail_errno(err, NG_IOERR, "cannot read '%s'", dir);
	closedir(d);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ng_manifest_file *)a)->path, ((const struct ng_manifest_file *)b)->path);
}

int ng_manifest_make(struct ng_manifest *out, const char *name, const char *experiment_text, const char *dir,
	const char *base_hex, struct ng_err *err)
{
	size_t cap = 0;

	memset(out, 0, sizeof *out);
	out->name = ng_xstrdup(name);
	if (walk(out, &cap, dir, "", 1, err) < 0 ||
		ng_config_make(&out->config, experiment_text, dir, base_hex, err) < 0 ||
		ng_experiment_parse(&out->experiment, experiment_text, strlen(experiment_text), "the experiment file",
			NULL, 0, err) < 0) {
		ng_manifest_release(out);
		return -1;
	}
	if (out->n_files > 1)
		qsort(out->file, out->n_files, sizeof *out->file, by_path);
	out->config_text = ng_config_json(&out->config);
	return 0;
}

char *ng_manifest_text(const struct ng_manifest *m)
{
	json_t *files = json_array(), *config;
	char *text;

	for (size_t i = 0; i < m->n_files; i++)
		json_array_append_new(files, json_pack("{s:s, s:s, s:I}", "path", m->file[i].path, "digest",
						     m->file[i].hex, "size", (json_int_t)m->file[i].size));
	config = json_loads(m->config_text, 0, NULL);
	json_t *all = json_pack("{s:i, s:s, s:I, s:b, s:o, s:o}", "ng", 1, "experiment", m->name, "version",
		(json_int_t)m->version, "open", 1, "files", files, "config", config);
	if (!all)
		NG_BUG("a manifest could not be put together");
	if (m->previous[0])
		json_object_set_new(all, "previous", json_string(m->previous));
	text = ng_json_canonical(all);
	json_decref(all);
	return text;
}

/* ---- reading ---- */

static int parse_files(struct ng_manifest *out, const json_t *files, struct ng_err *err)
{
	const json_t *f;
	size_t i;

	if (!json_is_array(files) || json_array_size(files) > NG_MANIFEST_FILES)
		return ng_fail(err, NG_DATA, "a manifest without a list of files");
	out->file = ng_xcalloc(json_array_size(files) + 1, sizeof *out->file);
	json_array_foreach(files, i, f)
	{
		const char *path = json_string_value(json_object_get(f, "path"));
		const char *hex = json_string_value(json_object_get(f, "digest"));
		const json_t *size = json_object_get(f, "size");
		if (!path || !ng_object_rel_valid(path) || is_weights(path) || !hex || !ng_hash_valid(hex) ||
			!json_is_integer(size) || json_integer_value(size) < 0 ||
			json_integer_value(size) > (json_int_t)NG_SMALL_FILE_MAX)
			return ng_fail(err, NG_DATA, "a manifest with a bad file name, size or digest");
		if (i > 0 && strcmp(out->file[i - 1].path, path) >= 0)
			return ng_fail(err, NG_DATA, "a manifest whose files are not in order");
		out->file[i].path = ng_xstrdup(path);
		out->file[i].size = (uint64_t)json_integer_value(size);
		memcpy(out->file[i].hex, hex, NG_HASH_HEX);
		out->n_files++;
	}
	return 0;
}

int ng_manifest_parse(struct ng_manifest *out, const char *text, size_t len, struct ng_err *err)
{
	json_t *all = ng_json_parse(text, len, "manifest", err);
	const char *name, *previous = NULL;
	long version = -1, ng = 0;
	int rc = -1;

	memset(out, 0, sizeof *out);
	if (!all)
		return -1;
	name = json_string_value(json_object_get(all, "experiment"));
	if (ng_json_long(&ng, all, "ng", 1, 1, "manifest", err) < 0 ||
		ng_json_long(&version, all, "version", 0, NG_NUMBER_MAX, "manifest", err) < 0 ||
		ng_json_string(&previous, all, "previous", "manifest", err) < 0) {
		if (err)
			err->code = NG_DATA;
		goto out;
	}
	if (ng != 1 || !name || !ng_name_valid(name) || version < 0 || (version > 0) != (previous != NULL) ||
		(previous && !ng_hash_valid(previous)) || !json_is_object(json_object_get(all, "config"))) {
		ng_fail(err, NG_DATA, "a manifest without name, version, predecessor or config");
		goto out;
	}
	if (!json_is_true(json_object_get(all, "open"))) {
		ng_fail(err, NG_REFUSED, "the experiment has members; this version of ng knows open experiments only");
		goto out;
	}
	out->name = ng_xstrdup(name);
	out->version = version;
	if (previous)
		memcpy(out->previous, previous, NG_HASH_HEX);
	out->config_text = ng_json_canonical(json_object_get(all, "config"));
	if (parse_files(out, json_object_get(all, "files"), err) < 0 ||
		ng_config_parse(&out->config, out->config_text, strlen(out->config_text), err) < 0)
		goto out;
	if (ng_experiment_parse(&out->experiment, out->config.experiment, strlen(out->config.experiment),
		    "the manifest's experiment file", NULL, 0, err) < 0) {
		if (err)
			err->code = NG_DATA; /* not the fault of this command line */
		goto out;
	}
	if (strcmp(out->experiment.name, name) != 0) {
		ng_fail(err, NG_DATA, "the manifest of '%s' holds the experiment file of '%s'", name,
			out->experiment.name);
		goto out;
	}
	rc = 0;
out:
	json_decref(all);
	if (rc < 0)
		ng_manifest_release(out);
	return rc;
}

/* ---- a model folder from the board ---- */

static int write_small(const struct ng_manifest *m, struct ng_object *o, const char *dir, struct ng_err *err)
{
	char hex[NG_HASH_HEX], *data;
	size_t len;

	for (size_t i = 0; i < m->n_files; i++) {
		const struct ng_manifest_file *f = &m->file[i];
		if (ng_object_file(&data, &len, o, f->path, (size_t)f->size, err) < 0)
			return -1;
		ng_hash_bytes(hex, data, len);
		if (len != f->size || strcmp(hex, f->hex) != 0) {
			free(data);
			return ng_fail(
				err, NG_DATA, "the file '%s' beside the manifest is not the one it names", f->path);
		}
		char *path = ng_xasprintf("%s/%s", dir, f->path), *slash = strrchr(path, '/');
		*slash = '\0';
		int rc = ng_mkdirs(path, 0777, err);
		*slash = '/';
		if (rc == 0)
			rc = ng_out_put(path, data, len, 0, err);
		free(path);
		free(data);
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* The folders of modules.json ("2_Dense"), where tensors may belong. Caller frees the JSON. */
static json_t *modules(const char *dir, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/modules.json", dir);
	json_t *list = ng_file_exists(path) ? ng_json_load(path, NG_MANIFEST_MAX, err) : json_array();

	free(path);
	return list;
}

/* Where a tensor called name belongs: "" or a module's folder. */
static const char *module_of(const json_t *list, const char *name)
{
	const json_t *m;
	size_t i;

	json_array_foreach(list, i, m)
	{
		const char *path = json_string_value(json_object_get(m, "path"));
		size_t n = path ? strlen(path) : 0;
		if (n > 0 && ng_object_rel_valid(path) && strncmp(name, path, n) == 0 && name[n] == '/' && i > 0)
			return path;
	}
	return "";
}

/* A frame's tensors come in order, and so they do within each folder: every
 * folder's file is written from front to back. */
static int write_weights(struct ng_stream *s, const json_t *list, const char *dir, struct ng_err *err)
{
	const struct ng_header *h = ng_stream_header(s);
	size_t n = json_array_size(list) + 1, files = 0;
	const char **where = ng_xcalloc(n, sizeof *where);
	struct ng_header *part = ng_xcalloc(n, sizeof *part);
	struct ng_out *out = ng_xcalloc(n, sizeof *out);
	char *buf = ng_xmalloc(NG_STREAM_BLOCK);
	const json_t *first = json_array_get(list, 0);
	const char *root = json_string_value(json_object_get(first, "path"));
	const struct ng_tensor *t;
	int rc = -1, got;

	for (size_t i = 0; i < h->n; i++) {
		const char *m = module_of(list, h->tensor[i].name);
		size_t k = 0;
		while (k < files && strcmp(where[k], m) != 0)
			k++;
		if (k == files) {
			where[files] = m;
			ng_header_init(&part[files++]);
		}
		const char *name = h->tensor[i].name + (m[0] ? strlen(m) + 1 : 0);
		if (ng_header_add(&part[k], name, h->tensor[i].dtype, h->tensor[i].rank, h->tensor[i].dim, err) < 0)
			goto out;
	}
	for (size_t k = 0; k < files; k++) {
		const char *sub = where[k][0] ? where[k] : root && ng_object_rel_valid(root) ? root : "";
		char *folder = ng_xasprintf("%s%s%s", dir, sub[0] ? "/" : "", sub);
		char *path = ng_xasprintf("%s/model.safetensors", folder);
		ng_meta_set(&part[k].meta, "format", "pt");
		bool ok = ng_mkdirs(folder, 0777, err) == 0 && ng_header_finish(&part[k], err) == 0 &&
			  ng_out_open(&out[k], path, err) == 0 &&
			  ng_safetensors_write_header(out[k].fp, &part[k], path, err) == 0;
		free(folder);
		free(path);
		if (!ok)
			goto out;
	}
	while ((got = ng_stream_tensor(s, &t, err)) == 1) {
		const char *m = module_of(list, t->name);
		size_t k = 0;
		while (strcmp(where[k], m) != 0)
			k++;
		for (uint64_t left = t->bytes; left > 0;) {
			size_t take = left < NG_STREAM_BLOCK ? (size_t)left : NG_STREAM_BLOCK;
			if (ng_stream_read(s, buf, take, err) < 0)
				goto out;
			if (fwrite(buf, 1, take, out[k].fp) != take) {
				ng_fail_errno(err, NG_IOERR, "cannot write '%s'", out[k].path);
				goto out;
			}
			left -= take;
		}
	}
	if (got < 0)
		goto out;
	for (size_t k = 0; k < files; k++)
		if (ng_out_commit(&out[k], err) < 0)
			goto out;
	rc = 0;
out:
	for (size_t k = 0; k < files; k++) {
		ng_header_release(&part[k]);
		ng_out_abort(&out[k]);
	}
	free(where);
	free(part);
	free(out);
	free(buf);
	return rc;
}

static int restore_base(const struct ng_manifest *m, struct ng_board *b, const char *dir, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_BASE, 0, NULL);
	struct ng_object *o = NULL;
	struct ng_stream *s = NULL;
	json_t *list = modules(dir, err);
	int rc = -1;

	if (!list || ng_object_open(&o, b, &name, err) < 0 || ng_object_verify(o, err) < 0 ||
		ng_stream_open_fn(&s, ng_object_read, o, "base", NG_STREAM_DIGEST | NG_STREAM_ANY_META, err) < 0)
		goto out;
	int got = ng_stream_next(s, err);
	if (got == 0)
		ng_fail(err, NG_DATA, "base holds no frame");
	if (got != 1 || write_weights(s, list, dir, err) < 0)
		goto out;
	if (strcmp(ng_stream_digest(s), m->config.base) != 0) {
		ng_fail(err, NG_REFUSED, "the blackboard's base weights are not those of the experiment");
		goto out;
	}
	rc = 0;
out:
	json_decref(list);
	ng_stream_close(s);
	ng_object_close(o);
	return rc;
}

int ng_manifest_restore(const struct ng_manifest *m, struct ng_board *b, const char *out, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_MANIFEST, m->version, NULL);
	struct ng_object *o = NULL;
	struct ng_outdir dir;
	int rc = -1;

	if (ng_outdir_open(&dir, out, err) < 0)
		return -1;
	if (ng_object_open(&o, b, &name, err) == 0 && write_small(m, o, dir.temp, err) == 0 &&
		restore_base(m, b, dir.temp, err) == 0)
		rc = ng_outdir_commit(&dir, err);
	if (rc < 0)
		ng_outdir_abort(&dir);
	ng_object_close(o);
	return rc;
}
