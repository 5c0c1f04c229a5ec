/*
 * dir_write.c - objects of a directory board, written; see dir_private.h.
 *
 * Parts are written and synced one after another in EXPERIMENT/tmp; the commit
 * writes the signature text, syncs the folder and renames it to its name by a
 * call that cannot replace an object.  A writer killed at any moment leaves
 * litter in tmp, never half an object.
 */
#ifdef __linux__
#define _GNU_SOURCE /* sync_file_range */
#endif
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/sig.h"
#include "common/base/str.h"
#include "common/board/dir_private.h"

#define WRITE_AHEAD (4u << 20)

struct writer {
	char temp[160];
	int dir;  /* the temporary folder */
	int slot; /* guard against signals */
	int fd;	  /* the part being written */
	int full; /* the one before it, not synced yet */
	uint32_t in_part, started;
	long parts;
	struct ng_str claim; /* a claim's payload */
	bool is_claim;
};

static int fail(struct ng_object_writer *w, struct ng_err *err, const char *what)
{
	char path[128];

	ng_object_path(path, &w->name);
	return ng_dir_fail(w->board, err, "cannot %s %s", what, path);
}

/* Objects are not changed again: read-only, for whom the folder is readable. */
static mode_t file_mode(const struct ng_board *b)
{
	return (ng_dir_of(b)->mode & 0444) | 0400;
}

static int create(struct ng_object_writer *w, int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd >= 0 && fchmod(fd, file_mode(w->board)) < 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

int ng_dir_writer_open(struct ng_object_writer *w, struct ng_err *err)
{
	struct ng_dir *d = ng_dir_of(w->board);
	struct writer *x;
	char *path;

	if (ng_dir_tmp(w->board, err) < 0)
		return -1;
	x = ng_xcalloc(1, sizeof *x);
	x->dir = x->fd = x->full = x->slot = -1;
	x->is_claim = w->name.kind == NG_OBJ_CLAIM;
	ng_str_init(&x->claim, NG_DIR_CLAIM_MAX);
	ng_dir_temp_name(x->temp, &w->name);
	w->impl = x;
	path = ng_xasprintf("%s/%s/%s", d->path, NG_DIR_TMP, x->temp);
	x->slot = ng_sig_guard(path);
	free(path);
	if (x->is_claim)
		return 0;
	if (ng_dir_mkdirat(w->board, d->tmp, x->temp) < 0 || (x->dir = ng_dir_openat(d->tmp, x->temp)) < 0)
		return fail(w, err, "create");
	return 0;
}

/* The disk is kept busy while the next bytes are made; the sync of a part waits
 * until another part is full, and by then it is short. */
static void start_writing(struct writer *x, uint32_t least)
{
#ifdef SYNC_FILE_RANGE_WRITE
	if (x->in_part - x->started < least)
		return;
	(void)sync_file_range(x->fd, x->started, x->in_part - x->started, SYNC_FILE_RANGE_WRITE);
	x->started = x->in_part;
#else
	(void)x;
	(void)least;
#endif
}

static int sync_part(struct ng_object_writer *w, int *fd, struct ng_err *err)
{
	int part = *fd;

	if (part < 0)
		return 0;
	*fd = -1;
	if (fsync(part) < 0) {
		int saved = errno;
		close(part);
		errno = saved;
		return fail(w, err, "sync");
	}
	return close(part) < 0 ? fail(w, err, "close") : 0;
}

static int part_end(struct ng_object_writer *w, struct ng_err *err)
{
	struct writer *x = w->impl;

	if (x->fd >= 0)
		start_writing(x, 1);
	if (sync_part(w, &x->full, err) < 0)
		return -1;
	x->full = x->fd;
	x->fd = -1;
	return 0;
}

static int part_begin(struct ng_object_writer *w, struct ng_err *err)
{
	struct writer *x = w->impl;
	char name[32];

	if (x->parts >= NG_PARTS_MAX)
		return ng_fail(err, NG_DATA, "the object is too large: more than %d parts", NG_PARTS_MAX);
	snprintf(name, sizeof name, "part-%05ld", x->parts);
	x->fd = create(w, x->dir, name);
	if (x->fd < 0)
		return fail(w, err, "create a part of");
	x->parts++;
	x->in_part = x->started = 0;
	return 0;
}

int ng_dir_writer_write(struct ng_object_writer *w, const void *data, size_t n, struct ng_err *err)
{
	struct writer *x = w->impl;
	const char *p = data;

	if (x->is_claim)
		return ng_str_add(&x->claim, data, n) < 0 ? ng_fail(err, NG_SOFTWARE, "a claim that is too long") : 0;
	while (n > 0) {
		if (x->fd >= 0 && x->in_part == NG_PART_BYTES && part_end(w, err) < 0)
			return -1;
		if (x->fd < 0 && part_begin(w, err) < 0)
			return -1;
		size_t k = NG_PART_BYTES - x->in_part < n ? NG_PART_BYTES - x->in_part : n;
		if (ng_write_full(x->fd, p, k) < 0)
			return fail(w, err, "write");
		x->in_part += (uint32_t)k;
		start_writing(x, WRITE_AHEAD);
		p += k;
		n -= k;
	}
	return 0;
}

static int put(struct ng_object_writer *w, int dir, const char *name, const void *data, size_t len, struct ng_err *err)
{
	int fd = create(w, dir, name), rc;

	if (fd < 0)
		return fail(w, err, "create a file of");
	rc = ng_write_full(fd, data, len) < 0 || fsync(fd) < 0 ? fail(w, err, "write") : 0;
	if (close(fd) < 0 && rc == 0)
		rc = fail(w, err, "close");
	return rc;
}

int ng_dir_writer_file(struct ng_object_writer *w, const char *rel, const void *data, size_t len, struct ng_err *err)
{
	struct writer *x = w->impl;
	char *copy = ng_xasprintf("%s/%s", NG_DIR_FILES, rel), *part = copy, *slash;
	int fd = fcntl(x->dir, F_DUPFD_CLOEXEC, 0), rc = -1;

	while (fd >= 0 && (slash = strchr(part, '/')) != NULL) {
		*slash = '\0';
		int sub = ng_dir_mkdirat(w->board, fd, part) < 0 ? -1 : ng_dir_openat(fd, part);
		int saved = errno;
		if (sub >= 0)
			fsync(fd);
		close(fd);
		errno = saved;
		fd = sub;
		part = slash + 1;
	}
	if (fd < 0) {
		fail(w, err, "create a folder of");
	} else {
		rc = put(w, fd, part, data, len, err);
		if (rc == 0 && fsync(fd) < 0)
			rc = fail(w, err, "sync");
		close(fd);
	}
	free(copy);
	return rc;
}

static int claim_commit(
	struct ng_object_writer *w, struct writer *x, const char *signature, size_t len, struct ng_err *err)
{
	struct ng_str text;
	char leaf[80];
	int parent, rc;

	ng_str_init(&text, (size_t)NG_DIR_CLAIM_MAX * 2);
	ng_str_add(&text, signature, len);
	ng_str_add(&text, "\n", 1);
	ng_str_add(&text, x->claim.data, x->claim.len);
	rc = put(w, ng_dir_of(w->board)->tmp, x->temp, text.data, text.len, err);
	ng_str_release(&text);
	if (rc < 0)
		return -1;
	parent = ng_dir_parent(w->board, &w->name, leaf, true);
	if (parent < 0)
		return fail(w, err, "create the folder of");
	if (renameat(ng_dir_of(w->board)->tmp, x->temp, parent, leaf) < 0 || fsync(parent) < 0)
		rc = fail(w, err, "publish");
	close(parent);
	return rc;
}

/* Something that is no object stands in the way (an empty folder, a file, a
 * link): move it to tmp, where it is tidied away.  0 when the way is free. */
static int clear_litter(struct ng_object_writer *w, int parent, const char *leaf)
{
	int tmp = ng_dir_of(w->board)->tmp, fd;
	struct ng_entry e;
	char temp[160];
	bool object;

	fd = ng_dir_openat(parent, leaf);
	object = fd >= 0 && ng_dir_measure(fd, &e) == 0;
	if (fd >= 0)
		close(fd);
	if (object)
		return -1;
	ng_dir_temp_name(temp, &w->name);
	if (renameat(parent, leaf, tmp, temp) < 0)
		return errno == ENOENT ? 0 : -1;
	/* another writer may have cleared and published in between: give it back */
	fd = ng_dir_openat(tmp, temp);
	object = fd >= 0 && ng_dir_measure(fd, &e) == 0;
	if (fd >= 0)
		close(fd);
	if (object)
		(void)!ng_dir_rename_new(tmp, temp, parent, leaf);
	return object ? -1 : 0;
}

static int publish(struct ng_object_writer *w, struct writer *x, struct ng_err *err)
{
	char leaf[80], path[128];
	int rc = -1, parent = -1;

	ng_object_path(path, &w->name);
	for (int try = 0; try < 5; try++) {
		if (parent >= 0)
			close(parent);
		parent = ng_dir_parent(w->board, &w->name, leaf, true);
		if (parent < 0)
			return fail(w, err, "create the folder of");
		rc = ng_dir_rename_new(ng_dir_of(w->board)->tmp, x->temp, parent, leaf);
		if (rc == 0)
			break;
		int why = errno;
		/* a pruner removed the empty folder of the round in between */
		if (why == ENOENT)
			continue;
		if (why == EEXIST && try == 0 && clear_litter(w, parent, leaf) == 0)
			continue;
		errno = why;
		break;
	}
	if (rc < 0) {
		rc = errno == EEXIST ? ng_fail(err, NG_NOTHING, "%s is on the blackboard already", path)
				     : fail(w, err, "publish");
	} else if (fsync(parent) < 0) {
		rc = fail(w, err, "sync the folder of");
	}
	close(parent);
	return rc;
}

int ng_dir_writer_commit(struct ng_object_writer *w, const char *signature, size_t len, struct ng_err *err)
{
	struct writer *x = w->impl;
	int rc;

	if (x->is_claim)
		return claim_commit(w, x, signature, len, err);
	if (x->parts == 0) /* an object always has a part */
		if (part_begin(w, err) < 0)
			return -1;
	if (part_end(w, err) < 0 || sync_part(w, &x->full, err) < 0 ||
		put(w, x->dir, NG_DIR_SIGNATURE, signature, len, err) < 0)
		return -1;
	if (fsync(x->dir) < 0)
		return fail(w, err, "sync");
	rc = publish(w, x, err);
	if (rc == 0 && x->slot >= 0) {
		ng_sig_release(x->slot);
		x->slot = -1;
		x->temp[0] = '\0';
	}
	return rc;
}

void ng_dir_writer_close(struct ng_object_writer *w)
{
	struct writer *x = w->impl;

	if (x->fd >= 0)
		close(x->fd);
	if (x->full >= 0)
		close(x->full);
	if (x->dir >= 0)
		close(x->dir);
	if (x->temp[0])
		(void)!ng_dir_remove_tree(ng_dir_of(w->board)->tmp, x->temp);
	if (x->slot >= 0)
		ng_sig_release(x->slot);
	ng_str_release(&x->claim);
	free(x);
	w->impl = NULL;
}
