#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/base/str.h"
#include "common/rank/vectors.h"

#define CHUNK ((size_t)1 << 16) /* elements converted at a time */
#define HEADER_MAX 65536

static bool little_endian(void)
{
	const uint16_t one = 1;
	unsigned char first;

	memcpy(&first, &one, 1);
	return first == 1;
}

int ng_vectors_new(struct ng_vectors *v, size_t n, size_t dim, uint64_t most, struct ng_err *err)
{
	const char *dir = getenv("TMPDIR");
	size_t count, bytes;

	memset(v, 0, sizeof *v);
	v->fd = -1;
	v->n = n;
	v->dim = dim;
	if (!ng_mul(&count, n, dim) || !ng_mul(&bytes, count, sizeof(float)))
		return ng_fail(err, NG_DATA, "too many vectors");
	v->name = ng_xstrdup("temporary file of vectors");
	if (bytes <= most) {
		v->mem = ng_xarray(count ? count : 1, sizeof(float));
		return 0;
	}
	char *path = ng_xasprintf("%s/ng-XXXXXX", dir && *dir ? dir : "/tmp");
	v->fd = mkstemp(path);
	if (v->fd < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot create a temporary file in '%s'", dir && *dir ? dir : "/tmp");
		free(path);
		ng_vectors_release(v);
		return -1;
	}
	unlink(path);
	free(path);
	v->swapped = !little_endian();
	return 0;
}

void ng_vectors_release(struct ng_vectors *v)
{
	if (v->fd >= 0)
		close(v->fd);
	free(v->mem);
	free(v->name);
	memset(v, 0, sizeof *v);
	v->fd = -1;
}

static int transfer(const struct ng_vectors *v, bool out, void *data, size_t n, uint64_t at, struct ng_err *err)
{
	char *p = data;

	while (n > 0) {
		ssize_t got = out ? pwrite(v->fd, p, n, (off_t)at) : pread(v->fd, p, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot %s '%s'", out ? "write" : "read", v->name);
		if (got == 0)
			return ng_fail(err, NG_DATA, "'%s' was cut short while it was read", v->name);
		p += got;
		n -= (size_t)got;
		at += (uint64_t)got;
	}
	return 0;
}

static void swap(void *data, size_t n, size_t size)
{
	unsigned char *p = data;

	for (size_t i = 0; i < n; i++, p += size)
		for (size_t j = 0; j < size / 2; j++) {
			unsigned char t = p[j];
			p[j] = p[size - 1 - j];
			p[size - 1 - j] = t;
		}
}

int ng_vectors_put(struct ng_vectors *v, size_t first, const float *rows, size_t count, struct ng_err *err)
{
	size_t size = v->dim * sizeof *rows;

	if (count == 0)
		return 0;
	if (v->mem) {
		memcpy(v->mem + first * v->dim, rows, count * size);
		return 0;
	}
	float *copy = ng_xarray(count, size);
	memcpy(copy, rows, count * size);
	if (v->swapped)
		swap(copy, count * v->dim, sizeof *copy);
	int result = transfer(v, true, copy, count * size, v->start + (uint64_t)first * size, err);
	free(copy);
	return result;
}

/* count elements from element `first`, of float64. */
static int get_wide(const struct ng_vectors *v, uint64_t first, float *out, size_t count, struct ng_err *err)
{
	double *wide = ng_xarray(CHUNK, sizeof *wide);
	int result = 0;

	while (count > 0 && result == 0) {
		size_t part = count < CHUNK ? count : CHUNK;
		result = transfer(v, false, wide, part * sizeof *wide, v->start + first * sizeof *wide, err);
		if (result == 0 && v->swapped)
			swap(wide, part, sizeof *wide);
		for (size_t i = 0; i < part && result == 0; i++)
			out[i] = (float)wide[i];
		first += part;
		out += part;
		count -= part;
	}
	free(wide);
	return result;
}

int ng_vectors_get(const struct ng_vectors *v, size_t first, float *rows, size_t count, struct ng_err *err)
{
	size_t n = count * v->dim;
	uint64_t at = (uint64_t)first * v->dim;

	if (count == 0)
		return 0;
	if (v->mem) {
		memcpy(rows, v->mem + at, n * sizeof *rows);
		return 0;
	}
	if (v->wide)
		return get_wide(v, at, rows, n, err);
	if (transfer(v, false, rows, n * sizeof *rows, v->start + at * sizeof *rows, err) < 0)
		return -1;
	if (v->swapped)
		swap(rows, n, sizeof *rows);
	return 0;
}

/* ---- .npy: "\x93NUMPY", version, length, a Python dictionary as text, padding, data ---- */

/* What follows 'key': in the dictionary. */
static const char *value_of(const char *dict, const char *key)
{
	const char *p = strstr(dict, key);

	if (!p)
		return NULL;
	p += strlen(key);
	p += strspn(p, " ");
	if (*p != ':')
		return NULL;
	p++;
	return p + strspn(p, " ");
}

static bool parse_shape(struct ng_vectors *v, const char *p)
{
	unsigned long long dim[2];

	if (!p || *p++ != '(')
		return false;
	for (int i = 0; i < 2; i++) {
		char *end;
		p += strspn(p, " ");
		if (*p < '0' || *p > '9')
			return false;
		errno = 0;
		dim[i] = strtoull(p, &end, 10);
		if (errno || dim[i] > SIZE_MAX / sizeof(double))
			return false;
		p = end + strspn(end, " ");
		if (i == 0 && *p++ != ',')
			return false;
	}
	if (*p == ',')
		p++;
	p += strspn(p, " ");
	v->n = (size_t)dim[0];
	v->dim = (size_t)dim[1];
	return *p == ')' && v->dim > 0;
}

static bool parse_descr(struct ng_vectors *v, const char *p)
{
	if (!p || (*p != '\'' && *p != '"') || !p[1] || !p[2] || !p[3])
		return false;
	bool big = p[1] == '>';
	if ((p[1] != '<' && !big) || p[2] != 'f' || (p[3] != '4' && p[3] != '8') || p[4] != *p)
		return false;
	v->wide = p[3] == '8';
	v->swapped = big == little_endian();
	return true;
}

int ng_vectors_open_npy(struct ng_vectors *v, const char *path, struct ng_err *err)
{
	unsigned char lead[12];
	char *dict = NULL;
	struct stat st;
	size_t count, bytes;

	memset(v, 0, sizeof *v);
	v->name = ng_xstrdup(path);
	v->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (v->fd < 0) {
		ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
		goto fail;
	}
	ptrdiff_t got = ng_read_full(v->fd, lead, sizeof lead);
	if (got < (ptrdiff_t)sizeof lead || memcmp(lead, "\x93NUMPY", 6) != 0 || lead[6] < 1 || lead[6] > 3) {
		ng_fail(err, NG_DATA, "'%s' is not a .npy file", path);
		goto fail;
	}
	size_t len = lead[8] | (size_t)lead[9] << 8, skip = 10;
	if (lead[6] > 1) {
		len |= (size_t)lead[10] << 16 | (size_t)lead[11] << 24;
		skip = 12;
	}
	v->start = skip + len;
	dict = ng_xcalloc(1, HEADER_MAX + 1);
	if (len > HEADER_MAX || transfer(v, false, dict, len, skip, NULL) < 0 ||
		!parse_descr(v, value_of(dict, "'descr'")) || !parse_shape(v, value_of(dict, "'shape'")) ||
		!value_of(dict, "'fortran_order'") || strncmp(value_of(dict, "'fortran_order'"), "False", 5) != 0) {
		ng_fail(err, NG_DATA, "'%s': not a C-ordered matrix of float32 or float64", path);
		goto fail;
	}
	if (!ng_mul(&count, v->n, v->dim) || !ng_mul(&bytes, count, v->wide ? 8 : 4) || fstat(v->fd, &st) < 0 ||
		(uint64_t)st.st_size < v->start || (uint64_t)st.st_size - v->start != bytes) {
		ng_fail(err, NG_DATA, "'%s': its size is not what its header says", path);
		goto fail;
	}
	free(dict);
	return 0;
fail:
	free(dict);
	ng_vectors_release(v);
	return -1;
}

int ng_vectors_save_npy(const struct ng_vectors *v, const char *path, struct ng_err *err)
{
	char dict[256], lead[10] = { (char)0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0 };
	size_t rows = CHUNK / v->dim ? CHUNK / v->dim : 1;
	float *block = ng_xarray(rows * v->dim, sizeof *block);
	struct ng_out out;
	int result = -1;

	if (ng_out_open(&out, path, err) < 0)
		goto done;
	int len = snprintf(
		dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", v->n, v->dim);
	while ((len + 10 + 1) % 64 != 0)
		dict[len++] = ' ';
	dict[len++] = '\n';
	lead[8] = (char)(len & 255);
	lead[9] = (char)(len >> 8);
	bool ok = fwrite(lead, 1, sizeof lead, out.fp) == sizeof lead &&
		  fwrite(dict, 1, (size_t)len, out.fp) == (size_t)len;
	for (size_t i = 0; ok && i < v->n; i += rows) {
		size_t part = v->n - i < rows ? v->n - i : rows;
		if (ng_vectors_get(v, i, block, part, err) < 0) {
			ng_out_abort(&out);
			goto done;
		}
		if (!little_endian())
			swap(block, part * v->dim, sizeof *block);
		ok = fwrite(block, v->dim * sizeof *block, part, out.fp) == part;
	}
	if (!ok) {
		ng_fail_errno(err, NG_IOERR, "cannot write '%s'", path);
		ng_out_abort(&out);
		goto done;
	}
	result = ng_out_commit(&out, err);
done:
	free(block);
	return result;
}
