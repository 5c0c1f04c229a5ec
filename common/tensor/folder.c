/*
 * folder.c - a model folder from a base folder and a global; see folder.h.
 *
 * The global's tensors come in the stream's order, the files want each in its
 * place: every block is written where it belongs by pwrite, so no model is
 * held, whatever the types and shards of the folder.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/tensor/folder.h"

#define BLOCK (64u << 10) /* elements */
#define COPY (256u << 10) /* bytes */
#define DEPTH 4

/* ---- the files beside the weights ---- */

/* Weights in any format: the old ones, and the safetensors that we write anew. */
static bool is_weights(const char *name)
{
	static const char *const suffix[] = { ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json",
		".h5", ".onnx", ".onnx_data", ".ot", ".msgpack", ".pt", ".pth", ".ckpt", ".gguf", ".tflite", ".mlmodel",
		".pkl" };
	size_t n = strlen(name);

	for (size_t i = 0; i < NG_COUNT(suffix); i++) {
		size_t k = strlen(suffix[i]);
		if (n > k && strcmp(name + n - k, suffix[i]) == 0)
			return true;
	}
	return false;
}

static int copy_file(const char *from, const char *to, struct ng_err *err)
{
	char *buf = ng_xmalloc(COPY);
	int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, rc = -1;
	ptrdiff_t n;

	if (in < 0) {
		ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", from);
		goto out;
	}
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot create '%s'", to);
		goto out;
	}
	while ((n = ng_read_full(in, buf, COPY)) > 0)
		if (ng_write_full(out, buf, (size_t)n) < 0) {
			ng_fail_errno(err, NG_IOERR, "cannot write '%s'", to);
			goto out;
		}
	if (n < 0)
		ng_fail_errno(err, NG_IOERR, "cannot read '%s'", from);
	else
		rc = 0;
out:
	if (in >= 0)
		close(in);
	if (out >= 0 && close(out) < 0 && rc == 0)
		rc = ng_fail_errno(err, NG_IOERR, "cannot close '%s'", to);
	free(buf);
	return rc;
}

static int make_dir(const char *path, struct ng_err *err)
{
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return ng_fail_errno(err, NG_IOERR, "cannot create '%s'", path);
	return 0;
}

/* Links are followed (a cache of models is made of them), to a fixed depth. */
static int copy_small(const char *from, const char *to, int depth, struct ng_err *err)
{
	DIR *d = opendir(from);
	struct dirent *e;
	int rc = 0;

	if (!d)
		return ng_fail_errno(err, NG_NOINPUT, "cannot read '%s'", from);
	while (rc == 0 && (errno = 0, e = readdir(d)) != NULL) {
		struct stat st;
		if (e->d_name[0] == '.' || is_weights(e->d_name))
			continue;
		char *src = ng_xasprintf("%s/%s", from, e->d_name), *dst = ng_xasprintf("%s/%s", to, e->d_name);
		if (stat(src, &st) < 0)
			rc = ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", src);
		else if (S_ISREG(st.st_mode))
			rc = copy_file(src, dst, err);
		else if (S_ISDIR(st.st_mode) && depth < DEPTH && strcmp(e->d_name, "onnx") != 0 &&
			 strcmp(e->d_name, "openvino") != 0)
			rc = make_dir(dst, err) < 0 ? -1 : copy_small(src, dst, depth + 1, err);
		free(src);
		free(dst);
	}
	if (rc == 0 && errno)
		rc = ng_fail_errno(err, NG_IOERR, "cannot read '%s'", from);
	closedir(d);
	return rc;
}

/* ---- the weights ---- */

struct target {
	struct ng_header header; /* canonical layout of the new file */
	int fd;
	char *path;
	uint64_t data_start;
};

struct job {
	struct ng_weights base;
	struct target *target;		  /* one a file of base */
	const struct ng_tensor **by_base; /* [base.header.n] the tensor in its target's header */
	bool *replaced;			  /* [base.header.n] the global holds it */
	struct ng_outdir dir;
	bool dir_open;
};

static int write_at(const struct target *t, const void *data, size_t n, uint64_t at, struct ng_err *err)
{
	size_t put = 0;

	while (put < n) {
		ssize_t k = pwrite(t->fd, (const char *)data + put, n - put, (off_t)(at + put));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot write '%s'", t->path);
		put += (size_t)k;
	}
	return 0;
}

static int target_open(
	struct target *t, const struct ng_safetensors *from, const char *dir, const char *rel, struct ng_err *err)
{
	struct ng_str text;

	ng_header_copy(&t->header, &from->header);
	ng_meta_set(&t->header.meta, "format", "pt");
	if (ng_header_finish(&t->header, err) < 0)
		return -1;
	t->path = ng_xasprintf("%s/%s", dir, rel);
	char *slash = strrchr(t->path, '/');
	*slash = '\0';
	int rc = ng_mkdirs(t->path, 0777, err);
	*slash = '/';
	if (rc < 0)
		return -1;
	t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (t->fd < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot create '%s'", t->path);
	ng_str_init(&text, NG_HEADER_MAX + 64);
	rc = ng_header_encode(&text, &t->header, true, err);
	if (rc == 0)
		rc = write_at(t, text.data, text.len, 0, err);
	t->data_start = text.len;
	ng_str_release(&text);
	return rc;
}

static int open_targets(struct job *j, struct ng_err *err)
{
	struct ng_weights *w = &j->base;

	j->target = ng_xcalloc(w->n_files, sizeof *j->target);
	for (size_t i = 0; i < w->n_files; i++)
		j->target[i].fd = -1;
	for (size_t i = 0; i < w->n_files; i++) {
		if (target_open(&j->target[i], &w->file[i], j->dir.temp, w->file_name[i], err) < 0)
			return -1;
		/* the index of a sharded model was left out as weights: same shards, same index */
		const char *slash = strrchr(w->file_name[i], '/');
		int n = slash ? (int)(slash + 1 - w->file_name[i]) : 0;
		char *from = ng_xasprintf("%s/%.*smodel.safetensors.index.json", w->dir, n, w->file_name[i]);
		char *to = ng_xasprintf("%s/%.*smodel.safetensors.index.json", j->dir.temp, n, w->file_name[i]);
		int rc = 0;
		if (strcmp(w->file_name[i] + n, "model.safetensors") != 0 && ng_file_exists(from) &&
			!ng_file_exists(to))
			rc = copy_file(from, to, err);
		free(from);
		free(to);
		if (rc < 0)
			return -1;
	}
	j->by_base = ng_xarray(w->header.n, sizeof *j->by_base);
	for (size_t i = 0; i < w->header.n; i++)
		j->by_base[i] = ng_header_find(&j->target[w->header.tensor[i].file].header, w->own[i]->name);
	return 0;
}

static int copy_kept(struct job *j, struct ng_err *err)
{
	unsigned char *buf = ng_xmalloc(COPY);
	int rc = 0;

	for (size_t i = 0; i < j->base.header.n && rc == 0; i++) {
		const struct ng_tensor *t = &j->base.header.tensor[i];
		const struct target *to = &j->target[t->file];
		if (j->replaced[i])
			continue;
		for (uint64_t at = 0; at < t->bytes && rc == 0;) {
			size_t n = t->bytes - at < COPY ? (size_t)(t->bytes - at) : COPY;
			rc = ng_weights_read(&j->base, t, at, buf, n, err);
			if (rc == 0)
				rc = write_at(to, buf, n, to->data_start + j->by_base[i]->offset + at, err);
			at += n;
		}
	}
	free(buf);
	return rc;
}

static int place(struct job *j, struct ng_stream *s, struct ng_stream *delta, const struct ng_tensor *t, float *a,
	float *b, struct ng_err *err)
{
	const struct ng_tensor *base = ng_header_find(&j->base.header, t->name);
	size_t index = (size_t)(base - j->base.header.tensor), width = ng_dtype_bits(base->dtype) / 8;
	const struct target *to = &j->target[base->file];
	uint64_t at = to->data_start + j->by_base[index]->offset;

	for (uint64_t done = 0; done < t->count;) {
		size_t n = t->count - done < BLOCK ? (size_t)(t->count - done) : BLOCK;
		if (ng_stream_read_f32(s, a, n, err) < 0)
			return -1;
		if (delta) {
			if (ng_stream_read_f32(delta, b, n, err) < 0)
				return -1;
			for (size_t i = 0; i < n; i++)
				a[i] += b[i];
		}
		for (size_t i = 0; i < n; i++)
			if (!isfinite(a[i]))
				return ng_fail(err, NG_REFUSED, "%s: tensor '%s': holds a value that is not finite",
					ng_stream_name(delta ? delta : s), t->name);
		ng_from_f32(b, base->dtype, a, n);
		if (write_at(to, b, n * width, at, err) < 0)
			return -1;
		at += n * width;
		done += n;
	}
	return 0;
}

/* Nothing follows, and nobody upstream failed. */
static int ends(struct ng_stream *s, struct ng_err *err)
{
	int rc = ng_stream_next(s, err);

	return rc == 1 ? ng_fail(err, NG_DATA, "%s holds more than one frame", ng_stream_name(s)) : rc;
}

static int replace(struct job *j, struct ng_stream *s, struct ng_stream *delta, struct ng_err *err)
{
	float *a = ng_xarray(BLOCK, sizeof *a), *b = ng_xarray(BLOCK, sizeof(double));
	const struct ng_tensor *t, *d;
	int rc;

	while ((rc = ng_stream_tensor(s, &t, err)) == 1) {
		if (delta && ng_stream_tensor(delta, &d, err) < 0)
			rc = -1;
		if (rc < 0 || (rc = place(j, s, delta, t, a, b, err)) < 0)
			break;
	}
	if (rc == 0)
		rc = ends(s, err);
	if (rc == 0 && delta)
		rc = ends(delta, err);
	free(a);
	free(b);
	return rc;
}

/* Every tensor of the global, in the folder's shape, of a float type on both sides. */
static int check_tensors(struct job *j, const struct ng_stream *s, const struct ng_stream *delta, struct ng_err *err)
{
	const struct ng_header *h = ng_stream_header(s);

	j->replaced = ng_xcalloc(j->base.header.n, sizeof *j->replaced);
	for (size_t i = 0; i < h->n; i++) {
		const struct ng_tensor *t = &h->tensor[i], *base = ng_header_find(&j->base.header, t->name);
		if (!base)
			return ng_fail(err, NG_REFUSED, "%s: tensor '%s' is not in the model folder '%s'",
				ng_stream_name(s), t->name, j->base.dir);
		if (!ng_tensor_same_shape(t, base)) {
			char got[192], want[192];
			ng_tensor_shape(got, sizeof got, t);
			ng_tensor_shape(want, sizeof want, base);
			return ng_fail(err, NG_REFUSED, "%s: tensor '%s' has shape %s, in the model folder '%s' %s",
				ng_stream_name(s), t->name, got, j->base.dir, want);
		}
		if (!ng_dtype_float(t->dtype) || !ng_dtype_float(base->dtype))
			return ng_fail(err, NG_REFUSED, "%s: tensor '%s' is %s, in the model folder '%s' %s",
				ng_stream_name(s), t->name, ng_dtype_name(t->dtype), j->base.dir,
				ng_dtype_name(base->dtype));
		j->replaced[base - j->base.header.tensor] = true;
	}
	if (!delta)
		return 0;
	const struct ng_header *d = ng_stream_header(delta);
	if (d->n != h->n)
		return ng_fail(
			err, NG_REFUSED, "%s has %zu tensors, the global %zu", ng_stream_name(delta), d->n, h->n);
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(d->tensor[i].name, h->tensor[i].name) != 0 ||
			!ng_tensor_same_shape(&d->tensor[i], &h->tensor[i]) || !ng_dtype_float(d->tensor[i].dtype))
			return ng_fail(err, NG_REFUSED, "%s: tensor '%s' does not match the global's '%s'",
				ng_stream_name(delta), d->tensor[i].name, h->tensor[i].name);
	return 0;
}

static int close_targets(struct job *j, bool good, struct ng_err *err)
{
	int rc = 0;

	for (size_t i = 0; j->target && i < j->base.n_files; i++) {
		struct target *t = &j->target[i];
		if (t->fd >= 0 && close(t->fd) < 0 && good && rc == 0)
			rc = ng_fail_errno(err, NG_IOERR, "cannot close '%s'", t->path);
		ng_header_release(&t->header);
		free(t->path);
	}
	free(j->target);
	j->target = NULL;
	return rc;
}

int ng_folder_write(const char *out, const char *base, struct ng_stream *s, struct ng_stream *delta, struct ng_err *err)
{
	struct job j = { .dir_open = false };
	int rc = -1;

	if (ng_file_exists(out))
		return ng_fail(err, NG_NOTHING, "'%s' exists already", out);
	if (ng_weights_open(&j.base, base, 0, err) < 0)
		return -1;
	if (check_tensors(&j, s, delta, err) < 0 || ng_outdir_open(&j.dir, out, err) < 0)
		goto out;
	j.dir_open = true;
	if (copy_small(base, j.dir.temp, 0, err) < 0 || open_targets(&j, err) < 0 || copy_kept(&j, err) < 0 ||
		replace(&j, s, delta, err) < 0 || close_targets(&j, true, err) < 0)
		goto out;
	j.dir_open = false; /* commit gives it up either way */
	rc = ng_outdir_commit(&j.dir, err);
out:
	close_targets(&j, false, NULL);
	if (j.dir_open)
		ng_outdir_abort(&j.dir);
	ng_weights_close(&j.base);
	free(j.by_base);
	free(j.replaced);
	return rc;
}

/* ---- a global from a folder ---- */

int ng_folder_global_header(struct ng_header *out, const struct ng_weights *w, bool (*trains)(void *, const char *),
	void *arg, struct ng_err *err)
{
	ng_header_init(out);
	for (size_t i = 0; i < w->header.n; i++) {
		const struct ng_tensor *t = &w->header.tensor[i];
		if (!ng_dtype_float(t->dtype) || (trains && !trains(arg, t->name)))
			continue;
		if (ng_header_add(out, t->name, NG_F32, t->rank, t->dim, err) < 0)
			goto fail;
	}
	if (out->n == 0) {
		ng_fail(err, NG_DATA, "'%s' has no tensor to train", w->dir);
		goto fail;
	}
	if (ng_header_finish(out, err) == 0 && ng_header_check_names(out, false, err) == 0)
		return 0;
	ng_fail_prefix(err, "'%s'", w->dir);
fail:
	ng_header_release(out);
	return -1;
}

int ng_folder_write_global(
	struct ng_writer *wr, const struct ng_header *h, const struct ng_weights *w, struct ng_err *err)
{
	float *a = ng_xarray(BLOCK, sizeof *a);
	int rc = 0;

	for (size_t i = 0; i < h->n && rc == 0; i++) {
		const struct ng_tensor *t = ng_header_find(&w->header, h->tensor[i].name);
		if (!t) {
			rc = ng_fail(err, NG_SOFTWARE, "'%s' has no tensor '%s'", w->dir, h->tensor[i].name);
			break;
		}
		for (uint64_t done = 0; done < t->count && rc == 0;) {
			size_t n = t->count - done < BLOCK ? (size_t)(t->count - done) : BLOCK;
			rc = ng_weights_read_f32(w, t, done, a, n, err);
			if (rc == 0)
				rc = ng_writer_data(wr, a, n * sizeof *a, err);
			done += n;
		}
	}
	free(a);
	return rc;
}
