/*
 * writer.c - writing streams; see stream.h.
 *
 * Frames are made by zstd level 1 with a window of 512 KiB and a checksum: on
 * tensors a higher level is no smaller and many times slower.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/tensor/hasher.h"
#include "common/tensor/stream.h"
#include "common/tensor/stream_private.h"
#include "common/tensor/zframe.h"

#define LEVEL 1
#define OUT_SIZE (256u << 10)

/* ---- frames ---- */

struct ng_zcoder {
	ZSTD_CCtx *cctx;
	ng_write_fn *fn;
	void *arg;
	unsigned char *out;
};

void ng_zcoder_free(struct ng_zcoder *z)
{
	if (!z)
		return;
	ZSTD_freeCCtx(z->cctx);
	free(z->out);
	free(z);
}

int ng_zcoder_begin(struct ng_zcoder **pz, ng_write_fn *fn, void *arg, uint64_t content, struct ng_err *err)
{
	struct ng_zcoder *z = *pz;

	if (!z) {
		z = *pz = ng_xcalloc(1, sizeof *z);
		z->cctx = ZSTD_createCCtx();
		z->out = ng_xmalloc(OUT_SIZE);
		if (!z->cctx)
			return ng_fail(err, NG_OSERR, "no memory for an encoder");
	}
	z->fn = fn;
	z->arg = arg;
	ZSTD_CCtx_reset(z->cctx, ZSTD_reset_session_and_parameters);
	if (ZSTD_isError(ZSTD_CCtx_setParameter(z->cctx, ZSTD_c_compressionLevel, LEVEL)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(z->cctx, ZSTD_c_windowLog, NG_STREAM_WINDOW_LOG)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(z->cctx, ZSTD_c_checksumFlag, 1)) ||
		(content != UINT64_MAX && ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(z->cctx, content))))
		return ng_fail(err, NG_SOFTWARE, "zstd does not take our parameters");
	return 0;
}

static int code(struct ng_zcoder *z, const void *data, size_t n, ZSTD_EndDirective end, struct ng_err *err)
{
	ZSTD_inBuffer in = { data, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { z->out, OUT_SIZE, 0 };
		left = ZSTD_compressStream2(z->cctx, &out, &in, end);
		if (ZSTD_isError(left))
			return ng_fail(err,
				ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation ? NG_OSERR : NG_SOFTWARE,
				"cannot compress: %s", ZSTD_getErrorName(left));
		if (out.pos > 0 && z->fn(z->arg, z->out, out.pos, err) < 0)
			return -1;
	} while (end == ZSTD_e_end ? left > 0 : in.pos < in.size);
	return 0;
}

int ng_zcoder_data(struct ng_zcoder *z, const void *data, size_t n, struct ng_err *err)
{
	return code(z, data, n, ZSTD_e_continue, err);
}

int ng_zcoder_end(struct ng_zcoder *z, struct ng_err *err)
{
	return code(z, NULL, 0, ZSTD_e_end, err);
}

/* ---- the stream ---- */

struct ng_writer {
	ng_write_fn *write;
	void *arg;
	int fd;
	char *name;
	unsigned flags;
	struct ng_zcoder *z;
	bool inside;   /* a frame is begun */
	bool raw;      /* bytes of a frame passed through have come */
	uint64_t left; /* bytes of data that the frame still needs */
	uint64_t raw_bytes;
	size_t count;
	struct ng_hasher *digest, *object; /* NULL unless asked for */
	char digest_hex[NG_HASH_HEX], object_hex[NG_HASH_HEX], opening_hex[NG_HASH_HEX];
};

/* The writer whose stream ng_die closes. */
static struct ng_writer *guarded;
static bool passing_on;

void ng_writer_pass_on(void)
{
	passing_on = true;
}

static int write_fd(void *arg, const void *data, size_t n, struct ng_err *err)
{
	struct ng_writer *w = arg;

	if (ng_write_full(w->fd, data, n) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot write %s", w->name);
	return 0;
}

/* Bytes of a frame, on their way out. */
static int frame_bytes(void *arg, const void *data, size_t n, struct ng_err *err)
{
	struct ng_writer *w = arg;

	w->raw_bytes += n;
	if (w->flags & NG_WRITER_OBJECT)
		ng_hasher_update(w->object, data, n);
	return w->write(w->arg, data, n, err);
}

static int write_closing(struct ng_writer *w, int code_, const char *reason, struct ng_err *err)
{
	struct ng_closing c = { .frames = w->count, .code = code_ };
	struct ng_str text;

	if (reason)
		snprintf(c.reason, sizeof c.reason, "%s", reason);
	memcpy(c.opening, w->opening_hex, sizeof c.opening);
	ng_str_init(&text, NG_CLOSING_MAX + 64);
	int rc = ng_closing_add(&text, &c, err);
	if (rc == 0)
		rc = w->write(w->arg, text.data, text.len, err);
	ng_str_release(&text);
	return rc;
}

static void named_reason(char out[NG_ERR_MAX], const char *reason)
{
	if (passing_on || !reason)
		snprintf(out, NG_ERR_MAX, "%s", reason ? reason : "");
	else
		snprintf(out, NG_ERR_MAX, "%.60s: %.900s", ng_program(), reason);
}

static void close_dying(enum ng_code code_, const char *text)
{
	char reason[NG_ERR_MAX];
	struct ng_writer *w = guarded;

	guarded = NULL;
	ng_die_hook = NULL;
	if (!w)
		return;
	named_reason(reason, text);
	/* nothing more can be done when this fails: the reader sees a cut stream */
	(void)write_closing(w, (int)code_, reason, NULL);
}

static int start(struct ng_writer *w, const json_t *opening, struct ng_err *err)
{
	struct ng_str text;
	json_t *none = NULL;

	if (!(w->flags & NG_WRITER_BRACKETS))
		return 0;
	ng_str_init(&text, NG_BRACKET_MAX + 64);
	if (!opening)
		opening = none = json_object();
	int rc = ng_bracket_add(&text, "open", opening, err);
	if (rc == 0) {
		ng_hash_bytes(w->opening_hex, text.data + 8, text.len - 8);
		rc = w->write(w->arg, text.data, text.len, err);
	}
	json_decref(none);
	ng_str_release(&text);
	if (rc == 0) {
		guarded = w;
		ng_die_hook = close_dying;
	}
	return rc;
}

static int open_writer(struct ng_writer **out, int fd, ng_write_fn *fn, void *arg, const char *name, unsigned flags,
	const json_t *opening, struct ng_err *err)
{
	struct ng_writer *w = ng_xcalloc(1, sizeof *w);

	w->fd = fd;
	w->write = fn;
	w->arg = fn == write_fd ? w : arg;
	w->name = strcmp(name, "-") == 0 ? ng_xstrdup("standard output") : ng_xasprintf("'%s'", name);
	w->flags = flags;
	if (flags & NG_WRITER_DIGEST)
		w->digest = ng_hasher_new(flags & NG_WRITER_THREADS);
	if (flags & NG_WRITER_OBJECT)
		w->object = ng_hasher_new(flags & NG_WRITER_THREADS);
	*out = w;
	if (start(w, opening, err) == 0)
		return 0;
	ng_writer_abort(w);
	*out = NULL;
	return -1;
}

int ng_writer_open_fd(
	struct ng_writer **out, int fd, const char *name, unsigned flags, const json_t *opening, struct ng_err *err)
{
	*out = NULL;
	if (isatty(fd))
		return ng_fail(err, NG_USAGE, "a stream is binary and not written to a terminal: pipe or redirect it");
	return open_writer(out, fd, write_fd, NULL, name, flags, opening, err);
}

int ng_writer_open_fn(struct ng_writer **out, ng_write_fn *fn, void *arg, const char *name, unsigned flags,
	const json_t *opening, struct ng_err *err)
{
	return open_writer(out, -1, fn, arg, name, flags, opening, err);
}

int ng_writer_begin(struct ng_writer *w, const struct ng_header *h, struct ng_err *err)
{
	struct ng_str text;
	int rc = -1;

	if (w->inside || w->raw)
		return ng_fail(err, NG_SOFTWARE, "%s: a frame is begun inside another", w->name);
	ng_str_init(&text, NG_HEADER_MAX + 64);
	w->digest_hex[0] = w->object_hex[0] = '\0';
	w->raw_bytes = 0;
	if (w->flags & NG_WRITER_OBJECT)
		ng_hasher_init(w->object);
	if (ng_header_check_names(h, true, err) < 0)
		goto out;
	if (w->flags & NG_WRITER_DIGEST) {
		if (ng_header_encode(&text, h, false, err) < 0)
			goto out;
		ng_hasher_init(w->digest);
		ng_hasher_update(w->digest, text.data, text.len);
		ng_str_reset(&text);
	}
	if (ng_header_encode(&text, h, true, err) < 0 ||
		ng_zcoder_begin(&w->z, frame_bytes, w, text.len + h->data_bytes, err) < 0 ||
		ng_zcoder_data(w->z, text.data, text.len, err) < 0)
		goto out;
	w->left = h->data_bytes;
	w->inside = true;
	rc = 0;
out:
	ng_str_release(&text);
	return rc;
}

int ng_writer_data(struct ng_writer *w, const void *data, size_t n, struct ng_err *err)
{
	if (!w->inside || n > w->left)
		return ng_fail(err, NG_SOFTWARE, "%s: %zu bytes given where the frame takes %llu", w->name, n,
			w->inside ? (unsigned long long)w->left : 0ULL);
	w->left -= n;
	if (w->flags & NG_WRITER_DIGEST)
		ng_hasher_update(w->digest, data, n);
	return ng_zcoder_data(w->z, data, n, err);
}

static void frame_done(struct ng_writer *w)
{
	if (w->flags & NG_WRITER_OBJECT)
		ng_hasher_final(w->object, w->object_hex);
	w->count++;
}

int ng_writer_end(struct ng_writer *w, struct ng_err *err)
{
	if (!w->inside || w->left > 0)
		return ng_fail(err, NG_SOFTWARE, "%s: a frame is ended with %llu bytes missing", w->name,
			(unsigned long long)w->left);
	if (ng_zcoder_end(w->z, err) < 0)
		return -1;
	w->inside = false;
	if (w->flags & NG_WRITER_DIGEST)
		ng_hasher_final(w->digest, w->digest_hex);
	frame_done(w);
	return 0;
}

const char *ng_writer_digest(const struct ng_writer *w)
{
	return w->digest_hex;
}

const char *ng_writer_object_digest(const struct ng_writer *w)
{
	return w->object_hex;
}

uint64_t ng_writer_raw_bytes(const struct ng_writer *w)
{
	return w->raw_bytes;
}

int ng_writer_raw(void *arg, const void *data, size_t n, struct ng_err *err)
{
	struct ng_writer *w = arg;

	if (w->inside)
		return ng_fail(err, NG_SOFTWARE, "%s: a frame is passed through inside another", w->name);
	if (!w->raw) {
		w->raw = true;
		w->raw_bytes = 0;
		w->digest_hex[0] = w->object_hex[0] = '\0';
		if (w->flags & NG_WRITER_OBJECT)
			ng_hasher_init(w->object);
	}
	return frame_bytes(w, data, n, err);
}

int ng_writer_raw_end(struct ng_writer *w, struct ng_err *err)
{
	if (!w->raw)
		return ng_fail(err, NG_SOFTWARE, "%s: no frame was passed through", w->name);
	w->raw = false;
	frame_done(w);
	return 0;
}

int ng_writer_close(struct ng_writer *w, enum ng_code code_, const char *reason, struct ng_err *err)
{
	char text[NG_ERR_MAX];
	int rc = 0;

	if (code_ == NG_OK && (w->inside || w->raw))
		rc = ng_fail(err, NG_SOFTWARE, "%s: closed inside a frame", w->name);
	else if (w->flags & NG_WRITER_BRACKETS) {
		if (code_ != NG_OK)
			named_reason(text, reason);
		rc = write_closing(w, (int)code_, code_ == NG_OK ? reason : text, err);
	}
	ng_writer_abort(w);
	return rc;
}

void ng_writer_abort(struct ng_writer *w)
{
	if (!w)
		return;
	if (guarded == w) {
		guarded = NULL;
		ng_die_hook = NULL;
	}
	ng_zcoder_free(w->z);
	ng_hasher_free(w->digest);
	ng_hasher_free(w->object);
	free(w->name);
	free(w);
}
