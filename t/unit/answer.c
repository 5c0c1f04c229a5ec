/*
 * answer KEY=VALUE... - stand in for ng-train: read the stream of a global from
 * standard input and write an update for it to standard output, with deltas
 * made from a seed.
 *	ng-pull ... | answer site=site-a seed=3 | ng-push ...
 * bad= nan inf missing extra shape dtype; id= base= round= name= put something
 * wrong into the metadata; sleep= seconds before the first byte goes out.
 */
#include "common/base/compat.h"

#include <math.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/tensor/stream.h"

static struct {
	const char *site, *bad, *id, *base, *round, *name, *seed, *sleep, *scale, *codec, *brackets;
} opt = { .site = "site-a", .bad = "", .seed = "1", .scale = "0.001", .brackets = "1" };

static void parse(int argc, char **argv)
{
	const struct {
		const char *key;
		const char **value;
	} row[] = { { "site", &opt.site }, { "bad", &opt.bad }, { "id", &opt.id }, { "base", &opt.base },
		{ "round", &opt.round }, { "name", &opt.name }, { "seed", &opt.seed }, { "sleep", &opt.sleep },
		{ "scale", &opt.scale }, { "codec", &opt.codec }, { "brackets", &opt.brackets } };

	for (int i = 1; i < argc; i++) {
		const char *value = strchr(argv[i], '=');
		size_t j = 0;
		while (value && j < NG_COUNT(row) &&
			(strlen(row[j].key) != (size_t)(value - argv[i]) ||
				strncmp(row[j].key, argv[i], strlen(row[j].key)) != 0))
			j++;
		if (!value || j == NG_COUNT(row))
			ng_die(NG_USAGE, "'%s' is not known", argv[i]);
		*row[j].value = value + 1;
	}
}

static bool bad(const char *kind)
{
	return strcmp(opt.bad, kind) == 0;
}

/* The update's tensors: the global's, but for what is to be wrong in the first of them. */
static void tensors(struct ng_header *out, const struct ng_header *global)
{
	struct ng_err err;

	ng_header_init(out);
	for (size_t i = 0; i < global->n; i++) {
		struct ng_tensor t = global->tensor[i];
		if (i == 0 && bad("missing"))
			continue;
		if (i == 0 && bad("shape"))
			t.dim[0]++;
		if (ng_header_add(out, t.name, i == 0 && bad("dtype") ? NG_F16 : t.dtype, t.rank, t.dim, &err) < 0)
			ng_die_err(&err);
	}
	uint64_t one[1] = { 1 };
	if (bad("extra") && ng_header_add(out, "zz.extra", NG_F32, 1, one, &err) < 0)
		ng_die_err(&err);
	if (ng_header_finish(out, &err) < 0)
		ng_die_err(&err);
}

int main(int argc, char **argv)
{
	struct ng_stream *s;
	struct ng_writer *w;
	struct ng_header h, global;
	struct ng_frame f;
	struct ng_err err;
	float block[4096];
	unsigned flags;

	ng_start(argv[0]);
	parse(argc, argv);
	flags = strcmp(opt.brackets, "0") == 0 ? 0 : NG_WRITER_BRACKETS;
	if (ng_writer_open_fd(&w, STDOUT_FILENO, "standard output", flags, NULL, &err) < 0 ||
		ng_stream_open(&s, "-", NG_STREAM_DIGEST, &err) < 0)
		ng_die_err(&err);
	if (ng_stream_next(s, &err) != 1)
		ng_stream_die(s, &err);
	ng_header_copy(&global, ng_stream_header(s));
	f = *ng_stream_frame(s);
	if (ng_stream_drain(s, &err) < 0)
		ng_stream_die(s, &err);
	memcpy(f.base, ng_stream_digest(s), NG_HASH_HEX);
	if (opt.sleep)
		sleep((unsigned)strtoul(opt.sleep, NULL, 10));
	f.kind = NG_KIND_UPDATE;
	f.config = f.inputs = f.device = f.build = NULL;
	f.codec = opt.codec;
	f.examples = 10;
	f.batch = 5;
	f.steps = 2;
	f.loss = 0.5;
	snprintf(f.site, sizeof f.site, "%s", opt.site);
	if (opt.id)
		snprintf(f.id, sizeof f.id, "%s", opt.id);
	if (opt.base)
		snprintf(f.base, sizeof f.base, "%s", opt.base);
	if (opt.name)
		snprintf(f.name, sizeof f.name, "%s", opt.name);
	if (opt.round)
		f.round = strtol(opt.round, NULL, 10);
	tensors(&h, &global);
	if (ng_frame_fill(&h.meta, &f, &err) < 0 || ng_writer_begin(w, &h, &err) < 0)
		ng_die_err(&err);
	double scale = strtod(opt.scale, NULL);
	uint32_t x = (uint32_t)strtoul(opt.seed, NULL, 10) * 2654435761u + 1;
	for (size_t i = 0; i < h.n; i++)
		for (uint64_t at = 0; at < h.tensor[i].count; at += NG_COUNT(block)) {
			size_t n = h.tensor[i].count - at < NG_COUNT(block) ? (size_t)(h.tensor[i].count - at)
									    : NG_COUNT(block);
			for (size_t j = 0; j < n; j++) {
				x = x * 1664525u + 1013904223u;
				block[j] = (float)((double)(x >> 8) / 16777216 - 0.5) * (float)scale;
			}
			if (i + 1 == h.n && at + n == h.tensor[i].count)
				block[n - 1] = bad("nan") ? NAN : bad("inf") ? -INFINITY : block[n - 1];
			if (h.tensor[i].dtype == NG_F16)
				memset(block, 0, n * 2);
			if (ng_writer_data(w, block, n * (h.tensor[i].dtype == NG_F16 ? 2 : 4), &err) < 0)
				ng_die_err(&err);
		}
	if (ng_writer_end(w, &err) < 0 || ng_writer_close(w, NG_OK, NULL, &err) < 0)
		ng_die_err(&err);
	ng_header_release(&h);
	ng_header_release(&global);
	ng_stream_close(s);
	return ng_finish(NG_OK);
}
