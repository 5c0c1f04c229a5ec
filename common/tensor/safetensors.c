/*
 * safetensors.c - one safetensors file on disk; see safetensors.h.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/tensor/safetensors.h"

static int read_at(int fd, void *buf, size_t n, uint64_t at, size_t *got)
{
	*got = 0;
	while (*got < n) {
		ssize_t r = pread(fd, (char *)buf + *got, n - *got, (off_t)(at + *got));
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		*got += (size_t)r;
	}
	return 0;
}

static int read_exactly(const struct ng_safetensors *st, void *buf, size_t n, uint64_t at, struct ng_err *err)
{
	size_t got;

	if (read_at(st->fd, buf, n, at, &got) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", st->path);
	if (got < n)
		return ng_fail(err, NG_DATA, "'%s' was cut while it was read", st->path);
	return 0;
}

static int open_header(struct ng_safetensors *st, struct ng_err *err)
{
	unsigned char first[64];
	uint64_t len;
	size_t got;
	int rc = -1;

	if (read_at(st->fd, first, sizeof first, 0, &got) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", st->path);
	if (ng_header_length(&len, first, got, st->path, err) < 0)
		return -1;
	if (len > st->size - 8)
		return ng_fail(err, NG_DATA, "'%s' is cut: a header of %llu bytes in a file of %llu", st->path,
			(unsigned long long)len, (unsigned long long)st->size);
	char *json = ng_try_array((size_t)len, 1);
	if (!json)
		return ng_fail_errno(err, NG_OSERR, "'%s': header", st->path);
	st->data_start = 8 + len;
	if (read_exactly(st, json, (size_t)len, 8, err) == 0)
		rc = ng_header_parse(&st->header, json, (size_t)len, st->size - st->data_start, st->path, err);
	free(json);
	return rc;
}

int ng_safetensors_open(struct ng_safetensors *out, const char *path, unsigned flags, struct ng_err *err)
{
	struct stat sb;

	memset(out, 0, sizeof *out);
	out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (out->fd < 0)
		return ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
	out->path = ng_xstrdup(path);
	if (fstat(out->fd, &sb) < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
		goto fail;
	}
	if (!S_ISREG(sb.st_mode)) {
		ng_fail(err, NG_NOINPUT, "'%s' is %s, not a file", path,
			S_ISDIR(sb.st_mode) ? "a folder" : "a special file");
		goto fail;
	}
	out->size = (uint64_t)sb.st_size;
	if (open_header(out, err) < 0)
		goto fail;
	if (flags & NG_SAFETENSORS_MAP) {
		void *map = mmap(NULL, (size_t)out->size, PROT_READ, MAP_PRIVATE, out->fd, 0);
		if (map == MAP_FAILED) {
			ng_fail_errno(err, NG_OSERR, "cannot map '%s'", path);
			goto fail;
		}
		out->map = map;
	}
	return 0;
fail:
	ng_safetensors_close(out);
	return -1;
}

void ng_safetensors_close(struct ng_safetensors *st)
{
	if (st->map)
		munmap((void *)(uintptr_t)st->map, (size_t)st->size);
	if (st->path && st->fd >= 0)
		close(st->fd);
	ng_header_release(&st->header);
	free(st->path);
	memset(st, 0, sizeof *st);
	st->fd = -1;
}

int ng_safetensors_read(const struct ng_safetensors *st, const struct ng_tensor *t, uint64_t at, void *buf, size_t n,
	struct ng_err *err)
{
	if (at > t->bytes || n > t->bytes - at)
		return ng_fail(err, NG_SOFTWARE, "'%s': bytes beyond tensor '%s' are asked for", st->path, t->name);
	if (st->map) {
		memcpy(buf, st->map + st->data_start + t->offset + at, n);
		return 0;
	}
	return read_exactly(st, buf, n, st->data_start + t->offset + at, err);
}

int ng_safetensors_write_header(FILE *fp, const struct ng_header *h, const char *path, struct ng_err *err)
{
	struct ng_str text;
	int rc;

	ng_str_init(&text, NG_HEADER_MAX + 64);
	rc = ng_header_encode(&text, h, true, err);
	if (rc == 0 && fwrite(text.data, 1, text.len, fp) != text.len)
		rc = ng_fail_errno(err, NG_IOERR, "cannot write '%s'", path);
	ng_str_release(&text);
	return rc;
}
