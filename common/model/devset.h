/*
 * devset.h - retrieval on held-out pairs while a model trains: the task and
 * the metrics of ng-eval, with the folder's own prompts and lengths.
 */
#ifndef NG_MODEL_DEVSET_H
#define NG_MODEL_DEVSET_H

#include "common/base/err.h"
#include "common/model/model.h"
#include "common/rank/corpus.h"
#include "common/text/rows.h"
#include "common/text/tokenizer.h"

struct ng_devset {
	struct ng_rows rows;
	struct ng_corpus corpus;
	bool open;
};
struct ng_devset_result {
	size_t queries, documents;
	double mrr10, ndcg10, accuracy1; /* cosine */
};

int ng_devset_open(struct ng_devset *d, const char *path, const char *fields, bool skip_bad, struct ng_err *err);
void ng_devset_close(struct ng_devset *d); /* harmless on a zeroed struct */
/* Bytes that a run takes: the vectors, one grain, a block of texts. */
uint64_t ng_devset_bytes(const struct ng_devset *d, const struct ng_model *m);
int ng_devset_run(struct ng_devset_result *out, const struct ng_devset *d, const struct ng_model *m,
	struct ng_tokenizer *tokenizer, int threads, struct ng_err *err);

#endif
