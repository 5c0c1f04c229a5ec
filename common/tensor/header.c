/*
 * header.c - safetensors headers: building, finding, the canonical layout.
 * The parser is header_parse.c.
 */
#include "common/base/compat.h"

#include <stdarg.h>

#include "common/base/mem.h"
#include "common/tensor/header.h"

#define DATA_ALIGN 64

void ng_header_init(struct ng_header *h)
{
	memset(h, 0, sizeof *h);
}

void ng_header_release(struct ng_header *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->tensor[i].name);
	for (size_t i = 0; i < h->meta.n; i++) {
		free(h->meta.item[i].key);
		free(h->meta.item[i].value);
	}
	free(h->tensor);
	free(h->by_name);
	free(h->meta.item);
	memset(h, 0, sizeof *h);
}

int ng_header_add(struct ng_header *h, const char *name, enum ng_dtype dtype, unsigned rank, const uint64_t *dim,
	struct ng_err *err)
{
	struct ng_tensor t = { .dtype = dtype, .rank = rank, .count = 1 };
	size_t count = 1, bits;

	if (rank > NG_RANK_MAX)
		return ng_fail(err, NG_DATA, "tensor '%s' has %u dimensions, more than %d", name, rank, NG_RANK_MAX);
	for (unsigned i = 0; i < rank; i++) {
		t.dim[i] = dim[i];
		if (!ng_mul(&count, count, (size_t)dim[i]))
			return ng_fail(err, NG_DATA, "tensor '%s': its number of elements overflows", name);
	}
	if (!ng_mul(&bits, count, ng_dtype_bits(dtype)))
		return ng_fail(err, NG_DATA, "tensor '%s': its size overflows", name);
	if (bits % 8 != 0)
		return ng_fail(err, NG_DATA, "tensor '%s': its %s elements do not fill whole bytes", name,
			ng_dtype_name(dtype));
	t.count = count;
	t.bytes = bits / 8;
	t.name = ng_xstrdup(name);
	ng_grow(&h->tensor, &h->cap, h->n + 1, sizeof *h->tensor);
	h->tensor[h->n++] = t;
	return 0;
}

/* The order of data in a canonical file: types descending, then names. */
static int canonical_cmp(const void *pa, const void *pb)
{
	const struct ng_tensor *a = pa, *b = pb;

	if (a->dtype != b->dtype)
		return a->dtype > b->dtype ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int name_cmp(const void *pa, const void *pb)
{
	const struct ng_tensor *const *a = pa, *const *b = pb;

	return strcmp((*a)->name, (*b)->name);
}

/* by_name; NG_DATA on a name that comes twice. */
int ng_header_index(struct ng_header *h, struct ng_err *err)
{
	const struct ng_tensor **sorted = ng_xarray(h->n, sizeof *sorted);
	int rc = 0;

	for (size_t i = 0; i < h->n; i++)
		sorted[i] = &h->tensor[i];
	if (h->n > 1)
		qsort(sorted, h->n, sizeof *sorted, name_cmp);
	for (size_t i = 1; i < h->n && rc == 0; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			rc = ng_fail(err, NG_DATA, "tensor '%s' comes twice", sorted[i]->name);
	if (rc == 0) {
		free(h->by_name);
		h->by_name = ng_xarray(h->n, sizeof *h->by_name);
		for (size_t i = 0; i < h->n; i++)
			h->by_name[i] = (size_t)(sorted[i] - h->tensor);
	}
	free(sorted);
	return rc;
}

int ng_header_finish(struct ng_header *h, struct ng_err *err)
{
	size_t offset = 0;

	if (h->n > 1)
		qsort(h->tensor, h->n, sizeof *h->tensor, canonical_cmp);
	for (size_t i = 0; i < h->n; i++) {
		h->tensor[i].offset = offset;
		if (!ng_add(&offset, offset, (size_t)h->tensor[i].bytes))
			return ng_fail(err, NG_DATA, "the tensors' total size overflows");
	}
	h->data_bytes = offset;
	return ng_header_index(h, err);
}

void ng_header_copy(struct ng_header *out, const struct ng_header *h)
{
	ng_header_init(out);
	out->tensor = ng_xarray(h->n, sizeof *out->tensor);
	out->n = out->cap = h->n;
	for (size_t i = 0; i < h->n; i++) {
		out->tensor[i] = h->tensor[i];
		out->tensor[i].name = ng_xstrdup(h->tensor[i].name);
	}
	if (h->by_name) {
		out->by_name = ng_xarray(h->n, sizeof *out->by_name);
		if (h->n)
			memcpy(out->by_name, h->by_name, h->n * sizeof *out->by_name);
	}
	for (size_t i = 0; i < h->meta.n; i++)
		ng_meta_set(&out->meta, h->meta.item[i].key, h->meta.item[i].value);
	out->data_bytes = h->data_bytes;
}

bool ng_header_canonical(const struct ng_header *h)
{
	for (size_t i = 1; i < h->n; i++)
		if (canonical_cmp(&h->tensor[i - 1], &h->tensor[i]) > 0)
			return false;
	return true;
}

/* Code points that would let a name play tricks on a terminal or a log. */
static bool unprintable(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x2028 && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff || (cp & 0xfffe) == 0xfffe;
}

static const char *name_problem(const char *name, bool coded)
{
	size_t len = strlen(name);

	if (len == 0)
		return "is empty";
	if (len > NG_TENSOR_NAME_MAX)
		return "is longer than 512 bytes";
	for (size_t i = 0; i < len;) {
		uint32_t cp;
		size_t k = ng_utf8_decode(&cp, name + i, len - i);
		if (k == 0)
			return "is not UTF-8";
		if (unprintable(cp))
			return "holds an unprintable character";
		i += k;
	}
	const char *at = strchr(name, '@');
	if (!at)
		return NULL;
	if (!coded)
		return "holds '@', which is kept for coded tensors";
	if (at == name || at[1] == '\0' || strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(at + 1))
		return "is no name of a coded tensor's part (NAME@PART)";
	return NULL;
}

int ng_header_check_names(const struct ng_header *h, bool coded, struct ng_err *err)
{
	for (size_t i = 0; i < h->n; i++) {
		const char *why = name_problem(h->tensor[i].name, coded);
		if (why)
			return ng_fail(err, NG_DATA, "tensor name '%.200s' %s", h->tensor[i].name, why);
	}
	return 0;
}

static void add_string(struct ng_str *out, const char *s)
{
	ng_str_adds(out, "\"");
	while (*s) {
		size_t plain = 0;
		while (s[plain] && (unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\')
			plain++;
		ng_str_add(out, s, plain);
		s += plain;
		if (!*s)
			break;
		static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
		const char *at = strchr(from, *s);
		if (at) {
			char esc[2] = { '\\', to[at - from] };
			ng_str_add(out, esc, 2);
		} else {
			ng_str_addf(out, "\\u%04x", (unsigned)(unsigned char)*s);
		}
		s++;
	}
	ng_str_adds(out, "\"");
}

static int item_cmp(const void *pa, const void *pb)
{
	const struct ng_meta_item *a = pa, *b = pb;

	return strcmp(a->key, b->key);
}

/* Sorted by key, so that equal metadata is equal bytes. */
static void add_meta(struct ng_str *out, const struct ng_meta *m)
{
	struct ng_meta_item *sorted = ng_xarray(m->n, sizeof *sorted);

	memcpy(sorted, m->item, m->n * sizeof *sorted);
	qsort(sorted, m->n, sizeof *sorted, item_cmp);
	ng_str_adds(out, "\"__metadata__\":{");
	for (size_t i = 0; i < m->n; i++) {
		if (i)
			ng_str_adds(out, ",");
		add_string(out, sorted[i].key);
		ng_str_adds(out, ":");
		add_string(out, sorted[i].value);
	}
	ng_str_adds(out, "}");
	free(sorted);
}

int ng_header_encode(struct ng_str *out, const struct ng_header *h, bool with_meta, struct ng_err *err)
{
	size_t start = out->len;
	unsigned char word[8] = { 0 };
	bool meta = with_meta && h->meta.n > 0;

	if (!ng_header_canonical(h))
		return ng_fail(err, NG_SOFTWARE, "tensors to be written are not in canonical order");
	ng_str_add(out, word, sizeof word);
	ng_str_adds(out, "{");
	if (meta)
		add_meta(out, &h->meta);
	for (size_t i = 0; i < h->n; i++) {
		const struct ng_tensor *t = &h->tensor[i];
		if (i || meta)
			ng_str_adds(out, ",");
		add_string(out, t->name);
		ng_str_addf(out, ":{\"dtype\":\"%s\",\"shape\":[", ng_dtype_name(t->dtype));
		for (unsigned d = 0; d < t->rank; d++)
			ng_str_addf(out, d ? ",%llu" : "%llu", (unsigned long long)t->dim[d]);
		ng_str_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->offset,
			(unsigned long long)(t->offset + t->bytes));
	}
	ng_str_adds(out, "}");
	while ((out->len - start) % DATA_ALIGN != 0 && !out->failed)
		ng_str_adds(out, " ");
	uint64_t len = out->len - start - sizeof word;
	if (out->failed || len > NG_HEADER_MAX)
		return ng_fail(err, NG_DATA, "the header of %zu tensors is over %u bytes", h->n, NG_HEADER_MAX);
	for (int i = 0; i < 8; i++)
		out->data[start + (size_t)i] = (char)(unsigned char)(len >> 8 * i);
	return 0;
}

const struct ng_tensor *ng_header_find(const struct ng_header *h, const char *name)
{
	size_t low = 0, high = h->by_name ? h->n : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct ng_tensor *t = &h->tensor[h->by_name[mid]];
		int c = strcmp(name, t->name);
		if (c == 0)
			return t;
		if (c < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

bool ng_tensor_same_shape(const struct ng_tensor *a, const struct ng_tensor *b)
{
	return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

void ng_tensor_shape(char *out, size_t size, const struct ng_tensor *t)
{
	struct ng_str s;

	ng_str_init(&s, 1024);
	ng_str_adds(&s, "[");
	for (unsigned d = 0; d < t->rank; d++)
		ng_str_addf(&s, d ? ",%llu" : "%llu", (unsigned long long)t->dim[d]);
	ng_str_adds(&s, "]");
	snprintf(out, size, "%s", s.data);
	ng_str_release(&s);
}

static struct ng_meta_item *meta_item(const struct ng_meta *m, const char *key)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->item[i].key, key) == 0)
			return &m->item[i];
	return NULL;
}

const char *ng_meta_get(const struct ng_meta *m, const char *key)
{
	const struct ng_meta_item *it = meta_item(m, key);

	return it ? it->value : NULL;
}

void ng_meta_set(struct ng_meta *m, const char *key, const char *value)
{
	struct ng_meta_item *it = meta_item(m, key);

	if (!value) {
		if (it) {
			free(it->key);
			free(it->value);
			size_t after = (size_t)(m->item + m->n - (it + 1));
			memmove(it, it + 1, after * sizeof *it);
			m->n--;
		}
		return;
	}
	char *copy = ng_xstrdup(value); /* first: value may be the old one */
	if (it) {
		free(it->value);
		it->value = copy;
		return;
	}
	ng_grow(&m->item, &m->cap, m->n + 1, sizeof *m->item);
	m->item[m->n].key = ng_xstrdup(key);
	m->item[m->n].value = copy;
	m->n++;
}

void ng_meta_setf(struct ng_meta *m, const char *key, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof buf) {
		ng_meta_set(m, key, buf);
		return;
	}
	char *big = ng_xmalloc((size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(big, (size_t)n + 1, fmt, ap);
	va_end(ap);
	ng_meta_set(m, key, big);
	free(big);
}
