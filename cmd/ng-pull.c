/*
 * ng-pull - fetch from a blackboard: the newest global model for a site that
 * has work to do, the updates of a complete round for an aggregation, or a
 * model folder.
 *
 * Every payload is hashed before a byte of it is parsed, and hashed again as
 * it goes out: frames are passed on as they lie on the board, the last bytes
 * of each only when its digest is right.
 */
#include "common/base/compat.h"

#include <dirent.h>
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
#include "common/base/sig.h"
#include "common/base/str.h"
#include "common/board/rounds.h"
#include "common/board/walk.h"
#include "common/tensor/folder.h"

#define CLAIM_SECONDS (24 * 3600LL)

static struct {
	const char *accept, *board, *experiment, *model, *output, *site, *state, *update_of;
	long at_least, round;
	long long claim;
	bool dry_run, idle_ok, json, list, updates;
} opt = { .at_least = -1, .round = -1 };

static const struct ng_opt options[] = {
	{ "accept-rollback", 0, NG_OPT_STRING, &opt.accept, 0, 0, "id",
		"believe this experiment id again, as it is now" },
	{ "at-least", 0, NG_OPT_LONG, &opt.at_least, 0, NG_NUMBER_MAX, "n", "refuse a board without this round" },
	NG_OPT_BOARD(&opt.board),
	{ "claim", 0, NG_OPT_DURATION, &opt.claim, 0, 0, "time",
		"how long the work will take (default: deadline, or 1d)" },
	NG_OPT_DRY_RUN(&opt.dry_run),
	NG_OPT_EXPERIMENT(&opt.experiment),
	NG_OPT_IDLE_OK(&opt.idle_ok),
	NG_OPT_JSON(&opt.json),
	{ "list", 0, NG_OPT_FLAG, &opt.list, 0, 0, NULL,
		"print path, kind, site and digest of verified files instead" },
	NG_OPT_MODEL(&opt.model),
	{ "output", 'o', NG_OPT_STRING, &opt.output, 0, 0, "dir", "write a model folder instead (--list: the files)" },
	NG_OPT_QUIET,
	NG_OPT_ROUND(&opt.round),
	NG_OPT_SITE(&opt.site),
	NG_OPT_STATE(&opt.state),
	{ "update-of", 0, NG_OPT_STRING, &opt.update_of, 0, 0, "site",
		"the model of one site: a global and its update" },
	{ "updates", 0, NG_OPT_FLAG, &opt.updates, 0, 0, NULL, "the updates of a complete round, for ng-aggregate" },
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

/* What is handed over, in order: a global, then updates. */
struct item {
	struct ng_object *object;
	const char *kind;
	char site[65];
	char hex[NG_HASH_HEX];
	char *path; /* --list */
};

static struct ng_rounds rounds;
static struct ng_writer *output;
static struct item *items;
static size_t n_items;
static long round_given; /* the round that is handed over */
static bool streaming;
static char *experiment_path; /* --list --updates */

/* ---- ends ---- */

/* What reads our output learns why nothing more comes, whenever we stop. */
static void open_output(const json_t *opening)
{
	struct ng_err err;

	if (streaming && !output &&
		ng_writer_open_fd(&output, STDOUT_FILENO, "standard output", NG_WRITER_BRACKETS, opening, &err) < 0)
		ng_die_err(&err);
}

static void die(const struct ng_err *err) NG_NORETURN;

static void die(const struct ng_err *err)
{
	open_output(NULL);
	ng_die_err(err);
}

static void nothing(const char *fmt, ...) NG_PRINTF(1, 2) NG_NORETURN;

static void nothing(const char *fmt, ...)
{
	struct ng_err err;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	open_output(NULL);
	if (output && ng_writer_close(output, NG_NOTHING, text, &err) < 0)
		ng_die_err(&err);
	if (!opt.idle_ok)
		ng_info("%s", text);
	else
		ng_verbose("%s", text);
	exit(ng_finish(opt.idle_ok ? NG_OK : NG_NOTHING));
}

/* ---- what is handed over ---- */

/* Takes o. */
static void add(struct ng_object *o, const char *kind, const char *site)
{
	static size_t cap;
	struct ng_statement s;
	struct ng_err err;

	if (ng_object_statement(&s, o, &err) < 0)
		die(&err);
	ng_grow(&items, &cap, n_items + 1, sizeof *items);
	struct item *it = &items[n_items++];
	memset(it, 0, sizeof *it);
	it->object = o;
	it->kind = kind;
	snprintf(it->site, sizeof it->site, "%s", site);
	memcpy(it->hex, s.object, NG_HASH_HEX);
}

static void add_update(const struct ng_update *u)
{
	struct ng_name name = ng_object_name(NG_OBJ_UPDATE, round_given, u->site);
	struct ng_object *o;
	struct ng_err err;

	if (ng_object_open(&o, rounds.board, &name, &err) < 0)
		die(&err);
	add(o, "update", u->site);
	if (strcmp(items[n_items - 1].hex, u->hex) != 0) {
		ng_fail(&err, NG_TEMPFAIL, "update/%05ld/%s was replaced while it was read", round_given, u->site);
		die(&err);
	}
}

/* The global of round_given, verified, its header and content digest. */
static void take_global(struct ng_header *header, char content[NG_HASH_HEX])
{
	struct ng_object *o;
	struct ng_err err;

	if (round_given == rounds.newest) {
		o = rounds.global;
		rounds.global = NULL;
		ng_header_copy(header, &rounds.global_header);
	} else if (round_given > rounds.newest) {
		nothing("there is no global %ld yet, the newest is %ld", round_given, rounds.newest);
	} else if (ng_rounds_global(&o, &rounds, round_given, header, &err) < 0) {
		if (err.code == NG_NOINPUT)
			ng_fail(&err, NG_NOINPUT, "global/%05ld is not on the blackboard (pruned?); the newest is %ld",
				round_given, rounds.newest);
		die(&err);
	}
	if (content && ng_rounds_content(content, &rounds, o, &err) < 0)
		die(&err);
	add(o, "global", "");
}

static bool last_round(long round)
{
	long all = rounds.manifest.experiment.rounds;

	return all > 0 && round >= all;
}

/* A site asks whether there is work for it. */
static void ask_for_site(const struct ng_header *header, const char *content)
{
	struct ng_update own;
	struct ng_err err;
	int rc;

	if (last_round(round_given))
		nothing("the experiment is complete: global %ld is the last", round_given);
	rc = ng_rounds_update(&own, &rounds, round_given, opt.site, content, header, &err);
	if (rc < 0)
		die(&err);
	if (rc == 1)
		nothing("the update of '%s' for round %ld is on the blackboard already", opt.site, round_given);
	if (own.reason[0])
		ng_warn("the update of '%s' for round %ld does not count: %s", opt.site, round_given, own.reason);
}

static void select_global(void)
{
	struct ng_header header = { 0 };
	bool ask = opt.site && !opt.output && opt.round < 0;
	char content[NG_HASH_HEX];
	struct ng_err err;

	round_given = opt.round >= 0 ? opt.round : rounds.newest;
	take_global(&header, ask ? content : NULL);
	if (ask) {
		ask_for_site(&header, content);
		long long now = (long long)time(NULL), span = opt.claim;
		if (span == 0)
			span = rounds.manifest.experiment.deadline;
		if (span == 0)
			span = CLAIM_SECONDS;
		if (!opt.dry_run && ng_rounds_claim(&rounds, round_given, opt.site, now, now + span, &err) < 0)
			ng_warn("the others do not learn that '%s' is at work: %s", opt.site, err.text);
	}
	ng_header_release(&header);
}

static void missing(char *out, size_t size, const struct ng_update *u, size_t n)
{
	struct ng_claim *claims = NULL;
	size_t k = 0, at = 0;
	long long now = (long long)time(NULL);

	out[0] = '\0';
	if (ng_rounds_claims(&claims, &k, &rounds, round_given, NULL) < 0)
		return;
	for (size_t i = 0; i < k && at < size; i++) {
		bool has = claims[i].until < now;
		for (size_t j = 0; j < n; j++)
			has = has || (u[j].valid && strcmp(u[j].site, claims[i].site) == 0);
		if (!has)
			at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "; at work: ", claims[i].site);
	}
	free(claims);
}

static void select_updates(void)
{
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	struct ng_header header = { 0 };
	char content[NG_HASH_HEX], who[300];
	struct ng_update *list;
	size_t n, valid = 0;
	struct ng_err err;

	round_given = opt.round >= 0 ? opt.round : rounds.newest;
	if (last_round(round_given))
		nothing("the experiment is complete: global %ld is the last", round_given);
	take_global(&header, content);
	if (ng_rounds_updates(&list, &n, &rounds, round_given, content, &header, &err) < 0)
		die(&err);
	for (size_t i = 0; i < n; i++) {
		valid += list[i].valid;
		if (!list[i].valid)
			ng_warn("update/%05ld/%s is left out: %s", round_given, list[i].site, list[i].reason);
	}
	if (opt.round < 0) {
		struct ng_statement s;
		if (ng_object_statement(&s, items[0].object, &err) < 0)
			die(&err);
		enum ng_round_state st = ng_rounds_decide(exp, round_given, s.created, valid, (long long)time(NULL));
		missing(who, sizeof who, list, n);
		if (st == NG_ROUND_STALLED)
			nothing("round %ld is stalled: %zu of %ld updates, and the deadline has passed%s", round_given,
				valid, exp->quorum, who);
		if (st != NG_ROUND_READY)
			nothing("round %ld is not complete: %zu of %ld updates%s", round_given, valid,
				ng_experiment_expect(exp), who);
	} else if (valid == 0) {
		nothing("round %ld has no valid update", round_given);
	}
	for (size_t i = 0; i < n; i++)
		if (list[i].valid)
			add_update(&list[i]);
	free(list);
	ng_header_release(&header);
}

/* The newest round in which the site has an update. */
static long round_of_site(void)
{
	struct ng_entry *list;
	struct ng_err err;
	size_t n;
	long round = -1;

	if (ng_board_list(rounds.board, NG_OBJ_UPDATE, -1, &list, &n, NULL, &err) < 0)
		die(&err);
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].name.leaf, opt.update_of) == 0 && list[i].name.n <= rounds.newest)
			round = list[i].name.n;
	free(list);
	if (round < 0)
		nothing("there is no update of '%s'", opt.update_of);
	return round;
}

static void select_site(void)
{
	struct ng_header header = { 0 };
	char content[NG_HASH_HEX];
	struct ng_update u;
	struct ng_err err;
	int rc;

	round_given = opt.round >= 0 ? opt.round : round_of_site();
	take_global(&header, content);
	rc = ng_rounds_update(&u, &rounds, round_given, opt.update_of, content, &header, &err);
	if (rc < 0)
		die(&err);
	if (rc == 0 && u.reason[0]) {
		ng_fail(&err, NG_REFUSED, "the update of '%s' for round %ld: %s", opt.update_of, round_given, u.reason);
		die(&err);
	}
	if (rc == 0)
		nothing("there is no update of '%s' for round %ld", opt.update_of, round_given);
	add_update(&u);
	ng_header_release(&header);
}

/* ---- handing over ---- */

static json_t *opening(void)
{
	json_t *frames = json_array();

	for (size_t i = 0; i < n_items; i++) {
		json_t *f = json_pack("{s:s, s:s, s:I}", "kind", items[i].kind, "digest", items[i].hex, "round",
			(json_int_t)round_given);
		if (items[i].site[0])
			json_object_set_new(f, "site", json_string(items[i].site));
		json_array_append_new(frames, f);
	}
	return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", rounds.manifest.name, "id", rounds.id, "experiment",
		rounds.manifest.config.experiment, "manifest", (json_int_t)rounds.manifest.version, "program",
		"ng-pull", "frames", frames);
}

/* Byte for byte, hashed again on the way, and exactly one frame. */
static void pass_on(struct item *it)
{
	struct ng_walk walk = { 0 };
	struct ng_verified v;
	struct ng_err err;
	char path[128], *buf = ng_xmalloc(NG_STREAM_BLOCK);
	uint64_t done = 0, all = ng_object_entry(it->object)->bytes;
	ptrdiff_t n;

	ng_object_path(path, &ng_object_entry(it->object)->name);
	if (ng_verified_start(&v, it->object, &err) < 0)
		die(&err);
	while ((n = ng_verified_read(&v, buf, NG_STREAM_BLOCK, &err)) > 0) {
		if (ng_walk_feed(&walk, buf, (size_t)n, &err) < 0) {
			ng_fail_prefix(&err, "%s", path);
			die(&err);
		}
		if (ng_writer_raw(output, buf, (size_t)n, &err) < 0)
			die(&err);
		done += (uint64_t)n;
		ng_progress("%s %.0f%%", path, 100.0 * (double)done / (double)all);
	}
	if (n < 0 || ng_walk_end(&walk, &err) < 0 || ng_writer_raw_end(output, &err) < 0)
		die(&err);
	free(buf);
}

static void send_stream(void)
{
	json_t *head = opening();
	struct ng_err err;

	open_output(head);
	json_decref(head);
	for (size_t i = 0; i < n_items; i++)
		pass_on(&items[i]);
	ng_progress_end();
	if (ng_writer_close(output, NG_OK, NULL, &err) < 0)
		ng_die_err(&err);
}

/* A verified copy of the payload as one file. */
static void copy_to(struct item *it, const char *path)
{
	struct ng_verified v;
	struct ng_out out;
	struct ng_err err;
	char *buf = ng_xmalloc(NG_STREAM_BLOCK);
	ptrdiff_t n;

	if (ng_verified_start(&v, it->object, &err) < 0 || ng_out_open(&out, path, &err) < 0)
		die(&err);
	while ((n = ng_verified_read(&v, buf, NG_STREAM_BLOCK, &err)) > 0)
		if (ng_write_full(out.fd, buf, (size_t)n) < 0)
			ng_die_errno(NG_IOERR, "cannot write '%s'", path);
	if (n < 0 || ng_out_commit(&out, &err) < 0)
		die(&err);
	free(buf);
}

static bool wanted(const char *name)
{
	for (size_t i = 0; i < n_items; i++)
		if (strncmp(name, items[i].hex, 64) == 0)
			return true;
	return false;
}

/* Copies of earlier lists go. */
static void clean(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char hex[NG_HASH_HEX];

	while (d && (e = readdir(d)) != NULL) {
		snprintf(hex, sizeof hex, "%.64s", e->d_name);
		if (!ng_hash_valid(hex) || wanted(e->d_name))
			continue;
		char *path = ng_xasprintf("%s/%s", dir, e->d_name);
		unlink(path);
		free(path);
	}
	if (d)
		closedir(d);
}

/* The newest accepted experiment file, which outranks the global's own. */
static char *place_experiment(const char *dir)
{
	const char *text = rounds.manifest.config.experiment;
	char hex[NG_HASH_HEX], *path;
	struct ng_err err;

	ng_hash_bytes(hex, text, strlen(text));
	path = ng_xasprintf("%s/%s.json", dir, hex);
	if (ng_out_put(path, text, strlen(text), 0, &err) < 0)
		die(&err);
	return path;
}

/* Files that hold one frame each: those of the board itself where an object is
 * one file, else copies named by their digest. */
static void place_files(void)
{
	char *dir = opt.output ? ng_xstrdup(opt.output) : ng_xasprintf("%s/files", rounds.pins.dir);
	struct ng_err err;

	if (ng_mkdirs(dir, opt.output ? 0777 : 0700, &err) < 0)
		die(&err);
	if (!opt.output)
		clean(dir);
	for (size_t i = 0; i < n_items; i++) {
		struct item *it = &items[i];
		const char *plain = ng_object_plain_path(it->object);
		char hex[NG_HASH_HEX];
		struct stat st;
		if (plain && !opt.output) {
			it->path = ng_xstrdup(plain);
			continue;
		}
		it->path = ng_xasprintf("%s/%s.safetensors.zst", dir, it->hex);
		ng_progress("%s %s", it->kind, it->site);
		if (stat(it->path, &st) < 0 || !S_ISREG(st.st_mode) || ng_hash_file(hex, it->path) < 0 ||
			strcmp(hex, it->hex) != 0)
			copy_to(it, it->path);
	}
	ng_progress_end();
	if (opt.updates)
		experiment_path = place_experiment(dir);
	free(dir);
}

static void print_items(void)
{
	if (experiment_path && !opt.json)
		printf("%s\texperiment\t-\t%s\n", experiment_path, rounds.id);
	for (size_t i = 0; i < n_items; i++) {
		const struct item *it = &items[i];
		if (!opt.json) {
			printf("%s\t%s\t%s\t%s\n", it->path ? it->path : "-", it->kind, it->site[0] ? it->site : "-",
				it->hex);
			continue;
		}
		json_t *all = json_pack("{s:s, s:s, s:I, s:I}", "kind", it->kind, "digest", it->hex, "round",
			(json_int_t)round_given, "bytes", (json_int_t)ng_object_entry(it->object)->bytes);
		if (it->site[0])
			json_object_set_new(all, "site", json_string(it->site));
		if (it->path)
			json_object_set_new(all, "path", json_string(it->path));
		char *text = ng_json_canonical(all);
		puts(text);
		free(text);
		json_decref(all);
	}
}

/* ---- a model folder ---- */

static void start_stream(struct ng_stream **s, struct ng_verified *v, struct item *it)
{
	struct ng_err err;
	int rc;

	if (ng_verified_start(v, it->object, &err) < 0 ||
		ng_stream_open_fn(s, ng_verified_read, v, it->kind, 0, &err) < 0)
		die(&err);
	rc = ng_stream_next(*s, &err);
	if (rc == 0)
		rc = ng_fail(&err, NG_DATA, "the %s holds no frame", it->kind);
	if (rc < 0)
		die(&err);
}

static void write_folder(void)
{
	struct ng_stream *global, *delta = NULL;
	struct ng_verified vg, vd;
	char *temp = NULL;
	int slot = -1;
	struct ng_err err;

	if (ng_file_exists(opt.output))
		nothing("'%s' exists already", opt.output);
	if (opt.model) {
		if (ng_config_check_folder(&rounds.manifest.config, opt.model, true, &err) < 0)
			die(&err);
	} else {
		temp = ng_xasprintf("%s/base.%ld", rounds.pins.dir, (long)getpid());
		ng_remove_tree(temp);
		slot = ng_sig_guard(temp);
		if (ng_manifest_restore(&rounds.manifest, rounds.board, temp, &err) < 0)
			die(&err);
	}
	start_stream(&global, &vg, &items[0]);
	if (n_items > 1)
		start_stream(&delta, &vd, &items[1]);
	int rc = ng_folder_write(opt.output, temp ? temp : opt.model, global, delta, &err);
	if (temp) {
		ng_remove_tree(temp);
		ng_sig_release(slot);
		free(temp);
	}
	if (rc < 0)
		die(&err);
	ng_stream_close(global);
	ng_stream_close(delta);
	items[0].path = ng_xstrdup(opt.output);
	if (opt.json)
		print_items();
	else
		ng_info("wrote '%s': %ld.%s.0", opt.output, round_given, n_items > 1 ? items[1].site : "0");
}

static void check_combinations(int operands)
{
	if (operands)
		ng_opt_misuse("ng-pull takes no operands");
	if (!opt.board || !opt.experiment)
		ng_opt_misuse("%s is needed", opt.board ? "-e" : "-b");
	if (opt.updates && opt.update_of)
		ng_opt_misuse("--updates and --update-of do not go together");
	if (opt.updates && opt.output && !opt.list)
		ng_opt_misuse("--updates gives no model folder; with --list, -o says where the files go");
	if (opt.model && (!opt.output || opt.list))
		ng_opt_misuse("-m is the base of a model folder: it needs -o");
	if (opt.json && !opt.list && !opt.output && !opt.dry_run)
		ng_opt_misuse("-j goes with --list, -o or -n: standard output is a stream");
	if (opt.site && !ng_name_valid(opt.site))
		ng_opt_misuse("'%s' is no name of a site: [a-z0-9-], at most 64", opt.site);
	if (opt.update_of && !ng_name_valid(opt.update_of))
		ng_opt_misuse("'%s' is no name of a site: [a-z0-9-], at most 64", opt.update_of);
	if (opt.accept && !ng_hash_valid(opt.accept))
		ng_opt_misuse("--accept-rollback needs an experiment id, 64 hexadecimal digits");
	streaming = !opt.list && !opt.output && !opt.dry_run;
	if (streaming && isatty(STDOUT_FILENO))
		ng_die(NG_USAGE,
			"a stream is binary and not written to a terminal: pipe or redirect it, or give -o DIR");
}

int main(int argc, char **argv)
{
	struct ng_err err;
	unsigned flags;

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv,
		"[-nqv] -b board -e name [-s site] [-r n]\n"
		"[-nqv] -b board -e name --updates [-r n]\n"
		"[-jqv] -b board -e name --list [--updates] [-o dir]\n"
		"[-jqv] -b board -e name [-r n] [--update-of site] [-m dir] -o dir",
		options);
	check_combinations(argc - first);

	flags = (opt.dry_run ? NG_ROUNDS_NO_PIN : 0) | (opt.updates || opt.update_of ? NG_ROUNDS_DEEP : 0);
	if (ng_rounds_open(&rounds, opt.board, opt.experiment, opt.state, opt.accept, flags, &err) < 0)
		die(&err);
	if (rounds.newest < opt.at_least) {
		ng_fail(&err, NG_REFUSED, "the newest global is %ld, older than --at-least %ld", rounds.newest,
			opt.at_least);
		die(&err);
	}
	if (opt.updates)
		select_updates();
	else if (opt.update_of)
		select_site();
	else
		select_global();

	if (opt.list && !opt.dry_run)
		place_files();
	if (opt.list || opt.dry_run)
		print_items();
	else if (opt.output)
		write_folder();
	else
		send_stream();
	return ng_finish(NG_OK);
}
