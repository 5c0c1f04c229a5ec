/*
 * experiment.h - the experiment file (ng-experiment(5), DESIGN.md section 2).
 *
 * The file is a JSON object that people write.  Parsing it gives every
 * default, checks every value's type and range and refuses unknown keys, so
 * that a misspelt key never silently trains with a default.  What is agreed is
 * the text itself: `text` is kept byte for byte and goes into the manifest and
 * into ng.config as a JSON *string*.
 */
#ifndef NG_FED_EXPERIMENT_H
#define NG_FED_EXPERIMENT_H

#include <jansson.h>

#include "common/base/err.h"
#include "common/fed/config.h"
#include "common/text/sampler.h"

#define NG_EXPERIMENT_MAX (1u << 20) /* bytes of an experiment file */
#define NG_ROUNDS_MAX 99999999L

enum ng_loss_kind { NG_LOSS_MNRL, NG_LOSS_GIST, NG_LOSS_MATRYOSHKA };
enum ng_schedule_kind { NG_SCHEDULE_LINEAR, NG_SCHEDULE_COSINE, NG_SCHEDULE_CONSTANT };
enum ng_optimizer_kind { NG_OPTIMIZER_ADAMW, NG_OPTIMIZER_SGD };
enum ng_moments { NG_MOMENTS_RESET, NG_MOMENTS_KEEP };
enum ng_trainable { NG_TRAINABLE_FULL, NG_TRAINABLE_LORA, NG_TRAINABLE_LIST };
enum ng_precision { NG_PRECISION_FP32, NG_PRECISION_BF16, NG_PRECISION_FP16 };
enum ng_strategy { NG_STRATEGY_FEDAVG, NG_STRATEGY_OTHER }; /* OTHER: a later issue's */
enum ng_weighting { NG_WEIGHTS_EXAMPLES, NG_WEIGHTS_STEPS, NG_WEIGHTS_EQUAL };
enum ng_seal { NG_SEAL_NONE, NG_SEAL_UPDATES, NG_SEAL_ALL };

struct ng_experiment_train {
	enum ng_loss_kind loss;
	double scale; /* logits = scale * cosine, 20 */
	long batch;   /* rows of the virtual batch, 2048 */
	long epochs;  /* a round, 1 */
	double lr;    /* 2e-5 */
	enum ng_schedule_kind schedule;
	double warmup_ratio; /* of all steps of all rounds, 0.1 */
	long max_length;     /* tokens, special ones counted, 256 */
	char *prompt_anchor; /* never NULL, "" by default; prepended to the text */
	char *prompt_positive;
	char *prompt_negative; /* of every negative column */
	double dropout;	       /* 0.1; all three dropouts of the encoder */
	enum ng_optimizer_kind optimizer;
	double beta1, beta2, eps; /* adamw: 0.9, 0.999, 1e-8 */
	double momentum;	  /* sgd: 0 */
	double weight_decay;	  /* 0; not on biases and layer norms */
	double clip;		  /* global L2 norm of the gradient, 1.0; 0 = no clipping */
	enum ng_moments moments;
	uint32_t seed; /* 42 */
	enum ng_sampler sampler;
	enum ng_trainable trainable;
	char **patterns; /* LIST: fnmatch(3) patterns of tensor names */
	size_t n_patterns;
	enum ng_precision precision;
};

struct ng_experiment {
	char *text; /* as written, or re-written by --set; NUL-terminated */
	size_t text_len;
	char *name;
	long rounds;	    /* 0 = no end */
	long quorum;	    /* 2 */
	long expect;	    /* 0 = by default: members, or quorum in an open experiment;
				      ng_experiment_expect() resolves it */
	long long deadline; /* seconds, 0 = none */
	struct ng_experiment_train train;
	enum ng_strategy strategy;
	enum ng_weighting weights;
	long staleness;				 /* 0 */
	char *strategy_name, *codec, *loss_name; /* as written, "fedavg", "f32", "mnrl" */
	enum ng_seal seal;
	long keep_last;	 /* rounds kept on the board, 0 = all (default) */
	json_t *members; /* array as written (borrowed by readers), or NULL: open */
	size_t n_members;
	json_t *json; /* the whole as parsed, without defaults */
};

/* Parse text; `name` is for messages.  set: n_set overrides "train.lr=3e-5"
 * (the value is JSON if it parses as JSON, else a string), applied before the
 * checks; with any, out->text is the canonical text of the result.  NG_USAGE
 * on anything wrong.  On failure out is released. */
int ng_experiment_parse(struct ng_experiment *out, const char *text, size_t len, const char *name,
	const char *const *set, size_t n_set, struct ng_err *err);
int ng_experiment_load(
	struct ng_experiment *out, const char *path, const char *const *set, size_t n_set, struct ng_err *err);
void ng_experiment_release(struct ng_experiment *exp); /* harmless on a zeroed struct */

/* NG_USAGE naming the first value whose part is not built yet (members, seal,
 * another codec, loss, strategy, staleness, precision, trainable): ng-init
 * refuses such an experiment; ng-train and ng-aggregate call it as well. */
int ng_experiment_supported(const struct ng_experiment *exp, struct ng_err *err);

/* Canonical JSON with every default filled in. Caller frees. */
char *ng_experiment_json(const struct ng_experiment *exp);
/* Updates that a round waits for before its deadline. */
long ng_experiment_expect(const struct ng_experiment *exp);
/* Is this tensor trained (and so part of global and update)?  Integer buffers
 * are for the caller to leave out. */
bool ng_experiment_trains(const struct ng_experiment *exp, const char *tensor);

/*
 * The learning rate is stretched over all rounds.  A site that makes `steps`
 * steps on global/<round> is at step first + i (i = 0.. steps-1) of total.
 *   linear:   s/w up to w, then (T-s+1)/(T-w)
 *   cosine:   s/w up to w, then (1 + cos(pi (s-w-1)/(T-w))) / 2
 *   constant: s/w up to w, then 1
 * with w = ceil(warmup_ratio * T).  With "rounds": 0 (constant only) T counts
 * one round, so that the warm-up ends within the first.
 */
struct ng_schedule_span {
	long total;  /* T = rounds * steps */
	long warmup; /* w */
	long first;  /* s of the round's first step, from 1 */
};
void ng_experiment_span(struct ng_schedule_span *out, const struct ng_experiment *exp, long round, long steps);
/* Factor for step s (from 1): lr(s) = train.lr * factor. Never 0, never above 1. */
double ng_schedule_factor(const struct ng_schedule_span *span, enum ng_schedule_kind kind, long s);

#endif
