/*
 * statement.c - the text beside every object; see statement.h.
 */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/board/statement.h"

#define FIRST "ng-signature 1\n"

/* ---- times ---- */

/* Days since 1970-01-01 of a date of the Gregorian calendar. */
static long long days(long long y, int m, int d)
{
	y -= m <= 2;
	long long era = (y >= 0 ? y : y - 399) / 400;
	long long yoe = y - era * 400;
	long long doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	long long doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
	return era * 146097 + doe - 719468;
}

static void date(long long z, long long *y, int *m, int *d)
{
	z += 719468;
	long long era = (z >= 0 ? z : z - 146096) / 146097;
	long long doe = z - era * 146097;
	long long yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	long long doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	long long mp = (5 * doy + 2) / 153;

	*d = (int)(doy - (153 * mp + 2) / 5 + 1);
	*m = (int)(mp < 10 ? mp + 3 : mp - 9);
	*y = yoe + era * 400 + (*m <= 2);
}

void ng_time_text(char out[24], long long seconds)
{
	long long y, day;
	int m, d, s;

	if (seconds < 0)
		seconds = 0;
	if (seconds > 253402300799) /* 9999-12-31T23:59:59Z */
		seconds = 253402300799;
	day = seconds / 86400;
	s = (int)(seconds % 86400);
	date(day, &y, &m, &d);
	snprintf(out, 24, "%04d-%02d-%02dT%02d:%02d:%02dZ", (int)y % 10000, m % 100, d % 100, s / 3600, s / 60 % 60,
		s % 60);
}

bool ng_time_parse(long long *out, const char *text)
{
	static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
	static const int start[] = { 0, 5, 8, 11, 14, 17 };
	int v[6];
	char again[24];

	if (strlen(text) != sizeof form - 1)
		return false;
	for (size_t i = 0; i < sizeof form - 1; i++)
		if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
			return false;
	for (int k = 0; k < 6; k++) {
		v[k] = 0;
		for (int i = start[k]; text[i] >= '0' && text[i] <= '9'; i++)
			v[k] = v[k] * 10 + (text[i] - '0');
	}
	if (v[0] < 1970 || v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > 31 || v[3] > 23 || v[4] > 59 || v[5] > 59)
		return false;
	*out = days(v[0], v[1], v[2]) * 86400 + v[3] * 3600 + v[4] * 60 + v[5];
	ng_time_text(again, *out); /* no 31 February */
	return strcmp(again, text) == 0;
}

/* ---- writing ---- */

static const char *or_dash(const char *s)
{
	return s[0] ? s : "-";
}

char *ng_statement_text(const struct ng_statement *s)
{
	char created[24];

	ng_time_text(created, s->created);
	return ng_xasprintf(FIRST "kind: %s\nexperiment: %s\nmanifest: %ld\nround: %ld\nsite: %s\nbase: %s\n"
				  "object: %s\ncreated: %s\nkey: %s\n",
		s->kind, s->experiment, s->manifest, s->round, or_dash(s->site), or_dash(s->base), s->object, created,
		or_dash(s->key));
}

/* ---- reading ---- */

/* The value of the line "key: value\n" at *p into out, which is moved past it. */
static int line(char *out, size_t size, const char **p, const char *end, const char *key, struct ng_err *err)
{
	size_t k = strlen(key);
	const char *at = *p, *nl = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;

	if (!nl || (size_t)(nl - at) < k + 3 || memcmp(at, key, k) != 0 || at[k] != ':' || at[k + 1] != ' ')
		return ng_fail(err, NG_DATA, "the signature text has no line '%s: ...' in its place", key);
	at += k + 2;
	size_t n = (size_t)(nl - at);
	if (n >= size || memchr(at, '\0', n))
		return ng_fail(err, NG_DATA, "the signature text has a bad line '%s'", key);
	memcpy(out, at, n);
	out[n] = '\0';
	*p = nl + 1;
	return 0;
}

static int bad(const char *key, struct ng_err *err)
{
	return ng_fail(err, NG_DATA, "the signature text has a bad line '%s'", key);
}

static int number(long *out, const char **p, const char *end, const char *key, struct ng_err *err)
{
	char text[32], again[32];
	long long v;

	if (line(text, sizeof text, p, end, key, err) < 0)
		return -1;
	if (!ng_parse_long(&v, text, 0, 99999999))
		return bad(key, err);
	snprintf(again, sizeof again, "%lld", v);
	if (strcmp(again, text) != 0)
		return bad(key, err);
	*out = (long)v;
	return 0;
}

static int digest(
	char out[NG_HASH_HEX], bool optional, const char **p, const char *end, const char *key, struct ng_err *err)
{
	char text[80];

	if (line(text, sizeof text, p, end, key, err) < 0)
		return -1;
	if (optional && strcmp(text, "-") == 0) {
		out[0] = '\0';
		return 0;
	}
	if (!ng_hash_valid(text))
		return bad(key, err);
	memcpy(out, text, NG_HASH_HEX);
	return 0;
}

static bool is_key(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s > '~')
			return false;
	return true;
}

int ng_statement_parse(struct ng_statement *out, const char *text, size_t len, struct ng_err *err)
{
	const char *p = text, *end = text + len;
	char created[32];

	memset(out, 0, sizeof *out);
	if (len < strlen(FIRST) || memcmp(p, FIRST, strlen(FIRST)) != 0)
		return ng_fail(err, NG_DATA, "no text of the form 'ng-signature 1'");
	p += strlen(FIRST);
	if (line(out->kind, sizeof out->kind, &p, end, "kind", err) < 0 ||
		digest(out->experiment, false, &p, end, "experiment", err) < 0 ||
		number(&out->manifest, &p, end, "manifest", err) < 0 ||
		number(&out->round, &p, end, "round", err) < 0 ||
		line(out->site, sizeof out->site, &p, end, "site", err) < 0 ||
		digest(out->base, true, &p, end, "base", err) < 0 ||
		digest(out->object, false, &p, end, "object", err) < 0 ||
		line(created, sizeof created, &p, end, "created", err) < 0 ||
		line(out->key, sizeof out->key, &p, end, "key", err) < 0)
		return -1;
	if (!ng_name_valid(out->kind))
		return bad("kind", err);
	if (strcmp(out->site, "-") == 0)
		out->site[0] = '\0';
	else if (!ng_name_valid(out->site))
		return bad("site", err);
	if (!ng_time_parse(&out->created, created))
		return bad("created", err);
	if (strcmp(out->key, "-") == 0)
		out->key[0] = '\0';
	else if (!is_key(out->key))
		return bad("key", err);
	if (p != end)
		return ng_fail(err, NG_DATA, "something follows the signature text");
	return 0;
}
