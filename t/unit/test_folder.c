/* A global from a model folder, and model folders from a global: types, shards, what is kept, what is refused. */
#include "common/base/compat.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/tensor/folder.h"
#include "t/unit/check.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char dir[] = "/tmp/ng-test-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[8][512];
	static int turn;
	char *p = path[turn++ % 8];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

static void put(const char *name, const char *text)
{
	struct ng_err err;

	if (ng_out_put(in_dir(name), text, strlen(text), 0, &err) < 0)
		CHECK_MSG(false, err.text);
}

/* The value of element i of any float tensor: exact in every type used. */
static float value(size_t i)
{
	return (float)((int)(i % 17) - 8) * 0.25f;
}

struct spec {
	const char *name;
	enum ng_dtype dtype;
	uint64_t dim;
};

static void make_file(const char *name, const struct spec *spec, size_t n)
{
	struct ng_header h;
	struct ng_out out;
	struct ng_err err;

	ng_header_init(&h);
	for (size_t i = 0; i < n; i++)
		ng_header_add(&h, spec[i].name, spec[i].dtype, 1, &spec[i].dim, &err);
	CHECK(ng_header_finish(&h, &err) == 0);
	ng_meta_set(&h.meta, "kept", "yes");
	CHECK(ng_out_open(&out, in_dir(name), &err) == 0);
	CHECK(ng_safetensors_write_header(out.fp, &h, name, &err) == 0);
	for (size_t i = 0; i < h.n; i++)
		for (size_t k = 0; k < h.tensor[i].count; k++) {
			unsigned char raw[8] = { (unsigned char)k, 1 };
			float f = value(k);
			if (ng_dtype_float(h.tensor[i].dtype))
				ng_from_f32(raw, h.tensor[i].dtype, &f, 1);
			fwrite(raw, 1, ng_dtype_bits(h.tensor[i].dtype) / 8, out.fp);
		}
	CHECK(ng_out_commit(&out, &err) == 0);
	ng_header_release(&h);
}

static void make_base(void)
{
	static const struct spec one[] = { { "b.half", NG_F16, 100000 }, { "ids", NG_I64, 12 },
		{ "a.full", NG_F32, 33 } };
	static const struct spec two[] = { { "c.brain", NG_BF16, 7 }, { "frozen", NG_F32, 70000 },
		{ "d.double", NG_F64, 5 } };
	static const struct spec dense[] = { { "linear.weight", NG_F32, 9 } };

	CHECK(mkdir(in_dir("base"), 0777) == 0 && mkdir(in_dir("base/1_Pooling"), 0777) == 0);
	CHECK(mkdir(in_dir("base/2_Dense"), 0777) == 0 && mkdir(in_dir("base/onnx"), 0777) == 0);
	CHECK(mkdir(in_dir("base/.git"), 0777) == 0 && mkdir(in_dir("base/3_Normalize"), 0777) == 0);
	make_file("base/model-1.safetensors", one, NG_COUNT(one));
	make_file("base/model-2.safetensors", two, NG_COUNT(two));
	make_file("base/2_Dense/model.safetensors", dense, NG_COUNT(dense));
	put("base/model.safetensors.index.json",
		"{\"weight_map\":{\"a.full\":\"model-1.safetensors\",\"b.half\":\"model-1.safetensors\","
		"\"ids\":\"model-1.safetensors\",\"c.brain\":\"model-2.safetensors\",\"frozen\":\"model-2.safetensors\","
		"\"d.double\":\"model-2.safetensors\"}}");
	put("base/modules.json",
		"[{\"path\":\"\"},{\"path\":\"1_Pooling\"},{\"path\":\"2_Dense\"},{\"path\":\"3_Normalize\"}]");
	put("base/config.json", "{\"hidden_size\": 32}");
	put("base/1_Pooling/config.json", "{}");
	put("base/2_Dense/config.json", "{}");
	put("base/pytorch_model.bin", "old");
	put("base/onnx/model.onnx", "old");
	put("base/.git/config", "hidden");
	CHECK(symlink("config.json", in_dir("base/linked.json")) == 0);
}

static bool not_frozen(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, "frozen") != 0;
}

/* A stream file: the folder's global, or an update of `step` in every element. */
static void make_stream(const char *name, const struct ng_weights *w, enum ng_kind kind, float step, int frames)
{
	struct ng_header h;
	struct ng_frame f;
	struct ng_writer *wr;
	struct ng_out out;
	struct ng_err err;

	CHECK(ng_folder_global_header(&h, w, not_frozen, NULL, &err) == 0);
	ng_frame_init(&f);
	f.kind = kind;
	snprintf(f.name, sizeof f.name, "x");
	memcpy(f.id, ID, sizeof f.id);
	f.config = "{}";
	if (kind == NG_KIND_UPDATE) {
		snprintf(f.site, sizeof f.site, "a");
		memcpy(f.base, ID, sizeof f.base);
		f.examples = f.steps = 1;
	}
	CHECK(ng_frame_fill(&h.meta, &f, &err) == 0);
	CHECK(ng_out_open(&out, in_dir(name), &err) == 0);
	CHECK(ng_writer_open_fd(&wr, out.fd, name, 0, NULL, &err) == 0);
	while (frames-- > 0) {
		CHECK(ng_writer_begin(wr, &h, &err) == 0);
		if (kind == NG_KIND_GLOBAL)
			CHECK(ng_folder_write_global(wr, &h, w, &err) == 0);
		for (uint64_t i = 0; kind == NG_KIND_UPDATE && i < h.data_bytes / 4; i++)
			if (ng_writer_data(wr, &step, 4, &err) < 0)
				CHECK_MSG(false, err.text);
		CHECK(ng_writer_end(wr, &err) == 0);
	}
	CHECK(ng_writer_close(wr, NG_OK, NULL, &err) == 0);
	CHECK(ng_out_commit(&out, &err) == 0);
	ng_header_release(&h);
}

static int write_folder(const char *out, const char *base, const char *global, const char *update, struct ng_err *err)
{
	struct ng_stream *g, *u = NULL;
	int rc = 1;

	if (ng_stream_open(&g, in_dir(global), 0, err) < 0 || (rc = ng_stream_next(g, err)) != 1)
		return rc;
	if (update && (ng_stream_open(&u, in_dir(update), 0, err) < 0 || (rc = ng_stream_next(u, err)) != 1))
		return rc;
	rc = ng_folder_write(in_dir(out), in_dir(base), g, u, err);
	ng_stream_close(g);
	ng_stream_close(u);
	return rc;
}

/* Every element of a float tensor is value(i) + step. */
static void check_values(const struct ng_weights *w, const char *name, enum ng_dtype dtype, float step)
{
	const struct ng_tensor *t = ng_header_find(&w->header, name);
	struct ng_err err;
	bool right = true;

	if (!CHECK_MSG(t && t->dtype == dtype, name))
		return;
	float *f = ng_xarray(t->count, sizeof *f);
	CHECK(ng_weights_read_f32(w, t, 0, f, t->count, &err) == 0);
	for (size_t i = 0; i < t->count; i++)
		right &= f[i] == value(i) + step;
	CHECK_MSG(right, name);
	free(f);
}

static void check_folder(const char *out, float step)
{
	struct ng_weights w;
	struct ng_err err;
	char path[64];
	unsigned char ids[96];
	static const char *const there[] = { "config.json", "linked.json", "modules.json", "1_Pooling/config.json",
		"2_Dense/config.json", "3_Normalize", "model.safetensors.index.json" };
	static const char *const gone[] = { "pytorch_model.bin", "onnx", ".git", "model.safetensors" };

	CHECK(ng_weights_open(&w, in_dir(out), 0, &err) == 0);
	CHECK_INT_EQ(w.header.n, 7);
	check_values(&w, "a.full", NG_F32, step);
	check_values(&w, "b.half", NG_F16, step);
	check_values(&w, "c.brain", NG_BF16, step);
	check_values(&w, "d.double", NG_F64, step);
	check_values(&w, "2_Dense/linear.weight", NG_F32, step);
	check_values(&w, "frozen", NG_F32, 0);
	CHECK(ng_weights_read(&w, ng_header_find(&w.header, "ids"), 0, ids, 96, &err) == 0);
	CHECK(ids[88] == 11 && ids[89] == 1);
	CHECK_STR_EQ(ng_meta_get(&w.file[0].header.meta, "kept"), "yes");
	CHECK_STR_EQ(ng_meta_get(&w.file[0].header.meta, "format"), "pt");
	ng_weights_close(&w);
	for (size_t i = 0; i < NG_COUNT(there); i++) {
		snprintf(path, sizeof path, "%s/%s", out, there[i]);
		CHECK_MSG(ng_file_exists(in_dir(path)), there[i]);
	}
	for (size_t i = 0; i < NG_COUNT(gone); i++) {
		snprintf(path, sizeof path, "%s/%s", out, gone[i]);
		CHECK_MSG(!ng_file_exists(in_dir(path)), gone[i]);
	}
}

static void check_refusals(void)
{
	static const struct spec other[] = { { "a.full", NG_F32, 34 }, { "b.half", NG_F16, 100000 },
		{ "c.brain", NG_BF16, 7 }, { "d.double", NG_F64, 5 } };
	static const struct spec integer[] = { { "a.full", NG_I32, 33 } };
	struct ng_err err;

	CHECK(write_folder("one", "base", "global.zst", NULL, &err) < 0 && err.code == NG_NOTHING);
	CHECK(write_folder("new", "base", "two.zst", NULL, &err) < 0 && err.code == NG_DATA &&
		strstr(err.text, "more than one frame"));
	CHECK(write_folder("new", "base", "cut.zst", NULL, &err) < 0 && err.code == NG_DATA);
	CHECK(write_folder("no/such", "base", "global.zst", NULL, &err) < 0);
	CHECK(write_folder("new", "absent", "global.zst", NULL, &err) < 0 && err.code == NG_NOINPUT);
	CHECK(mkdir(in_dir("other"), 0777) == 0);
	make_file("other/model.safetensors", other, NG_COUNT(other));
	CHECK(write_folder("new", "other", "global.zst", NULL, &err) < 0 && err.code == NG_REFUSED);
	make_file("other/model.safetensors", integer, NG_COUNT(integer));
	CHECK(write_folder("new", "other", "global.zst", NULL, &err) < 0 && err.code == NG_REFUSED);
	CHECK(!ng_file_exists(in_dir("new")));
}

int main(void)
{
	struct ng_weights w;
	struct ng_err err;

	if (!mkdtemp(dir))
		return 1;
	make_base();
	CHECK(ng_weights_open(&w, in_dir("base"), 0, &err) == 0);
	make_stream("global.zst", &w, NG_KIND_GLOBAL, 0, 1);
	make_stream("two.zst", &w, NG_KIND_GLOBAL, 0, 2);
	make_stream("update.zst", &w, NG_KIND_UPDATE, 0.5f, 1);
	make_stream("nan.zst", &w, NG_KIND_UPDATE, NAN, 1);
	ng_weights_close(&w);
	char *text;
	size_t len;
	CHECK(ng_file_read(&text, &len, in_dir("global.zst"), 1 << 24, &err) == 0);
	CHECK(ng_out_put(in_dir("cut.zst"), text, len - 1, 0, &err) == 0);
	free(text);

	CHECK(write_folder("one", "base", "global.zst", NULL, &err) == 0);
	check_folder("one", 0);
	char was[NG_HASH_HEX], is[NG_HASH_HEX];
	CHECK(ng_weights_open(&w, in_dir("base"), 0, &err) == 0 && ng_weights_digest(was, &w, &err) == 0);
	ng_weights_close(&w);
	CHECK(ng_weights_open(&w, in_dir("one"), 0, &err) == 0 && ng_weights_digest(is, &w, &err) == 0);
	ng_weights_close(&w);
	CHECK_STR_EQ(is, was); /* nothing was moved: the same bits */
	CHECK(write_folder("moved", "base", "global.zst", "update.zst", &err) == 0);
	check_folder("moved", 0.5f);
	check_refusals();
	CHECK(write_folder("nan", "base", "global.zst", "nan.zst", &err) < 0);
	CHECK_INT_EQ(err.code, NG_REFUSED);
	CHECK(access(in_dir("nan"), F_OK) != 0);
	CHECK(write_folder("not", "base", "global.zst", "global.zst", &err) == 0); /* same tensors: the sum of both */
	CHECK(write_folder("not2", "base", "update.zst", "two.zst", &err) < 0);
	ng_remove_tree(dir);
	return check_done();
}
