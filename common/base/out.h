/*
 * out.h - files that appear whole or not at all.
 * Open makes NAME.ng-XXXXXX in the target's own directory; commit is flush,
 * fsync, close, rename, fsync of the directory, each checked, naming the step
 * that failed; abort unlinks.
 */
#ifndef NG_OUT_H
#define NG_OUT_H

#include "common/base/err.h"

struct ng_out {
	FILE *fp; /* write through this, or through fd after fflush */
	int fd;
	char *path; /* final name */
	char *temp;
	int slot;
	bool keep; /* commit refuses to replace (link, then unlink): EEXIST -> NG_NOTHING */
};

/* path "-" is standard output: commit only flushes it. */
int ng_out_open(struct ng_out *out, const char *path, struct ng_err *err);
int ng_out_commit(struct ng_out *out, struct ng_err *err);
void ng_out_abort(struct ng_out *out); /* harmless after commit */
/* All of data to path, atomically, with mode (0 = 0666 & ~umask). */
int ng_out_put(const char *path, const void *data, size_t len, unsigned mode, struct ng_err *err);

/* A directory built beside its final name and renamed into place.  dir_commit
 * fails with NG_NOTHING when the target exists (rename cannot overwrite). It
 * fsyncs every regular file directly or deeper inside first. */
struct ng_outdir {
	char *path, *temp;
	int slot;
};
int ng_outdir_open(struct ng_outdir *out, const char *path, struct ng_err *err);
int ng_outdir_commit(struct ng_outdir *out, struct ng_err *err);
void ng_outdir_abort(struct ng_outdir *out);

#endif
