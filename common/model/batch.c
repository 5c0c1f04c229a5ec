/* batch.c - see batch.h. */
#include "common/base/compat.h"

#include "common/model/batch.h"

#include "common/base/mem.h"

/* What the prompt alone has, less its closing token (conventions 1.2.5). */
static int prompt_length(size_t *out, const struct ng_batcher *b, const char *prompt, struct ng_err *err)
{
	struct ng_tokens t = { 0 };
	int rc = ng_tokenizer_encode(&t, b->tokenizer, NULL, prompt, strlen(prompt), b->max_length, NULL, NULL, err);

	*out = t.n;
	if (rc == 0 && t.n && t.id[t.n - 1] == ng_tokenizer_info(b->tokenizer)->sep)
		*out = t.n - 1;
	ng_tokens_release(&t);
	return rc;
}

int ng_batcher_init(struct ng_batcher *b, struct ng_err *err)
{
	for (int i = 0; i < 3; i++) {
		b->prompt_tokens[i] = 0;
		if (b->leave_out_prompt && *b->prompt[i] && prompt_length(&b->prompt_tokens[i], b, b->prompt[i], err))
			return -1;
	}
	b->column = ng_xcalloc(b->rows->columns, sizeof(*b->column));
	return 0;
}

void ng_batcher_release(struct ng_batcher *b)
{
	if (b->column)
		for (size_t c = 0; c < b->rows->columns; c++)
			ng_tokens_release(&b->column[c]);
	free(b->column);
	free(b->len);
	free(b->batch.id);
	free(b->batch.off);
	free(b->batch.first);
	ng_row_release(&b->row);
	memset(b, 0, sizeof(*b));
}

/* Rows are read once each; a batch lies column by column. */
int ng_batcher_make(struct ng_batcher *b, const uint32_t *row, size_t B, struct ng_err *err)
{
	size_t columns = b->rows->columns, N = B * columns, total = 0;
	char where[512];

	if (N > b->cap) {
		free(b->batch.off);
		free(b->batch.first);
		free(b->len);
		b->batch.off = ng_xarray(N + 1, sizeof(*b->batch.off));
		b->batch.first = b->leave_out_prompt ? ng_xarray(N, sizeof(*b->batch.first)) : NULL;
		b->len = ng_xarray(N, sizeof(*b->len));
		b->cap = N;
	}
	for (size_t c = 0; c < columns; c++)
		b->column[c].n = 0;
	for (size_t r = 0; r < B; r++) {
		if (ng_rows_get(b->rows, row[r], &b->row, err))
			return -1;
		for (size_t c = 0; c < columns; c++) {
			const char *prompt = b->prompt[c < 2 ? c : 2];
			size_t before = b->column[c].n;
			bool truncated = false;

			if (ng_tokenizer_encode(&b->column[c], b->tokenizer, *prompt ? prompt : NULL, b->row.text[c].s,
				    b->row.text[c].len, b->max_length, &truncated, NULL, err)) {
				ng_rows_where(b->rows, row[r], where, sizeof(where));
				return ng_fail_prefix(err, "%s", where);
			}
			b->len[c * B + r] = b->column[c].n - before;
			b->texts++;
			b->truncated += truncated;
		}
	}
	for (size_t c = 0; c < columns; c++)
		total += b->column[c].n;
	if (total > b->ids_cap) {
		free(b->batch.id);
		b->batch.id = ng_xarray(total, sizeof(*b->batch.id));
		b->ids_cap = total;
	}
	b->batch.B = B;
	b->batch.columns = columns;
	b->batch.off[0] = 0;
	for (size_t c = 0, t = 0; c < columns; c++) {
		memcpy(b->batch.id + b->batch.off[t], b->column[c].id, b->column[c].n * sizeof(*b->batch.id));
		for (size_t r = 0; r < B; r++, t++) {
			b->batch.off[t + 1] = b->batch.off[t] + b->len[t];
			if (b->batch.first) {
				size_t skip = b->prompt_tokens[c < 2 ? c : 2];

				b->batch.first[t] = (int32_t)(skip < b->len[t] ? skip : b->len[t]);
			}
		}
	}
	return 0;
}
