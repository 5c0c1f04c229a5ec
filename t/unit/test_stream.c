/*
 * Streams: what is written comes back; what is cut or flipped anywhere is told;
 * a failure upstream keeps its code; memory does not grow with the model.
 */
#include "common/base/compat.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/mem.h"
#include "common/tensor/stream.h"
#include "common/tensor/zframe.h"
#include "t/unit/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int sink(void *arg, const void *data, size_t n, struct ng_err *err)
{
	(void)err;
	return ng_str_add(arg, data, n);
}

struct source {
	const char *data;
	size_t len, at, piece; /* piece: bytes a call, 0: all */
};

static ptrdiff_t source(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct source *s = arg;
	size_t k = s->len - s->at;

	(void)err;
	if (k > n)
		k = n;
	if (s->piece && k > s->piece)
		k = s->piece;
	memcpy(buf, s->data + s->at, k);
	s->at += k;
	return (ptrdiff_t)k;
}

static void make_header(struct ng_header *h, enum ng_kind kind, const char *site)
{
	static const uint64_t d[2] = { 7, 33 };
	struct ng_frame f;
	struct ng_err err;

	ng_header_init(h);
	ng_header_add(h, "w", NG_F32, 2, d, &err);
	ng_header_add(h, "b", NG_F32, 1, d, &err);
	ng_header_add(h, "half", NG_F16, 1, d + 1, &err);
	ng_header_finish(h, &err);
	ng_frame_init(&f);
	f.kind = kind;
	snprintf(f.name, sizeof f.name, "leaflets");
	memcpy(f.id, ID, sizeof f.id);
	f.round = 3;
	if (kind == NG_KIND_UPDATE) {
		snprintf(f.site, sizeof f.site, "%s", site);
		memcpy(f.base, ID, sizeof f.base);
		f.examples = 100;
		f.steps = 4;
		f.loss = 0.25;
	} else {
		f.config = "{}";
	}
	ng_meta_set(&h->meta, "x.other", "kept");
	if (ng_frame_fill(&h->meta, &f, &err) < 0)
		printf("Bail out! %s\n", err.text);
}

static unsigned char byte_at(uint64_t i)
{
	return (unsigned char)(i * 2654435761u >> 13);
}

static void write_frame(struct ng_writer *w, enum ng_kind kind, const char *site)
{
	struct ng_header h;
	struct ng_err err;

	make_header(&h, kind, site);
	CHECK(ng_writer_begin(w, &h, &err) == 0);
	for (uint64_t i = 0; i < h.data_bytes; i++) {
		unsigned char c = byte_at(i);
		if (ng_writer_data(w, &c, 1, &err) < 0)
			CHECK_MSG(false, err.text);
	}
	CHECK(ng_writer_data(w, "x", 1, &err) < 0 && err.code == NG_SOFTWARE);
	CHECK(ng_writer_end(w, &err) == 0);
	ng_header_release(&h);
}

/* A stream of one global or of n updates. */
static void make_stream(struct ng_str *out, unsigned flags, int updates)
{
	struct ng_writer *w;
	struct ng_err err;
	json_t *opening = json_pack("{s:s}", "experiment", "{\"experiment\":\"leaflets\",\"rounds\":9}");

	ng_str_init(out, 1 << 24);
	CHECK(ng_writer_open_fn(&w, sink, out, "test", flags, opening, &err) == 0);
	json_decref(opening);
	if (!updates)
		write_frame(w, NG_KIND_GLOBAL, NULL);
	for (int i = 0; i < updates; i++)
		write_frame(w, NG_KIND_UPDATE, i ? "site-b" : "site-a");
	CHECK(ng_writer_close(w, NG_OK, NULL, &err) == 0);
}

struct result {
	int rc; /* 0: read to a good end */
	struct ng_err err;
	bool upstream, right; /* all data as written */
	size_t frames;
	char digest[NG_HASH_HEX], object[NG_HASH_HEX];
	struct ng_str tee;
	bool opening;
};

static void read_data(struct ng_stream *s, struct result *r)
{
	const struct ng_tensor *t;
	unsigned char buf[97];

	while ((r->rc = ng_stream_tensor(s, &t, &r->err)) == 1)
		for (uint64_t at = 0; at < t->bytes;) {
			size_t n = t->bytes - at < sizeof buf ? (size_t)(t->bytes - at) : sizeof buf;
			if ((r->rc = ng_stream_read(s, buf, n, &r->err)) < 0)
				return;
			for (size_t i = 0; i < n; i++)
				r->right &= buf[i] == byte_at(t->offset + at + i);
			at += n;
		}
}

static void read_stream(struct result *r, const char *data, size_t len, size_t piece, unsigned flags)
{
	struct source src = { data, len, 0, piece };
	struct ng_stream *s;

	memset(r, 0, sizeof *r);
	ng_str_init(&r->tee, 1 << 24);
	r->right = true;
	if (ng_stream_open_fn(&s, source, &src, "test", flags, &r->err) < 0)
		CHECK_MSG(false, "open");
	ng_stream_tee(s, sink, &r->tee);
	while ((r->rc = ng_stream_next(s, &r->err)) == 1) {
		r->frames++;
		const char *experiment = json_string_value(json_object_get(ng_stream_opening(s), "experiment"));
		r->opening = experiment && strcmp(experiment, "{\"experiment\":\"leaflets\",\"rounds\":9}") == 0;
		read_data(s, r);
		if (r->rc < 0)
			break;
		snprintf(r->digest, sizeof r->digest, "%s", ng_stream_digest(s));
		snprintf(r->object, sizeof r->object, "%s", ng_stream_object_digest(s));
	}
	r->upstream = ng_stream_upstream(s);
	if (r->rc < 0) { /* and it stays so */
		struct ng_err again;
		if (ng_stream_next(s, &again) >= 0 || again.code != r->err.code)
			CHECK_MSG(false, "a broken stream stays broken");
	}
	ng_stream_close(s);
}

static void check_round_trip(void)
{
	struct ng_str one;
	struct result r;
	char hex[NG_HASH_HEX];
	static const size_t pieces[] = { 0, 1, 7, 4096 };

	make_stream(&one, 0, 0);
	for (size_t i = 0; i < NG_COUNT(pieces); i++) {
		read_stream(&r, one.data, one.len, pieces[i], NG_STREAM_DIGEST | NG_STREAM_OBJECT);
		CHECK_INT_EQ(r.rc, 0);
		CHECK_INT_EQ(r.frames, 1);
		CHECK(r.right);
		CHECK(!r.opening);
		CHECK(r.tee.len == one.len && memcmp(r.tee.data, one.data, one.len) == 0);
		ng_hash_bytes(hex, one.data, one.len);
		CHECK_STR_EQ(r.object, hex);
		ng_str_release(&r.tee);
	}
	/* zstd's own decoder gives the safetensors file; its content digest by hand */
	char plain[8192];
	size_t n = ZSTD_decompress(plain, sizeof plain, one.data, one.len);
	CHECK(!ZSTD_isError(n));
	CHECK_INT_EQ(n % 2, 0);
	uint64_t header = ng_le32((unsigned char *)plain) + 8;
	CHECK_INT_EQ(header % 64, 0);
	struct ng_header h;
	struct ng_err err;
	struct ng_str canonical;
	CHECK(ng_header_parse(&h, plain + 8, header - 8, n - header, "x", &err) == 0);
	CHECK_STR_EQ(ng_meta_get(&h.meta, "x.other"), "kept");
	CHECK_STR_EQ(ng_meta_get(&h.meta, "format"), "pt");
	CHECK_STR_EQ(ng_meta_get(&h.meta, "ng.experiment"), "{\"id\":\"" ID "\",\"name\":\"leaflets\"}");
	ng_str_init(&canonical, 1 << 20);
	CHECK(ng_header_encode(&canonical, &h, false, &err) == 0);
	ng_str_add(&canonical, plain + header, n - header);
	ng_hash_bytes(hex, canonical.data, canonical.len);
	CHECK_STR_EQ(r.digest, hex);
	ng_str_release(&canonical);
	ng_header_release(&h);
	ng_str_release(&one);
}

static void check_cuts(void)
{
	struct ng_str one, two;
	struct result r;
	int bad = 0;

	make_stream(&one, NG_WRITER_BRACKETS, 2);
	read_stream(&r, one.data, one.len, 0, 0);
	CHECK(r.rc == 0 && r.frames == 2 && r.right && r.opening);
	ng_str_release(&r.tee);
	for (size_t n = 0; n < one.len; n++) {
		read_stream(&r, one.data, n, 0, 0);
		bad += r.rc != -1 || r.err.code != NG_DATA;
		ng_str_release(&r.tee);
	}
	CHECK_INT_EQ(bad, 0);
	make_stream(&two, 0, 0);
	for (size_t n = 0; n < two.len; n++) {
		read_stream(&r, two.data, n, 0, 0);
		bad += r.rc != -1 || r.err.code != NG_DATA;
		ng_str_release(&r.tee);
	}
	CHECK_INT_EQ(bad, 0);

	/* one bit anywhere: told, or it changed nothing that is used */
	for (size_t bit = 0; bit < one.len * 8; bit++) {
		one.data[bit / 8] = (char)(one.data[bit / 8] ^ 1 << bit % 8);
		read_stream(&r, one.data, one.len, 0, 0);
		if (r.rc == 0 && !(r.frames == 2 && r.right && r.opening)) {
			printf("# bit %zu of byte %zu of %zu\n", bit % 8, bit / 8, one.len);
			bad++;
		}
		ng_str_release(&r.tee);
		one.data[bit / 8] = (char)(one.data[bit / 8] ^ 1 << bit % 8);
	}
	CHECK_INT_EQ(bad, 0);
	ng_str_release(&one);
	ng_str_release(&two);
}

/* A skippable frame of somebody else. */
static void add_foreign(struct ng_str *s, uint32_t magic, const char *text)
{
	unsigned char head[8];

	for (int i = 0; i < 4; i++) {
		head[i] = (unsigned char)(magic >> 8 * i);
		head[4 + i] = (unsigned char)(strlen(text) >> 8 * i);
	}
	ng_str_add(s, head, 8);
	ng_str_adds(s, text);
}

static void expect(const char *what, const struct ng_str *s, int rc, int code, size_t frames)
{
	struct result r;

	read_stream(&r, s->data ? s->data : "", s->len, 0, 0);
	bool ok = r.rc == rc && r.frames == frames && (rc == 0 || (int)r.err.code == code);
	if (!CHECK_MSG(ok, what))
		printf("# got rc %d, %zu frames, code %d '%s'\n", r.rc, r.frames, r.rc ? (int)r.err.code : 0,
			r.rc ? r.err.text : "");
	ng_str_release(&r.tee);
}

static void check_sequences(void)
{
	struct ng_str bare, bracketed, s;

	make_stream(&bare, 0, 1);
	make_stream(&bracketed, NG_WRITER_BRACKETS, 2);
	ng_str_init(&s, 1 << 24);
	expect("nothing at all", &s, -1, NG_DATA, 0);
	add_foreign(&s, 0x184D2A50, "pzstd");
	add_foreign(&s, 0x184D2A5E, "not ours");
	add_foreign(&s, 0x184D2A5E, "");
	expect("nothing but foreign frames", &s, -1, NG_DATA, 0);
	ng_str_add(&s, bare.data, bare.len);
	add_foreign(&s, 0x184D2A5F, "{\"ng\":not our magic");
	expect("a frame among foreign ones", &s, 0, 0, 1);
	ng_str_add(&s, bare.data, bare.len);
	ng_str_add(&s, bracketed.data, bracketed.len);
	ng_str_add(&s, bracketed.data, bracketed.len);
	ng_str_add(&s, bare.data, bare.len);
	expect("files and bracketed streams one after another", &s, 0, 0, 7);
	ng_str_adds(&s, "x");
	expect("a byte too many", &s, -1, NG_DATA, 7);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"open\":{}}}");
	ng_str_add(&s, bracketed.data, bracketed.len);
	expect("an opening inside a bracket", &s, -1, NG_DATA, 0);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"open\":{}}}");
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"later\":{}}}");
	ng_str_add(&s, bare.data, bare.len);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"close\":{\"code\":0,\"frames\":1}}}");
	expect("brackets by hand, an unknown one between", &s, 0, 0, 1);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"close\":{\"code\":0,\"frames\":1}}}");
	expect("a second closing", &s, -1, NG_DATA, 1);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"open\":{}}}");
	ng_str_add(&s, bare.data, bare.len);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"close\":{\"code\":0,\"frames\":2}}}");
	expect("a closing that counts more frames", &s, -1, NG_DATA, 1);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"open\":{}}}");
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"close\":{\"code\":0,\"frames\":0}}}");
	expect("brackets around nothing", &s, 0, 0, 0);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":[}");
	expect("a bracket that is no JSON", &s, -1, NG_DATA, 0);
	ng_str_reset(&s);
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"open\":{}}}");
	add_foreign(&s, 0x184D2A5E, "{\"ng\":{\"close\":{\"code\":700,\"frames\":0}}}");
	expect("a code out of range", &s, -1, NG_DATA, 0);
	static const char *const other[] = { "<!DOCTYPE html>", "{\"anchor\": \"text\"}\n", "\x1f\x8b\x08\x00", "abc" };
	for (size_t i = 0; i < NG_COUNT(other); i++) {
		ng_str_reset(&s);
		ng_str_adds(&s, other[i]);
		expect("something else", &s, -1, NG_DATA, 0);
	}
	ng_str_release(&s);
	ng_str_release(&bare);
	ng_str_release(&bracketed);
}

/* A program that fails tells its readers, wherever it stands. */
static void check_failures(void)
{
	struct ng_err err;

	for (int where = 0; where < 4; where++) {
		struct ng_str s;
		struct ng_writer *w;
		struct ng_header h;
		struct result r;
		char raw[1000];
		ng_str_init(&s, 1 << 24);
		CHECK(ng_writer_open_fn(&w, sink, &s, "test", NG_WRITER_BRACKETS, NULL, &err) == 0);
		if (where >= 1)
			write_frame(w, NG_KIND_UPDATE, "site-a");
		if (where == 2) { /* inside a frame, with some of it on its way */
			make_header(&h, NG_KIND_UPDATE, "site-b");
			CHECK(ng_writer_begin(w, &h, &err) == 0);
			CHECK(ng_writer_data(w, "abcd", 4, &err) == 0);
			ng_header_release(&h);
		}
		if (where == 3) { /* inside one that is passed through */
			memcpy(raw, s.data + 60, 500 < s.len - 60 ? 500 : s.len - 60);
			CHECK(ng_writer_raw(w, "\x28\xb5\x2f\xfd\x64\x00\x10\x15\x00\x00", 10, &err) == 0);
			CHECK(ng_writer_raw(w, raw, 100, &err) == 0);
		}
		CHECK(ng_writer_close(w, where ? NG_REFUSED : NG_NOTHING, "tensor '\"w\"\\' holds NaN", &err) == 0);
		read_stream(&r, s.data, s.len, 0, 0);
		CHECK_INT_EQ(r.rc, -1);
		CHECK_INT_EQ(r.err.code, where ? NG_REFUSED : NG_NOTHING);
		CHECK(r.upstream);
		CHECK(strstr(r.err.text, "tensor '\"w\"\\' holds NaN") != NULL);
		CHECK_INT_EQ(r.frames, where ? 1 : 0);
		ng_str_release(&r.tee);
		ng_str_release(&s);
	}
	/* ng_die closes the output that is open */
	int fd[2];
	if (pipe(fd) < 0)
		return;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		struct ng_writer *w;
		ng_start("ng-test");
		ng_verbosity = -1;
		if (freopen("/dev/null", "w", stderr) == NULL ||
			ng_writer_open_fd(&w, fd[1], "-", NG_WRITER_BRACKETS, NULL, &err) < 0)
			_exit(99);
		ng_die(NG_IOERR, "disk full");
	}
	close(fd[1]);
	struct ng_stream *s;
	CHECK(ng_stream_open_fd(&s, fd[0], true, "-", 0, &err) == 0);
	CHECK_INT_EQ(ng_stream_next(s, &err), -1);
	CHECK_INT_EQ(err.code, NG_IOERR);
	CHECK_STR_EQ(err.text, "ng-test: disk full");
	ng_stream_close(s);
	int status;
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == NG_IOERR);
}

static void compress(struct ng_str *out, const char *plain, size_t n, int window_log, int checksum)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t cap = ZSTD_compressBound(n);
	char *buf = ng_xmalloc(cap);
	ZSTD_outBuffer o = { buf, cap, 0 };
	ZSTD_inBuffer in = { plain, n, 0 };

	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum);
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_continue); /* size not pledged: the window stays as it is */
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_end);
	ng_str_init(out, 1 << 24);
	ng_str_add(out, buf, o.pos);
	free(buf);
	ZSTD_freeCCtx(c);
}

/* Frames of other makers: refused, or made anew where that is asked for. */
static void check_reframe(void)
{
	static const struct {
		int window, checksum;
		const char *why;
	} cases[] = { { 19, 1, NULL }, { 20, 1, "window" }, { 19, 0, "checksum" }, { 25, 0, "window" } };
	struct ng_str one;
	char plain[8192];

	make_stream(&one, 0, 0);
	size_t n = ZSTD_decompress(plain, sizeof plain, one.data, one.len);
	for (size_t i = 0; i < NG_COUNT(cases); i++) {
		struct ng_str z;
		struct result r, again;
		compress(&z, plain, n, cases[i].window, cases[i].checksum);
		read_stream(&r, z.data, z.len, 0, 0);
		if (cases[i].why)
			CHECK(r.rc == -1 && r.err.code == NG_DATA && strstr(r.err.text, cases[i].why));
		else
			CHECK_INT_EQ(r.rc, 0);
		ng_str_release(&r.tee);
		read_stream(&r, z.data, z.len, 0, NG_STREAM_REFRAME | NG_STREAM_OBJECT | NG_STREAM_DIGEST);
		CHECK(r.rc == 0 && r.right);
		read_stream(&again, r.tee.data, r.tee.len, 0, NG_STREAM_OBJECT | NG_STREAM_DIGEST);
		CHECK(again.rc == 0 && again.right);
		CHECK_STR_EQ(again.object, r.object);
		CHECK_STR_EQ(again.digest, r.digest);
		ng_str_release(&r.tee);
		ng_str_release(&again.tee);
		ng_str_release(&z);
	}
	ng_str_release(&one);
}

/* A safetensors text with the given header and zeros for data, as a stream. */
static void check_contents(void)
{
#define META(rest)                                                                                                \
	"{\"__metadata__\":{\"ng.version\":\"1\",\"ng.kind\":\"global\",\"ng.config\":\"{}\",\"ng.round\":\"0\"," \
	"\"ng.experiment\":\"{\\\"id\\\":\\\"" ID "\\\",\\\"name\\\":\\\"x\\\"}\"}" rest
#define U(name, from, to) ",\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" #from "," #to "]}"
	static const struct {
		const char *json;
		size_t data;
		const char *why;
	} cases[] = {
		{ META(U("a", 0, 1) U("b", 1, 2) "}"), 2, NULL },
		{ META("}"), 0, NULL },
		{ META(U("a", 0, 1) "}"), 2, "follow the last" },
		{ META(U("a", 0, 1) "}"), 0, "frame ends before" },
		{ META(U("a", 1, 2) U("b", 0, 1) "}"), 2, "order of ng-stream" },
		{ META(U("a@q", 0, 1) "}"), 1, "'@'" },
		{ META(U("a\\tb", 0, 1) "}"), 1, "unprintable" },
		{ META(U("a", 0, 1) U("a", 1, 2) "}"), 2, "twice" },
		{ "{}", 0, "ng.version is missing" },
		{ "{\"__metadata__\":{\"ng.version\":\"2\"}}", 0, "newer" },
		{ "{\"__metadata__\":{\"ng.version\":\"1\",\"ng.kind\":\"globe\"}}", 0, "ng.kind" },
		{ "[]", 0, "begin with" },
	};

	for (size_t i = 0; i < NG_COUNT(cases); i++) {
		struct ng_str plain, z;
		struct result r;
		char word[8] = { 0 }, zeros[8] = { 0 };
		size_t n = strlen(cases[i].json);
		word[0] = (char)(unsigned char)(n & 255);
		word[1] = (char)(unsigned char)(n >> 8);
		ng_str_init(&plain, 1 << 20);
		ng_str_add(&plain, word, 8);
		ng_str_adds(&plain, cases[i].json);
		ng_str_add(&plain, zeros, cases[i].data);
		compress(&z, plain.data, plain.len, 19, 1);
		read_stream(&r, z.data, z.len, 0, 0);
		bool ok = cases[i].why ? r.rc < 0 && r.err.code == NG_DATA && strstr(r.err.text, cases[i].why)
				       : r.rc == 0;
		if (!CHECK_MSG(ok, cases[i].why ? cases[i].why : "a good frame"))
			printf("# got %d '%s'\n", r.rc, r.rc < 0 ? r.err.text : "");
		ng_str_release(&r.tee);
		/* uncompressed, and the order free, where that is asked for */
		read_stream(&r, plain.data, plain.len, 0, 0);
		CHECK(r.rc < 0 && r.err.code == NG_DATA);
		ng_str_release(&r.tee);
		read_stream(&r, plain.data, plain.len, 0, NG_STREAM_PLAIN | NG_STREAM_ANY_META | NG_STREAM_DIGEST);
		bool order = cases[i].why && (strstr(cases[i].why, "order") || strstr(cases[i].why, "ng.") ||
						     strstr(cases[i].why, "newer") || strstr(cases[i].why, "'@'") ||
						     strstr(cases[i].why, "unprint"));
		CHECK_MSG((r.rc == 0) == (!cases[i].why || order), "the same uncompressed");
		CHECK_INT_EQ(
			strlen(r.digest), r.rc == 0 && !(cases[i].why && strstr(cases[i].why, "order of")) ? 64 : 0);
		ng_str_release(&r.tee);
		ng_str_release(&plain);
		ng_str_release(&z);
	}
}

/* A frame that its header makes the caller refuse leaves no trace in the tee. */
static void check_held(void)
{
	struct ng_str two, tee;
	struct ng_stream *s;
	struct ng_err err;

	make_stream(&two, 0, 2);
	ng_str_init(&tee, 1 << 20);
	struct source src = { two.data, two.len, 0, 0 };
	CHECK(ng_stream_open_fn(&s, source, &src, "test", 0, &err) == 0);
	ng_stream_tee(s, sink, &tee);
	CHECK_INT_EQ(ng_stream_next(s, &err), 1);
	CHECK_STR_EQ(ng_stream_frame(s)->site, "site-a");
	CHECK_INT_EQ(tee.len, 0);
	ng_stream_tee(s, NULL, NULL);
	CHECK_INT_EQ(ng_stream_next(s, &err), 1);
	CHECK_STR_EQ(ng_stream_frame(s)->site, "site-b");
	ng_stream_tee(s, sink, &tee); /* late, and still whole */
	CHECK_INT_EQ(ng_stream_next(s, &err), 0);
	CHECK(tee.len > 0 && tee.len < two.len);
	CHECK(memcmp(tee.data, two.data + two.len - tee.len, tee.len) == 0);
	CHECK_INT_EQ(ng_stream_raw_bytes(s), tee.len);
	ng_stream_close(s);
	ng_str_release(&two);
	ng_str_release(&tee);
}

/* 500 MB through writer and reader; zeros, so that the stream itself is small. */
static void check_memory(void)
{
	static const uint64_t dim[1] = { 125000000 };
	struct ng_header h;
	struct ng_frame f;
	struct ng_err err;
	struct ng_str s;
	struct ng_writer *w;
	struct ng_stream *r;
	struct rusage before, after;
	if (getenv("NG_SANITIZED")) {
		SKIP("500 MB through a sanitizer");
		return;
	}
	float *block = ng_xcalloc(1 << 18, sizeof *block);

	ng_str_init(&s, 1 << 24);
	ng_header_init(&h);
	ng_header_add(&h, "w", NG_F32, 1, dim, &err);
	ng_header_finish(&h, &err);
	ng_frame_init(&f);
	snprintf(f.name, sizeof f.name, "x");
	memcpy(f.id, ID, sizeof f.id);
	f.config = "{}";
	CHECK(ng_frame_fill(&h.meta, &f, &err) == 0);
	getrusage(RUSAGE_SELF, &before);
	CHECK(ng_writer_open_fn(&w, sink, &s, "test", 0, NULL, &err) == 0);
	CHECK(ng_writer_begin(w, &h, &err) == 0);
	for (uint64_t at = 0; at < h.data_bytes;) {
		size_t n = h.data_bytes - at < 1 << 20 ? (size_t)(h.data_bytes - at) : 1 << 20;
		if (ng_writer_data(w, block, n, &err) < 0)
			break;
		at += n;
	}
	CHECK(ng_writer_end(w, &err) == 0);
	CHECK(ng_writer_close(w, NG_OK, NULL, &err) == 0);
	struct source src = { s.data, s.len, 0, 65536 };
	CHECK(ng_stream_open_fn(&r, source, &src, "test", 0, &err) == 0);
	CHECK_INT_EQ(ng_stream_next(r, &err), 1);
	CHECK_INT_EQ(ng_stream_tensor(r, NULL, &err), 1);
	double sum = 0;
	for (uint64_t at = 0; at < dim[0];) {
		size_t n = dim[0] - at < 1 << 18 ? (size_t)(dim[0] - at) : 1 << 18;
		if (ng_stream_read_f32(r, block, n, &err) < 0)
			break;
		sum += (double)block[0];
		at += n;
	}
	CHECK(sum == 0);
	CHECK_INT_EQ(ng_stream_next(r, &err), 0);
	CHECK(ng_stream_plain_bytes(r) > 500000000);
	getrusage(RUSAGE_SELF, &after);
	printf("# resident memory: %ld KiB before, %ld KiB after\n", before.ru_maxrss, after.ru_maxrss);
#ifndef SANITIZED
	CHECK(after.ru_maxrss - before.ru_maxrss < 16 << 10);
#endif
	ng_stream_close(r);
	ng_header_release(&h);
	ng_str_release(&s);
	free(block);
}

int main(void)
{
	check_round_trip();
	check_cuts();
	check_sequences();
	check_failures();
	check_reframe();
	check_contents();
	check_held();
	check_memory();
	return check_done();
}
