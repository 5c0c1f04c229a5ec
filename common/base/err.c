#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/base/progress.h"
#include "common/base/sig.h"
#include "common/base/sig_private.h"
#include "common/base/str.h"

int ng_verbosity;
void (*ng_die_hook)(enum ng_code code, const char *text);

static const char *program = "ng";
static bool dying;

const char *ng_program(void)
{
	return program;
}

/* Format, append ": strerror" when error is not 0, replace control bytes. */
static void compose(char out[NG_ERR_MAX], int error, const char *fmt, va_list args) NG_PRINTF(3, 0);

static void compose(char out[NG_ERR_MAX], int error, const char *fmt, va_list args)
{
	char raw[NG_ERR_MAX];
	size_t n;

	if (vsnprintf(raw, sizeof raw, fmt, args) < 0)
		raw[0] = 0;
	n = strlen(raw);
	if (error != 0) {
		/* a long subject must not push the reason out */
		const char *why = strerror(error);
		size_t keep = sizeof raw - strlen(why) - 3;

		if (n > keep)
			n = keep;
		snprintf(raw + n, sizeof raw - n, ": %s", why);
	}
	ng_printable(out, NG_ERR_MAX, raw, strlen(raw));
}

static enum ng_code code_of_errno(enum ng_code code, int error)
{
	switch (error) {
	case ENOMEM:
		return NG_OSERR;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
	case EIO:
	case EROFS:
		return NG_IOERR;
	default:
		return code;
	}
}

int ng_fail(struct ng_err *err, enum ng_code code, const char *fmt, ...)
{
	va_list args;
	int saved = errno;

	if (err) {
		va_start(args, fmt);
		compose(err->text, 0, fmt, args);
		va_end(args);
		err->code = code;
	}
	errno = saved;
	return -1;
}

int ng_fail_errno(struct ng_err *err, enum ng_code code, const char *fmt, ...)
{
	va_list args;
	int saved = errno;

	if (err) {
		va_start(args, fmt);
		compose(err->text, saved, fmt, args);
		va_end(args);
		err->code = code_of_errno(code, saved);
	}
	errno = saved;
	return -1;
}

int ng_fail_prefix(struct ng_err *err, const char *fmt, ...)
{
	char head[NG_ERR_MAX], old[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	if (err) {
		va_start(args, fmt);
		compose(head, 0, fmt, args);
		va_end(args);
		memcpy(old, err->text, sizeof old);
		ng_fail(err, err->code, "%s: %s", head, old);
	}
	errno = saved;
	return -1;
}

/* A closed 0, 1 or 2 would be given to the next file opened, and a message
 * would land in it.  Each is opened the wrong way round, so that its use fails. */
static void check_descriptors(void)
{
	int fd;

	for (fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
			if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
				_exit(NG_OSERR);
}

void ng_start(const char *argv0)
{
	const char *slash;

	check_descriptors();
	if (argv0 != NULL && argv0[0] != 0) {
		slash = strrchr(argv0, '/');
		program = slash ? slash + 1 : argv0;
	}
	ng_sig_setup();
	ng_json_setup();
}

static void say(const char *kind, const char *text)
{
	char line[NG_ERR_MAX + 256];

	ng_progress_end();
	/* one write, so that lines of several processes do not mix */
	snprintf(line, sizeof line, "%.100s: %s%s\n", program, kind, text);
	fputs(line, stderr);
}

static void finish_dying(enum ng_code code, const char *text) NG_NORETURN;

static void finish_dying(enum ng_code code, const char *text)
{
	say("error: ", text);
	if (!dying) {
		dying = true; /* the hook may fail in its turn */
		if (ng_die_hook)
			ng_die_hook(code, text);
	}
	ng_sig_cleanup();
	exit((int)code);
}

void ng_die(enum ng_code code, const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;

	va_start(args, fmt);
	compose(text, 0, fmt, args);
	va_end(args);
	finish_dying(code, text);
}

void ng_die_errno(enum ng_code code, const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	va_start(args, fmt);
	compose(text, saved, fmt, args);
	va_end(args);
	finish_dying(code_of_errno(code, saved), text);
}

void ng_die_err(const struct ng_err *err)
{
	ng_die(err->code, "%s", err->text);
}

void ng_warn(const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	if (ng_verbosity >= 0) {
		va_start(args, fmt);
		compose(text, 0, fmt, args);
		va_end(args);
		say("warning: ", text);
	}
	errno = saved;
}

void ng_warn_errno(const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	if (ng_verbosity >= 0) {
		va_start(args, fmt);
		compose(text, saved, fmt, args);
		va_end(args);
		say("warning: ", text);
	}
	errno = saved;
}

void ng_info(const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	if (ng_verbosity >= 0) {
		va_start(args, fmt);
		compose(text, 0, fmt, args);
		va_end(args);
		say("", text);
	}
	errno = saved;
}

void ng_verbose(const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;
	int saved = errno;

	if (ng_verbosity >= 1) {
		va_start(args, fmt);
		compose(text, 0, fmt, args);
		va_end(args);
		say("", text);
	}
	errno = saved;
}

void ng_bug(const char *file, int line, const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list args;

	va_start(args, fmt);
	compose(text, 0, fmt, args);
	va_end(args);
#ifdef NG_DEV
	fprintf(stderr, "%s: bug: %s:%d: %s\n", program, file, line, text);
	ng_sig_cleanup();
	abort();
#else
	ng_die(NG_SOFTWARE, "bug: %s:%d: %s", file, line, text);
#endif
}

int ng_finish(enum ng_code code)
{
	char text[NG_ERR_MAX];
	bool bad;

	ng_progress_end();
	errno = 0;
	bad = ferror(stdout) != 0;
	if (fclose(stdout) != 0)
		bad = true;
	if (bad) {
		snprintf(text, sizeof text, "cannot write standard output%s%s", errno ? ": " : "",
			errno ? strerror(errno) : "");
		say("error: ", text);
		code = NG_IOERR;
	}
	/* not closed: a sanitizer reports there after main */
	if (fflush(stderr) != 0 || ferror(stderr))
		code = NG_IOERR;
	ng_sig_cleanup();
	return (int)code;
}
