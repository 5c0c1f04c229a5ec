#include "common/base/compat.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "common/fed/elements.h"

static ptrdiff_t read_extent(void *arg, void *buf, size_t n, struct ng_err *err)
{
	struct ng_extent *e = arg;

	if (n > e->end - e->at)
		n = (size_t)(e->end - e->at);
	if (n == 0)
		return 0;
	ssize_t got;
	do
		got = pread(e->fd, buf, n, (off_t)e->at);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot read the temporary file");
	if (got == 0)
		return ng_fail(err, NG_IOERR, "the temporary file is shorter than what was written to it");
	e->at += (uint64_t)got;
	return got;
}

static int open_source(struct ng_elements *r, unsigned flags, struct ng_err *err)
{
	const struct ng_agg_source *s = r->source;

	if (s->path)
		return ng_stream_open(&r->stream, s->path, flags, err);
	r->extent = (struct ng_extent){ s->fd, s->offset, s->offset + s->length };
	return ng_stream_open_fn(&r->stream, read_extent, &r->extent, s->name, flags, err);
}

int ng_elements_open(struct ng_elements *r, const struct ng_agg_source *source, unsigned flags, struct ng_err *err)
{
	memset(r, 0, sizeof *r);
	r->source = source;
	r->tensor = SIZE_MAX;
	if (open_source(r, flags, err) < 0)
		return -1;
	int got = ng_stream_next(r->stream, err);
	if (got == 0)
		return ng_fail(err, NG_DATA, "'%s' holds nothing", r->source->name);
	return got < 0 ? -1 : 0;
}

void ng_elements_close(struct ng_elements *r)
{
	ng_stream_close(r->stream);
	r->stream = NULL;
}

/* The end of a tensor: is the change within its limit? */
static int check_norm(struct ng_elements *r, struct ng_err *err)
{
	double norm = sqrt(ng_square_total(&r->sum));

	if (r->norm)
		r->norm[r->tensor] = norm;
	if (r->limit && !(norm <= r->limit[r->tensor]))
		return ng_fail(err, NG_REFUSED, "tensor '%s': its norm %.9g is over the limit of %.9g",
			r->header->tensor[r->tensor].name, norm, r->limit[r->tensor]);
	return 0;
}

/* Step to a tensor with elements left; the tensors passed are complete. */
static int next_tensor(struct ng_elements *r, struct ng_err *err)
{
	while (r->tensor == SIZE_MAX || r->at == r->header->tensor[r->tensor].count) {
		if (r->tensor != SIZE_MAX && check_norm(r, err) < 0)
			return -1;
		int got = ng_stream_tensor(r->stream, NULL, err);
		if (got < 0)
			return -1;
		r->tensor = r->tensor == SIZE_MAX ? 0 : r->tensor + 1;
		r->at = 0;
		memset(&r->sum, 0, sizeof r->sum);
		/* the header was compared with the global's: the counts agree */
		if ((got == 0) != (r->tensor == r->header->n))
			return ng_fail(err, NG_DATA, "'%s': not the tensors that its header names", r->source->name);
		if (got == 0)
			return 0;
	}
	return 0;
}

int ng_elements_read(struct ng_elements *r, float *out, size_t n, struct ng_err *err)
{
	while (n > 0) {
		if (next_tensor(r, err) < 0)
			return -1;
		const struct ng_tensor *t = &r->header->tensor[r->tensor];
		size_t part = t->count - r->at < n ? (size_t)(t->count - r->at) : n;
		if (ng_stream_read_f32(r->stream, out, part, err) < 0)
			return -1;
		if (!ng_square_add(&r->sum, r->at, out, part))
			return ng_fail(err, NG_REFUSED, "tensor '%s': holds a value that is not finite", t->name);
		r->at += part;
		out += part;
		n -= part;
	}
	return 0;
}

int ng_elements_end(struct ng_elements *r, struct ng_err *err)
{
	if (next_tensor(r, err) < 0)
		return -1;
	if (r->tensor != r->header->n)
		return ng_fail(err, NG_SOFTWARE, "'%s': read too little", r->source->name);
	int got = ng_stream_next(r->stream, err);
	if (got > 0)
		return ng_fail(err, NG_DATA, "'%s' holds more than one frame", r->source->name);
	return got;
}

int ng_elements_expect(struct ng_elements *r, const struct ng_header *want, struct ng_err *err)
{
	const struct ng_header *got = ng_stream_header(r->stream);
	char a[128], b[128];

	for (size_t i = 0; i < want->n; i++) {
		const struct ng_tensor *w = &want->tensor[i], *g = ng_header_find(got, w->name);
		if (!g)
			return ng_fail(err, NG_REFUSED, "tensor '%s': missing", w->name);
		if (g->dtype != w->dtype)
			return ng_fail(err, NG_REFUSED, "tensor '%s': type %s, not %s", w->name,
				ng_dtype_name(g->dtype), ng_dtype_name(w->dtype));
		if (!ng_tensor_same_shape(w, g)) {
			ng_tensor_shape(a, sizeof a, g);
			ng_tensor_shape(b, sizeof b, w);
			return ng_fail(err, NG_REFUSED, "tensor '%s': shape %s, not %s", w->name, a, b);
		}
	}
	for (size_t i = 0; i < got->n; i++)
		if (!ng_header_find(want, got->tensor[i].name))
			return ng_fail(
				err, NG_REFUSED, "tensor '%s': the global has none of this name", got->tensor[i].name);
	r->header = want;
	return 0;
}
