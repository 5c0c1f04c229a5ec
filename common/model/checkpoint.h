/*
 * checkpoint.h - the state of a round of training in one file, which appears
 * whole or not at all.
 *
 * Held are weights and moments as they stand before the step at hand and, when
 * that step was under way, what it has so far: vectors, or their gradients and
 * the gradient of the weights.  What activations were kept is lost and computed
 * again, to the same bits.  A checkpoint belongs to a key (digest of all that
 * decides the result); one with another key is not used.
 *
 * The file is safetensors: w, m, v, e, norm, de, grad, all F32, flat, and its
 * metadata "ng.train", a JSON text.  It is the site's own and never leaves it.
 */
#ifndef NG_MODEL_CHECKPOINT_H
#define NG_MODEL_CHECKPOINT_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/trainer.h"

struct ng_checkpoint {
	char key[NG_HASH_HEX];
	uint64_t step;	 /* steps done */
	uint64_t steps;	 /* of the round; step == steps: the weights are all that is held */
	double loss_sum; /* of the steps done */
	double seconds;	 /* spent on them */
};

int ng_checkpoint_save(
	const char *path, const struct ng_checkpoint *ck, const struct ng_trainer *t, struct ng_err *err);
/* 1: loaded into t and *ck. 0: there is none for ck->key (or a file of another key). -1: a file that is
 * damaged (NG_DATA); t is then to be filled anew. */
int ng_checkpoint_load(const char *path, struct ng_checkpoint *ck, struct ng_trainer *t, struct ng_err *err);

#endif
