#include "common/base/compat.h"

#include <math.h>
#include <pthread.h>

#include "common/base/mem.h"
#include "common/rank/topk.h"

#define DOCS 32 /* a piece of the block that stays in cache while all queries pass */
#define SIDE 4	/* queries scored together with PAIR documents */
#define PAIR 2

/* Four products at a time; each lane is added up by itself, in order. */
typedef float lanes __attribute__((vector_size(16), may_alias, aligned(16)));

struct ng_topk {
	float *query; /* (padded,width) */
	size_t Q, padded, C, k;
	size_t width; /* C filled up with zeros to whole lanes */
	bool cosine, sorted;
	const uint32_t *tie;
	int threads;
	struct ng_hit *heap; /* (Q,k), worst at the root */
	size_t *fill;	     /* (Q) */
};

void ng_unit_rows(float *x, size_t n, size_t C)
{
	for (size_t i = 0; i < n; i++, x += C) {
		double sum = 0;
		for (size_t c = 0; c < C; c++)
			sum += (double)x[c] * x[c];
		double norm = sqrt(sum);
		float inv = (float)(norm > 1e-12 ? norm : 1e-12);
		for (size_t c = 0; c < C; c++)
			x[c] /= inv;
	}
}

/* Depth-first through 0, 1, 10, 100, .., 11, ..: the order of the strings. */
void ng_decimal_ranks(uint32_t *rank, uint32_t n)
{
	uint64_t x = 1;
	uint32_t next = 0;

	if (n == 0)
		return;
	rank[0] = next++;
	while (next < n) {
		rank[x] = next++;
		if (x * 10 < n) {
			x *= 10;
			continue;
		}
		while (x % 10 == 9 || x + 1 >= n)
			x /= 10;
		x++;
	}
}

/* Rows of C floats to rows of `width`. */
static void copy_rows(const struct ng_topk *t, float *out, const float *in, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float *row = out + i * t->width;
		memcpy(row, in + i * t->C, t->C * sizeof *row);
		memset(row + t->C, 0, (t->width - t->C) * sizeof *row);
		if (t->cosine)
			ng_unit_rows(row, 1, t->width);
	}
}

struct ng_topk *ng_topk_new(
	const float *query, size_t Q, size_t C, size_t k, bool cosine, const uint32_t *tie, int threads)
{
	struct ng_topk *t = ng_xcalloc(1, sizeof *t);

	t->Q = Q;
	t->padded = (Q + SIDE - 1) / SIDE * SIDE;
	t->C = C;
	t->width = (C + 3) / 4 * 4;
	t->k = k;
	t->cosine = cosine;
	t->tie = tie;
	t->threads = threads < 1 ? 1 : threads;
	t->query = ng_xaligned(t->padded * t->width * sizeof *t->query);
	memset(t->query, 0, t->padded * t->width * sizeof *t->query);
	copy_rows(t, t->query, query, Q);
	t->heap = ng_xarray(Q * k, sizeof *t->heap);
	t->fill = ng_xcalloc(Q, sizeof *t->fill);
	return t;
}

void ng_topk_free(struct ng_topk *t)
{
	if (!t)
		return;
	free(t->query);
	free(t->heap);
	free(t->fill);
	free(t);
}

/* Does a come before b in the ranking? */
static bool before(const struct ng_topk *t, struct ng_hit a, struct ng_hit b)
{
	if (a.score != b.score)
		return a.score > b.score;
	return t->tie ? t->tie[a.doc] < t->tie[b.doc] : a.doc < b.doc;
}

static void sift_down(const struct ng_topk *t, struct ng_hit *heap, size_t n, size_t i)
{
	for (;;) {
		size_t worst = i, l = 2 * i + 1;
		if (l < n && before(t, heap[worst], heap[l]))
			worst = l;
		if (l + 1 < n && before(t, heap[worst], heap[l + 1]))
			worst = l + 1;
		if (worst == i)
			return;
		struct ng_hit swap = heap[i];
		heap[i] = heap[worst];
		heap[worst] = swap;
		i = worst;
	}
}

static void push(struct ng_topk *t, size_t q, struct ng_hit hit)
{
	struct ng_hit *heap = t->heap + q * t->k;
	size_t i = t->fill[q];

	if (i == t->k) {
		if (before(t, hit, heap[0])) {
			heap[0] = hit;
			sift_down(t, heap, t->k, 0);
		}
		return;
	}
	heap[i] = hit;
	t->fill[q]++;
	while (i > 0 && before(t, heap[(i - 1) / 2], heap[i])) {
		struct ng_hit swap = heap[i];
		heap[i] = heap[(i - 1) / 2];
		heap[(i - 1) / 2] = swap;
		i = (i - 1) / 2;
	}
}

/* score[s][p] = query row s . document row p, over `width`. */
static void score(float out[SIDE][PAIR], const float *query, const float *doc, size_t width)
{
	lanes sum[SIDE][PAIR] = { { { 0 } } };

	for (size_t c = 0; c < width; c += 4) {
		lanes d0 = *(const lanes *)(doc + c), d1 = *(const lanes *)(doc + width + c);
		for (size_t s = 0; s < SIDE; s++) {
			lanes q = *(const lanes *)(query + s * width + c);
			sum[s][0] += q * d0;
			sum[s][1] += q * d1;
		}
	}
	for (size_t s = 0; s < SIDE; s++)
		for (size_t p = 0; p < PAIR; p++)
			out[s][p] = (sum[s][p][0] + sum[s][p][1]) + (sum[s][p][2] + sum[s][p][3]);
}

struct slice {
	struct ng_topk *t;
	const float *doc;  /* (n,C), as given */
	size_t begin, end; /* queries, multiples of SIDE but for the last */
	size_t n, first;
	size_t bad_query, bad_doc; /* of a non-finite score */
	bool bad;
};

static void offer(struct slice *s, size_t q, size_t d, float value)
{
	struct ng_topk *t = s->t;

	if (!isfinite(value)) {
		if (!s->bad) {
			s->bad_query = q;
			s->bad_doc = d;
		}
		s->bad = true;
		return;
	}
	/* most are below the worst kept: one comparison */
	if (t->fill[q] == t->k && value < t->heap[q * t->k].score)
		return;
	push(t, q, (struct ng_hit){ value, (uint32_t)d });
}

static void *rank_slice(void *arg)
{
	struct slice *s = arg;
	struct ng_topk *t = s->t;
	float *piece = ng_xaligned(DOCS * t->width * sizeof *piece), got[SIDE][PAIR];

	memset(piece, 0, DOCS * t->width * sizeof *piece);
	for (size_t at = 0; at < s->n; at += DOCS) {
		size_t n = s->n - at < DOCS ? s->n - at : DOCS;
		copy_rows(t, piece, s->doc + at * t->C, n);
		for (size_t q = s->begin; q < s->end; q += SIDE)
			for (size_t d = 0; d < n; d += PAIR) {
				score(got, t->query + q * t->width, piece + d * t->width, t->width);
				for (size_t i = 0; i < SIDE && q + i < s->end; i++)
					for (size_t j = 0; j < PAIR && d + j < n; j++)
						offer(s, q + i, s->first + at + d + j, got[i][j]);
			}
	}
	free(piece);
	return NULL;
}

int ng_topk_add(struct ng_topk *t, const float *doc, size_t n, size_t first, struct ng_err *err)
{
	size_t groups = t->padded / SIDE;
	size_t threads = (size_t)t->threads > groups ? groups : (size_t)t->threads;
	struct slice *slice = ng_xcalloc(threads, sizeof *slice);
	pthread_t *thread = ng_xarray(threads, sizeof *thread);
	bool *started = ng_xcalloc(threads, sizeof *started);
	int result = 0;

	for (size_t i = 0; i < threads; i++) {
		size_t end = groups * (i + 1) / threads * SIDE;
		slice[i] = (struct slice){ .t = t,
			.doc = doc,
			.begin = groups * i / threads * SIDE,
			.end = end < t->Q ? end : t->Q,
			.n = n,
			.first = first };
		started[i] = i > 0 && pthread_create(&thread[i], NULL, rank_slice, &slice[i]) == 0;
		if (!started[i] && i > 0)
			rank_slice(&slice[i]);
	}
	if (threads > 0)
		rank_slice(&slice[0]);
	for (size_t i = 0; i < threads; i++) {
		if (started[i])
			pthread_join(thread[i], NULL);
		if (slice[i].bad && result == 0)
			result = ng_fail(err, NG_DATA, "the score of query %zu and document %zu is not a finite number",
				slice[i].bad_query, slice[i].bad_doc);
	}
	free(slice);
	free(thread);
	free(started);
	return result;
}

size_t ng_topk_get(struct ng_topk *t, const struct ng_hit **out, size_t q)
{
	if (!t->sorted) {
		/* heap sort: the worst goes last */
		for (size_t i = 0; i < t->Q; i++)
			for (size_t n = t->fill[i]; n > 1; n--) {
				struct ng_hit *heap = t->heap + i * t->k, worst = heap[0];
				heap[0] = heap[n - 1];
				heap[n - 1] = worst;
				sift_down(t, heap, n - 1, 0);
			}
		t->sorted = true;
	}
	*out = t->heap + q * t->k;
	return t->fill[q];
}
