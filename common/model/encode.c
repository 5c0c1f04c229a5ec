/* encode.c - see encode.h. */
#include "common/base/compat.h"

#include "common/model/encode.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/model/encoder.h"

int ng_encoder_open(struct ng_encoder *out, const char *dir, const char *device, long threads, struct ng_err *err)
{
	struct ng_model_config cfg;
	const char *why = NULL;
	char *path = NULL;
	int status;

	memset(out, 0, sizeof(*out));
	if (ng_model_config_load(&cfg, dir, err))
		return -1;
	out->max_length = cfg.max_length;
	out->dim = cfg.dim;
	out->threads = threads > 0 ? (int)threads : ng_cpu_count();
	path = ng_xasprintf("%s/%s", dir, cfg.transformer);
	status = ng_device_open(&out->dev, device ? device : "auto", out->threads, NULL, &why);
	if (status) {
		ng_model_config_release(&cfg);
		ng_fail(err, status == NG_DEV_MEMORY ? NG_OSERR : NG_UNAVAILABLE, "cannot open device '%s': %s",
			device ? device : "auto", why ? why : "unknown reason");
		goto failed;
	}
	if (ng_model_open(&out->model, &cfg, out->dev, dir, err) || ng_model_read_folder(&out->model, err))
		goto failed;
	if (ng_tokenizer_load(&out->tokenizer, path, 0, err))
		goto failed;
	if (ng_tokenizer_info(out->tokenizer)->vocab > out->model.cfg.vocab) {
		ng_fail(err, NG_DATA, "the tokenizer of '%s' has %zu ids, the model's word table %zu rows", dir,
			ng_tokenizer_info(out->tokenizer)->vocab, out->model.cfg.vocab);
		goto failed;
	}
	free(path);
	return 0;
failed:
	free(path);
	ng_encoder_close(out);
	return -1;
}

void ng_encoder_close(struct ng_encoder *enc)
{
	ng_tokenizer_free(enc->tokenizer);
	if (enc->model.dev)
		ng_model_release(&enc->model);
	if (enc->dev)
		enc->dev->close(enc->dev);
	memset(enc, 0, sizeof(*enc));
}

/* One text among those of a call: where its ids are. */
struct item {
	size_t text, off, len;
};

static int longer_first(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;

	if (a->len != b->len)
		return a->len < b->len ? 1 : -1;
	return a->text < b->text ? -1 : 1;
}

/* Texts from..*to of the sorted items make the next grain. */
static size_t next_grain(const struct item *item, size_t n, size_t from, size_t *tokens)
{
	size_t to = from, sum = 0;

	do
		sum += item[to++].len;
	while (to < n && sum + item[to].len <= NG_GRAIN_TOKENS);
	*tokens = sum;
	return to;
}

/* Tokens of the prompt that pooling leaves out: what the prompt alone has, less its closing token. */
static int prompt_length(size_t *out, struct ng_encoder *enc, const char *prompt, struct ng_err *err)
{
	const struct ng_tokenizer_info *info = ng_tokenizer_info(enc->tokenizer);
	struct ng_tokens t = { 0 };
	int rc = ng_tokenizer_encode(
		&t, enc->tokenizer, NULL, prompt, strlen(prompt), enc->max_length, NULL, NULL, err);

	*out = t.n;
	if (rc == 0 && t.n > 0 && t.id[t.n - 1] == info->sep)
		*out = t.n - 1;
	ng_tokens_release(&t);
	return rc;
}

static int tokenize(struct ng_tokens *ids, struct item *item, struct ng_encoder *enc, const struct ng_text *text,
	size_t n, const char *prompt, struct ng_encode_count *count, struct ng_err *err)
{
	for (size_t i = 0; i < n; i++) {
		size_t off = ids->n, total = 0;
		bool truncated = false;

		if (ng_tokenizer_encode(ids, enc->tokenizer, prompt, text[i].s, text[i].len, enc->max_length,
			    &truncated, count ? &total : NULL, err))
			return ng_fail_prefix(err, "text %zu", i + 1);
		item[i] = (struct item){ i, off, ids->n - off };
		if (count) {
			count->texts++;
			count->tokens += item[i].len;
			count->truncated += truncated;
			count->longest = total > count->longest ? total : count->longest;
		}
	}
	return 0;
}

int ng_encode(struct ng_encoder *enc, float *out, const struct ng_text *text, size_t n, const char *prompt,
	struct ng_encode_count *count, struct ng_err *err)
{
	struct ng_device *dev = enc->dev;
	const struct ng_model_config *cfg = &enc->model.cfg;
	struct ng_ref memory = ng_absent, scratch = ng_absent, vectors = ng_absent;
	struct ng_tokens ids = { 0 };
	struct ng_grain g = { 0 };
	struct ng_acts acts = { 0 };
	struct item *item = NULL;
	float *host = NULL;
	size_t first = 0, most_s = 0, most_t = 0, tokens;
	int rc = -1, status = 0;

	if (n == 0)
		return 0;
	if (prompt && !*prompt)
		prompt = NULL;
	if (prompt && !cfg->include_prompt && prompt_length(&first, enc, prompt, err))
		return -1;
	item = ng_xarray(n, sizeof(*item));
	if (tokenize(&ids, item, enc, text, n, prompt, count, err))
		goto out;
	qsort(item, n, sizeof(*item), longer_first);
	for (size_t from = 0; from < n;) {
		size_t to = next_grain(item, n, from, &tokens);

		most_s = to - from > most_s ? to - from : most_s;
		most_t = tokens > most_t ? tokens : most_t;
		from = to;
	}
	struct ng_arena arena = { .cap = ng_acts_elements(cfg, most_s, most_t, false) };
	if ((status = dev->alloc(dev, &memory, arena.cap)) ||
		(status = dev->alloc(dev, &scratch, ng_scratch_elements(cfg, most_s, most_t))) ||
		(status = dev->alloc(dev, &vectors, most_s * enc->dim))) {
		ng_model_device_error(&enc->model, status, "cannot hold the activations", err);
		goto out;
	}
	arena.base = memory;
	ng_acts_init(&acts, &enc->model);
	g.ids = ng_xarray(most_t, sizeof(*g.ids));
	g.cu = ng_xarray(most_s + 1, sizeof(*g.cu));
	g.first = first ? ng_xarray(most_s, sizeof(*g.first)) : NULL;
	host = ng_xarray(most_s * enc->dim, sizeof(*host));
	for (size_t from = 0; from < n;) {
		size_t to = next_grain(item, n, from, &tokens), at = 0;

		g.S = to - from;
		g.T = tokens;
		for (size_t i = 0; i < g.S; i++) {
			const struct item *it = &item[from + i];

			g.cu[i] = (int32_t)at;
			if (g.first)
				g.first[i] = (int32_t)(first < it->len ? first : it->len);
			memcpy(g.ids + at, ids.id + it->off, it->len * sizeof(*g.ids));
			at += it->len;
		}
		g.cu[g.S] = (int32_t)at;
		arena.used = 0;
		if (ng_forward(&enc->model, &g, NULL, false, &acts, &arena, scratch, vectors, NULL, err))
			goto out;
		status = dev->download(dev, host, vectors, g.S * enc->dim);
		if (status) {
			ng_model_device_error(&enc->model, status, "cannot read the vectors", err);
			goto out;
		}
		for (size_t i = 0; i < g.S; i++)
			memcpy(out + item[from + i].text * enc->dim, host + i * enc->dim, enc->dim * sizeof(*out));
		from = to;
	}
	rc = 0;
out:
	if (memory.mem)
		dev->free(dev, memory);
	if (scratch.mem)
		dev->free(dev, scratch);
	if (vectors.mem)
		dev->free(dev, vectors);
	ng_acts_release(&acts);
	ng_tokens_release(&ids);
	free(g.ids);
	free(g.cu);
	free(g.first);
	free(item);
	free(host);
	return rc;
}
