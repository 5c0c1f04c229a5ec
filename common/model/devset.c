/* devset.c - see devset.h. */
#include "common/base/compat.h"

#include "common/model/devset.h"

#include "common/base/mem.h"
#include "common/model/encode.h"
#include "common/model/encoder.h"
#include "common/rank/metrics.h"
#include "common/rank/topk.h"

#define TEXTS 2048
#define TEXT_BYTES (4u << 20)

int ng_devset_open(struct ng_devset *d, const char *path, const char *fields, bool skip_bad, struct ng_err *err)
{
	const struct ng_rows_opts how = {
		.kind = NG_ROWS_PAIRS, .fields = fields, .skip_bad = skip_bad, .min_rows = 1
	};

	if (ng_rows_open(&d->rows, &path, 1, &how, err))
		return -1;
	if (ng_corpus_make(&d->corpus, &d->rows, err)) {
		ng_rows_close(&d->rows);
		return -1;
	}
	d->open = true;
	return 0;
}

void ng_devset_close(struct ng_devset *d)
{
	if (!d->open)
		return;
	ng_corpus_release(&d->corpus);
	ng_rows_close(&d->rows);
	d->open = false;
}

uint64_t ng_devset_bytes(const struct ng_devset *d, const struct ng_model *m)
{
	const struct ng_model_config *c = &m->cfg;
	size_t T = c->max_length > NG_GRAIN_TOKENS ? c->max_length : NG_GRAIN_TOKENS;

	return ((uint64_t)(d->corpus.queries + d->corpus.docs) * c->dim + ng_acts_elements(c, T / 2, T, false) +
		       ng_scratch_elements(c, T / 2, T)) *
		       sizeof(float) +
	       2 * TEXT_BYTES;
}

static int vectors(float *out, const struct ng_devset *d, struct ng_encoder *enc, const struct ng_place *place,
	size_t n, const char *prompt, struct ng_err *err)
{
	for (size_t i = 0; i < n;) {
		struct ng_texts texts;

		if (ng_texts_get(&texts, &d->rows, place + i, n - i < TEXTS ? n - i : TEXTS, TEXT_BYTES, err))
			return -1;
		int rc = ng_encode(enc, out + i * enc->dim, texts.text, texts.n, prompt, NULL, err);
		i += texts.n;
		ng_texts_release(&texts);
		if (rc)
			return -1;
	}
	return 0;
}

static void take(const char *key, double value, void *arg)
{
	struct ng_devset_result *r = arg;

	if (strcmp(key, "cosine_mrr@10") == 0)
		r->mrr10 = value;
	else if (strcmp(key, "cosine_ndcg@10") == 0)
		r->ndcg10 = value;
	else if (strcmp(key, "cosine_accuracy@1") == 0)
		r->accuracy1 = value;
}

int ng_devset_run(struct ng_devset_result *out, const struct ng_devset *d, const struct ng_model *m,
	struct ng_tokenizer *tokenizer, int threads, struct ng_err *err)
{
	/* a view of the model in training: nothing of it is released here */
	struct ng_encoder enc = { .model = *m,
		.tokenizer = tokenizer,
		.dev = m->dev,
		.max_length = m->cfg.max_length,
		.dim = m->cfg.dim,
		.threads = threads };
	const struct ng_corpus *c = &d->corpus;
	struct ng_ir_at at;
	struct ng_ir ir;
	size_t dim = enc.dim;
	float *query = ng_xarray(c->queries, dim * sizeof(*query)), *doc = ng_xarray(c->docs, dim * sizeof(*doc));
	uint32_t *tie = ng_xarray(c->docs, sizeof(*tie));
	int rc = -1;

	memset(out, 0, sizeof(*out));
	out->queries = c->queries;
	out->documents = c->docs;
	ng_ir_at_default(&at);
	ng_ir_init(&ir, &at);
	size_t k = (size_t)ng_ir_at_max(&at) < c->docs ? (size_t)ng_ir_at_max(&at) : c->docs;
	bool *hit = ng_xarray(k, sizeof(*hit));
	ng_decimal_ranks(tie, (uint32_t)c->docs);
	if (vectors(query, d, &enc, c->query, c->queries, ng_model_query_prompt(&m->cfg), err) ||
		vectors(doc, d, &enc, c->doc, c->docs, ng_model_document_prompt(&m->cfg), err))
		goto out;
	for (size_t q = 0; q < c->queries; q += NG_TOPK_QUERIES) {
		size_t Q = c->queries - q < NG_TOPK_QUERIES ? c->queries - q : NG_TOPK_QUERIES;
		struct ng_topk *top = ng_topk_new(query + q * dim, Q, dim, k, true, tie, threads);

		if (ng_topk_add(top, doc, c->docs, 0, err)) {
			ng_topk_free(top);
			goto out;
		}
		for (size_t i = 0; i < Q; i++) {
			const struct ng_hit *found;
			size_t n = ng_topk_get(top, &found, i);

			for (size_t j = 0; j < n; j++)
				hit[j] = ng_corpus_relevant(c, q + i, found[j].doc);
			ng_ir_add(&ir, hit, n, c->start[q + i + 1] - c->start[q + i]);
		}
		ng_topk_free(top);
	}
	ng_ir_report(&ir, "cosine", take, out);
	rc = 0;
out:
	free(query);
	free(doc);
	free(tie);
	free(hit);
	return rc;
}
