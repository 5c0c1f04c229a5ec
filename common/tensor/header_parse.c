/*
 * header_parse.c - a safetensors header from hostile bytes.
 *
 * One strict pass over the JSON by hand: a general parser would build a tree
 * many times the size of a 100 MB header before we could refuse it.  There is
 * no recursion; fields that the format does not know are skipped to a depth of
 * 64.  What is accepted is what the reference reader accepts, except that
 * duplicate keys, NUL in a string and more than 8 dimensions are refused.
 */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/tensor/header.h"

#define SKIP_DEPTH 64

struct parser {
	const char *start, *p, *end;
	const char *name; /* of the file */
	struct ng_err *err;
};

static int bad(struct parser *ps, const char *what)
{
	return ng_fail(
		ps->err, NG_DATA, "'%s': bad header: %s at byte %zu", ps->name, what, (size_t)(ps->p - ps->start));
}

static void blanks(struct parser *ps)
{
	while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\n' || *ps->p == '\r'))
		ps->p++;
}

/* After blanks, the next byte if it is c. */
static bool take(struct parser *ps, char c)
{
	blanks(ps);
	if (ps->p >= ps->end || *ps->p != c)
		return false;
	ps->p++;
	return true;
}

static int hex4(struct parser *ps, uint32_t *out)
{
	*out = 0;
	if (ps->end - ps->p < 4)
		return bad(ps, "cut escape");
	for (int i = 0; i < 4; i++) {
		char c = *ps->p++;
		uint32_t v;
		if (c >= '0' && c <= '9')
			v = (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = (uint32_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v = (uint32_t)(c - 'A' + 10);
		else
			return bad(ps, "bad \\u escape");
		*out = *out << 4 | v;
	}
	return 0;
}

/* After the backslash; writes 1-4 bytes at *w. */
static int escape(struct parser *ps, char **w)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	uint32_t cp, low;

	if (ps->p >= ps->end)
		return bad(ps, "cut escape");
	char c = *ps->p++;
	const char *at = c ? strchr(from, c) : NULL;
	if (at) {
		*(*w)++ = to[at - from];
		return 0;
	}
	if (c != 'u')
		return bad(ps, "unknown escape");
	if (hex4(ps, &cp) < 0)
		return -1;
	if (cp >= 0xd800 && cp < 0xdc00) {
		if (ps->end - ps->p < 2 || ps->p[0] != '\\' || ps->p[1] != 'u')
			return bad(ps, "lone surrogate");
		ps->p += 2;
		if (hex4(ps, &low) < 0)
			return -1;
		if (low < 0xdc00 || low > 0xdfff)
			return bad(ps, "lone surrogate");
		cp = 0x10000 + ((cp - 0xd800) << 10 | (low - 0xdc00));
	} else if (cp >= 0xdc00 && cp <= 0xdfff) {
		return bad(ps, "lone surrogate");
	}
	if (cp == 0)
		return bad(ps, "NUL in a string");
	*w += ng_utf8_encode(*w, cp);
	return 0;
}

/* A JSON string, decoded; caller frees. */
static int string(struct parser *ps, char **out)
{
	*out = NULL;
	if (!take(ps, '"'))
		return bad(ps, "a string was expected");
	const char *q = ps->p;
	while (q < ps->end && *q != '"')
		q += *q == '\\' ? 2 : 1;
	if (q >= ps->end)
		return bad(ps, "unfinished string");
	/* decoding never grows: an escape of 2, 6 or 12 bytes gives at most 1, 3 or 4 */
	char *s = ng_xmalloc((size_t)(q - ps->p) + 1), *w = s; /* no more than the header itself */
	while (*ps->p != '"') {
		unsigned char c = (unsigned char)*ps->p++;
		if (c < 0x20) {
			free(s);
			return bad(ps, "control character in a string");
		}
		if (c != '\\') {
			*w++ = (char)c;
		} else if (escape(ps, &w) < 0) {
			free(s);
			return -1;
		}
	}
	ps->p++;
	*w = '\0';
	*out = s;
	return 0;
}

/* An unsigned integer: digits, no sign, fraction, exponent or leading zero. */
static int number(struct parser *ps, uint64_t *out)
{
	uint64_t v = 0;

	blanks(ps);
	const char *first = ps->p;
	while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9') {
		unsigned digit = (unsigned)(*ps->p - '0');
		if (v > (UINT64_MAX - digit) / 10)
			return bad(ps, "number over 64 bits");
		v = v * 10 + digit;
		ps->p++;
	}
	if (ps->p == first || (ps->p - first > 1 && *first == '0') ||
		(ps->p < ps->end && (*ps->p == '.' || *ps->p == 'e' || *ps->p == 'E')))
		return bad(ps, "a whole number was expected");
	*out = v;
	return 0;
}

/* [n, n, ...]; -1 on more than max. */
static int numbers(struct parser *ps, uint64_t *out, unsigned max, unsigned *n, const char *too_many)
{
	*n = 0;
	if (!take(ps, '['))
		return bad(ps, "an array was expected");
	if (take(ps, ']'))
		return 0;
	do {
		if (*n == max)
			return bad(ps, too_many);
		if (number(ps, &out[*n]) < 0)
			return -1;
		++*n;
	} while (take(ps, ','));
	return take(ps, ']') ? 0 : bad(ps, "',' or ']' was expected");
}

/* The JSON grammar of a value that we do not look at, without recursion. */
static int skip_scalar(struct parser *ps)
{
	static const char *const word[] = { "true", "false", "null" };
	char *s;

	blanks(ps);
	if (ps->p < ps->end && *ps->p == '"') {
		if (string(ps, &s) < 0)
			return -1;
		free(s);
		return 0;
	}
	for (size_t i = 0; i < NG_COUNT(word); i++) {
		size_t n = strlen(word[i]);
		if ((size_t)(ps->end - ps->p) >= n && memcmp(ps->p, word[i], n) == 0) {
			ps->p += n;
			return 0;
		}
	}
	const char *first = ps->p;
	if (ps->p < ps->end && *ps->p == '-')
		ps->p++;
	const char *digits = ps->p;
	while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9')
		ps->p++;
	bool ok = ps->p > digits && (ps->p - digits == 1 || *digits != '0');
	if (ok && ps->p < ps->end && *ps->p == '.') {
		const char *frac = ++ps->p;
		while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9')
			ps->p++;
		ok = ps->p > frac;
	}
	if (ok && ps->p < ps->end && (*ps->p == 'e' || *ps->p == 'E')) {
		ps->p++;
		if (ps->p < ps->end && (*ps->p == '+' || *ps->p == '-'))
			ps->p++;
		const char *exp = ps->p;
		while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9')
			ps->p++;
		ok = ps->p > exp;
	}
	if (!ok) {
		ps->p = first;
		return bad(ps, "a value was expected");
	}
	return 0;
}

static int skip_key(struct parser *ps)
{
	char *s;

	if (string(ps, &s) < 0)
		return -1;
	free(s);
	return take(ps, ':') ? 0 : bad(ps, "':' was expected");
}

static int skip_value(struct parser *ps)
{
	bool object[SKIP_DEPTH];
	int depth = 0;

	for (;;) {
		/* a value starts here */
		bool open_object = false, open_array = false;
		if (take(ps, '{'))
			open_object = true;
		else if (take(ps, '['))
			open_array = true;
		if (open_object || open_array) {
			if (depth == SKIP_DEPTH)
				return bad(ps, "nested too deeply");
			object[depth++] = open_object;
			if (!take(ps, open_object ? '}' : ']')) {
				if (open_object && skip_key(ps) < 0)
					return -1;
				continue;
			}
			depth--;
		} else if (skip_scalar(ps) < 0) {
			return -1;
		}
		/* a value ended here */
		for (;;) {
			if (depth == 0)
				return 0;
			if (take(ps, ',')) {
				if (object[depth - 1] && skip_key(ps) < 0)
					return -1;
				break;
			}
			if (!take(ps, object[depth - 1] ? '}' : ']'))
				return bad(ps, "',' or a closing bracket was expected");
			depth--;
		}
	}
}

static int metadata(struct parser *ps, struct ng_header *h)
{
	blanks(ps);
	if (ps->end - ps->p >= 4 && memcmp(ps->p, "null", 4) == 0) {
		ps->p += 4;
		return 0;
	}
	if (!take(ps, '{'))
		return bad(ps, "__metadata__ is no object");
	if (take(ps, '}'))
		return 0;
	do {
		char *key, *value;
		if (string(ps, &key) < 0)
			return -1;
		if (!take(ps, ':') || string(ps, &value) < 0) {
			free(key);
			return bad(ps, "__metadata__ holds something else than strings");
		}
		/* not ng_meta_set: it looks for the key each time, quadratic on hostile input */
		ng_grow(&h->meta.item, &h->meta.cap, h->meta.n + 1, sizeof *h->meta.item);
		h->meta.item[h->meta.n++] = (struct ng_meta_item){ key, value };
	} while (take(ps, ','));
	return take(ps, '}') ? 0 : bad(ps, "',' or '}' was expected");
}

static int tensor_fields(
	struct parser *ps, const char *name, enum ng_dtype *dtype, unsigned *rank, uint64_t *dim, uint64_t offset[2])
{
	bool have_dtype = false, have_shape = false, have_offsets = false, twice = false;
	unsigned n;

	if (!take(ps, '{'))
		return bad(ps, "a tensor is no object");
	bool more = !take(ps, '}');
	while (more) {
		char *key = NULL, *text = NULL;
		int rc = 0;
		if (string(ps, &key) < 0)
			return -1;
		if (!take(ps, ':')) {
			rc = bad(ps, "':' was expected");
		} else if (strcmp(key, "dtype") == 0) {
			twice |= have_dtype;
			have_dtype = true;
			rc = string(ps, &text);
			if (rc == 0 && !ng_dtype_parse(dtype, text, strlen(text)))
				rc = ng_fail(ps->err, NG_DATA, "'%s': tensor '%.200s' has unknown dtype '%.40s'",
					ps->name, name, text);
			free(text);
		} else if (strcmp(key, "shape") == 0) {
			twice |= have_shape;
			have_shape = true;
			rc = numbers(ps, dim, NG_RANK_MAX, rank, "more than 8 dimensions");
		} else if (strcmp(key, "data_offsets") == 0) {
			twice |= have_offsets;
			have_offsets = true;
			rc = numbers(ps, offset, 2, &n, "data_offsets of more than two numbers");
			if (rc == 0 && n != 2)
				rc = bad(ps, "data_offsets of fewer than two numbers");
		} else {
			rc = skip_value(ps);
		}
		free(key);
		if (rc < 0)
			return -1;
		if (twice)
			return bad(ps, "a tensor's field comes twice");
		more = take(ps, ',');
		if (!more && !take(ps, '}'))
			return bad(ps, "',' or '}' was expected");
	}
	if (!have_dtype || !have_shape || !have_offsets)
		return ng_fail(ps->err, NG_DATA, "'%s': tensor '%.200s' lacks %s", ps->name, name,
			!have_dtype   ? "dtype"
			: !have_shape ? "shape"
				      : "data_offsets");
	return 0;
}

static int tensor(struct parser *ps, struct ng_header *h, const char *name)
{
	uint64_t dim[NG_RANK_MAX] = { 0 }, offset[2];
	enum ng_dtype dtype;
	unsigned rank;

	if (tensor_fields(ps, name, &dtype, &rank, dim, offset) < 0)
		return -1;
	if (ng_header_add(h, name, dtype, rank, dim, ps->err) < 0)
		return ng_fail_prefix(ps->err, "'%s'", ps->name);
	struct ng_tensor *t = &h->tensor[h->n - 1];
	if (offset[1] < offset[0])
		return ng_fail(ps->err, NG_DATA, "'%s': tensor '%.200s' ends before it starts", ps->name, name);
	if (offset[1] - offset[0] != t->bytes)
		return ng_fail(ps->err, NG_DATA, "'%s': tensor '%.200s' has %llu bytes where shape and dtype need %llu",
			ps->name, name, (unsigned long long)(offset[1] - offset[0]), (unsigned long long)t->bytes);
	t->offset = offset[0];
	return 0;
}

static int offset_cmp(const void *pa, const void *pb)
{
	const struct ng_tensor *a = pa, *b = pb;

	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->bytes != b->bytes && (a->bytes == 0 || b->bytes == 0))
		return a->bytes == 0 ? -1 : 1; /* empty ones stand before what starts there */
	if (a->dtype != b->dtype)
		return a->dtype > b->dtype ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int check_layout(struct ng_header *h, uint64_t data_size, const char *name, struct ng_err *err)
{
	uint64_t at = 0;

	if (h->n > 1)
		qsort(h->tensor, h->n, sizeof *h->tensor, offset_cmp);
	for (size_t i = 0; i < h->n; i++) {
		const struct ng_tensor *t = &h->tensor[i];
		if (t->offset != at)
			return ng_fail(err, NG_DATA,
				"'%s': tensor '%.200s' starts at byte %llu of the data, not at %llu: %s", name, t->name,
				(unsigned long long)t->offset, (unsigned long long)at,
				t->offset > at ? "a hole" : "an overlap");
		if (at > UINT64_MAX - t->bytes)
			return ng_fail(err, NG_DATA, "'%s': tensor '%.200s': offset overflows", name, t->name);
		at += t->bytes;
	}
	h->data_bytes = at;
	if (data_size != UINT64_MAX && at > data_size)
		return ng_fail(err, NG_DATA, "'%s' is cut: %llu bytes of data are there, %llu were expected", name,
			(unsigned long long)data_size, (unsigned long long)at);
	if (data_size != UINT64_MAX && at < data_size)
		return ng_fail(err, NG_DATA, "'%s': %llu bytes follow the last tensor", name,
			(unsigned long long)(data_size - at));
	return 0;
}

static int key_cmp(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

static int check_meta(const struct ng_header *h, const char *name, struct ng_err *err)
{
	const char **key = ng_xarray(h->meta.n, sizeof *key);
	int rc = 0;

	for (size_t i = 0; i < h->meta.n; i++)
		key[i] = h->meta.item[i].key;
	if (h->meta.n > 1)
		qsort(key, h->meta.n, sizeof *key, key_cmp);
	for (size_t i = 1; i < h->meta.n && rc == 0; i++)
		if (strcmp(key[i - 1], key[i]) == 0)
			rc = ng_fail(err, NG_DATA, "'%s': __metadata__ key '%.200s' comes twice", name, key[i]);
	free(key);
	return rc;
}

static int parse(struct parser *ps, struct ng_header *h)
{
	bool have_meta = false;

	if (ps->p >= ps->end || *ps->p != '{')
		return bad(ps, "it does not begin with '{'");
	ps->p++;
	bool more = !take(ps, '}');
	while (more) {
		char *key;
		if (string(ps, &key) < 0)
			return -1;
		int rc = 0;
		if (!take(ps, ':'))
			rc = bad(ps, "':' was expected");
		else if (strcmp(key, "__metadata__") == 0)
			rc = have_meta ? bad(ps, "__metadata__ comes twice") : metadata(ps, h);
		else
			rc = tensor(ps, h, key);
		have_meta |= strcmp(key, "__metadata__") == 0;
		free(key);
		if (rc < 0)
			return -1;
		more = take(ps, ',');
		if (!more && !take(ps, '}'))
			return bad(ps, "',' or '}' was expected");
	}
	blanks(ps);
	return ps->p == ps->end ? 0 : bad(ps, "something follows the JSON");
}

int ng_header_parse(
	struct ng_header *h, const char *json, size_t len, uint64_t data_size, const char *name, struct ng_err *err)
{
	struct parser ps = { json, json, json + len, name, err };
	size_t at;

	ng_header_init(h);
	if (!ng_utf8_valid(json, len, &at)) {
		ng_fail(err, NG_DATA, "'%s': bad header: not UTF-8 at byte %zu", name, at);
		goto fail;
	}
	if (parse(&ps, h) < 0 || check_meta(h, name, err) < 0 || check_layout(h, data_size, name, err) < 0)
		goto fail;
	if (ng_header_index(h, err) < 0) {
		ng_fail_prefix(err, "'%s'", name);
		goto fail;
	}
	return 0;
fail:
	ng_header_release(h);
	return -1;
}

int ng_header_length(uint64_t *out, const unsigned char *first, size_t n, const char *name, struct ng_err *err)
{
	static const struct {
		const char *magic, *what;
	} known[] = {
		{ "version https://git-lfs", "is a git-lfs pointer, not the file itself: run `git lfs pull`" },
		{ "version ", "is a git-lfs pointer, not the file itself: run `git lfs pull`" },
		{ "<!DOCTYPE", "is an HTML page, not a model: a failed download?" },
		{ "<!DOCTYP", "is an HTML page, not a model: a failed download?" },
		{ "<!doctyp", "is an HTML page, not a model: a failed download?" },
		{ "<html", "is an HTML page, not a model: a failed download?" },
		{ "<HTML", "is an HTML page, not a model: a failed download?" },
		{ "<?xml", "is an XML page, not a model: a failed download?" },
		{ "PK\003\004", "is a zip archive (a pytorch_model.bin renamed?), not safetensors" },
		{ "GGUF", "is a GGUF file, not safetensors" },
		{ "\x28\xb5\x2f\xfd", "is compressed with zstd: a stream, not a plain safetensors file" },
		{ "\x1f\x8b", "is compressed with gzip, not safetensors" },
	};
	uint64_t len = 0;

	for (size_t i = 0; i < 8 && i < n; i++)
		len |= (uint64_t)first[i] << 8 * i;
	if (n < 8 || len > NG_HEADER_MAX)
		for (size_t i = 0; i < NG_COUNT(known); i++)
			if (n >= strlen(known[i].magic) && memcmp(first, known[i].magic, strlen(known[i].magic)) == 0)
				return ng_fail(err, NG_DATA, "'%s' %s", name, known[i].what);
	if (n < 8)
		return ng_fail(err, NG_DATA, "'%s' is no safetensors file: only %zu bytes", name, n);
	if (len > NG_HEADER_MAX)
		return ng_fail(err, NG_DATA, "'%s' is no safetensors file: a header of %llu bytes (at most %u)", name,
			(unsigned long long)len, NG_HEADER_MAX);
	if (len == 0)
		return ng_fail(err, NG_DATA,
			"'%s' is no safetensors file: it begins with zeros (a download never filled in?)", name);
	*out = len;
	return 0;
}
