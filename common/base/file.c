#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

ptrdiff_t ng_read_full(int fd, void *buf, size_t n)
{
	size_t got = 0;
	ssize_t r;

	while (got < n) {
		r = read(fd, (char *)buf + got, n - got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ptrdiff_t)got;
}

int ng_write_full(int fd, const void *buf, size_t n)
{
	size_t put = 0;
	ssize_t r;

	while (put < n) {
		r = write(fd, (const char *)buf + put, n - put);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		put += (size_t)r;
	}
	return 0;
}

static enum ng_code code_of_open(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EACCES || error == ELOOP || error == ENAMETOOLONG
		       ? NG_NOINPUT
		       : NG_IOERR;
}

int ng_file_read(char **out, size_t *len, const char *path, size_t max, struct ng_err *err)
{
	struct stat st;
	size_t cap, n = 0;
	ptrdiff_t got;
	char *buf = NULL;
	int fd, r = -1;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ng_fail_errno(err, code_of_open(errno), "cannot open '%s'", path);
	if (fstat(fd, &st) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
		goto out;
	}
	if (S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		ng_fail_errno(err, NG_NOINPUT, "cannot read '%s'", path);
		goto out;
	}
	/* the size is only where to begin: a pipe and /proc say 0 */
	cap = st.st_size > 0 && (uint64_t)st.st_size <= max ? (size_t)st.st_size + 1 : 4096;
	buf = ng_xmalloc(cap + 1);
	for (;;) {
		got = ng_read_full(fd, buf + n, cap - n);
		if (got < 0) {
			ng_fail_errno(err, NG_IOERR, "cannot read '%s'", path);
			goto out;
		}
		n += (size_t)got;
		if (n > max) {
			ng_fail(err, NG_DATA, "'%s' is larger than %zu bytes", path, max);
			goto out;
		}
		if (n < cap)
			break;
		cap *= 2;
		buf = ng_xrealloc(buf, cap + 1, 1);
	}
	buf[n] = 0;
	*out = buf;
	if (len)
		*len = n;
	buf = NULL;
	r = 0;
out:
	free(buf);
	close(fd);
	return r;
}

int ng_mkdirs(const char *path, unsigned mode, struct ng_err *err)
{
	char *p = ng_xstrdup(path);
	struct stat st;
	size_t i;
	char end;
	int r = 0;

	for (i = 1; p[0] != 0; i++) {
		if (p[i] != '/' && p[i] != 0)
			continue;
		end = p[i];
		p[i] = 0;
		if (mkdir(p, (mode_t)mode) != 0 && (errno != EEXIST || stat(p, &st) != 0 || !S_ISDIR(st.st_mode))) {
			if (errno == EEXIST)
				errno = ENOTDIR;
			if (stat(p, &st) != 0 || !S_ISDIR(st.st_mode)) { /* EROFS for one that is there */
				r = ng_fail_errno(err, NG_IOERR, "cannot create the folder '%s'", p);
				break;
			}
		}
		p[i] = end;
		if (end == 0)
			break;
	}
	free(p);
	return r;
}

int ng_fsync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r, saved;

	if (fd < 0)
		return errno == EACCES ? 0 : -1; /* a drop box that may be written but not read */
	r = fsync(fd);
	saved = errno;
	close(fd);
	if (r != 0 && (saved == EINVAL || saved == ENOTSUP))
		return 0; /* this file system has no such thing */
	errno = saved;
	return r;
}

bool ng_file_exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

static int remove_at(int at, const char *name)
{
	struct stat st;
	struct dirent *d;
	DIR *dir;
	int fd, r = 0, saved;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(at, name, 0);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	dir = fdopendir(fd);
	if (dir == NULL) {
		close(fd);
		return -1;
	}
	while (r == 0 && (d = readdir(dir)) != NULL)
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = remove_at(fd, d->d_name);
	saved = errno;
	closedir(dir);
	errno = saved;
	return r == 0 ? unlinkat(at, name, AT_REMOVEDIR) : -1;
}

int ng_remove_tree(const char *path)
{
	return remove_at(AT_FDCWD, path);
}

int ng_lock(int *out_fd, const char *path, struct ng_err *err)
{
	struct flock lock;
	struct stat a, b;
	int fd;

	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot open the lock '%s'", path);
		memset(&lock, 0, sizeof lock);
		lock.l_type = F_WRLCK;
		lock.l_whence = SEEK_SET;
		if (fcntl(fd, F_SETLK, &lock) != 0) {
			if (errno == EACCES || errno == EAGAIN) {
				if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
					ng_fail(err, NG_TEMPFAIL, "the lock '%s' is held by process %ld", path,
						(long)lock.l_pid);
				else
					ng_fail(err, NG_TEMPFAIL, "the lock '%s' is held by another process", path);
			} else {
				ng_fail_errno(err, NG_OSERR, "cannot lock '%s'", path);
			}
			close(fd);
			return -1;
		}
		/* somebody may have removed the file between our open and our lock */
		if (fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
			break;
		close(fd);
	}
	*out_fd = fd;
	return 0;
}

void ng_unlock(int fd)
{
	if (fd >= 0)
		close(fd);
}

int ng_state_path(char **out, const char *given, const char *sub, struct ng_err *err)
{
	const char *env, *tail = "";
	char *path;

	if (given && given[0]) {
		env = given;
	} else if ((env = getenv("NG_STATE")) != NULL && env[0]) {
		;
	} else if ((env = getenv("XDG_STATE_HOME")) != NULL && env[0] == '/') {
		tail = "/ng"; /* a relative one is to be ignored, says XDG */
	} else if ((env = getenv("HOME")) != NULL && env[0]) {
		tail = "/.local/state/ng";
	} else {
		return ng_fail(err, NG_USAGE, "no state folder: give --state, or set NG_STATE or HOME");
	}
	path = ng_xasprintf("%s%s%s%s", env, tail, sub ? "/" : "", sub ? sub : "");
	if (ng_mkdirs(path, 0700, err)) {
		free(path);
		return -1;
	}
	*out = path;
	return 0;
}
