/*
 * folder.h - a model folder written from a base folder and a global model.
 *
 * The result is the base folder with the global's tensors in place of its own:
 * same files, same shards, each tensor in the folder's own type (rounded once,
 * to nearest even); what a global does not hold (integer buffers, frozen
 * weights) is copied, as are all small files.  Weights in other formats
 * (pytorch_model.bin, onnx/, ...) are left out: they would be the old ones.
 * The folder appears whole under its name or not at all.
 */
#ifndef NG_TENSOR_FOLDER_H
#define NG_TENSOR_FOLDER_H

#include "common/tensor/safetensors.h"
#include "common/tensor/stream.h"

/* s stands at a frame (ng_stream_next gave 1), a global; it is read to the end of
 * the stream, which holds nothing else, before the folder gets its name.  delta: NULL, or a stream standing at an
 * update that is added (--update-of): same tensors in the same order.  A tensor
 * that the base lacks, or in another shape, or whose result is not finite, is
 * NG_REFUSED, naming it; out
 * existing is NG_NOTHING. */
int ng_folder_write(
	const char *out, const char *base, struct ng_stream *s, struct ng_stream *delta, struct ng_err *err);

/* The header of a global made from a folder: the float tensors for which
 * trains(arg, name) is true (NULL: all), as F32, canonical, without metadata. */
int ng_folder_global_header(struct ng_header *out, const struct ng_weights *w, bool (*trains)(void *, const char *),
	void *arg, struct ng_err *err);
/* Write that header's tensors of w as F32 data of the frame begun in wr. */
int ng_folder_write_global(
	struct ng_writer *wr, const struct ng_header *h, const struct ng_weights *w, struct ng_err *err);

#endif
