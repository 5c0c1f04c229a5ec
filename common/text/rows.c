#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/rows_private.h"

#define RECORD_MAX ((size_t)256 << 20)
#define BLOCK ((size_t)1 << 20)

struct ng_rows_entry {
	uint64_t at; /* in the file */
	uint32_t len, line;
	uint32_t negatives;
	uint16_t file, positive; /* which of the record's positives */
};
_Static_assert(sizeof(struct ng_rows_entry) == 24, "24 bytes a row are promised");

int ng_rows_bad(struct ng_rows_bad *bad, size_t byte, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(bad->text, sizeof bad->text, fmt, args);
	va_end(args);
	bad->byte = byte;
	return -1;
}

/* ---- names ---- */

static const char *const role_names[2][3] = { { "anchor", "positive", "negative" },
	{ "sentence1", "sentence2", "score" } };
static const char *const default_names[2][3][4] = {
	{ { "anchor", "query", NULL }, { "positive", "pos", NULL }, { "negative", "neg", "negatives", NULL } },
	{ { "sentence1", "text1", NULL }, { "sentence2", "text2", NULL }, { "score", "label", NULL } },
};

struct ng_rows_column ng_rows_match(const struct ng_rows_map *map, enum ng_rows_kind kind, const char *name, size_t len)
{
	struct ng_rows_column c = { NG_ROLE_NONE, 0, 0 };
	size_t r, i, k, n;
	uint32_t number;

	for (r = 0; r < 3; r++)
		for (i = 0; i < map->role[r].n; i++) {
			n = strlen(map->role[r].name[i]);
			if (len < n || memcmp(name, map->role[r].name[i], n) != 0)
				continue;
			c.name = (uint32_t)i;
			if (len == n) {
				c.role = (enum ng_rows_role)r;
				return c;
			}
			/* NAME_12 */
			if (kind != NG_ROWS_PAIRS || r == 0 || name[n] != '_' || len - n > 7 || len == n + 1)
				continue;
			for (number = 0, k = n + 1; k < len && name[k] >= '0' && name[k] <= '9'; k++)
				number = number * 10 + (uint32_t)(name[k] - '0');
			if (k < len)
				continue;
			c.role = (enum ng_rows_role)r;
			c.number = number + 1;
			return c;
		}
	c.name = 0;
	return c;
}

void ng_rows_ignore(struct ng_rows_map *map, const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < map->ignored_n; i++)
		if (strlen(map->ignored[i]) == len && memcmp(map->ignored[i], name, len) == 0)
			return;
	if (map->ignored_n < NG_COUNT(map->ignored) && memchr(name, 0, len) == NULL)
		map->ignored[map->ignored_n++] = ng_xstrndup(name, len);
}

static void add_name(struct ng_rows_map *map, size_t role, const char *name, size_t len)
{
	map->role[role].name = ng_xrealloc(map->role[role].name, map->role[role].n + 1, sizeof(char *));
	map->role[role].name[map->role[role].n++] = ng_xstrndup(name, len);
}

static int make_map(struct ng_rows *rows, struct ng_err *err)
{
	const char *s = rows->opts.fields, *equals;
	size_t kind = rows->opts.kind, r, i, n;

	rows->map = ng_xcalloc(1, sizeof *rows->map);
	while (s && *s) {
		n = strcspn(s, ",");
		equals = memchr(s, '=', n);
		for (r = 0; r < 3; r++)
			if (equals && strlen(role_names[kind][r]) == (size_t)(equals - s) &&
				memcmp(role_names[kind][r], s, (size_t)(equals - s)) == 0)
				break;
		if (equals == NULL || r == 3 || equals + 1 == s + n)
			return ng_fail(err, NG_USAGE, "'%.*s' of the fields is not %s=, %s= or %s= and a name", (int)n,
				s, role_names[kind][0], role_names[kind][1], role_names[kind][2]);
		add_name(rows->map, r, equals + 1, (size_t)(s + n - equals - 1));
		s += n;
		s += *s == ',';
	}
	for (r = 0; r < 3; r++)
		if (rows->map->role[r].n == 0)
			for (i = 0; default_names[kind][r][i]; i++)
				add_name(rows->map, r, default_names[kind][r][i], strlen(default_names[kind][r][i]));
	return 0;
}

static void free_map(struct ng_rows_map *map)
{
	size_t r, i;

	if (map == NULL)
		return;
	for (r = 0; r < 3; r++) {
		for (i = 0; i < map->role[r].n; i++)
			free(map->role[r].name[i]);
		free(map->role[r].name);
	}
	for (i = 0; i < map->ignored_n; i++)
		free(map->ignored[i]);
	free(map);
}

/* ---- one record ---- */

void ng_rows_add(struct ng_row *row, struct ng_rows_column column, size_t at, size_t len)
{
	struct ng_rows_item *it;

	ng_grow(&row->item, &row->item_cap, row->items + 1, sizeof *row->item);
	it = &row->item[row->items++];
	it->column = column;
	it->at = at;
	it->len = len;
}

static void room(char **p, size_t *cap, size_t need)
{
	if (need <= *cap)
		return;
	free(*p);
	*cap = need < 4096 ? 4096 : need + need / 4;
	*p = ng_xmalloc(*cap);
}

/* Copy with U+FFFD for each byte that starts no character. Returns the length. */
static size_t clean_utf8(char *out, const char *s, size_t len, uint64_t *replaced)
{
	size_t i = 0, k = 0, n;
	uint32_t cp;

	while (i < len) {
		n = ng_utf8_decode(&cp, s + i, len - i);
		if (n == 0) {
			k += ng_utf8_encode(out + k, 0xfffd);
			i++;
			if (replaced)
				++*replaced;
			continue;
		}
		memcpy(out + k, s + i, n);
		k += n;
		i += n;
	}
	return k;
}

static int parse_score(struct ng_row *row, struct ng_rows_bad *bad, const struct ng_rows_item *it)
{
	char text[64];
	size_t len = it->len, at = it->at;

	while (len && (row->buf[at] == ' ' || row->buf[at] == '\t'))
		at++, len--;
	while (len && (row->buf[at + len - 1] == ' ' || row->buf[at + len - 1] == '\t'))
		len--;
	if (len == 0 || len >= sizeof text || memchr(row->buf + at, 0, len))
		return ng_rows_bad(bad, 0, "the score is not a number");
	memcpy(text, row->buf + at, len);
	text[len] = 0;
	if (!ng_parse_double(&row->score, text))
		return ng_rows_bad(bad, 0, "the score is not a number");
	return 0;
}

static int by_column(const void *a, const void *b)
{
	const struct ng_rows_item *x = a, *y = b;

	if (x->column.role != y->column.role)
		return x->column.role < y->column.role ? -1 : 1;
	if (x->column.name != y->column.name)
		return x->column.name < y->column.name ? -1 : 1;
	if (x->column.number != y->column.number)
		return x->column.number < y->column.number ? -1 : 1;
	return x->at < y->at ? -1 : 1; /* a list in its own order */
}

struct shape {
	size_t positives, negatives;
};

/* Parse a record; the items end sorted: the anchor, positives, negatives. */
static int parse(const struct ng_rows *rows, const struct ng_rows_file *file, const char *s, size_t len,
	struct ng_row *row, struct shape *shape, struct ng_rows_count *count, struct ng_rows_map *ignored,
	struct ng_rows_bad *bad)
{
	size_t i, k, at;
	const char *const *names = role_names[rows->opts.kind];

	if (!ng_utf8_valid(s, len, &at)) {
		if (!rows->opts.replace_utf8)
			return ng_rows_bad(bad, at + 1, "invalid UTF-8");
		room(&row->clean, &row->clean_cap, 3 * len + 1);
		len = clean_utf8(row->clean, s, len, count ? &count->replaced : NULL);
		s = row->clean;
	}
	room(&row->buf, &row->buf_cap, len + 1);
	if (file->format == NG_FORMAT_JSONL) {
		if (ng_rows_json(row, rows->map, rows->opts.kind, s, len, count, ignored, bad))
			return -1;
	} else if (ng_rows_table(row, file, s, len, bad)) {
		return -1;
	}
	if (row->items > 1)
		qsort(row->item, row->items, sizeof *row->item, by_column);
	/* of several anchors (and scores) the name listed first */
	for (i = k = 0; i < row->items; i++) {
		bool single = row->item[i].column.role == NG_ROLE_FIRST || rows->opts.kind == NG_ROWS_STS;

		if (!single || k == 0 || row->item[k - 1].column.role != row->item[i].column.role)
			row->item[k++] = row->item[i];
	}
	row->items = k;
	memset(shape, 0, sizeof *shape);
	for (i = 0; i < k; i++) {
		shape->positives += row->item[i].column.role == NG_ROLE_SECOND;
		shape->negatives += row->item[i].column.role == NG_ROLE_THIRD;
	}
	if (k == 0 || row->item[0].column.role != NG_ROLE_FIRST)
		return ng_rows_bad(bad, 0, "no %s", names[0]);
	if (shape->positives == 0)
		return ng_rows_bad(bad, 0, "no %s", names[1]);
	if (shape->positives > UINT16_MAX)
		return ng_rows_bad(bad, 0, "more than %d positives", UINT16_MAX);
	if (rows->opts.kind == NG_ROWS_STS) {
		if (shape->negatives == 0)
			return ng_rows_bad(bad, 0, "no score");
		if (parse_score(row, bad, &row->item[k - 1]))
			return -1;
		shape->negatives = 0;
	}
	return 0;
}

/* The texts of the record's row with its positive number `positive`. */
static void choose(struct ng_row *row, const struct shape *shape, size_t positive)
{
	size_t i, k = 0, it;

	row->n = 2 + shape->negatives;
	ng_grow(&row->text, &row->text_cap, row->n, sizeof *row->text);
	for (i = 0; i < row->n; i++) {
		it = i == 0 ? 0 : i == 1 ? 1 + positive : i - 1 + shape->positives;
		row->text[k].s = row->buf + row->item[it].at;
		row->text[k++].len = row->item[it].len;
	}
}

static bool blank(const char *s, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (s[i] != ' ' && (s[i] < '\t' || s[i] > '\r'))
			return false;
	return true;
}

static bool has_blank(const struct ng_row *row)
{
	size_t i;

	for (i = 0; i < row->n; i++)
		if (blank(row->text[i].s, row->text[i].len))
			return true;
	return false;
}

/* ---- files ---- */

/* Copy what cannot seek to a file that is gone when we are. */
static int spool(struct ng_rows_file *file, const char *tmpdir, struct ng_err *err)
{
	const char *env = getenv("TMPDIR");
	char *name, *buf;
	ptrdiff_t n;
	int fd, r = 0;

	if (tmpdir == NULL)
		tmpdir = env && env[0] ? env : "/tmp";
	name = ng_xasprintf("%s/ng-data.ng-XXXXXX", tmpdir);
	fd = mkstemp(name);
	if (fd < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot create a temporary file in '%s'", tmpdir);
		free(name);
		return -1;
	}
	unlink(name);
	free(name);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	buf = ng_xmalloc(BLOCK);
	while (r == 0 && (n = ng_read_full(file->fd, buf, BLOCK)) != 0) {
		if (n < 0)
			r = ng_fail_errno(err, NG_IOERR, "cannot read '%s'", file->path);
		else if (ng_write_full(fd, buf, (size_t)n) != 0)
			r = ng_fail_errno(err, NG_IOERR, "cannot write a temporary file in '%s'", tmpdir);
	}
	free(buf);
	if (file->fd != STDIN_FILENO)
		close(file->fd);
	file->fd = fd;
	file->base = 0;
	return r;
}

static int open_file(struct ng_rows_file *file, const char *path, const char *tmpdir, struct ng_err *err)
{
	struct stat st;
	off_t at;

	file->path = ng_xstrdup(strcmp(path, "-") == 0 ? "standard input" : path);
	file->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (file->fd < 0)
		return ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
	if (fstat(file->fd, &st) != 0)
		return ng_fail_errno(err, NG_IOERR, "cannot look at '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return ng_fail_errno(err, NG_NOINPUT, "cannot read '%s'", path);
	}
	at = S_ISREG(st.st_mode) ? lseek(file->fd, 0, SEEK_CUR) : -1;
	if (at < 0)
		return spool(file, tmpdir, err);
	file->base = (uint64_t)at;
	return 0;
}

static ptrdiff_t pread_full(int fd, char *buf, size_t n, uint64_t at)
{
	size_t got = 0;
	ssize_t r;

	while (got < n) {
		r = pread(fd, buf + got, n - got, (off_t)(at + got));
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ptrdiff_t)got;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

/* BOM, then the format by name or by the first line. */
static int find_format(struct ng_rows_file *file, struct ng_err *err)
{
	static const struct {
		const char *end;
		enum ng_rows_format format;
	} known[] = { { ".jsonl", NG_FORMAT_JSONL }, { ".ndjson", NG_FORMAT_JSONL }, { ".json", NG_FORMAT_JSONL },
		{ ".tsv", NG_FORMAT_TSV }, { ".tab", NG_FORMAT_TSV }, { ".csv", NG_FORMAT_CSV } };
	char head[4096];
	ptrdiff_t n = pread_full(file->fd, head, sizeof head, file->base);
	size_t i, from = 0, len, line;

	if (n < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", file->path);
	len = (size_t)n;
	if (len >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) {
		from = 3;
		file->base += 3;
	} else if (len >= 2 && (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0)) {
		return ng_fail(err, NG_DATA, "'%s' is UTF-16, not UTF-8 (iconv can convert it)", file->path);
	} else if (len >= 4 && memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0) {
		return ng_fail(err, NG_DATA, "'%s' is compressed: pipe 'zstd -dc' into '-d -'", file->path);
	} else if (len >= 2 && memcmp(head, "\x1f\x8b", 2) == 0) {
		return ng_fail(err, NG_DATA, "'%s' is compressed: pipe 'gzip -dc' into '-d -'", file->path);
	}
	while (from < len && (head[from] == ' ' || head[from] == '\n' || head[from] == '\r'))
		from++;
	line = from;
	while (line < len && head[line] != '\n')
		line++;
	file->format = NG_FORMAT_CSV;
	if (from < len && head[from] == '{')
		file->format = NG_FORMAT_JSONL;
	else if (from < len && memchr(head + from, '\t', line - from))
		file->format = NG_FORMAT_TSV;
	for (i = 0; i < NG_COUNT(known); i++)
		if (ends_with(file->path, known[i].end))
			file->format = known[i].format;
	if (file->format == NG_FORMAT_JSONL && from < len && head[from] == '[')
		return ng_fail(err, NG_DATA, "'%s' is one JSON array, not one object a line (jq -c '.[]' converts it)",
			file->path);
	return 0;
}

/* ---- the reader of records ---- */

struct reader {
	const struct ng_rows_file *file;
	char *buf;
	size_t cap, from, to; /* the unread bytes */
	uint64_t at;	      /* of buf[from] in the file */
	uint64_t line;	      /* of the next record, from 1 */
	bool end;
};

/* Where the record that starts at s ends, or -1 when that is not in the n bytes.
 * *state keeps CSV's place between calls: 0 start of a field, 1 in it, 2 quoted,
 * 3 behind a quote of a quoted field. */
static ptrdiff_t record_end(enum ng_rows_format format, const char *s, size_t *scanned, size_t n, int *state)
{
	const char *hit;
	size_t i;

	if (*scanned == n)
		return -1;
	if (format != NG_FORMAT_CSV) {
		hit = memchr(s + *scanned, '\n', n - *scanned);
		*scanned = n;
		return hit ? hit - s : -1;
	}
	for (i = *scanned; i < n; i++) {
		char c = s[i];

		if (*state == 2) {
			if (c == '"')
				*state = 3;
		} else if (c == '\n') {
			return (ptrdiff_t)i;
		} else if (c == ',') {
			*state = 0;
		} else if (c == '"' && (*state == 0 || *state == 3)) {
			*state = 2;
		} else {
			*state = 1;
		}
	}
	*scanned = n;
	return -1;
}

struct record {
	const char *s;
	size_t len; /* without the line end */
	uint64_t at, line;
};

/* 1 a record, 0 the end, -1 error. */
static int next_record(struct reader *r, struct record *rec, struct ng_err *err)
{
	size_t scanned = 0, len, i;
	ptrdiff_t end, got;
	int state = 0;

	if (r->buf == NULL) {
		r->cap = 2 * BLOCK;
		r->buf = ng_xmalloc(r->cap);
	}
	for (;;) {
		end = record_end(r->file->format, r->buf + r->from, &scanned, r->to - r->from, &state);
		if (end >= 0 || r->end)
			break;
		if (r->to - r->from > RECORD_MAX)
			return ng_fail(err, NG_DATA, "%s:%llu: a record of more than %zu MiB", r->file->path,
				(unsigned long long)r->line, RECORD_MAX >> 20);
		if (r->from > 0) {
			memmove(r->buf, r->buf + r->from, r->to - r->from);
			r->to -= r->from;
			r->from = 0;
		}
		if (r->cap - r->to < BLOCK) {
			r->cap *= 2;
			r->buf = ng_xrealloc(r->buf, r->cap, 1);
		}
		got = pread_full(r->file->fd, r->buf + r->to, BLOCK, r->at + r->to);
		if (got < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", r->file->path);
		r->end = (size_t)got < BLOCK;
		r->to += (size_t)got;
	}
	if (r->from == r->to)
		return 0;
	len = end >= 0 ? (size_t)end : r->to - r->from;
	rec->s = r->buf + r->from;
	rec->len = len;
	rec->at = r->at;
	rec->line = r->line;
	r->line++;
	if (r->file->format == NG_FORMAT_CSV)
		for (i = 0; i < len; i++)
			r->line += rec->s[i] == '\n';
	if (end >= 0)
		len++;
	r->from += len;
	r->at += len;
	if (rec->len && rec->s[rec->len - 1] == '\r')
		rec->len--;
	return 1;
}

static bool blank_record(const struct ng_rows_file *file, const struct record *rec)
{
	return file->format == NG_FORMAT_JSONL ? blank(rec->s, rec->len) : rec->len == 0;
}

static int report(const struct ng_rows_file *file, uint64_t line, const struct ng_rows_bad *bad, struct ng_err *err)
{
	if (bad->byte)
		return ng_fail(
			err, NG_DATA, "%s:%llu:%zu: %s", file->path, (unsigned long long)line, bad->byte, bad->text);
	return ng_fail(err, NG_DATA, "%s:%llu: %s", file->path, (unsigned long long)line, bad->text);
}

static int read_header(struct ng_rows *rows, struct ng_rows_file *file, const struct record *rec, struct ng_err *err)
{
	const char *const *names = role_names[rows->opts.kind];
	bool have[4] = { false, false, false, false };
	struct ng_rows_bad bad;
	size_t i, at;

	if (!ng_utf8_valid(rec->s, rec->len, &at)) {
		ng_rows_bad(&bad, at + 1, "invalid UTF-8");
		return report(file, rec->line, &bad, err);
	}
	if (ng_rows_header(file, rows->map, rows->opts.kind, rec->s, rec->len, &bad))
		return report(file, rec->line, &bad, err);
	for (i = 0; i < file->columns; i++)
		have[file->column[i].role] = true;
	for (i = 0; i < (rows->opts.kind == NG_ROWS_STS ? 3u : 2u); i++)
		if (!have[i])
			return ng_fail(err, NG_DATA,
				"%s:%llu: the header line names no column for %s (--fields %s=NAME maps one)",
				file->path, (unsigned long long)rec->line, names[i], names[i]);
	return 0;
}

static void keep(struct ng_rows *rows, size_t file, const struct record *rec, size_t positive, size_t negatives)
{
	struct ng_rows_entry *e;
	uint64_t number = rows->kept++;

	if (rows->opts.shards > 0 && number % (uint64_t)rows->opts.shards != (uint64_t)(rows->opts.shard - 1))
		return;
	ng_grow(&rows->index, &rows->cap, rows->n + 1, sizeof *rows->index);
	e = &rows->index[rows->n++];
	e->at = rec->at;
	e->len = (uint32_t)rec->len;
	e->line = rec->line > UINT32_MAX ? UINT32_MAX : (uint32_t)rec->line;
	e->negatives = (uint32_t)negatives;
	e->file = (uint16_t)file;
	e->positive = (uint16_t)positive;
}

static int index_file(struct ng_rows *rows, size_t number, struct ng_row *row, struct ng_err *err)
{
	struct ng_rows_file *file = &rows->file[number];
	struct reader r = { file, NULL, 0, 0, 0, file->base, 1, false };
	bool header = file->format != NG_FORMAT_JSONL;
	struct ng_rows_bad bad = { "", 0 };
	struct shape shape;
	struct record rec = { 0 };
	size_t i;
	int got;

	while ((got = next_record(&r, &rec, err)) > 0) {
		if (blank_record(file, &rec)) {
			rows->count.blank++;
			continue;
		}
		if (header) {
			header = false;
			if (read_header(rows, file, &rec, err)) {
				got = -1;
				break;
			}
			continue;
		}
		if (parse(rows, file, rec.s, rec.len, row, &shape, &rows->count, rows->map, &bad)) {
			report(file, rec.line, &bad, err);
			if (!rows->opts.skip_bad) {
				got = -1;
				break;
			}
			if (err && rows->count.bad < 3)
				ng_verbose("skipped %s", err->text);
			rows->count.bad++;
			continue;
		}
		for (i = 0; i < shape.positives; i++) {
			choose(row, &shape, i);
			if (!rows->opts.keep_empty && has_blank(row))
				rows->count.empty++;
			else
				keep(rows, number, &rec, i, shape.negatives);
		}
	}
	rows->count.lines += r.line - 1;
	rows->count.bytes += r.at - file->base;
	free(r.buf);
	return got;
}

static void tell_ignored(const struct ng_rows_map *map)
{
	struct ng_str s;
	size_t i;

	if (map->ignored_n == 0)
		return;
	ng_str_init(&s, 900);
	for (i = 0; i < map->ignored_n; i++)
		ng_str_addf(&s, "%s'%.60s'", i ? ", " : "", map->ignored[i]);
	ng_verbose("columns not used: %s%s", s.data,
		map->ignored_n == NG_COUNT(map->ignored) ? ", and perhaps others" : "");
	ng_str_release(&s);
}

static void tell(const struct ng_rows *rows)
{
	const struct ng_rows_count *c = &rows->count;

	if (c->empty)
		ng_warn("dropped %llu rows with an empty text", (unsigned long long)c->empty);
	if (c->bad)
		ng_warn("skipped %llu malformed rows", (unsigned long long)c->bad);
	if (c->surrogates)
		ng_warn("replaced %llu lone surrogates by U+FFFD", (unsigned long long)c->surrogates);
	if (c->replaced)
		ng_warn("replaced %llu bytes that are not UTF-8 by U+FFFD", (unsigned long long)c->replaced);
	if (c->more_negatives && rows->opts.min_rows >= 2)
		ng_warn("every row has %zu negatives; those beyond them, in %llu rows, are not used", rows->columns - 2,
			(unsigned long long)c->more_negatives);
	if (c->blank)
		ng_verbose("%llu blank lines", (unsigned long long)c->blank);
	tell_ignored(rows->map);
}

int ng_rows_open(struct ng_rows *rows, const char *const *path, size_t paths, const struct ng_rows_opts *opts,
	struct ng_err *err)
{
	struct ng_row row = { 0 };
	size_t i, min = SIZE_MAX, max = 0, standard = 0;
	int r = -1;

	memset(rows, 0, sizeof *rows);
	rows->opts = *opts;
	if (sodium_init() < 0)
		return ng_fail(err, NG_OSERR, "cannot initialise libsodium");
	if (paths == 0 || paths > UINT16_MAX)
		return ng_fail(err, NG_USAGE, "%zu data files", paths);
	if (make_map(rows, err))
		goto out;
	rows->file = ng_xcalloc(paths, sizeof *rows->file);
	for (i = 0; i < paths; i++) {
		rows->file[i].fd = -1;
		rows->files = i + 1;
		if (strcmp(path[i], "-") == 0 && standard++) {
			ng_fail(err, NG_USAGE, "standard input is named twice");
			goto out;
		}
		if (open_file(&rows->file[i], path[i], opts->tmpdir, err) || find_format(&rows->file[i], err) ||
			index_file(rows, i, &row, err))
			goto out;
	}
	for (i = 0; i < rows->n; i++) {
		if (rows->index[i].negatives < min)
			min = rows->index[i].negatives;
		if (rows->index[i].negatives > max)
			max = rows->index[i].negatives;
	}
	rows->columns = 2 + (rows->n ? min : 0);
	rows->max_columns = 2 + max;
	for (i = 0; i < rows->n; i++)
		rows->count.more_negatives += rows->index[i].negatives > min;
	tell(rows);
	if (rows->n == 0 || rows->n < opts->min_rows) {
		ng_fail(err, NG_DATA, "'%s'%s %s %zu row%s%s, at least %zu %s needed", rows->file[0].path,
			paths > 1 ? " and the others" : "", paths > 1 ? "hold" : "holds", rows->n,
			rows->n == 1 ? "" : "s", opts->shards > 0 ? " of this shard" : "",
			opts->min_rows ? opts->min_rows : 1, opts->min_rows > 1 ? "are" : "is");
		goto out;
	}
	r = 0;
out:
	ng_row_release(&row);
	if (r)
		ng_rows_close(rows);
	return r;
}

void ng_rows_close(struct ng_rows *rows)
{
	size_t i;

	for (i = 0; i < rows->files; i++) {
		if (rows->file[i].fd > STDERR_FILENO)
			close(rows->file[i].fd);
		free(rows->file[i].path);
		free(rows->file[i].column);
	}
	free(rows->file);
	free(rows->index);
	free_map(rows->map);
	memset(rows, 0, sizeof *rows);
}

int ng_rows_get(const struct ng_rows *rows, size_t i, struct ng_row *row, struct ng_err *err)
{
	const struct ng_rows_entry *e = &rows->index[i];
	const struct ng_rows_file *file = &rows->file[e->file];
	struct ng_rows_bad bad;
	struct shape shape;
	ptrdiff_t n;

	room(&row->raw, &row->raw_cap, (size_t)e->len + 1);
	n = pread_full(file->fd, row->raw, e->len, e->at);
	if (n < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", file->path);
	if ((size_t)n != e->len || parse(rows, file, row->raw, e->len, row, &shape, NULL, NULL, &bad) ||
		e->positive >= shape.positives || shape.negatives != e->negatives)
		return ng_fail(err, NG_DATA, "%s:%lu: the file changed while it was in use", file->path,
			(unsigned long)e->line);
	choose(row, &shape, e->positive);
	return 0;
}

void ng_row_release(struct ng_row *row)
{
	free(row->text);
	free(row->item);
	free(row->raw);
	free(row->clean);
	free(row->buf);
	memset(row, 0, sizeof *row);
}

void ng_rows_where(const struct ng_rows *rows, size_t i, char *out, size_t size)
{
	const struct ng_rows_entry *e = &rows->index[i];

	snprintf(out, size, "%s:%lu", rows->file[e->file].path, (unsigned long)e->line);
}

int ng_rows_hashes(const struct ng_rows *rows, uint64_t **out, struct ng_err *err)
{
	static const unsigned char key[crypto_shorthash_KEYBYTES];
	unsigned char digest[crypto_shorthash_BYTES];
	struct ng_row row = { 0 };
	uint64_t *hash;
	size_t i, c, cells;

	hash = ng_mul(&cells, rows->n, rows->columns) ? ng_try_array(cells, sizeof *hash) : NULL;
	if (hash == NULL)
		return ng_fail(err, NG_OSERR, "out of memory for the hashes of %zu rows", rows->n);
	for (i = 0; i < rows->n; i++) {
		if (ng_rows_get(rows, i, &row, err)) {
			ng_row_release(&row);
			free(hash);
			return -1;
		}
		for (c = 0; c < rows->columns; c++) {
			crypto_shorthash(digest, (const unsigned char *)row.text[c].s, row.text[c].len, key);
			memcpy(&hash[i * rows->columns + c], digest, sizeof digest);
		}
	}
	ng_row_release(&row);
	*out = hash;
	return 0;
}

bool ng_rows_parse_shard(const char *text, long *shard, long *shards)
{
	const char *slash = strchr(text, '/');
	char part[16];
	long long k, n;

	if (slash == NULL || slash - text >= (ptrdiff_t)sizeof part)
		return false;
	memcpy(part, text, (size_t)(slash - text));
	part[slash - text] = 0;
	if (!ng_parse_long(&n, slash + 1, 1, 1000000) || !ng_parse_long(&k, part, 1, n))
		return false;
	*shard = (long)k;
	*shards = (long)n;
	return true;
}
