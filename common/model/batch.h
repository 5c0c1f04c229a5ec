/*
 * batch.h - rows of data as the tokens of a batch.
 */
#ifndef NG_MODEL_BATCH_H
#define NG_MODEL_BATCH_H

#include "common/base/err.h"
#include "common/model/trainer.h"
#include "common/text/rows.h"
#include "common/text/tokenizer.h"

/* Makes batches; its memory is used again for each. */
struct ng_batcher {
	const struct ng_rows *rows;
	const struct ng_tokenizer *tokenizer;
	const char *prompt[3]; /* of anchor, positive, every negative; "" = none */
	size_t max_length;
	bool leave_out_prompt; /* pooling without the prompt's tokens */
	/* out */
	struct ng_batch batch;
	uint64_t texts, truncated;
	/* private */
	struct ng_row row;
	struct ng_tokens *column; /* of each column, before they are put end to end */
	size_t *len;		  /* (columns, B) */
	size_t cap, ids_cap, prompt_tokens[3];
};

/* Fills in prompt_tokens. */
int ng_batcher_init(struct ng_batcher *b, struct ng_err *err);
void ng_batcher_release(struct ng_batcher *b);
/* The rows of data with these numbers -> b->batch, good until the next call. */
int ng_batcher_make(struct ng_batcher *b, const uint32_t *row, size_t B, struct ng_err *err);

#endif
