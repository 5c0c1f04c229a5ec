/*
 * normalize.c - see normalize.h.
 */
#include "common/base/compat.h"

#include "common/text/normalize.h"

#include "common/base/mem.h"
#include "common/text/unicode_table.h"

/* An entry: kind, then for MAP the length and the place in the pool. */
enum kind { SAME, MAP, DROP, REORDER };
#define ENTRY(kind, len, at) ((uint32_t)(kind) | (uint32_t)(len) << 2 | (uint32_t)(at) << 8)
#define ENTRY_KIND(e) ((enum kind)((e)&3))
#define ENTRY_LEN(e) ((e) >> 2 & 63)
#define ENTRY_AT(e) ((e) >> 8)
#define ASCII_DROP 0xff

/* Flags of the characters that a step changes; NFD also those of a class other than 0, and Hangul. */
static const unsigned flags_of_step[] = {
	[NG_NORMALIZE_CLEAN] = NG_UNICODE_DROP | NG_UNICODE_SPACE,
	[NG_NORMALIZE_CJK] = NG_UNICODE_CJK,
	[NG_NORMALIZE_NFD] = NG_UNICODE_NFD,
	[NG_NORMALIZE_MARKS] = NG_UNICODE_MARK,
	[NG_NORMALIZE_COMBINING] = NG_UNICODE_COMBINING,
	[NG_NORMALIZE_LOWER] = NG_UNICODE_LOWER,
};

struct cps {
	uint32_t *cp;
	size_t n, cap;
};

static void push(struct cps *v, uint32_t cp)
{
	if (v->n == v->cap)
		ng_grow(&v->cp, &v->cap, v->n + 1, sizeof *v->cp);
	v->cp[v->n++] = cp;
}

static void push_mapped(
	struct cps *v, uint32_t cp, const uint32_t *key, size_t count, const uint16_t *at, const uint32_t *pool)
{
	size_t lo = 0, hi = count;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (key[mid] < cp)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t i = at[lo]; i < at[lo + 1]; i++)
		push(v, pool[i]);
}

static bool hangul(uint32_t cp)
{
	return cp >= 0xac00 && cp < 0xac00 + 11172;
}

static void push_nfd(struct cps *v, uint32_t cp)
{
	if (ng_unicode(cp).flags & NG_UNICODE_NFD) {
		push_mapped(v, cp, ng_unicode_nfd_key, ng_unicode_nfd_count, ng_unicode_nfd_at, ng_unicode_nfd_pool);
	} else if (hangul(cp)) { /* Unicode 3.12 */
		uint32_t s = cp - 0xac00;
		push(v, 0x1100 + s / 588);
		push(v, 0x1161 + s % 588 / 28);
		if (s % 28 != 0)
			push(v, 0x11a7 + s % 28);
	} else {
		push(v, cp);
	}
}

static void push_lower(struct cps *v, uint32_t cp)
{
	if (ng_unicode(cp).flags & NG_UNICODE_LOWER)
		push_mapped(v, cp, ng_unicode_lower_key, ng_unicode_lower_count, ng_unicode_lower_at,
			ng_unicode_lower_pool);
	else
		push(v, cp);
}

static int by_class(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Canonical order: stable sort by class of each run of characters whose class
 * is not 0.  A run can be as long as the text, so long ones go through qsort
 * with the position in the key. */
static void reorder(uint32_t *cp, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t end = i;
		while (end < n && ng_unicode(cp[end]).ccc != 0)
			end++;
		size_t run = end - i;
		if (run > 32) {
			struct {
				uint64_t key;
				uint32_t cp;
			} *k = ng_xarray(run, sizeof *k);
			for (size_t j = 0; j < run; j++) {
				k[j].key = (uint64_t)ng_unicode(cp[i + j]).ccc << 32 | j;
				k[j].cp = cp[i + j];
			}
			qsort(k, run, sizeof *k, by_class);
			for (size_t j = 0; j < run; j++)
				cp[i + j] = k[j].cp;
			free(k);
		} else {
			for (size_t j = i + 1; j < end; j++) {
				uint32_t c = cp[j];
				unsigned ccc = ng_unicode(c).ccc;
				size_t k = j;
				for (; k > i && ng_unicode(cp[k - 1]).ccc > ccc; k--)
					cp[k] = cp[k - 1];
				cp[k] = c;
			}
		}
		i = end + 1;
	}
}

/* One step from a to b.  *sorts is set if it is one that reorders and the text
 * before it began with a character of a class other than 0: then what comes
 * out depends on what stands before. */
static void run_step(struct cps *b, const struct cps *a, enum ng_normalize_step step, bool *sorts)
{
	b->n = 0;
	for (size_t i = 0; i < a->n; i++) {
		uint32_t cp = a->cp[i];
		unsigned flags = ng_unicode(cp).flags;
		switch (step) {
		case NG_NORMALIZE_CLEAN:
			if (!(flags & NG_UNICODE_DROP))
				push(b, flags & NG_UNICODE_SPACE ? ' ' : cp);
			break;
		case NG_NORMALIZE_CJK:
			if (flags & NG_UNICODE_CJK) {
				push(b, ' ');
				push(b, cp);
				push(b, ' ');
			} else {
				push(b, cp);
			}
			break;
		case NG_NORMALIZE_NFD:
			push_nfd(b, cp);
			break;
		case NG_NORMALIZE_MARKS:
			if (!(flags & NG_UNICODE_MARK))
				push(b, cp);
			break;
		case NG_NORMALIZE_COMBINING:
			if (!(flags & NG_UNICODE_COMBINING))
				push(b, cp);
			break;
		case NG_NORMALIZE_LOWER:
			push_lower(b, cp);
			break;
		}
	}
	if (step == NG_NORMALIZE_NFD && b->n > 0) {
		if (ng_unicode(b->cp[0]).ccc != 0)
			*sorts = true;
		reorder(b->cp, b->n);
	}
}

/* All steps on v, in place; tmp is scratch. */
static void run_steps(struct cps *v, struct cps *tmp, const struct ng_normalizer *z, bool *sorts)
{
	for (size_t i = 0; i < z->steps; i++) {
		run_step(tmp, v, (enum ng_normalize_step)z->step[i], sorts);
		struct cps t = *v;
		*v = *tmp;
		*tmp = t;
	}
}

static unsigned deletes(enum ng_normalize_step step)
{
	return step == NG_NORMALIZE_MARKS ? NG_UNICODE_MARK : step == NG_NORMALIZE_COMBINING ? NG_UNICODE_COMBINING : 0;
}

/* What becomes of one character by itself; its text, if MAP, is in buf. */
static enum kind expand(char buf[NG_NORMALIZE_GROWTH], size_t *len, uint32_t cp, struct cps *v, struct cps *tmp,
	const struct ng_normalizer *z)
{
	bool sorts = false, starts = true;
	v->n = 0;
	push(v, cp);
	for (size_t i = 0; i < z->steps; i++) {
		enum ng_normalize_step step = (enum ng_normalize_step)z->step[i];
		/* Marks that the step after NFD deletes anyway: order does not matter to them, but one of class 0
		 * keeps others from passing it, so it stays a character (of no text). */
		bool before = sorts;
		run_step(tmp, v, step, &sorts);
		if (sorts && !before && i + 1 < z->steps && tmp->n == 1 &&
			ng_unicode(tmp->cp[0]).flags & deletes((enum ng_normalize_step)z->step[i + 1]))
			return DROP;
		struct cps t = *v;
		*v = *tmp;
		*tmp = t;
		if (v->n == 0) {
			starts = step == NG_NORMALIZE_MARKS || step == NG_NORMALIZE_COMBINING;
			break;
		}
	}
	if (sorts)
		return REORDER;
	if (v->n == 0 && !starts)
		return DROP;
	if (v->n == 1 && v->cp[0] == cp)
		return SAME;
	*len = 0;
	for (size_t i = 0; i < v->n; i++) {
		if (*len > NG_NORMALIZE_GROWTH - 4)
			return REORDER; /* an odd sequence of steps: the long way can do it */
		*len += ng_utf8_encode(buf + *len, v->cp[i]);
	}
	return *len < NG_NORMALIZE_GROWTH ? MAP : REORDER;
}

/* Flags of characters that some step may change; what has none of them stays as it is. */
static unsigned touched(const struct ng_normalizer *z)
{
	unsigned flags = 0;
	for (size_t i = 0; i < z->steps; i++)
		flags |= flags_of_step[z->step[i]];
	return flags;
}

static int add_at(struct ng_normalizer *z, size_t at, enum ng_normalize_step step)
{
	if (z->steps == NG_NORMALIZE_STEPS)
		return -1;
	memmove(z->step + at + 1, z->step + at, z->steps - at);
	z->step[at] = (unsigned char)step;
	z->steps++;
	return 0;
}

int ng_normalizer_add(struct ng_normalizer *z, enum ng_normalize_step step)
{
	return add_at(z, z->steps, step);
}

int ng_normalizer_prepend(struct ng_normalizer *z, enum ng_normalize_step step)
{
	return add_at(z, 0, step);
}

int ng_normalizer_ready(struct ng_normalizer *z, struct ng_err *err)
{
	struct cps v = { 0 }, tmp = { 0 };
	char buf[NG_NORMALIZE_GROWTH] = { 0 };
	size_t len = 0;
	unsigned flags = touched(z);

	z->entry = ng_xcalloc(65536, sizeof *z->entry);
	ng_str_init(&z->pool, 1u << 24);
	for (uint32_t cp = 0; cp < 65536; cp++) {
		if (cp >= 0xd800 && cp < 0xe000)
			continue;
		struct ng_unicode_record r = ng_unicode(cp);
		enum kind kind = SAME;
		if (r.flags & flags || r.ccc != 0 || hangul(cp))
			kind = expand(buf, &len, cp, &v, &tmp, z);
		if (cp < 128) /* no step makes more than one character of it */
			z->ascii[cp] = kind == DROP  ? ASCII_DROP
				       : kind == MAP ? (unsigned char)buf[0]
						     : (unsigned char)cp;
		if (kind == MAP) {
			z->entry[cp] = ENTRY(MAP, len, z->pool.len);
			ng_str_add(&z->pool, buf, len);
		} else {
			z->entry[cp] = ENTRY(kind, 0, 0);
		}
	}
	/* copying a mapping may read a whole word past its end */
	ng_str_add(&z->pool, buf, sizeof buf);
	free(v.cp);
	free(tmp.cp);
	return z->pool.failed ? ng_fail(err, NG_DATA, "the normaliser's steps expand too much") : 0;
}

void ng_normalizer_release(struct ng_normalizer *z)
{
	free(z->entry);
	ng_str_release(&z->pool);
	memset(z, 0, sizeof *z);
}

/* Room for what may still come: what is left of the input, and one expansion. */
static void reserve(struct ng_bytes *out, size_t left)
{
	size_t need = out->n + left + 2 * NG_NORMALIZE_GROWTH;
	if (need > out->cap)
		ng_grow(&out->data, &out->cap, need, 1);
}

/* The characters from s (the last one that may be reordered with) up to the
 * first that begins anew, through the steps literally.  Returns their end. */
static const unsigned char *long_way(struct ng_bytes *out, const struct ng_normalizer *z, const unsigned char *s,
	const unsigned char *p, const unsigned char *end)
{
	struct cps v = { 0 }, tmp = { 0 }, one = { 0 };
	char buf[NG_NORMALIZE_GROWTH];
	size_t len;
	uint32_t cp;
	bool sorts = false;

	for (; s < p; s += ng_unicode_decode(&cp, s)) {
		ng_unicode_decode(&cp, s);
		push(&v, cp);
	}
	while (p < end) {
		size_t n = ng_unicode_decode(&cp, p);
		enum kind kind = cp < 65536 ? ENTRY_KIND(z->entry[cp]) : expand(buf, &len, cp, &one, &tmp, z);
		if (kind != REORDER && kind != DROP)
			break;
		push(&v, cp);
		p += n;
	}
	run_steps(&v, &tmp, z, &sorts);
	for (size_t i = 0; i < v.n; i++) {
		reserve(out, (size_t)(end - p));
		out->n += ng_utf8_encode((char *)out->data + out->n, v.cp[i]);
	}
	reserve(out, (size_t)(end - p));
	free(v.cp);
	free(tmp.cp);
	free(one.cp);
	return p;
}

void ng_normalize(struct ng_bytes *out, const struct ng_normalizer *z, const unsigned char *s, size_t len)
{
	const unsigned char *p = s, *end = s + len;
	/* before the last character that was not dropped: where a reordering would begin */
	const unsigned char *last = s;
	size_t last_n = 0;
	struct cps v = { 0 }, tmp = { 0 };
	char buf[NG_NORMALIZE_GROWTH];

	out->n = 0;
	reserve(out, len);
	while (p < end) {
		if (*p < 0x80) {
			unsigned char *o = out->data + out->n;
			const unsigned char *run = p;
			do {
				*o = z->ascii[*p++];
				o += *o != ASCII_DROP;
			} while (p < end && *p < 0x80);
			out->n = (size_t)(o - out->data);
			/* the last that was kept, if any was */
			for (const unsigned char *q = p; q > run; q--) {
				if (z->ascii[q[-1]] != ASCII_DROP) {
					last = q - 1;
					last_n = out->n - 1;
					break;
				}
			}
			continue;
		}
		uint32_t cp;
		size_t n = ng_unicode_decode(&cp, p);
		enum kind kind;
		const char *text = buf;
		size_t text_len = 0;
		if (cp < 65536) {
			uint32_t e = z->entry[cp];
			kind = ENTRY_KIND(e);
			text = z->pool.data + ENTRY_AT(e);
			text_len = ENTRY_LEN(e);
		} else {
			kind = expand(buf, &text_len, cp, &v, &tmp, z);
		}
		if (kind == DROP) {
			p += n;
			continue;
		}
		if (kind == REORDER) {
			out->n = last_n;
			p = long_way(out, z, last, p, end);
			last = p;
			last_n = out->n;
			continue;
		}
		last = p;
		last_n = out->n;
		if (kind == SAME) {
			for (size_t i = 0; i < n; i++)
				out->data[out->n++] = p[i];
		} else {
			reserve(out, (size_t)(end - p));
			if (text_len <= 8) /* the pool, buf and out all have the room */
				memcpy(out->data + out->n, text, 8);
			else
				memcpy(out->data + out->n, text, text_len);
			out->n += text_len;
		}
		p += n;
	}
	free(v.cp);
	free(tmp.cp);
}
