#include "common/base/compat.h"

#include <sodium.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/rank/corpus.h"

/* Distinct texts: an open hash table of their digests. */
struct key {
	uint64_t a, b;
};
struct table {
	uint32_t *slot;	 /* number + 1 of the text, 0 = free */
	struct key *key; /* of text i */
	size_t n, cap, slots;
};

static struct key key_of(const struct ng_text *t)
{
	unsigned char digest[16];
	struct key k;

	crypto_generichash(digest, sizeof digest, (const unsigned char *)t->s, t->len, NULL, 0);
	memcpy(&k.a, digest, 8);
	memcpy(&k.b, digest + 8, 8);
	return k;
}

static void put(struct table *t, uint32_t number)
{
	size_t i = (size_t)t->key[number].a & (t->slots - 1);

	while (t->slot[i])
		i = (i + 1) & (t->slots - 1);
	t->slot[i] = number + 1;
}

/* The text's number; *fresh when it was not there before. */
static uint32_t find_or_add(struct table *t, const struct ng_text *text, bool *fresh)
{
	struct key k = key_of(text);

	if (2 * (t->n + 1) > t->slots) {
		t->slots = t->slots ? 2 * t->slots : 1024;
		free(t->slot);
		t->slot = ng_xcalloc(t->slots, sizeof *t->slot);
		for (size_t i = 0; i < t->n; i++)
			put(t, (uint32_t)i);
	}
	for (size_t i = (size_t)k.a & (t->slots - 1); t->slot[i]; i = (i + 1) & (t->slots - 1)) {
		const struct key *there = &t->key[t->slot[i] - 1];
		if (there->a == k.a && there->b == k.b) {
			*fresh = false;
			return t->slot[i] - 1;
		}
	}
	ng_grow(&t->key, &t->cap, t->n + 1, sizeof *t->key);
	t->key[t->n] = k;
	put(t, (uint32_t)t->n);
	*fresh = true;
	return (uint32_t)t->n++;
}

static void table_release(struct table *t)
{
	free(t->slot);
	free(t->key);
}

struct pair {
	uint32_t query, doc;
};

static int by_query(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	if (x->query != y->query)
		return x->query < y->query ? -1 : 1;
	return x->doc < y->doc ? -1 : x->doc > y->doc;
}

static void fill_relevant(struct ng_corpus *c, struct pair *pair, size_t n)
{
	size_t kept = 0;

	qsort(pair, n, sizeof *pair, by_query);
	c->start = ng_xcalloc(c->queries + 1, sizeof *c->start);
	c->relevant = ng_xarray(n ? n : 1, sizeof *c->relevant);
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && by_query(&pair[i - 1], &pair[i]) == 0)
			continue;
		c->relevant[kept++] = pair[i].doc;
		c->start[pair[i].query + 1] = kept;
	}
	/* every query has a positive: no start is left at 0 but the first */
}

int ng_corpus_make(struct ng_corpus *out, const struct ng_rows *rows, struct ng_err *err)
{
	struct table queries = { 0 }, docs = { 0 };
	struct ng_row row = { 0 };
	struct pair *pair = NULL;
	size_t query_cap = 0, doc_cap = 0, pair_cap = 0, pairs = 0;
	int result = -1;

	memset(out, 0, sizeof *out);
	if (sodium_init() < 0)
		return ng_fail(err, NG_OSERR, "libsodium cannot be started");
	if (rows->n >= UINT32_MAX)
		return ng_fail(err, NG_DATA, "more rows than can be evaluated");
	for (size_t i = 0; i < rows->n; i++) {
		bool fresh;
		if (ng_rows_get(rows, i, &row, err) < 0)
			goto out;
		uint32_t q = find_or_add(&queries, &row.text[0], &fresh);
		if (fresh) {
			ng_grow(&out->query, &query_cap, out->queries + 1, sizeof *out->query);
			out->query[out->queries++] = (struct ng_place){ (uint32_t)i, 0 };
		}
		for (size_t column = 1; column < row.n; column++) {
			if (docs.n >= UINT32_MAX - 1) {
				ng_fail(err, NG_DATA, "more documents than can be evaluated");
				goto out;
			}
			uint32_t d = find_or_add(&docs, &row.text[column], &fresh);
			if (fresh) {
				ng_grow(&out->doc, &doc_cap, out->docs + 1, sizeof *out->doc);
				out->doc[out->docs++] = (struct ng_place){ (uint32_t)i, (uint32_t)column };
			}
			if (column > 1)
				continue;
			ng_grow(&pair, &pair_cap, pairs + 1, sizeof *pair);
			pair[pairs++] = (struct pair){ q, d };
		}
	}
	fill_relevant(out, pair, pairs);
	result = 0;
out:
	if (result < 0)
		ng_corpus_release(out);
	ng_row_release(&row);
	table_release(&queries);
	table_release(&docs);
	free(pair);
	return result;
}

void ng_corpus_release(struct ng_corpus *c)
{
	free(c->query);
	free(c->doc);
	free(c->start);
	free(c->relevant);
	memset(c, 0, sizeof *c);
}

bool ng_corpus_relevant(const struct ng_corpus *c, size_t query, uint32_t doc)
{
	size_t lo = c->start[query], hi = c->start[query + 1];

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (c->relevant[mid] == doc)
			return true;
		if (c->relevant[mid] < doc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

int ng_texts_get(struct ng_texts *out, const struct ng_rows *rows, const struct ng_place *place, size_t count,
	size_t most, struct ng_err *err)
{
	struct ng_row row = { 0 };
	struct ng_str buf;
	size_t *at = ng_xarray(count + 1, sizeof *at);
	size_t have = SIZE_MAX; /* the row that is decoded */
	int result = -1;

	memset(out, 0, sizeof *out);
	ng_str_init(&buf, SIZE_MAX / 2);
	at[0] = 0;
	for (size_t i = 0; i < count && (i == 0 || buf.len < most); i++) {
		if (have != place[i].row && ng_rows_get(rows, place[i].row, &row, err) < 0)
			goto out;
		have = place[i].row;
		const struct ng_text *t = &row.text[place[i].column];
		if (ng_str_add(&buf, t->s, t->len) < 0) {
			ng_fail(err, NG_OSERR, "out of memory for texts");
			goto out;
		}
		at[++out->n] = buf.len;
	}
	out->buf = ng_str_take(&buf);
	out->text = ng_xarray(out->n ? out->n : 1, sizeof *out->text);
	for (size_t i = 0; i < out->n; i++)
		out->text[i] = (struct ng_text){ out->buf + at[i], at[i + 1] - at[i] };
	result = 0;
out:
	ng_str_release(&buf);
	ng_row_release(&row);
	free(at);
	return result;
}

void ng_texts_release(struct ng_texts *t)
{
	free(t->text);
	free(t->buf);
	memset(t, 0, sizeof *t);
}
