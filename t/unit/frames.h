/*
 * frames.h - globals and updates made from a seed, good ones and each kind of
 * bad one, for the tests of what reads streams.
 */
#ifndef NG_TEST_FRAMES_H
#define NG_TEST_FRAMES_H

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/fed/experiment.h"
#include "common/tensor/stream.h"

#define FRAMES_ID "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

struct frames_spec {
	const char *path, *kind, *name, *id, *site, *base, *bad, *shape, *experiment;
	long round, examples, steps;
	uint32_t seed;
	double scale;
	bool brackets;
};

/* Bad kinds: nan inf huge missing extra shape dtype; "" = none. */
static inline void frames_header(struct ng_header *h, const struct frames_spec *s, struct ng_err *err)
{
	static const struct {
		const char *name;
		uint64_t rows, columns; /* columns 0: a vector */
	} layer[] = { { "attention.self.query.weight", 384, 384 }, { "attention.self.query.bias", 384, 0 },
		{ "attention.self.key.weight", 384, 384 }, { "attention.self.key.bias", 384, 0 },
		{ "attention.self.value.weight", 384, 384 }, { "attention.self.value.bias", 384, 0 },
		{ "attention.output.dense.weight", 384, 384 }, { "attention.output.dense.bias", 384, 0 },
		{ "attention.output.LayerNorm.weight", 384, 0 }, { "attention.output.LayerNorm.bias", 384, 0 },
		{ "intermediate.dense.weight", 1536, 384 }, { "intermediate.dense.bias", 1536, 0 },
		{ "output.dense.weight", 384, 1536 }, { "output.dense.bias", 384, 0 },
		{ "output.LayerNorm.weight", 384, 0 }, { "output.LayerNorm.bias", 384, 0 } };
	char name[128];

	ng_header_init(h);
	if (strcmp(s->shape, "small") == 0) {
		uint64_t word[2] = { 97, 32 }, vector[1] = { 33 }, none[2] = { 0, 5 }, one[1] = { 1 };
		enum ng_dtype type = strcmp(s->bad, "dtype") == 0 ? NG_F16 : NG_F32;
		if (strcmp(s->bad, "shape") == 0) {
			word[0] = 32;
			word[1] = 97;
		}
		ng_header_add(h, "embeddings.word.weight", type, 2, word, err);
		if (strcmp(s->bad, "missing") != 0)
			ng_header_add(h, "norm.bias", NG_F32, 1, vector, err);
		ng_header_add(h, "norm.weight", NG_F32, 1, vector, err);
		ng_header_add(h, "empty", NG_F32, 2, none, err);
		ng_header_add(h, "scalar", NG_F32, 0, one, err);
		if (strcmp(s->bad, "extra") == 0)
			ng_header_add(h, "zz.weight", NG_F32, 1, vector, err);
	} else {
		/* "minilm", or "large": ten times as much */
		uint64_t wide = strcmp(s->shape, "large") == 0 ? 10 : 1;
		uint64_t word[2] = { 30522 * wide, 384 }, position[2] = { 512, 384 }, type[2] = { 2, 384 },
			 norm[1] = { 384 };
		ng_header_add(h, "embeddings.word_embeddings.weight", NG_F32, 2, word, err);
		ng_header_add(h, "embeddings.position_embeddings.weight", NG_F32, 2, position, err);
		ng_header_add(h, "embeddings.token_type_embeddings.weight", NG_F32, 2, type, err);
		ng_header_add(h, "embeddings.LayerNorm.weight", NG_F32, 1, norm, err);
		ng_header_add(h, "embeddings.LayerNorm.bias", NG_F32, 1, norm, err);
		for (uint64_t l = 0; l < 6 * wide; l++)
			for (size_t i = 0; i < NG_COUNT(layer); i++) {
				uint64_t dim[2] = { layer[i].rows, layer[i].columns };
				snprintf(name, sizeof name, "encoder.layer.%d.%s", (int)l, layer[i].name);
				ng_header_add(h, name, NG_F32, dim[1] ? 2 : 1, dim, err);
			}
	}
	ng_header_finish(h, err);
}

/* Element i of the frame: a value in (-scale, scale), bell-shaped, from the seed alone. */
static inline float frames_value(const struct frames_spec *s, uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15u + ((uint64_t)s->seed << 32 | 0x5bd1e995u);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	double a = (double)(x & 0xffffff) / 16777216 - 0.5, b = (double)(x >> 24 & 0xffffff) / 16777216 - 0.5;
	return (float)((a + b) * s->scale);
}

static inline int frames_write(
	const struct frames_spec *s, char digest[NG_HASH_HEX], char object[NG_HASH_HEX], struct ng_err *err)
{
	struct ng_header h;
	struct ng_frame f;
	struct ng_config config = { 0 };
	struct ng_config_file file = { (char *)(uintptr_t) "config.json", FRAMES_ID };
	struct ng_writer *w = NULL;
	char *config_text = NULL, *text = ng_xstrdup(s->experiment);
	float *block = ng_xarray(NG_STREAM_BLOCK, sizeof *block);
	int fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC, 0666), result = -1;

	frames_header(&h, s, err);
	ng_frame_init(&f);
	ng_kind_parse(&f.kind, s->kind);
	snprintf(f.name, sizeof f.name, "%s", s->name);
	snprintf(f.id, sizeof f.id, "%s", s->id);
	snprintf(f.base, sizeof f.base, "%s", s->base);
	snprintf(f.site, sizeof f.site, "%s", f.kind == NG_KIND_GLOBAL ? "" : s->site);
	f.round = s->round;
	if (f.kind == NG_KIND_GLOBAL) {
		config.experiment = text;
		snprintf(config.base, sizeof config.base, "%s", FRAMES_ID);
		config.file = &file;
		config.n_files = 1;
		config_text = ng_config_json(&config);
		f.config = config_text;
	} else {
		f.examples = s->examples;
		f.steps = s->steps;
	}
	if (fd < 0 || ng_frame_fill(&h.meta, &f, err) < 0 ||
		ng_writer_open_fd(&w, fd, s->path,
			NG_WRITER_DIGEST | NG_WRITER_OBJECT | (s->brackets ? NG_WRITER_BRACKETS : 0), NULL, err) < 0 ||
		ng_writer_begin(w, &h, err) < 0)
		goto out;
	uint64_t at = 0;
	for (size_t t = 0; t < h.n; t++) {
		const struct ng_tensor *tensor = &h.tensor[t];
		size_t size = ng_dtype_bits(tensor->dtype) / 8;
		for (uint64_t i = 0; i < tensor->count;) {
			size_t n = tensor->count - i < NG_STREAM_BLOCK ? (size_t)(tensor->count - i) : NG_STREAM_BLOCK;
			for (size_t j = 0; j < n; j++)
				block[j] = frames_value(s, at++);
			if (t + 1 == h.n && i + n == tensor->count) { /* the last value of the last tensor */
				if (strcmp(s->bad, "nan") == 0)
					block[n - 1] = NAN;
				if (strcmp(s->bad, "inf") == 0)
					block[n - 1] = -INFINITY;
				if (strcmp(s->bad, "huge") == 0)
					block[n - 1] = 1e30f;
			}
			if (size == 2)
				memset(block, 0, n * 2);
			if (ng_writer_data(w, block, n * size, err) < 0)
				goto out;
			i += n;
		}
	}
	if (ng_writer_end(w, err) < 0)
		goto out;
	snprintf(digest, NG_HASH_HEX, "%s", ng_writer_digest(w));
	snprintf(object, NG_HASH_HEX, "%s", ng_writer_object_digest(w));
	result = ng_writer_close(w, NG_OK, NULL, err);
	w = NULL;
out:
	if (w)
		ng_writer_abort(w);
	if (fd >= 0)
		close(fd);
	ng_header_release(&h);
	free(config_text);
	free(text);
	free(block);
	return result;
}

#define FRAMES_EXPERIMENT "{\"experiment\": \"leaflets\", \"rounds\": 9}"
#define FRAMES_GLOBAL                                                                                     \
	{                                                                                                 \
		.kind = "global", .name = "leaflets", .id = FRAMES_ID, .site = "", .base = "", .bad = "", \
		.shape = "small", .experiment = FRAMES_EXPERIMENT, .seed = 1, .scale = 0.1                \
	}
#define FRAMES_UPDATE                                                                                                  \
	{                                                                                                              \
		.kind = "update", .name = "leaflets", .id = FRAMES_ID, .site = "site-a", .base = FRAMES_ID, .bad = "", \
		.shape = "small", .experiment = "", .examples = 100, .steps = 10, .seed = 2, .scale = 0.001            \
	}

#endif
