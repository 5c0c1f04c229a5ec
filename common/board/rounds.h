/*
 * rounds.h - an experiment on its board, as ng-pull, ng-push and ng-status
 * see it: the newest accepted manifest, the newest valid global, which updates
 * of a round are valid, whether there is work, and the log.
 *
 * Valid means, in this order: the statement is of this experiment and names
 * the object's own kind, round and site; the payload has the digest that the
 * statement names; its first frame parses and says the same.  Only then is
 * anything else looked at.  (Values are checked by ng-push before publication
 * and by ng-aggregate; signatures come with the member list.)
 */
#ifndef NG_BOARD_ROUNDS_H
#define NG_BOARD_ROUNDS_H

#include <jansson.h>

#include "common/board/board.h"
#include "common/board/manifest.h"
#include "common/board/pins.h"
#include "common/tensor/stream.h"

enum ng_rounds_flags {
	NG_ROUNDS_SHALLOW = 1 << 0, /* believe statements without reading payloads (ng-status) */
	NG_ROUNDS_NO_PIN = 1 << 1,  /* look at the pins, change nothing (dry run) */
	NG_ROUNDS_LIGHT = 1 << 3,   /* a global that this host verified before is not read again (ng-push of an
					 * update): its header is taken from the state folder */
	NG_ROUNDS_DEEP = 1 << 2,    /* an update's frame is decoded to its end before it counts */
};

struct ng_rounds {
	struct ng_board *board;
	struct ng_pins pins;
	unsigned flags;
	char id[NG_HASH_HEX];
	struct ng_manifest manifest; /* the newest accepted one */
	char manifest_hex[NG_HASH_HEX];
	long newest; /* the newest valid global, -1 when there is none */
	char global_hex[NG_HASH_HEX];
	struct ng_object *global;	/* it, verified; NULL when shallow */
	struct ng_header global_header; /* of its frame */
	long long global_created;
	uint64_t global_bytes;
	char damaged[256]; /* a global newer than that is on the board, but this is wrong with it; "" */
};

/* address and experiment as given; state: --state or NULL; accept_rollback: an
 * experiment id whose board is to be believed again, or NULL.
 * NG_NOINPUT no such experiment; NG_REFUSED when the board shows less or other
 * than this host has seen; NG_TEMPFAIL when its first global is not there yet. */
int ng_rounds_open(struct ng_rounds *out, const char *address, const char *experiment, const char *state,
	const char *accept_rollback, unsigned flags, struct ng_err *err);
void ng_rounds_close(struct ng_rounds *r); /* harmless on a zeroed struct */

/* The statement of o, which must be of this experiment and of the object's own name. NG_DATA. */
int ng_rounds_check_statement(
	struct ng_statement *s, const struct ng_rounds *r, struct ng_object *o, struct ng_err *err);

/* Open global/<round>, verified as above, standing at its start. header may be
 * NULL.  (The newest one lies open in r->global already.) */
int ng_rounds_global(
	struct ng_object **out, struct ng_rounds *r, long round, struct ng_header *header, struct ng_err *err);
/* Content digest of a verified global: from its log entry, else computed. */
int ng_rounds_content(char hex[NG_HASH_HEX], struct ng_rounds *r, struct ng_object *global, struct ng_err *err);

struct ng_update {
	char site[65];
	char hex[NG_HASH_HEX]; /* object digest */
	uint64_t bytes;
	size_t parts;
	long long created;
	bool valid;
	char reason[320]; /* why not */
	/* of the frame, when it was read */
	long long examples, steps;
	double loss;
};
/* Is update/<round>/<site> there and valid?  1 yes, 0 no (out->reason says why,
 * "" when it is absent), -1 err.  global: its content digest and header. */
int ng_rounds_update(struct ng_update *out, struct ng_rounds *r, long round, const char *site,
	const char *global_content, const struct ng_header *global, struct ng_err *err);
/* All updates of a round, sites in order. Caller frees *out. */
int ng_rounds_updates(struct ng_update **out, size_t *n, struct ng_rounds *r, long round, const char *global_content,
	const struct ng_header *global, struct ng_err *err);
/* NG_REFUSED naming the tensor in which an update differs from its global. */
int ng_rounds_same_tensors(const struct ng_header *update, const struct ng_header *global, struct ng_err *err);

/* DESIGN.md section 2, "When is there work?" */
enum ng_round_state {
	NG_ROUND_WAITING,  /* for updates */
	NG_ROUND_READY,	   /* to be aggregated: `expect` came, or the deadline passed with `quorum` */
	NG_ROUND_STALLED,  /* the deadline passed without a quorum */
	NG_ROUND_COMPLETE, /* it is the last */
};
/* created: of global/<round>. valid: updates that count. now: seconds since 1970. */
enum ng_round_state ng_rounds_decide(
	const struct ng_experiment *exp, long round, long long created, size_t valid, long long now);
const char *ng_round_state_name(enum ng_round_state s);

/* A site says that it is at work until about `until`. */
int ng_rounds_claim(
	struct ng_rounds *r, long round, const char *site, long long since, long long until, struct ng_err *err);
struct ng_claim {
	char site[65];
	long long since, until;
};
int ng_rounds_claims(struct ng_claim **out, size_t *n, struct ng_rounds *r, long round, struct ng_err *err);

/* A statement of this experiment; object is filled at commit. site, base may be "". */
void ng_rounds_statement(struct ng_statement *out, const struct ng_rounds *r, enum ng_object_kind kind, long round,
	const char *site, const char *base);

/* Append to the log: entry (taken) gets "n" and "previous".  A damaged newest entry is taken away first. */
int ng_rounds_log(struct ng_rounds *r, json_t *entry, struct ng_err *err);
/* The newest log entry with this kind, round and object, verified; NULL when there
 * is none (err untouched) or on failure. Caller decrefs. */
json_t *ng_rounds_log_find(struct ng_rounds *r, const char *kind, long round, const char *object);

/* All entries that are there and whole, in order: a JSON array. Caller decrefs. */
int ng_rounds_log_all(json_t **out, struct ng_rounds *r, struct ng_err *err);

/* What `keep` no longer holds once global/<newest> is out: JSON array of object
 * paths; remove does it. */
int ng_rounds_prunable(json_t **out, struct ng_rounds *r, long newest, struct ng_err *err);
int ng_rounds_remove(struct ng_rounds *r, const json_t *paths, struct ng_err *err);

#endif
