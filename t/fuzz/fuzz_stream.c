/* Streams from a pipe: whatever comes is read to its end or refused, in one piece and in small ones. */
#include "common/base/compat.h"

#include "common/tensor/stream.h"
#include "t/fuzz/fuzz.h"

struct source {
	const uint8_t *data;
	size_t size, at, piece;
};

static ptrdiff_t next(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct source *s = arg;
	size_t k = s->size - s->at;

	(void)err;
	k = k < n ? k : n;
	k = k < s->piece ? k : s->piece;
	memcpy(buf, s->data + s->at, k);
	s->at += k;
	return (ptrdiff_t)k;
}

static int drop(void *arg, const void *data, size_t n, struct ng_err *err)
{
	size_t *count = arg;

	(void)data;
	(void)err;
	*count += n;
	return 0;
}

static int read_all(const uint8_t *data, size_t size, size_t piece, unsigned flags, struct ng_err *err)
{
	struct source src = { data, size, 0, piece };
	const struct ng_tensor *t;
	struct ng_stream *s;
	size_t count = 0;
	uint64_t raw = 0;
	unsigned char buf[512];
	int rc;

	if (ng_stream_open_fn(&s, next, &src, "fuzz", flags, err) < 0)
		abort();
	ng_stream_tee(s, drop, &count);
	while ((rc = ng_stream_next(s, err)) == 1) {
		while ((rc = ng_stream_tensor(s, &t, err)) == 1)
			if (t->bytes > 0 && (rc = ng_stream_read(s, buf, t->bytes < 512 ? t->bytes : 512, err)) < 0)
				break;
		if (rc < 0)
			break;
		raw += ng_stream_raw_bytes(s);
	}
	if (rc == 0 && raw != count)
		abort();
	ng_stream_close(s);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const unsigned all = NG_STREAM_DIGEST | NG_STREAM_OBJECT | NG_STREAM_REFRAME | NG_STREAM_PLAIN |
			     NG_STREAM_ANY_META;
	struct ng_err one, two;
	int a = read_all(data, size, SIZE_MAX, 0, &one), b = read_all(data, size, 1 + size / 7, 0, &two);

	/* How the bytes are cut up decides nothing but which of two faults is met
	 * first: zstd finds a damaged block when it has all of it, and a NaN decoded
	 * before it may have been seen by then. */
	if (a != b)
		abort();
	read_all(data, size, SIZE_MAX, all, &one);
	return 0;
}
