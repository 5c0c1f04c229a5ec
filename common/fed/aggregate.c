#include "common/base/compat.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/str.h"
#include "common/fed/aggregate.h"
#include "common/fed/blocks.h"
#include "common/fed/elements.h"
#include "common/fed/mean.h"
#include "common/fed/pool.h"
#include "common/tensor/stream.h"

#define BLOCK_STEP 4096		   /* blocks are multiples of so many elements */
#define BLOCK_MAX (1u << 20)	   /* elements */
#define BLOCKS_BYTES (36u << 20)   /* for the blocks of all readers together */
#define STREAM_BYTES (1400u << 10) /* what an open stream costs: window, tables, buffers, header */
#define FIXED_BYTES (16u << 20)	   /* program, libraries, writer */
#define PARTS 16		   /* of a block, each summed by one thread */
#define SLICE 1024		   /* elements summed at a time: fits the first cache */
#define WEIGHT_MAX (1LL << 40)

/* One open update, or the global. */
struct reader {
	struct ng_elements e;
	struct ng_agg_verdict *verdict; /* NULL for the global */
	float *block;			/* (NG_BLOCK_SLOTS, block) */
	bool failed;
	struct ng_err err; /* why */
};

struct aggregation {
	struct ng_agg_result *out;
	const struct ng_agg_source *global, *update;
	const struct ng_agg_opts *opts;
	struct ng_experiment exp;
	struct ng_config config;
	struct ng_header header; /* the global's, a copy */
	struct ng_frame frame;	 /* strings borrowed from header */
	double *limit;		 /* (tensors) largest norm of a delta */
	uint64_t elements;
	double max_norm;
	size_t *order; /* update i of the result is update[order[i]] of the caller */
	struct ng_pool *pool;

	/* the pass */
	struct reader *reader; /* (group + 1): the updates of the group, then the global */
	size_t readers;
	bool last_group;
	size_t block; /* elements of a block */
	double weight_sum;
	bool first_group;
	int spill;	 /* file of the sums of the groups before, float64; -1 with one group */
	double *acc;	 /* (NG_BLOCK_SLOTS, block), with several groups */
	float *result;	 /* (NG_BLOCK_SLOTS, block) */
	bool not_finite; /* a result */
	struct ng_writer *writer;
	bool spill_failed, write_failed;
	struct ng_err spill_err, write_err;
	bool write; /* still clean: results are made and written. All threads look. */
};

int ng_temp_fd(const char *tmpdir, struct ng_err *err)
{
	const char *dir = tmpdir ? tmpdir : getenv("TMPDIR");
	char *path = ng_xasprintf("%s/ng-XXXXXX", dir && *dir ? dir : "/tmp");
	int fd = mkstemp(path);

	if (fd < 0)
		ng_fail_errno(err, NG_IOERR, "cannot create a temporary file in '%s'", dir && *dir ? dir : "/tmp");
	else
		unlink(path);
	free(path);
	return fd;
}

void ng_agg_source_release(struct ng_agg_source *s)
{
	free(s->name);
	free(s->path);
	memset(s, 0, sizeof *s);
}

void ng_agg_result_release(struct ng_agg_result *r)
{
	free(r->verdict);
	memset(r, 0, sizeof *r);
}

/* ---- checks of headers ---- */

static int weigh(double *out, enum ng_weighting by, const struct ng_frame *f, struct ng_err *err)
{
	if (f->examples < 1 || f->examples > WEIGHT_MAX)
		return ng_fail(err, NG_REFUSED, "it was trained on %lld examples", f->examples);
	if (by == NG_WEIGHTS_STEPS && (f->steps < 1 || f->steps > WEIGHT_MAX))
		return ng_fail(err, NG_REFUSED, "it was trained for %lld steps", f->steps);
	*out = by == NG_WEIGHTS_EXAMPLES ? (double)f->examples : by == NG_WEIGHTS_STEPS ? (double)f->steps : 1;
	return 0;
}

static int check_update(struct aggregation *a, struct reader *r, struct ng_err *err)
{
	const struct ng_frame *f = ng_stream_frame(r->e.stream), *g = &a->frame;
	struct ng_agg_verdict *v = r->verdict;

	if (f->site[0] && !v->site[0])
		snprintf(v->site, sizeof v->site, "%s", f->site);
	if (f->kind != NG_KIND_UPDATE)
		return ng_fail(err, NG_REFUSED, "it is a %s, not an update", ng_kind_name(f->kind));
	if (strcmp(f->site, v->site) != 0)
		return ng_fail(err, NG_REFUSED, "it says that it is of site '%s'", f->site);
	if (strcmp(f->id, g->id) != 0 || strcmp(f->name, g->name) != 0)
		return ng_fail(err, NG_REFUSED, "it belongs to another experiment, '%s' %.12s", f->name, f->id);
	if (f->round != g->round)
		return ng_fail(err, NG_REFUSED, "it was trained on round %ld, not %ld", f->round, g->round);
	if (strcmp(f->base, a->out->global_digest) != 0)
		return ng_fail(err, NG_REFUSED, "it was trained on another base, %.12s", f->base);
	if (f->codec && strcmp(f->codec, "\"f32\"") != 0)
		return ng_fail(err, NG_REFUSED, "its codec is not f32");
	if (ng_elements_expect(&r->e, &a->header, err) < 0)
		return -1;
	return weigh(&v->weight, a->exp.weights, f, err);
}

/* A failure of one update: is it the update's fault, or the machine's? */
static bool is_refusal(const struct ng_err *err)
{
	return err->code == NG_REFUSED || err->code == NG_DATA || err->code == NG_PROTOCOL || err->code == NG_USAGE;
}

static void refuse(struct aggregation *a, struct ng_agg_verdict *v, const char *name, const char *reason)
{
	v->accepted = false;
	v->weight = 0;
	/* the file's name is for the terminal; it is no part of what all agree on */
	size_t skip = strlen(name) + 4;
	if (strlen(reason) > skip && reason[0] == '\'' && strncmp(reason + 1, name, strlen(name)) == 0 &&
		strncmp(reason + 1 + strlen(name), "': ", 3) == 0)
		reason += skip;
	snprintf(v->reason, sizeof v->reason, "refused: %s", reason);
	if (a->opts->refused)
		a->opts->refused(v, name, a->opts->arg);
}

/* The object digest of what lies there now; of a file that is no frame, that of its bytes. */
static int find_digest(char out[NG_HASH_HEX], const struct ng_agg_source *s, struct ng_err *err)
{
	struct ng_elements e;
	int result = ng_elements_open(&e, s, NG_STREAM_OBJECT, err) < 0 || ng_stream_drain(e.stream, err) < 0 ? -1 : 0;

	out[0] = '\0';
	if (result == 0)
		snprintf(out, NG_HASH_HEX, "%s", ng_stream_object_digest(e.stream));
	else if (s->path && ng_hash_file(out, s->path) < 0)
		out[0] = '\0';
	ng_elements_close(&e);
	return result;
}

/* What was told of a source is no more than a claim until its bytes were hashed. */
static int check_digest(const struct ng_elements *e, const char *told, struct ng_err *err)
{
	const char *hex = ng_stream_object_digest(e->stream);

	if (told[0] && strcmp(hex, told) != 0)
		return ng_fail(err, NG_REFUSED, "its object digest is %.12s, not %.12s as listed", hex, told);
	return 0;
}

struct header_stage {
	struct aggregation *a;
	struct ng_err *err; /* (n) */
	bool *failed;
};

static void read_header(void *arg, size_t i)
{
	struct header_stage *stage = arg;
	struct aggregation *a = stage->a;
	const struct ng_agg_source *s = &a->update[i];
	struct reader r = { .verdict = &a->out->verdict[i] };
	struct ng_err *err = &stage->err[i];

	snprintf(r.verdict->site, sizeof r.verdict->site, "%s", s->site);
	snprintf(r.verdict->digest, sizeof r.verdict->digest, "%s", s->digest);
	r.verdict->accepted = true;
	snprintf(r.verdict->reason, sizeof r.verdict->reason, "ok");
	bool failed = ng_elements_open(&r.e, s, 0, err) < 0 || check_update(a, &r, err) < 0;
	ng_elements_close(&r.e);
	/* a refused one is named by a digest all the same, and never by one that it does not have */
	if (failed || !s->digest[0]) {
		struct ng_err ignored;
		if (find_digest(r.verdict->digest, s, failed ? &ignored : err) < 0)
			failed = true;
	}
	stage->failed[i] = failed;
}

struct sorted {
	struct ng_agg_verdict verdict;
	size_t source;
};

static int by_site(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;
	int c = strcmp(x->verdict.site, y->verdict.site);

	c = c ? c : strcmp(x->verdict.digest, y->verdict.digest);
	return c ? c : strcmp(x->verdict.reason, y->verdict.reason);
}

/* Sites in name order; what is equal in all this is equal in what becomes of it. */
static void sort_updates(struct aggregation *a)
{
	size_t n = a->out->n;
	struct sorted *all = ng_xarray(n ? n : 1, sizeof *all);

	for (size_t i = 0; i < n; i++)
		all[i] = (struct sorted){ a->out->verdict[i], i };
	qsort(all, n, sizeof *all, by_site);
	for (size_t i = 0; i < n; i++) {
		a->out->verdict[i] = all[i].verdict;
		a->order[i] = all[i].source;
	}
	free(all);
}

/* One update a site: equal ones count once; of different ones none, since which is meant cannot be known. */
static void refuse_doubles(struct aggregation *a)
{
	struct ng_agg_verdict *v = a->out->verdict;

	for (size_t i = 0, j; i < a->out->n; i = j) {
		size_t differ = 0;
		for (j = i; j < a->out->n && strcmp(v[j].site, v[i].site) == 0; j++)
			differ += v[j].accepted && j > i && strcmp(v[j].digest, v[i].digest) != 0;
		size_t kept = SIZE_MAX;
		for (size_t k = i; k < j; k++) {
			const char *name = a->update[a->order[k]].name;
			if (!v[k].accepted)
				continue;
			if (differ)
				refuse(a, &v[k], name, "the site has more than one update, and they differ");
			else if (kept != SIZE_MAX)
				refuse(a, &v[k], name, "the same update was given before");
			else
				kept = k;
		}
	}
}

static int check_headers(struct aggregation *a, struct ng_err *err)
{
	struct header_stage stage = { a, NULL, NULL };
	size_t n = a->out->n;
	int result = 0;

	stage.err = ng_xcalloc(n, sizeof *stage.err);
	stage.failed = ng_xcalloc(n, sizeof *stage.failed);
	ng_pool_run(a->pool, n, read_header, &stage);
	for (size_t i = 0; i < n && result == 0; i++) {
		if (!stage.failed[i])
			continue;
		if (!is_refusal(&stage.err[i])) {
			*err = stage.err[i];
			result = -1;
			break;
		}
		refuse(a, &a->out->verdict[i], a->update[i].name, stage.err[i].text);
	}
	if (result == 0) {
		sort_updates(a);
		refuse_doubles(a);
	}
	free(stage.err);
	free(stage.failed);
	return result;
}

/* ---- the global ---- */

static int read_global(struct aggregation *a, struct ng_err *err)
{
	struct ng_elements e;
	float *block = ng_xarray(BLOCK_MAX, sizeof *block);
	int result = -1;

	if (ng_elements_open(&e, a->global, NG_STREAM_DIGEST | (a->global->digest[0] ? NG_STREAM_OBJECT : 0), err) < 0)
		goto out;
	ng_header_copy(&a->header, ng_stream_header(e.stream));
	if (ng_frame_parse(&a->frame, &a->header.meta, err) < 0)
		goto out;
	if (a->frame.kind != NG_KIND_GLOBAL) {
		ng_fail(err, NG_DATA, "'%s' is a %s, not a global model", a->global->name, ng_kind_name(a->frame.kind));
		goto out;
	}
	a->limit = ng_xcalloc(a->header.n ? a->header.n : 1, sizeof *a->limit);
	for (size_t i = 0; i < a->header.n; i++) {
		if (a->header.tensor[i].dtype != NG_F32) {
			ng_fail(err, NG_DATA, "'%s': tensor '%s' is %s, and a global holds F32", a->global->name,
				a->header.tensor[i].name, ng_dtype_name(a->header.tensor[i].dtype));
			goto out;
		}
		a->elements += a->header.tensor[i].count;
	}
	e.header = &a->header;
	e.norm = a->limit;
	for (uint64_t left = a->elements; left > 0;) {
		size_t part = left < BLOCK_MAX ? (size_t)left : BLOCK_MAX;
		if (ng_elements_read(&e, block, part, err) < 0)
			goto out;
		left -= part;
	}
	if (ng_elements_end(&e, err) < 0)
		goto out;
	if (a->global->digest[0] && check_digest(&e, a->global->digest, err) < 0) {
		ng_fail_prefix(err, "'%s'", a->global->name);
		goto out;
	}
	for (size_t i = 0; i < a->header.n; i++) {
		double least = 0.1 * sqrt((double)a->header.tensor[i].count);
		a->limit[i] = a->max_norm * (a->limit[i] > least ? a->limit[i] : least);
	}
	snprintf(a->out->global_digest, sizeof a->out->global_digest, "%s", ng_stream_digest(e.stream));
	result = 0;
out:
	if (result < 0 && err->code == NG_REFUSED) /* our own word for a bad value; here it is the model that is bad */
		err->code = NG_DATA;
	ng_elements_close(&e);
	free(block);
	return result;
}

static int read_experiment(struct aggregation *a, struct ng_err *err)
{
	if (ng_config_parse(&a->config, a->frame.config, strlen(a->frame.config), err) < 0)
		return -1;
	if (a->opts->experiment) {
		free(a->config.experiment);
		a->config.experiment = ng_xstrdup(a->opts->experiment);
	}
	if (ng_experiment_parse(
		    &a->exp, a->config.experiment, strlen(a->config.experiment), "experiment file", NULL, 0, err) < 0) {
		err->code = NG_DATA;
		return -1;
	}
	if (strcmp(a->exp.name, a->frame.name) != 0)
		return ng_fail(
			err, NG_DATA, "the experiment file is of '%s', the global of '%s'", a->exp.name, a->frame.name);
	if (ng_experiment_supported(&a->exp, err) < 0)
		return -1;
	if (a->exp.rounds && a->frame.round >= a->exp.rounds)
		return ng_fail(
			err, NG_NOTHING, "global/%05ld is the last of %ld rounds", a->frame.round, a->exp.rounds);
	a->out->quorum = a->exp.quorum;
	a->out->round = a->frame.round + 1;
	snprintf(a->out->name, sizeof a->out->name, "%s", a->frame.name);
	return 0;
}

/* ---- the pass ---- */

static bool is_set(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

static void set(bool *flag, bool value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

static size_t length_of(const struct aggregation *a, size_t block)
{
	uint64_t left = a->elements - (uint64_t)block * a->block;

	return left < a->block ? (size_t)left : a->block;
}

static size_t place_of(const struct aggregation *a, size_t block)
{
	return block % NG_BLOCK_SLOTS * a->block;
}

/* A block of the sums to or from the spill. */
static int transfer(struct aggregation *a, bool out, size_t block, struct ng_err *err)
{
	char *p = (char *)(a->acc + place_of(a, block));
	uint64_t at = (uint64_t)block * a->block * sizeof *a->acc;

	for (size_t n = length_of(a, block) * sizeof *a->acc; n > 0;) {
		ssize_t got = out ? pwrite(a->spill, p, n, (off_t)at) : pread(a->spill, p, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot %s a temporary file", out ? "write" : "read");
		if (got == 0)
			return ng_fail(err, NG_IOERR, "a temporary file is shorter than what was written to it");
		p += got;
		n -= (size_t)got;
		at += (uint64_t)got;
	}
	return 0;
}

/* Reader number `readers` brings the sums of the groups before. */
static void read_block(void *arg, size_t i, size_t block)
{
	struct aggregation *a = arg;

	if (i == a->readers) {
		a->spill_failed = a->spill_failed || transfer(a, false, block, &a->spill_err) < 0;
		if (a->spill_failed)
			set(&a->write, false);
		return;
	}
	struct reader *r = &a->reader[i];
	if (r->failed)
		return;
	r->failed = ng_elements_read(&r->e, r->block + place_of(a, block), length_of(a, block), &r->err) < 0;
	if (r->failed)
		set(&a->write, false); /* the others are only checked from here on */
}

/* One part of a block, all updates in order. */
static void sum_part(void *arg, size_t part, size_t block)
{
	struct aggregation *a = arg;
	size_t length = length_of(a, block), slices = (length + SLICE - 1) / SLICE, place = place_of(a, block);
	const struct reader *global = &a->reader[a->readers - 1];
	double local[SLICE];

	if (!is_set(&a->write))
		return;
	for (size_t i = slices * part / PARTS; i < slices * (part + 1) / PARTS; i++) {
		size_t from = i * SLICE, n = length - from < SLICE ? length - from : SLICE, at = place + from;
		double *acc = a->acc ? a->acc + at : local;
		if (a->first_group)
			memset(acc, 0, n * sizeof *acc);
		for (const struct reader *r = a->reader; r < global; r++)
			ng_mean_add(acc, r->block + at, r->verdict->weight, n);
		if (a->last_group && !ng_mean_finish(a->result + at, global->block + at, acc, a->weight_sum, n))
			set(&a->not_finite, true);
	}
}

static void write_block(void *arg, size_t block)
{
	struct aggregation *a = arg;

	ng_progress(
		"%.0f%% of global %ld", 100.0 * (double)block * (double)a->block / (double)a->elements, a->out->round);
	if (!is_set(&a->write))
		return;
	a->write_failed = (a->last_group ? ng_writer_data(a->writer, a->result + place_of(a, block),
						   length_of(a, block) * sizeof *a->result, &a->write_err)
					 : transfer(a, true, block, &a->write_err)) < 0;
	if (a->write_failed)
		set(&a->write, false);
}

static void end_reader(void *arg, size_t i)
{
	struct aggregation *a = arg;
	struct reader *r = &a->reader[i];

	if (!r->failed)
		r->failed = ng_elements_end(&r->e, &r->err) < 0 ||
			    (r->verdict && check_digest(&r->e, r->verdict->digest, &r->err) < 0);
	if (r->failed && r->verdict && is_refusal(&r->err)) {
		struct ng_err ignored;
		find_digest(r->verdict->digest, r->e.source, &ignored);
	}
}

/* A reader that failed for its own fault is refused, and nothing of this pass is used. */
static int collect_failures(struct aggregation *a, struct ng_err *err)
{
	for (size_t i = 0; i < a->readers; i++) {
		struct reader *r = &a->reader[i];
		if (!r->failed)
			continue;
		if (!r->verdict || !is_refusal(&r->err)) {
			*err = r->err;
			return -1;
		}
		if (r->verdict->accepted)
			refuse(a, r->verdict, r->e.source->name, r->err.text);
		a->write = false;
	}
	if (a->spill_failed || a->write_failed) {
		*err = a->write_failed ? a->write_err : a->spill_err;
		return -1;
	}
	if (a->write && a->not_finite)
		return ng_fail(err, NG_DATA, "the mean of the updates is not finite");
	return 0;
}

static int run_group(struct aggregation *a, const struct ng_agg_source *const *source, struct ng_err *err)
{
	const struct ng_blocks work = { .blocks = (size_t)((a->elements + a->block - 1) / a->block),
		.readers = a->readers + (a->acc && !a->first_group),
		.parts = PARTS,
		.read = read_block,
		.sum = sum_part,
		.write = write_block,
		.arg = a };

	for (size_t i = 0; i < a->readers; i++) {
		struct reader *r = &a->reader[i];
		r->failed = ng_elements_open(&r->e, source[i], r->verdict ? NG_STREAM_OBJECT : 0, &r->err) < 0 ||
			    (r->verdict ? check_update(a, r, &r->err)
					: ng_elements_expect(&r->e, &a->header, &r->err)) < 0;
		r->e.limit = r->verdict ? a->limit : NULL;
		if (r->failed)
			a->write = false;
	}
	ng_blocks_run(&work, a->pool);
	ng_pool_run(a->pool, a->readers, end_reader, a);
	return collect_failures(a, err);
}

static char *inputs_json(const struct ng_agg_result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->n; i++) {
		const struct ng_agg_verdict *v = &r->verdict[i];
		json_t *o = json_pack("{s:s,s:s,s:I,s:s}", "site", v->site, "digest", v->digest, "weight",
			(json_int_t)v->weight, "verdict", v->reason);
		if (!o || json_array_append_new(list, o) < 0)
			NG_BUG("ng.inputs cannot be written");
	}
	char *text = ng_json_canonical(list);
	json_decref(list);
	return text;
}

/* Header of the new global: the old one's, with what changed. */
static int begin_output(struct aggregation *a, int fd, struct ng_err *err)
{
	struct ng_header h;
	struct ng_frame f = a->frame;
	char *inputs = inputs_json(a->out), *config = ng_config_json(&a->config);
	int result = -1;

	f.round = a->out->round;
	snprintf(f.base, sizeof f.base, "%s", a->out->global_digest);
	f.codec = "\"f32\"";
	f.build = "ng " NG_VERSION;
	f.inputs = inputs;
	f.config = config;
	ng_header_copy(&h, &a->header);
	if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
		ng_fail_errno(err, NG_IOERR, "cannot start the output again");
		goto out;
	}
	if (ng_frame_fill(&h.meta, &f, err) < 0 ||
		ng_writer_open_fd(&a->writer, fd, "new global", NG_WRITER_DIGEST, NULL, err) < 0 ||
		ng_writer_begin(a->writer, &h, err) < 0)
		goto out;
	result = 0;
out:
	ng_header_release(&h);
	free(inputs);
	free(config);
	return result;
}

static int end_output(struct aggregation *a, struct ng_err *err)
{
	if (ng_writer_end(a->writer, err) < 0)
		return -1;
	snprintf(a->out->digest, sizeof a->out->digest, "%s", ng_writer_digest(a->writer));
	int result = ng_writer_close(a->writer, NG_OK, NULL, err);
	a->writer = NULL;
	return result;
}

static size_t count_accepted(struct aggregation *a)
{
	size_t n = 0;

	a->weight_sum = 0;
	for (size_t i = 0; i < a->out->n; i++)
		if (a->out->verdict[i].accepted) {
			a->weight_sum += a->out->verdict[i].weight;
			n++;
		}
	a->out->accepted = n;
	return n;
}

/* How many updates are read side by side, and in blocks of how many elements. */
static size_t plan(struct aggregation *a, size_t updates)
{
	uint64_t memory = a->opts->memory ? a->opts->memory : NG_AGGREGATE_MEMORY;
	uint64_t room = memory > FIXED_BYTES + BLOCKS_BYTES ? memory - FIXED_BYTES - BLOCKS_BYTES : 0;
	size_t group = room / STREAM_BYTES < 2 ? 1 : (size_t)(room / STREAM_BYTES) - 1;

	group = group < updates ? group : updates;
	size_t block = BLOCKS_BYTES / NG_BLOCK_SLOTS / sizeof(float) / (group + 2) / BLOCK_STEP * BLOCK_STEP;
	block = block < BLOCK_STEP ? BLOCK_STEP : block > BLOCK_MAX ? BLOCK_MAX : block;
	a->block = a->opts->block ? a->opts->block : block;
	return group;
}

/* One reading of all updates still accepted. *clean: none was refused on the way. */
static int pass(struct aggregation *a, int fd, bool *clean, struct ng_err *err)
{
	size_t updates = a->out->accepted, group = plan(a, updates), *list = ng_xarray(updates, sizeof *list), k = 0;
	size_t room = NG_BLOCK_SLOTS * a->block; /* elements of each reader */
	float *blocks = ng_xarray(group + 1, room * sizeof *blocks);
	const struct ng_agg_source **source = ng_xarray(group + 1, sizeof *source);
	int result = -1;

	a->out->passes++;
	a->write = fd >= 0;
	a->spill_failed = a->write_failed = a->not_finite = false;
	a->spill = -1;
	a->reader = ng_xcalloc(group + 1, sizeof *a->reader);
	a->result = ng_xarray(room, sizeof *a->result);
	for (size_t i = 0; i < a->out->n; i++)
		if (a->out->verdict[i].accepted)
			list[k++] = i;
	if (fd >= 0 && begin_output(a, fd, err) < 0)
		goto out;
	if (group < updates) {
		a->acc = ng_xarray(room, sizeof *a->acc);
		a->spill = ng_temp_fd(a->opts->tmpdir, err);
		if (a->spill < 0)
			goto out;
	}
	for (size_t first = 0; first < updates; first += group) {
		size_t n = updates - first < group ? updates - first : group;
		a->first_group = first == 0;
		a->last_group = first + n == updates;
		a->readers = n + 1;
		for (size_t i = 0; i < n; i++) {
			a->reader[i] = (struct reader){ .verdict = &a->out->verdict[list[first + i]],
				.block = blocks + i * room };
			source[i] = &a->update[a->order[list[first + i]]];
		}
		a->reader[n] = (struct reader){ .block = blocks + n * room };
		source[n] = a->global;
		int ran = run_group(a, source, err);
		for (size_t i = 0; i < a->readers; i++)
			ng_elements_close(&a->reader[i].e);
		if (ran < 0)
			goto out;
	}
	*clean = count_accepted(a) == updates;
	if (fd >= 0 && *clean && end_output(a, err) < 0)
		goto out;
	result = 0;
out:
	ng_progress_end();
	if (a->writer)
		ng_writer_abort(a->writer);
	a->writer = NULL;
	if (a->spill >= 0)
		close(a->spill);
	free(a->acc);
	a->acc = NULL;
	free(a->reader);
	free(a->result);
	free(source);
	free(blocks);
	free(list);
	return result;
}

int ng_aggregate(struct ng_agg_result *out, const struct ng_agg_source *global, const struct ng_agg_source *update,
	size_t n, const struct ng_agg_opts *opts, int fd, struct ng_err *err)
{
	struct aggregation a = { .out = out, .global = global, .update = update, .opts = opts };
	struct ng_err own;
	bool clean = false;
	int result = -1;

	err = err ? err : &own;
	memset(out, 0, sizeof *out);
	out->n = n;
	out->verdict = ng_xcalloc(n ? n : 1, sizeof *out->verdict);
	a.order = ng_xcalloc(n ? n : 1, sizeof *a.order);
	a.max_norm = opts->max_norm > 0 ? opts->max_norm : NG_AGGREGATE_MAX_NORM;
	a.pool = ng_pool_new(opts->threads);
	if (read_global(&a, err) < 0 || read_experiment(&a, err) < 0 || check_headers(&a, err) < 0)
		goto out;
	while (!clean) {
		if (count_accepted(&a) < (size_t)out->quorum || out->accepted == 0) {
			ng_fail(err, NG_NOTHING, "%zu of %zu updates can be used, and the quorum is %ld", out->accepted,
				out->n, out->quorum);
			goto out;
		}
		if (pass(&a, fd, &clean, err) < 0)
			goto out;
	}
	result = 0;
out:
	ng_pool_free(a.pool);
	ng_header_release(&a.header);
	ng_config_release(&a.config);
	ng_experiment_release(&a.exp);
	free(a.limit);
	free(a.order);
	return result;
}
