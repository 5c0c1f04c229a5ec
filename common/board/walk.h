/*
 * walk.h - is a payload exactly one zstd frame?  Its blocks are stepped over by
 * their headers, nothing is decoded: what ng-pull passes on must not smuggle a
 * second frame or a bracket behind the one that was looked at.
 */
#ifndef NG_BOARD_WALK_H
#define NG_BOARD_WALK_H

#include "common/base/err.h"
#include "common/tensor/zframe.h"

struct ng_walk {
	enum { NG_WALK_HEAD, NG_WALK_BLOCK, NG_WALK_SKIP, NG_WALK_CHECKSUM, NG_WALK_DONE } state;
	unsigned char buf[NG_ZFRAME_HEADER_MAX];
	size_t have;   /* bytes in buf */
	uint32_t left; /* bytes of the block to step over */
	bool last, checksum;
};

/* Start with a zeroed struct and feed every byte, in any pieces. NG_DATA. */
int ng_walk_feed(struct ng_walk *w, const void *data, size_t n, struct ng_err *err);
/* After the last byte: NG_DATA when the frame is not complete. */
int ng_walk_end(const struct ng_walk *w, struct ng_err *err);

#endif
