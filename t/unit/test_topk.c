/* Top-k against a sort of all scores; vectors in files; a corpus from rows. */
#include "common/base/compat.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/rank/corpus.h"
#include "common/rank/topk.h"
#include "common/rank/vectors.h"
#include "t/unit/check.h"

static char dir[] = "/tmp/ng-test-XXXXXX";

static uint32_t state = 12345;
static uint32_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static const float *sort_scores;
static const uint32_t *sort_tie;

static int by_rank(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (sort_scores[x] != sort_scores[y])
		return sort_scores[x] > sort_scores[y] ? -1 : 1;
	return sort_tie[x] < sort_tie[y] ? -1 : 1;
}

/* Whole numbers: every product is exact, and most scores tie. */
static void one_size(size_t Q, size_t N, size_t C, size_t k, int threads, size_t block)
{
	float *query = ng_xarray(Q * C, sizeof *query), *doc = ng_xarray(N * C, sizeof *doc);
	float *score = ng_xarray(N, sizeof *score);
	uint32_t *tie = ng_xarray(N, sizeof *tie), *want = ng_xarray(N, sizeof *want);
	struct ng_topk *top;
	struct ng_err err;
	size_t differ = 0, found = 0;

	for (size_t i = 0; i < Q * C; i++)
		query[i] = (float)(int)(next_random() % 5) - 2;
	for (size_t i = 0; i < N * C; i++)
		doc[i] = (float)(int)(next_random() % 5) - 2;
	ng_decimal_ranks(tie, (uint32_t)N);
	top = ng_topk_new(query, Q, C, k, false, tie, threads);
	for (size_t i = 0; i < N; i += block)
		if (ng_topk_add(top, doc + i * C, N - i < block ? N - i : block, i, &err) < 0)
			printf("# %s\n", err.text);
	for (size_t q = 0; q < Q; q++) {
		const struct ng_hit *hit;
		size_t n = ng_topk_get(top, &hit, q);
		for (size_t i = 0; i < N; i++) {
			score[i] = 0;
			want[i] = (uint32_t)i;
			for (size_t c = 0; c < C; c++)
				score[i] += query[q * C + c] * doc[i * C + c];
		}
		sort_scores = score;
		sort_tie = tie;
		qsort(want, N, sizeof *want, by_rank);
		found += n == (k < N ? k : N);
		for (size_t i = 0; i < n; i++)
			differ += hit[i].doc != want[i] || hit[i].score != score[want[i]];
	}
	CHECK_INT_EQ(found, Q);
	CHECK_INT_EQ(differ, 0);
	ng_topk_free(top);
	free(query);
	free(doc);
	free(score);
	free(tie);
	free(want);
}

/* Equal documents must tie wherever they stand in a block: a BLAS may add in another order at its edges. */
static void equal_rows(void)
{
	enum { Q = 129, N = 1500, C = 37 };
	float *query = ng_xarray(Q * C, sizeof *query), *doc = ng_xarray(N * C, sizeof *doc);
	struct ng_topk *top;
	struct ng_err err;
	size_t wrong = 0;

	for (size_t i = 0; i < Q * C; i++)
		query[i] = (float)next_random() / 4294967296.0f - 0.5f;
	for (size_t c = 0; c < C; c++)
		doc[c] = (float)next_random() / 4294967296.0f - 0.5f;
	for (size_t i = 1; i < N; i++)
		memcpy(doc + i * C, doc, C * sizeof *doc);
	top = ng_topk_new(query, Q, C, 100, true, NULL, 2);
	CHECK_INT_EQ(ng_topk_add(top, doc, N, 0, &err), 0);
	for (size_t q = 0; q < Q; q++) {
		const struct ng_hit *hit;
		size_t n = ng_topk_get(top, &hit, q);
		for (size_t i = 0; i < n; i++)
			wrong += hit[i].doc != i || hit[i].score != hit[0].score;
	}
	CHECK_INT_EQ(wrong, 0);
	ng_topk_free(top);

	doc[5 * C + 1] = NAN;
	top = ng_topk_new(query, 3, C, 10, false, NULL, 1);
	CHECK_INT_EQ(ng_topk_add(top, doc, 10, 0, &err), -1);
	CHECK(strstr(err.text, "document 5") != NULL);
	ng_topk_free(top);
	free(query);
	free(doc);
}

static int by_string(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void decimal_ranks(void)
{
	static const uint32_t sizes[] = { 1, 2, 9, 10, 11, 99, 100, 101, 12345 };

	for (size_t s = 0; s < NG_COUNT(sizes); s++) {
		uint32_t n = sizes[s], *rank = ng_xarray(n, sizeof *rank), wrong = 0;
		char(*text)[12] = ng_xarray(n, sizeof *text);
		for (uint32_t i = 0; i < n; i++)
			snprintf(text[i], sizeof text[i], "%u", i);
		qsort(text, n, sizeof *text, by_string);
		ng_decimal_ranks(rank, n);
		for (uint32_t i = 0; i < n; i++)
			wrong += rank[strtoul(text[i], NULL, 10)] != i;
		CHECK_INT_EQ(wrong, 0);
		free(rank);
		free(text);
	}
}

static void vectors(void)
{
	float rows[7 * 3], got[7 * 3];
	struct ng_vectors memory, file, npy;
	struct ng_err err;
	char *path = ng_xasprintf("%s/v.npy", dir);

	for (size_t i = 0; i < NG_COUNT(rows); i++)
		rows[i] = (float)i / 3;
	CHECK_INT_EQ(ng_vectors_new(&memory, 7, 3, 1 << 20, &err), 0);
	CHECK_INT_EQ(ng_vectors_new(&file, 7, 3, 0, &err), 0);
	CHECK(memory.mem != NULL && file.mem == NULL);
	for (size_t i = 0; i < 7; i += 2) {
		size_t n = i + 2 < 7 ? 2 : 7 - i;
		CHECK_INT_EQ(ng_vectors_put(&memory, i, rows + 3 * i, n, &err), 0);
		CHECK_INT_EQ(ng_vectors_put(&file, i, rows + 3 * i, n, &err), 0);
	}
	CHECK_INT_EQ(ng_vectors_get(&memory, 0, got, 7, &err), 0);
	CHECK(memcmp(got, rows, sizeof rows) == 0);
	CHECK_INT_EQ(ng_vectors_get(&file, 3, got, 4, &err), 0);
	CHECK(memcmp(got, rows + 9, 12 * sizeof *rows) == 0);
	CHECK_INT_EQ(ng_vectors_save_npy(&file, path, &err), 0);
	CHECK_INT_EQ(ng_vectors_open_npy(&npy, path, &err), 0);
	CHECK_INT_EQ(npy.n, 7);
	CHECK_INT_EQ(npy.dim, 3);
	CHECK_INT_EQ(ng_vectors_get(&npy, 0, got, 7, &err), 0);
	CHECK(memcmp(got, rows, sizeof rows) == 0);
	ng_vectors_release(&memory);
	ng_vectors_release(&file);
	ng_vectors_release(&npy);
	free(path);
}

static void corpus(void)
{
	static const char text[] = "{\"anchor\": \"a\", \"positive\": \"p\", \"negative\": [\"n\", \"p\", \"a\"]}\n"
				   "{\"anchor\": \"b\", \"positive\": \"n\"}\n"
				   "{\"anchor\": \"a\", \"positive\": \"q\"}\n"
				   "{\"anchor\": \"a\", \"positive\": \"p\"}\n";
	const struct ng_rows_opts how = { .kind = NG_ROWS_PAIRS, .min_rows = 1 };
	char *path = ng_xasprintf("%s/d.jsonl", dir);
	const char *list[] = { path };
	struct ng_rows rows;
	struct ng_corpus c;
	struct ng_texts t;
	struct ng_err err;

	CHECK_INT_EQ(ng_out_put(path, text, sizeof text - 1, 0, &err), 0);
	CHECK_INT_EQ(ng_rows_open(&rows, list, 1, &how, &err), 0);
	CHECK_INT_EQ(ng_corpus_make(&c, &rows, &err), 0);
	CHECK_INT_EQ(c.queries, 2); /* a, b */
	CHECK_INT_EQ(c.docs, 4);    /* p, n, a, q: a text may be query and document */
	CHECK_INT_EQ(c.start[1] - c.start[0], 2);
	CHECK_INT_EQ(c.start[2] - c.start[1], 1);
	CHECK(ng_corpus_relevant(&c, 0, 0) && ng_corpus_relevant(&c, 0, 3) && !ng_corpus_relevant(&c, 0, 1));
	CHECK(ng_corpus_relevant(&c, 1, 1) && !ng_corpus_relevant(&c, 1, 0));
	CHECK_INT_EQ(ng_texts_get(&t, &rows, c.doc, 4, 1 << 20, &err), 0);
	CHECK_INT_EQ(t.n, 4);
	CHECK(t.text[3].len == 1 && t.text[3].s[0] == 'q');
	ng_texts_release(&t);
	CHECK_INT_EQ(ng_texts_get(&t, &rows, c.doc, 4, 1, &err), 0);
	CHECK_INT_EQ(t.n, 1); /* a limit of bytes still gives one */
	ng_texts_release(&t);
	ng_corpus_release(&c);
	ng_rows_close(&rows);
	free(path);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	decimal_ranks();
	one_size(1, 1, 1, 10, 1, 1);
	one_size(7, 33, 5, 100, 2, 33);
	one_size(33, 1500, 3, 10, 3, 700);
	one_size(130, 2500, 7, 127, 2, 2500);
	equal_rows();
	vectors();
	corpus();
	ng_remove_tree(dir);
	return check_done();
}
