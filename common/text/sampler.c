#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/text/sampler.h"
#include "kernels/philox.h"

#define MAX_ROWS 0x7ffffffeu

bool ng_sampler_parse(enum ng_sampler *out, const char *name)
{
	if (strcmp(name, "no_duplicates") == 0)
		*out = NG_SAMPLER_NO_DUPLICATES;
	else if (strcmp(name, "random") == 0)
		*out = NG_SAMPLER_RANDOM;
	else
		return false;
	return true;
}

void ng_permutation(uint32_t *p, uint32_t n, uint32_t seed, uint32_t round, uint32_t epoch)
{
	const uint32_t key[2] = { seed, round };
	uint32_t counter[4] = { 0, epoch, 0, 0x6f726472 }, w[4], i, j, t;
	uint64_t m;

	for (i = 0; i < n; i++)
		p[i] = i;
	for (i = n; i-- > 1;) {
		counter[0] = i;
		ng_philox4x32(w, counter, key);
		/* floor((w0 + 2^32 w1) * m / 2^64) without a 128-bit type: m < 2^32 */
		m = (uint64_t)i + 1;
		j = (uint32_t)((w[1] * m + (w[0] * m >> 32)) >> 32);
		t = p[i];
		p[i] = p[j];
		p[j] = t;
	}
}

static size_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	return (size_t)x;
}

/* ---- which texts occur in more than one row ---- */

/* id (n, columns): 0 for a text of one row only, else a number from 1 that all
 * its occurrences share.  Returns how many numbers there are. */
static uint32_t number_texts(uint32_t *id, const uint64_t *hash, uint32_t n, size_t columns)
{
	const uint32_t several = 0x80000000u;
	size_t cells = (size_t)n * columns, slots = 16, i, k;
	uint32_t *value; /* row + 1 of the only row, or several | number */
	uint64_t *key;
	uint32_t ids = 0;

	while (slots < cells + cells / 2)
		slots *= 2;
	key = ng_xarray(slots, sizeof *key);
	value = ng_xcalloc(slots, sizeof *value);
	for (i = 0; i < cells; i++) {
		uint32_t row = (uint32_t)(i / columns) + 1;

		for (k = mix(hash[i]) & (slots - 1); value[k] && key[k] != hash[i]; k = (k + 1) & (slots - 1))
			;
		if (value[k] == 0) {
			key[k] = hash[i];
			value[k] = row;
		} else if (!(value[k] & several) && value[k] != row) {
			value[k] = several | ++ids;
		}
	}
	for (i = 0; i < cells; i++) {
		for (k = mix(hash[i]) & (slots - 1); key[k] != hash[i] || value[k] == 0; k = (k + 1) & (slots - 1))
			;
		id[i] = value[k] & several ? value[k] & ~several : 0;
	}
	free(key);
	free(value);
	return ids;
}

/* ---- first fit ---- */

/* Which (text, batch) pairs there are; 0 is no pair, since numbers start at 1. */
struct pairs {
	uint64_t *slot;
	size_t slots, used;
};

static bool has(const struct pairs *s, uint32_t text, uint32_t batch)
{
	uint64_t want = (uint64_t)text << 32 | batch;
	size_t k;

	if (s->slots == 0)
		return false;
	for (k = mix(want) & (s->slots - 1); s->slot[k]; k = (k + 1) & (s->slots - 1))
		if (s->slot[k] == want)
			return true;
	return false;
}

static void put(struct pairs *s, uint64_t pair)
{
	size_t k;

	for (k = mix(pair) & (s->slots - 1); s->slot[k]; k = (k + 1) & (s->slots - 1))
		if (s->slot[k] == pair)
			return;
	s->slot[k] = pair;
	s->used++;
}

static void insert(struct pairs *s, uint32_t text, uint32_t batch)
{
	struct pairs old = *s;
	size_t i;

	if (s->used + s->used / 2 + 8 > s->slots) {
		s->slots = s->slots ? s->slots * 2 : 1024;
		s->slot = ng_xcalloc(s->slots, sizeof *s->slot);
		s->used = 0;
		for (i = 0; i < old.slots; i++)
			if (old.slot[i])
				put(s, old.slot[i]);
		free(old.slot);
	}
	put(s, (uint64_t)text << 32 | batch);
}

struct fit {
	struct pairs pairs;
	uint32_t *from; /* (texts + 1) every batch below is full or holds the text */
	uint32_t *size; /* (batches) */
	uint32_t *next; /* (batches + 1) itself, or where to look on when full */
	size_t size_cap, next_cap;
	uint32_t batches, most;
};

/* The first batch from k on that is not full; f->batches when there is none. */
static uint32_t open_batch(struct fit *f, uint32_t k)
{
	uint32_t root = k, t;

	while (f->next[root] != root)
		root = f->next[root];
	while (f->next[k] != root) {
		t = f->next[k];
		f->next[k] = root;
		k = t;
	}
	return root;
}

static uint32_t place(struct fit *f, const uint32_t *id, size_t columns)
{
	uint32_t k = 0, t;
	size_t c;

	for (c = 0; c < columns; c++)
		if (id[c] && f->from[id[c]] > k)
			k = f->from[id[c]];
	for (;;) {
		k = open_batch(f, k);
		if (k == f->batches)
			break;
		for (c = 0; c < columns; c++)
			if (id[c] && has(&f->pairs, id[c], k))
				break;
		if (c == columns)
			break;
		k++;
	}
	if (k == f->batches) {
		ng_grow(&f->size, &f->size_cap, (size_t)k + 1, sizeof *f->size);
		ng_grow(&f->next, &f->next_cap, (size_t)k + 2, sizeof *f->next);
		f->size[k] = 0;
		f->next[k + 1] = k + 1;
		f->batches++;
	}
	if (++f->size[k] == f->most)
		f->next[k] = k + 1;
	for (c = 0; c < columns; c++)
		if (id[c])
			insert(&f->pairs, id[c], k);
	for (c = 0; c < columns; c++) {
		if (!id[c])
			continue;
		t = open_batch(f, f->from[id[c]]);
		while (t < f->batches && has(&f->pairs, id[c], t))
			t = open_batch(f, t + 1);
		f->from[id[c]] = t;
	}
	return k;
}

/* Rows in the order p to layout->row and ->start, by no_duplicates. */
static void first_fit(struct ng_layout *l, const uint32_t *p, const uint32_t *id, uint32_t ids)
{
	uint32_t *of = ng_xarray(l->n, sizeof *of), i;
	struct fit f = { 0 };
	uint64_t at = 0, *end;

	f.most = l->batch;
	f.from = ng_xcalloc((size_t)ids + 1, sizeof *f.from);
	ng_grow(&f.next, &f.next_cap, 1, sizeof *f.next);
	f.next[0] = 0;
	for (i = 0; i < l->n; i++)
		of[i] = place(&f, id + (size_t)p[i] * l->columns, l->columns);

	/* a counting sort keeps the order in which rows joined */
	l->batches = 0;
	l->start = ng_xrealloc(l->start, (size_t)f.batches + 1, sizeof *l->start);
	end = ng_xarray(f.batches, sizeof *end);
	for (i = 0; i < f.batches; i++) {
		end[i] = f.size[i] < 2 ? UINT64_MAX : at;
		if (f.size[i] < 2)
			continue;
		l->start[l->batches++] = at;
		at += f.size[i];
	}
	l->start[l->batches] = at;
	for (i = 0; i < l->n; i++)
		if (end[of[i]] != UINT64_MAX)
			l->row[end[of[i]]++] = p[i];
	free(end);
	free(of);
	free(f.from);
	free(f.size);
	free(f.next);
	free(f.pairs.slot);
}

static void cut(struct ng_layout *l, const uint32_t *p)
{
	uint64_t at;

	l->batches = 0;
	l->start = ng_xrealloc(l->start, (size_t)(l->n / l->batch) + 2, sizeof *l->start);
	for (at = 0; l->n - at >= 2; at += l->batch) {
		l->start[l->batches++] = at;
		if (l->n - at <= l->batch) {
			at = l->n;
			break;
		}
	}
	l->start[l->batches] = at;
	memcpy(l->row, p, (size_t)at * sizeof *p);
}

void ng_layout_epoch(struct ng_layout *l, uint32_t epoch)
{
	uint32_t *p = ng_xarray(l->n, sizeof *p), *id, ids;

	ng_permutation(p, l->n, l->seed, l->round, epoch);
	if (l->sampler == NG_SAMPLER_RANDOM) {
		cut(l, p);
	} else {
		id = ng_xarray((size_t)l->n * l->columns, sizeof *id);
		ids = number_texts(id, l->hash, l->n, l->columns);
		first_fit(l, p, id, ids);
		free(id);
	}
	free(p);
	l->epoch = epoch;
}

/* Rows that share a text with an earlier row of their batch. */
static uint64_t count_duplicates(const struct ng_layout *l)
{
	uint32_t *id = ng_xarray((size_t)l->n * l->columns, sizeof *id), ids;
	uint64_t *seen, b, i, found = 0;
	size_t c;

	ids = number_texts(id, l->hash, l->n, l->columns);
	seen = ng_xcalloc((size_t)ids + 1, sizeof *seen);
	for (b = 0; b < l->batches; b++)
		for (i = l->start[b]; i < l->start[b + 1]; i++) {
			const uint32_t *mine = id + (size_t)l->row[i] * l->columns;
			bool hit = false;

			for (c = 0; c < l->columns; c++)
				hit |= mine[c] && seen[mine[c]] == b + 1;
			for (c = 0; c < l->columns; c++)
				seen[mine[c]] = b + 1;
			found += hit;
		}
	free(seen);
	free(id);
	return found;
}

int ng_layout_init(struct ng_layout *l, enum ng_sampler sampler, size_t n, size_t columns, const uint64_t *hash,
	size_t batch, size_t epochs, uint64_t seed, uint64_t round, struct ng_err *err)
{
	uint32_t e;

	memset(l, 0, sizeof *l);
	if (n > MAX_ROWS)
		return ng_fail(err, NG_USAGE, "%zu rows, more than %u", n, MAX_ROWS);
	if (columns < 2 || columns > NG_SAMPLER_COLUMNS)
		return ng_fail(err, NG_USAGE, "%zu texts a row, not from 2 to %d", columns, NG_SAMPLER_COLUMNS);
	if (batch > n)
		batch = n;
	if (batch > NG_SAMPLER_BATCH)
		return ng_fail(err, NG_USAGE, "a batch of %zu rows, more than %d", batch, NG_SAMPLER_BATCH);
	if (epochs < 1 || epochs > 1000000)
		return ng_fail(err, NG_USAGE, "%zu epochs, not from 1 to 1000000", epochs);
	if (batch < 2)
		return ng_fail(
			err, n < 2 ? NG_DATA : NG_USAGE, "a batch of %zu rows: the loss compares at least 2", batch);
	if (hash == NULL && sampler != NG_SAMPLER_RANDOM)
		NG_BUG("no hashes for the sampler");
	l->sampler = sampler;
	l->n = (uint32_t)n;
	l->columns = columns;
	l->hash = hash;
	l->batch = (uint32_t)batch;
	l->epochs = (uint32_t)epochs;
	l->seed = (uint32_t)seed;
	l->round = (uint32_t)round;
	l->row = ng_xarray(n, sizeof *l->row);
	l->epoch_steps = ng_xarray(epochs, sizeof *l->epoch_steps);
	/* from the last to the first, which is then the one laid out */
	for (e = l->epochs; e-- > 0;) {
		if (sampler == NG_SAMPLER_RANDOM && e > 0) {
			l->epoch_steps[e] = n / batch + (n % batch >= 2);
			l->dropped += n % batch == 1;
		} else {
			ng_layout_epoch(l, e);
			l->epoch_steps[e] = l->batches;
			l->dropped += n - l->start[l->batches];
		}
		l->steps += l->epoch_steps[e];
	}
	if (sampler == NG_SAMPLER_RANDOM && hash)
		l->in_batch_duplicates = count_duplicates(l);
	if (l->steps == 0) {
		ng_layout_release(l);
		return ng_fail(err, NG_DATA, "no batch of at least 2 rows: all %zu rows share a text", n);
	}
	return 0;
}

void ng_layout_release(struct ng_layout *l)
{
	free(l->row);
	free(l->start);
	free(l->epoch_steps);
	memset(l, 0, sizeof *l);
}
