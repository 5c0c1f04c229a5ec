/*
 * fault.c - LD_PRELOADed: fails the n-th call of one function.
 *
 *     NG_FAULT=write:3:ENOSPC   the third write fails with ENOSPC, once
 *     NG_FAULT=write:3+:ENOSPC  the third and every later one
 *     NG_FAULT=write:2:KILL     the process kills itself before the second write
 *     NG_FAULT=write:2:SHORT    the second write takes half of its bytes
 *
 * Functions: open read write fsync rename link unlink mkdir malloc; each counts
 * its family (pread; pwrite, writev; fdatasync; renameat2; ...).  What stdio
 * writes reaches write(2) inside libc, where no shim sees it; fdopen and fopen
 * for writing are therefore replaced by a cookie stream on our write.  Calls on
 * descriptors 0 to 2 are not counted: /dev/full is the test for those.
 *
 * NG_FAULT_PROGRAM=ng-push keeps the fault to programs of that name.
 * NG_FAULT_LOG=file gets a line when the fault struck, so that a test which
 * counts n upwards knows when there is no n-th call any more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char function[16];
static long nth;
static bool onwards, armed;
static int error_number; /* 0: SHORT, -1: KILL */
static atomic_long count;
static const char *log_path;

#define REAL(type, name, ...)             \
	static type (*real)(__VA_ARGS__); \
	if (real == NULL)                 \
	*(void **)&real = dlsym(RTLD_NEXT, name)

static long raw_write(int fd, const void *p, size_t n)
{
	return syscall(SYS_write, fd, p, n);
}

__attribute__((constructor)) static void arm(void)
{
	static const struct {
		const char *name;
		int number;
	} errors[] = { { "ENOSPC", ENOSPC }, { "EIO", EIO }, { "EROFS", EROFS }, { "EACCES", EACCES },
		{ "EDQUOT", EDQUOT }, { "ENOMEM", ENOMEM }, { "EINTR", EINTR }, { "ENOENT", ENOENT },
		{ "EPERM", EPERM }, { "SHORT", 0 }, { "KILL", -1 } };
	const char *spec = getenv("NG_FAULT"), *only = getenv("NG_FAULT_PROGRAM"), *colon;
	char *end;
	size_t i;

	log_path = getenv("NG_FAULT_LOG");
	if (spec == NULL || (only && strcmp(only, program_invocation_short_name) != 0))
		return;
	colon = strchr(spec, ':');
	if (colon == NULL || (size_t)(colon - spec) >= sizeof function)
		goto bad;
	memcpy(function, spec, (size_t)(colon - spec));
	nth = strtol(colon + 1, &end, 10);
	onwards = *end == '+';
	end += onwards;
	if (nth < 1 || *end != ':')
		goto bad;
	for (i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (strcmp(errors[i].name, end + 1) == 0) {
			error_number = errors[i].number;
			armed = true;
			return;
		}
bad:
	fprintf(stderr, "fault.so: cannot read NG_FAULT '%s'\n", spec);
	_exit(99);
}

/* True when this call is to fail. */
static bool strikes(const char *name)
{
	char line[64];
	long c;
	int fd, saved = errno;

	if (!armed || strcmp(name, function) != 0)
		return false;
	c = atomic_fetch_add(&count, 1) + 1;
	if (c != nth && !(onwards && c > nth))
		return false;
	if (log_path) {
		fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
		if (fd >= 0) {
			int n = snprintf(line, sizeof line, "%s %ld\n", name, c);

			raw_write(fd, line, (size_t)n);
			syscall(SYS_close, fd);
		}
	}
	if (error_number == -1)
		kill(getpid(), SIGKILL);
	errno = error_number > 0 ? error_number : saved;
	return true;
}

ssize_t write(int fd, const void *p, size_t n)
{
	if (fd > 2 && strikes("write")) {
		if (error_number != 0)
			return -1;
		n = n / 2 + n % 2;
	}
	return raw_write(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
	REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
	if (fd > 2 && strikes("write")) {
		if (error_number != 0)
			return -1;
		n = n / 2 + n % 2;
	}
	return real(fd, p, n, at);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	REAL(ssize_t, "writev", int, const struct iovec *, int);
	return fd > 2 && strikes("write") && error_number != 0 ? -1 : real(fd, v, n);
}

ssize_t read(int fd, void *p, size_t n)
{
	REAL(ssize_t, "read", int, void *, size_t);
	if (fd > 2 && strikes("read")) {
		if (error_number != 0)
			return -1;
		n = n / 2 + n % 2;
	}
	return real(fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
	REAL(ssize_t, "pread", int, void *, size_t, off_t);
	if (fd > 2 && strikes("read")) {
		if (error_number != 0)
			return -1;
		n = n / 2 + n % 2;
	}
	return real(fd, p, n, at);
}

int open(const char *path, int flags, ...)
{
	REAL(int, "open", const char *, int, ...);
	va_list args;
	mode_t mode = 0;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return strikes("open") ? -1 : real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	REAL(int, "openat", int, const char *, int, ...);
	va_list args;
	mode_t mode = 0;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return strikes("open") ? -1 : real(dir, path, flags, mode);
}

int mkstemp(char *template)
{
	REAL(int, "mkstemp", char *);
	return strikes("open") ? -1 : real(template);
}

char *mkdtemp(char *template)
{
	REAL(char *, "mkdtemp", char *);
	return strikes("mkdir") ? NULL : real(template);
}

int fsync(int fd)
{
	REAL(int, "fsync", int);
	return strikes("fsync") ? -1 : real(fd);
}

int fdatasync(int fd)
{
	REAL(int, "fdatasync", int);
	return strikes("fsync") ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
	REAL(int, "rename", const char *, const char *);
	return strikes("rename") ? -1 : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to)
{
	REAL(int, "renameat", int, const char *, int, const char *);
	return strikes("rename") ? -1 : real(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
	return strikes("rename") ? -1 : real(a, from, b, to, flags);
}

long syscall(long number, ...)
{
	REAL(long, "syscall", long, ...);
	long a[6];
	va_list args;
	int i;

	va_start(args, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_renameat2 && strikes("rename"))
		return -1;
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int link(const char *from, const char *to)
{
	REAL(int, "link", const char *, const char *);
	return strikes("link") ? -1 : real(from, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
	REAL(int, "linkat", int, const char *, int, const char *, int);
	return strikes("link") ? -1 : real(a, from, b, to, flags);
}

int unlink(const char *path)
{
	REAL(int, "unlink", const char *);
	return strikes("unlink") ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode)
{
	REAL(int, "mkdir", const char *, mode_t);
	return strikes("mkdir") ? -1 : real(path, mode);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	REAL(int, "mkdirat", int, const char *, mode_t);
	return strikes("mkdir") ? -1 : real(dir, path, mode);
}

/* ---- stdio ---- */

static ssize_t cookie_write(void *cookie, const char *p, size_t n)
{
	size_t put = 0;
	ssize_t r;

	while (put < n) {
		r = write((int)(intptr_t)cookie, p + put, n - put);
		if (r < 0)
			return 0; /* fopencookie: 0 is the error */
		put += (size_t)r;
	}
	return (ssize_t)put;
}

static int cookie_close(void *cookie)
{
	return close((int)(intptr_t)cookie);
}

static int cookie_seek(void *cookie, off64_t *at, int whence)
{
	off64_t r = lseek((int)(intptr_t)cookie, *at, whence);

	if (r < 0)
		return -1;
	*at = r;
	return 0;
}

static FILE *cookie_stream(int fd, const char *mode)
{
	static const cookie_io_functions_t f = { NULL, cookie_write, cookie_seek, cookie_close };

	return fopencookie((void *)(intptr_t)fd, mode, f);
}

static bool watched(const char *mode)
{
	return armed && strcmp(function, "write") == 0 && mode[0] == 'w' && strchr(mode, '+') == NULL;
}

FILE *fdopen(int fd, const char *mode)
{
	REAL(FILE *, "fdopen", int, const char *);
	return fd > 2 && watched(mode) ? cookie_stream(fd, mode) : real(fd, mode);
}

FILE *fopen(const char *path, const char *mode)
{
	REAL(FILE *, "fopen", const char *, const char *);
	int fd;

	if (!watched(mode))
		return strikes("open") ? NULL : real(path, mode);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	return fd < 0 ? NULL : cookie_stream(fd, mode);
}

/* ---- memory: libc's own allocator under other names, since dlsym allocates ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n)
{
	return strikes("malloc") ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return strikes("malloc") ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return strikes("malloc") ? NULL : __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p = strikes("malloc") ? NULL : __libc_memalign(align, n);

	if (p == NULL)
		return ENOMEM;
	*out = p;
	return 0;
}
