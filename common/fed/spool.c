#include "common/base/compat.h"

#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/fed/spool.h"

void ng_inputs_init(struct ng_inputs *in)
{
	memset(in, 0, sizeof *in);
	in->fd = -1;
}

void ng_inputs_release(struct ng_inputs *in)
{
	ng_agg_source_release(&in->global);
	for (size_t i = 0; i < in->n; i++)
		ng_agg_source_release(&in->update[i]);
	free(in->update);
	free(in->experiment);
	if (in->fd >= 0)
		close(in->fd);
	ng_inputs_init(in);
}

int ng_inputs_add(struct ng_inputs *in, struct ng_agg_source *source, bool global, struct ng_err *err)
{
	if (global && in->global.name) {
		ng_fail(err, NG_DATA, "'%s' is a second global model, after '%s'", source->name, in->global.name);
		ng_agg_source_release(source);
		return -1;
	}
	if (global) {
		in->global = *source;
		return 0;
	}
	ng_grow(&in->update, &in->cap, in->n + 1, sizeof *in->update);
	in->update[in->n++] = *source;
	return 0;
}

static int keep(void *arg, const void *data, size_t n, struct ng_err *err)
{
	struct ng_inputs *in = arg;

	if (ng_write_full(in->fd, data, n) < 0)
		return ng_fail_errno(err, NG_IOERR, "cannot write a temporary file");
	in->length += n;
	return 0;
}

/* Does the opening name this object, or none of its kind and site? */
static bool agrees(const json_t *opening, const struct ng_frame *f, const char *digest)
{
	const json_t *frames = json_object_get(opening, "frames"), *frame;
	bool named = false;
	size_t i;

	json_array_foreach(frames, i, frame)
	{
		const char *kind = json_string_value(json_object_get(frame, "kind"));
		const char *site = json_string_value(json_object_get(frame, "site"));
		const char *hex = json_string_value(json_object_get(frame, "digest"));
		if (!kind || !hex || strcmp(kind, ng_kind_name(f->kind)) != 0 || strcmp(site ? site : "", f->site) != 0)
			continue;
		if (strcmp(hex, digest) == 0)
			return true;
		named = true;
	}
	return !named;
}

int ng_inputs_spool(struct ng_inputs *in, struct ng_stream *s, const char *tmpdir, struct ng_err *err)
{
	int got;

	if (in->fd < 0) {
		in->fd = ng_temp_fd(tmpdir, err);
		if (in->fd < 0)
			return -1;
	}
	ng_stream_tee(s, keep, in);
	for (;;) {
		struct ng_agg_source source = { .fd = in->fd, .offset = in->length };
		got = ng_stream_next(s, err);
		if (got <= 0)
			break;
		const struct ng_frame *f = ng_stream_frame(s);
		const char *text = json_string_value(json_object_get(ng_stream_opening(s), "experiment"));
		bool global = f->kind == NG_KIND_GLOBAL;
		if (text) {
			free(in->experiment);
			in->experiment = ng_xstrdup(text);
		}
		snprintf(source.site, sizeof source.site, "%s", f->site);
		if (ng_stream_drain(s, err) < 0)
			return -1;
		snprintf(source.digest, sizeof source.digest, "%s", ng_stream_object_digest(s));
		if (!agrees(ng_stream_opening(s), f, source.digest))
			return ng_fail(err, NG_DATA, "%s, frame %zu: its object digest is not the one in the opening",
				ng_stream_name(s), ng_stream_count(s));
		source.length = in->length - source.offset;
		source.name = ng_xasprintf("%s, frame %zu", ng_stream_name(s), ng_stream_count(s));
		if (ng_inputs_add(in, &source, global, err) < 0)
			return -1;
	}
	return got;
}
