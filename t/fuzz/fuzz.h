/*
 * fuzz.h - what a target is: t/fuzz/fuzz_NAME.c defines this function, and
 * t/fuzz/corpus/NAME/ holds inputs, crashes that were fixed among them.
 * `make check` replays the corpus (replay.c), `make fuzz` runs libFuzzer.
 */
#ifndef NG_FUZZ_H
#define NG_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file with these bytes, for parsers that take a path: /dev/fd/N of one
 * anonymous file that is written over each time. */
static inline const char *ng_fuzz_file(const uint8_t *data, size_t size)
{
	static char path[32];
	static FILE *f;

	if (f == NULL)
		f = tmpfile();
	if (f == NULL || ftruncate(fileno(f), 0) != 0 || pwrite(fileno(f), data, size, 0) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/dev/fd/%d", fileno(f));
	return path;
}

#endif
