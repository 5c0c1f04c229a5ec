/*
 * board.h - the blackboard: objects of one experiment, published whole or not
 * at all, the first one wins (DESIGN.md section 4, ng-board(5)).
 *
 * An object is a payload (bytes, in parts), a signature text (statement.h) and,
 * in a manifest, small files beside it.  Implementations are tables of
 * functions chosen by the address: dir.c is a directory; git comes with a
 * second table.  Nothing here parses a payload, and nothing that was read is
 * to be believed before ng_object_verify said so.
 *
 * Errors: no board or object NG_NOINPUT; a board that went away under us and
 * everything that the system reports NG_IOERR; an object that was pruned while
 * it was read NG_TEMPFAIL; malformed NG_DATA; what exists NG_NOTHING.
 */
#ifndef NG_BOARD_BOARD_H
#define NG_BOARD_BOARD_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/board/statement.h"

#define NG_PART_BYTES (32u << 20)
#define NG_PARTS_MAX 100000
#define NG_NUMBER_MAX 99999999L
#define NG_SMALL_FILE_MAX (64u << 20) /* one of the model folder's small files */
#define NG_STALE_SECONDS (24 * 3600L) /* temporaries older than this are removed */

enum ng_object_kind {
	NG_OBJ_MANIFEST, /* manifest/<n> */
	NG_OBJ_BASE,	 /* base */
	NG_OBJ_GLOBAL,	 /* global/<round> */
	NG_OBJ_UPDATE,	 /* update/<round>/<site> */
	NG_OBJ_METRICS,	 /* metrics/<round>/<site> */
	NG_OBJ_STATE,	 /* state/<round>/<content digest of its global> */
	NG_OBJ_LOG,	 /* log/<n> */
	NG_OBJ_CLAIM,	 /* claim/<round>/<site>: the only kind that is replaced at will */
	NG_OBJ_KINDS
};
const char *ng_object_kind_name(enum ng_object_kind k);

struct ng_name {
	enum ng_object_kind kind;
	long n;	       /* round, or number of a manifest or log entry; 0 for base */
	char leaf[65]; /* site or digest, "" where the kind has none */
};
/* leaf may be NULL. A name that is not one is a bug (70): check foreign text before. */
struct ng_name ng_object_name(enum ng_object_kind kind, long n, const char *leaf);
/* "update/00003/site-a" */
void ng_object_path(char out[128], const struct ng_name *name);

struct ng_board;
struct ng_object;
struct ng_object_writer;

enum ng_board_flags {
	NG_BOARD_CREATE = 1 << 0, /* make the folder of the experiment where it is missing */
	NG_BOARD_GROUP = 1 << 1,  /* with CREATE: written by all of the group (setgid) */
	NG_BOARD_ALL = 1 << 2,	  /* with CREATE: and read by everyone */
};

/* experiment must be a valid name (64). An address of a kind that is not built in is 64. */
int ng_board_open(
	struct ng_board **out, const char *address, const char *experiment, unsigned flags, struct ng_err *err);
void ng_board_close(struct ng_board *b);		/* NULL allowed */
const char *ng_board_address(const struct ng_board *b); /* absolute, without "file://" */
const char *ng_board_experiment(const struct ng_board *b);

struct ng_entry {
	struct ng_name name;
	uint64_t bytes; /* of the payload */
	size_t parts;
	long long mtime; /* of the object, seconds since 1970 by the board's clock */
};
/* Objects of a kind, of round n or of all (-1), sorted by number, then leaf.
 * Only what has the shape of an object is listed: litter, foreign files,
 * symbolic links and names that are none are passed over, and counted in *odd
 * (may be NULL).  None is 0 with *count 0. Caller frees *out. */
int ng_board_list(struct ng_board *b, enum ng_object_kind kind, long n, struct ng_entry **out, size_t *count,
	size_t *odd, struct ng_err *err);

/* ---- reading ---- */

int ng_object_open(struct ng_object **out, struct ng_board *b, const struct ng_name *name, struct ng_err *err);
void ng_object_close(struct ng_object *o); /* NULL allowed */
const struct ng_entry *ng_object_entry(const struct ng_object *o);
/* Parsed, its form checked; NG_DATA when it is malformed. */
int ng_object_statement(struct ng_statement *out, const struct ng_object *o, struct ng_err *err);
/* Payload from the start: bytes got, 0 at the end, -1. An ng_read_fn (arg = the object). */
ptrdiff_t ng_object_read(void *object, void *buf, size_t n, struct ng_err *err);
int ng_object_rewind(struct ng_object *o, struct ng_err *err);
/* The whole payload, at most max bytes, NUL added, its digest compared with the
 * statement's. Caller frees. */
int ng_object_load(char **out, size_t *len, struct ng_object *o, size_t max, struct ng_err *err);
/* Read it all and compare its digest with the statement's object: NG_DATA where
 * they differ.  Rewinds. */
int ng_object_verify(struct ng_object *o, struct ng_err *err);
/* Reading a payload that was verified before, for use: an ng_read_fn (arg = the
 * struct) that hashes again and hands out the last bytes only when the digest
 * is right, so that no frame is complete that was changed since. */
struct ng_verified {
	struct ng_object *object;
	struct ng_hash hash;
	uint64_t left;
	char hex[NG_HASH_HEX];
};
int ng_verified_start(struct ng_verified *v, struct ng_object *o, struct ng_err *err);
ptrdiff_t ng_verified_read(void *verified, void *buf, size_t n, struct ng_err *err);
/* A file beside the payload; rel as ng_object_rel_valid. */
int ng_object_file(char **out, size_t *len, struct ng_object *o, const char *rel, size_t max, struct ng_err *err);
/* A path of the payload for other programs, or NULL where it is not one plain file. Borrowed. */
const char *ng_object_plain_path(const struct ng_object *o);
/* Relative, no empty, "." or ".." component, printable, at most 4 deep and 255 bytes. */
bool ng_object_rel_valid(const char *rel);

/* ---- writing ---- */

/* Nothing is seen on the board before commit; a killed writer leaves only
 * litter that a later one removes. */
int ng_object_new(struct ng_object_writer **out, struct ng_board *b, const struct ng_name *name, struct ng_err *err);
int ng_object_write(void *writer, const void *data, size_t n, struct ng_err *err); /* an ng_write_fn */
int ng_object_add_file(struct ng_object_writer *w, const char *rel, const void *data, size_t len, struct ng_err *err);
/* Digest of what was written so far; ends the payload. */
const char *ng_object_digest(struct ng_object_writer *w);
uint64_t ng_object_bytes(const struct ng_object_writer *w);
/* Publish with its statement (s->object is filled in).  NG_NOTHING when the name
 * is taken.  Frees w whatever happens.  A claim replaces. */
int ng_object_commit(struct ng_object_writer *w, struct ng_statement *s, struct ng_err *err);
void ng_object_abort(struct ng_object_writer *w); /* NULL allowed */

/* Take an object that was found invalid out of the way: only if it is still the
 * very one that o shows, else NG_TEMPFAIL. */
int ng_object_discard(struct ng_object *o, struct ng_err *err);
/* Remove an object (pruning). One that is not there is 0. */
int ng_board_remove(struct ng_board *b, const struct ng_name *name, struct ng_err *err);
/* Remove temporaries of writers that died, older than `age` seconds by the
 * board's clock (NG_STALE_SECONDS); *removed may be NULL. Failures are silent:
 * others' may stay. */
void ng_board_tidy(struct ng_board *b, long age, long *removed);

/* ---- what an implementation provides ---- */

struct ng_board_ops {
	const char *name;
	int (*open)(struct ng_board *b, unsigned flags, struct ng_err *err);
	void (*close)(struct ng_board *b);
	int (*list)(struct ng_board *b, enum ng_object_kind kind, long n, struct ng_entry **out, size_t *count,
		size_t *odd, struct ng_err *err);
	int (*object_open)(struct ng_object *o, struct ng_err *err);
	void (*object_close)(struct ng_object *o);
	ptrdiff_t (*object_read)(struct ng_object *o, void *buf, size_t n, struct ng_err *err);
	int (*object_rewind)(struct ng_object *o, struct ng_err *err);
	int (*object_file)(
		struct ng_object *o, const char *rel, char **out, size_t *len, size_t max, struct ng_err *err);
	int (*object_discard)(struct ng_object *o, struct ng_err *err);
	int (*writer_open)(struct ng_object_writer *w, struct ng_err *err);
	int (*writer_write)(struct ng_object_writer *w, const void *data, size_t n, struct ng_err *err);
	int (*writer_file)(
		struct ng_object_writer *w, const char *rel, const void *data, size_t len, struct ng_err *err);
	int (*writer_commit)(struct ng_object_writer *w, const char *signature, size_t len, struct ng_err *err);
	void (*writer_close)(struct ng_object_writer *w); /* gives up what was not committed */
	int (*remove)(struct ng_board *b, const struct ng_name *name, struct ng_err *err);
	void (*tidy)(struct ng_board *b, long age, long *removed);
};
extern const struct ng_board_ops ng_board_dir;

/* The common part of each; impl is the implementation's own. */
struct ng_board {
	const struct ng_board_ops *ops;
	char *address;	  /* absolute */
	char *experiment; /* name */
	void *impl;
};
struct ng_object {
	struct ng_board *board;
	struct ng_entry entry;
	char *signature; /* as read, NUL-terminated */
	size_t signature_len;
	char *path; /* plain path or NULL */
	void *impl;
};
struct ng_object_writer {
	struct ng_board *board;
	struct ng_name name;
	struct ng_hasher *hash;
	char hex[NG_HASH_HEX]; /* "" until the payload ended */
	uint64_t bytes;
	void *impl;
};

#endif
