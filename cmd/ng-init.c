/*
 * ng-init - create an experiment on a blackboard: its manifest with the model
 * folder's small files, the base weights, and the global of round 0.
 *
 * The manifest goes first and is the lock: whoever publishes it owns the name.
 * Nothing in it depends on the time or the host, so that the same command run
 * again after a crash finds its own manifest and adds what is missing.
 */
#include "common/base/compat.h"

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/progress.h"
#include "common/board/rounds.h"
#include "common/model/config.h"
#include "common/model/model.h"
#include "common/tensor/folder.h"
#include "common/tensor/stats.h"

#define BLOCK 65536

static struct {
	const char *board, *experiment, *model, *shared, *state;
	struct ng_opt_list set;
	bool open, dry_run, json, idle_ok;
} opt = { .shared = "umask" };

static const struct ng_opt options[] = {
	NG_OPT_BOARD(&opt.board),
	NG_OPT_DRY_RUN(&opt.dry_run),
	NG_OPT_EXPERIMENT(&opt.experiment),
	NG_OPT_IDLE_OK(&opt.idle_ok),
	NG_OPT_JSON(&opt.json),
	NG_OPT_MODEL(&opt.model),
	{ "open", 0, NG_OPT_FLAG, &opt.open, 0, 0, NULL, "anyone who can write the blackboard may take part" },
	NG_OPT_QUIET,
	{ "set", 0, NG_OPT_LIST, &opt.set, 0, 0, "key=value", "override a value of the experiment file; repeatable" },
	{ "shared", 0, NG_OPT_STRING, &opt.shared, 0, 0, "who", "who may write: umask, group or all (default umask)" },
	NG_OPT_STATE(&opt.state),
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

struct init {
	struct ng_experiment exp;
	struct ng_weights weights;
	struct ng_header global; /* its tensors */
	struct ng_rounds r;
	bool created; /* something was missing and is there now */
	char content[NG_HASH_HEX];
	char global_hex[NG_HASH_HEX];
};

static void die_usage(const struct ng_err *err)
{
	ng_die(NG_USAGE, "%s", err->text);
}

static unsigned shared_flags(void)
{
	if (strcmp(opt.shared, "umask") == 0)
		return 0;
	if (strcmp(opt.shared, "group") == 0)
		return NG_BOARD_GROUP;
	if (strcmp(opt.shared, "all") == 0)
		return NG_BOARD_GROUP | NG_BOARD_ALL;
	ng_opt_misuse("--shared is umask, group or all, not '%s'", opt.shared);
}

static void read_experiment(struct init *in, const char *path)
{
	struct ng_err err;

	if (ng_experiment_load(&in->exp, path, opt.set.item, opt.set.n, &err) < 0)
		ng_die_err(&err);
	if (ng_experiment_supported(&in->exp, &err) < 0)
		die_usage(&err);
	if (opt.experiment && strcmp(opt.experiment, in->exp.name) != 0)
		ng_die(NG_USAGE, "-e names '%s', the experiment file '%s'", opt.experiment, in->exp.name);
}

/* The pooler and heads take no part in an embedding: nobody trains them, so they need not travel. */
static bool trains(void *arg, const char *name)
{
	return ng_experiment_trains(arg, name) && ng_model_trains(name);
}

/* A global with a NaN in it would be refused by everyone. */
static int check_finite(const struct init *in, struct ng_err *err)
{
	float *block = ng_xarray(BLOCK, sizeof *block);
	int rc = 0;

	for (size_t i = 0; i < in->global.n && rc == 0; i++) {
		const struct ng_tensor *t = ng_header_find(&in->weights.header, in->global.tensor[i].name);
		struct ng_stats st;
		ng_stats_init(&st);
		for (uint64_t at = 0; at < t->count && rc == 0; at += BLOCK) {
			size_t n = t->count - at < BLOCK ? (size_t)(t->count - at) : BLOCK;
			rc = ng_weights_read_f32(&in->weights, t, at, block, n, err);
			ng_stats_add(&st, block, n);
		}
		if (rc == 0 && st.nonfinite > 0)
			rc = ng_fail(err, NG_DATA, "'%s': the tensor '%s' holds %llu values that are not finite",
				opt.model, t->name, (unsigned long long)st.nonfinite);
	}
	free(block);
	return rc;
}

static void read_model(struct init *in, char base[NG_HASH_HEX])
{
	struct ng_model_config cfg = { 0 };
	struct ng_err err;

	if (ng_model_config_load(&cfg, opt.model, &err) < 0 || ng_weights_open(&in->weights, opt.model, 0, &err) < 0 ||
		ng_folder_global_header(&in->global, &in->weights, trains, &in->exp, &err) < 0 ||
		check_finite(in, &err) < 0 || ng_weights_digest(base, &in->weights, &err) < 0)
		ng_die_err(&err);
	ng_model_config_release(&cfg);
}

/* ---- what is published ---- */

/* 1: published. 0: it is there already. Dies otherwise. */
static int commit(struct ng_object_writer *w, struct ng_statement *s)
{
	struct ng_err err;

	if (ng_object_commit(w, s, &err) == 0)
		return 1;
	if (err.code != NG_NOTHING)
		ng_die_err(&err);
	return 0;
}

static int put_manifest(struct init *in, const char *text)
{
	struct ng_name name = ng_object_name(NG_OBJ_MANIFEST, 0, NULL);
	struct ng_object_writer *w;
	struct ng_statement s;
	struct ng_err err;

	if (ng_object_new(&w, in->r.board, &name, &err) < 0 || ng_object_write(w, text, strlen(text), &err) < 0)
		ng_die_err(&err);
	for (size_t i = 0; i < in->r.manifest.n_files; i++) {
		const struct ng_manifest_file *f = &in->r.manifest.file[i];
		char *path = ng_xasprintf("%s/%s", opt.model, f->path), *data, hex[NG_HASH_HEX];
		size_t len;
		if (ng_file_read(&data, &len, path, NG_SMALL_FILE_MAX, &err) < 0)
			ng_die_err(&err);
		ng_hash_bytes(hex, data, len);
		if (len != f->size || strcmp(hex, f->hex) != 0)
			ng_die(NG_TEMPFAIL, "'%s' was changed while it was read", path);
		if (ng_object_add_file(w, f->path, data, len, &err) < 0)
			ng_die_err(&err);
		free(data);
		free(path);
	}
	ng_rounds_statement(&s, &in->r, NG_OBJ_MANIFEST, 0, "", "");
	return commit(w, &s);
}

/* The manifest on the board: is it the one that we would write? */
static void compare_manifest(struct init *in, const char *text)
{
	struct ng_name name = ng_object_name(NG_OBJ_MANIFEST, 0, NULL);
	struct ng_object *o;
	struct ng_err err;
	size_t len;
	char *there;

	if (ng_object_open(&o, in->r.board, &name, &err) < 0 ||
		ng_object_load(&there, &len, o, NG_MANIFEST_MAX, &err) < 0) {
		ng_fail_prefix(&err, "the experiment '%s' exists", in->exp.name);
		ng_die_err(&err);
	}
	if (len != strlen(text) || memcmp(there, text, len) != 0) {
		ng_info("the experiment '%s' exists already on '%s', with another file or model", in->exp.name,
			opt.board);
		exit(ng_finish(opt.idle_ok ? NG_OK : NG_NOTHING));
	}
	free(there);
	ng_object_close(o);
}

/* Is an object there and whole?  One that is damaged is taken away, to be written anew. */
static bool have(struct init *in, const struct ng_name *name)
{
	struct ng_object *o;
	struct ng_statement s;
	struct ng_err err;
	char path[128];

	if (ng_object_open(&o, in->r.board, name, &err) < 0) {
		if (err.code == NG_NOINPUT || err.code == NG_DATA) /* absent, or litter that publishing clears */
			return false;
		ng_die_err(&err);
	}
	if (ng_rounds_check_statement(&s, &in->r, o, &err) == 0 && ng_object_verify(o, &err) == 0) {
		if (name->kind == NG_OBJ_GLOBAL)
			memcpy(in->global_hex, s.object, NG_HASH_HEX);
		ng_object_close(o);
		return true;
	}
	if (err.code != NG_DATA)
		ng_die_err(&err);
	ng_object_path(path, name);
	ng_warn("%s; it is written again", err.text);
	if (!opt.dry_run && ng_object_discard(o, &err) < 0)
		ng_die_err(&err);
	ng_object_close(o);
	return false;
}

static int write_base(const struct init *in, struct ng_writer *wr, struct ng_err *err)
{
	struct ng_header h;
	char *buf = ng_xmalloc(NG_STREAM_BLOCK);
	int rc;

	ng_header_copy(&h, &in->weights.header);
	while (h.meta.n > 0)
		ng_meta_set(&h.meta, h.meta.item[h.meta.n - 1].key, NULL);
	ng_meta_set(&h.meta, "format", "pt");
	rc = ng_writer_begin(wr, &h, err);
	for (size_t i = 0; i < h.n && rc == 0; i++) {
		const struct ng_tensor *t = &in->weights.header.tensor[i];
		for (uint64_t at = 0; at < t->bytes && rc == 0; at += NG_STREAM_BLOCK) {
			size_t n = t->bytes - at < NG_STREAM_BLOCK ? (size_t)(t->bytes - at) : NG_STREAM_BLOCK;
			rc = ng_weights_read(&in->weights, t, at, buf, n, err);
			if (rc == 0)
				rc = ng_writer_data(wr, buf, n, err);
		}
	}
	ng_header_release(&h);
	free(buf);
	return rc;
}

static int write_global(const struct init *in, struct ng_writer *wr, struct ng_err *err)
{
	struct ng_frame f;
	struct ng_header h;
	int rc;

	ng_frame_init(&f);
	f.kind = NG_KIND_GLOBAL;
	snprintf(f.name, sizeof f.name, "%s", in->exp.name);
	memcpy(f.id, in->r.id, NG_HASH_HEX);
	f.round = 0;
	f.config = in->r.manifest.config_text;
	ng_header_copy(&h, &in->global);
	rc = ng_frame_fill(&h.meta, &f, err);
	if (rc == 0)
		rc = ng_writer_begin(wr, &h, err);
	if (rc == 0)
		rc = ng_folder_write_global(wr, &h, &in->weights, err);
	ng_header_release(&h);
	return rc;
}

/* base or global/00000, unless it is there. */
static void put_frame(struct init *in, enum ng_object_kind kind)
{
	struct ng_name name = ng_object_name(kind, 0, NULL);
	struct ng_object_writer *w;
	struct ng_writer *wr;
	struct ng_statement s;
	struct ng_err err;
	char path[128];

	if (have(in, &name))
		return;
	in->created = true;
	if (opt.dry_run)
		return;
	ng_object_path(path, &name);
	ng_progress("writing %s", path);
	if (ng_object_new(&w, in->r.board, &name, &err) < 0 ||
		ng_writer_open_fn(&wr, ng_object_write, w, path, NG_WRITER_DIGEST, NULL, &err) < 0 ||
		(kind == NG_OBJ_BASE ? write_base(in, wr, &err) : write_global(in, wr, &err)) < 0 ||
		ng_writer_end(wr, &err) < 0)
		ng_die_err(&err);
	if (kind == NG_OBJ_BASE && strcmp(ng_writer_digest(wr), in->r.manifest.config.base) != 0)
		ng_die(NG_TEMPFAIL, "the weights of '%s' were changed while they were read", opt.model);
	ng_rounds_statement(&s, &in->r, kind, 0, "", kind == NG_OBJ_BASE ? ng_writer_digest(wr) : "");
	if (ng_writer_close(wr, NG_OK, NULL, &err) < 0)
		ng_die_err(&err);
	if (kind == NG_OBJ_GLOBAL)
		memcpy(in->global_hex, ng_object_digest(w), NG_HASH_HEX);
	commit(w, &s);
	ng_progress_end();
	ng_verbose("wrote %s", path);
}

static void put_log(struct init *in, const char *kind, const char *object, const char *content)
{
	json_t *entry = ng_rounds_log_find(&in->r, kind, 0, object);
	struct ng_err err;

	if (entry) {
		json_decref(entry);
		return;
	}
	in->created = true;
	if (opt.dry_run)
		return;
	entry = json_pack("{s:s, s:i, s:s}", "kind", kind, "round", 0, "object", object);
	if (content)
		json_object_set_new(entry, "content", json_string(content));
	if (ng_rounds_log(&in->r, entry, &err) < 0)
		ng_die_err(&err);
}

/* Content digest of the global that is on the board. */
static void global_content(struct init *in)
{
	struct ng_object *o;
	struct ng_err err;

	if (ng_rounds_global(&o, &in->r, 0, NULL, &err) < 0 || ng_rounds_content(in->content, &in->r, o, &err) < 0)
		ng_die_err(&err);
	ng_object_close(o);
}

/* This host's state now knows this experiment, whatever it knew of one before it at this place. */
static void pin(struct init *in)
{
	struct ng_pins now = { .global = -1 };
	struct ng_err err;

	memcpy(now.id, in->r.id, NG_HASH_HEX);
	memcpy(now.manifest_hex, in->r.id, NG_HASH_HEX);
	now.global = 0;
	memcpy(now.global_hex, in->global_hex, NG_HASH_HEX);
	if (ng_pins_open(&in->r.pins, in->r.board, opt.state, &err) < 0 ||
		ng_pins_set(&in->r.pins, in->r.board, &now, true, &err) < 0)
		ng_die_err(&err);
}

static void report(const struct init *in)
{
	const char *what = !in->created ? "exists" : opt.dry_run ? "would be created" : "created";

	if (!opt.json) {
		printf("%s\t%s\n", in->exp.name, in->r.id);
		ng_info("%s: experiment '%s' on '%s' (open: anyone who can write there takes part)", what, in->exp.name,
			ng_board_address(in->r.board));
		return;
	}
	json_t *all = json_pack("{s:s, s:s, s:b, s:s, s:i, s:I}", "experiment", in->exp.name, "id", in->r.id, "created",
		in->created && !opt.dry_run, "base", in->r.manifest.config.base, "tensors", (int)in->global.n, "bytes",
		(json_int_t)in->global.data_bytes);
	char *text = ng_json_canonical(all);
	puts(text);
	free(text);
	json_decref(all);
}

int main(int argc, char **argv)
{
	struct init in = { 0 };
	char base[NG_HASH_HEX], *text;
	struct ng_err err;
	unsigned shared;
	bool ours = false;

	ng_start(argv[0]);
	int first = ng_opt_parse(
		argc, argv, "[-jnqv] --open -b board [-e name] -m dir [--set key=value] experiment.json", options);
	if (argc - first != 1)
		ng_opt_misuse("one experiment file is needed");
	if (!opt.board || !opt.model)
		ng_opt_misuse("%s is needed", opt.board ? "-m" : "-b");
	if (!opt.open)
		ng_die(NG_USAGE,
			"only open experiments can be made so far: give --open (members come with a later version)");
	shared = shared_flags();

	read_experiment(&in, argv[first]);
	read_model(&in, base);
	if (ng_manifest_make(&in.r.manifest, in.exp.name, in.exp.text, opt.model, base, &err) < 0)
		ng_die_err(&err);
	text = ng_manifest_text(&in.r.manifest);
	ng_hash_bytes(in.r.id, text, strlen(text));

	if (ng_board_open(&in.r.board, opt.board, in.exp.name, opt.dry_run ? 0 : NG_BOARD_CREATE | shared, &err) < 0) {
		if (!opt.dry_run || err.code != NG_NOINPUT)
			ng_die_err(&err);
		ng_info("would create '%s' on '%s'", in.exp.name, opt.board);
		return ng_finish(NG_OK);
	}
	struct ng_name name = ng_object_name(NG_OBJ_MANIFEST, 0, NULL);
	struct ng_object *o = NULL;
	if (ng_object_open(&o, in.r.board, &name, &err) == 0 || err.code == NG_TEMPFAIL) {
		ng_object_close(o);
		compare_manifest(&in, text);
	} else if (err.code != NG_NOINPUT && err.code != NG_DATA) {
		ng_die_err(&err);
	} else if (!opt.dry_run) {
		ng_board_tidy(in.r.board, NG_STALE_SECONDS, NULL);
		ours = put_manifest(&in, text) == 1;
		in.created = ours;
		if (!ours)
			compare_manifest(&in, text);
	}
	put_frame(&in, NG_OBJ_BASE);
	put_frame(&in, NG_OBJ_GLOBAL);
	put_log(&in, "manifest", in.r.id, NULL);
	if (!opt.dry_run) {
		global_content(&in);
		put_log(&in, "global", in.global_hex, in.content);
		if (ours)
			pin(&in);
	}
	report(&in);
	return ng_finish(in.created || opt.idle_ok ? NG_OK : NG_NOTHING);
}
