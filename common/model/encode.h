/*
 * encode.h - texts to vectors, for ng-eval and ng-embed.
 *
 * Texts are sorted by length, packed into grains, encoded, and come out in
 * their own order.  Memory: the model, one grain, and what the caller holds
 * (texts and out): give a large corpus in chunks of some thousands of texts.
 */
#ifndef NG_MODEL_ENCODE_H
#define NG_MODEL_ENCODE_H

#include "common/base/err.h"
#include "common/model/model.h"
#include "common/text/rows.h"
#include "common/text/tokenizer.h"

struct ng_encode_count { /* added to, so zero it once */
	uint64_t texts, tokens, truncated;
	uint64_t longest; /* tokens before truncation */
};

struct ng_encoder {
	struct ng_model model;
	struct ng_tokenizer *tokenizer;
	struct ng_device *dev;
	size_t max_length; /* the folder's; may be lowered after open */
	size_t dim;
	int threads;
};

/* device: "auto", "cpu"; threads 0: what affinity and cgroup allow. */
int ng_encoder_open(struct ng_encoder *out, const char *dir, const char *device, long threads, struct ng_err *err);
void ng_encoder_close(struct ng_encoder *enc);

/* out (n, dim) host memory, as the folder's modules say (normalised only if it
 * has a Normalize).  prompt is put in front of each text; NULL or "" = none.
 * count may be NULL. */
int ng_encode(struct ng_encoder *enc, float *out, const struct ng_text *text, size_t n, const char *prompt,
	struct ng_encode_count *count, struct ng_err *err);

#endif
