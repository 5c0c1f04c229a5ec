/*
 * model.h - a model's weights on a device.
 *
 * All parameters lie in one flat fp32 buffer, so that clipping and the
 * optimiser are single calls: first those with weight decay, then those
 * without (conventions 4.5.2).  Query, key and value of a layer are
 * neighbours, so that one product computes all three.  A table maps the names
 * of the folder's own files to slices.
 *
 * The buffer holds what gets a gradient with "trainable": "full": embeddings,
 * encoder, Dense modules.  The pooler, heads (cls.*, lm_head.*) and buffers
 * (position_ids) take no part in an embedding: they are not read, and stay in
 * the folder as they are.
 */
#ifndef NG_MODEL_MODEL_H
#define NG_MODEL_MODEL_H

#include "common/base/err.h"
#include "common/model/config.h"
#include "common/tensor/header.h"
#include "common/tensor/stream.h"
#include "kernels/device.h"

struct ng_param {
	char *name; /* as in the folder's file, such as "bert.encoder.layer.0.output.dense.weight" */
	size_t off, count;
	unsigned rank;
	uint64_t dim[2];
	bool decay;
};

struct ng_linear_at { /* offsets into the flat buffer */
	size_t w, b;
};
struct ng_layer_at {
	struct ng_linear_at qkv, out, up, down; /* (3C,C) (C,C) (F,C) (C,F) */
	struct ng_linear_at norm1, norm2;	/* gamma, beta */
};

struct ng_model {
	struct ng_model_config cfg;
	struct ng_device *dev; /* borrowed */
	struct ng_ref w;       /* (count), zeros between slices */
	size_t count;
	size_t decay_count; /* slices below this offset decay */
	struct ng_param *param;
	size_t params;
	/* where things are */
	size_t word, position, type, relative; /* type, relative: SIZE_MAX when there is none */
	struct ng_linear_at norm0;
	struct ng_layer_at *layer;
	struct ng_linear_at tail[NG_MODEL_TAILS]; /* b: SIZE_MAX when there is none */
	struct ng_header folder;		  /* header of the folder's weights, pooler and buffers included */
	char *dir;
};

/* Lay the parameters out after the headers of the folder's weights; the buffer is zeros.  cfg is taken
 * over, also on failure.  NG_DATA naming the tensor that is missing, of another shape or of a type not
 * computed with. */
int ng_model_open(
	struct ng_model *out, struct ng_model_config *cfg, struct ng_device *dev, const char *dir, struct ng_err *err);
/* Fill the buffer from the folder's files. NG_DATA for a value that is not finite. */
int ng_model_read_folder(struct ng_model *m, struct ng_err *err);
void ng_model_release(struct ng_model *m); /* harmless on a zeroed struct */

/* NULL: not a parameter (the pooler, a buffer). */
const struct ng_param *ng_model_param(const struct ng_model *m, const char *name);
/* Is this tensor of the folder's files part of what full fine-tuning trains?  By name alone. */
bool ng_model_trains(const char *name);
/* Fill the buffer from the tensors of the frame at which s stands (ng_stream_next gave 1), a global, to
 * its verified end.  Every tensor must be in the folder with its shape, and every parameter must come
 * (NG_REFUSED); every value must be finite (NG_DATA).  keep_fd, unless -1, gets the bytes of all tensors
 * as F32 in the order of the frame. On failure the buffer is not to be used. */
int ng_model_load_stream(struct ng_model *m, struct ng_stream *s, int keep_fd, struct ng_err *err);
/* Device failure -> err. Returns -1. */
int ng_model_device_error(const struct ng_model *m, int status, const char *what, struct ng_err *err);

static inline struct ng_ref ng_at(struct ng_ref base, size_t off)
{
	return (struct ng_ref){ base.mem, base.off + off };
}
static const struct ng_ref ng_absent = { NULL, 0 };

#endif
