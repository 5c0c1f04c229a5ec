/*
 * progress.h - one line on a terminal's stderr, at most 5 times a second,
 * erased at the end; nothing at all when stderr is not a tty or -q was given.
 */
#ifndef NG_PROGRESS_H
#define NG_PROGRESS_H

#include "common/base/compat.h"

void ng_progress(const char *fmt, ...) NG_PRINTF(1, 2);
void ng_progress_end(void);
double ng_now(void); /* seconds, CLOCK_MONOTONIC */

#endif
