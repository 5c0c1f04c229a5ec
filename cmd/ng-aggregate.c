/*
 * ng-aggregate - reduce the updates of a round to the next global model.
 *
 * Reads a global and updates from a stream or from files, writes the new
 * global whole or not at all.  Holds no key and knows no board.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/out.h"
#include "common/base/str.h"
#include "common/fed/aggregate.h"
#include "common/fed/spool.h"
#include "common/tensor/stream.h"

static const char usage[] = "[-nqv] [-o path] [file ...]\n"
			    "[-nqv] [-o path] --files-from list";

static struct {
	const char *output, *files_from;
	bool dry_run, idle_ok, json;
	long threads;
	double max_norm;
	uint64_t memory;
} opt = { .max_norm = NG_AGGREGATE_MAX_NORM, .memory = NG_AGGREGATE_MEMORY };

static const struct ng_opt options[] = {
	NG_OPT_DRY_RUN(&opt.dry_run),
	{ "files-from", 0, NG_OPT_STRING, &opt.files_from, 0, 0, "list",
		"read a list of files, as ng-pull --list prints" },
	NG_OPT_IDLE_OK(&opt.idle_ok),
	NG_OPT_JSON(&opt.json),
	{ "max-norm", 0, NG_OPT_DOUBLE, &opt.max_norm, 0, 0, "factor",
		"largest change of a tensor, in norms of the tensor (default 10)" },
	{ "memory", 0, NG_OPT_SIZE, &opt.memory, 0, 0, "size", "resident memory to stay within (default 200M)" },
	NG_OPT_OUTPUT(&opt.output),
	NG_OPT_QUIET,
	NG_OPT_THREADS(&opt.threads),
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

static struct ng_stream *input;	 /* for ng_stream_die */
static struct ng_writer *output; /* brackets on standard output */

static void refused(const struct ng_agg_verdict *v, const char *name, void *arg)
{
	(void)arg;
	ng_warn("site '%s', '%s': %s", v->site[0] ? v->site : "?", name, v->reason);
}

/* 1 when the file begins with a zstd frame; 0 when with something else; -1. */
static int is_bare(const char *path, struct ng_err *err)
{
	unsigned char magic[4];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
	ptrdiff_t got = ng_read_full(fd, magic, sizeof magic);
	int saved = errno;
	close(fd);
	errno = saved;
	if (got < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read '%s'", path);
	return got == 4 && memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0;
}

/* Is the frame in this file a global?  One that cannot be read is not: it is refused later, with a reason. */
static bool holds_global(const char *path)
{
	struct ng_stream *s = NULL;
	struct ng_err err = { .code = NG_OK };
	bool global = ng_stream_open(&s, path, 0, &err) == 0 && ng_stream_next(s, &err) == 1 &&
		      ng_stream_frame(s)->kind == NG_KIND_GLOBAL;

	ng_stream_close(s);
	/* a lack of memory or a failing disk says nothing about the file */
	if (err.code == NG_OSERR || err.code == NG_IOERR)
		ng_die_err(&err);
	return global;
}

static void spool(struct ng_inputs *in, const char *path)
{
	struct ng_err err;

	if (ng_stream_open(&input, path, NG_STREAM_OBJECT, &err) < 0 || ng_inputs_spool(in, input, NULL, &err) < 0)
		ng_stream_die(input, &err);
	ng_stream_close(input);
	input = NULL;
}

static void add_file(struct ng_inputs *in, const char *path, const char *kind, const char *site, const char *digest)
{
	struct ng_agg_source source = { .fd = -1 };
	struct ng_err err;
	int bare;

	if (strcmp(path, "-") == 0) {
		spool(in, path);
		return;
	}
	bare = is_bare(path, &err);
	if (bare < 0)
		ng_die_err(&err);
	if (bare == 0 && !kind[0]) { /* brackets, or nothing of ours: the stream reader says which */
		spool(in, path);
		return;
	}
	source.name = ng_xstrdup(path);
	source.path = ng_xstrdup(path);
	snprintf(source.site, sizeof source.site, "%s", site);
	snprintf(source.digest, sizeof source.digest, "%s", digest);
	if (ng_inputs_add(in, &source, kind[0] ? strcmp(kind, "global") == 0 : holds_global(path), &err) < 0)
		ng_die_err(&err);
}

/* PATH, or PATH KIND SITE DIGEST between tabs; kind "experiment" is an experiment file. */
static void read_list(struct ng_inputs *in, const char *list)
{
	FILE *fp = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
	char *line = NULL, *field[4];
	size_t cap = 0, number = 0, len = 0;
	struct ng_err err;
	ssize_t got;

	if (!fp)
		ng_die_errno(NG_NOINPUT, "cannot open '%s'", list);
	while ((got = getline(&line, &cap, fp)) >= 0) {
		char *p = line;
		number++;
		if (got > 0 && line[got - 1] == '\n')
			line[got - 1] = '\0';
		if (!line[0] || line[0] == '#')
			continue;
		for (size_t i = 0; i < NG_COUNT(field); i++) {
			field[i] = p;
			p += strcspn(p, "\t");
			if (*p)
				*p++ = '\0';
		}
		if (strcmp(field[1], "experiment") == 0) {
			free(in->experiment);
			if (ng_file_read(&in->experiment, &len, field[0], NG_EXPERIMENT_MAX, &err) < 0)
				ng_die_err(&err);
			continue;
		}
		bool ok = (!field[1][0] || strcmp(field[1], "global") == 0 || strcmp(field[1], "update") == 0) &&
			  (!field[2][0] || strcmp(field[2], "-") == 0 || ng_name_valid(field[2])) &&
			  (!field[3][0] || ng_hash_valid(field[3]));
		if (!ok)
			ng_die(NG_DATA, "'%s', line %zu: not PATH, kind, site and object digest", list, number);
		add_file(in, field[0], field[1], strcmp(field[2], "-") == 0 ? "" : field[2], field[3]);
	}
	if (ferror(fp))
		ng_die_errno(NG_IOERR, "cannot read '%s'", list);
	if (fp != stdin)
		fclose(fp);
	free(line);
}

static void print_verdicts(const struct ng_agg_result *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct ng_agg_verdict *v = &r->verdict[i];
		if (!opt.json) {
			printf("%s\t%s\t%.9g\t%s\n", v->site[0] ? v->site : "-", v->digest[0] ? v->digest : "-",
				v->weight, v->reason);
			continue;
		}
		json_t *o = json_pack("{s:s,s:s,s:I,s:s}", "site", v->site, "digest", v->digest, "weight",
			(json_int_t)v->weight, "verdict", v->reason);
		char *text = ng_json_canonical(o);
		printf("%s\n", text);
		free(text);
		json_decref(o);
	}
}

/* The verified frame from the temporary file to standard output. */
static void copy_out(int fd)
{
	char *buf = ng_xmalloc(NG_STREAM_BLOCK);
	struct ng_err err;
	ptrdiff_t got;

	if (lseek(fd, 0, SEEK_SET) < 0)
		ng_die_errno(NG_IOERR, "cannot read the temporary file");
	while ((got = ng_read_full(fd, buf, NG_STREAM_BLOCK)) > 0)
		if (ng_writer_raw(output, buf, (size_t)got, &err) < 0)
			ng_die_err(&err);
	if (got < 0)
		ng_die_errno(NG_IOERR, "cannot read the temporary file");
	free(buf);
	if (ng_writer_raw_end(output, &err) < 0 || ng_writer_close(output, NG_OK, NULL, &err) < 0)
		ng_die_err(&err);
	output = NULL;
}

/* No new global: the closing says so downstream; --idle-ok is about our own exit status. */
static int nothing(const struct ng_err *why)
{
	struct ng_err err;

	if (!opt.idle_ok)
		ng_stream_die(NULL, why);
	ng_info("%s", why->text);
	if (output && ng_writer_close(output, NG_NOTHING, why->text, &err) < 0)
		ng_die_err(&err);
	return ng_finish(NG_OK);
}

int main(int argc, char **argv)
{
	struct ng_inputs in;
	struct ng_agg_result result;
	struct ng_err err;
	struct ng_out out;
	bool to_file, to_stdout;
	int fd = -1;

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv, usage, options);
	if (opt.files_from && first < argc)
		ng_opt_misuse("--files-from and file operands exclude each other");
	if (opt.json && !opt.dry_run)
		ng_opt_misuse("--json is for --dry-run: standard output holds the model");
	if (!(opt.max_norm > 0 && opt.max_norm <= 1e30))
		ng_opt_misuse("--max-norm must be above 0");
	to_file = !opt.dry_run && opt.output && strcmp(opt.output, "-") != 0;
	to_stdout = !opt.dry_run && !to_file;

	ng_inputs_init(&in);
	if (to_stdout &&
		ng_writer_open_fd(&output, STDOUT_FILENO, "standard output", NG_WRITER_BRACKETS, NULL, &err) < 0)
		ng_die_err(&err);
	if (opt.files_from)
		read_list(&in, opt.files_from);
	for (int i = first; i < argc; i++)
		add_file(&in, argv[i], "", "", "");
	if (!opt.files_from && first == argc)
		spool(&in, "-");
	if (opt.files_from && !in.global.name && in.n == 0) {
		/* ng-pull --list prints nothing when there is nothing to do */
		ng_fail(&err, NG_NOTHING, "the list is empty");
		return nothing(&err);
	}
	if (!in.global.name)
		ng_die(NG_DATA, "no global model among what was read");

	if (to_file && ng_out_open(&out, opt.output, &err) < 0)
		ng_die_err(&err);
	if (to_stdout && (fd = ng_temp_fd(NULL, &err)) < 0)
		ng_die_err(&err);
	const struct ng_agg_opts opts = { .threads = (int)(opt.threads ? opt.threads : ng_cpu_count()),
		.memory = opt.memory,
		.max_norm = opt.max_norm,
		.experiment = in.experiment,
		.refused = refused };
	int failed = ng_aggregate(&result, &in.global, in.update, in.n, &opts, to_file ? out.fd : fd, &err);
	if (opt.dry_run)
		print_verdicts(&result);
	if (failed && to_file)
		ng_out_abort(&out);
	if (failed && err.code == NG_NOTHING)
		return nothing(&err);
	if (failed)
		ng_die_err(&err);
	if (to_file && ng_out_commit(&out, &err) < 0)
		ng_die_err(&err);
	if (to_stdout)
		copy_out(fd);
	ng_info("global/%05ld of '%s': %zu of %zu updates, content %s", result.round, result.name, result.accepted,
		result.n, result.digest[0] ? result.digest : "not written");
	ng_verbose("%d reading%s of the updates", result.passes, result.passes == 1 ? "" : "s");
	ng_agg_result_release(&result);
	ng_inputs_release(&in);
	return ng_finish(NG_OK);
}
