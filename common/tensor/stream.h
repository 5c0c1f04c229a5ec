/*
 * stream.h - zstd frames, each one complete safetensors file (DESIGN.md
 * section 3, ng-stream(5)): what flows in pipes and lies on the blackboard.
 *
 * Reading is pulled by the caller, in blocks, so a model is never held twice:
 *
 *	struct ng_stream *s;
 *	ng_stream_open(&s, "-", 0, &err);
 *	while ((rc = ng_stream_next(s, &err)) == 1) {       // one frame
 *		const struct ng_header *h = ng_stream_header(s);
 *		const struct ng_frame *f = ng_stream_frame(s);
 *		while ((rc = ng_stream_tensor(s, &t, &err)) == 1)   // one tensor
 *			ng_stream_read(s, buf, n, &err);                // n bytes of it, exactly
 *		if (rc < 0) ...
 *	}                                                   // rc 0: the end, all is well
 *
 * ng_stream_tensor returns 0 only once the frame's checksum was right and
 * nothing followed the data: until then what was read is not to be used in a
 * way that cannot be undone.  ng_stream_next returns 0 only when every opening
 * was closed with status 0 and the right count.  An upstream program that
 * failed is told by -1 with err->code = its exit code (1 too: nothing to do)
 * and err->text = its reason; ng_stream_upstream(s) is then true.
 * So: read to the end before acting; on -1 call ng_stream_die(s, &err), which
 * ends the process with that code and, through ng_die_hook, closes our own
 * output with it.
 *
 * A frame is refused (NG_DATA) when it needs a window over 512 KiB, a
 * dictionary, has no checksum, tensors out of canonical order or names unfit
 * for a stream.
 */
#ifndef NG_TENSOR_STREAM_H
#define NG_TENSOR_STREAM_H

#include <jansson.h>

#include "common/base/hash.h"
#include "common/tensor/frame.h"

#define NG_STREAM_WINDOW_LOG 19
#define NG_STREAM_BLOCK (1u << 20) /* a good size for ng_stream_read and ng_writer_data */

/* Bytes come from and go to functions, so that an object in parts, a pipe and a
 * file are all the same. read: bytes got, 0 at the end, -1 and err. */
typedef ptrdiff_t ng_read_fn(void *arg, void *buf, size_t n, struct ng_err *err);
typedef int ng_write_fn(void *arg, const void *data, size_t n, struct ng_err *err);

/* ---- reading ---- */

enum ng_stream_flags {
	NG_STREAM_DIGEST = 1 << 0,   /* content digest of each frame */
	NG_STREAM_OBJECT = 1 << 1,   /* object digest of each frame: its compressed bytes (re-framed ones if so) */
	NG_STREAM_REFRAME = 1 << 2,  /* take windows up to 128 MiB; tee and object digest get the frame re-made */
	NG_STREAM_PLAIN = 1 << 3,    /* also take one uncompressed safetensors file, in any order (ng-show) */
	NG_STREAM_THREADS = 1 << 5,  /* each digest in a thread of its own, for frames over 1 MiB */
	NG_STREAM_ANY_META = 1 << 4, /* frames without valid ng.* metadata too; ng_stream_frame is then NULL */
};

struct ng_stream;

/* path "-" is standard input; a terminal there is NG_USAGE. A missing file is NG_NOINPUT. */
int ng_stream_open(struct ng_stream **out, const char *path, unsigned flags, struct ng_err *err);
/* fd is not closed by ng_stream_close unless `own`. name: for messages. */
int ng_stream_open_fd(struct ng_stream **out, int fd, bool own, const char *name, unsigned flags, struct ng_err *err);
int ng_stream_open_fn(
	struct ng_stream **out, ng_read_fn *fn, void *arg, const char *name, unsigned flags, struct ng_err *err);
void ng_stream_close(struct ng_stream *s); /* NULL allowed */

/* Every byte of each following frame, exactly as it came (or re-framed), goes to
 * fn as the frame is read; skippable frames and brackets do not.  Nothing of a
 * frame goes out before the first ng_stream_tensor (or _drain), then all of it:
 * so fn may be set, or taken away (NULL), before or after ng_stream_next, and a
 * frame that is refused by its header leaves no trace.  For ng-push and ng-pull. */
void ng_stream_tee(struct ng_stream *s, ng_write_fn *fn, void *arg);

/* 1: a frame, its header parsed and checked. 0: the end. -1: err. A frame not
 * read to its end is first drained (and so verified). */
int ng_stream_next(struct ng_stream *s, struct ng_err *err);
const struct ng_header *ng_stream_header(const struct ng_stream *s); /* valid until next */
const struct ng_frame *ng_stream_frame(const struct ng_stream *s);
const char *ng_stream_name(const struct ng_stream *s);
/* 1: the next tensor in *out (what was not read of the last is skipped). 0: the
 * frame is complete and verified. -1: err. out may be NULL. */
int ng_stream_tensor(struct ng_stream *s, const struct ng_tensor **out, struct ng_err *err);
/* Exactly n bytes of the current tensor; asking for more than it has left is a bug (70). */
int ng_stream_read(struct ng_stream *s, void *buf, size_t n, struct ng_err *err);
/* count elements of the current tensor, converted. Buffer: count floats. */
int ng_stream_read_f32(struct ng_stream *s, float *out, size_t count, struct ng_err *err);
/* Read the rest of the frame to its verified end. */
int ng_stream_drain(struct ng_stream *s, struct ng_err *err);

/* After the frame's end; "" unless asked for by the flags. */
const char *ng_stream_digest(const struct ng_stream *s);
const char *ng_stream_object_digest(const struct ng_stream *s);
uint64_t ng_stream_raw_bytes(const struct ng_stream *s);   /* of this frame, compressed */
uint64_t ng_stream_plain_bytes(const struct ng_stream *s); /* of this frame, uncompressed */
bool ng_stream_plain(const struct ng_stream *s);	   /* an uncompressed file (NG_STREAM_PLAIN) */
size_t ng_stream_count(const struct ng_stream *s);	   /* frames so far, this one included */

/* The opening's JSON object that the current frame stands under, or NULL.
 * Borrowed, valid until the next ng_stream_next. Also valid after
 * ng_stream_next returned 0 or -1: the last opening seen. */
const json_t *ng_stream_opening(const struct ng_stream *s);
/* The last error is a failed close handed on. */
bool ng_stream_upstream(const struct ng_stream *s);
/* End the process for err of this stream (s may be NULL): code NG_NOTHING is no "error:",
 * only its reason, on stderr unless -q. Runs ng_die_hook. */
void ng_stream_die(const struct ng_stream *s, const struct ng_err *err) NG_NORETURN;

/* ---- writing ---- */

enum ng_writer_flags {
	NG_WRITER_BRACKETS = 1 << 0, /* opening and closing; ng_die then closes with code and reason */
	NG_WRITER_DIGEST = 1 << 1,   /* compute content digests */
	NG_WRITER_OBJECT = 1 << 2,   /* compute object digests */
	NG_WRITER_THREADS = 1 << 3,  /* each digest in a thread of its own */
};

struct ng_writer;

/* path "-" is standard output (a terminal is NG_USAGE); brackets are for pipes, so
 * the caller gives them for "-" and leaves them out for files. opening: free
 * JSON object or NULL, copied. */
int ng_writer_open_fd(
	struct ng_writer **out, int fd, const char *name, unsigned flags, const json_t *opening, struct ng_err *err);
int ng_writer_open_fn(struct ng_writer **out, ng_write_fn *fn, void *arg, const char *name, unsigned flags,
	const json_t *opening, struct ng_err *err);
/* One frame: h finished (ng_header_finish) with its metadata (ng_frame_fill); then
 * all data in order, in any pieces; then end. */
int ng_writer_begin(struct ng_writer *w, const struct ng_header *h, struct ng_err *err);
int ng_writer_data(struct ng_writer *w, const void *data, size_t n, struct ng_err *err);
int ng_writer_end(struct ng_writer *w, struct ng_err *err);
const char *ng_writer_digest(const struct ng_writer *w); /* of the frame just ended */
const char *ng_writer_object_digest(const struct ng_writer *w);
uint64_t ng_writer_raw_bytes(const struct ng_writer *w); /* compressed bytes of that frame */
/* A frame passed through verbatim: ng_writer_raw is an ng_write_fn with arg = the
 * writer, for ng_stream_tee; ng_writer_raw_end counts it. */
ng_write_fn ng_writer_raw;
int ng_writer_raw_end(struct ng_writer *w, struct ng_err *err);
/* Closing with code and reason (NULL for done), if brackets; flushes; frees w
 * whatever happens. NG_OK only after all frames were written. */
int ng_writer_close(struct ng_writer *w, enum ng_code code, const char *reason, struct ng_err *err);
/* Free without a closing (for a file that is given up). */
void ng_writer_abort(struct ng_writer *w);

#endif
