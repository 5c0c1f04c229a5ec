/*
 * statement.h - the small text beside every object of the board, in the place
 * of its signature (DESIGN.md section 5):
 *
 *	ng-signature 1
 *	kind: update
 *	experiment: HEX          the experiment id
 *	manifest: 0              version of the manifest it was made under
 *	round: 3                 of a manifest or log entry: its number
 *	site: site-a             or -
 *	base: HEX                content digest, or -
 *	object: HEX              object digest: of the payload, parts joined
 *	created: 2026-12-01T01:10:00Z
 *	key: -                    of an open experiment without keys
 *
 * Lines in this order, each there once, no others, nothing after them.
 */
#ifndef NG_BOARD_STATEMENT_H
#define NG_BOARD_STATEMENT_H

#include "common/base/err.h"
#include "common/base/hash.h"

#define NG_STATEMENT_MAX 4096

struct ng_statement {
	char kind[16];
	char experiment[NG_HASH_HEX];
	long manifest;
	long round;
	char site[65];		/* "" = - */
	char base[NG_HASH_HEX]; /* "" = - */
	char object[NG_HASH_HEX];
	long long created; /* seconds since 1970, UTC */
	char key[129];	   /* "" = - */
};

/* Caller frees. */
char *ng_statement_text(const struct ng_statement *s);
/* NG_DATA naming the line. */
int ng_statement_parse(struct ng_statement *out, const char *text, size_t len, struct ng_err *err);

/* "2026-12-01T01:10:00Z", UTC, without the C library's time zone. */
void ng_time_text(char out[24], long long seconds);
bool ng_time_parse(long long *out, const char *text);

#endif
