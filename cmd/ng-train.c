/*
 * ng-train - one round of local fine-tuning: a global model comes in as a
 * stream, an update goes out.
 *
 * Invariants: nothing of the data leaves but the differences of the weights
 * and the counts in the metadata; the same global, data and experiment give
 * the same bytes, whatever the threads, the memory, and however often the run
 * was stopped and taken up again.  The global is read to its verified end
 * before anything is done with it.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/out.h"
#include "common/base/progress.h"
#include "common/base/sig.h"
#include "common/base/str.h"
#include "common/fed/experiment.h"
#include "common/model/batch.h"
#include "common/model/checkpoint.h"
#include "common/model/devset.h"
#include "common/model/trainer.h"
#include "common/model/update.h"
#include "common/tensor/stream.h"
#include "common/text/sampler.h"

static const char usage[] = "[-nqv] -m dir -d file [-d file]... -s site [-o path] [global]";

static struct {
	const char *device, *eval, *fields, *log, *model, *output, *shard, *site, *state;
	struct ng_opt_list data;
	long every, threads;
	uint64_t memory;
	long long checkpoint;
	bool dry_run, skip_bad;
} opt = { .device = "auto", .checkpoint = 600 };

static const struct ng_opt options[] = {
	{ "checkpoint", 0, NG_OPT_DURATION, &opt.checkpoint, 0, 0, "time",
		"save the state this often, 0 only when stopped (default 10m)" },
	NG_OPT_DATA(&opt.data),
	{ "device", 0, NG_OPT_STRING, &opt.device, 0, 0, "name", "device: auto or cpu (default auto)" },
	NG_OPT_DRY_RUN(&opt.dry_run),
	{ "eval", 0, NG_OPT_STRING, &opt.eval, 0, 0, "file", "measure retrieval on these pairs, before and after" },
	{ "every", 0, NG_OPT_LONG, &opt.every, 1, 1000000000, "n", "and every so many steps" },
	{ "fields", 0, NG_OPT_STRING, &opt.fields, 0, 0, "list",
		"names of the fields: anchor=q,positive=p,negative=n" },
	{ "log", 0, NG_OPT_STRING, &opt.log, 0, 0, "file", "append one JSON object for each step" },
	{ "memory", 0, NG_OPT_SIZE, &opt.memory, 0, 0, "size",
		"memory that the process may have (default what is free within all limits)" },
	NG_OPT_MODEL(&opt.model),
	NG_OPT_OUTPUT(&opt.output),
	NG_OPT_QUIET,
	{ "shard", 0, NG_OPT_STRING, &opt.shard, 0, 0, "k/n", "only rows k, k + n, ... of the data" },
	NG_OPT_SITE(&opt.site),
	{ "skip-bad", 0, NG_OPT_FLAG, &opt.skip_bad, 0, 0, NULL, "skip malformed rows and count them" },
	NG_OPT_STATE(&opt.state),
	NG_OPT_THREADS(&opt.threads),
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

/* What the steps of main hand on. */
static struct ng_err err;
static struct ng_out out;	 /* with -o */
static struct ng_writer *output; /* the update */
static struct ng_stream *stream; /* the global */
static struct ng_header global;	 /* its header */
static struct ng_frame frame;	 /* its metadata */
static char base[NG_HASH_HEX];	 /* its content digest */
static int global_fd = -1;	 /* its values, for the differences */
static struct ng_experiment experiment;
static char *folder, *checkpoint; /* of this site and experiment in the state folder */
static struct ng_device *dev;
static struct ng_model model;
static struct ng_tokenizer *tokenizer;
static struct ng_rows rows;
static uint64_t *hash; /* of every text */
static struct ng_layout layout;
static struct ng_trainer trainer;
static struct ng_batcher batcher;
static struct ng_devset devset;
static struct ng_checkpoint done; /* how far the round is */
static FILE *logfile;
static double saved_at;
static struct ng_position saved_place;

/* ---- the ends ---- */

static void die(void) NG_NORETURN;

static void die(void)
{
	ng_out_abort(&out);
	ng_die_err(&err);
}

/* Stopped: the state is saved; close the pipe with "run again", die by the signal. */
static void stop_by(int sig) NG_NORETURN;

static void stop_by(int sig)
{
	ng_progress_end();
	ng_info("stopped after step %llu of %llu; the next run goes on from there", (unsigned long long)done.step,
		(unsigned long long)done.steps);
	ng_out_abort(&out);
	if (output)
		ng_writer_close(output, NG_TEMPFAIL, "ng-train: stopped by a signal", &err);
	ng_sig_cleanup();
	ng_sig_die(sig);
}

/* ---- what comes in ---- */

static void open_output(void)
{
	if (opt.dry_run)
		return;
	if (opt.output && strcmp(opt.output, "-") != 0) {
		if (ng_out_open(&out, opt.output, &err) ||
			ng_writer_open_fd(&output, out.fd, opt.output, 0, NULL, &err))
			die();
	} else if (ng_writer_open_fd(&output, STDOUT_FILENO, "standard output", NG_WRITER_BRACKETS, NULL, &err)) {
		die();
	}
}

static void take_experiment(const char *path)
{
	struct ng_config config;
	const char *text;
	int got;

	if (ng_stream_open(&stream, path, NG_STREAM_DIGEST, &err) || (got = ng_stream_next(stream, &err)) < 0)
		ng_stream_die(stream, &err);
	if (got == 0)
		ng_die(NG_DATA, "'%s' holds no global model", path);
	ng_header_copy(&global, ng_stream_header(stream));
	if (ng_frame_parse(&frame, &global.meta, &err))
		die();
	if (frame.kind != NG_KIND_GLOBAL)
		ng_die(NG_DATA, "'%s' is a %s, not a global model", path, ng_kind_name(frame.kind));
	if (ng_config_parse(&config, frame.config, strlen(frame.config), &err))
		die();
	/* what the coordinator says now outranks what the global was made under */
	text = json_string_value(json_object_get(ng_stream_opening(stream), "experiment"));
	if (text == NULL)
		text = config.experiment;
	if (ng_experiment_parse(&experiment, text, strlen(text), "ng.config", NULL, 0, &err)) {
		err.code = NG_DATA; /* not the fault of this command line */
		die();
	}
	if (ng_experiment_supported(&experiment, &err))
		die();
	if (strcmp(experiment.name, frame.name) != 0)
		ng_die(NG_REFUSED, "the global is of experiment '%s', its experiment file of '%s'", frame.name,
			experiment.name);
	if (experiment.rounds && frame.round >= experiment.rounds) {
		ng_fail(&err, NG_NOTHING, "round %ld is the last of '%s': there is nothing to train", frame.round,
			experiment.name);
		ng_stream_die(NULL, &err);
	}
	/* all parameters come from the global: the folder's own weights may be any */
	if (ng_config_check_folder(&config, opt.model, false, &err))
		die();
	ng_config_release(&config);
}

/* What a run that was killed in mid-write has left; nobody else is here, the lock is held. */
static void sweep(void)
{
	DIR *d = opendir(folder);
	const struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "checkpoint.ng-", 14) != 0 && strncmp(e->d_name, "global-", 7) != 0)
			continue;
		char *path = ng_xasprintf("%s/%s", folder, e->d_name);
		unlink(path);
		free(path);
	}
	closedir(d);
}

/* One run for each site and experiment: the second exits 75. */
static void lock_state(void)
{
	char *sub = ng_xasprintf("train/%s-%.16s-%s", experiment.name, frame.id, opt.site), *lock;
	int fd;

	if (ng_state_path(&folder, opt.state, sub, &err))
		die();
	lock = ng_xasprintf("%s/lock", folder);
	if (ng_lock(&fd, lock, &err))
		die();
	checkpoint = ng_xasprintf("%s/checkpoint", folder);
	sweep();
	free(lock);
	free(sub);
}

static void take_global(void)
{
	char *temp = ng_xasprintf("%s/global-XXXXXX", folder);
	int got;

	/* on disk, since it is needed again only at the end; gone with us whatever happens */
	global_fd = mkstemp(temp);
	if (global_fd < 0)
		ng_die_errno(NG_IOERR, "cannot create '%s'", temp);
	fcntl(global_fd, F_SETFD, FD_CLOEXEC);
	unlink(temp);
	free(temp);
	if (ng_model_load_stream(&model, stream, global_fd, &err))
		ng_stream_die(stream, &err);
	snprintf(base, sizeof(base), "%s", ng_stream_digest(stream));
	if ((got = ng_stream_next(stream, &err)) < 0)
		ng_stream_die(stream, &err);
	if (got > 0)
		ng_die(NG_DATA, "'%s' holds more than one global model", ng_stream_name(stream));
	ng_stream_close(stream);
	stream = NULL;
}

static void open_model(struct ng_model_config *cfg)
{
	const char *why = NULL;
	char *path;
	int threads = opt.threads ? (int)opt.threads : ng_cpu_count();
	int status = ng_device_open(&dev, opt.device, threads, NULL, &why);

	if (status)
		ng_die(status == NG_DEV_MEMORY ? NG_OSERR : NG_UNAVAILABLE, "cannot open device '%s': %s", opt.device,
			why ? why : "it failed");
	ng_verbose("%s", dev->info.name);
	path = ng_xasprintf("%s%s%s", opt.model, *cfg->transformer ? "/" : "", cfg->transformer);
	if (ng_model_open(&model, cfg, dev, opt.model, &err) || ng_tokenizer_load(&tokenizer, path, 0, &err))
		die();
	free(path);
	if (ng_tokenizer_info(tokenizer)->vocab > model.cfg.vocab)
		ng_die(NG_DATA, "the tokenizer of '%s' has %zu ids, the model's word table %zu rows", opt.model,
			ng_tokenizer_info(tokenizer)->vocab, model.cfg.vocab);
}

static void open_data(void)
{
	struct ng_rows_opts how = {
		.kind = NG_ROWS_PAIRS, .fields = opt.fields, .skip_bad = opt.skip_bad, .min_rows = 2, .tmpdir = folder
	};
	const struct ng_experiment_train *t = &experiment.train;

	if (opt.shard)
		ng_rows_parse_shard(opt.shard, &how.shard, &how.shards);
	if (ng_rows_open(&rows, opt.data.item, opt.data.n, &how, &err) || ng_rows_hashes(&rows, &hash, &err) ||
		ng_layout_init(&layout, t->sampler, rows.n, rows.columns, hash, (size_t)t->batch, (size_t)t->epochs,
			t->seed, (uint64_t)frame.round, &err))
		die();
	if (layout.dropped)
		ng_warn("%llu rows would make batches of one and are left out", (unsigned long long)layout.dropped);
	if (layout.in_batch_duplicates)
		ng_warn("%llu rows share a text with their batch, and push away what is right for them (sampler 'random')",
			(unsigned long long)layout.in_batch_duplicates);
	if (opt.eval && ng_devset_open(&devset, opt.eval, opt.fields, opt.skip_bad, &err))
		die();
}

/* ---- the plan ---- */

static size_t max_length(void)
{
	size_t n = (size_t)experiment.train.max_length;

	if (n > model.cfg.max_positions) {
		ng_warn("texts are cut at %zu tokens, the model's positions, not at the experiment's %ld",
			model.cfg.max_positions, experiment.train.max_length);
		n = model.cfg.max_positions;
	}
	return n;
}

static void make_plan(void)
{
	const struct ng_experiment_train *e = &experiment.train;
	struct ng_trainer *t = &trainer;
	const char *why = "--memory";
	uint64_t resident = ng_resident(), limit = opt.memory;

	t->m = &model;
	t->optim.kind = e->optimizer == NG_OPTIMIZER_SGD ? NG_OPTIM_SGD : NG_OPTIM_ADAMW;
	t->optim.beta1 = e->beta1;
	t->optim.beta2 = e->beta2;
	t->optim.eps = e->eps;
	t->optim.momentum = e->momentum;
	t->optim.decay = e->weight_decay;
	t->optim.clip = e->clip;
	t->scale = e->scale;
	t->dropout = e->dropout;
	t->seed = e->seed;
	t->round = (uint32_t)frame.round;
	t->B = layout.batch;
	t->columns = rows.columns;
	t->max_length = max_length();
	if (limit == 0) {
		/* what this process may still take; an eighth is left to the rest */
		uint64_t free_bytes = ng_memory_limit(&why);
		limit = resident + free_bytes / 8 * 7;
	}
	struct ng_plan_input in = { .cfg = &model.cfg,
		.count = model.count,
		.moments = ng_optim_moments(&t->optim),
		.B = t->B,
		.columns = t->columns,
		.max_length = t->max_length,
		.process = resident + (opt.eval ? ng_devset_bytes(&devset, &model) : 0) };
	if (ng_plan_make(&t->plan, &in, limit, why, &err))
		die();
}

static void tell_plan(void)
{
	const struct ng_plan *p = &trainer.plan;
	const unsigned long long M = 1u << 20;

	ng_info("%zu rows of %zu texts, batch %u, %llu steps, round %ld%s", rows.n, rows.columns, layout.batch,
		(unsigned long long)layout.steps, frame.round + 1, experiment.rounds ? "" : " (no end)");
	ng_info("memory %llu MiB (%s): weights, optimiser and texts %llu, one grain %llu, kept activations %llu of at most %llu MiB",
		(unsigned long long)p->limit / M, p->why, (unsigned long long)(p->total - p->keep - p->grain) / M,
		(unsigned long long)p->grain / M, (unsigned long long)p->keep / M,
		(unsigned long long)p->batch_activations / M);
	if (!opt.dry_run)
		return;
	printf("rows\t%zu\ncolumns\t%zu\nbatch\t%u\nsteps\t%llu\nround\t%ld\n", rows.n, rows.columns, layout.batch,
		(unsigned long long)layout.steps, frame.round);
	printf("memory\t%llu\nmemory_limit\t%s\nmemory_least\t%llu\nmemory_kept\t%llu\n", (unsigned long long)p->limit,
		p->why, (unsigned long long)(p->total - p->keep), (unsigned long long)p->keep);
}

/* Device and build, without what does not change a bit of the result. */
static char *device_name(void)
{
	char *name = ng_xstrdup(dev->info.name), *comma = strrchr(name, ',');

	if (comma && strstr(comma, "thread"))
		*comma = '\0';
	return name;
}

/* Digest of all that decides the result. */
static void make_key(char key[NG_HASH_HEX])
{
	struct ng_hash h;
	char *name = device_name(), line[256];

	ng_hash_init(&h);
	snprintf(line, sizeof(line), "ng-train %s\n%s\n%s\n%ld\n%zu %zu\n", NG_VERSION, base, frame.id, frame.round,
		rows.n, rows.columns);
	ng_hash_update(&h, line, strlen(line) + 1);
	ng_hash_update(&h, name, strlen(name) + 1);
	ng_hash_update(&h, experiment.text, experiment.text_len + 1);
	ng_hash_update(&h, frame.config, strlen(frame.config) + 1);
	ng_hash_update(&h, hash, rows.n * rows.columns * sizeof(*hash));
	ng_hash_final(&h, key);
	free(name);
}

/* ---- the round ---- */

static bool stop_wanted(void *arg)
{
	(void)arg;
	/* where a state was saved already, work goes on until there is a new one, however long that takes */
	return ng_sig_pending() || (opt.checkpoint > 0 && ng_now() - saved_at >= (double)opt.checkpoint &&
					   ng_trainer_moved(&trainer, &saved_place));
}

static void save(void)
{
	ng_progress("saving the state");
	if (ng_checkpoint_save(checkpoint, &done, &trainer, &err))
		die();
	saved_at = ng_now();
	saved_place = ng_trainer_position(&trainer);
}

/* From where an earlier run was stopped, if it was of the same round, data and experiment. */
static void take_up(void)
{
	make_key(done.key);
	done.steps = layout.steps;
	int got = ng_checkpoint_load(checkpoint, &done, &trainer, &err);

	if (got < 0 && err.code != NG_DATA)
		ng_die_err(&err);
	if (got < 0) {
		/* what it filled is half of two models; the next run finds no state and begins anew */
		if (unlink(checkpoint) && errno != ENOENT)
			ng_die_errno(NG_IOERR, "cannot remove the damaged '%s'", checkpoint);
		ng_die(NG_TEMPFAIL, "%s: it was removed, the next run starts the round again", err.text);
	}
	if (got == 0)
		return;
	if (done.step == done.steps)
		ng_info("this round was trained already; here is its update again");
	else
		ng_info("going on after step %llu of %llu", (unsigned long long)done.step,
			(unsigned long long)done.steps);
}

static void log_line(json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) : NULL;

	json_decref(o);
	if (text == NULL)
		NG_BUG("a log line cannot be written");
	if (fprintf(logfile, "%s\n", text) < 0 || fflush(logfile))
		ng_die_errno(NG_IOERR, "cannot write '%s'", opt.log);
	free(text);
}

static void evaluate(void)
{
	struct ng_devset_result r;

	ng_progress("measuring on '%s'", opt.eval);
	if (ng_devset_run(&r, &devset, &model, tokenizer, opt.threads ? (int)opt.threads : ng_cpu_count(), &err))
		die();
	ng_progress_end();
	ng_info("step %llu: MRR@10 %.4f, NDCG@10 %.4f, Accuracy@1 %.4f (%zu queries, %zu documents)",
		(unsigned long long)done.step, r.mrr10, r.ndcg10, r.accuracy1, r.queries, r.documents);
	if (logfile)
		log_line(json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "round", (json_int_t)frame.round, "step",
			(json_int_t)done.step, "steps", (json_int_t)done.steps, "cosine_mrr@10", r.mrr10,
			"cosine_ndcg@10", r.ndcg10, "cosine_accuracy@1", r.accuracy1));
}

/* NaN or infinity: nothing is written; say where. */
static void not_finite(const uint32_t *row, size_t B, const struct ng_step_result *r) NG_NORETURN;

static void not_finite(const uint32_t *row, size_t B, const struct ng_step_result *r)
{
	char where[512], text[1024] = "";
	size_t from = r->bad == SIZE_MAX ? 0 : r->bad, n = r->bad == SIZE_MAX ? (B < 4 ? B : 4) : 1;

	for (size_t i = 0; i < n; i++) {
		ng_rows_where(&rows, row[from + i], where, sizeof(where));
		size_t used = strlen(text);
		snprintf(text + used, sizeof(text) - used, "%s%s", i ? ", " : "", where);
	}
	ng_fail_prefix(&err, "step %llu (%s%s %s%s)", (unsigned long long)done.step + 1,
		n > 1 || B == 1 ? "" : "first met in ", n > 1 ? "rows" : "row", text, n > 1 && n < B ? ", ..." : "");
	die();
}

static void one_step(size_t batch, const struct ng_schedule_span *span)
{
	const uint32_t *row = layout.row + layout.start[batch];
	size_t B = (size_t)(layout.start[batch + 1] - layout.start[batch]);
	double lr = experiment.train.lr *
		    ng_schedule_factor(span, experiment.train.schedule, span->first + (long)done.step);
	struct ng_stop stop = { stop_wanted, NULL };
	struct ng_step_result r = { 0 };
	double start = ng_now();
	int rc;

	if (ng_batcher_make(&batcher, row, B, &err))
		die();
	for (;;) {
		rc = ng_trainer_step(&trainer, &batcher.batch, (uint32_t)done.step, lr, &r, &stop, &err);
		if (rc != 1)
			break;
		done.seconds += ng_now() - start;
		save();
		start = ng_now();
		if (ng_sig_pending())
			stop_by(ng_sig_pending());
	}
	if (rc) {
		if (err.code == NG_DATA)
			not_finite(row, B, &r);
		die();
	}
	double seconds = ng_now() - start;
	done.seconds += seconds;
	done.step++;
	done.loss_sum += r.loss;
	double rate = (double)done.step / done.seconds;
	ng_progress("step %llu/%llu  loss %.4f  %.1f pairs/s  %.0f s left", (unsigned long long)done.step,
		(unsigned long long)done.steps, r.loss, (double)B / seconds, (double)(done.steps - done.step) / rate);
	if (logfile)
		log_line(json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "round",
			(json_int_t)frame.round, "step", (json_int_t)done.step, "steps", (json_int_t)done.steps, "rows",
			(json_int_t)B, "loss", r.loss, "norm", r.norm, "lr", lr, "seconds", seconds, "pairs_per_second",
			(double)B / seconds, "tokens", (json_int_t)batcher.batch.off[B * rows.columns], "grains",
			(json_int_t)r.grains, "kept", (json_int_t)r.kept));
}

static void train(void)
{
	const struct ng_experiment_train *e = &experiment.train;
	struct ng_schedule_span span;
	uint64_t at = 0;

	batcher = (struct ng_batcher){ .rows = &rows,
		.tokenizer = tokenizer,
		.max_length = trainer.max_length,
		.prompt = { e->prompt_anchor, e->prompt_positive, e->prompt_negative },
		.leave_out_prompt = !model.cfg.include_prompt };
	if (ng_batcher_init(&batcher, &err))
		die();
	ng_experiment_span(&span, &experiment, frame.round, (long)layout.steps);
	if (opt.eval && done.step == 0)
		evaluate();
	saved_at = ng_now();
	saved_place = ng_trainer_position(&trainer);
	ng_sig_defer();
	for (uint32_t epoch = 0; epoch < layout.epochs; epoch++) {
		if (at + layout.epoch_steps[epoch] <= done.step) {
			at += layout.epoch_steps[epoch];
			continue;
		}
		ng_layout_epoch(&layout, epoch);
		for (uint64_t b = done.step - at; b < layout.batches; b++) {
			one_step((size_t)b, &span);
			if (opt.every && opt.eval && done.step % (uint64_t)opt.every == 0 && done.step < done.steps)
				evaluate();
			/* between steps a state is smaller, so it is saved a little early */
			if (opt.checkpoint > 0 && ng_now() - saved_at >= 0.5 * (double)opt.checkpoint &&
				done.step < done.steps)
				save();
			if (ng_sig_pending() && done.step < done.steps) {
				save();
				stop_by(ng_sig_pending());
			}
		}
		at += layout.epoch_steps[epoch];
	}
	ng_progress_end();
	if (opt.eval)
		evaluate();
	if (batcher.truncated)
		ng_info("%llu of %llu texts were longer than %zu tokens and cut", (unsigned long long)batcher.truncated,
			(unsigned long long)batcher.texts, trainer.max_length);
	/* should the program after us fail, the next run gives the update without training again */
	save();
	ng_progress_end();
	ng_info("%llu steps in %.1f s, loss %.4f", (unsigned long long)done.steps, done.seconds,
		done.loss_sum / (double)done.steps);
}

static void write_update(void)
{
	struct ng_frame f;
	char *device = device_name();

	ng_frame_init(&f);
	f.kind = NG_KIND_UPDATE;
	snprintf(f.name, sizeof(f.name), "%s", frame.name);
	snprintf(f.id, sizeof(f.id), "%s", frame.id);
	f.round = frame.round;
	snprintf(f.site, sizeof(f.site), "%s", opt.site);
	snprintf(f.base, sizeof(f.base), "%s", base);
	f.examples = (long long)((uint64_t)rows.n * layout.epochs - layout.dropped);
	f.batch = layout.batch;
	f.steps = (long long)layout.steps;
	f.loss = done.loss_sum / (double)done.steps;
	f.codec = "\"f32\"";
	f.device = device;
	f.build = "ng-train " NG_VERSION;
	if (ng_update_write(output, &model, &global, global_fd, &f, &err))
		die();
	struct ng_writer *w = output;
	output = NULL;
	if (ng_writer_close(w, NG_OK, NULL, &err) || (opt.output && out.path && ng_out_commit(&out, &err)))
		die();
	free(device);
}

/* ---- main ---- */

static void check_options(int argc, int first, char **argv)
{
	long k, n;

	if (opt.model == NULL)
		ng_opt_misuse("no --model");
	if (opt.data.n == 0)
		ng_opt_misuse("no --data");
	if (opt.site == NULL)
		ng_opt_misuse("no --site");
	if (!ng_name_valid(opt.site))
		ng_opt_misuse("--site: '%s' is not a name of a-z, 0-9 and inner hyphens", opt.site);
	if (argc - first > 1)
		ng_opt_misuse("one global model, not %d", argc - first);
	if (opt.shard && !ng_rows_parse_shard(opt.shard, &k, &n))
		ng_opt_misuse("--shard: expected K/N with 1 <= K <= N");
	if (opt.every && opt.eval == NULL)
		ng_opt_misuse("--every goes with --eval");
	for (size_t i = 0; i < opt.data.n; i++)
		if (strcmp(opt.data.item[i], "-") == 0 && (first == argc || strcmp(argv[first], "-") == 0))
			ng_opt_misuse("data and global model cannot both come from standard input");
}

int main(int argc, char **argv)
{
	struct ng_model_config cfg;

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv, usage, options);
	check_options(argc, first, argv);
	open_output();
	if (ng_model_config_load(&cfg, opt.model, &err))
		die();
	take_experiment(first < argc ? argv[first] : "-");
	lock_state();
	open_model(&cfg);
	take_global();
	open_data();
	if (opt.log && !opt.dry_run && (logfile = fopen(opt.log, "ae")) == NULL)
		ng_die_errno(NG_IOERR, "cannot write '%s'", opt.log);
	make_plan();
	tell_plan();
	if (opt.dry_run)
		return ng_finish(NG_OK);
	if (ng_trainer_init(&trainer, &err))
		die();
	take_up();
	if (done.step < done.steps)
		train();
	write_update();
	if (logfile && fclose(logfile))
		ng_die_errno(NG_IOERR, "cannot write '%s'", opt.log);
	ng_batcher_release(&batcher);
	ng_trainer_release(&trainer);
	ng_layout_release(&layout);
	ng_devset_close(&devset);
	ng_rows_close(&rows);
	ng_tokenizer_free(tokenizer);
	ng_model_release(&model);
	dev->close(dev);
	ng_experiment_release(&experiment);
	ng_header_release(&global);
	free(hash);
	free(checkpoint);
	free(folder);
	return ng_finish(NG_OK);
}
