/*
 * spool.h - the frames of a pipe kept as they came in one unlinked temporary
 * file, so that an aggregation can read them side by side, and again.
 */
#ifndef NG_FED_SPOOL_H
#define NG_FED_SPOOL_H

#include "common/fed/aggregate.h"
#include "common/tensor/stream.h"

struct ng_inputs {
	struct ng_agg_source global; /* name NULL: none yet */
	struct ng_agg_source *update;
	size_t n, cap;
	char *experiment; /* newest experiment file told by an opening, or NULL */
	int fd;		  /* the temporary file, -1 when none was needed */
	uint64_t length;
};

void ng_inputs_init(struct ng_inputs *in);
void ng_inputs_release(struct ng_inputs *in);
/* Takes the source's strings. NG_DATA on a second global. */
int ng_inputs_add(struct ng_inputs *in, struct ng_agg_source *source, bool global, struct ng_err *err);
/* All frames of s (opened with NG_STREAM_OBJECT), to its verified end. */
int ng_inputs_spool(struct ng_inputs *in, struct ng_stream *s, const char *tmpdir, struct ng_err *err);

#endif
