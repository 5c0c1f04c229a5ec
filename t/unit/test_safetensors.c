/* Headers and files of safetensors: what must be read, what must be refused and how it is told. */
#include "common/base/compat.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/tensor/safetensors.h"
#include "t/unit/check.h"

#define T(name, shape, from, to) \
	"\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static const struct {
	const char *json;
	long long data;	  /* bytes that follow, -1: not known */
	const char *want; /* NULL: accepted; else a part of the message */
} headers[] = {
	{ "{}", 0, NULL },
	{ "{}  \t\n", 0, NULL },
	{ "{ }", 1, "follow" },
	{ "{" T("a", "[2]", 0, 8) "}", 8, NULL },
	{ "{" T("a", "[2]", 0, 8) "}", -1, NULL },
	{ "{" T("a", "[]", 0, 4) "}", 4, NULL },
	{ "{" T("a", "[0,5]", 0, 0) "}", 0, NULL },
	{ "{" T("b", "[1]", 4, 8) "," T("a", "[1]", 0, 4) "}", 8, NULL },
	{ "{" T("z", "[0]", 4, 4) "," T("a", "[1]", 0, 4) "}", 4, NULL },
	{ "{\"__metadata__\":{\"a\":\"b\",\"c\":\"\\u00e9\\ud83d\\ude00\\n\"}," T("a", "[1]", 0, 4) "}", 4, NULL },
	{ "{\"__metadata__\":null}", 0, NULL },
	{ "{\"a\":{\"x\":[{\"y\":[]},-1.5e+3,true],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, NULL },
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, NULL },
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "whole bytes" },
	{ "", 0, "'{'" },
	{ " {}", 0, "'{'" },
	{ "[]", 0, "'{'" },
	{ "{", 0, "string" },
	{ "{}x", 0, "follows" },
	{ "{}\0", 0, NULL }, /* the literal's own end; the real NUL case is below */
	{ "{" T("a", "[2]", 0, 8) ",}", 8, "string" },
	{ "{" T("a", "[2]", 0, 8), 8, "expected" },
	{ "{" T("a", "[2]", 0, 8) "," T("a", "[2]", 8, 16) "}", 16, "twice" },
	{ "{" T("a", "[2]", 0, 8) "," T("b", "[2]", 12, 20) "}", 20, "a hole" },
	{ "{" T("a", "[2]", 0, 8) "," T("b", "[2]", 4, 12) "}", 12, "an overlap" },
	{ "{" T("a", "[2]", 4, 12) "}", 12, "a hole" },
	{ "{" T("a", "[2]", 8, 0) "}", 8, "ends before" },
	{ "{" T("a", "[3]", 0, 8) "}", 8, "need 12" },
	{ "{" T("a", "[2]", 0, 8) "}", 7, "is cut" },
	{ "{" T("a", "[2]", 0, 8) "}", 9, "follow the last" },
	{ "{" T("a", "[4294967296,4294967296,2]", 0, 8) "}", 8, "overflows" },
	{ "{" T("a", "[18446744073709551615]", 0, 8) "}", 8, "overflows" },
	{ "{" T("a", "[18446744073709551616]", 0, 8) "}", 8, "64 bits" },
	{ "{" T("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "dimensions" },
	{ "{" T("a", "[-1]", 0, 4) "}", 4, "whole number" },
	{ "{" T("a", "[1.0]", 0, 4) "}", 4, "whole number" },
	{ "{" T("a", "[1e0]", 0, 4) "}", 4, "whole number" },
	{ "{" T("a", "[01]", 0, 4) "}", 4, "whole number" },
	{ "{" T("a", "[1", 0, 4) "}", 4, "expected" },
	{ "{" T("a", "1", 0, 4) "}", 4, "array" },
	{ "{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "lacks data_offsets" },
	{ "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "lacks shape" },
	{ "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "lacks dtype" },
	{ "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "twice" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "fewer than two" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "more than two" },
	{ "{\"a\":7}", 0, "no object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, "strings" },
	{ "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "twice" },
	{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice" },
	{ "{\"\\u0000\":7}", 0, "NUL" },
	{ "{\"\\ud800\":7}", 0, "surrogate" },
	{ "{\"\\udc00\":7}", 0, "surrogate" },
	{ "{\"\\x\":7}", 0, "escape" },
	{ "{\"a\n\":7}", 0, "control" },
	{ "{\"\xff\":7}", 0, "UTF-8" },
	{ "{\"a\":{\"x\":01}}", 0, "expected" },
	{ "{\"a\":{\"x\":tru}}", 0, "value" },
	{ "{\"a\":{\"x\":[1,]}}", 0, "value" },
	{ "{\"a\":{\"x\":{\"y\" 1}}}", 0, "':'" },
};

static void check_headers(void)
{
	for (size_t i = 0; i < NG_COUNT(headers); i++) {
		struct ng_header h;
		struct ng_err err = { 0 };
		size_t len = strlen(headers[i].json);
		/* an exact copy, so that a sanitizer sees any read beyond it */
		char *copy = ng_xmalloc(len ? len : 1);
		memcpy(copy, headers[i].json, len);
		int rc = ng_header_parse(
			&h, copy, len, headers[i].data < 0 ? UINT64_MAX : (uint64_t)headers[i].data, "x", &err);
		bool ok = headers[i].want ? rc < 0 && err.code == NG_DATA && strstr(err.text, headers[i].want)
					  : rc == 0;
		char shown[200];
		ng_printable(shown, sizeof shown, headers[i].json, len);
		if (!CHECK_MSG(ok, shown))
			printf("# got %d '%s'\n", rc, rc < 0 ? err.text : "");
		ng_header_release(&h);
		free(copy);
	}
}

static void check_deep(void)
{
	struct ng_header h;
	struct ng_err err;
	struct ng_str s;

	for (int depth = 63; depth <= 5000; depth += depth < 66 ? 1 : 4934) {
		ng_str_init(&s, 1 << 20);
		ng_str_adds(&s, "{\"a\":{\"x\":");
		for (int i = 0; i < depth; i++)
			ng_str_adds(&s, "[");
		for (int i = 0; i < depth; i++)
			ng_str_adds(&s, "]");
		ng_str_adds(&s, ",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
		int rc = ng_header_parse(&h, s.data, s.len, 1, "x", &err);
		CHECK_INT_EQ(rc, depth <= 64 ? 0 : -1);
		ng_header_release(&h);
		ng_str_release(&s);
	}
	CHECK(ng_header_parse(&h, "{}\0", 3, 0, "x", &err) < 0); /* padded with NUL */
}

static void check_encode(void)
{
	struct ng_header h, back;
	struct ng_err err;
	struct ng_str s;
	static const uint64_t d23[] = { 2, 3 }, d5[] = { 5 }, d0[] = { 0 };

	ng_header_init(&h);
	CHECK(ng_header_add(&h, "b", NG_F32, 2, d23, &err) == 0);
	CHECK(ng_header_add(&h, "a", NG_F32, 0, NULL, &err) == 0);
	CHECK(ng_header_add(&h, "q\"\\\n\001\xc3\xa9", NG_F16, 1, d5, &err) == 0);
	CHECK(ng_header_add(&h, "ids", NG_I64, 1, d5, &err) == 0);
	CHECK(ng_header_add(&h, "empty", NG_BOOL, 1, d0, &err) == 0);
	CHECK(ng_header_add(&h, "x", NG_F4, 1, d5, &err) < 0);
	CHECK(ng_header_finish(&h, &err) == 0);
	CHECK_STR_EQ(h.tensor[0].name, "ids");
	CHECK_STR_EQ(h.tensor[1].name, "a");
	CHECK_STR_EQ(h.tensor[4].name, "empty");
	CHECK_INT_EQ(h.data_bytes, 40 + 4 + 24 + 10);
	ng_meta_set(&h.meta, "z", "1");
	ng_meta_set(&h.meta, "format", "pt");
	ng_meta_set(&h.meta, "gone", "x");
	ng_meta_set(&h.meta, "gone", NULL);
	ng_meta_setf(&h.meta, "z", "%d", 2);
	ng_str_init(&s, 1 << 20);
	CHECK(ng_header_encode(&s, &h, true, &err) == 0);
	CHECK_INT_EQ(s.len % 64, 0);
	uint64_t len = 0;
	for (int i = 0; i < 8; i++)
		len |= (uint64_t)(unsigned char)s.data[i] << 8 * i;
	CHECK_INT_EQ(len, s.len - 8);
	static const char begin[] =
		"{\"__metadata__\":{\"format\":\"pt\",\"z\":\"2\"},\"ids\":{\"dtype\":\"I64\",\"shape\":[5],";
	CHECK(strncmp(s.data + 8, begin, strlen(begin)) == 0);
	CHECK(ng_header_parse(&back, s.data + 8, s.len - 8, h.data_bytes, "x", &err) == 0);
	CHECK(ng_header_canonical(&back));
	CHECK_INT_EQ(back.n, 5);
	const struct ng_tensor *t = ng_header_find(&back, "q\"\\\n\001\xc3\xa9");
	CHECK(t && t->dtype == NG_F16 && t->count == 5);
	CHECK(ng_header_find(&back, "nope") == NULL);
	CHECK_STR_EQ(ng_meta_get(&back.meta, "z"), "2");
	CHECK(ng_meta_get(&back.meta, "gone") == NULL);
	CHECK(ng_header_check_names(&back, false, &err) < 0); /* a newline in a name */
	ng_header_release(&back);
	ng_str_reset(&s);
	CHECK(ng_header_encode(&s, &h, false, &err) == 0);
	CHECK(strstr(s.data + 8, "__metadata__") == NULL);
	ng_str_release(&s);
	ng_header_release(&h);
}

static void check_names(void)
{
	static const struct {
		const char *name;
		bool plain, coded;
	} cases[] = { { "encoder.layer.0.weight", true, true }, { "\xce\xb1/\xe6\xbc\xa2", true, true },
		{ "", false, false }, { "a@q", false, true }, { "a@", false, false }, { "@q", false, false },
		{ "a@b@c", false, false }, { "a@Q", false, false }, { "a\tb", false, false }, { "a\x7f", false, false },
		{ "a\xe2\x80\xae"
		  "b",
			false, false },
		{ "\xc2\x85", false, false } };
	struct ng_err err;

	for (size_t i = 0; i < NG_COUNT(cases); i++) {
		struct ng_header h;
		ng_header_init(&h);
		ng_header_add(&h, cases[i].name, NG_F32, 0, NULL, &err);
		CHECK_MSG((ng_header_check_names(&h, false, &err) == 0) == cases[i].plain, "name as plain");
		CHECK_MSG((ng_header_check_names(&h, true, &err) == 0) == cases[i].coded, "name as coded");
		ng_header_release(&h);
	}
	char longest[514];
	memset(longest, 'a', 513);
	longest[513] = '\0';
	struct ng_header h;
	ng_header_init(&h);
	ng_header_add(&h, longest + 1, NG_F32, 0, NULL, &err);
	CHECK(ng_header_check_names(&h, false, &err) == 0);
	ng_header_add(&h, longest, NG_F32, 0, NULL, &err);
	CHECK(ng_header_check_names(&h, false, &err) < 0);
	ng_header_release(&h);
}

/* ---- files ---- */

static char dir[] = "/tmp/ng-test-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[4][512];
	static int turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

static void put(const char *name, const void *data, size_t n)
{
	struct ng_err err;

	if (ng_out_put(in_dir(name), data, n, 0, &err) < 0)
		printf("Bail out! %s\n", err.text);
}

/* length word + json + n bytes of data (0, 1, 2, ...) */
static void put_file(const char *name, uint64_t len, const char *json, size_t n)
{
	struct ng_str s;

	ng_str_init(&s, 1 << 20);
	for (int i = 0; i < 8; i++) {
		char c = (char)(unsigned char)(len >> 8 * i);
		ng_str_add(&s, &c, 1);
	}
	ng_str_adds(&s, json);
	for (size_t i = 0; i < n; i++) {
		char c = (char)(unsigned char)i;
		ng_str_add(&s, &c, 1);
	}
	put(name, s.data, s.len);
	ng_str_release(&s);
}

static void refused(const char *name, const char *why)
{
	struct ng_safetensors st;
	struct ng_err err = { 0 };
	int rc = ng_safetensors_open(&st, in_dir(name), 0, &err);

	if (!CHECK_MSG(rc < 0 && err.code == NG_DATA && strstr(err.text, why), why))
		printf("# got %d '%s'\n", rc, rc < 0 ? err.text : "");
	ng_safetensors_close(&st);
}

static void check_files(void)
{
	static const char one[] = "{" T("a", "[2]", 0, 8) "}";
	struct ng_safetensors st;
	struct ng_err err;
	unsigned char got[8];

	put("x", "", 0);
	refused("x", "only 0 bytes");
	put("x", "\1\0\0", 3);
	refused("x", "only 3 bytes");
	put("x", "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	refused("x", "zeros");
	put_file("x", (uint64_t)1 << 63, "{}", 0);
	refused("x", "header of 9223372036854775808 bytes");
	put_file("x", UINT64_MAX, "{}", 0);
	refused("x", "header of");
	put_file("x", 100000000, "{}", 0);
	refused("x", "is cut");
	put("x", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 55);
	refused("x", "git-lfs pointer");
	put("x", "<!DOCTYPE html><html><body>404</body></html>", 44);
	refused("x", "HTML page");
	put("x", "PK\3\4..........", 14);
	refused("x", "zip archive");
	put("x", "GGUF\3\0\0\0\0\0\0\0", 12);
	refused("x", "GGUF");
	put("x", "\x28\xb5\x2f\xfd\x24\x00\x01\x00\x00\x99\xe9\xd8\x51", 13);
	refused("x", "zstd");
	put_file("x", strlen(one), one, 7);
	refused("x", "is cut");
	put_file("x", strlen(one), one, 9);
	refused("x", "follow");
	CHECK(ng_safetensors_open(&st, in_dir("absent"), 0, &err) < 0 && err.code == NG_NOINPUT);
	CHECK(ng_safetensors_open(&st, dir, 0, &err) < 0 && err.code == NG_NOINPUT && strstr(err.text, "a folder"));

	put_file("x", strlen(one), one, 8);
	for (unsigned flags = 0; flags <= NG_SAFETENSORS_MAP; flags++) {
		CHECK(ng_safetensors_open(&st, in_dir("x"), flags, &err) == 0);
		CHECK(ng_safetensors_read(&st, &st.header.tensor[0], 2, got, 6, &err) == 0);
		CHECK(memcmp(got, "\2\3\4\5\6\7", 6) == 0);
		CHECK(ng_safetensors_read(&st, &st.header.tensor[0], 2, got, 7, &err) < 0);
		CHECK(ng_safetensors_read(&st, &st.header.tensor[0], UINT64_MAX, got, 1, &err) < 0);
		ng_safetensors_close(&st);
	}
	unlink(in_dir("x"));
}

/* Two shards, a Dense module, and indexes that point elsewhere. */
static void check_weights(void)
{
	static const char one[] = "{" T("b", "[2]", 0, 8) "}",
			  two[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}";
	static const char dense[] = "{" T("linear.weight", "[1,2]", 0, 8) "}";
	static const char *const hostile[] = { "../x", "/etc/passwd", "", ".", "..", "a/b", ".hidden",
		"s1.safetensors\\n" };
	struct ng_weights w;
	struct ng_err err;
	float f[2];
	char hex[NG_HASH_HEX], mapped[NG_HASH_HEX];

	CHECK(ng_weights_open(&w, in_dir("absent"), 0, &err) < 0 && err.code == NG_NOINPUT);
	CHECK(ng_weights_open(&w, dir, 0, &err) < 0 && err.code == NG_NOINPUT &&
		strstr(err.text, "no model.safetensors"));
	put("pytorch_model.bin", "x", 1);
	CHECK(ng_weights_open(&w, dir, 0, &err) < 0 && strstr(err.text, "pytorch_model.bin"));
	put_file("s1.safetensors", strlen(one), one, 8);
	put_file("s2.safetensors", strlen(two), two, 4);
	for (size_t i = 0; i < NG_COUNT(hostile); i++) {
		char json[256];
		snprintf(json, sizeof json, "{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"%s\"}}", hostile[i]);
		put("model.safetensors.index.json", json, strlen(json));
		CHECK_MSG(ng_weights_open(&w, dir, 0, &err) < 0 && err.code == NG_DATA && strstr(err.text, "points at"),
			hostile[i]);
	}
	static const char lying[] = "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}";
	put("model.safetensors.index.json", lying, strlen(lying));
	CHECK(ng_weights_open(&w, dir, 0, &err) < 0 && strstr(err.text, "is not in"));
	static const char index[] =
		"{\"metadata\":{},\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}";
	put("model.safetensors.index.json", index, strlen(index));
	static const char modules[] =
		"[{\"idx\":0,\"path\":\"\"},{\"idx\":1,\"path\":\"1_Pooling\"},{\"idx\":2,\"path\":\"2_Dense\"}]";
	put("modules.json", modules, strlen(modules));
	CHECK(mkdir(in_dir("2_Dense"), 0777) == 0);
	put_file("2_Dense/model.safetensors", strlen(dense), dense, 8);
	CHECK(ng_weights_open(&w, dir, 0, &err) == 0);
	CHECK_INT_EQ(w.header.n, 3);
	CHECK_STR_EQ(w.header.tensor[0].name, "2_Dense/linear.weight");
	CHECK_STR_EQ(w.header.tensor[2].name, "a");
	CHECK(ng_weights_read_f32(&w, ng_header_find(&w.header, "a"), 1, f, 1, &err) == 0);
	CHECK(f[0] == ng_bf16_to_f32(0x0302));
	CHECK(ng_weights_read_f32(&w, ng_header_find(&w.header, "a"), 1, f, 2, &err) < 0);
	CHECK(ng_weights_digest(hex, &w, &err) == 0);
	ng_weights_close(&w);
	CHECK(ng_weights_open(&w, dir, NG_SAFETENSORS_MAP, &err) == 0);
	CHECK(memcmp(ng_weights_map(&w, ng_header_find(&w.header, "2_Dense/linear.weight")), "\0\1\2\3", 4) == 0);
	CHECK(ng_weights_digest(mapped, &w, &err) == 0);
	CHECK_STR_EQ(hex, mapped);
	/* from Python: hashlib.blake2b(digest_size=32) of the canonical file of the three */
	CHECK_STR_EQ(hex, "25c64c24cfb2de37f8c1aea7ccacc3028d9f03a3793ca94f1d1aaa29ea3bfdb1");
	ng_weights_close(&w);
	static const char outside[] = "[{\"path\":\"\"},{\"path\":\"../2_Dense\"}]";
	put("modules.json", outside, strlen(outside));
	CHECK(ng_weights_open(&w, dir, 0, &err) < 0 && err.code == NG_DATA);
	ng_weights_close(&w);
}

/* ../shared's list: file, bytes, expected, class, what */
static void check_manifest(void)
{
	static const char folder[] = "../shared/data/badfiles/safetensors";
	char path[512], *text, *line, *rest;
	size_t len;
	int seen = 0;

	snprintf(path, sizeof path, "%s/MANIFEST.tsv", folder);
	if (!HAVE(path)) {
		SKIP("../shared/data/badfiles is not there");
		return;
	}
	struct ng_err err;
	CHECK(ng_file_read(&text, &len, path, 1 << 20, &err) == 0);
	for (line = text; *line; line = rest) {
		rest = line + strcspn(line, "\n");
		if (*rest)
			*rest++ = '\0';
		char *tab = strchr(line, '\t');
		char *want = tab ? strchr(tab + 1, '\t') : NULL;
		if (!want || strncmp(line, "file\t", 5) == 0)
			continue;
		*tab = '\0';
		want++;
		snprintf(path, sizeof path, "%s/%s", folder, line);
		struct ng_safetensors st;
		int rc = ng_safetensors_open(&st, path, 0, &err);
		bool ok = rc == 0 || err.code == NG_DATA;
		if (strncmp(want, "refuse\t", 7) == 0)
			ok = rc < 0 && err.code == NG_DATA;
		else if (strncmp(want, "accept\t", 7) == 0)
			ok = rc == 0;
		if (!CHECK_MSG(ok, line))
			printf("# got %d '%s'\n", rc, rc < 0 ? err.text : "");
		ng_safetensors_close(&st);
		seen++;
	}
	CHECK(seen >= 39);
	free(text);
}

int main(void)
{
	check_headers();
	check_deep();
	check_encode();
	check_names();
	if (!mkdtemp(dir))
		return 1;
	check_files();
	check_weights();
	ng_remove_tree(dir);
	check_manifest();
	return check_done();
}
