/*
 * encoder.h - forward and backward of the encoder over one grain.
 *
 * A grain is a few consecutive texts of a batch, packed end to end, up to
 * NG_GRAIN_TOKENS tokens (one text may be longer).  Where grains are cut
 * depends on the texts alone, never on memory or threads, and gradients are
 * added grain by grain in order: so the result is the same bits whatever the
 * plan keeps.
 *
 * The forward of a layer, post-norm as in BERT:
 *	qkv = h Wqkv + b;  ctx = attention(qkv);  s1 = drop(ctx Wo + b) + h
 *	h1 = LN(s1);  pre = h1 W1 + b;  s2 = drop(gelu(pre) W2 + b) + h1;  h = LN(s2)
 * Kept for the backward are qkv, ctx, s1, pre, s2 and the rows' statistics; h,
 * h1 and gelu(pre) are computed again from them, which costs less than reading
 * them back would.
 */
#ifndef NG_MODEL_ENCODER_H
#define NG_MODEL_ENCODER_H

#include "common/base/err.h"
#include "common/model/model.h"
#include "kernels/device.h"

#define NG_GRAIN_TOKENS 1024

/* The texts of one grain, in host memory. */
struct ng_grain {
	size_t S, T;
	int32_t *ids;	  /* (T) token ids, below vocab */
	int32_t *cu;	  /* (S+1) */
	int32_t *first;	  /* (S) tokens left out of the pooling, or NULL */
	int32_t *example; /* (S) numbers for dropout (text/sampler.h); may be NULL without dropout */
};

/* Dropout of one optimiser step; probability 0 is off. */
struct ng_drop {
	double p;
	uint32_t seed, round, step;
};

/* Memory of a device handed out front to back; nothing is given back singly. */
struct ng_arena {
	struct ng_ref base;
	size_t cap, used; /* elements */
};
struct ng_ref ng_arena_take(struct ng_arena *a, size_t elements); /* NG_BUG when it is full */

struct ng_layer_acts {
	struct ng_ref qkv, ctx, lse, s1, mean1, rstd1, pre, s2, mean2, rstd2;
};
/* What the forward of one grain leaves for its backward. */
struct ng_acts {
	size_t S, T;
	struct ng_ref ids, pos, cu, first;
	struct ng_ref s0, mean0, rstd0;
	struct ng_layer_acts *layer;	   /* (layers), host, allocated by ng_acts_init */
	struct ng_ref pooled;		   /* (S, hidden * pools) */
	struct ng_ref y[NG_MODEL_TAILS];   /* (S, out) of each module after the pooling */
	struct ng_ref aux[NG_MODEL_TAILS]; /* Dense: value before its activation; Normalize: norms */
};

void ng_acts_init(struct ng_acts *a, const struct ng_model *m);
void ng_acts_release(struct ng_acts *a);

/* Elements that a grain of S texts and T tokens takes of the arena, with (keep) or without what the backward
 * needs, and of scratch.  Both grow with S and T. */
size_t ng_acts_elements(const struct ng_model_config *cfg, size_t S, size_t T, bool keep);
size_t ng_scratch_elements(const struct ng_model_config *cfg, size_t S, size_t T);

/* Stop? Asked between layers; NULL: never. */
typedef bool ng_stop_fn(void *arg);
struct ng_stop {
	ng_stop_fn *fn;
	void *arg;
};

/* out (S, dim) = vectors of the grain.  acts are taken from arena (which the caller resets), scratch has
 * ng_scratch_elements.  drop NULL or p 0: none.  1: stopped, out and acts undefined. */
int ng_forward(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop, bool keep,
	struct ng_acts *acts, struct ng_arena *arena, struct ng_ref scratch, struct ng_ref out,
	const struct ng_stop *stop, struct ng_err *err);
/* grad (m->count) += gradient of sum(out * dout).  dout (S, dim) is read only.  Same grain and drop as the
 * forward that left acts (with keep).  *left: how much is to do, NG_BACKWARD_ALL at first.  1: stopped between
 * two layers with *left (1 .. layers) to do: call again with the same grad, acts and *left, and with the
 * first T * hidden elements of scratch as they were left; the bits are the same. */
#define NG_BACKWARD_ALL SIZE_MAX
int ng_backward(const struct ng_model *m, const struct ng_grain *g, const struct ng_drop *drop,
	const struct ng_acts *acts, struct ng_ref scratch, struct ng_ref dout, struct ng_ref grad, size_t *left,
	const struct ng_stop *stop, struct ng_err *err);
/* After the last grain: rows of the tables that get no gradient in transformers (padding_idx) are zeroed. */
int ng_backward_finish(const struct ng_model *m, struct ng_ref grad, struct ng_err *err);

#endif
