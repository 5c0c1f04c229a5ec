/* The mean to the bit, whatever the order, threads and memory; every refusal. */
#include "common/base/compat.h"

#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/fed/aggregate.h"
#include "common/fed/mean.h"
#include "t/unit/check.h"
#include "t/unit/frames.h"

#define SITES 5
#define PATH 128

static char dir[] = "/tmp/ng-test-XXXXXX";
static char base[NG_HASH_HEX];
static struct ng_agg_source global;
static struct ng_agg_result result;

static char *in_dir(const char *name)
{
	return ng_xasprintf("%s/%s", dir, name);
}

static void make(struct ng_agg_source *source, struct frames_spec *spec, const char *name)
{
	char digest[NG_HASH_HEX] = "", object[NG_HASH_HEX] = "";
	struct ng_err err = { NG_OK, "" };
	char *path = in_dir(name);

	spec->path = path;
	if (frames_write(spec, digest, object, &err) < 0)
		printf("# %s\n", err.text);
	*source = (struct ng_agg_source){ .name = ng_xstrdup(name), .path = path, .fd = -1 };
	snprintf(source->digest, sizeof source->digest, "%s", object);
	if (strcmp(spec->kind, "global") == 0)
		snprintf(base, sizeof base, "%s", digest);
}

static struct frames_spec update_of(size_t i)
{
	static const char *const sites[] = { "site-e", "site-b", "site-a", "site-d", "site-c" };
	struct frames_spec s = FRAMES_UPDATE;

	s.site = sites[i % SITES];
	s.base = base;
	s.seed = (uint32_t)(10 + i);
	s.examples = 100 + 37 * (long)i;
	s.steps = 3 + (long)i;
	return s;
}

/* Runs; *out is the frame written (caller frees), NULL when none. */
static int aggregate(const struct ng_agg_source *update, size_t n, struct ng_agg_opts opts, char **out, size_t *len,
	struct ng_err *err)
{
	int fd = ng_temp_fd(NULL, err), status;
	struct stat st;

	ng_agg_result_release(&result);
	opts.threads = opts.threads ? opts.threads : 1;
	memset(err, 0, sizeof *err);
	status = ng_aggregate(&result, &global, update, n, &opts, fd, err);
	*out = NULL;
	*len = 0;
	if (status == 0 && fstat(fd, &st) == 0 && lseek(fd, 0, SEEK_SET) == 0) {
		*len = (size_t)st.st_size;
		*out = ng_xmalloc(*len);
		if (ng_read_full(fd, *out, *len) != (ptrdiff_t)*len)
			printf("# short read\n");
	}
	close(fd);
	return status;
}

struct memory {
	const char *data;
	size_t len;
};

static ptrdiff_t from_memory(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct memory *m = arg;

	(void)err;
	n = n < m->len ? n : m->len;
	memcpy(buf, m->data, n);
	m->data += n;
	m->len -= n;
	return (ptrdiff_t)n;
}

/* All values of a frame, and its ng.* keys. */
static float *values(const char *data, size_t len, size_t *n, struct ng_frame *frame, struct ng_header *header)
{
	struct memory m = { data, len };
	struct ng_stream *s;
	struct ng_err err;
	const struct ng_tensor *t;
	float *v = ng_xarray(1 << 16, sizeof *v);

	*n = 0;
	CHECK(ng_stream_open_fn(&s, from_memory, &m, "memory", 0, &err) == 0 && ng_stream_next(s, &err) == 1);
	ng_header_copy(header, ng_stream_header(s));
	ng_frame_parse(frame, &header->meta, &err);
	while (ng_stream_tensor(s, &t, &err) == 1) {
		ng_stream_read_f32(s, v + *n, (size_t)t->count, &err);
		*n += (size_t)t->count;
	}
	CHECK_INT_EQ(ng_stream_next(s, &err), 0);
	ng_stream_close(s);
	return v;
}

/* In the order of the names of update_of's sites. */
static const size_t by_name[SITES] = { 2, 1, 4, 3, 0 };

static void equals_naive_mean(const char *data, size_t len, enum ng_weighting by)
{
	struct frames_spec g = FRAMES_GLOBAL;
	struct ng_frame f;
	struct ng_header h;
	size_t n, differ = 0;
	float *got = values(data, len, &n, &f, &h);

	CHECK(n > 3000);
	for (size_t i = 0; i < n; i++) {
		double sum = 0, weights = 0;
		for (size_t k = 0; k < SITES; k++) {
			struct frames_spec u = update_of(by_name[k]);
			double w = by == NG_WEIGHTS_EXAMPLES ? (double)u.examples
				   : by == NG_WEIGHTS_STEPS  ? (double)u.steps
							     : 1;
			double product = w * (double)frames_value(&u, i);
			sum += product;
			weights += w;
		}
		double mean = sum / weights;
		float want = (float)((double)frames_value(&g, i) + mean);
		differ += memcmp(&want, &got[i], sizeof want) != 0;
	}
	CHECK_INT_EQ(differ, 0);
	ng_header_release(&h);
	free(got);
}

static void mean(void)
{
	struct ng_agg_source update[SITES], shuffled[SITES];
	static const size_t order[SITES] = { 3, 0, 4, 2, 1 };
	struct frames_spec spec;
	char name[32], *first, *other;
	size_t len, other_len;
	struct ng_err err;

	for (size_t i = 0; i < SITES; i++) {
		spec = update_of(i);
		snprintf(name, sizeof name, "u%zu.zst", i);
		make(&update[i], &spec, name);
	}
	for (size_t i = 0; i < SITES; i++)
		shuffled[i] = update[order[i]];

	CHECK_INT_EQ(aggregate(update, SITES, (struct ng_agg_opts){ 0 }, &first, &len, &err), 0);
	CHECK_INT_EQ(result.accepted, SITES);
	CHECK_INT_EQ(result.passes, 1);
	CHECK_INT_EQ(result.round, 1);
	CHECK_STR_EQ(result.verdict[0].site, "site-a");
	CHECK_STR_EQ(result.verdict[4].site, "site-e");
	equals_naive_mean(first, len, NG_WEIGHTS_EXAMPLES);

	/* another order, more threads, one update at a time: the same bytes, header and all */
	CHECK_INT_EQ(aggregate(shuffled, SITES, (struct ng_agg_opts){ .threads = 3 }, &other, &other_len, &err), 0);
	CHECK(other_len == len && memcmp(first, other, len) == 0);
	free(other);
	CHECK_INT_EQ(
		aggregate(shuffled, SITES, (struct ng_agg_opts){ .threads = 2, .memory = 1 }, &other, &other_len, &err),
		0);
	CHECK(other_len == len && memcmp(first, other, len) == 0);
	free(other);
	/* many small blocks, alone and with the sums in a file */
	CHECK_INT_EQ(aggregate(shuffled, SITES, (struct ng_agg_opts){ .threads = 3, .block = 256 }, &other, &other_len,
			     &err),
		0);
	CHECK(other_len == len && memcmp(first, other, len) == 0);
	free(other);
	CHECK_INT_EQ(aggregate(shuffled, SITES, (struct ng_agg_opts){ .threads = 3, .block = 100, .memory = 1 }, &other,
			     &other_len, &err),
		0);
	CHECK(other_len == len && memcmp(first, other, len) == 0);
	free(other);
	/* the digest of an object that nobody listed is computed */
	for (size_t i = 0; i < SITES; i++)
		shuffled[i].digest[0] = '\0';
	CHECK_INT_EQ(aggregate(shuffled, SITES, (struct ng_agg_opts){ 0 }, &other, &other_len, &err), 0);
	CHECK(other_len == len && memcmp(first, other, len) == 0);
	free(other);

	CHECK_INT_EQ(aggregate(update, SITES,
			     (struct ng_agg_opts){ .experiment = "{\"experiment\": \"leaflets\", \"rounds\": 3, "
								 "\"aggregate\": {\"weights\": \"steps\"}}" },
			     &other, &other_len, &err),
		0);
	equals_naive_mean(other, other_len, NG_WEIGHTS_STEPS);
	/* the newer experiment file is handed on */
	struct ng_frame f;
	struct ng_header h;
	size_t n;
	free(values(other, other_len, &n, &f, &h));
	CHECK(f.config && strstr(f.config, "\\\"steps\\\""));
	CHECK_INT_EQ(f.round, 1);
	CHECK_STR_EQ(f.base, base);
	ng_header_release(&h);
	free(other);
	CHECK_INT_EQ(aggregate(update, SITES,
			     (struct ng_agg_opts){ .experiment = "{\"experiment\": \"leaflets\", \"rounds\": 3, "
								 "\"aggregate\": {\"weights\": \"equal\"}}" },
			     &other, &other_len, &err),
		0);
	equals_naive_mean(other, other_len, NG_WEIGHTS_EQUAL);
	free(other);
	free(first);
	for (size_t i = 0; i < SITES; i++)
		ng_agg_source_release(&update[i]);
}

/* Three sites that did the same give what one of them alone gives. */
static void same_data(void)
{
	static const char *const sites[] = { "site-a", "site-b", "site-c" };
	struct ng_agg_source update[3];
	struct ng_err err;
	struct ng_header h;
	struct ng_frame f;
	char name[32], *three, *one;
	size_t three_len, one_len, n, m;

	for (size_t i = 0; i < 3; i++) {
		struct frames_spec spec = FRAMES_UPDATE;
		spec.base = base;
		spec.site = sites[i];
		spec.examples = 7;
		snprintf(name, sizeof name, "s%zu.zst", i);
		make(&update[i], &spec, name);
	}
	CHECK_INT_EQ(aggregate(update, 3, (struct ng_agg_opts){ 0 }, &three, &three_len, &err), 0);
	CHECK_INT_EQ(aggregate(update, 1,
			     (struct ng_agg_opts){
				     .experiment = "{\"experiment\": \"leaflets\", \"rounds\": 9, \"quorum\": 1}" },
			     &one, &one_len, &err),
		0);
	float *a = values(three, three_len, &n, &f, &h);
	ng_header_release(&h);
	float *b = values(one, one_len, &m, &f, &h);
	ng_header_release(&h);
	CHECK(n == m && memcmp(a, b, n * sizeof *a) == 0);
	free(a);
	free(b);
	free(three);
	free(one);
	for (size_t i = 0; i < 3; i++)
		ng_agg_source_release(&update[i]);
}

static void alter(const char *path, const char *how)
{
	char *data;
	size_t len;
	struct ng_err err;

	if (ng_file_read(&data, &len, path, 1 << 24, &err) < 0)
		return;
	if (strcmp(how, "cut") == 0)
		len -= 7;
	if (strcmp(how, "flip") == 0)
		data[len * 3 / 4] ^= 4;
	if (strcmp(how, "empty") == 0)
		len = 0;
	FILE *fp = fopen(path, "wb");
	fwrite(data, 1, len, fp);
	if (strcmp(how, "twice") == 0)
		fwrite(data, 1, len, fp);
	fclose(fp);
	free(data);
}

struct bad {
	const char *what; /* bad= of frames.h, or an alteration, or a field below */
	const char *says;
};

/* One bad update of three: it is refused with a reason, the other two go on. */
static void refusals(void)
{
	static const struct bad rows[] = { { "nan", "tensor 'scalar': holds a value that is not finite" },
		{ "inf", "tensor 'scalar': holds a value that is not finite" }, { "huge", "tensor 'scalar': its norm" },
		{ "missing", "tensor 'norm.bias': missing" }, { "extra", "tensor 'zz.weight': the global has none" },
		{ "shape", "tensor 'embeddings.word.weight': shape [32,97], not [97,32]" },
		{ "dtype", "tensor 'embeddings.word.weight': type F16, not F32" },
		{ "experiment", "another experiment" }, { "round", "trained on round 4, not 0" },
		{ "base", "another base" }, { "examples", "0 examples" }, { "kind", "global" }, { "cut", "" },
		{ "flip", "" }, { "empty", "" }, { "twice", "more than one frame" },
		{ "listed", "its object digest is " } };
	struct ng_agg_source update[3];
	char name[32], *out, *clean;
	size_t len, clean_len, n;
	struct ng_err err;
	struct ng_frame f;
	struct ng_header h;

	for (size_t i = 0; i < 2; i++) {
		struct frames_spec spec = update_of(i);
		snprintf(name, sizeof name, "r%zu.zst", i);
		make(&update[i], &spec, name);
	}
	CHECK_INT_EQ(aggregate(update, 2, (struct ng_agg_opts){ 0 }, &clean, &clean_len, &err), 0);
	float *want = values(clean, clean_len, &n, &f, &h);
	ng_header_release(&h);
	for (size_t i = 0; i < NG_COUNT(rows); i++) {
		const char *what = rows[i].what;
		struct frames_spec spec = update_of(2);
		char kept_base[NG_HASH_HEX];
		memcpy(kept_base, base, sizeof base);
		if (strcmp(what, "experiment") == 0)
			spec.id = base;
		else if (strcmp(what, "round") == 0)
			spec.round = 4;
		else if (strcmp(what, "base") == 0)
			spec.base = FRAMES_ID;
		else if (strcmp(what, "examples") == 0)
			spec.examples = 0;
		else if (strcmp(what, "kind") == 0)
			spec = (struct frames_spec)FRAMES_GLOBAL;
		else
			spec.bad = what;
		make(&update[2], &spec, "bad.zst");
		memcpy(base, kept_base, sizeof base);
		alter(update[2].path, what);
		if (strcmp(what, "listed") == 0) /* the list tells of something else than what lies there */
			memcpy(update[2].digest, update[0].digest, NG_HASH_HEX);
		int status = aggregate(
			update, 3, (struct ng_agg_opts){ .threads = 2, .block = i % 2 ? 0 : 512 }, &out, &len, &err);
		if (!CHECK_MSG(status == 0 && result.accepted == 2, what))
			printf("# %s\n", err.text);
		const struct ng_agg_verdict *v = NULL;
		for (size_t k = 0; k < result.n; k++)
			if (!result.verdict[k].accepted)
				v = &result.verdict[k];
		if (!CHECK(v && strncmp(v->reason, "refused: ", 9) == 0 && strstr(v->reason, rows[i].says)))
			printf("# %s\n", v ? v->reason : "none refused");
		if (v && strcmp(what, "nan") == 0)
			printf("# %s\n", v->reason);
		/* what is named is what was read; two frames have the digest of the first */
		char hex[NG_HASH_HEX];
		CHECK_MSG(v && ng_hash_file(hex, update[2].path) == 0 &&
				  (strcmp(v->digest, hex) == 0 || strcmp(what, "twice") == 0),
			what);
		if (status == 0) {
			size_t m;
			float *got = values(out, len, &m, &f, &h);
			CHECK(m == n && memcmp(got, want, n * sizeof *got) == 0);
			/* and the new global tells of it */
			CHECK(f.inputs && strstr(f.inputs, "refused: ") && !strstr(f.inputs, "\"digest\":\"\""));
			ng_header_release(&h);
			free(got);
			free(out);
		}
		ng_agg_source_release(&update[2]);
	}
	free(want);
	free(clean);
	ng_agg_source_release(&update[0]);
	ng_agg_source_release(&update[1]);
}

/* A global that is not the one listed is no base to add to. */
static void listed_global(void)
{
	struct ng_agg_source update[2];
	struct ng_err err;
	char kept[NG_HASH_HEX], *out;
	size_t len;

	for (size_t i = 0; i < 2; i++) {
		struct frames_spec spec = update_of(i);
		make(&update[i], &spec, i ? "l1.zst" : "l0.zst");
	}
	memcpy(kept, global.digest, sizeof kept);
	memcpy(global.digest, update[0].digest, sizeof kept);
	CHECK_INT_EQ(aggregate(update, 2, (struct ng_agg_opts){ 0 }, &out, &len, &err), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(strstr(err.text, "object digest") != NULL);
	memcpy(global.digest, kept, sizeof kept);
	CHECK_INT_EQ(aggregate(update, 2, (struct ng_agg_opts){ 0 }, &out, &len, &err), 0);
	free(out);
	for (size_t i = 0; i < 2; i++)
		ng_agg_source_release(&update[i]);
}

static void doubles(void)
{
	struct ng_agg_source update[4];
	struct frames_spec a = update_of(0), b = update_of(1), other = update_of(0);
	char *out;
	size_t len;
	struct ng_err err;

	make(&update[0], &a, "a.zst");
	make(&update[1], &b, "b.zst");
	make(&update[2], &a, "a-again.zst");
	CHECK_INT_EQ(aggregate(update, 3, (struct ng_agg_opts){ 0 }, &out, &len, &err), 0);
	CHECK_INT_EQ(result.accepted, 2);
	free(out);
	/* two different ones of a site: neither, and then the quorum is missed */
	other.seed = 99;
	make(&update[3], &other, "a-other.zst");
	ng_agg_source_release(&update[2]);
	update[2] = update[3];
	CHECK_INT_EQ(aggregate(update, 3, (struct ng_agg_opts){ 0 }, &out, &len, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	CHECK_INT_EQ(result.accepted, 1);
	CHECK(strstr(err.text, "quorum") != NULL);
	CHECK_INT_EQ(aggregate(update, 0, (struct ng_agg_opts){ 0 }, &out, &len, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	/* the last round has nothing after it */
	CHECK_INT_EQ(aggregate(update, 2,
			     (struct ng_agg_opts){ .experiment = "{\"experiment\": \"leaflets\", \"rounds\": 0, "
								 "\"train\": {\"schedule\": \"constant\"}}" },
			     &out, &len, &err),
		0);
	free(out);
	CHECK_INT_EQ(
		aggregate(update, 2, (struct ng_agg_opts){ .experiment = "{\"experiment\": \"other\", \"rounds\": 2}" },
			&out, &len, &err),
		-1);
	CHECK_INT_EQ(err.code, NG_DATA);
	for (size_t i = 0; i < 3; i++)
		ng_agg_source_release(&update[i]);
}

static void arithmetic(void)
{
	float x[1000];
	struct ng_square_sum whole = { { 0 } }, pieces = { { 0 } };
	uint64_t at = 0;

	for (size_t i = 0; i < 1000; i++)
		x[i] = (float)i / 7 - 50;
	CHECK(ng_square_add(&whole, 0, x, 1000));
	for (size_t n = 1; at < 1000; n = n * 2 + 1) {
		n = at + n > 1000 ? (size_t)(1000 - at) : n;
		CHECK(ng_square_add(&pieces, at, x + at, n));
		at += n;
	}
	CHECK(memcmp(&whole, &pieces, sizeof whole) == 0);
	for (size_t i = 0; i < 20; i++) {
		float kept = x[i];
		x[i] = i % 2 ? NAN : INFINITY;
		CHECK(!ng_square_add(&whole, 3, x, 20));
		x[i] = kept;
	}
	x[3] = 3.4028235e38f; /* the largest is finite */
	CHECK(ng_square_add(&pieces, 0, x, 20));
}

int main(void)
{
	struct frames_spec spec = FRAMES_GLOBAL;

	if (!mkdtemp(dir))
		return 1;
	arithmetic();
	make(&global, &spec, "global.zst");
	mean();
	same_data();
	refusals();
	listed_global();
	doubles();
	ng_agg_result_release(&result);
	ng_remove_tree(dir);
	return check_done();
}
