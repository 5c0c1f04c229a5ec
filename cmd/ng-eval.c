/*
 * ng-eval - how good is a model at finding the right text, and at judging how
 * alike two texts are: the metrics of sentence-transformers' evaluators.
 */
#include "common/base/compat.h"

#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/progress.h"
#include "common/base/str.h"
#include "common/fed/experiment.h"
#include "common/model/encode.h"
#include "common/rank/corpus.h"
#include "common/rank/metrics.h"
#include "common/rank/topk.h"
#include "common/rank/vectors.h"
#include "common/tensor/stream.h"

#define TEXTS 4096	       /* encoded at a time */
#define TEXT_BYTES (16u << 20) /* or so many bytes of them */
#define DOCS 8192	       /* vectors read at a time */

static const char usage[] = "[-jqv] -m dir -d file [--sts file] [global]\n"
			    "[-jqv] -d file --query-vectors file --corpus-vectors file";

static struct {
	const char *model, *sts, *at, *similarity, *device, *fields, *vectors, *query_vectors, *corpus_vectors;
	struct ng_opt_list data;
	bool json, skip_bad;
	long threads;
	uint64_t memory;
} opt = { .device = "auto" };

static const struct ng_opt options[] = {
	{ "at", 0, NG_OPT_STRING, &opt.at, 0, 0, "k,...",
		"compute every metric at these k (default as sentence-transformers)" },
	{ "corpus-vectors", 0, NG_OPT_STRING, &opt.corpus_vectors, 0, 0, "file",
		"vectors of the documents, .npy, instead of a model" },
	NG_OPT_DATA(&opt.data),
	{ "device", 0, NG_OPT_STRING, &opt.device, 0, 0, "name", "device: auto or cpu (default auto)" },
	{ "fields", 0, NG_OPT_STRING, &opt.fields, 0, 0, "map",
		"names of the data's fields, anchor=NAME,positive=NAME,negative=NAME" },
	NG_OPT_JSON(&opt.json),
	{ "memory", 0, NG_OPT_SIZE, &opt.memory, 0, 0, "size",
		"memory for vectors, beyond it a temporary file (default a quarter of what is free)" },
	NG_OPT_MODEL(&opt.model),
	{ "query-vectors", 0, NG_OPT_STRING, &opt.query_vectors, 0, 0, "file",
		"vectors of the queries, .npy, instead of a model" },
	NG_OPT_QUIET,
	{ "similarity", 0, NG_OPT_STRING, &opt.similarity, 0, 0, "name",
		"cosine or dot (default the folder's, else cosine)" },
	{ "skip-bad", 0, NG_OPT_FLAG, &opt.skip_bad, 0, 0, NULL, "skip malformed rows and count them" },
	{ "sts", 0, NG_OPT_STRING, &opt.sts, 0, 0, "file", "judge likeness: TSV of score, sentence1, sentence2" },
	NG_OPT_THREADS(&opt.threads),
	{ "vectors", 0, NG_OPT_STRING, &opt.vectors, 0, 0, "prefix",
		"also write the vectors, as PREFIX-queries.npy and so on" },
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

static struct ng_encoder encoder;
static struct ng_encode_count count;
static struct ng_stream *stream; /* the global, for ng_stream_die */
static struct ng_ir_at at;
static bool cosine;
static json_t *report; /* --json */

static void emit(const char *key, double value, void *arg)
{
	char number[32];

	(void)arg;
	if (opt.json) {
		json_object_set_new(report, key, isfinite(value) ? json_real(value) : json_null());
		return;
	}
	ng_json_number(number, value);
	printf("%s\t%s\n", key, number);
}

static void emit_count(const char *key, uint64_t value)
{
	if (opt.json)
		json_object_set_new(report, key, json_integer((json_int_t)value));
	else
		printf("%s\t%llu\n", key, (unsigned long long)value);
}

static void parse_at(const char *text)
{
	struct ng_at list = { { 0 }, 0 };
	char *copy = ng_xstrdup(text), *rest = copy;

	while (rest) {
		char *comma = strchr(rest, ',');
		long long k;
		if (comma)
			*comma++ = '\0';
		if (list.n == NG_AT_MAX || !ng_parse_long(&k, rest, 1, 100000))
			ng_opt_misuse(
				"--at: at most %d whole numbers from 1 to 100000, with commas between", NG_AT_MAX);
		for (size_t i = 0; i < list.n; i++)
			if (list.k[i] == k)
				ng_opt_misuse("--at: %lld is there twice", k);
		list.k[list.n++] = (long)k;
		rest = comma;
	}
	free(copy);
	at = (struct ng_ir_at){ list, list, list, list, list };
}

/* ---- model ---- */

/* The tensors of a global in place of the folder's own. */
static void load_global(const char *path)
{
	struct ng_config config;
	struct ng_experiment exp;
	struct ng_err err;
	int got;

	if (ng_stream_open(&stream, path, 0, &err) < 0 || (got = ng_stream_next(stream, &err)) < 0)
		ng_stream_die(stream, &err);
	if (got == 0)
		ng_die(NG_DATA, "'%s' holds no global model", path);
	const struct ng_frame *f = ng_stream_frame(stream);
	if (f->kind != NG_KIND_GLOBAL)
		ng_die(NG_DATA, "'%s' is a %s, not a global model", path, ng_kind_name(f->kind));
	if (ng_config_parse(&config, f->config, strlen(f->config), &err) < 0 ||
		ng_experiment_parse(&exp, config.experiment, strlen(config.experiment), "ng.config", NULL, 0, &err) < 0)
		ng_die(NG_DATA, "'%s': %s", path, err.text);
	bool partial = exp.train.trainable != NG_TRAINABLE_FULL;
	if (ng_config_check_folder(&config, opt.model, partial, &err) < 0)
		ng_die_err(&err);
	ng_info("global/%05ld of '%s'", f->round, f->name);
	if (ng_model_load_stream(&encoder.model, stream, -1, &err) < 0 || (got = ng_stream_next(stream, &err)) < 0)
		ng_stream_die(stream, &err);
	if (got > 0)
		ng_die(NG_DATA, "'%s' holds more than a global model", path);
	ng_stream_close(stream);
	stream = NULL;
	ng_config_release(&config);
	ng_experiment_release(&exp);
}

static void open_model(const char *global)
{
	struct ng_err err;

	if (opt.model) {
		if (ng_encoder_open(&encoder, opt.model, opt.device, opt.threads, &err) < 0)
			ng_die_err(&err);
		ng_verbose("%s", encoder.dev->info.name);
		if (global)
			load_global(global);
	}
	const char *similarity = opt.similarity ? opt.similarity : opt.model ? encoder.model.cfg.similarity : "cosine";
	cosine = strcmp(similarity, "cosine") == 0;
	if (!cosine && strcmp(similarity, "dot") != 0)
		ng_die(NG_REFUSED, "'%s' asks for similarity '%s'; give --similarity cosine or dot", opt.model,
			similarity);
}

/* ---- vectors ---- */

/* Vectors of all places, by the model or out of a file; also to PREFIX-name.npy. */
static void get_vectors(struct ng_vectors *v, const struct ng_rows *rows, const struct ng_place *place, size_t n,
	const char *prompt, const char *file, const char *name)
{
	struct ng_err err;
	struct ng_texts texts;

	if (file) {
		if (ng_vectors_open_npy(v, file, &err) < 0)
			ng_die_err(&err);
		if (v->n != n)
			ng_die(NG_DATA, "'%s' holds %zu vectors, and there are %zu %s", file, v->n, n, name);
		return;
	}
	if (ng_vectors_new(v, n, encoder.dim, opt.memory / 2, &err) < 0)
		ng_die_err(&err);
	float *block = ng_xarray(TEXTS, encoder.dim * sizeof *block);
	for (size_t i = 0, done; i < n; i += done) {
		size_t part = n - i < TEXTS ? n - i : TEXTS;
		ng_progress("%s: %zu of %zu", name, i, n);
		if (ng_texts_get(&texts, rows, place + i, part, TEXT_BYTES, &err) < 0 ||
			ng_encode(&encoder, block, texts.text, texts.n, prompt, &count, &err) < 0 ||
			ng_vectors_put(v, i, block, texts.n, &err) < 0)
			ng_die_err(&err);
		done = texts.n;
		ng_texts_release(&texts);
	}
	ng_progress_end();
	free(block);
	if (!opt.vectors)
		return;
	char *path = ng_xasprintf("%s-%s.npy", opt.vectors, name);
	if (ng_vectors_save_npy(v, path, &err) < 0)
		ng_die_err(&err);
	free(path);
}

/* ---- retrieval ---- */

static void rank_queries(struct ng_ir *ir, const struct ng_corpus *c, const struct ng_vectors *query,
	const struct ng_vectors *doc, const uint32_t *tie)
{
	size_t k = (size_t)ng_ir_at_max(&at) < c->docs ? (size_t)ng_ir_at_max(&at) : c->docs;
	size_t block = DOCS;
	float *docs, *queries = ng_xarray(NG_TOPK_QUERIES, query->dim * sizeof *queries);
	bool *hit = ng_xarray(k, sizeof *hit);
	int threads = (int)(opt.threads ? opt.threads : ng_cpu_count());
	struct ng_topk *top;
	struct ng_err err;

	while (block > 256 && block * doc->dim * sizeof *docs > opt.memory / 8)
		block /= 2;
	docs = ng_xarray(block, doc->dim * sizeof *docs);
	for (size_t q = 0; q < c->queries; q += NG_TOPK_QUERIES) {
		size_t Q = c->queries - q < NG_TOPK_QUERIES ? c->queries - q : NG_TOPK_QUERIES;
		if (ng_vectors_get(query, q, queries, Q, &err) < 0)
			ng_die_err(&err);
		top = ng_topk_new(queries, Q, query->dim, k, cosine, tie, threads);
		for (size_t d = 0; d < c->docs; d += block) {
			size_t D = c->docs - d < block ? c->docs - d : block;
			ng_progress("ranking: query %zu of %zu", q, c->queries);
			if (ng_vectors_get(doc, d, docs, D, &err) < 0 || ng_topk_add(top, docs, D, d, &err) < 0)
				ng_die_err(&err);
		}
		for (size_t i = 0; i < Q; i++) {
			const struct ng_hit *found;
			size_t n = ng_topk_get(top, &found, i);
			for (size_t j = 0; j < n; j++)
				hit[j] = ng_corpus_relevant(c, q + i, found[j].doc);
			ng_ir_add(ir, hit, n, c->start[q + i + 1] - c->start[q + i]);
		}
		ng_topk_free(top);
	}
	ng_progress_end();
	free(docs);
	free(queries);
	free(hit);
}

static void retrieval(void)
{
	const struct ng_rows_opts how = {
		.kind = NG_ROWS_PAIRS, .fields = opt.fields, .skip_bad = opt.skip_bad, .min_rows = 1
	};
	const struct ng_model_config *cfg = opt.model ? &encoder.model.cfg : NULL;
	struct ng_vectors query, doc;
	struct ng_corpus c;
	struct ng_rows rows;
	struct ng_err err;
	struct ng_ir ir;

	if (ng_rows_open(&rows, opt.data.item, opt.data.n, &how, &err) < 0 || ng_corpus_make(&c, &rows, &err) < 0)
		ng_die_err(&err);
	get_vectors(&query, &rows, c.query, c.queries, cfg ? ng_model_query_prompt(cfg) : NULL, opt.query_vectors,
		"queries");
	get_vectors(&doc, &rows, c.doc, c.docs, cfg ? ng_model_document_prompt(cfg) : NULL, opt.corpus_vectors,
		"documents");
	if (query.dim != doc.dim)
		ng_die(NG_DATA, "queries have %zu dimensions, documents %zu", query.dim, doc.dim);
	uint32_t *tie = ng_xarray(c.docs, sizeof *tie);
	ng_decimal_ranks(tie, (uint32_t)c.docs);
	ng_ir_init(&ir, &at);
	rank_queries(&ir, &c, &query, &doc, tie);
	emit_count("queries", c.queries);
	emit_count("documents", c.docs);
	ng_ir_report(&ir, cosine ? "cosine" : "dot", emit, NULL);
	free(tie);
	ng_vectors_release(&query);
	ng_vectors_release(&doc);
	ng_corpus_release(&c);
	ng_rows_close(&rows);
}

/* ---- likeness ---- */

/* The similarity of two vectors, rounded to float once, as the evaluator's are float. */
static double similarity_of(const float *x, const float *y, size_t n)
{
	double dot = 0;

	for (size_t i = 0; i < n; i++)
		dot += (double)x[i] * y[i];
	return (double)(float)dot;
}

static void likeness(void)
{
	const struct ng_rows_opts how = {
		.kind = NG_ROWS_STS, .skip_bad = opt.skip_bad, .keep_empty = true, .min_rows = 2
	};
	const struct ng_model_config *cfg = opt.model ? &encoder.model.cfg : NULL;
	const char *prompt = cfg && cfg->default_prompt ? ng_model_prompt(cfg, cfg->default_prompt) : NULL;
	const char *fn = cosine ? "cosine" : "dot";
	struct ng_vectors v[2];
	struct ng_rows rows;
	struct ng_row row = { 0 };
	struct ng_err err;
	char key[64];

	if (ng_rows_open(&rows, &opt.sts, 1, &how, &err) < 0)
		ng_die_err(&err);
	struct ng_place *place = ng_xarray(rows.n, sizeof *place);
	double *score = ng_xarray(rows.n, sizeof *score), *gold = ng_xarray(rows.n, sizeof *gold);
	for (uint32_t column = 0; column < 2; column++) {
		for (size_t i = 0; i < rows.n; i++)
			place[i] = (struct ng_place){ (uint32_t)i, column };
		get_vectors(&v[column], &rows, place, rows.n, prompt,
			opt.data.n ? NULL
			: column   ? opt.corpus_vectors
				   : opt.query_vectors,
			column ? "sentence2" : "sentence1");
	}
	size_t dim = v[0].dim;
	if (v[1].dim != dim)
		ng_die(NG_DATA, "first sentences have %zu dimensions, second ones %zu", dim, v[1].dim);
	float *x = ng_xarray(2 * dim, sizeof *x);
	for (size_t i = 0; i < rows.n; i++) {
		if (ng_rows_get(&rows, i, &row, &err) < 0 || ng_vectors_get(&v[0], i, x, 1, &err) < 0 ||
			ng_vectors_get(&v[1], i, x + dim, 1, &err) < 0)
			ng_die_err(&err);
		if (cosine)
			ng_unit_rows(x, 2, dim);
		gold[i] = row.score;
		score[i] = similarity_of(x, x + dim, dim);
		if (!isfinite(score[i]))
			ng_die(NG_DATA, "the likeness of pair %zu is not a finite number", i + 1);
	}
	emit_count("pairs", rows.n);
	snprintf(key, sizeof key, "pearson_%s", fn);
	emit(key, ng_pearson(gold, score, rows.n), NULL);
	snprintf(key, sizeof key, "spearman_%s", fn);
	emit(key, ng_spearman(gold, score, rows.n), NULL);
	free(x);
	free(score);
	free(gold);
	free(place);
	ng_row_release(&row);
	ng_vectors_release(&v[0]);
	ng_vectors_release(&v[1]);
	ng_rows_close(&rows);
}

static void check_combinations(int operands)
{
	bool vectors = opt.query_vectors || opt.corpus_vectors;

	if (!opt.data.n && !opt.sts)
		ng_opt_misuse("nothing to evaluate: give --data or --sts");
	if (vectors && !(opt.query_vectors && opt.corpus_vectors))
		ng_opt_misuse("--query-vectors and --corpus-vectors go together");
	if (vectors && (opt.model || opt.vectors || operands))
		ng_opt_misuse("with given vectors there is no model");
	if (vectors && opt.data.n && opt.sts)
		ng_opt_misuse("the vectors are those of --data or of --sts: give one of them");
	if (!vectors && !opt.model)
		ng_opt_misuse("no model: give --model");
	if (operands > 1)
		ng_opt_misuse("one global model at most");
	if (opt.similarity && strcmp(opt.similarity, "cosine") != 0 && strcmp(opt.similarity, "dot") != 0)
		ng_opt_misuse("--similarity: cosine or dot");
}

int main(int argc, char **argv)
{
	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv, usage, options);
	check_combinations(argc - first);
	ng_ir_at_default(&at);
	if (opt.at)
		parse_at(opt.at);
	if (!opt.memory)
		opt.memory = ng_memory_limit(NULL) / 4;

	open_model(first < argc ? argv[first] : NULL);
	report = json_object();
	if (opt.data.n)
		retrieval();
	if (opt.sts)
		likeness();
	if (opt.json) {
		char *text = ng_json_canonical(report);
		printf("%s\n", text);
		free(text);
	}
	if (count.truncated)
		ng_info("%llu of %llu texts were cut at %zu tokens; the longest has %llu",
			(unsigned long long)count.truncated, (unsigned long long)count.texts, encoder.max_length,
			(unsigned long long)count.longest);
	json_decref(report);
	if (opt.model)
		ng_encoder_close(&encoder);
	return ng_finish(NG_OK);
}
