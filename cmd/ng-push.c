/*
 * ng-push - publish an update, or a new global model, on a blackboard.
 *
 * The stream is first read to its end into a file of the state folder and
 * checked as far as it can be alone: an input that failed or was cut leaves no
 * trace on the board, and hours of training are not lost when the board cannot
 * be reached (the file is kept, and named).  Then the board is looked at as it
 * is now, what was read is compared with it, and published whole.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/out.h"
#include "common/base/progress.h"
#include "common/base/str.h"
#include "common/board/rounds.h"

static struct {
	const char *accept, *board, *experiment, *site, *state;
	bool dry_run, global, idle_ok, json;
} opt;

static const struct ng_opt options[] = {
	{ "accept-rollback", 0, NG_OPT_STRING, &opt.accept, 0, 0, "id",
		"believe this experiment id again, as it is now" },
	NG_OPT_BOARD(&opt.board),
	NG_OPT_DRY_RUN(&opt.dry_run),
	NG_OPT_EXPERIMENT(&opt.experiment),
	{ "global", 0, NG_OPT_FLAG, &opt.global, 0, 0, NULL, "publish a new global model, not an update" },
	NG_OPT_IDLE_OK(&opt.idle_ok),
	NG_OPT_JSON(&opt.json),
	NG_OPT_QUIET,
	NG_OPT_SITE(&opt.site),
	NG_OPT_STATE(&opt.state),
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

/* One frame of the input, in a file of ours. */
struct spool {
	struct ng_out file; /* never committed: kept by a rename, or aborted */
	struct ng_header header;
	struct ng_frame frame; /* strings borrowed from header */
	char content[NG_HASH_HEX];
	char object[NG_HASH_HEX]; /* once it is asked for, or published */
	uint64_t bytes;
};

static struct ng_rounds rounds;
static struct spool main_frame, state_frame;
static bool have_main, have_state;
static char *unsent; /* the folder for what could not be published */

/* ---- ends ---- */

static void drop(void)
{
	ng_out_abort(&main_frame.file);
	ng_out_abort(&state_frame.file);
}

static void nothing(const char *fmt, ...) NG_PRINTF(1, 2) NG_NORETURN;

static void nothing(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	drop();
	if (!opt.idle_ok)
		ng_info("%s", text);
	else
		ng_verbose("%s", text);
	exit(ng_finish(opt.idle_ok ? NG_OK : NG_NOTHING));
}

/* An update that is good in itself outlives a board that is not there. */
static char *kept_path(void)
{
	return ng_xasprintf("%s/%s-%05ld-%s.safetensors.zst", unsent, main_frame.frame.name, main_frame.frame.round,
		main_frame.frame.site);
}

static void die(const struct ng_err *err) NG_NORETURN;

static void die(const struct ng_err *err)
{
	bool keep = !opt.global && have_main && main_frame.file.temp &&
		    (err->code == NG_IOERR || err->code == NG_NOINPUT || err->code == NG_OSERR ||
			    err->code == NG_TEMPFAIL || err->code == NG_UNAVAILABLE);
	struct ng_err why = *err;

	if (keep && fflush(main_frame.file.fp) == 0) {
		char *path = kept_path();
		struct ng_err ignored;
		char *from = ng_xstrdup(main_frame.file.temp);
		if (ng_mkdirs(unsent, 0700, &ignored) == 0 && rename(from, path) == 0)
			ng_warn("the update is kept: when the blackboard is back, run ng-push with the operand '%s'",
				path);
		free(from);
		free(path);
	}
	drop();
	ng_die_err(&why);
}

/* ---- reading ---- */

/* The tee is there before a frame begins; where its bytes go is known when its
 * header has been looked at. */
static int to_file(void *arg, const void *data, size_t n, struct ng_err *err)
{
	struct spool *sp = *(struct spool **)arg;

	if (ng_write_full(sp->file.fd, data, n) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot write '%s'", sp->file.temp);
	return 0;
}

/* Exponent all ones: Inf or NaN.  Adding one to it carries into the sign bit. */
static bool finite_block(const uint32_t *bits, size_t n)
{
	uint32_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= (bits[i] & 0x7fffffffu) + 0x00800000u;
	return !(any & 0x80000000u);
}

static int read_tensors(struct ng_stream *s, struct ng_err *err)
{
	uint32_t *buf = ng_xaligned(NG_STREAM_BLOCK);
	const struct ng_tensor *t;
	uint64_t done = 0, all = ng_stream_header(s)->data_bytes;
	int rc;

	while ((rc = ng_stream_tensor(s, &t, err)) == 1) {
		for (uint64_t left = t->bytes; left > 0;) {
			size_t n = left < NG_STREAM_BLOCK ? (size_t)left : NG_STREAM_BLOCK;
			if (ng_stream_read(s, buf, n, err) < 0) {
				rc = -1;
				goto out;
			}
			if (t->dtype == NG_F32 && !finite_block(buf, n / 4)) {
				rc = ng_fail(err, NG_REFUSED, "%s: tensor '%s' holds a value that is not finite",
					ng_stream_name(s), t->name);
				goto out;
			}
			left -= n;
			done += n;
			ng_progress("read %.0f%%", 100.0 * (double)done / (double)all);
		}
	}
out:
	free(buf);
	return rc;
}

/* The frame that s stands at, checked in itself, into sp. */
static int read_frame(struct spool *sp, struct ng_stream *s, const char *dir, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/incoming.%ld", dir, (long)getpid());
	int rc = ng_out_open(&sp->file, path, err);

	free(path);
	if (rc < 0)
		return -1;
	ng_header_copy(&sp->header, ng_stream_header(s));
	if (ng_frame_parse(&sp->frame, &sp->header.meta, err) < 0)
		return -1;
	rc = read_tensors(s, err);
	memcpy(sp->content, ng_stream_digest(s), NG_HASH_HEX);
	sp->bytes = ng_stream_raw_bytes(s);
	return rc;
}

/* May this frame come now?  Its header alone is looked at. */
static int check_kind(const struct ng_frame *f, const char *name, struct ng_err *err)
{
	enum ng_kind wanted = opt.global ? NG_KIND_GLOBAL : NG_KIND_UPDATE;

	if (opt.global && f->kind == NG_KIND_STATE) {
		if (have_state)
			return ng_fail(err, NG_DATA, "%s: more than one state", name);
	} else if (f->kind != wanted) {
		return ng_fail(err, NG_REFUSED, "%s: a frame of the kind %s where %s %s is published%s", name,
			ng_kind_name(f->kind), opt.global ? "a" : "an", ng_kind_name(wanted),
			f->kind == NG_KIND_GLOBAL ? " (--global publishes a global)" : "");
	} else if (have_main) {
		return ng_fail(err, NG_DATA, "%s: more than one %s", name, ng_kind_name(wanted));
	}
	if (strcmp(f->name, opt.experiment) != 0)
		return ng_fail(err, NG_REFUSED, "%s: made for the experiment '%s', not for '%s'", name, f->name,
			opt.experiment);
	if (!opt.global && opt.site && strcmp(f->site, opt.site) != 0)
		return ng_fail(
			err, NG_REFUSED, "%s: the update of the site '%s', not of '%s'", name, f->site, opt.site);
	return 0;
}

/* Files of runs that were killed, a day old. */
static void tidy(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "incoming.", 9) == 0 &&
			fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			st.st_mtime < time(NULL) - NG_STALE_SECONDS)
			(void)!unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d)
		closedir(d);
}

static void read_input(const char *path, const char *dir)
{
	unsigned flags = NG_STREAM_REFRAME | NG_STREAM_THREADS | (opt.global ? NG_STREAM_DIGEST : 0);
	struct ng_stream *s = NULL;
	struct spool *sp = NULL;
	struct ng_err err;
	int rc;

	rc = ng_stream_open(&s, path, flags, &err);
	if (rc == 0)
		ng_stream_tee(s, to_file, &sp);
	while (rc == 0 && (rc = ng_stream_next(s, &err)) == 1) {
		const struct ng_frame *f = ng_stream_frame(s);
		bool state = f->kind == NG_KIND_STATE;
		rc = check_kind(f, ng_stream_name(s), &err);
		sp = state ? &state_frame : &main_frame;
		if (rc == 0)
			rc = read_frame(sp, s, dir, &err);
		have_state = have_state || state;
		have_main = have_main || !state;
	}
	ng_progress_end();
	if (rc == 0 && !have_main)
		rc = ng_fail(&err, NG_DATA, "%s: no %s came", ng_stream_name(s), opt.global ? "global" : "update");
	if (rc < 0) {
		drop();
		if (err.code == NG_NOTHING && opt.idle_ok && s && ng_stream_upstream(s))
			exit(ng_finish(NG_OK));
		ng_stream_die(s, &err);
	}
	ng_stream_close(s);
}

/* ---- publishing ---- */

/* 1: published. 0: taken (nothing was written). */
static int publish(struct spool *sp, const struct ng_name *name, const char *base)
{
	struct ng_object_writer *w;
	struct ng_statement s;
	struct ng_err err;
	char *buf = ng_xmalloc(NG_STREAM_BLOCK);
	ptrdiff_t n;

	if (lseek(sp->file.fd, 0, SEEK_SET) < 0)
		ng_die_errno(NG_IOERR, "cannot read '%s'", sp->file.temp);
	if (ng_object_new(&w, rounds.board, name, &err) < 0)
		die(&err);
	while ((n = ng_read_full(sp->file.fd, buf, NG_STREAM_BLOCK)) > 0)
		if (ng_object_write(w, buf, (size_t)n, &err) < 0) {
			ng_object_abort(w);
			die(&err);
		}
	if (n < 0) {
		ng_object_abort(w);
		ng_die_errno(NG_IOERR, "cannot read '%s'", sp->file.temp);
	}
	free(buf);
	if (ng_object_bytes(w) != sp->bytes) {
		ng_object_abort(w);
		ng_die(NG_IOERR, "'%s' is not what was written there", sp->file.temp);
	}
	memcpy(sp->object, ng_object_digest(w), NG_HASH_HEX);
	ng_rounds_statement(&s, &rounds, name->kind, name->n, name->kind == NG_OBJ_UPDATE ? name->leaf : "", base);
	if (ng_object_commit(w, &s, &err) == 0)
		return 1;
	if (err.code != NG_NOTHING)
		die(&err);
	return 0;
}

static void open_board(void)
{
	unsigned flags = (opt.dry_run ? NG_ROUNDS_NO_PIN : 0) | (opt.global ? 0 : NG_ROUNDS_LIGHT);
	struct ng_err err;

	if (ng_rounds_open(&rounds, opt.board, opt.experiment, opt.state, opt.accept, flags, &err) < 0)
		die(&err);
	if (!opt.dry_run) {
		long removed;
		ng_board_tidy(rounds.board, NG_STALE_SECONDS, &removed);
		if (removed > 0)
			ng_verbose("removed %ld left-overs of writers that died", removed);
	}
	if (strcmp(main_frame.frame.id, rounds.id) != 0) {
		ng_fail(&err, NG_REFUSED, "made for another experiment of the name '%s' (%.12s, there is %.12s)",
			main_frame.frame.name, main_frame.frame.id, rounds.id);
		die(&err);
	}
}

static const char *object_digest(struct spool *sp)
{
	if (!sp->object[0] && ng_hash_file(sp->object, sp->file.temp) < 0)
		ng_die_errno(NG_IOERR, "cannot read '%s'", sp->file.temp);
	return sp->object;
}

static void report(const char *path)
{
	if (!opt.json) {
		ng_info("%s %s (%llu bytes)", opt.dry_run ? "would publish" : "published", path,
			(unsigned long long)main_frame.bytes);
		return;
	}
	json_t *all = json_pack("{s:s, s:s, s:I, s:b}", "path", path, "digest", object_digest(&main_frame), "bytes",
		(json_int_t)main_frame.bytes, "published", !opt.dry_run);
	char *text = ng_json_canonical(all);
	puts(text);
	free(text);
	json_decref(all);
}

/* ---- an update ---- */

/* The global that the update was trained on. */
static void compare_with_global(const struct ng_frame *f, char content[NG_HASH_HEX], struct ng_header *header)
{
	struct ng_object *o = rounds.global;
	struct ng_err err;

	if (f->round == rounds.newest)
		ng_header_copy(header, &rounds.global_header);
	else if (ng_rounds_global(&o, &rounds, f->round, header, &err) < 0)
		die(&err);
	if (ng_rounds_content(content, &rounds, o, &err) < 0)
		die(&err);
	if (strcmp(f->base, content) != 0) {
		ng_fail(&err, NG_REFUSED, "the update was trained on another global %ld (%.12s, there is %.12s)",
			f->round, f->base, content);
		die(&err);
	}
	if (f->codec && strcmp(f->codec, "\"f32\"") != 0) {
		ng_fail(&err, NG_REFUSED, "the update is coded (%.60s), the experiment's codec is f32", f->codec);
		die(&err);
	}
	if (ng_rounds_same_tensors(&main_frame.header, header, &err) < 0) {
		ng_fail_prefix(&err, "the update");
		die(&err);
	}
	if (o != rounds.global)
		ng_object_close(o);
}

/* An update of this site that does not count gives way. */
static void make_way(const struct ng_name *name, const char *reason)
{
	struct ng_object *o;
	struct ng_err err;

	ng_warn("%s; it is replaced", reason);
	if (opt.dry_run)
		return;
	if (ng_object_open(&o, rounds.board, name, &err) < 0)
		return; /* litter that publishing clears */
	if (ng_object_discard(o, &err) < 0)
		die(&err);
	ng_object_close(o);
}

static void push_update(void)
{
	const struct ng_frame *f = &main_frame.frame;
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	struct ng_name name = ng_object_name(NG_OBJ_UPDATE, f->round, f->site);
	struct ng_header header = { 0 };
	char path[128], content[NG_HASH_HEX];
	struct ng_update own;
	struct ng_err err;
	int rc;

	ng_object_path(path, &name);
	if (exp->rounds > 0 && f->round >= exp->rounds)
		nothing("the experiment is complete: global %ld is the last, nothing is made from updates of it",
			exp->rounds);
	if (f->round > rounds.newest) {
		ng_fail(&err, NG_REFUSED, "the update is of round %ld, but the newest global is %ld", f->round,
			rounds.newest);
		die(&err);
	}
	if (rounds.newest - f->round > exp->staleness) {
		struct ng_object *o;
		if (ng_object_open(&o, rounds.board, &name, NULL) == 0)
			nothing("%s is on the blackboard already", path);
		drop();
		ng_die(NG_TEMPFAIL, "the update of round %ld came too late, global %ld is out: run again", f->round,
			rounds.newest);
	}
	compare_with_global(f, content, &header);
	rc = ng_rounds_update(&own, &rounds, f->round, f->site, content, &header, &err);
	if (rc < 0)
		die(&err);
	if (rc == 1)
		nothing("%s is on the blackboard already%s", path,
			strcmp(own.hex, object_digest(&main_frame)) == 0 ? "" : ", with other content");
	if (own.reason[0])
		make_way(&name, own.reason);
	if (!opt.dry_run && publish(&main_frame, &name, content) == 0)
		nothing("%s is on the blackboard already", path);
	if (!opt.dry_run) {
		char *kept = kept_path();
		unlink(kept);
		free(kept);
	}
	report(path);
	ng_header_release(&header);
}

/* ---- a global ---- */

/* The experiment's model folder does not change on the way. */
static int check_config(const struct ng_frame *f, struct ng_err *err)
{
	const struct ng_config *ours = &rounds.manifest.config;
	struct ng_config cfg;
	int rc = 0;

	if (ng_config_parse(&cfg, f->config, strlen(f->config), err) < 0)
		return -1;
	if (strcmp(cfg.base, ours->base) != 0 || cfg.n_files != ours->n_files)
		rc = -1;
	for (size_t i = 0; rc == 0 && i < cfg.n_files; i++)
		if (strcmp(cfg.file[i].path, ours->file[i].path) != 0 ||
			strcmp(cfg.file[i].hex, ours->file[i].hex) != 0)
			rc = -1;
	ng_config_release(&cfg);
	return rc == 0 ? 0 : ng_fail(err, NG_REFUSED, "the global was made for another model folder (ng.config)");
}

static void log_global(long round, const char *object, const char *content, const char *inputs, json_t *pruned)
{
	json_t *entry = json_pack("{s:s, s:I, s:s, s:s}", "kind", "global", "round", (json_int_t)round, "object",
		object, "content", content);
	json_t *list = inputs ? ng_json_parse(inputs, strlen(inputs), "ng.inputs", NULL) : NULL;
	struct ng_err err;

	if (list)
		json_object_set_new(entry, "inputs", list);
	if (pruned)
		json_object_set_new(entry, "pruned", pruned);
	if (ng_rounds_log(&rounds, entry, &err) < 0)
		die(&err);
}

/* A coordinator that was killed between a global and its log entry: made up for
 * by the next, so that the log misses none. */
static void repair_log(void)
{
	json_t *entry = ng_rounds_log_find(&rounds, "global", rounds.newest, rounds.global_hex);
	struct ng_verified v;
	struct ng_stream *s;
	struct ng_err err;

	if (entry || opt.dry_run) {
		json_decref(entry);
		return;
	}
	if (ng_verified_start(&v, rounds.global, &err) < 0 ||
		ng_stream_open_fn(&s, ng_verified_read, &v, "global", NG_STREAM_DIGEST, &err) < 0)
		die(&err);
	if (ng_stream_next(s, &err) != 1 || ng_stream_drain(s, &err) < 0)
		die(&err);
	log_global(rounds.newest, rounds.global_hex, ng_stream_digest(s), ng_stream_frame(s)->inputs, NULL);
	ng_stream_close(s);
	ng_verbose("added the missing log entry of global %ld", rounds.newest);
}

static void pin_global(long round)
{
	struct ng_pins now = rounds.pins;
	struct ng_err err;

	memcpy(now.id, rounds.id, NG_HASH_HEX);
	now.manifest = rounds.manifest.version;
	memcpy(now.manifest_hex, rounds.manifest_hex, NG_HASH_HEX);
	now.global = round;
	memcpy(now.global_hex, main_frame.object, NG_HASH_HEX);
	if (ng_pins_set(&rounds.pins, rounds.board, &now, false, &err) < 0)
		ng_warn("%s", err.text); /* the global is out; the next pull pins it */
}

static void prune(const json_t *pruned)
{
	struct ng_err err;

	if (json_array_size(pruned) > 0)
		ng_verbose("removing %zu objects of rounds that are no longer kept", json_array_size(pruned));
	if (ng_rounds_remove(&rounds, pruned, &err) < 0)
		ng_warn("old rounds are still there: %s", err.text); /* the next global removes them */
}

static void push_global(void)
{
	const struct ng_frame *f = &main_frame.frame;
	long all = rounds.manifest.experiment.rounds;
	struct ng_name name = ng_object_name(NG_OBJ_GLOBAL, f->round, NULL);
	char path[128], content[NG_HASH_HEX];
	json_t *pruned;
	struct ng_err err;

	ng_object_path(path, &name);
	repair_log();
	if (f->round <= rounds.newest)
		nothing("%s is on the blackboard already", path);
	if (f->round != rounds.newest + 1 || (all > 0 && f->round > all)) {
		ng_fail(&err, NG_REFUSED, "the global is of round %ld, but the newest is %ld%s", f->round,
			rounds.newest, all > 0 && f->round > all ? ", the last" : "");
		die(&err);
	}
	if (ng_rounds_content(content, &rounds, rounds.global, &err) < 0)
		die(&err);
	if (strcmp(f->base, content) != 0) {
		ng_fail(&err, NG_REFUSED, "the global was made from another global %ld (%.12s, there is %.12s)",
			rounds.newest, f->base[0] ? f->base : "none", content);
		die(&err);
	}
	if (ng_rounds_same_tensors(&main_frame.header, &rounds.global_header, &err) < 0 || check_config(f, &err) < 0) {
		ng_fail_prefix(&err, "the global");
		die(&err);
	}
	if (opt.dry_run) {
		report(path);
		return;
	}
	if (rounds.damaged[0]) /* a newer one was there, but is not valid */
		make_way(&name, rounds.damaged);
	if (have_state) {
		struct ng_name state = ng_object_name(NG_OBJ_STATE, f->round, main_frame.content);
		publish(&state_frame, &state, main_frame.content);
	}
	if (publish(&main_frame, &name, content) == 0)
		nothing("%s is on the blackboard already", path);
	pin_global(f->round);
	if (ng_rounds_prunable(&pruned, &rounds, f->round, &err) < 0)
		die(&err);
	log_global(f->round, main_frame.object, main_frame.content, f->inputs, json_incref(pruned));
	prune(pruned);
	json_decref(pruned);
	report(path);
}

int main(int argc, char **argv)
{
	struct ng_err err;
	char *state;

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv,
		"[-jnqv] -b board -e name [-s site] [file]\n"
		"[-jnqv] -b board -e name --global [file]",
		options);
	if (argc - first > 1)
		ng_opt_misuse("one file at most, not %d", argc - first);
	if (!opt.board || !opt.experiment)
		ng_opt_misuse("%s is needed", opt.board ? "-e" : "-b");
	if (!ng_name_valid(opt.experiment))
		ng_opt_misuse("'%s' is no name of an experiment: [a-z0-9-], at most 64", opt.experiment);
	if (!opt.global && opt.site && !ng_name_valid(opt.site))
		ng_opt_misuse("'%s' is no name of a site: [a-z0-9-], at most 64", opt.site);
	if (opt.accept && !ng_hash_valid(opt.accept))
		ng_opt_misuse("--accept-rollback needs an experiment id, 64 hexadecimal digits");

	if (ng_state_path(&state, opt.state, "incoming", &err) < 0 || ng_state_path(&unsent, opt.state, NULL, &err) < 0)
		ng_die_err(&err);
	char *sub = ng_xasprintf("%s/unsent", unsent);
	free(unsent);
	unsent = sub;
	tidy(state);
	read_input(first < argc ? argv[first] : "-", state);
	open_board();
	if (opt.global)
		push_global();
	else
		push_update();
	drop();
	return ng_finish(NG_OK);
}
