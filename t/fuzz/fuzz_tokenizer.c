/*
 * A tokenizer.json (or, after a '!', a vocab.txt) and, behind a byte 0xff, a
 * text: both are foreign.  Whatever comes, parse or refuse, encode or refuse;
 * ids are in the vocabulary, and a cut text gives the first ids of the whole.
 */
#include "common/base/compat.h"

#include "common/text/tokenizer_private.h"
#include "t/fuzz/fuzz.h"

static void encode(const struct ng_tokenizer *tok, const char *text, size_t len)
{
	struct ng_tokens all = { 0 }, cut = { 0 };
	const struct ng_tokenizer_info *info = ng_tokenizer_info(tok);
	size_t total, max = info->specials + 3;
	bool truncated, again;
	struct ng_err err;

	if (ng_tokenizer_encode(&all, tok, NULL, text, len, 0, &truncated, &total, &err) == 0) {
		if (truncated || total != all.n)
			abort();
		for (size_t i = 0; i < all.n; i++)
			if (all.id[i] < 0 || (size_t)all.id[i] >= info->vocab)
				abort();
		if (ng_tokenizer_encode(&cut, tok, "", text, len, max, &again, NULL, &err) < 0)
			abort();
		if (again != (all.n > max) || cut.n != (again ? max : all.n))
			abort();
		for (size_t i = 0; i + tok->after_n < cut.n; i++)
			if (cut.id[i] != all.id[i])
				abort();
	}
	ng_tokens_release(&all);
	ng_tokens_release(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = "Hello [SEP] \xc3\x89\xcc\xa7\xcc\x81 \xe4\xb8\xad";
	const uint8_t *end = size > 0 ? memchr(data, 0xff, size) : NULL;
	size_t len = strlen(text), head = end != NULL ? (size_t)(end - data) : size;
	struct ng_tokenizer *tok;
	struct ng_err err;
	int rc;

	if (end != NULL) {
		text = (const char *)end + 1;
		len = size - head - 1;
	}
	if (head > 0 && data[0] == '!')
		rc = ng_tokenizer_from_vocab(&tok, (const char *)data + 1, head - 1, "fuzz", NULL, false, 0, &err);
	else
		rc = ng_tokenizer_parse(&tok, (const char *)data, head, "fuzz", 0, &err);
	if (rc == 0)
		encode(tok, text, len);
	else if (tok != NULL)
		abort();
	ng_tokenizer_free(tok);
	return 0;
}
