/*
 * replay.c - main for a fuzz target without libFuzzer: every file of
 * t/fuzz/corpus/TARGET (or those named), each also cut short and with single
 * bytes changed, goes through LLVMFuzzerTestOneInput, which must return.
 * TAP; the work is bounded: mutations stop after a second a target.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "t/fuzz/fuzz.h"
#include "t/unit/check.h"

static double stop;

/* Its own allocation, so that a read past the end is seen by ASan and valgrind. */
static void run(const char *data, size_t len)
{
	uint8_t *copy = ng_xmalloc(len);

	if (len)
		memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static void mutate(char *data, size_t len)
{
	uint64_t state = len * UINT64_C(0x9e3779b97f4a7c15) + 1;
	size_t i, at;
	char old;

	for (i = 0; i < 64 && ng_now() < stop; i++)
		run(data, len * i / 64);
	for (i = 0; len && i < 2000 && ng_now() < stop; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		at = (size_t)(state >> 16) % len;
		old = data[at];
		data[at] = (char)(state >> 56);
		run(data, len);
		data[at] = old;
	}
}

static void file(const char *path, bool more)
{
	struct ng_err err;
	char *data;
	size_t len;

	if (ng_file_read(&data, &len, path, 64 << 20, &err)) {
		CHECK_MSG(false, err.text);
		return;
	}
	run(data, len);
	if (more)
		mutate(data, len);
	free(data);
	CHECK_MSG(true, path);
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	struct dirent **entry;
	char *dir, *path;
	int i, n;

	ng_verbosity = -1;
	if (argc > 1) {
		for (i = 1; i < argc; i++)
			file(argv[i], false);
		return check_done();
	}
	name = name ? name + 1 : argv[0];
	dir = ng_xasprintf("t/fuzz/corpus/%s", name + strlen("fuzz_"));
	n = scandir(dir, &entry, NULL, alphasort);
	CHECK_MSG(n > 2, dir);
	for (i = 0; i < n; i++) {
		if (entry[i]->d_name[0] != '.') {
			path = ng_xasprintf("%s/%s", dir, entry[i]->d_name);
			stop = ng_now() + 1.0 / n;
			file(path, true);
			free(path);
		}
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
	free(dir);
	return check_done();
}
