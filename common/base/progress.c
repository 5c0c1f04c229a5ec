/*
 * The line is drawn with "\r...\033[K" and known to be there by `shown`, so that
 * messages can wipe it first.  Only the main thread draws.
 */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "common/base/compat.h"

#include <stdarg.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/base/str.h"

static bool shown;
static double last = -1;

double ng_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1)
		return w.ws_col - 1u;
	return 79;
}

/* Cut after `width` characters; wide ones count as one, which only wraps a line. */
static void cut(char *s, size_t width)
{
	size_t i, n;

	for (i = 0, n = 0; s[i]; i++) {
		if ((s[i] & 0xc0) == 0x80)
			continue;
		if (n++ == width) {
			s[i] = 0;
			return;
		}
	}
}

void ng_progress(const char *fmt, ...)
{
	static int tty = -1;
	char raw[512], text[512];
	va_list args;
	double now;

	if (ng_verbosity < 0)
		return;
	if (tty < 0)
		tty = isatty(STDERR_FILENO);
	if (!tty)
		return;
	now = ng_now();
	if (last >= 0 && now - last < 0.2)
		return;
	last = now;
	va_start(args, fmt);
	vsnprintf(raw, sizeof raw, fmt, args);
	va_end(args);
	ng_printable(text, sizeof text, raw, strlen(raw));
	cut(text, terminal_width());
	fprintf(stderr, "\r%s\033[K", text);
	shown = true;
}

void ng_progress_end(void)
{
	if (!shown)
		return;
	shown = false;
	last = -1;
	fputs("\r\033[K", stderr);
}
