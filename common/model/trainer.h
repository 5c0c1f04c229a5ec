/*
 * trainer.h - one optimiser step over a virtual batch (gradient caching).
 *
 * A step embeds all texts of the batch grain by grain, computes loss and
 * gradient on all vectors at once, then goes through the grains again,
 * backwards.  Activations of as many grains as the plan has memory for are
 * kept from the first pass; the others are computed again.  Both ways, and any
 * threads, give the same bits.
 *
 * A step can be stopped between grains (or layers, or blocks of the loss) and
 * goes on from there, in this process or, through checkpoint.h, in another.
 */
#ifndef NG_MODEL_TRAINER_H
#define NG_MODEL_TRAINER_H

#include "common/base/err.h"
#include "common/model/encoder.h"
#include "common/model/loss.h"
#include "common/model/optim.h"

/* The tokens of a batch, text t = column * B + row, end to end. */
struct ng_batch {
	size_t B, columns;
	int32_t *id;	/* (off[B * columns]) */
	size_t *off;	/* (B * columns + 1) */
	int32_t *first; /* (B * columns) tokens of the prompt that pooling leaves out, or NULL */
};

enum ng_phase { NG_PHASE_EMBED, NG_PHASE_LOSS, NG_PHASE_BACKWARD };

/* What memory is needed for, in bytes (plan.c). */
struct ng_plan {
	uint64_t limit;	  /* of the whole process */
	const char *why;  /* "--memory", "cgroup", ... */
	uint64_t process; /* resident now: programs, libraries, tokenizer, data index, weights */
	uint64_t gradient, moments, vectors, tokens, scratch;
	uint64_t grain; /* activations of the largest grain that may come */
	uint64_t keep;	/* activations kept on top of that */
	uint64_t total;
	uint64_t batch_activations; /* if every grain were kept and every text were of max_length */
};

struct ng_plan_input {
	const struct ng_model_config *cfg;
	size_t count;	/* parameters (ng_model.count) */
	size_t moments; /* ng_optim_moments */
	size_t B, columns, max_length;
	uint64_t process;
};

/* NG_OSERR when one grain does not fit: the text says the smallest --memory that works. */
int ng_plan_make(
	struct ng_plan *out, const struct ng_plan_input *in, uint64_t limit, const char *why, struct ng_err *err);
/* Resident bytes of this process now; 0 where the system does not tell. */
uint64_t ng_resident(void);

struct ng_trainer {
	struct ng_model *m; /* borrowed */
	struct ng_optim optim;
	double scale, dropout;
	uint32_t seed, round;
	size_t B, columns, max_length; /* most of a batch */
	struct ng_plan plan;
	/* position: what a checkpoint holds beside the buffers */
	enum ng_phase phase;
	size_t grain; /* next one of the phase */
	size_t left;  /* layers to do of that grain's backward, 0: not begun */
	double loss;  /* of this step, once the phase is BACKWARD */
	/* buffers on the device */
	struct ng_ref grad, e, norm, de, work, scratch, arena;
	size_t arena_elements;
	/* the batch as grains; private */
	size_t grains;
	size_t *cut; /* (grains + 1) texts */
	struct ng_acts *acts;
	bool *kept;
	size_t acts_cap;
	size_t used;	 /* elements of the arena that the kept ones have */
	float *taken_up; /* (T, hidden) gradient within a grain, from a checkpoint, until it is on the device */
	size_t taken_tokens;
	bool laid_out; /* stopped in this process: what was kept is still there */
};

struct ng_step_result {
	double loss, norm;
	size_t bad;	     /* on NG_DATA: row of the batch, or SIZE_MAX */
	size_t kept, grains; /* how many grains were kept, of how many */
};

/* Where a step stands. */
struct ng_position {
	enum ng_phase phase;
	size_t grain, left;
};

/* Fills t from its fields m, optim (without m, v), scale, dropout, seed, round, B, columns, max_length and
 * plan: allocates everything. */
int ng_trainer_init(struct ng_trainer *t, struct ng_err *err);
void ng_trainer_release(struct ng_trainer *t);

/* The step number `step` (within the round, from 0) on the batch, with rate lr; from t->phase and t->grain on.
 * 0: done, position back at the start; 1: stopped; -1: err. */
int ng_trainer_step(struct ng_trainer *t, const struct ng_batch *batch, uint32_t step, double lr,
	struct ng_step_result *result, const struct ng_stop *stop, struct ng_err *err);

/* Is there anything new to save?  A grain's forward and the loss start over when they are stopped, so whoever stops
 * again and again at the same place gets nowhere: ask this of all stops that can wait. */
struct ng_position ng_trainer_position(const struct ng_trainer *t);
bool ng_trainer_moved(const struct ng_trainer *t, const struct ng_position *since);

/* Grains of texts with those lengths; returns their number, cut (n + 1) filled. */
size_t ng_grains_cut(size_t *cut, const size_t *off, size_t n);

#endif
