/*
 * stream.c - reading streams; see stream.h.  The writer is writer.c.
 *
 * A stream is a loop of frames at the lowest level: zstd frames are decoded
 * straight into the caller's buffer, skippable ones are skipped or, if they
 * are brackets, obeyed.  Memory: 256 KiB of input, zstd's window (512 KiB) and
 * the frame's header, whatever the size of the model.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/sig.h"
#include "common/tensor/hasher.h"
#include "common/tensor/stream.h"
#include "common/tensor/stream_private.h"
#include "common/tensor/zframe.h"

#define IN_SIZE (256u << 10)
#define SCRATCH (256u << 10)
#define TAIL (NG_CLOSING_MAX + 8)
#define REFRAME_WINDOW_LOG 27

enum state { BETWEEN, INSIDE, ENDED, BROKEN };

struct ng_stream {
	ng_read_fn *read;
	void *read_arg;
	int fd;	    /* for our own read function */
	bool own;   /* close fd */
	char *name; /* quoted, or "standard input" */
	char *bare; /* the same without quotation marks */
	unsigned flags;

	unsigned char *in;
	size_t in_pos, in_len;
	bool eof;

	enum state state;
	struct ng_err err; /* why BROKEN */
	bool upstream;
	bool started; /* any byte looked at */
	size_t count;

	bool bracket; /* between an opening and its closing */
	size_t bracket_count;
	bool bracket_seen;
	char opening_hex[NG_HASH_HEX];
	json_t *opening; /* kept after its closing until something else comes */

	/* the frame */
	ZSTD_DCtx *dctx;
	bool plain;	/* uncompressed */
	bool plain_end; /* decoded to its end, checksum right */
	struct ng_header header;
	struct ng_frame frame;
	bool have_frame;
	size_t index;  /* of the tensor after the current one */
	uint64_t left; /* bytes of the current tensor */
	uint64_t raw_bytes, plain_bytes;

	ng_write_fn *tee;
	void *tee_arg;
	bool holding; /* the header is not accepted yet: tee's bytes are held */
	struct ng_str held;
	struct ng_hasher *digest, *object; /* NULL unless asked for */
	char digest_hex[NG_HASH_HEX], object_hex[NG_HASH_HEX];
	struct ng_zcoder *reframe; /* NULL: the bytes go to tee as they came */
	bool reframing;
	unsigned char *scratch;
};

/* ---- errors ---- */

static int fail(struct ng_stream *s, struct ng_err *err, enum ng_code code, const char *fmt, ...) NG_PRINTF(4, 5);

static int fail(struct ng_stream *s, struct ng_err *err, enum ng_code code, const char *fmt, ...)
{
	char text[NG_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (s->count > 1)
		return ng_fail(err, code, "%s, frame %zu: %s", s->name, s->count, text);
	return ng_fail(err, code, "%s: %s", s->name, text);
}

/* ---- input ---- */

static ptrdiff_t read_fd(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct ng_stream *s = arg;

	for (;;) {
		ssize_t got = read(s->fd, buf, n);
		if (got >= 0)
			return got;
		if (errno == EINTR)
			continue;
		ng_fail_errno(err, NG_IOERR, "cannot read %s", s->name);
		return -1;
	}
}

/* At least need bytes in the buffer, unless the input ends. -1 on a read error. */
static int fill(struct ng_stream *s, size_t need, struct ng_err *err)
{
	if (s->in_len - s->in_pos >= need)
		return 0;
	if (s->in_pos > 0) {
		memmove(s->in, s->in + s->in_pos, s->in_len - s->in_pos);
		s->in_len -= s->in_pos;
		s->in_pos = 0;
	}
	while (s->in_len < need && !s->eof) {
		ptrdiff_t got = s->read(s->read_arg, s->in + s->in_len, IN_SIZE - s->in_len, err);
		if (got < 0)
			return -1;
		if (got == 0)
			s->eof = true;
		s->in_len += (size_t)got;
	}
	return 0;
}

static size_t available(const struct ng_stream *s)
{
	return s->in_len - s->in_pos;
}

/* An error inside a bracket may have its cause upstream: a program that dies
 * in the middle of a frame still writes its closing.  Find it at the end. */
static void look_for_closing(struct ng_stream *s, struct ng_err *err)
{
	struct ng_closing c;
	struct ng_err ignored;

	if (!s->bracket || err->code != NG_DATA || s->upstream)
		return;
	for (;;) {
		size_t have = available(s);
		if (have > TAIL) {
			s->in_pos += have - TAIL;
			have = TAIL;
		}
		if (s->eof)
			break;
		if (fill(s, have + 1, &ignored) < 0)
			return;
	}
	if (ng_closing_find(&c, s->in + s->in_pos, available(s)) && c.code != 0) {
		s->upstream = true;
		ng_fail(err, (enum ng_code)c.code, "%s", c.reason[0] ? c.reason : "the program before this one failed");
	}
}

/* Every public function that fails leaves through here. */
static int broken(struct ng_stream *s, struct ng_err *err)
{
	look_for_closing(s, &s->err);
	s->state = BROKEN;
	if (err)
		*err = s->err;
	return -1;
}

static int again(struct ng_stream *s, struct ng_err *err)
{
	if (err)
		*err = s->err;
	return -1;
}

/* ---- the bytes of a frame ---- */

static int out_bytes(struct ng_stream *s, const void *data, size_t n, struct ng_err *err)
{
	s->raw_bytes += n;
	if (s->flags & NG_STREAM_OBJECT)
		ng_hasher_update(s->object, data, n);
	if (!s->holding)
		return s->tee ? s->tee(s->tee_arg, data, n, err) : 0;
	if (ng_str_add(&s->held, data, n) < 0)
		return fail(s, err, NG_OSERR, "no memory for a frame's beginning");
	return 0;
}

/* The caller reads on: what was held goes out. */
static int let_go(struct ng_stream *s, struct ng_err *err)
{
	int rc = 0;

	if (!s->holding)
		return 0;
	s->holding = false;
	if (s->tee && s->held.len > 0)
		rc = s->tee(s->tee_arg, s->held.data, s->held.len, err);
	ng_str_release(&s->held); /* no memory of it while the frame is read, many are at once */
	return rc;
}

static int out_reframed(void *arg, const void *data, size_t n, struct ng_err *err)
{
	return out_bytes(arg, data, n, err);
}

static int consumed(struct ng_stream *s, size_t n, struct ng_err *err)
{
	const unsigned char *p = s->in + s->in_pos;

	s->in_pos += n;
	return s->reframing ? 0 : out_bytes(s, p, n, err);
}

static int produced(struct ng_stream *s, const void *data, size_t n, struct ng_err *err)
{
	s->plain_bytes += n;
	return s->reframing ? ng_zcoder_data(s->reframe, data, n, err) : 0;
}

static int decode_plain(struct ng_stream *s, unsigned char *dst, size_t n, size_t *got, struct ng_err *err)
{
	while (*got < n && !s->plain_end) {
		if (fill(s, 1, err) < 0)
			return -1;
		size_t k = available(s) < n - *got ? available(s) : n - *got;
		if (k == 0) {
			s->plain_end = true;
			break;
		}
		memcpy(dst + *got, s->in + s->in_pos, k);
		if (consumed(s, k, err) < 0)
			return -1;
		*got += k;
	}
	return 0;
}

/* Up to n bytes of the uncompressed file; fewer only at the frame's end. */
static int decode(struct ng_stream *s, void *dst, size_t n, size_t *got, struct ng_err *err)
{
	ZSTD_outBuffer out = { dst, n, 0 };

	*got = 0;
	if (s->plain) {
		if (decode_plain(s, dst, n, got, err) < 0)
			return -1;
		return produced(s, dst, *got, err);
	}
	while (out.pos < out.size && !s->plain_end) {
		if (fill(s, 1, err) < 0)
			return -1;
		if (available(s) == 0)
			return fail(s, err, NG_DATA, "the stream is cut: it ends inside a frame");
		ZSTD_inBuffer in = { s->in + s->in_pos, available(s), 0 };
		size_t rc = ZSTD_decompressStream(s->dctx, &out, &in);
		if (ZSTD_isError(rc))
			return fail(s, err, ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation ? NG_OSERR : NG_DATA,
				"damaged: %s", ZSTD_getErrorName(rc));
		if (consumed(s, in.pos, err) < 0)
			return -1;
		s->plain_end = rc == 0;
	}
	*got = out.pos;
	return produced(s, dst, out.pos, err);
}

static int decode_exactly(struct ng_stream *s, void *dst, size_t n, struct ng_err *err)
{
	size_t got;

	if (decode(s, dst, n, &got, err) < 0)
		return -1;
	if (got < n)
		return fail(s, err, NG_DATA,
			s->plain ? "the file is cut: its data ends early"
				 : "the frame ends before the data that its header tells of");
	return 0;
}

/* ---- the start of a frame ---- */

static int frame_open(struct ng_stream *s, struct ng_err *err)
{
	struct ng_zframe z;

	s->plain_end = s->reframing = false;
	s->raw_bytes = s->plain_bytes = 0;
	s->digest_hex[0] = s->object_hex[0] = '\0';
	s->holding = true;
	ng_str_reset(&s->held);
	if (s->flags & NG_STREAM_OBJECT)
		ng_hasher_init(s->object);
	if (s->plain)
		return 0;
	if (fill(s, NG_ZFRAME_HEADER_MAX, err) < 0)
		return -1;
	if (!ng_zframe_parse(&z, s->in + s->in_pos, available(s)))
		return fail(s, err, NG_DATA, "the stream is cut or damaged: a bad frame header");
	if (z.dictionary)
		return fail(s, err, NG_DATA, "the frame needs a dictionary");
	bool large = z.window > NG_ZFRAME_WINDOW_MAX;
	if (!(s->flags & NG_STREAM_REFRAME)) {
		if (large)
			return fail(s, err, NG_DATA,
				"the frame needs a window of %llu bytes, more than 512 KiB (compress with `zstd -1`)",
				(unsigned long long)z.window);
		if (!z.checksum)
			return fail(s, err, NG_DATA, "the frame has no checksum (compress with `zstd -1 --check`)");
	} else if (z.window > (uint64_t)1 << REFRAME_WINDOW_LOG) {
		return fail(s, err, NG_DATA, "the frame needs a window of %llu bytes, more than 128 MiB",
			(unsigned long long)z.window);
	}
	s->reframing = large || !z.checksum;
	if (s->reframing && ng_zcoder_begin(&s->reframe, out_reframed, s, z.content, err) < 0)
		return -1;
	ZSTD_DCtx_reset(s->dctx, ZSTD_reset_session_only);
	return 0;
}

static int read_header(struct ng_stream *s, struct ng_err *err)
{
	struct ng_str json;
	unsigned char word[8];
	uint64_t len;
	size_t got;
	int rc = -1;

	ng_str_init(&json, NG_HEADER_MAX);
	if (s->plain) {
		/* more than the length word, to say what it is instead */
		if (fill(s, 64, err) < 0)
			return -1;
		if (ng_header_length(&len, s->in + s->in_pos, available(s) < 64 ? available(s) : 64, s->bare, err) < 0)
			return -1;
	}
	if (decode(s, word, sizeof word, &got, err) < 0 || ng_header_length(&len, word, got, s->bare, err) < 0)
		goto out;
	while (json.len < len) {
		size_t n = len - json.len < SCRATCH ? (size_t)(len - json.len) : SCRATCH;
		if (decode_exactly(s, s->scratch, n, err) < 0)
			goto out;
		if (ng_str_add(&json, s->scratch, n) < 0) {
			fail(s, err, NG_OSERR, "no memory for a header of %llu bytes", (unsigned long long)len);
			goto out;
		}
	}
	rc = ng_header_parse(&s->header, json.data, json.len, UINT64_MAX, s->bare, err);
out:
	ng_str_release(&json);
	return rc;
}

/* Does a codec text (checked JSON) say that all tensors are plain? */
static bool all_plain(const char *codec)
{
	return !codec || strcmp(codec, "\"f32\"") == 0;
}

static int check_frame(struct ng_stream *s, struct ng_err *err)
{
	s->have_frame = ng_frame_parse(&s->frame, &s->header.meta, err) == 0;
	if (!s->have_frame) {
		if (!(s->flags & NG_STREAM_ANY_META))
			return ng_fail_prefix(err, s->count > 1 ? "%s, frame %zu" : "%s", s->name, s->count);
		ng_frame_init(&s->frame);
	}
	if (s->plain)
		return 0;
	if (!ng_header_canonical(&s->header))
		return fail(s, err, NG_DATA,
			"the tensors are not in the order of ng-stream(5): type descending, then name");
	if (ng_header_check_names(&s->header, !s->have_frame || !all_plain(s->frame.codec), err) < 0)
		return ng_fail_prefix(err, "%s", s->name);
	return 0;
}

static int digest_start(struct ng_stream *s, struct ng_err *err)
{
	struct ng_str text;
	int rc;

	if (!(s->flags & NG_STREAM_DIGEST) || !ng_header_canonical(&s->header))
		return 0;
	ng_str_init(&text, NG_HEADER_MAX + 64);
	ng_hasher_init(s->digest);
	rc = ng_header_encode(&text, &s->header, false, err);
	if (rc == 0)
		ng_hasher_update(s->digest, text.data, text.len);
	ng_str_release(&text);
	return rc;
}

static int frame_start(struct ng_stream *s, struct ng_err *err)
{
	s->count++;
	s->bracket_count++;
	if (!s->bracket) { /* a bare frame after a bracketed stream */
		json_decref(s->opening);
		s->opening = NULL;
	}
	ng_header_release(&s->header);
	s->have_frame = false;
	s->index = 0;
	s->left = 0;
	if (frame_open(s, err) < 0 || read_header(s, err) < 0 || check_frame(s, err) < 0 || digest_start(s, err) < 0)
		return -1;
	s->state = INSIDE;
	return 1;
}

static int frame_end(struct ng_stream *s, struct ng_err *err)
{
	unsigned char more;
	size_t got;

	if (decode(s, &more, 1, &got, err) < 0)
		return -1;
	if (got > 0 || !s->plain_end)
		return fail(s, err, NG_DATA, "bytes follow the last tensor");
	if (s->reframing && ng_zcoder_end(s->reframe, err) < 0)
		return -1;
	if (s->flags & NG_STREAM_DIGEST && ng_header_canonical(&s->header))
		ng_hasher_final(s->digest, s->digest_hex);
	if (s->flags & NG_STREAM_OBJECT)
		ng_hasher_final(s->object, s->object_hex);
	s->state = BETWEEN;
	return 0;
}

/* ---- brackets and the end ---- */

static int bracket_opening(struct ng_stream *s, json_t *opening, const struct ng_str *text, struct ng_err *err)
{
	if (s->bracket) {
		json_decref(opening);
		return fail(
			s, err, NG_DATA, "the stream is cut: an opening without its closing is followed by another");
	}
	json_decref(s->opening);
	s->opening = opening;
	s->bracket = s->bracket_seen = true;
	s->bracket_count = 0;
	ng_hash_bytes(s->opening_hex, text->data, text->len);
	return 0;
}

static int bracket_closing(struct ng_stream *s, const struct ng_closing *c, struct ng_err *err)
{
	if (!s->bracket)
		return fail(s, err, NG_DATA, "the stream is damaged: a closing without an opening");
	if (c->code != 0) {
		s->upstream = true;
		return ng_fail(err, (enum ng_code)c->code, "%s",
			c->reason[0] ? c->reason : "the program before this one failed");
	}
	if (c->frames != s->bracket_count)
		return fail(
			s, err, NG_DATA, "the stream is damaged: %zu frames came of %zu", s->bracket_count, c->frames);
	if (c->opening[0] && strcmp(c->opening, s->opening_hex) != 0)
		return fail(s, err, NG_DATA, "the stream is damaged: its opening is not the one that was written");
	s->bracket = false;
	return 0;
}

/* A skippable frame at the cursor, its 8 bytes of head present. */
static int skippable(struct ng_stream *s, struct ng_err *err)
{
	uint32_t magic = ng_le32(s->in + s->in_pos), left = ng_le32(s->in + s->in_pos + 4);
	size_t begin = strlen(NG_BRACKET_BEGIN);
	struct ng_closing closing;
	struct ng_str text;
	json_t *opening = NULL;
	enum ng_bracket what;
	int rc = -1;

	s->in_pos += 8;
	if (fill(s, begin, err) < 0)
		return -1;
	bool ours = magic == NG_BRACKET_MAGIC && left >= begin && available(s) >= begin &&
		    memcmp(s->in + s->in_pos, NG_BRACKET_BEGIN, begin) == 0;
	if (ours && left > NG_BRACKET_MAX)
		return fail(s, err, NG_DATA, "a bracket of %lu bytes", (unsigned long)left);
	ng_str_init(&text, NG_BRACKET_MAX);
	while (left > 0) {
		if (fill(s, 1, err) < 0)
			goto out;
		size_t n = available(s) < left ? available(s) : left;
		if (n == 0) {
			fail(s, err, NG_DATA, "the stream is cut: it ends inside a skippable frame");
			goto out;
		}
		if (ours)
			ng_str_add(&text, s->in + s->in_pos, n);
		s->in_pos += n;
		left -= (uint32_t)n;
	}
	rc = 0;
	if (!ours)
		goto out;
	if (ng_bracket_parse(&what, &opening, &closing, text.data, text.len, err) < 0)
		rc = ng_fail_prefix(err, "%s", s->name);
	else if (what == NG_BRACKET_OPEN)
		rc = bracket_opening(s, opening, &text, err);
	else if (what == NG_BRACKET_CLOSE)
		rc = bracket_closing(s, &closing, err);
out:
	ng_str_release(&text);
	return rc;
}

static int stream_end(struct ng_stream *s, struct ng_err *err)
{
	if (s->bracket)
		return fail(s, err, NG_DATA, "the stream is cut: the program before this one ended without closing it");
	if (s->count == 0 && !s->bracket_seen)
		return fail(s, err, NG_DATA, "empty: nothing came%s", s->started ? " but foreign frames" : "");
	s->state = ENDED;
	return 0;
}

/* Neither zstd nor skippable: say what it is. */
static int not_a_frame(struct ng_stream *s, struct ng_err *err)
{
	const unsigned char *p = s->in + s->in_pos;
	size_t n = available(s) < 64 ? available(s) : 64;
	uint64_t len;

	if (s->started)
		return fail(s, err, NG_DATA, "the stream is damaged: no frame begins after frame %zu", s->count);
	if (s->flags & NG_STREAM_PLAIN) {
		s->plain = true;
		return frame_start(s, err);
	}
	if (ng_header_length(&len, p, n, s->bare, err) == 0 && n > 8 && p[8] == '{')
		return fail(s, err, NG_DATA,
			"an uncompressed safetensors file, where a stream was expected (compress it with `zstd -1`)");
	if (n >= 8 && len <= NG_HEADER_MAX)
		return fail(s, err, NG_DATA, "no stream of ng: it does not begin with a zstd frame");
	return -1;
}

static int find_frame(struct ng_stream *s, struct ng_err *err)
{
	for (;;) {
		if (fill(s, 64, err) < 0)
			return -1;
		size_t n = available(s);
		if (n == 0 || s->plain) {
			if (n > 0)
				return fail(s, err, NG_DATA, "bytes follow the safetensors file");
			return stream_end(s, err);
		}
		uint32_t magic = n >= 4 ? ng_le32(s->in + s->in_pos) : 0;
		if (n >= 8 && ng_zframe_skippable(magic)) {
			s->started = true;
			if (skippable(s, err) < 0)
				return -1;
			continue;
		}
		if (n >= 4 && magic == NG_ZFRAME_MAGIC) {
			s->started = true;
			return frame_start(s, err);
		}
		if (s->started && (n < 8 && (n < 4 || ng_zframe_skippable(magic))))
			return fail(s, err, NG_DATA, "the stream is cut: it ends inside a frame header");
		return not_a_frame(s, err);
	}
}

/* ---- public ---- */

static struct ng_stream *stream_new(const char *name, unsigned flags)
{
	struct ng_stream *s = ng_xcalloc(1, sizeof *s);

	s->fd = -1;
	s->name = strcmp(name, "-") == 0 ? ng_xstrdup("standard input") : ng_xasprintf("'%s'", name);
	s->bare = ng_xstrdup(strcmp(name, "-") == 0 ? "standard input" : name);
	s->flags = flags;
	s->in = ng_xmalloc(IN_SIZE);
	s->scratch = ng_xmalloc(SCRATCH);
	ng_frame_init(&s->frame);
	ng_str_init(&s->held, SIZE_MAX / 2);
	if (flags & NG_STREAM_DIGEST)
		s->digest = ng_hasher_new(flags & NG_STREAM_THREADS);
	if (flags & NG_STREAM_OBJECT)
		s->object = ng_hasher_new(flags & NG_STREAM_THREADS);
	s->dctx = ZSTD_createDCtx();
	if (!s->dctx)
		ng_die(NG_OSERR, "no memory for a decoder");
	/* a second guard beside ng_zframe_parse */
	ZSTD_DCtx_setParameter(
		s->dctx, ZSTD_d_windowLogMax, flags & NG_STREAM_REFRAME ? REFRAME_WINDOW_LOG : NG_STREAM_WINDOW_LOG);
	return s;
}

int ng_stream_open_fn(
	struct ng_stream **out, ng_read_fn *fn, void *arg, const char *name, unsigned flags, struct ng_err *err)
{
	(void)err; /* nothing here can fail yet */
	*out = stream_new(name, flags);
	(*out)->read = fn;
	(*out)->read_arg = arg;
	return 0;
}

int ng_stream_open_fd(struct ng_stream **out, int fd, bool own, const char *name, unsigned flags, struct ng_err *err)
{
	struct stat st;

	*out = NULL;
	if (isatty(fd))
		return ng_fail(err, NG_USAGE, "%s is a terminal: a stream is read from a pipe or a file",
			strcmp(name, "-") == 0 ? "standard input" : name);
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return ng_fail_errno(err, NG_NOINPUT, "cannot read '%s'", name);
	}
	*out = stream_new(name, flags);
	(*out)->fd = fd;
	(*out)->own = own;
	(*out)->read = read_fd;
	(*out)->read_arg = *out;
	return 0;
}

int ng_stream_open(struct ng_stream **out, const char *path, unsigned flags, struct ng_err *err)
{
	*out = NULL;
	if (strcmp(path, "-") == 0)
		return ng_stream_open_fd(out, STDIN_FILENO, false, path, flags, err);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return ng_fail_errno(err, NG_NOINPUT, "cannot open '%s'", path);
	if (ng_stream_open_fd(out, fd, true, path, flags, err) < 0) {
		close(fd);
		return -1;
	}
	return 0;
}

void ng_stream_close(struct ng_stream *s)
{
	if (!s)
		return;
	ZSTD_freeDCtx(s->dctx);
	ng_zcoder_free(s->reframe);
	ng_hasher_free(s->digest);
	ng_hasher_free(s->object);
	ng_header_release(&s->header);
	ng_str_release(&s->held);
	json_decref(s->opening);
	if (s->own && s->fd >= 0)
		close(s->fd);
	free(s->in);
	free(s->scratch);
	free(s->name);
	free(s->bare);
	free(s);
}

void ng_stream_tee(struct ng_stream *s, ng_write_fn *fn, void *arg)
{
	s->tee = fn;
	s->tee_arg = arg;
}

int ng_stream_next(struct ng_stream *s, struct ng_err *err)
{
	if (s->state == BROKEN)
		return again(s, err);
	if (s->state == INSIDE && ng_stream_drain(s, err) < 0)
		return -1;
	if (s->state == ENDED)
		return 0;
	int rc = find_frame(s, &s->err);
	return rc < 0 ? broken(s, err) : rc;
}

const struct ng_header *ng_stream_header(const struct ng_stream *s)
{
	return &s->header;
}

const struct ng_frame *ng_stream_frame(const struct ng_stream *s)
{
	return s->have_frame ? &s->frame : NULL;
}

const char *ng_stream_name(const struct ng_stream *s)
{
	return s->name;
}

/* n bytes of tensor data into dst, counted and hashed. */
static int data(struct ng_stream *s, void *dst, size_t n, struct ng_err *err)
{
	if (decode_exactly(s, dst, n, err) < 0)
		return -1;
	if (s->flags & NG_STREAM_DIGEST)
		ng_hasher_update(s->digest, dst, n);
	s->left -= n;
	return 0;
}

int ng_stream_tensor(struct ng_stream *s, const struct ng_tensor **out, struct ng_err *err)
{
	if (out)
		*out = NULL;
	if (s->state == BROKEN)
		return again(s, err);
	if (s->state != INSIDE)
		return 0;
	if (let_go(s, &s->err) < 0)
		return broken(s, err);
	while (s->left > 0)
		if (data(s, s->scratch, s->left < SCRATCH ? (size_t)s->left : SCRATCH, &s->err) < 0)
			return broken(s, err);
	if (s->index == s->header.n)
		return frame_end(s, &s->err) < 0 ? broken(s, err) : 0;
	const struct ng_tensor *t = &s->header.tensor[s->index++];
	s->left = t->bytes;
	if (out)
		*out = t;
	return 1;
}

int ng_stream_read(struct ng_stream *s, void *buf, size_t n, struct ng_err *err)
{
	if (s->state == BROKEN)
		return again(s, err);
	if (s->state != INSIDE || n > s->left)
		return ng_fail(err, NG_SOFTWARE, "%s: %zu bytes asked of a tensor that has %llu left", s->name, n,
			(unsigned long long)s->left);
	return data(s, buf, n, &s->err) < 0 ? broken(s, err) : 0;
}

int ng_stream_read_f32(struct ng_stream *s, float *out, size_t count, struct ng_err *err)
{
	if (s->state == BROKEN)
		return again(s, err);
	if (s->state != INSIDE || s->index == 0)
		return ng_fail(err, NG_SOFTWARE, "%s: no tensor is being read", s->name);
	const struct ng_tensor *t = &s->header.tensor[s->index - 1];
	size_t width = ng_dtype_bits(t->dtype) / 8;
	if (!ng_dtype_float(t->dtype)) {
		fail(s, &s->err, NG_DATA, "tensor '%s' is %s, not of a float type", t->name, ng_dtype_name(t->dtype));
		return broken(s, err);
	}
	if (t->dtype == NG_F32)
		return ng_stream_read(s, out, count * sizeof *out, err);
	while (count > 0) {
		unsigned char block[16384];
		size_t n = count < sizeof block / width ? count : sizeof block / width;
		if (ng_stream_read(s, block, n * width, err) < 0)
			return -1;
		ng_to_f32(out, block, t->dtype, n);
		out += n;
		count -= n;
	}
	return 0;
}

int ng_stream_drain(struct ng_stream *s, struct ng_err *err)
{
	int rc;

	while ((rc = ng_stream_tensor(s, NULL, err)) == 1)
		continue;
	return rc;
}

const char *ng_stream_digest(const struct ng_stream *s)
{
	return s->digest_hex;
}

const char *ng_stream_object_digest(const struct ng_stream *s)
{
	return s->object_hex;
}

uint64_t ng_stream_raw_bytes(const struct ng_stream *s)
{
	return s->raw_bytes;
}

uint64_t ng_stream_plain_bytes(const struct ng_stream *s)
{
	return s->plain_bytes;
}

bool ng_stream_plain(const struct ng_stream *s)
{
	return s->plain;
}

size_t ng_stream_count(const struct ng_stream *s)
{
	return s->count;
}

const json_t *ng_stream_opening(const struct ng_stream *s)
{
	return s->opening;
}

bool ng_stream_upstream(const struct ng_stream *s)
{
	return s->upstream;
}

void ng_stream_die(const struct ng_stream *s, const struct ng_err *err)
{
	if (s && s->upstream)
		ng_writer_pass_on();
	if (err->code != NG_NOTHING)
		ng_die_err(err);
	ng_info("%s", err->text);
	if (ng_die_hook)
		ng_die_hook(err->code, err->text);
	ng_sig_cleanup();
	exit((int)err->code);
}
