/*
 * dir.c - the blackboard as a directory on any file system that several hosts
 * share: opening, listing, removing.  Layout: dir_private.h.
 *
 * Reading is dir_read.c, writing dir_write.c.
 */
#define _DEFAULT_SOURCE /* syscall */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/board/dir_private.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#endif

#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

struct ng_dir *ng_dir_of(const struct ng_board *b)
{
	return b->impl;
}

int ng_dir_openat(int dirfd, const char *name)
{
	return openat(dirfd, name, FOLDER | O_NOFOLLOW);
}

/* Is EXPERIMENT still where it was opened? */
static bool still_there(const struct ng_board *b)
{
	const struct ng_dir *d = ng_dir_of(b);
	struct stat st;
	int saved = errno;
	bool there = stat(d->path, &st) == 0 && st.st_dev == d->dev && st.st_ino == d->ino;

	errno = saved;
	return there;
}

int ng_dir_fail(const struct ng_board *b, struct ng_err *err, const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list ap;
	int e = errno;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if ((e == ENOENT || e == ENOTDIR || e == ESTALE || e == ENOTCONN) && !still_there(b))
		return ng_fail(err, NG_IOERR, "%s: the blackboard '%s' has vanished", text, ng_dir_of(b)->path);
	errno = e;
	return ng_fail_errno(err, NG_IOERR, "%s", text);
}

/* ---- opening ---- */

/* In group mode the folder's mode is that of git's core.sharedRepository. */
static int make_experiment(struct ng_board *b, unsigned flags, const char *path, struct ng_err *err)
{
	struct stat st;

	if (ng_mkdirs(b->address, 0777, err) < 0)
		return ng_fail_prefix(err, "cannot make the blackboard");
	if (mkdir(path, 0777) < 0)
		return errno == EEXIST ? 0 : ng_fail_errno(err, NG_IOERR, "cannot create '%s'", path);
	if (!(flags & (NG_BOARD_GROUP | NG_BOARD_ALL)))
		return 0;
	if (stat(path, &st) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
	mode_t mode = (st.st_mode & 0777) | S_ISGID | 0770 | (flags & NG_BOARD_ALL ? 0005 : 0);
	if (chmod(path, mode) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot set the mode of '%s'", path);
	return 0;
}

static int dir_open(struct ng_board *b, unsigned flags, struct ng_err *err)
{
	struct ng_dir *d;
	struct stat st;
	char *path = NULL, *real;
	int fd = -1, rc = -1;

	path = ng_xasprintf("%s/%s", b->address, b->experiment);
	if (flags & NG_BOARD_CREATE && make_experiment(b, flags, path, err) < 0)
		goto out;
	real = realpath(b->address, NULL);
	if (!real) {
		ng_fail_errno(err, NG_NOINPUT, "no blackboard at '%s'", b->address);
		goto out;
	}
	free(b->address);
	b->address = real;
	free(path);
	path = ng_xasprintf("%s/%s", b->address, b->experiment);
	fd = open(path, FOLDER | O_NOFOLLOW);
	if (fd < 0) {
		if (errno == ENOENT)
			ng_fail(err, NG_NOINPUT, "there is no experiment '%s' on the blackboard '%s'", b->experiment,
				b->address);
		else
			ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
		goto out;
	}
	if (fstat(fd, &st) < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
		close(fd);
		goto out;
	}
	d = ng_xcalloc(1, sizeof *d);
	d->fd = fd;
	d->tmp = -1;
	d->mode = st.st_mode & 07777;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	d->path = path;
	path = NULL;
	b->impl = d;
	rc = 0;
out:
	free(path);
	return rc;
}

static void dir_close(struct ng_board *b)
{
	struct ng_dir *d = ng_dir_of(b);

	if (d->tmp >= 0)
		close(d->tmp);
	close(d->fd);
	free(d->path);
	free(d);
	b->impl = NULL;
}

/* ---- names and folders ---- */

int ng_dir_mkdirat(const struct ng_board *b, int dirfd, const char *name)
{
	const struct ng_dir *d = ng_dir_of(b);
	struct stat st;

	if (mkdirat(dirfd, name, d->mode & 0777) < 0)
		return errno == EEXIST ? 0 : -1;
	/* the umask may have taken what the group needs; where the mode cannot be
	 * had (another group, a file system without), the folder still is one */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & 07777) != d->mode)
		(void)!fchmodat(dirfd, name, d->mode, 0);
	return 0;
}

static void number_text(char out[24], long n)
{
	snprintf(out, 24, "%05ld", n);
}

int ng_dir_parent(const struct ng_board *b, const struct ng_name *name, char leaf[80], bool create)
{
	const char *kind = ng_object_kind_name(name->kind);
	char number[24];
	int fd, sub;

	number_text(number, name->n);
	if (name->kind == NG_OBJ_BASE) {
		snprintf(leaf, 80, "%s", kind);
		return fcntl(ng_dir_of(b)->fd, F_DUPFD_CLOEXEC, 0);
	}
	if (create && ng_dir_mkdirat(b, ng_dir_of(b)->fd, kind) < 0)
		return -1;
	fd = ng_dir_openat(ng_dir_of(b)->fd, kind);
	if (fd < 0 || !name->leaf[0]) {
		snprintf(leaf, 80, "%s", number);
		return fd;
	}
	snprintf(leaf, 80, "%s", name->leaf);
	sub = create && ng_dir_mkdirat(b, fd, number) < 0 ? -1 : ng_dir_openat(fd, number);
	int saved = errno;
	if (create && sub >= 0)
		fsync(fd); /* the new name; where it is lost, so is what follows, and the writer sees that */
	close(fd);
	errno = saved;
	return sub;
}

int ng_dir_tmp(const struct ng_board *b, struct ng_err *err)
{
	struct ng_dir *d = ng_dir_of(b);

	if (d->tmp >= 0)
		return 0;
	if (ng_dir_mkdirat(b, d->fd, NG_DIR_TMP) < 0)
		return ng_dir_fail(b, err, "cannot create '%s/%s'", d->path, NG_DIR_TMP);
	d->tmp = ng_dir_openat(d->fd, NG_DIR_TMP);
	if (d->tmp < 0)
		return ng_dir_fail(b, err, "cannot open '%s/%s'", d->path, NG_DIR_TMP);
	return 0;
}

void ng_dir_temp_name(char out[160], const struct ng_name *name)
{
	unsigned char bytes[8];
	char path[128], hex[17];

	randombytes_buf(bytes, sizeof bytes);
	ng_hex(hex, bytes, sizeof bytes);
	ng_object_path(path, name);
	for (char *p = path; *p; p++)
		if (*p == '/')
			*p = '-';
	snprintf(out, 160, "%s.%s", path, hex);
}

int ng_dir_rename_new(int fromfd, const char *from, int tofd, const char *to)
{
#if defined(__linux__) && defined(SYS_renameat2)
	if (syscall(SYS_renameat2, fromfd, from, tofd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
#endif
	/* No such call on this file system (NFS): what we rename is a folder, which
	 * never replaces a folder that is not empty or a file, and an object's is
	 * never empty. */
	if (renameat(fromfd, from, tofd, to) == 0)
		return 0;
	if (errno == ENOTEMPTY || errno == ENOTDIR)
		errno = EEXIST;
	return -1;
}

static int empty_folder(int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!dir) {
		close(fd);
		return -1;
	}
	while ((e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (ng_dir_remove_tree(fd, e->d_name) < 0)
			rc = -1;
	}
	int saved = errno;
	closedir(dir);
	errno = saved;
	return rc;
}

int ng_dir_remove_tree(int dirfd, const char *name)
{
	int fd;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	fd = ng_dir_openat(dirfd, name);
	if (fd < 0)
		return -1;
	(void)!empty_folder(fd);
	return unlinkat(dirfd, name, AT_REMOVEDIR);
}

/* ---- listing ---- */

/* "00003": at least five digits, no more zeroes than that asks for. */
static bool parse_number(long *out, const char *s)
{
	char again[24];
	long long v;

	if (strlen(s) < 5 || !ng_parse_long(&v, s, 0, NG_NUMBER_MAX))
		return false;
	number_text(again, (long)v);
	*out = (long)v;
	return strcmp(again, s) == 0;
}

bool ng_dir_part_number(long *out, const char *name)
{
	return strncmp(name, "part-", 5) == 0 && parse_number(out, name + 5);
}

int ng_dir_measure(int fd, struct ng_entry *e)
{
	struct stat st;
	struct dirent *d;
	long n, highest = -1;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), rc = -1;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	e->bytes = 0;
	e->parts = 0;
	if (!dir) {
		if (copy >= 0)
			close(copy);
		return -1;
	}
	rewinddir(dir);
	while ((errno = 0, d = readdir(dir)) != NULL) {
		if (!ng_dir_part_number(&n, d->d_name) || n >= NG_PARTS_MAX)
			continue;
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		e->parts++;
		e->bytes += (uint64_t)st.st_size;
		highest = n > highest ? n : highest;
	}
	if (errno != 0)
		goto out;
	if (fstatat(fd, NG_DIR_SIGNATURE, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || highest < 0 ||
		(size_t)highest + 1 != e->parts) {
		errno = 0;
		goto out;
	}
	e->mtime = (long long)st.st_mtime;
	rc = 0;
out:;
	int saved = errno;
	closedir(dir);
	errno = saved;
	return rc;
}

struct list {
	struct ng_board *b;
	struct ng_entry **out;
	size_t *count, cap, *odd;
	enum ng_object_kind kind;
};

/* What a host lacks or a disk refuses says nothing about an object: it must not
 * look absent then.  What other users' folders do to us (EACCES, ELOOP) must not
 * stop a round. */
static bool our_trouble(int error)
{
	return error == ENOMEM || error == EIO || error == EMFILE || error == ENFILE || error == ESTALE;
}

static int add(struct list *l, int dirfd, const char *entry, long n, const char *leaf, struct ng_err *err)
{
	struct ng_entry e = { .name = { .kind = l->kind, .n = n } };
	struct stat st;
	bool ok;

	errno = 0;
	if (leaf)
		memcpy(e.name.leaf, leaf, strlen(leaf) + 1);
	if (l->kind == NG_OBJ_CLAIM) {
		ok = fstatat(dirfd, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		     st.st_size <= NG_DIR_CLAIM_MAX;
		e.bytes = ok ? (uint64_t)st.st_size : 0;
		e.parts = 1;
		e.mtime = ok ? (long long)st.st_mtime : 0;
	} else {
		int fd = ng_dir_openat(dirfd, entry);
		ok = fd >= 0 && ng_dir_measure(fd, &e) == 0;
		int saved = errno;
		if (fd >= 0)
			close(fd);
		errno = saved;
	}
	if (!ok && our_trouble(errno))
		return ng_dir_fail(
			l->b, err, "cannot read '%s/%s'", ng_dir_of(l->b)->path, ng_object_kind_name(l->kind));
	if (!ok) {
		++*l->odd;
		return 0;
	}
	ng_grow(l->out, &l->cap, *l->count + 1, sizeof **l->out);
	(*l->out)[(*l->count)++] = e;
	return 0;
}

static bool skip(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The folder of one round: an object for each site (or digest). Takes fd. */
static int list_round(struct list *l, int fd, long n, struct ng_err *err)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!dir) {
		close(fd);
		return ng_dir_fail(l->b, err, "cannot read '%s'", ng_dir_of(l->b)->path);
	}
	while (rc == 0 && (errno = 0, e = readdir(dir)) != NULL) {
		if (skip(e->d_name))
			continue;
		if (l->kind == NG_OBJ_STATE ? ng_hash_valid(e->d_name) : ng_name_valid(e->d_name))
			rc = add(l, fd, e->d_name, n, e->d_name, err);
		else
			++*l->odd;
	}
	if (rc == 0 && errno != 0)
		rc = ng_dir_fail(l->b, err, "cannot read '%s'", ng_dir_of(l->b)->path);
	closedir(dir);
	return rc;
}

static int list_kind(struct list *l, int fd, long wanted, bool leaves, struct ng_err *err)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!dir) {
		close(fd);
		return ng_dir_fail(l->b, err, "cannot read '%s'", ng_dir_of(l->b)->path);
	}
	while (rc == 0 && (errno = 0, e = readdir(dir)) != NULL) {
		long n;
		if (skip(e->d_name))
			continue;
		if (!parse_number(&n, e->d_name)) {
			++*l->odd;
			continue;
		}
		if (wanted >= 0 && n != wanted)
			continue;
		if (!leaves) {
			rc = add(l, fd, e->d_name, n, NULL, err);
			errno = 0;
			continue;
		}
		int sub = ng_dir_openat(fd, e->d_name);
		if (sub >= 0)
			rc = list_round(l, sub, n, err);
		else if (errno == ENOENT)
			continue; /* pruned in between */
		else if (our_trouble(errno))
			rc = ng_dir_fail(l->b, err, "cannot read '%s'", ng_dir_of(l->b)->path);
		else
			++*l->odd;
		errno = 0;
	}
	if (rc == 0 && errno != 0)
		rc = ng_dir_fail(l->b, err, "cannot read '%s'", ng_dir_of(l->b)->path);
	closedir(dir);
	return rc;
}

static int dir_list(struct ng_board *b, enum ng_object_kind kind, long n, struct ng_entry **out, size_t *count,
	size_t *odd, struct ng_err *err)
{
	struct list l = { .b = b, .out = out, .count = count, .odd = odd, .kind = kind };
	const char *name = ng_object_kind_name(kind);
	bool leaves = kind == NG_OBJ_UPDATE || kind == NG_OBJ_METRICS || kind == NG_OBJ_STATE || kind == NG_OBJ_CLAIM;
	struct stat st;
	int fd;

	if (kind == NG_OBJ_BASE) {
		if (fstatat(ng_dir_of(b)->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return add(&l, ng_dir_of(b)->fd, name, 0, NULL, err);
		else if (errno != ENOENT || !still_there(b))
			return ng_dir_fail(b, err, "cannot look at '%s/%s'", ng_dir_of(b)->path, name);
		return 0;
	}
	fd = ng_dir_openat(ng_dir_of(b)->fd, name);
	if (fd < 0) {
		/* no object of this kind yet, unless the board itself is gone */
		if (errno == ENOENT && still_there(b))
			return 0;
		return ng_dir_fail(b, err, "cannot read '%s/%s'", ng_dir_of(b)->path, name);
	}
	return list_kind(&l, fd, n, leaves, err);
}

/* ---- removing ---- */

/* Readers see the object whole or not at all: it is renamed away first. */
static int dir_remove(struct ng_board *b, const struct ng_name *name, struct ng_err *err)
{
	char leaf[80], temp[160], path[128], number[24];
	int parent, rc = 0;

	if (ng_dir_tmp(b, err) < 0)
		return -1;
	ng_object_path(path, name);
	parent = ng_dir_parent(b, name, leaf, false);
	if (parent < 0)
		return errno == ENOENT && still_there(b) ? 0 : ng_dir_fail(b, err, "cannot remove '%s'", path);
	ng_dir_temp_name(temp, name);
	if (renameat(parent, leaf, ng_dir_of(b)->tmp, temp) < 0) {
		if (errno != ENOENT)
			rc = ng_dir_fail(b, err, "cannot remove '%s'", path);
	} else if (ng_dir_remove_tree(ng_dir_of(b)->tmp, temp) < 0) {
		/* out of the way already; the next tidying removes the rest */
		rc = errno == ENOENT ? 0 : ng_dir_fail(b, err, "cannot remove '%s'", path);
	}
	close(parent);
	if (rc == 0 && name->leaf[0]) { /* the round's folder, if that was its last */
		int kind = ng_dir_openat(ng_dir_of(b)->fd, ng_object_kind_name(name->kind));
		number_text(number, name->n);
		if (kind >= 0) {
			(void)!unlinkat(kind, number, AT_REMOVEDIR);
			close(kind);
		}
	}
	return rc;
}

/* The newest of a temporary and what lies in it: one that is being written is young. */
static time_t newest(int dirfd, const char *name)
{
	struct stat st;
	struct dirent *e;
	time_t t;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	t = st.st_mtime > st.st_ctime ? st.st_mtime : st.st_ctime;
	if (!S_ISDIR(st.st_mode) || (fd = ng_dir_openat(dirfd, name)) < 0)
		return t;
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return t;
	}
	while ((e = readdir(dir)) != NULL)
		if (!skip(e->d_name) && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime > t)
			t = st.st_mtime;
	closedir(dir);
	return t;
}

/* What the board's clock says: hosts may disagree. 0 when it cannot be asked. */
static time_t board_now(const struct ng_board *b)
{
	struct ng_name any = { .kind = NG_OBJ_BASE };
	struct stat st;
	char temp[160];
	int fd;

	ng_dir_temp_name(temp, &any);
	fd = openat(ng_dir_of(b)->tmp, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0)
		st.st_mtime = 0;
	close(fd);
	(void)!unlinkat(ng_dir_of(b)->tmp, temp, 0);
	return st.st_mtime;
}

static void dir_tidy(struct ng_board *b, long age, long *removed)
{
	struct dirent *e;
	time_t now;
	int fd;

	if (ng_dir_tmp(b, NULL) < 0 || (now = board_now(b)) == 0)
		return;
	fd = ng_dir_openat(ng_dir_of(b)->fd, NG_DIR_TMP);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(dir)) != NULL)
		if (!skip(e->d_name) && newest(fd, e->d_name) < now - age && ng_dir_remove_tree(fd, e->d_name) == 0)
			++*removed;
	closedir(dir);
}

const struct ng_board_ops ng_board_dir = {
	.name = "directory",
	.open = dir_open,
	.close = dir_close,
	.list = dir_list,
	.object_open = ng_dir_object_open,
	.object_close = ng_dir_object_close,
	.object_read = ng_dir_object_read,
	.object_rewind = ng_dir_object_rewind,
	.object_file = ng_dir_object_file,
	.object_discard = ng_dir_object_discard,
	.writer_open = ng_dir_writer_open,
	.writer_write = ng_dir_writer_write,
	.writer_file = ng_dir_writer_file,
	.writer_commit = ng_dir_writer_commit,
	.writer_close = ng_dir_writer_close,
	.remove = dir_remove,
	.tidy = dir_tidy,
};
