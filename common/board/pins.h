/*
 * pins.h - what this host has seen of a board, in its state folder: a board
 * that shows less, or something else, is refused (77).
 *
 * STATE/boards/NAME-HEX/ holds pins.json; HEX is made from the board's
 * address, so that two boards with experiments of one name do not meet.
 * {"address": ..., "experiment": NAME, "global": N, "global_digest": HEX,
 *  "id": HEX, "manifest": N, "manifest_digest": HEX}; digests are object digests.
 */
#ifndef NG_BOARD_PINS_H
#define NG_BOARD_PINS_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/board/board.h"

struct ng_pins {
	char *dir;	      /* this board's folder in the state folder */
	char id[NG_HASH_HEX]; /* "" = nothing pinned yet */
	long manifest;
	char manifest_hex[NG_HASH_HEX];
	long global; /* -1 = none yet */
	char global_hex[NG_HASH_HEX];
};

/* state: what --state gave, or NULL. A pins.json that cannot be read is an error, never ignored. */
int ng_pins_open(struct ng_pins *out, const struct ng_board *b, const char *state, struct ng_err *err);
void ng_pins_close(struct ng_pins *p);
/* Raise the pins to what now holds (never lower them, but with `replace`);
 * several programs may do so at once. */
int ng_pins_set(
	struct ng_pins *p, const struct ng_board *b, const struct ng_pins *now, bool replace, struct ng_err *err);

#endif
