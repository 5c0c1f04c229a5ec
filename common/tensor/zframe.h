/*
 * zframe.h - the little of zstd's frame format (RFC 8878) that we check
 * ourselves before the library sees a frame, and the bracket texts.
 */
#ifndef NG_TENSOR_ZFRAME_H
#define NG_TENSOR_ZFRAME_H

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/str.h"

#define NG_ZFRAME_MAGIC 0xFD2FB528u
#define NG_ZFRAME_HEADER_MAX 18
#define NG_ZFRAME_WINDOW_MAX ((uint64_t)1 << 19)
#define NG_BRACKET_MAGIC 0x184D2A5Eu
#define NG_BRACKET_BEGIN "{\"ng\":"
#define NG_BRACKET_MAX (16u << 20) /* bytes of an opening */
#define NG_CLOSING_MAX 4096u	   /* bytes of a closing, so that a reader finds it at a cut stream's end */

struct ng_zframe {
	uint64_t window;  /* bytes the decoder must keep */
	uint64_t content; /* uncompressed size, UINT64_MAX when not said */
	bool checksum, dictionary;
};
/* p: a frame's first n bytes, magic included; n is NG_ZFRAME_HEADER_MAX or all
 * there is. false when cut or reserved bits are set. */
bool ng_zframe_parse(struct ng_zframe *out, const unsigned char *p, size_t n);
bool ng_zframe_skippable(uint32_t magic);
uint32_t ng_le32(const unsigned char *p);

/* Append a skippable frame holding {"ng":{KEY:value}}. */
int ng_bracket_add(struct ng_str *out, const char *key, const json_t *value, struct ng_err *err);

struct ng_closing {
	size_t frames;
	int code; /* 0..255 */
	char reason[NG_ERR_MAX];
	char opening[NG_HASH_HEX]; /* digest of the opening's text, "" when not said: skippable
				    * frames have no checksum of their own */
};
int ng_closing_add(struct ng_str *out, const struct ng_closing *c, struct ng_err *err);
/* What a bracket's text is. NG_DATA when it is no JSON or a value is of the wrong type. */
enum ng_bracket { NG_BRACKET_OTHER, NG_BRACKET_OPEN, NG_BRACKET_CLOSE };
/* *opening: a new reference when OPEN. closing is filled when CLOSE. */
int ng_bracket_parse(enum ng_bracket *out, json_t **opening, struct ng_closing *closing, const char *text, size_t len,
	struct ng_err *err);
/* A whole closing that ends exactly at tail + len? */
bool ng_closing_find(struct ng_closing *out, const unsigned char *tail, size_t len);

#endif
