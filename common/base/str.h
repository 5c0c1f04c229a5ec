/*
 * str.h - a growing byte buffer with a hard limit, and the few checks on text
 * that everything foreign needs.  A buffer over its limit keeps what it had,
 * and `failed` stays set: test it once at the end.  Out of memory is ng_xrealloc's
 * death, not a failed buffer.
 */
#ifndef NG_STR_H
#define NG_STR_H

#include "common/base/compat.h"

struct ng_str {
	char *data; /* always NUL-terminated once anything was added; "" before */
	size_t len; /* bytes without the NUL */
	size_t cap;
	size_t limit;
	bool failed;
};

void ng_str_init(struct ng_str *s, size_t limit);
void ng_str_release(struct ng_str *s);
void ng_str_reset(struct ng_str *s);				/* keeps the memory */
int ng_str_add(struct ng_str *s, const void *data, size_t len); /* 0 or -1 */
int ng_str_adds(struct ng_str *s, const char *text);
int ng_str_addf(struct ng_str *s, const char *fmt, ...) NG_PRINTF(2, 3);
char *ng_str_take(struct ng_str *s); /* caller frees; s is empty again */

/* Valid UTF-8 (no surrogates, no overlong, <= U+10FFFF)?  *bad, if not NULL,
 * is the offset of the first byte that is not. */
bool ng_utf8_valid(const char *s, size_t len, size_t *bad);
/* Length of the character at s (1-4) and its code point; 0 if invalid. */
size_t ng_utf8_decode(uint32_t *out, const char *s, size_t len);
size_t ng_utf8_encode(char out[4], uint32_t cp);

/* DESIGN.md section 2, names: [a-z0-9]([a-z0-9-]{0,62}[a-z0-9])? */
bool ng_name_valid(const char *s);
/* Copy s with control bytes and invalid UTF-8 replaced by '?', cut to size-1. */
void ng_printable(char *out, size_t size, const char *s, size_t len);

/* Whole-string numbers; false on anything else. ng_parse_size takes K M G T
 * (and KiB..), powers of 1024; ng_parse_duration "90s" "15m" "12h" "7d" to seconds. */
bool ng_parse_long(long long *out, const char *s, long long min, long long max);
bool ng_parse_double(double *out, const char *s);
bool ng_parse_size(uint64_t *out, const char *s);
bool ng_parse_duration(long long *out, const char *s);

void ng_hex(char *out, const unsigned char *bytes, size_t n); /* 2n+1 chars written */
bool ng_unhex(unsigned char *out, const char *hex, size_t n); /* exactly 2n lower-case digits */

#endif
