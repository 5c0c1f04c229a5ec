/*
 * normalize.h - the normaliser of a tokenizer: BertNormalizer, and what it is
 * made of, as a list of steps over code points.
 *
 * At load the steps are run on every character of the Basic Multilingual Plane,
 * so that normalising is one look-up a character.  Only canonical reordering
 * depends on neighbours; the rare characters that may take part in it go
 * through the steps literally, with the characters around them.
 */
#ifndef NG_NORMALIZE_H
#define NG_NORMALIZE_H

#include "common/base/err.h"
#include "common/base/str.h"

enum ng_normalize_step {
	NG_NORMALIZE_CLEAN,	/* delete controls, white space to ' ' */
	NG_NORMALIZE_CJK,	/* spaces around Chinese characters */
	NG_NORMALIZE_NFD,	/* canonical decomposition and order */
	NG_NORMALIZE_MARKS,	/* delete category Mn */
	NG_NORMALIZE_COMBINING, /* delete all marks */
	NG_NORMALIZE_LOWER,	/* full lower case, no context */
};

#define NG_NORMALIZE_STEPS 16
/* Most bytes of text that one character can become. */
#define NG_NORMALIZE_GROWTH 64

struct ng_normalizer {
	unsigned char step[NG_NORMALIZE_STEPS];
	size_t steps;
	/* private, made by ng_normalizer_ready */
	unsigned char ascii[128];
	uint32_t *entry; /* (65536) */
	struct ng_str pool;
};

/* A growing array of bytes; n is what is used. */
struct ng_bytes {
	unsigned char *data;
	size_t n, cap;
};

/* Both return -1 when there would be more than NG_NORMALIZE_STEPS. */
int ng_normalizer_add(struct ng_normalizer *z, enum ng_normalize_step step);
int ng_normalizer_prepend(struct ng_normalizer *z, enum ng_normalize_step step);
/* Call once, after the last step was added and before the first use. */
int ng_normalizer_ready(struct ng_normalizer *z, struct ng_err *err);
void ng_normalizer_release(struct ng_normalizer *z);
/* out = the normalised text; s must be valid UTF-8. */
void ng_normalize(struct ng_bytes *out, const struct ng_normalizer *z, const unsigned char *s, size_t len);

#endif
