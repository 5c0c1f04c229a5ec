/*
 * stream_private.h - what stream.c and writer.c share; nobody else includes it.
 */
#ifndef NG_TENSOR_STREAM_PRIVATE_H
#define NG_TENSOR_STREAM_PRIVATE_H

#include "common/tensor/stream.h"

/* One zstd frame after another, with our parameters, handed to fn in pieces. */
struct ng_zcoder;
/* *z is made when NULL. content: uncompressed bytes to come, UINT64_MAX if not known. */
int ng_zcoder_begin(struct ng_zcoder **z, ng_write_fn *fn, void *arg, uint64_t content, struct ng_err *err);
int ng_zcoder_data(struct ng_zcoder *z, const void *data, size_t n, struct ng_err *err);
int ng_zcoder_end(struct ng_zcoder *z, struct ng_err *err);
void ng_zcoder_free(struct ng_zcoder *z); /* NULL allowed */

/* The reason that the next closing gives is another program's: no name before it. */
void ng_writer_pass_on(void);

#endif
