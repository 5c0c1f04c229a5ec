#include "common/base/compat.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>

#include "common/base/mem.h"
#include "common/base/str.h"

/* what data points at before anything was added; never written to */
static char nothing[1];

void ng_str_init(struct ng_str *s, size_t limit)
{
	s->data = nothing;
	s->len = 0;
	s->cap = 0;
	s->limit = limit;
	s->failed = false;
}

void ng_str_release(struct ng_str *s)
{
	if (s->cap)
		free(s->data);
	ng_str_init(s, s->limit);
}

void ng_str_reset(struct ng_str *s)
{
	s->len = 0;
	s->failed = false;
	if (s->cap)
		s->data[0] = 0;
}

/* Room for len more bytes and the NUL. */
static int reserve(struct ng_str *s, size_t len)
{
	size_t to;

	if (s->failed)
		return -1;
	/* the NUL needs its byte, so nothing is ever SIZE_MAX long */
	if (len > s->limit || s->len > s->limit - len || len >= SIZE_MAX - s->len) {
		s->failed = true;
		return -1;
	}
	if (s->len + len < s->cap)
		return 0;
	to = s->cap < 64 ? 64 : s->cap;
	while (to <= s->len + len)
		to = to > SIZE_MAX / 2 ? s->len + len + 1 : to * 2;
	s->data = ng_xrealloc(s->cap ? s->data : NULL, to, 1);
	s->cap = to;
	return 0;
}

int ng_str_add(struct ng_str *s, const void *data, size_t len)
{
	if (reserve(s, len))
		return -1;
	if (len)
		memcpy(s->data + s->len, data, len);
	s->len += len;
	s->data[s->len] = 0;
	return 0;
}

int ng_str_adds(struct ng_str *s, const char *text)
{
	return ng_str_add(s, text, strlen(text));
}

int ng_str_addf(struct ng_str *s, const char *fmt, ...)
{
	va_list args, again;
	int n;

	va_start(args, fmt);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (n < 0 || reserve(s, (size_t)n)) {
		s->failed = true;
		va_end(again);
		return -1;
	}
	vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
	va_end(again);
	s->len += (size_t)n;
	return 0;
}

char *ng_str_take(struct ng_str *s)
{
	char *p = s->cap ? s->data : ng_xstrdup("");

	ng_str_init(s, s->limit);
	return p;
}

size_t ng_utf8_decode(uint32_t *out, const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t cp, low;
	size_t n, i;

	if (len == 0)
		return 0;
	if (p[0] < 0x80) {
		*out = p[0];
		return 1;
	}
	if (p[0] < 0xc2)
		return 0; /* a continuation byte, or overlong */
	if (p[0] < 0xe0)
		n = 2, cp = p[0] & 0x1fu, low = 0x80;
	else if (p[0] < 0xf0)
		n = 3, cp = p[0] & 0x0fu, low = 0x800;
	else if (p[0] < 0xf5)
		n = 4, cp = p[0] & 0x07u, low = 0x10000;
	else
		return 0;
	if (len < n)
		return 0;
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (p[i] & 0x3fu);
	}
	if (cp < low || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	*out = cp;
	return n;
}

size_t ng_utf8_encode(char out[4], uint32_t cp)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		if (cp >= 0xd800 && cp <= 0xdfff)
			return 0;
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	if (cp > 0x10ffff)
		return 0;
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

bool ng_utf8_valid(const char *s, size_t len, size_t *bad)
{
	const uint64_t high = 0x8080808080808080u;
	size_t i = 0, n;
	uint32_t cp;
	uint64_t w;

	while (i < len) {
		/* eight ASCII bytes at a time */
		while (len - i >= 8) {
			memcpy(&w, s + i, 8);
			if (w & high)
				break;
			i += 8;
		}
		if (i == len)
			break;
		n = ng_utf8_decode(&cp, s + i, len - i);
		if (n == 0) {
			if (bad)
				*bad = i;
			return false;
		}
		i += n;
	}
	return true;
}

static bool lower_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool ng_name_valid(const char *s)
{
	size_t n = strlen(s), i;

	if (n == 0 || n > 64 || !lower_alnum(s[0]) || !lower_alnum(s[n - 1]))
		return false;
	for (i = 0; i < n; i++)
		if (!lower_alnum(s[i]) && s[i] != '-')
			return false;
	return true;
}

/* C0, DEL, C1, and the characters that turn the direction of a line round */
static bool control(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
	       (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

void ng_printable(char *out, size_t size, const char *s, size_t len)
{
	size_t i = 0, k = 0, n;
	uint32_t cp;

	if (size == 0)
		return;
	while (i < len) {
		n = ng_utf8_decode(&cp, s + i, len - i);
		if (n == 0 || control(cp)) {
			if (k + 1 >= size)
				break;
			out[k++] = '?';
			i += n ? n : 1;
			continue;
		}
		if (k + n >= size)
			break;
		memcpy(out + k, s + i, n);
		k += n;
		i += n;
	}
	out[k] = 0;
}

bool ng_parse_long(long long *out, const char *s, long long min, long long max)
{
	char *end;
	long long v;

	if (!((s[0] >= '0' && s[0] <= '9') || (s[0] == '-' && s[1] >= '0' && s[1] <= '9')))
		return false;
	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno != 0 || *end != 0 || v < min || v > max)
		return false;
	*out = v;
	return true;
}

bool ng_parse_double(double *out, const char *s)
{
	size_t i;
	char *end;
	double v;

	/* strtod also takes blanks, hexadecimal, inf and nan */
	if (s[0] == 0 || strspn(s, "+-.0123456789eE") != strlen(s))
		return false;
	i = s[0] == '+' || s[0] == '-' ? 1 : 0;
	if (s[i] == 'e' || s[i] == 'E')
		return false;
	v = strtod(s, &end);
	if (*end != 0 || end == s || !isfinite(v))
		return false;
	*out = v;
	return true;
}

/* Digits, then the rest in *end; false on none or overflow. */
static bool digits(uint64_t *out, const char *s, const char **end)
{
	uint64_t v = 0, d;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		d = (uint64_t)(*s - '0');
		if (v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*out = v;
	*end = s;
	return true;
}

bool ng_parse_size(uint64_t *out, const char *s)
{
	static const char units[] = "KMGT";
	const char *end, *unit;
	uint64_t v;
	unsigned shift;

	if (!digits(&v, s, &end))
		return false;
	if (*end != 0) {
		unit = strchr(units, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
		if (unit == NULL || (end[1] != 0 && strcmp(end + 1, "iB") != 0))
			return false;
		shift = 10u * (unsigned)(unit - units + 1);
		if (v > UINT64_MAX >> shift)
			return false;
		v <<= shift;
	}
	*out = v;
	return true;
}

bool ng_parse_duration(long long *out, const char *s)
{
	const char *end;
	uint64_t v, unit;

	if (!digits(&v, s, &end))
		return false;
	switch (*end) {
	case 's':
		unit = 1;
		break;
	case 'm':
		unit = 60;
		break;
	case 'h':
		unit = 3600;
		break;
	case 'd':
		unit = 86400;
		break;
	case 0: /* without a unit only nothing is clear */
		*out = 0;
		return v == 0;
	default:
		return false;
	}
	if (end[1] != 0 || v > (uint64_t)INT64_MAX / unit)
		return false;
	*out = (long long)(v * unit);
	return true;
}

void ng_hex(char *out, const unsigned char *bytes, size_t n)
{
	static const char digit[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < n; i++) {
		out[2 * i] = digit[bytes[i] >> 4];
		out[2 * i + 1] = digit[bytes[i] & 15];
	}
	out[2 * n] = 0;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

bool ng_unhex(unsigned char *out, const char *hex, size_t n)
{
	size_t i;
	int a, b;

	for (i = 0; i < n; i++) {
		a = nibble(hex[2 * i]);
		if (a < 0)
			return false;
		b = nibble(hex[2 * i + 1]);
		if (b < 0)
			return false;
		out[i] = (unsigned char)(a << 4 | b);
	}
	return hex[2 * n] == 0;
}
