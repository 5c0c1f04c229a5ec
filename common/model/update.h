/*
 * update.h - what a site sends: for each tensor of the global, local minus
 * global as F32, in the global's order.  Tensors that are not trained (a
 * pooler) come as zeros, so that an update always has the global's tensors.
 */
#ifndef NG_MODEL_UPDATE_H
#define NG_MODEL_UPDATE_H

#include "common/base/err.h"
#include "common/model/model.h"
#include "common/tensor/frame.h"
#include "common/tensor/stream.h"

/* global: header of the global's frame, whose values as F32 lie in global_fd from its start
 * (ng_model_load_stream).  Metadata that ng does not know is carried over.  NG_DATA naming a tensor with a
 * difference that is not finite. */
int ng_update_write(struct ng_writer *w, const struct ng_model *m, const struct ng_header *global, int global_fd,
	const struct ng_frame *f, struct ng_err *err);

#endif
