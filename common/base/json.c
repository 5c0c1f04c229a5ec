#include "common/base/compat.h"

#include <errno.h>
#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/str.h"

#define DEPTH 64

void ng_json_setup(void)
{
	/* jansson tells a lack of memory from malformed text only sometimes */
	json_set_alloc_funcs(ng_xmalloc, free);
}

/* jansson allows 2048 levels; what walks the result recursively should not. */
static bool too_deep(const char *s, size_t len)
{
	size_t i;
	int depth = 0;
	bool quoted = false;

	for (i = 0; i < len; i++) {
		if (quoted) {
			if (s[i] == '\\')
				i++;
			else if (s[i] == '"')
				quoted = false;
		} else if (s[i] == '"') {
			quoted = true;
		} else if (s[i] == '{' || s[i] == '[') {
			if (++depth > DEPTH)
				return true;
		} else if (s[i] == '}' || s[i] == ']') {
			depth--;
		}
	}
	return false;
}

/* transformers writes "no limit" as 1000000000000000019884624838656, which jansson does not read:
 * a copy where integers of 19 digits and more are reals, or NULL if there are none.  Caller frees. */
static char *reals_for_long_integers(const char *s, size_t len, size_t *out_len)
{
	struct ng_str out;
	size_t from = 0, start;
	bool quoted = false, any = false, whole;

	ng_str_init(&out, 2 * len + 16);
	for (size_t i = 0; i < len; i++) {
		if (quoted && s[i] == '\\') {
			i++;
		} else if (s[i] == '"') {
			quoted = !quoted;
		} else if (!quoted && s[i] >= '0' && s[i] <= '9') {
			whole = true;
			for (start = i; i + 1 < len && s[i + 1] != 0 && strchr("0123456789.eE+-", s[i + 1]); i++)
				whole = whole && s[i + 1] >= '0' && s[i + 1] <= '9';
			if (whole && i + 1 - start >= 19) {
				ng_str_add(&out, s + from, i + 1 - from);
				ng_str_adds(&out, "e0");
				from = i + 1;
				any = true;
			}
		}
	}
	ng_str_add(&out, s + from, len - from);
	*out_len = out.len;
	if (any && !out.failed)
		return ng_str_take(&out);
	ng_str_release(&out);
	return NULL;
}

json_t *ng_json_parse(const char *text, size_t len, const char *name, struct ng_err *err)
{
	json_error_t e;
	json_t *value;

	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		len -= 3;
	}
	if (too_deep(text, len)) {
		ng_fail(err, NG_DATA, "'%s' is nested deeper than %d levels", name, DEPTH);
		return NULL;
	}
	value = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (value == NULL && json_error_code(&e) == json_error_numeric_overflow) {
		char *reals = reals_for_long_integers(text, len, &len);
		if (reals != NULL)
			value = json_loadb(reals, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
		free(reals);
	}
	if (value == NULL)
		ng_fail(err, json_error_code(&e) == json_error_out_of_memory ? NG_OSERR : NG_DATA,
			"'%s' is not JSON: line %d, column %d: %s", name, e.line, e.column, e.text);
	return value;
}

json_t *ng_json_load(const char *path, size_t max, struct ng_err *err)
{
	json_t *value;
	char *text;
	size_t len;

	if (ng_file_read(&text, &len, path, max, err))
		return NULL;
	value = ng_json_parse(text, len, path, err);
	free(text);
	return value;
}

/* The fewest digits that read back as the same double, always with a '.' or an
 * exponent, and without one from 1e-4 to 1e16: what Python's repr prints. */
static void real_text(char out[40], double value)
{
	int digits, exponent;

	for (digits = 1; digits < 17; digits++) {
		snprintf(out, 40, "%.*e", digits - 1, value);
		if (strtod(out, NULL) == value)
			break;
	}
	snprintf(out, 40, "%.*e", digits - 1, value);
	exponent = (int)strtol(strchr(out, 'e') + 1, NULL, 10);
	if (exponent >= digits && exponent < 16)
		digits = exponent + 1;
	snprintf(out, 40, "%.*g", digits, value);
	if (strspn(out, "-0123456789") == strlen(out))
		memcpy(out + strlen(out), ".0", 3);
}

static void put_string(struct ng_str *s, const char *text, size_t len)
{
	size_t i, from = 0;
	const char *esc;
	char hex[8];
	unsigned char c;

	ng_str_adds(s, "\"");
	for (i = 0; i < len; i++) {
		c = (unsigned char)text[i];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		ng_str_add(s, text + from, i - from);
		from = i + 1;
		switch (c) {
		case '"':
			esc = "\\\"";
			break;
		case '\\':
			esc = "\\\\";
			break;
		case '\n':
			esc = "\\n";
			break;
		case '\r':
			esc = "\\r";
			break;
		case '\t':
			esc = "\\t";
			break;
		case '\b':
			esc = "\\b";
			break;
		case '\f':
			esc = "\\f";
			break;
		default:
			snprintf(hex, sizeof hex, "\\u%04x", c);
			esc = hex;
		}
		ng_str_adds(s, esc);
	}
	ng_str_add(s, text + from, len - from);
	ng_str_adds(s, "\"");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_value(struct ng_str *s, const json_t *value);

static void put_object(struct ng_str *s, const json_t *value)
{
	size_t n = json_object_size(value), i = 0;
	const char **key = ng_xarray(n, sizeof *key);
	void *it;

	/* iterated through the read-only calls: json_object_iter wants it writable */
	for (it = json_object_iter((json_t *)(uintptr_t)value); it;
		it = json_object_iter_next((json_t *)(uintptr_t)value, it))
		key[i++] = json_object_iter_key(it);
	qsort(key, n, sizeof *key, by_name);
	ng_str_adds(s, "{");
	for (i = 0; i < n; i++) {
		if (i)
			ng_str_adds(s, ",");
		put_string(s, key[i], strlen(key[i]));
		ng_str_adds(s, ":");
		put_value(s, json_object_get(value, key[i]));
	}
	ng_str_adds(s, "}");
	free(key);
}

static void put_value(struct ng_str *s, const json_t *value)
{
	char number[40];
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		put_object(s, value);
		break;
	case JSON_ARRAY:
		ng_str_adds(s, "[");
		for (i = 0; i < json_array_size(value); i++) {
			if (i)
				ng_str_adds(s, ",");
			put_value(s, json_array_get(value, i));
		}
		ng_str_adds(s, "]");
		break;
	case JSON_STRING:
		put_string(s, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		ng_str_addf(s, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL:
		real_text(number, json_real_value(value));
		ng_str_adds(s, number);
		break;
	case JSON_TRUE:
		ng_str_adds(s, "true");
		break;
	case JSON_FALSE:
		ng_str_adds(s, "false");
		break;
	case JSON_NULL:
		ng_str_adds(s, "null");
		break;
	}
}

char *ng_json_canonical(const json_t *value)
{
	struct ng_str s;

	ng_str_init(&s, SIZE_MAX / 2);
	put_value(&s, value);
	if (s.failed)
		ng_die(NG_OSERR, "out of memory for a JSON text");
	return ng_str_take(&s);
}

static const json_t *member(const json_t *obj, const char *key)
{
	const json_t *v = json_object_get(obj, key);

	return v && !json_is_null(v) ? v : NULL;
}

int ng_json_long(
	long *out, const json_t *obj, const char *key, long min, long max, const char *where, struct ng_err *err)
{
	const json_t *v = member(obj, key);
	json_int_t n;

	if (v == NULL)
		return 0;
	if (!json_is_integer(v))
		return ng_fail(err, NG_DATA, "%s: '%s' is not a whole number", where, key);
	n = json_integer_value(v);
	if (n < min || n > max)
		return ng_fail(
			err, NG_DATA, "%s: '%s' is %lld, not from %ld to %ld", where, key, (long long)n, min, max);
	*out = (long)n;
	return 0;
}

int ng_json_double(
	double *out, const json_t *obj, const char *key, double min, double max, const char *where, struct ng_err *err)
{
	const json_t *v = member(obj, key);
	double d;

	if (v == NULL)
		return 0;
	if (!json_is_number(v))
		return ng_fail(err, NG_DATA, "%s: '%s' is not a number", where, key);
	d = json_number_value(v);
	if (!(d >= min && d <= max))
		return ng_fail(err, NG_DATA, "%s: '%s' is %.9g, not from %.9g to %.9g", where, key, d, min, max);
	*out = d;
	return 0;
}

int ng_json_bool(bool *out, const json_t *obj, const char *key, const char *where, struct ng_err *err)
{
	const json_t *v = member(obj, key);

	if (v == NULL)
		return 0;
	if (!json_is_boolean(v))
		return ng_fail(err, NG_DATA, "%s: '%s' is neither true nor false", where, key);
	*out = json_is_true(v);
	return 0;
}

int ng_json_string(const char **out, const json_t *obj, const char *key, const char *where, struct ng_err *err)
{
	const json_t *v = member(obj, key);

	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return ng_fail(err, NG_DATA, "%s: '%s' is not a string", where, key);
	*out = json_string_value(v);
	return 0;
}

void ng_json_number(char out[32], double value)
{
	if (isfinite(value))
		snprintf(out, 32, "%.9g", value);
	else
		snprintf(out, 32, "null");
}
