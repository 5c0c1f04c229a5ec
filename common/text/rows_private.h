/*
 * rows_private.h - between rows.c (files, index) and the two parsers of a record.
 */
#ifndef NG_ROWS_PRIVATE_H
#define NG_ROWS_PRIVATE_H

#include "common/text/rows.h"

enum ng_rows_role { NG_ROLE_FIRST, NG_ROLE_SECOND, NG_ROLE_THIRD, NG_ROLE_NONE };
enum ng_rows_format { NG_FORMAT_JSONL, NG_FORMAT_TSV, NG_FORMAT_CSV };

/* What a column is called, matched against the map: role, place of its name in
 * the role's list, number of NAME_n (0 without). */
struct ng_rows_column {
	enum ng_rows_role role;
	uint32_t name, number;
};

struct ng_rows_map {
	struct {
		char **name;
		size_t n;
	} role[3];
	char *ignored[16]; /* columns without a role, for one message */
	size_t ignored_n;
};

struct ng_rows_item {
	struct ng_rows_column column;
	size_t at, len; /* in row->buf */
};

struct ng_rows_file {
	char *path;
	int fd;
	uint64_t base; /* where the content begins (a BOM, a redirected stdin) */
	enum ng_rows_format format;
	struct ng_rows_column *column; /* TSV, CSV: of the header line */
	size_t columns;
};

/* Why a record is malformed; byte is counted from 1, 0: not known. */
struct ng_rows_bad {
	char text[256];
	size_t byte;
};

int ng_rows_bad(struct ng_rows_bad *bad, size_t byte, const char *fmt, ...) NG_PRINTF(3, 4);
struct ng_rows_column ng_rows_match(
	const struct ng_rows_map *map, enum ng_rows_kind kind, const char *name, size_t len);
void ng_rows_ignore(struct ng_rows_map *map, const char *name, size_t len);
void ng_rows_add(struct ng_row *row, struct ng_rows_column column, size_t at, size_t len);

/* Parse one record (no line end) into row->item and row->buf.  row->buf has
 * room for len + 1 bytes.  count and ignored may be NULL. 0, or -1 and bad. */
int ng_rows_json(struct ng_row *row, const struct ng_rows_map *map, enum ng_rows_kind kind, const char *s, size_t len,
	struct ng_rows_count *count, struct ng_rows_map *ignored, struct ng_rows_bad *bad);
int ng_rows_table(
	struct ng_row *row, const struct ng_rows_file *file, const char *s, size_t len, struct ng_rows_bad *bad);
/* Names of the header line into file->column. */
int ng_rows_header(struct ng_rows_file *file, struct ng_rows_map *map, enum ng_rows_kind kind, const char *s,
	size_t len, struct ng_rows_bad *bad);

#endif
