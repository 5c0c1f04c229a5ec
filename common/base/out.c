#define _DEFAULT_SOURCE /* syscall */
#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/base/sig.h"
#include "common/base/sig_private.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#endif

static mode_t current_umask(void)
{
	mode_t m = umask(077);

	umask(m);
	return m;
}

/* The directory that holds path: "a/b" -> "a", "b" -> ".". */
static char *parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return ng_xstrdup(".");
	return ng_xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* rename that fails with EEXIST rather than replace. */
static int rename_new(const char *from, const char *to)
{
	struct stat st;

#if defined(__linux__) && defined(SYS_renameat2)
	if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
#endif
	/* no such call on this file system.  Between the look and the rename only
	 * an empty directory or a file could be replaced. */
	if (lstat(to, &st) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(from, to);
}

static void forget(struct ng_out *out)
{
	if (out->slot >= 0)
		ng_sig_release(out->slot);
	free(out->path);
	free(out->temp);
	memset(out, 0, sizeof *out);
	out->fd = -1;
	out->slot = -1;
}

/* What is there and is no regular file (a terminal, /dev/full, a FIFO) is
 * written to as it is: a rename would replace the device. */
static int open_special(struct ng_out *out, const char *path, struct ng_err *err)
{
	out->fd = open(path, O_WRONLY | O_CLOEXEC);
	if (out->fd < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot open '%s'", path);
	out->path = ng_xstrdup(path);
	return 0;
}

static int open_temp(struct ng_out *out, const char *path, struct ng_err *err)
{
	sigset_t old;
	char *real = NULL;
	struct stat st;

	/* a symbolic link keeps pointing at what it points at */
	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		real = realpath(path, NULL);
	out->path = ng_xstrdup(real ? real : path);
	free(real);
	out->temp = ng_xasprintf("%s.ng-XXXXXX", out->path);
	ng_sig_block(&old);
	out->fd = mkstemp(out->temp);
	if (out->fd >= 0)
		out->slot = ng_sig_guard(out->temp);
	ng_sig_restore(&old);
	if (out->fd < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot create '%s'", path);
		forget(out);
		return -1;
	}
	fcntl(out->fd, F_SETFD, FD_CLOEXEC);
	if (fchmod(out->fd, 0666 & ~current_umask()) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot set the mode of '%s'", out->temp);
		ng_out_abort(out);
		return -1;
	}
	return 0;
}

int ng_out_open(struct ng_out *out, const char *path, struct ng_err *err)
{
	struct stat st;
	int r;

	memset(out, 0, sizeof *out);
	out->fd = -1;
	out->slot = -1;
	if (strcmp(path, "-") == 0) {
		out->path = ng_xstrdup("-");
		out->fd = STDOUT_FILENO;
		out->fp = stdout;
		return 0;
	}
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return ng_fail_errno(err, NG_IOERR, "cannot create '%s'", path);
	}
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		r = open_special(out, path, err);
	else
		r = open_temp(out, path, err);
	if (r)
		return -1;
	out->fp = fdopen(out->fd, "wb");
	if (out->fp == NULL) {
		ng_fail_errno(err, NG_OSERR, "cannot open '%s'", path);
		ng_out_abort(out);
		return -1;
	}
	return 0;
}

static int sync_parent(const char *path, struct ng_err *err)
{
	char *dir = parent(path);
	int r = 0;

	if (ng_fsync_dir(dir) != 0)
		r = ng_fail_errno(err, NG_IOERR, "cannot sync the folder of '%s'", path);
	free(dir);
	return r;
}

/* Give temp its name.  0, or -1 with err. */
static int publish(struct ng_out *out, struct ng_err *err)
{
	if (!out->keep) {
		if (rename(out->temp, out->path) != 0)
			return ng_fail_errno(err, NG_IOERR, "cannot rename to '%s'", out->path);
		return 0;
	}
	if (link(out->temp, out->path) == 0) {
		unlink(out->temp);
		return 0;
	}
	if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK) /* no hard links here */
		if (rename_new(out->temp, out->path) == 0)
			return 0;
	if (errno == EEXIST)
		return ng_fail(err, NG_NOTHING, "'%s' exists already", out->path);
	return ng_fail_errno(err, NG_IOERR, "cannot link '%s'", out->path);
}

int ng_out_commit(struct ng_out *out, struct ng_err *err)
{
	bool standard = out->fp == stdout;
	int r;

	if (out->fp == NULL)
		return ng_fail(err, NG_SOFTWARE, "commit of an output that is not open");
	if (fflush(out->fp) != 0 || ferror(out->fp)) {
		ng_fail_errno(err, NG_IOERR, "cannot write '%s'", standard ? "standard output" : out->path);
		goto bad;
	}
	if (standard) {
		forget(out);
		return 0;
	}
	if (out->temp && fsync(out->fd) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot sync '%s'", out->path);
		goto bad;
	}
	r = fclose(out->fp);
	out->fp = NULL;
	out->fd = -1;
	if (r != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot close '%s'", out->path);
		goto bad;
	}
	if (out->temp == NULL) {
		forget(out);
		return 0;
	}
	if (publish(out, err))
		goto bad;
	r = sync_parent(out->path, err);
	forget(out);
	return r;
bad:
	ng_out_abort(out);
	return -1;
}

void ng_out_abort(struct ng_out *out)
{
	int saved = errno;

	if (out->path == NULL && out->temp == NULL)
		return;
	if (out->fp != NULL && out->fp != stdout)
		fclose(out->fp);
	else if (out->fp == NULL && out->fd >= 0 && out->fd != STDOUT_FILENO)
		close(out->fd);
	if (out->temp)
		unlink(out->temp);
	forget(out);
	errno = saved;
}

int ng_out_put(const char *path, const void *data, size_t len, unsigned mode, struct ng_err *err)
{
	struct ng_out out;

	if (ng_out_open(&out, path, err))
		return -1;
	if (mode != 0 && out.temp && fchmod(out.fd, (mode_t)mode) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot set the mode of '%s'", path);
		ng_out_abort(&out);
		return -1;
	}
	if (len && fwrite(data, 1, len, out.fp) != len) {
		ng_fail_errno(err, NG_IOERR, "cannot write '%s'", path);
		ng_out_abort(&out);
		return -1;
	}
	return ng_out_commit(&out, err);
}

static void dir_forget(struct ng_outdir *out)
{
	if (out->slot >= 0)
		ng_sig_release(out->slot);
	free(out->path);
	free(out->temp);
	memset(out, 0, sizeof *out);
	out->slot = -1;
}

int ng_outdir_open(struct ng_outdir *out, const char *path, struct ng_err *err)
{
	sigset_t old;
	size_t n = strlen(path);
	char *made;

	memset(out, 0, sizeof *out);
	out->slot = -1;
	while (n > 1 && path[n - 1] == '/')
		n--;
	out->path = ng_xstrndup(path, n);
	out->temp = ng_xasprintf("%s.ng-XXXXXX", out->path);
	ng_sig_block(&old);
	made = mkdtemp(out->temp);
	if (made)
		out->slot = ng_sig_guard(out->temp);
	ng_sig_restore(&old);
	if (made == NULL) {
		ng_fail_errno(err, NG_IOERR, "cannot create the folder '%s'", path);
		dir_forget(out);
		return -1;
	}
	if (chmod(out->temp, 0777 & ~current_umask()) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot set the mode of '%s'", out->temp);
		ng_outdir_abort(out);
		return -1;
	}
	return 0;
}

static int sync_tree(const char *path, struct ng_err *err)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	struct stat st;
	int r = 0, fd;

	if (dir == NULL)
		return ng_fail_errno(err, NG_IOERR, "cannot read the folder '%s'", path);
	while (r == 0 && (d = readdir(dir)) != NULL) {
		char *p;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		p = ng_xasprintf("%s/%s", path, d->d_name);
		if (lstat(p, &st) != 0) {
			r = ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", p);
		} else if (S_ISDIR(st.st_mode)) {
			r = sync_tree(p, err);
		} else if (S_ISREG(st.st_mode)) {
			fd = open(p, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
			if (fd < 0 || fsync(fd) != 0)
				r = ng_fail_errno(err, NG_IOERR, "cannot sync '%s'", p);
			if (fd >= 0)
				close(fd);
		}
		free(p);
	}
	closedir(dir);
	if (r == 0 && ng_fsync_dir(path) != 0)
		r = ng_fail_errno(err, NG_IOERR, "cannot sync the folder '%s'", path);
	return r;
}

int ng_outdir_commit(struct ng_outdir *out, struct ng_err *err)
{
	int r;

	if (out->temp == NULL)
		return ng_fail(err, NG_SOFTWARE, "commit of a folder that is not open");
	if (sync_tree(out->temp, err))
		goto bad;
	if (rename_new(out->temp, out->path) != 0) {
		if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR || errno == EISDIR)
			ng_fail(err, NG_NOTHING, "'%s' exists already", out->path);
		else
			ng_fail_errno(err, NG_IOERR, "cannot rename to '%s'", out->path);
		goto bad;
	}
	r = sync_parent(out->path, err);
	dir_forget(out);
	return r;
bad:
	ng_outdir_abort(out);
	return -1;
}

void ng_outdir_abort(struct ng_outdir *out)
{
	int saved = errno;

	if (out->temp == NULL)
		return;
	ng_remove_tree(out->temp);
	dir_forget(out);
	errno = saved;
}
