/* The layout against a plain rendering of sentence-transformers' loop. */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/text/sampler.h"
#include "t/unit/check.h"

static bool clash(const uint64_t *hash, size_t columns, uint32_t a, uint32_t b)
{
	size_t i, k;

	for (i = 0; i < columns; i++)
		for (k = 0; k < columns; k++)
			if (hash[a * columns + i] == hash[b * columns + k])
				return true;
	return false;
}

/* NoDuplicatesBatchSampler, batches of fewer than 2 left out; rows to row, sizes to size. */
static size_t naive(uint32_t *row, uint64_t *start, const uint32_t *p, uint32_t n, size_t columns, const uint64_t *hash,
	uint32_t most)
{
	bool *gone = ng_xcalloc(n, sizeof *gone);
	uint32_t left = n, *batch = ng_xarray(n, sizeof *batch), size, i, k;
	size_t batches = 0, at = 0;

	while (left > 0) {
		size = 0;
		for (i = 0; i < n && size < most; i++) {
			if (gone[i])
				continue;
			for (k = 0; k < size; k++)
				if (clash(hash, columns, p[i], p[batch[k]]))
					break;
			if (k == size)
				batch[size++] = i;
		}
		for (k = 0; k < size; k++)
			gone[batch[k]] = true;
		left -= size;
		if (size < 2)
			continue;
		start[batches++] = at;
		for (k = 0; k < size; k++)
			row[at++] = p[batch[k]];
	}
	start[batches] = at;
	free(gone);
	free(batch);
	return batches;
}

static uint64_t state = 42;

static uint64_t draw(uint64_t below)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (state >> 33) % below;
}

static void against_naive(uint32_t n, size_t columns, uint64_t texts, uint32_t batch)
{
	uint64_t *hash = ng_xarray(n * columns, sizeof *hash), *start = ng_xarray(n + 1, sizeof *start);
	uint32_t *p = ng_xarray(n, sizeof *p), *row = ng_xarray(n, sizeof *row), e;
	struct ng_layout l;
	struct ng_err err;
	size_t i, batches, steps = 0;
	bool same = true;

	for (i = 0; i < n * columns; i++)
		hash[i] = draw(texts);
	if (ng_layout_init(&l, NG_SAMPLER_NO_DUPLICATES, n, columns, hash, batch, 3, 7, 2, &err) == 0) {
		for (e = 0; e < 3; e++) {
			ng_layout_epoch(&l, e);
			ng_permutation(p, n, 7, 2, e);
			batches = naive(row, start, p, n, columns, hash, l.batch);
			steps += batches;
			same = same && batches == l.batches && batches == l.epoch_steps[e] &&
			       memcmp(start, l.start, (batches + 1) * sizeof *start) == 0 &&
			       memcmp(row, l.row, start[batches] * sizeof *row) == 0;
		}
		same = same && steps == l.steps;
		ng_layout_release(&l);
	} else {
		ng_permutation(p, n, 7, 2, 0);
		same = naive(row, start, p, n, columns, hash, batch < n ? batch : n) == 0;
	}
	if (!CHECK_MSG(same, "no_duplicates equals the plain loop"))
		printf("# n %u, columns %zu, texts %llu, batch %u\n", n, columns, (unsigned long long)texts, batch);
	free(hash);
	free(start);
	free(p);
	free(row);
}

static void edges(void)
{
	static const uint64_t apart[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, alike[] = { 1, 2, 1, 3, 1, 4 };
	struct ng_layout l;
	struct ng_err err;
	size_t n;

	CHECK(ng_layout_init(&l, NG_SAMPLER_NO_DUPLICATES, 1, 2, apart, 8, 1, 0, 0, &err) == -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(ng_layout_init(&l, NG_SAMPLER_NO_DUPLICATES, 3, 2, alike, 8, 1, 0, 0, &err) == -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(ng_layout_init(&l, NG_SAMPLER_RANDOM, 3, 2, alike, 8, 1, 0, 0, &err) == 0);
	CHECK_INT_EQ(l.in_batch_duplicates, 2);
	CHECK_INT_EQ(l.batch, 3);
	ng_layout_release(&l);
	CHECK(ng_layout_init(&l, NG_SAMPLER_RANDOM, 4, 2, NULL, 1, 1, 0, 0, &err) == -1);
	CHECK_INT_EQ(err.code, NG_USAGE);
	/* rows B-1, B, B+1, B+2 for B = 3 */
	for (n = 2; n <= 5; n++) {
		static const uint64_t steps[] = { 1, 1, 1, 2 }, dropped[] = { 0, 0, 1, 0 };
		int s;

		for (s = 0; s < 2; s++) {
			CHECK(ng_layout_init(&l, s ? NG_SAMPLER_RANDOM : NG_SAMPLER_NO_DUPLICATES, n, 2, apart, 3, 2, 0,
				      0, &err) == 0);
			CHECK_INT_EQ(l.steps, 2 * steps[n - 2]);
			CHECK_INT_EQ(l.dropped, 2 * dropped[n - 2]);
			CHECK_INT_EQ(l.epoch, 0);
			CHECK_INT_EQ(l.start[l.batches], n - dropped[n - 2]);
			ng_layout_release(&l);
		}
	}
	CHECK_INT_EQ(NG_EXAMPLE(3, 2), 3 * 16384 + 2);
}

/* By a Python rendering of the header's text. */
static void golden(void)
{
	static const uint32_t want[10] = { 2, 1, 7, 3, 8, 4, 5, 9, 0, 6 };
	uint32_t p[10], q[10];

	ng_permutation(p, 10, 42, 3, 1);
	CHECK(memcmp(p, want, sizeof p) == 0);
	ng_permutation(q, 10, 42, 4, 1);
	CHECK(memcmp(p, q, sizeof p) != 0);
	ng_permutation(q, 10, 42, 3, 0);
	CHECK(memcmp(p, q, sizeof p) != 0);
}

static void large(void)
{
	const uint32_t n = 1000000;
	uint64_t *hash = ng_xarray(2 * (size_t)n, sizeof *hash);
	struct ng_layout l;
	struct ng_err err;
	double t;
	uint32_t i;

	/* 70,000 passages over a million rows (sentence-transformers issue 3189) */
	for (i = 0; i < n; i++) {
		hash[2 * i] = UINT64_C(1) << 40 | i;
		hash[2 * i + 1] = draw(70000);
	}
	t = ng_now();
	CHECK(ng_layout_init(&l, NG_SAMPLER_NO_DUPLICATES, n, 2, hash, 32768, 1, 1, 0, &err) == 0);
	t = ng_now() - t;
	printf("# a million rows: %.2f s, %llu batches\n", t, (unsigned long long)l.steps);
	CHECK_MSG(t < 20, "a million rows in seconds");
	ng_layout_release(&l);
	/* one text in every tenth row: quadratic when done naively */
	for (i = 0; i < n; i++)
		hash[2 * i + 1] = i % 10 ? UINT64_C(1) << 41 | i : 5;
	t = ng_now();
	CHECK(ng_layout_init(&l, NG_SAMPLER_NO_DUPLICATES, n, 2, hash, 128, 1, 1, 0, &err) == 0);
	t = ng_now() - t;
	printf("# a text in 100,000 rows: %.2f s, %llu batches, %llu dropped\n", t, (unsigned long long)l.steps,
		(unsigned long long)l.dropped);
	CHECK_MSG(t < 20, "a text in 100,000 rows in seconds");
	ng_layout_release(&l);
	free(hash);
}

int main(void)
{
	uint32_t i;

	for (i = 0; i < 60; i++)
		against_naive(2 + (uint32_t)draw(200), 2 + draw(3), 1 + draw(400), 2 + (uint32_t)draw(40));
	edges();
	golden();
	large();
	return check_done();
}
