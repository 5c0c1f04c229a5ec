/*
 * err.h - how a failure is told: to the caller, to the person, to the shell.
 *
 * A function of common/ that can fail for more than one reason takes a
 * `struct ng_err *` as its last parameter, fills it and returns -1.  Only
 * cmd/ turns it into a message and an exit code.  The text is one line, lower
 * case, no full stop, what failed first, the subject in single quotes:
 * "cannot open 'a.safetensors': No such file or directory".
 */
#ifndef NG_ERR_H
#define NG_ERR_H

#include "common/base/compat.h"

enum ng_code {
	NG_OK = 0,	     /* done */
	NG_NOTHING = 1,	     /* a true "no": nothing new, quorum not met */
	NG_USAGE = 64,	     /* command line or experiment file misused */
	NG_DATA = 65,	     /* input is malformed, cut or inconsistent */
	NG_NOINPUT = 66,     /* a named input is not there */
	NG_UNAVAILABLE = 69, /* a device or server is not there */
	NG_SOFTWARE = 70,    /* a bug of ours */
	NG_OSERR = 71,	     /* memory or system */
	NG_IOERR = 74,	     /* a read or write failed, disk full */
	NG_TEMPFAIL = 75,    /* run again: a lock is held, the board moved */
	NG_PROTOCOL = 76,    /* the other side broke the protocol */
	NG_REFUSED = 77,     /* key, signature, member, base or value refused */
};

#define NG_ERR_MAX 1024

struct ng_err {
	enum ng_code code;
	char text[NG_ERR_MAX]; /* control bytes already replaced */
};

/* Fill err and return -1, so that `return ng_fail(err, NG_DATA, ...)` reads
 * well.  err may be NULL.  ng_fail_errno appends ": strerror(errno)", keeps
 * errno, and turns ENOMEM into NG_OSERR and ENOSPC, EDQUOT, EIO, EROFS into
 * NG_IOERR whatever code says. */
int ng_fail(struct ng_err *err, enum ng_code code, const char *fmt, ...) NG_PRINTF(3, 4);
int ng_fail_errno(struct ng_err *err, enum ng_code code, const char *fmt, ...) NG_PRINTF(3, 4);
/* Put "text: " before what err already says (to name the file it was in). Returns -1. */
int ng_fail_prefix(struct ng_err *err, const char *fmt, ...) NG_PRINTF(2, 3);

/* Program name, signal set-up, a check that 0, 1 and 2 are open.  Call first
 * in main. */
void ng_start(const char *argv0);
const char *ng_program(void);
/* How much to say: -q sets -1, -v adds 1. ng_info prints when >= 0, ng_verbose when >= 1. */
extern int ng_verbosity;

/* "ng-train: error: TEXT\n" to stderr, temporaries removed, exit(code). */
void ng_die(enum ng_code code, const char *fmt, ...) NG_PRINTF(2, 3) NG_NORETURN;
void ng_die_errno(enum ng_code code, const char *fmt, ...) NG_PRINTF(2, 3) NG_NORETURN;
void ng_die_err(const struct ng_err *err) NG_NORETURN;
/* "ng-train: warning: TEXT\n"; erases a progress line first. */
void ng_warn(const char *fmt, ...) NG_PRINTF(1, 2);
void ng_warn_errno(const char *fmt, ...) NG_PRINTF(1, 2);
/* "ng-train: TEXT\n" to stderr, for people; silent with -q. */
void ng_info(const char *fmt, ...) NG_PRINTF(1, 2);
void ng_verbose(const char *fmt, ...) NG_PRINTF(1, 2);
/* A reader that stops early calls this hook just before ng_die exits, so that
 * an open output stream can be closed with the reason (tensor/stream.h sets
 * it; cmd/ does not). */
extern void (*ng_die_hook)(enum ng_code code, const char *text);

void ng_bug(const char *file, int line, const char *fmt, ...) NG_PRINTF(3, 4) NG_NORETURN;
#define NG_BUG(...) ng_bug(__FILE__, __LINE__, __VA_ARGS__)

/* Flush and close stdout and stderr; a failure (a full disk) turns the result
 * into NG_IOERR.  Returns the exit code for main. */
int ng_finish(enum ng_code code);

#endif
