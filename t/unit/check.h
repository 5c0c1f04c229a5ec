/*
 * check.h - TAP from a C test: CHECK(condition), the _EQ forms that show both
 * sides, SKIP(reason), and `return check_done();` at the end of main.  A failed
 * check makes the process fail.  Include it once, in the test itself.
 */
#ifndef NG_CHECK_H
#define NG_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int check_count, check_failed;

static inline bool check_ok(bool ok, const char *file, int line, const char *what)
{
	printf("%sok %d - %s\n", ok ? "" : "not ", ++check_count, what);
	if (!ok) {
		check_failed++;
		printf("# at %s:%d\n", file, line);
	}
	return ok;
}

static inline int check_done(void)
{
	printf("1..%d\n", check_count);
	fflush(stdout);
	return check_failed || check_count == 0 ? 1 : 0;
}

#define CHECK(c) check_ok((c) ? true : false, __FILE__, __LINE__, #c)
#define CHECK_MSG(c, what) check_ok((c) ? true : false, __FILE__, __LINE__, what)
#define CHECK_INT_EQ(a, b)                                                   \
	do {                                                                 \
		long long ca_ = (long long)(a), cb_ = (long long)(b);        \
		if (!check_ok(ca_ == cb_, __FILE__, __LINE__, #a " == " #b)) \
			printf("# got %lld, want %lld\n", ca_, cb_);         \
	} while (0)
#define CHECK_STR_EQ(a, b)                                                                             \
	do {                                                                                           \
		const char *ca_ = (a), *cb_ = (b);                                                     \
		if (!check_ok(ca_ && cb_ && strcmp(ca_, cb_) == 0, __FILE__, __LINE__, #a " == " #b))  \
			printf("# got '%s', want '%s'\n", ca_ ? ca_ : "(null)", cb_ ? cb_ : "(null)"); \
	} while (0)
/* |a - b| <= tol; NaN fails */
#define CHECK_NEAR(a, b, tol)                                                             \
	do {                                                                              \
		double ca_ = (a), cb_ = (b);                                              \
		if (!check_ok(fabs(ca_ - cb_) <= (tol), __FILE__, __LINE__, #a " ~ " #b)) \
			printf("# got %.17g, want %.17g\n", ca_, cb_);                    \
	} while (0)
/* Data of ../shared may be absent: counted and named. */
#define SKIP(reason) printf("ok %d - # SKIP %s\n", ++check_count, reason)
#define HAVE(path) (access(path, R_OK) == 0)

#endif
