/*
 * ng-show - what is in a stream, a file, a model folder or an object of a board.
 *
 * Reads everything once, in blocks, and checks it as every other program would:
 * what ng-show prints without complaint, the others can read.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/out.h"
#include "common/board/statement.h"
#include "common/tensor/folder.h"
#include "common/tensor/stats.h"
#include "common/tensor/zframe.h"

static struct {
	const char *model, *output, *safetensors;
	bool json, tensors;
} opt;

static const struct ng_opt options[] = {
	NG_OPT_JSON(&opt.json),
	NG_OPT_MODEL(&opt.model),
	{ "output", 'o', NG_OPT_STRING, &opt.output, 0, 0, "dir", "with -m: write a model folder from the global" },
	NG_OPT_QUIET,
	{ "safetensors", 0, NG_OPT_STRING, &opt.safetensors, 0, 0, "file", "write the frame as a safetensors file" },
	{ "tensors", 't', NG_OPT_FLAG, &opt.tensors, 0, 0, NULL, "one line for each tensor too" },
	NG_OPT_VERBOSE,
	NG_OPT_END,
};

/* One list of tensors, wherever it comes from.  Tensors are read in the order
 * of the header, each once, in blocks. */
struct view {
	const char *file; /* as given, "-" for standard input */
	size_t frame;	  /* from 1, 0 for a plain file or a folder */
	const struct ng_header *header;
	const struct ng_frame *meta; /* NULL: no frame of ng */
	int (*read)(void *arg, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err);
	void *arg;
	bool hash; /* content digest to be computed here */
	struct ng_stream *stream;
	const struct ng_statement *said; /* by the text beside an object of a board */
};

/* ---- printing: everything is a JSON object, which -j prints as it is ---- */

static void set_text(json_t *o, const char *key, const char *value)
{
	if (value && *value)
		json_object_set_new(o, key, json_string(value));
}

static void set_count(json_t *o, const char *key, long long value)
{
	if (value >= 0)
		json_object_set_new(o, key, json_integer(value));
}

static void set_number(json_t *o, const char *key, double value)
{
	char text[32];

	ng_json_number(text, value);
	json_object_set_new(o, key, json_loads(text, JSON_DECODE_ANY, NULL));
}

static void set_json(json_t *o, const char *key, const char *text)
{
	json_t *v = text ? ng_json_parse(text, strlen(text), key, NULL) : NULL;

	if (v)
		json_object_set_new(o, key, v);
}

/* Tabs, newlines and whatever else a foreign text holds must not look like ours. */
static void put_clean(const char *text)
{
	size_t n = strlen(text);
	char *clean = ng_xmalloc(n + 1);

	ng_printable(clean, n + 1, text, n);
	fputs(clean, stdout);
	free(clean);
}

static void put_value(const json_t *v)
{
	if (json_is_string(v)) {
		put_clean(json_string_value(v));
	} else if (json_is_integer(v)) {
		printf("%lld", (long long)json_integer_value(v));
	} else if (json_is_real(v)) {
		printf("%.9g", json_real_value(v));
	} else if (!v || json_is_null(v)) {
		putchar('-');
	} else {
		char *text = ng_json_canonical(v);
		put_clean(text);
		free(text);
	}
}

static void print_input(const json_t *input)
{
	static const char *const column[] = { "site", "digest", "weight", "verdict" };

	fputs("input", stdout);
	for (size_t i = 0; i < NG_COUNT(column); i++) {
		putchar('\t');
		put_value(json_object_get(input, column[i]));
	}
	putchar('\n');
}

/* A line for each member; takes o over. */
static void print_lines(json_t *o)
{
	const char *key, *name;
	json_t *v, *w;
	size_t i;

	json_object_foreach(o, key, v)
	{
		if (strcmp(key, "inputs") == 0) {
			json_array_foreach(v, i, w) print_input(w);
			continue;
		}
		if (strcmp(key, "metadata") == 0) {
			json_object_foreach(v, name, w)
			{
				fputs("metadata\t", stdout);
				put_clean(name);
				putchar('=');
				put_value(w);
				putchar('\n');
			}
			continue;
		}
		printf("%s\t", key);
		put_value(v);
		putchar('\n');
	}
	json_decref(o);
}

static void print_object(json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));

	if (!text)
		ng_die(NG_OSERR, "no memory for a line of JSON");
	puts(text);
	free(text);
	json_decref(o);
}

static bool known_key(const char *key)
{
	static const char *const known[] = { "format", "ng.version", "ng.kind", "ng.experiment", "ng.round", "ng.site",
		"ng.base", "ng.examples", "ng.batch", "ng.steps", "ng.loss", "ng.codec", "ng.device", "ng.build",
		"ng.inputs", "ng.config" };

	for (size_t i = 0; i < NG_COUNT(known); i++)
		if (strcmp(key, known[i]) == 0)
			return true;
	return false;
}

static void set_said(json_t *o, const struct ng_statement *said)
{
	char created[24];

	ng_time_text(created, said->created);
	set_count(o, "manifest", said->manifest);
	set_text(o, "created", created);
	set_text(o, "key", said->key[0] ? said->key : "-");
}

static json_t *head(const struct view *v)
{
	const struct ng_frame *f = v->meta;
	json_t *o = json_object(), *other = json_object();

	set_text(o, "file", v->file);
	set_count(o, "frame", v->frame ? (long long)v->frame : -1);
	if (v->said)
		set_said(o, v->said);
	if (f) {
		char version[96];
		ng_frame_version(version, f);
		set_text(o, "kind", ng_kind_name(f->kind));
		set_text(o, "experiment", f->name);
		set_text(o, "id", f->id);
		set_count(o, "round", f->round);
		set_text(o, "version", version);
		set_text(o, "site", f->site);
		set_text(o, "base", f->base);
		set_count(o, "examples", f->examples);
		set_count(o, "batch", f->batch);
		set_count(o, "steps", f->steps);
		if (isfinite(f->loss))
			set_number(o, "loss", f->loss);
		set_json(o, "codec", f->codec ? f->codec : "\"f32\"");
		set_text(o, "device", f->device);
		set_text(o, "build", f->build);
		set_json(o, "inputs", f->inputs);
		set_json(o, "config", f->config);
	}
	for (size_t i = 0; i < v->header->meta.n; i++)
		if (!f || !known_key(v->header->meta.item[i].key))
			set_text(other, v->header->meta.item[i].key, v->header->meta.item[i].value);
	json_object_set_new(o, "metadata", other);
	return o;
}

static void print_tensor(const struct view *v, const struct ng_tensor *t, const struct ng_stats *s)
{
	bool values = ng_dtype_float(t->dtype);
	json_t *o = json_object(), *dims = json_array();

	for (unsigned d = 0; d < t->rank; d++)
		json_array_append_new(dims, json_integer((json_int_t)t->dim[d]));
	set_text(o, "file", v->file);
	set_count(o, "frame", v->frame ? (long long)v->frame : -1);
	set_text(o, "tensor", t->name);
	set_text(o, "dtype", ng_dtype_name(t->dtype));
	json_object_set_new(o, "shape", dims);
	set_count(o, "bytes", (long long)t->bytes);
	if (values) {
		set_number(o, "norm", ng_stats_norm(s));
		set_number(o, "min", (double)s->min);
		set_number(o, "max", (double)s->max);
		set_count(o, "nonfinite", (long long)s->nonfinite);
	}
	if (opt.json) {
		print_object(o);
		return;
	}
	static const char *const column[] = { "tensor", "dtype", "shape", "bytes", "norm", "min", "max", "nonfinite" };
	fputs("tensor", stdout);
	for (size_t i = 0; i < NG_COUNT(column); i++) {
		putchar('\t');
		put_value(json_object_get(o, column[i]));
	}
	putchar('\n');
	json_decref(o);
}

struct total {
	struct ng_stats stats;
	uint64_t elements, bytes, coded;
	char content[NG_HASH_HEX], object[NG_HASH_HEX];
};

static void set_total(json_t *o, const struct view *v, const struct total *t)
{
	set_count(o, "tensors", (long long)v->header->n);
	set_count(o, "elements", (long long)t->elements);
	set_count(o, "bytes", (long long)t->bytes);
	set_count(o, "bytes_coded", t->coded ? (long long)t->coded : -1);
	set_number(o, "norm", ng_stats_norm(&t->stats));
	set_number(o, "min", (double)t->stats.min);
	set_number(o, "max", (double)t->stats.max);
	set_count(o, "nonfinite", (long long)t->stats.nonfinite);
	set_text(o, "content_digest", t->content);
	set_text(o, "object_digest", t->object);
}

/* ---- reading ---- */

static int show_tensor(
	const struct view *v, const struct ng_tensor *t, struct total *total, struct ng_hash *hash, struct ng_err *err)
{
	static unsigned char block[NG_STREAM_BLOCK];
	static float values[NG_STREAM_BLOCK / 2];
	bool numbers = ng_dtype_float(t->dtype);
	size_t width = ng_dtype_bits(t->dtype) / 8;
	struct ng_stats s;

	ng_stats_init(&s);
	if (v->stream && ng_stream_tensor(v->stream, NULL, err) < 0)
		return -1;
	for (uint64_t at = 0; at < t->bytes;) {
		size_t n = t->bytes - at < sizeof block ? (size_t)(t->bytes - at) : sizeof block;
		if (v->read(v->arg, t, at, block, n, err) < 0)
			return -1;
		if (v->hash)
			ng_hash_update(hash, block, n);
		if (numbers) {
			ng_to_f32(values, block, t->dtype, n / width);
			ng_stats_add(&s, values, n / width);
		}
		at += n;
	}
	if (opt.tensors)
		print_tensor(v, t, &s);
	ng_stats_merge(&total->stats, &s);
	total->elements += t->count;
	return 0;
}

static int show(const struct view *v, struct ng_err *err)
{
	static bool again;
	struct total total = { .bytes = v->header->data_bytes };
	struct ng_str text;
	struct ng_hash hash;
	int rc = -1;

	ng_str_init(&text, NG_HEADER_MAX + 64);
	ng_stats_init(&total.stats);
	if (!opt.json) {
		if (again)
			putchar('\n');
		again = true;
		print_lines(head(v));
	}
	if (v->hash) {
		if (ng_header_encode(&text, v->header, false, err) < 0)
			goto out;
		ng_hash_init(&hash);
		ng_hash_update(&hash, text.data, text.len);
	}
	for (size_t i = 0; i < v->header->n; i++)
		if (show_tensor(v, &v->header->tensor[i], &total, &hash, err) < 0)
			goto out;
	if (v->hash)
		ng_hash_final(&hash, total.content);
	if (v->stream) {
		if (ng_stream_drain(v->stream, err) < 0)
			goto out;
		snprintf(total.content, sizeof total.content, "%s", ng_stream_digest(v->stream));
		if (v->frame) {
			snprintf(total.object, sizeof total.object, "%s", ng_stream_object_digest(v->stream));
			total.coded = ng_stream_raw_bytes(v->stream);
		}
	}
	json_t *o = opt.json ? head(v) : json_object();
	set_total(o, v, &total);
	if (opt.json)
		print_object(o);
	else
		print_lines(o);
	rc = 0;
out:
	ng_str_release(&text);
	return rc;
}

static int read_stream(void *arg, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err)
{
	(void)t;
	(void)at;
	return ng_stream_read(arg, buf, n, err);
}

static int read_file(void *arg, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err)
{
	const struct ng_safetensors *st = arg;

	return ng_safetensors_read(st, ng_header_find(&st->header, t->name), at, buf, n, err);
}

static int read_weights(void *arg, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err)
{
	return ng_weights_read(arg, t, at, buf, n, err);
}

/* Plain safetensors: any order of tensors, so not as a stream. */
static void show_file(const char *path)
{
	struct ng_safetensors st;
	struct ng_header sorted;
	struct ng_frame frame;
	struct ng_err err;

	if (ng_safetensors_open(&st, path, 0, &err) < 0)
		ng_die_err(&err);
	ng_header_copy(&sorted, &st.header);
	struct view v = { .file = path, .header = &sorted, .read = read_file, .arg = &st, .hash = true };
	if (ng_frame_parse(&frame, &sorted.meta, NULL) == 0)
		v.meta = &frame;
	if (ng_header_finish(&sorted, &err) < 0 || show(&v, &err) < 0)
		ng_die_err(&err);
	ng_header_release(&sorted);
	ng_safetensors_close(&st);
}

static const unsigned stream_flags = NG_STREAM_DIGEST | NG_STREAM_OBJECT | NG_STREAM_THREADS | NG_STREAM_PLAIN |
				     NG_STREAM_ANY_META;

static void show_opening(const struct ng_stream *s, const json_t **last)
{
	if (ng_verbosity < 1 || ng_stream_opening(s) == *last)
		return;
	*last = ng_stream_opening(s);
	char *text = *last ? ng_json_canonical(*last) : NULL;
	ng_verbose("opening: %s", text ? text : "none");
	free(text);
}

static void show_stream(const char *path)
{
	const json_t *opening = NULL;
	struct ng_stream *s;
	struct ng_err err;
	int rc;

	if (ng_stream_open(&s, path, stream_flags, &err) < 0)
		ng_die_err(&err);
	while ((rc = ng_stream_next(s, &err)) == 1) {
		show_opening(s, &opening);
		struct view v = { .file = path,
			.header = ng_stream_header(s),
			.meta = ng_stream_frame(s),
			.read = read_stream,
			.arg = s,
			.stream = s,
			.frame = ng_stream_plain(s) ? 0 : ng_stream_count(s) };
		if ((rc = show(&v, &err)) < 0)
			break;
	}
	if (rc < 0)
		ng_stream_die(s, &err);
	ng_stream_close(s);
}

/* ---- objects of a board ---- */

/* The parts of a payload, one after another. */
struct parts {
	const char *dir;
	int fd, number;
};

static ptrdiff_t read_parts(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct parts *p = arg;
	char path[4096];

	for (;;) {
		if (p->fd < 0) {
			snprintf(path, sizeof path, "%s/part-%05d", p->dir, p->number);
			p->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
			if (p->fd < 0 && errno == ENOENT)
				return 0;
			if (p->fd < 0)
				return ng_fail_errno(err, NG_IOERR, "cannot open '%s'", path);
			p->number++;
		}
		ptrdiff_t got = ng_read_full(p->fd, buf, n);
		if (got < 0)
			return ng_fail_errno(err, NG_IOERR, "cannot read part %d of '%s'", p->number - 1, p->dir);
		if (got > 0)
			return got;
		close(p->fd);
		p->fd = -1;
	}
}

/* A manifest, a log entry or metrics: a text, shown in one line. */
static void show_text(const char *dir, const struct ng_statement *said)
{
	struct parts p = { dir, -1, 0 };
	struct ng_str text;
	struct ng_err err;
	char buf[4096], digest[NG_HASH_HEX];
	ptrdiff_t got;

	ng_str_init(&text, 16 << 20);
	while ((got = read_parts(&p, buf, sizeof buf, &err)) > 0)
		ng_str_add(&text, buf, (size_t)got);
	if (got < 0)
		ng_die_err(&err);
	if (text.failed)
		ng_die(NG_DATA, "'%s' holds over 16 MiB of text", dir);
	ng_hash_bytes(digest, text.data, text.len);
	json_t *payload = ng_json_parse(text.data ? text.data : "", text.len, dir, &err);
	if (!payload)
		ng_die_err(&err);
	json_t *o = json_object();
	set_text(o, "file", dir);
	set_text(o, "kind", said->kind);
	set_count(o, "round", said->round);
	set_text(o, "site", said->site);
	set_said(o, said);
	json_object_set_new(o, "payload", payload);
	set_text(o, "object_digest", digest);
	if (opt.json)
		print_object(o);
	else
		print_lines(o);
	if (strcmp(digest, said->object) != 0)
		ng_die(NG_DATA, "'%s' is not what its signature says: object digest %s", dir, said->object);
	ng_str_release(&text);
}

static void show_object(const char *dir)
{
	struct parts p = { dir, -1, 0 };
	struct ng_statement said;
	struct ng_stream *s;
	struct ng_err err;
	char *text, *path = ng_xasprintf("%s/signature", dir);
	enum ng_kind kind;
	size_t len;

	if (ng_file_read(&text, &len, path, NG_STATEMENT_MAX, &err) < 0)
		ng_die_err(&err);
	if (ng_statement_parse(&said, text, len, &err) < 0) {
		ng_fail_prefix(&err, "'%s'", path);
		ng_die_err(&err);
	}
	free(text);
	free(path);
	if (!ng_kind_parse(&kind, said.kind) && strcmp(said.kind, "base") != 0) {
		show_text(dir, &said);
		return;
	}
	if (ng_stream_open_fn(&s, read_parts, &p, dir, stream_flags, &err) < 0 || ng_stream_next(s, &err) < 0)
		ng_die_err(&err);
	struct view v = { .file = dir,
		.header = ng_stream_header(s),
		.meta = ng_stream_frame(s),
		.read = read_stream,
		.arg = s,
		.stream = s,
		.frame = 1,
		.said = &said };
	if (show(&v, &err) < 0)
		ng_die_err(&err);
	if (strcmp(ng_stream_object_digest(s), said.object) != 0)
		ng_die(NG_DATA, "'%s' is not what its signature says: object digest %s", dir, said.object);
	if (ng_stream_next(s, &err) != 0)
		ng_die(NG_DATA, "'%s' holds more than one frame", dir);
	ng_stream_close(s);
}

static void show_folder(const char *path)
{
	char *signature = ng_xasprintf("%s/signature", path);
	bool object = ng_file_exists(signature);
	struct ng_weights w;
	struct ng_err err;

	free(signature);
	if (object) {
		show_object(path);
		return;
	}
	if (ng_weights_open(&w, path, 0, &err) < 0)
		ng_die_err(&err);
	struct view v = { .file = path, .header = &w.header, .read = read_weights, .arg = &w, .hash = true };
	if (show(&v, &err) < 0)
		ng_die_err(&err);
	ng_weights_close(&w);
}

/* A regular file that does not begin as a stream does. */
static bool plain_file(const char *path)
{
	unsigned char first[4];
	struct stat st;
	ptrdiff_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO must not be waited for here */

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = ng_read_full(fd, first, sizeof first);
	close(fd);
	if (n < (ptrdiff_t)sizeof first)
		return n > 0;
	return ng_le32(first) != NG_ZFRAME_MAGIC && !ng_zframe_skippable(ng_le32(first));
}

static void show_path(const char *path)
{
	struct stat st;

	if (strcmp(path, "-") == 0)
		show_stream(path);
	else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		show_folder(path);
	else if (plain_file(path))
		show_file(path);
	else
		show_stream(path);
}

/* ---- writing ---- */

static struct ng_stream *open_single(const char *path)
{
	struct ng_stream *s;
	struct ng_err err;

	if (ng_stream_open(&s, path, NG_STREAM_ANY_META, &err) < 0)
		ng_die_err(&err);
	int rc = ng_stream_next(s, &err);
	if (rc < 0)
		ng_stream_die(s, &err);
	if (rc == 0)
		ng_die(NG_DATA, "%s holds no frame", ng_stream_name(s));
	return s;
}

static void write_safetensors(const char *path)
{
	static unsigned char block[NG_STREAM_BLOCK];
	struct ng_stream *s = open_single(path);
	const struct ng_tensor *t;
	struct ng_out out;
	struct ng_err err;
	int rc;

	if (strcmp(opt.safetensors, "-") == 0 && isatty(STDOUT_FILENO))
		ng_die(NG_USAGE, "a safetensors file is binary and not written to a terminal");
	if (ng_out_open(&out, opt.safetensors, &err) < 0 ||
		ng_safetensors_write_header(out.fp, ng_stream_header(s), out.path, &err) < 0)
		ng_die_err(&err);
	while ((rc = ng_stream_tensor(s, &t, &err)) == 1)
		for (uint64_t at = 0; at < t->bytes;) {
			size_t n = t->bytes - at < sizeof block ? (size_t)(t->bytes - at) : sizeof block;
			if (ng_stream_read(s, block, n, &err) < 0)
				ng_stream_die(s, &err);
			if (fwrite(block, 1, n, out.fp) != n)
				ng_die_errno(NG_IOERR, "cannot write '%s'", opt.safetensors);
			at += n;
		}
	if (rc == 0 && (rc = ng_stream_next(s, &err)) == 1)
		ng_die(NG_DATA, "%s holds more than one frame", ng_stream_name(s));
	if (rc < 0)
		ng_stream_die(s, &err);
	if (ng_out_commit(&out, &err) < 0)
		ng_die_err(&err);
	ng_stream_close(s);
}

static void write_folder(const char *path)
{
	struct ng_stream *s = open_single(path);
	const struct ng_frame *f = ng_stream_frame(s);
	struct ng_err err;

	if (!f || f->kind != NG_KIND_GLOBAL)
		ng_die(NG_DATA, "%s is %s, not a global: only a global is a model by itself", ng_stream_name(s),
			f ? ng_kind_name(f->kind) : "no frame of ng");
	if (ng_folder_write(opt.output, opt.model, s, NULL, &err) < 0)
		ng_stream_die(s, &err);
	ng_stream_close(s);
}

int main(int argc, char **argv)
{
	static const char usage[] = "[-jqtv] [file | dir ...]\n"
				    "[-qv] --safetensors file [file]\n"
				    "[-qv] -m dir -o dir [file]";

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv, usage, options);
	bool single = opt.safetensors || opt.output;
	if (!opt.output != !opt.model)
		ng_opt_misuse("-o and -m belong together");
	if (opt.output && opt.safetensors)
		ng_opt_misuse("-o and --safetensors are two different things to write");
	if (single && (opt.json || opt.tensors))
		ng_opt_misuse("-j and -t print, -o and --safetensors write");
	if (single && argc - first > 1)
		ng_opt_misuse("one file, to be written as one");
	const char *path = first < argc ? argv[first] : "-";
	if (opt.safetensors)
		write_safetensors(path);
	else if (opt.output)
		write_folder(path);
	else if (first == argc)
		show_path("-");
	for (; !single && first < argc; first++)
		show_path(argv[first]);
	return ng_finish(NG_OK);
}
