/*
 * dir_read.c - objects of a directory board, read; see dir_private.h.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/board/dir_private.h"

struct reader {
	int dir; /* the object's folder, -1 for a claim */
	dev_t dev;
	ino_t ino;
	int fd; /* the part being read, -1 between parts */
	size_t next;
	char *text; /* a claim: the whole file */
	size_t payload, len, at;
};

static int moved(struct ng_object *o, struct ng_err *err)
{
	char path[128];

	ng_object_path(path, &o->entry.name);
	return ng_fail(err, NG_TEMPFAIL, "%s went away while it was read: the blackboard moved", path);
}

static int fail(struct ng_object *o, struct ng_err *err)
{
	char path[128];

	ng_object_path(path, &o->entry.name);
	return ng_dir_fail(o->board, err, "cannot read %s", path);
}

/* A regular file below dir, at most max bytes, NUL added. -1 and errno (EFBIG). */
static int slurp(char **out, size_t *len, int dir, const char *name, size_t max, struct stat *st)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), saved = 0;
	char *buf = NULL;
	ptrdiff_t n = -1;

	if (fd < 0)
		return -1;
	if (fstat(fd, st) < 0) {
		saved = errno;
	} else if (!S_ISREG(st->st_mode)) {
		saved = EINVAL;
	} else if (st->st_size < 0 || (uint64_t)st->st_size > max) {
		saved = EFBIG;
	} else {
		size_t size = (size_t)st->st_size;
		buf = ng_try_array(size + 1, 1);
		n = buf ? ng_read_full(fd, buf, size) : -1;
		saved = errno;
	}
	close(fd);
	if (n < 0) {
		free(buf);
		errno = saved;
		return -1;
	}
	buf[n] = '\0';
	*out = buf;
	*len = (size_t)n;
	return 0;
}

static int malformed(struct ng_object *o, const char *why, struct ng_err *err)
{
	char path[128];

	ng_object_path(path, &o->entry.name);
	return ng_fail(err, NG_DATA, "%s %s", path, why);
}

static int absent(struct ng_object *o, struct ng_err *err)
{
	char path[128];

	ng_object_path(path, &o->entry.name);
	return ng_fail(err, NG_NOINPUT, "%s is not on the blackboard", path);
}

static int claim_open(struct ng_object *o, struct reader *r, int parent, const char *leaf, struct ng_err *err)
{
	struct stat st;
	const char *gap;

	if (slurp(&r->text, &r->len, parent, leaf, NG_DIR_CLAIM_MAX, &st) < 0)
		return errno == ENOENT ? absent(o, err) : fail(o, err);
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	o->entry.mtime = (long long)st.st_mtime;
	gap = strstr(r->text, "\n\n");
	if (!gap)
		return malformed(o, "has no signature text", err);
	o->signature_len = (size_t)(gap + 1 - r->text);
	o->signature = ng_xstrndup(r->text, o->signature_len);
	r->payload = r->at = o->signature_len + 1;
	o->entry.bytes = r->len - r->payload;
	o->entry.parts = 1;
	return 0;
}

static int folder_open(struct ng_object *o, struct reader *r, int parent, const char *leaf, struct ng_err *err)
{
	struct stat st;
	char path[128];

	r->dir = ng_dir_openat(parent, leaf);
	if (r->dir < 0) {
		if (errno == ENOENT)
			return absent(o, err);
		if (errno == ENOTDIR || errno == ELOOP)
			return malformed(o, "is no folder: not an object", err);
		return fail(o, err);
	}
	if (fstat(r->dir, &st) < 0)
		return fail(o, err);
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	if (ng_dir_measure(r->dir, &o->entry) < 0) {
		if (errno)
			return fail(o, err);
		return malformed(o, "lacks its signature text or a part of its payload", err);
	}
	if (slurp(&o->signature, &o->signature_len, r->dir, NG_DIR_SIGNATURE, NG_STATEMENT_MAX, &st) < 0)
		return errno == EFBIG ? malformed(o, "has a signature text that is too long", err) : fail(o, err);
	if (o->entry.parts == 1) {
		ng_object_path(path, &o->entry.name);
		o->path = ng_xasprintf("%s/%s/part-00000", ng_dir_of(o->board)->path, path);
	}
	return 0;
}

int ng_dir_object_open(struct ng_object *o, struct ng_err *err)
{
	struct reader *r = ng_xcalloc(1, sizeof *r);
	char leaf[80];
	int parent, rc;

	r->dir = r->fd = -1;
	o->impl = r;
	parent = ng_dir_parent(o->board, &o->entry.name, leaf, false);
	if (parent < 0) {
		fail(o, err); /* tells a vanished board from a missing object */
		if (errno != ENOENT || (err && strstr(err->text, "has vanished")))
			return -1;
		return absent(o, err);
	}
	rc = o->entry.name.kind == NG_OBJ_CLAIM ? claim_open(o, r, parent, leaf, err)
						: folder_open(o, r, parent, leaf, err);
	close(parent);
	return rc;
}

void ng_dir_object_close(struct ng_object *o)
{
	struct reader *r = o->impl;

	if (r->dir >= 0)
		close(r->dir);
	if (r->fd >= 0)
		close(r->fd);
	free(r->text);
	free(r);
	o->impl = NULL;
}

static int next_part(struct ng_object *o, struct reader *r, struct ng_err *err)
{
	struct stat st;
	char name[32];

	snprintf(name, sizeof name, "part-%05zu", r->next);
	r->fd = openat(r->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) < 0) {
		if (errno == ENOENT || errno == ESTALE) {
			fail(o, err);
			return err && strstr(err->text, "has vanished") ? -1 : moved(o, err);
		}
		return fail(o, err);
	}
	if (!S_ISREG(st.st_mode))
		return malformed(o, "has a part that is no file", err);
	r->next++;
	return 0;
}

ptrdiff_t ng_dir_object_read(struct ng_object *o, void *buf, size_t n, struct ng_err *err)
{
	struct reader *r = o->impl;
	size_t got = 0;

	if (r->text) {
		got = r->len - r->at < n ? r->len - r->at : n;
		memcpy(buf, r->text + r->at, got);
		r->at += got;
		return (ptrdiff_t)got;
	}
	while (got < n) {
		if (r->fd < 0) {
			if (r->next == o->entry.parts)
				break;
			if (next_part(o, r, err) < 0)
				return -1;
		}
		ptrdiff_t k = ng_read_full(r->fd, (char *)buf + got, n - got);
		if (k < 0)
			return errno == ESTALE ? moved(o, err) : fail(o, err);
		if ((size_t)k < n - got) {
			close(r->fd);
			r->fd = -1;
		}
		got += (size_t)k;
	}
	return (ptrdiff_t)got;
}

int ng_dir_object_rewind(struct ng_object *o, struct ng_err *err)
{
	struct reader *r = o->impl;

	(void)err; /* a directory is read again at no risk */
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->next = 0;
	r->at = r->payload;
	return 0;
}

int ng_dir_object_file(struct ng_object *o, const char *rel, char **out, size_t *len, size_t max, struct ng_err *err)
{
	struct reader *r = o->impl;
	char *copy = ng_xstrdup(rel), *part = copy, *slash;
	struct stat st;
	int fd = r->dir < 0 ? -1 : ng_dir_openat(r->dir, NG_DIR_FILES), rc = -1;

	/* one folder at a time, none of them a link */
	while (fd >= 0 && (slash = strchr(part, '/')) != NULL) {
		*slash = '\0';
		int sub = ng_dir_openat(fd, part);
		close(fd);
		fd = sub;
		part = slash + 1;
	}
	if (fd >= 0)
		rc = slurp(out, len, fd, part, max, &st);
	if (rc < 0) {
		if (errno == EFBIG)
			ng_fail(err, NG_DATA, "the file '%s' is larger than %zu bytes", rel, max);
		else if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EINVAL)
			ng_fail(err, NG_DATA, "the file '%s' is missing", rel);
		else
			ng_dir_fail(o->board, err, "cannot read '%s'", rel);
	}
	if (fd >= 0)
		close(fd);
	free(copy);
	return rc;
}

int ng_dir_object_discard(struct ng_object *o, struct ng_err *err)
{
	struct reader *r = o->impl;
	struct stat st;
	char leaf[80], temp[160];
	int parent, tmp, rc = -1;

	if (ng_dir_tmp(o->board, err) < 0)
		return -1;
	tmp = ng_dir_of(o->board)->tmp;
	parent = ng_dir_parent(o->board, &o->entry.name, leaf, false);
	if (parent < 0)
		return fail(o, err);
	ng_dir_temp_name(temp, &o->entry.name);
	if (renameat(parent, leaf, tmp, temp) < 0) {
		rc = errno == ENOENT ? 0 : fail(o, err);
	} else if (fstatat(tmp, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == r->dev && st.st_ino == r->ino) {
		(void)!ng_dir_remove_tree(tmp, temp);
		rc = 0;
	} else {
		/* somebody replaced it since we looked: give it back */
		(void)!ng_dir_rename_new(tmp, temp, parent, leaf);
		rc = moved(o, err);
	}
	close(parent);
	return rc;
}
