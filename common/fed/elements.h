/*
 * elements.h - one frame's tensors read end to end as one row of floats, each
 * value looked at on the way: finite, and each tensor's norm within its limit.
 */
#ifndef NG_FED_ELEMENTS_H
#define NG_FED_ELEMENTS_H

#include "common/fed/aggregate.h"
#include "common/fed/mean.h"
#include "common/tensor/stream.h"

struct ng_extent { /* a frame inside a file, read like a pipe */
	int fd;
	uint64_t at, end;
};

struct ng_elements {
	const struct ng_agg_source *source;
	struct ng_stream *stream;
	const struct ng_header *header; /* whose tensors are read: ng_elements_expect */
	const double *limit;		/* (tensors) largest norms; NULL: not looked at */
	double *norm;			/* (tensors) filled in; NULL: not wanted */
	/* private */
	struct ng_extent extent;
	size_t tensor; /* the current one; SIZE_MAX before the first */
	uint64_t at;   /* elements of it read */
	struct ng_square_sum sum;
};

/* Open and go to the frame; e is zeroed first, and to be closed in any case. flags: of ng_stream_open. */
int ng_elements_open(struct ng_elements *e, const struct ng_agg_source *source, unsigned flags, struct ng_err *err);
void ng_elements_close(struct ng_elements *e);
/* NG_REFUSED naming the first tensor that differs from want's (which must outlive e) in name, shape or type. */
int ng_elements_expect(struct ng_elements *e, const struct ng_header *want, struct ng_err *err);
/* n elements, no more than are left.  NG_REFUSED for a value, naming the tensor; NG_DATA for a bad stream. */
int ng_elements_read(struct ng_elements *e, float *out, size_t n, struct ng_err *err);
/* After the last one: checksum, the last norm, and nothing behind the frame. */
int ng_elements_end(struct ng_elements *e, struct ng_err *err);

#endif
