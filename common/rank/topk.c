#include "common/base/compat.h"

#include <math.h>
#include <pthread.h>

#include "common/base/mem.h"
#include "common/rank/topk.h"

struct ng_topk {
	struct ng_device *dev;
	struct ng_ref query, docs, scores; /* (NG_TOPK_QUERIES padded,C), (NG_TOPK_DOCS,C), (queries,docs) */
	float *block, *host;		   /* host copies of docs and scores */
	size_t Q, padded, C, k, count;
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

static int device_fail(struct ng_topk *t, struct ng_err *err)
{
	return ng_fail(err, NG_OSERR, "ranking: %s", t->dev->last_error(t->dev));
}

int ng_topk_new(struct ng_topk **out, struct ng_device *dev, const float *query, size_t Q, size_t C, size_t k,
	bool cosine, const uint32_t *tie, int threads, struct ng_err *err)
{
	struct ng_topk *t = ng_xcalloc(1, sizeof *t);
	int status = 0;

	/* whole pieces of the device only: an edge piece of a BLAS may add in another order, and then two
	 * equal documents would no longer tie */
	t->padded = (Q + NG_PIECE - 1) / NG_PIECE * NG_PIECE;
	t->dev = dev;
	t->Q = Q;
	t->C = C;
	t->k = k;
	t->cosine = cosine;
	t->tie = tie;
	t->threads = threads < 1 ? 1 : threads;
	t->block = ng_xcalloc(NG_TOPK_DOCS > t->padded ? NG_TOPK_DOCS : t->padded, C * sizeof *t->block);
	t->host = ng_xarray(t->padded * NG_TOPK_DOCS, sizeof *t->host);
	t->heap = ng_xarray(Q * k, sizeof *t->heap);
	t->fill = ng_xcalloc(Q, sizeof *t->fill);
	status = dev->alloc(dev, &t->query, t->padded * C);
	status = status ? status : dev->alloc(dev, &t->docs, NG_TOPK_DOCS * C);
	status = status ? status : dev->alloc(dev, &t->scores, t->padded * NG_TOPK_DOCS);
	memcpy(t->block, query, Q * C * sizeof *query);
	if (cosine)
		ng_unit_rows(t->block, Q, C);
	status = status ? status : dev->upload(dev, t->query, t->block, t->padded * C);
	if (status) {
		device_fail(t, err);
		ng_topk_free(t);
		return -1;
	}
	*out = t;
	return 0;
}

void ng_topk_free(struct ng_topk *t)
{
	if (!t)
		return;
	if (t->query.mem)
		t->dev->free(t->dev, t->query);
	if (t->docs.mem)
		t->dev->free(t->dev, t->docs);
	if (t->scores.mem)
		t->dev->free(t->dev, t->scores);
	free(t->block);
	free(t->host);
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

struct slice {
	struct ng_topk *t;
	size_t begin, end, n, first;
	size_t bad_query, bad_doc; /* of a non-finite score */
	bool bad;
};

static void *rank_slice(void *arg)
{
	struct slice *s = arg;
	struct ng_topk *t = s->t;

	for (size_t q = s->begin; q < s->end; q++) {
		const float *row = t->host + q * NG_TOPK_DOCS;
		for (size_t j = 0; j < s->n; j++) {
			if (!isfinite(row[j])) {
				if (!s->bad) {
					s->bad_query = q;
					s->bad_doc = s->first + j;
				}
				s->bad = true;
				return NULL;
			}
			/* most are below the worst kept: one comparison */
			if (t->fill[q] == t->k && row[j] < t->heap[q * t->k].score)
				continue;
			push(t, q, (struct ng_hit){ row[j], (uint32_t)(s->first + j) });
		}
	}
	return NULL;
}

static int rank_block(struct ng_topk *t, size_t n, size_t first, struct ng_err *err)
{
	int threads = (size_t)t->threads > t->Q ? (int)t->Q : t->threads;
	struct slice *slice = ng_xcalloc((size_t)threads, sizeof *slice);
	pthread_t *thread = ng_xarray((size_t)threads, sizeof *thread);
	bool *started = ng_xcalloc((size_t)threads, sizeof *started);
	int result = 0;

	for (int i = 0; i < threads; i++) {
		slice[i] = (struct slice){ t, t->Q * (size_t)i / (size_t)threads,
			t->Q * (size_t)(i + 1) / (size_t)threads, n, first, 0, 0, false };
		started[i] = i > 0 && pthread_create(&thread[i], NULL, rank_slice, &slice[i]) == 0;
		if (!started[i] && i > 0)
			rank_slice(&slice[i]);
	}
	rank_slice(&slice[0]);
	for (int i = 0; i < threads; i++) {
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

int ng_topk_add(struct ng_topk *t, const float *doc, size_t n, size_t first, struct ng_err *err)
{
	struct ng_device *dev = t->dev;

	for (size_t done = 0; done < n; done += NG_TOPK_DOCS) {
		size_t part = n - done < NG_TOPK_DOCS ? n - done : NG_TOPK_DOCS;
		memcpy(t->block, doc + done * t->C, part * t->C * sizeof *doc);
		memset(t->block + part * t->C, 0, (NG_TOPK_DOCS - part) * t->C * sizeof *doc);
		if (t->cosine)
			ng_unit_rows(t->block, part, t->C);
		if (dev->upload(dev, t->docs, t->block, NG_TOPK_DOCS * t->C) ||
			dev->gemm(dev, false, true, t->padded, NG_TOPK_DOCS, t->C, 1, t->query, t->C, t->docs, t->C, 0,
				t->scores, NG_TOPK_DOCS) ||
			dev->download(dev, t->host, t->scores, t->padded * NG_TOPK_DOCS))
			return device_fail(t, err);
		if (rank_block(t, part, first + done, err) < 0)
			return -1;
	}
	return 0;
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
