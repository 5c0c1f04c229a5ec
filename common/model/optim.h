/*
 * optim.h - one step of AdamW or SGD over the flat parameters, as PyTorch
 * computes them, after clipping by the global norm (conventions 4.5).
 *
 * clip: gradients are multiplied by min(1, clip / (norm + 1e-6)); 0 = off.
 * Weight decay is decoupled (AdamW) or added to the gradient (SGD), and does
 * not touch what lies from m->decay_count on: biases, layer norms, MPNet's
 * relative attention bias.  PyTorch's SGD takes the clipped gradient too.
 */
#ifndef NG_MODEL_OPTIM_H
#define NG_MODEL_OPTIM_H

#include "common/base/err.h"
#include "common/model/model.h"

enum ng_optim_kind { NG_OPTIM_ADAMW, NG_OPTIM_SGD };

struct ng_optim {
	enum ng_optim_kind kind;
	double beta1, beta2, eps; /* adamw */
	double momentum;	  /* sgd */
	double decay, clip;
	struct ng_ref m, v; /* (count); v: adamw; m: adamw, or sgd with momentum */
	uint64_t steps;	    /* taken so far */
};

/* Vectors of m->count that the optimiser keeps: 2, 1 or 0. */
size_t ng_optim_moments(const struct ng_optim *o);
/* One step with rate lr.  *norm = gradient norm before clipping.  NG_DATA when it is not finite: nothing
 * was changed. */
int ng_optim_step(
	struct ng_optim *o, struct ng_model *m, struct ng_ref grad, double lr, double *norm, struct ng_err *err);

#endif
