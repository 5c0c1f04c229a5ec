/*
 * One line of JSONL.  A parser of our own: jansson refuses lone surrogates,
 * which real dumps hold, and would build every ignored column.  It accepts
 * exactly RFC 8259 objects of at most 64 levels, and of raw control bytes none.
 */
#include "common/base/compat.h"

#include "common/base/str.h"
#include "common/text/rows_private.h"

#define DEPTH 64

struct parser {
	const char *start, *p, *end;
	char *buf; /* decoded bytes go to buf + used */
	size_t used;
	struct ng_rows_count *count;
	struct ng_rows_bad *bad;
};

static int fail(struct parser *j, const char *what)
{
	return ng_rows_bad(j->bad, (size_t)(j->p - j->start) + 1, "%s", what);
}

static void blanks(struct parser *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
		j->p++;
}

static bool hex4(const char *s, const char *end, uint32_t *out)
{
	uint32_t v = 0;
	int i;

	if (end - s < 4)
		return false;
	for (i = 0; i < 4; i++) {
		char c = s[i];

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v |= (uint32_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v |= (uint32_t)(c - 'A' + 10);
		else
			return false;
	}
	*out = v;
	return true;
}

/* After "\u": the character, with its low surrogate if it needs one. */
static int escape_u(struct parser *j)
{
	uint32_t cp, low;

	if (!hex4(j->p, j->end, &cp))
		return fail(j, "malformed \\u escape");
	j->p += 4;
	if (cp >= 0xd800 && cp <= 0xdbff && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u' &&
		hex4(j->p + 2, j->end, &low) && low >= 0xdc00 && low <= 0xdfff) {
		cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
		j->p += 6;
	} else if (cp >= 0xd800 && cp <= 0xdfff) {
		cp = 0xfffd;
		if (j->count)
			j->count->surrogates++;
	}
	j->used += ng_utf8_encode(j->buf + j->used, cp);
	return 0;
}

/* At the opening quote.  A decoded string is never longer than its source. */
static int string(struct parser *j, size_t *at, size_t *len)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *run, *hit;

	*at = j->used;
	j->p++;
	for (;;) {
		run = j->p;
		while (j->p < j->end && *j->p != '"' && *j->p != '\\' && (unsigned char)*j->p >= 0x20)
			j->p++;
		memcpy(j->buf + j->used, run, (size_t)(j->p - run));
		j->used += (size_t)(j->p - run);
		if (j->p == j->end)
			return fail(j, "string without an end");
		if (*j->p == '"')
			break;
		if (*j->p != '\\')
			return fail(j, *j->p == 0 ? "NUL byte in a string" : "control byte in a string");
		j->p++;
		if (j->p == j->end)
			return fail(j, "string without an end");
		if (*j->p == 'u') {
			j->p++;
			if (escape_u(j))
				return -1;
			continue;
		}
		hit = *j->p ? strchr(from, *j->p) : NULL;
		if (hit == NULL)
			return fail(j, "unknown escape in a string");
		j->buf[j->used++] = to[hit - from];
		j->p++;
	}
	j->p++;
	*len = j->used - *at;
	return 0;
}

static bool number(struct parser *j)
{
	const char *p = j->p, *e = j->end, *run;

	if (p < e && *p == '-')
		p++;
	run = p;
	while (p < e && *p >= '0' && *p <= '9')
		p++;
	if (p == run || (*run == '0' && p - run > 1))
		return false;
	if (p < e && *p == '.') {
		run = ++p;
		while (p < e && *p >= '0' && *p <= '9')
			p++;
		if (p == run)
			return false;
	}
	if (p < e && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < e && (*p == '+' || *p == '-'))
			p++;
		run = p;
		while (p < e && *p >= '0' && *p <= '9')
			p++;
		if (p == run)
			return false;
	}
	j->p = p;
	return true;
}

static bool word(struct parser *j, const char *w)
{
	size_t n = strlen(w);

	if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n) != 0)
		return false;
	j->p += n;
	return true;
}

/* Any value, checked and thrown away. */
static int skip(struct parser *j, int depth)
{
	size_t used = j->used, at, len;
	char close;

	blanks(j);
	if (j->p == j->end)
		return fail(j, "a value is missing");
	if (*j->p == '"') {
		if (string(j, &at, &len))
			return -1;
		j->used = used;
		return 0;
	}
	if (*j->p != '{' && *j->p != '[')
		return word(j, "null") || word(j, "true") || word(j, "false") || number(j)
			       ? 0
			       : fail(j, "not a JSON value");
	if (depth >= DEPTH)
		return fail(j, "nested deeper than 64 levels");
	close = *j->p == '{' ? '}' : ']';
	j->p++;
	blanks(j);
	if (j->p < j->end && *j->p == close) {
		j->p++;
		return 0;
	}
	for (;;) {
		if (close == '}') {
			blanks(j);
			if (j->p == j->end || *j->p != '"')
				return fail(j, "a key is missing");
			if (string(j, &at, &len))
				return -1;
			j->used = used;
			blanks(j);
			if (j->p == j->end || *j->p != ':')
				return fail(j, "a colon is missing");
			j->p++;
		}
		if (skip(j, depth + 1))
			return -1;
		blanks(j);
		if (j->p < j->end && *j->p == close)
			break;
		if (j->p == j->end || *j->p != ',')
			return fail(j, "a comma or a closing bracket is missing");
		j->p++;
	}
	j->p++;
	return 0;
}

static int not_text(struct parser *j, const char *key, size_t key_len)
{
	return ng_rows_bad(j->bad, (size_t)(j->p - j->start) + 1, "'%.*s' is not a string",
		(int)(key_len < 100 ? key_len : 100), key);
}

/* The value of a column that has a role: a string, a list of them, null, or the score's number. */
static int value(struct parser *j, struct ng_row *row, struct ng_rows_column c, enum ng_rows_kind kind, const char *key,
	size_t key_len)
{
	size_t at, len;
	const char *from;

	blanks(j);
	if (j->p == j->end)
		return fail(j, "a value is missing");
	if (*j->p == '"') {
		if (string(j, &at, &len))
			return -1;
		ng_rows_add(row, c, at, len);
		return 0;
	}
	if (word(j, "null"))
		return 0;
	if (kind == NG_ROWS_STS && c.role == NG_ROLE_THIRD) {
		from = j->p;
		if (!number(j))
			return ng_rows_bad(j->bad, (size_t)(j->p - j->start) + 1, "the score is not a number");
		memcpy(j->buf + j->used, from, (size_t)(j->p - from));
		ng_rows_add(row, c, j->used, (size_t)(j->p - from));
		j->used += (size_t)(j->p - from);
		return 0;
	}
	if (*j->p != '[' || kind == NG_ROWS_STS || c.role == NG_ROLE_FIRST)
		return not_text(j, key, key_len);
	j->p++;
	blanks(j);
	if (j->p < j->end && *j->p == ']') {
		j->p++;
		return 0;
	}
	for (;;) {
		blanks(j);
		if (j->p == j->end || *j->p != '"')
			return not_text(j, key, key_len);
		if (string(j, &at, &len))
			return -1;
		ng_rows_add(row, c, at, len);
		blanks(j);
		if (j->p < j->end && *j->p == ']')
			break;
		if (j->p == j->end || *j->p != ',')
			return fail(j, "a comma or a closing bracket is missing");
		j->p++;
	}
	j->p++;
	return 0;
}

static int given_twice(struct parser *j, const struct ng_row *row, struct ng_rows_column c)
{
	size_t i;

	for (i = 0; i < row->items; i++)
		if (row->item[i].column.role == c.role && row->item[i].column.name == c.name &&
			row->item[i].column.number == c.number)
			return fail(j, "a key stands twice");
	return 0;
}

int ng_rows_json(struct ng_row *row, const struct ng_rows_map *map, enum ng_rows_kind kind, const char *s, size_t len,
	struct ng_rows_count *count, struct ng_rows_map *ignored, struct ng_rows_bad *bad)
{
	struct parser j = { s, s, s + len, row->buf, 0, count, bad };
	struct ng_rows_column c;
	size_t at, n;

	row->items = 0;
	blanks(&j);
	if (j.p == j.end || *j.p != '{')
		return fail(&j, j.p < j.end && *j.p == 0 ? "NUL byte" : "not a JSON object");
	j.p++;
	blanks(&j);
	if (j.p < j.end && *j.p == '}')
		j.p++;
	else
		for (;;) {
			blanks(&j);
			if (j.p == j.end || *j.p != '"')
				return fail(&j, "a key is missing");
			if (string(&j, &at, &n))
				return -1;
			blanks(&j);
			if (j.p == j.end || *j.p != ':')
				return fail(&j, "a colon is missing");
			j.p++;
			/* the key stays in buf: names are short, and messages show it */
			c = ng_rows_match(map, kind, j.buf + at, n);
			if (c.role == NG_ROLE_NONE) {
				if (ignored)
					ng_rows_ignore(ignored, j.buf + at, n);
				if (skip(&j, 1))
					return -1;
				j.used = at;
			} else if (given_twice(&j, row, c) || value(&j, row, c, kind, j.buf + at, n)) {
				return -1;
			}
			blanks(&j);
			if (j.p < j.end && *j.p == '}') {
				j.p++;
				break;
			}
			if (j.p == j.end || *j.p != ',')
				return fail(&j, "a comma or a closing brace is missing");
			j.p++;
		}
	blanks(&j);
	if (j.p != j.end)
		return fail(&j, "text after the object");
	return 0;
}
