/*
 * unicode_table.h - what the Rust tokenizers package thinks of each code point
 * (unicode_table.c is made by t/golden/unicode_tables.py, which says why no one
 * Unicode version gives the same).
 */
#ifndef NG_UNICODE_TABLE_H
#define NG_UNICODE_TABLE_H

#include "common/base/compat.h"

enum ng_unicode_flags {
	NG_UNICODE_SPACE = 1 << 0,     /* White_Space */
	NG_UNICODE_PUNCT = 1 << 1,     /* what BertPreTokenizer isolates */
	NG_UNICODE_DROP = 1 << 2,      /* what clean_text deletes */
	NG_UNICODE_MARK = 1 << 3,      /* category Mn, what strip_accents deletes */
	NG_UNICODE_CJK = 1 << 4,       /* what handle_chinese_chars isolates */
	NG_UNICODE_WORD = 1 << 5,      /* the regex \w */
	NG_UNICODE_NFD = 1 << 6,       /* has a decomposition in the table (Hangul is computed) */
	NG_UNICODE_LOWER = 1 << 7,     /* has another lower case */
	NG_UNICODE_COMBINING = 1 << 8, /* any mark, what the StripAccents normalizer deletes */
};

struct ng_unicode_record {
	uint16_t flags;
	uint8_t ccc; /* canonical combining class */
};

extern const uint16_t ng_unicode_stage[8704];
extern const uint8_t ng_unicode_block[][128];
extern const struct ng_unicode_record ng_unicode_record[];

/* Sorted keys; the mapping of key[i] is pool[at[i]] .. pool[at[i + 1] - 1]. */
extern const uint32_t ng_unicode_nfd_key[], ng_unicode_nfd_pool[];
extern const uint16_t ng_unicode_nfd_at[];
extern const size_t ng_unicode_nfd_count;
extern const uint32_t ng_unicode_lower_key[], ng_unicode_lower_pool[];
extern const uint16_t ng_unicode_lower_at[];
extern const size_t ng_unicode_lower_count;

/* cp <= 0x10FFFF */
static inline struct ng_unicode_record ng_unicode(uint32_t cp)
{
	return ng_unicode_record[ng_unicode_block[ng_unicode_stage[cp >> 7]][cp & 127]];
}

/* A character of text known to be valid UTF-8, and its length. */
static inline size_t ng_unicode_decode(uint32_t *out, const unsigned char *s)
{
	if (s[0] < 0x80) {
		*out = s[0];
		return 1;
	}
	if (s[0] < 0xe0) {
		*out = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
		return 2;
	}
	if (s[0] < 0xf0) {
		*out = (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
		return 3;
	}
	*out = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 | (uint32_t)(s[2] & 0x3f) << 6 |
	       (s[3] & 0x3f);
	return 4;
}

#endif
