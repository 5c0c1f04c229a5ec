/*
 * frame.h - the ng.* metadata of a frame, typed and checked (DESIGN.md
 * section 3, ng-stream(5)).
 *
 * ng_frame_parse is the only reader of these keys.  Everything is checked for
 * form: names, digests, ranges, JSON.  Whether experiment, round or base are
 * the wanted ones is for the program to say (77).
 */
#ifndef NG_TENSOR_FRAME_H
#define NG_TENSOR_FRAME_H

#include "common/base/hash.h"
#include "common/tensor/header.h"

#define NG_ROUND_MAX 99999999L

enum ng_kind { NG_KIND_GLOBAL, NG_KIND_UPDATE, NG_KIND_ADAPTER, NG_KIND_STATE, NG_KINDS };
const char *ng_kind_name(enum ng_kind k);
bool ng_kind_parse(enum ng_kind *out, const char *name);

struct ng_frame {
	enum ng_kind kind;
	char name[65];		/* experiment */
	char id[NG_HASH_HEX];	/* experiment id: object digest of manifest/00000 */
	long round;		/* an update's: that of the global it was trained on */
	char site[65];		/* "" in a global */
	char base[NG_HASH_HEX]; /* content digest of the global before ("" in round 0), or trained on */
	long long examples;	/* -1 when absent, as the next two */
	long long batch;	/* effective rows of a batch */
	long long steps;
	double loss;	    /* mean of the round; NaN when absent */
	const char *codec;  /* canonical JSON: "f32" (quoted), or {"TENSOR": "codec", ...}; NULL: all f32 */
	const char *device; /* text or NULL, as the rest; borrowed from the header */
	const char *build;
	const char *inputs; /* canonical JSON array: [{"site","digest","weight","verdict"}, ...] */
	const char *config; /* canonical JSON object, see fed/experiment.h */
};

/* All fields empty: -1, NaN, NULL, "". */
void ng_frame_init(struct ng_frame *f);
/* NG_DATA naming the key.  Required: ng.version 1, ng.kind, ng.experiment,
 * ng.round; in an update also ng.site, ng.base, ng.examples, ng.steps; in a
 * global ng.config. Strings are borrowed from m. */
int ng_frame_parse(struct ng_frame *out, const struct ng_meta *m, struct ng_err *err);
/* Set format, ng.version and every present field; keys of m that ng does not
 * know stay. Checked like parse (a bug of the caller is NG_SOFTWARE). */
int ng_frame_fill(struct ng_meta *m, const struct ng_frame *f, struct ng_err *err);
/* ROUND.SITE.LOCAL, as shown to people: "3.global.0" is written "3.0.0". */
void ng_frame_version(char out[96], const struct ng_frame *f);

#endif
