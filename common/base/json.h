/*
 * json.h - jansson with our rules: duplicate keys, invalid UTF-8 and depth
 * over 64 are errors, and every error names file and place.
 */
#ifndef NG_JSON_H
#define NG_JSON_H

#include <jansson.h>

#include "common/base/err.h"

/* Makes jansson die with 71 when memory is out; ng_start calls it. */
void ng_json_setup(void);
/* name is for messages only. NULL on error. Trailing bytes other than blanks are an error. */
json_t *ng_json_parse(const char *text, size_t len, const char *name, struct ng_err *err);
json_t *ng_json_load(const char *path, size_t max, struct ng_err *err);
/* Canonical text: sorted keys, compact, no newline, ASCII kept as UTF-8. Caller frees. */
char *ng_json_canonical(const json_t *value);
/* Optional members: 0 and *out untouched when absent or null; -1 and err when of another type
 * or out of range; where = what to call the object in a message ("config.json"). */
int ng_json_long(
	long *out, const json_t *obj, const char *key, long min, long max, const char *where, struct ng_err *err);
int ng_json_double(
	double *out, const json_t *obj, const char *key, double min, double max, const char *where, struct ng_err *err);
int ng_json_bool(bool *out, const json_t *obj, const char *key, const char *where, struct ng_err *err);
/* Borrowed from obj. */
int ng_json_string(const char **out, const json_t *obj, const char *key, const char *where, struct ng_err *err);
/* Print a double as %.9g; NaN and infinities as null. For hand-written lines. */
void ng_json_number(char out[32], double value);

#endif
