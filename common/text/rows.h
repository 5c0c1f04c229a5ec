/*
 * rows.h - training and evaluation data: JSONL, TSV and CSV files read as rows
 * of texts (anchor, positive, negatives).
 *
 * The files are read once at open, checked to the last byte and indexed (24
 * bytes a row); texts are decoded again, with pread, when a row is asked for,
 * so a 2 GB file costs its index and nothing else, and a file cut short under
 * us is an error instead of a SIGBUS.  "-" and other things that cannot seek
 * are first copied to an unlinked temporary file.
 *
 * Formats (by extension .jsonl .ndjson .json / .tsv .tab / .csv, else by the
 * first line: '{', a tab, else CSV):
 *   JSONL  one object a line.  anchor|query, positive|pos, negative|neg|
 *          negatives, each also NAME_1..NAME_n; a string or a list of strings
 *          (null = absent).  Several positives make several rows.
 *   TSV    first line names the columns; no quoting.
 *   CSV    first line names the columns; RFC 4180 quoting, line breaks
 *          inside quotes.
 * Of two anchor names the first listed here wins; positives and negatives of
 * several names add up, in the order listed, NAME before NAME_1 before NAME_2.
 * --fields replaces the names of a role: "anchor=q,positive=p,negative=n,negative=m".
 * Columns that no role has are ignored and named once with -v.
 *
 * A BOM and CR before LF are dropped; blank lines are counted.  "\u0000" is
 * kept (texts have lengths); a raw NUL in a JSON string is malformed.  Lone
 * surrogate escapes become U+FFFD and are counted.  Invalid UTF-8 is an error
 * that names file:line:byte unless replace_utf8.  A row with an empty or blank
 * text is dropped and counted unless keep_empty; an empty cell of a negative
 * in TSV and CSV means that there is none.  A malformed row, a missing
 * or non-string field is an error that names file:line unless skip_bad.
 */
#ifndef NG_ROWS_H
#define NG_ROWS_H

#include "common/base/err.h"

enum ng_rows_kind {
	NG_ROWS_PAIRS, /* anchor, positive, negatives */
	NG_ROWS_STS,   /* sentence1|text1, sentence2|text2, score|label */
};

struct ng_rows_opts {
	enum ng_rows_kind kind;
	const char *fields; /* --fields or NULL */
	bool skip_bad, replace_utf8, keep_empty;
	long shard, shards; /* --shard K/N: rows i with i % N == K-1; 0, 0 = all */
	size_t min_rows;    /* fewer is NG_DATA; training wants 2, evaluation 1 */
	const char *tmpdir; /* where stdin is copied; NULL: $TMPDIR, else /tmp */
};

struct ng_rows_count {
	uint64_t lines, blank, empty, bad; /* dropped rows: empty, bad */
	uint64_t surrogates, replaced;	   /* characters replaced by U+FFFD */
	uint64_t more_negatives;	   /* rows that have more negatives than every row has */
	uint64_t bytes;
};

struct ng_rows {
	size_t n;	    /* rows (of this shard) */
	size_t columns;	    /* 2 + the number of negatives that every row has */
	size_t max_columns; /* 2 + the most negatives of a row */
	struct ng_rows_count count;
	/* private */
	struct ng_rows_entry *index;
	struct ng_rows_file *file;
	size_t files, cap;
	uint64_t kept; /* rows of all shards */
	struct ng_rows_opts opts;
	struct ng_rows_map *map;
};

struct ng_text {
	const char *s; /* UTF-8, may hold NUL, not terminated */
	size_t len;
};

/* One decoded row; reuse it for many.  text[0] anchor, [1] positive, [2..] all
 * its negatives (n may exceed rows->columns: a trainer uses the first
 * rows->columns).  Zero-initialise before the first use. */
struct ng_row {
	struct ng_text *text;
	size_t n;
	double score; /* NG_ROWS_STS */
	/* private */
	struct ng_rows_item *item;
	size_t items, item_cap;
	size_t text_cap;
	char *raw, *clean, *buf;
	size_t raw_cap, clean_cap, buf_cap;
};

/* Reads and checks all paths, in order, as one.  Warns (ng_warn) about dropped
 * rows and replaced characters and, when min_rows says that this is training
 * (2 or more), about negatives that not every row has: a batch needs the same
 * number of columns in every row, so the rest of them is not trained on. */
int ng_rows_open(struct ng_rows *rows, const char *const *path, size_t paths, const struct ng_rows_opts *opts,
	struct ng_err *err);
void ng_rows_close(struct ng_rows *rows);
/* May be called from several threads, each with its own row. */
int ng_rows_get(const struct ng_rows *rows, size_t i, struct ng_row *row, struct ng_err *err);
void ng_row_release(struct ng_row *row);
/* "file:line" of a row, for messages. */
void ng_rows_where(const struct ng_rows *rows, size_t i, char *out, size_t size);
/* (n, columns) row-major 64-bit hashes of the texts, for the sampler. Caller frees. */
int ng_rows_hashes(const struct ng_rows *rows, uint64_t **out, struct ng_err *err);
/* "3/8" to *shard, *shards; false unless 1 <= K <= N <= 1000000. */
bool ng_rows_parse_shard(const char *text, long *shard, long *shards);

#endif
