/*
 * One record of TSV (no quoting: a tab or a line end cannot be in a field) or
 * CSV (RFC 4180; a quote inside an unquoted field is an ordinary character).
 */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/text/rows_private.h"

/* The field at *p: decoded to out, *p moved behind it and its separator, *last set at the record's end. */
static int field(enum ng_rows_format format, const char *start, const char **p, const char *end, char *out, size_t *len,
	bool *last, struct ng_rows_bad *bad)
{
	const char *s = *p, *stop;
	size_t n = 0;

	if (format == NG_FORMAT_CSV && s < end && *s == '"') {
		for (s++;; s++) {
			if (s == end)
				return ng_rows_bad(bad, (size_t)(*p - start) + 1, "quote without an end");
			if (*s == '"' && (s + 1 == end || s[1] != '"'))
				break;
			if (*s == '"')
				s++;
			out[n++] = *s;
		}
		s++;
		if (s < end && *s != ',')
			return ng_rows_bad(bad, (size_t)(s - start) + 1, "text after a closing quote");
	} else {
		stop = memchr(s, format == NG_FORMAT_CSV ? ',' : '\t', (size_t)(end - s));
		if (stop == NULL)
			stop = end;
		n = (size_t)(stop - s);
		memcpy(out, s, n);
		s = stop;
	}
	*len = n;
	*last = s == end;
	*p = s == end ? s : s + 1;
	return 0;
}

int ng_rows_table(
	struct ng_row *row, const struct ng_rows_file *file, const char *s, size_t len, struct ng_rows_bad *bad)
{
	const char *p = s, *end = s + len;
	size_t i, n, used = 0;
	bool last = false;

	row->items = 0;
	for (i = 0; !last; i++) {
		if (field(file->format, s, &p, end, row->buf + used, &n, &last, bad))
			return -1;
		if (i >= file->columns || file->column[i].role == NG_ROLE_NONE)
			continue;
		/* a table has a cell for what is not there */
		if (n == 0 && file->column[i].role != NG_ROLE_FIRST &&
			(file->column[i].role != NG_ROLE_SECOND || file->column[i].number > 0))
			continue;
		ng_rows_add(row, file->column[i], used, n);
		used += n;
	}
	if (i != file->columns)
		return ng_rows_bad(bad, 0, "%zu fields, but the header line names %zu", i, file->columns);
	return 0;
}

int ng_rows_header(struct ng_rows_file *file, struct ng_rows_map *map, enum ng_rows_kind kind, const char *s,
	size_t len, struct ng_rows_bad *bad)
{
	const char *p = s, *end = s + len;
	char *name = ng_xmalloc(len + 1);
	size_t n, i, cap = 0;
	struct ng_rows_column c;
	bool last = false;
	int r = 0;

	file->columns = 0;
	while (!last && r == 0) {
		r = field(file->format, s, &p, end, name, &n, &last, bad);
		if (r)
			break;
		c = ng_rows_match(map, kind, name, n);
		if (c.role == NG_ROLE_NONE)
			ng_rows_ignore(map, name, n);
		for (i = 0; i < file->columns && c.role != NG_ROLE_NONE; i++)
			if (file->column[i].role == c.role && file->column[i].name == c.name &&
				file->column[i].number == c.number)
				r = ng_rows_bad(bad, 0, "column '%.*s' stands twice", (int)(n < 100 ? n : 100), name);
		ng_grow(&file->column, &cap, file->columns + 1, sizeof *file->column);
		file->column[file->columns++] = c;
	}
	free(name);
	return r;
}
