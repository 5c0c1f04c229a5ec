/*
 * aggregate.h - the updates of a round reduced to the next global model.
 *
 *	global'[i] = (float)(global[i] + (sum_s w_s * delta_s[i]) / (sum_s w_s))
 *
 * in float64, sites in name order, rounded once (mean.h).  The result depends
 * on the set of updates alone: not on the order in which they are given, on
 * threads, memory or compiler.
 *
 * Memory is bounded whatever the number of updates and the size of the model:
 * all updates of a group are read side by side in blocks; when there are more
 * than a group may hold, the float64 sums of the groups before lie in an
 * unlinked temporary file.  Everything is read once.  What is found wrong on
 * the way (a value, a norm, a checksum) refuses that update: the rest is only
 * checked then, and the pass starts again without the refused.
 *
 * Nothing here knows a board, a key or standard output.
 */
#ifndef NG_FED_AGGREGATE_H
#define NG_FED_AGGREGATE_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/fed/experiment.h"

#define NG_AGGREGATE_REASON 400
#define NG_AGGREGATE_MEMORY ((uint64_t)200 << 20) /* default, resident and all told */
#define NG_AGGREGATE_MAX_NORM 10.0

/* Where one frame lies. */
struct ng_agg_source {
	char *name; /* for messages */
	char *path; /* a file that holds one frame, or NULL: */
	int fd;	    /* `length` bytes at `offset` of fd */
	uint64_t offset, length;
	char site[65];		  /* as listed by ng-pull, "" = not said */
	char digest[NG_HASH_HEX]; /* object digest as listed, checked; "" = to be computed (one more reading) */
};

/* What became of an update. */
struct ng_agg_verdict {
	char site[65];		  /* "" when it cannot be told */
	char digest[NG_HASH_HEX]; /* "" likewise */
	double weight;		  /* 0 when refused */
	bool accepted;
	char reason[NG_AGGREGATE_REASON]; /* "ok", or why it was refused */
};

struct ng_agg_opts {
	int threads;
	uint64_t memory;	/* 0 = default */
	size_t block;		/* elements read at a time; 0 = as memory allows (tests set it) */
	double max_norm;	/* of a tensor's delta, in norms of the global's tensor; 0 = default */
	const char *experiment; /* the newest experiment file; NULL: the global's own */
	const char *tmpdir;	/* NULL: $TMPDIR, else /tmp */
	void (*refused)(const struct ng_agg_verdict *v, const char *name, void *arg); /* told at once; may be NULL */
	void *arg;
};

struct ng_agg_result {
	struct ng_agg_verdict *verdict; /* of every update, sites in name order */
	size_t n, accepted;
	long round; /* of the new global */
	long quorum;
	char name[65];			 /* experiment */
	char global_digest[NG_HASH_HEX]; /* content digest of the global given */
	char digest[NG_HASH_HEX];	 /* and of the new one, "" when none was written */
	int passes;
};

/*
 * fd: an empty, seekable file for the new global's frame (no brackets), or -1
 * to check only.  Returns 0; -1 with NG_NOTHING when too few updates are left
 * for the quorum or the last round is done (fd then holds nothing of use);
 * NG_DATA when the global itself is unfit.  out is filled as far as things
 * went, and to be released in any case.
 *
 * An update is refused for: another experiment, round or base; a tensor
 * missing, more, or of another shape or type; a value that is not finite; a
 * norm over the limit: per tensor ||delta|| <= max_norm * max(||global||,
 * 0.1 sqrt(elements)); no examples (no steps where these are the weights); a
 * second one of its site (equal ones count once, of different ones none);
 * a cut or altered file; another object digest than the one listed.  The
 * digests of the result are of what was read, never merely of what was listed.
 */
int ng_aggregate(struct ng_agg_result *out, const struct ng_agg_source *global, const struct ng_agg_source *update,
	size_t n, const struct ng_agg_opts *opts, int fd, struct ng_err *err);
void ng_agg_result_release(struct ng_agg_result *r);
void ng_agg_source_release(struct ng_agg_source *s);

/* An unlinked temporary file. -1 and err. */
int ng_temp_fd(const char *tmpdir, struct ng_err *err);

#endif
