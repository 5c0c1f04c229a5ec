/*
 * updates.c - the updates and claims of a round, and whether it is complete;
 * see rounds.h.
 */
#include "common/base/compat.h"

#include <math.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/board/rounds.h"

int ng_rounds_same_tensors(const struct ng_header *update, const struct ng_header *global, struct ng_err *err)
{
	char a[160], b[160];

	for (size_t i = 0; i < global->n; i++) {
		const struct ng_tensor *g = &global->tensor[i], *u = ng_header_find(update, g->name);
		if (!u)
			return ng_fail(err, NG_REFUSED, "tensor '%s' is missing", g->name);
		if (u->dtype != g->dtype)
			return ng_fail(err, NG_REFUSED, "tensor '%s' is %s, not %s", g->name, ng_dtype_name(u->dtype),
				ng_dtype_name(g->dtype));
		if (!ng_tensor_same_shape(u, g)) {
			ng_tensor_shape(a, sizeof a, u);
			ng_tensor_shape(b, sizeof b, g);
			return ng_fail(err, NG_REFUSED, "tensor '%s' has the shape %s, not %s", g->name, a, b);
		}
	}
	for (size_t i = 0; i < update->n; i++)
		if (!ng_header_find(global, update->tensor[i].name))
			return ng_fail(
				err, NG_REFUSED, "tensor '%s' is not in the global model", update->tensor[i].name);
	return 0;
}

static int check_frame(struct ng_update *u, struct ng_rounds *r, struct ng_object *o, long round, const char *content,
	const struct ng_header *global, struct ng_err *err)
{
	struct ng_stream *s = NULL;
	char path[128];
	int rc = -1, got;

	ng_object_path(path, &ng_object_entry(o)->name);
	if (ng_stream_open_fn(&s, ng_object_read, o, path, 0, err) < 0)
		return -1;
	got = ng_stream_next(s, err);
	if (got == 0)
		ng_fail(err, NG_DATA, "%s holds no frame", path);
	if (got != 1)
		goto out;
	const struct ng_frame *f = ng_stream_frame(s);
	u->examples = f->examples;
	u->steps = f->steps;
	u->loss = f->loss;
	if (f->kind != NG_KIND_UPDATE)
		ng_fail(err, NG_REFUSED, "%s holds a frame of the kind %s", path, ng_kind_name(f->kind));
	else if (strcmp(f->id, r->id) != 0)
		ng_fail(err, NG_REFUSED, "%s holds a frame of another experiment (%.12s)", path, f->id);
	else if (f->round != round)
		ng_fail(err, NG_REFUSED, "%s holds a frame of round %ld", path, f->round);
	else if (strcmp(f->site, u->site) != 0)
		ng_fail(err, NG_REFUSED, "%s holds a frame of the site '%s'", path, f->site);
	else if (content[0] && strcmp(f->base, content) != 0)
		ng_fail(err, NG_REFUSED, "%s was trained on another global (%.12s, not %.12s)", path, f->base, content);
	else if (global && ng_rounds_same_tensors(ng_stream_header(s), global, err) < 0)
		ng_fail_prefix(err, "%s", path);
	else
		rc = 0;
	if (rc == 0 && r->flags & NG_ROUNDS_DEEP) {
		rc = ng_stream_drain(s, err);
		if (rc == 0 && (got = ng_stream_next(s, err)) != 0)
			rc = got < 0 ? -1 : ng_fail(err, NG_DATA, "%s holds more than one frame", path);
	}
out:
	ng_stream_close(s);
	return rc;
}

int ng_rounds_update(struct ng_update *out, struct ng_rounds *r, long round, const char *site,
	const char *global_content, const struct ng_header *global, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_UPDATE, round, site);
	struct ng_object *o = NULL;
	struct ng_statement s;
	struct ng_err why = { 0 };
	bool open;

	memset(out, 0, sizeof *out);
	snprintf(out->site, sizeof out->site, "%s", site);
	out->examples = out->steps = -1;
	out->loss = NAN;
	open = ng_object_open(&o, r->board, &name, &why) == 0;
	if (!open && why.code == NG_NOINPUT)
		return 0;
	if (open && ng_rounds_check_statement(&s, r, o, &why) == 0) {
		const struct ng_entry *e = ng_object_entry(o);
		out->bytes = e->bytes;
		out->parts = e->parts;
		out->created = s.created;
		memcpy(out->hex, s.object, NG_HASH_HEX);
		out->valid = r->flags & NG_ROUNDS_SHALLOW ||
			     (ng_object_verify(o, &why) == 0 &&
				     check_frame(out, r, o, round, global_content, global, &why) == 0);
	}
	ng_object_close(o);
	if (out->valid)
		return 1;
	if (why.code != NG_DATA && why.code != NG_REFUSED) {
		if (err)
			*err = why;
		return -1;
	}
	snprintf(out->reason, sizeof out->reason, "%.319s", why.text);
	return 0;
}

int ng_rounds_updates(struct ng_update **out, size_t *n, struct ng_rounds *r, long round, const char *global_content,
	const struct ng_header *global, struct ng_err *err)
{
	struct ng_entry *list;
	size_t count;

	*n = 0;
	if (ng_board_list(r->board, NG_OBJ_UPDATE, round, &list, &count, NULL, err) < 0)
		return -1;
	*out = ng_xcalloc(count + 1, sizeof **out);
	for (size_t i = 0; i < count; i++) {
		int rc = ng_rounds_update(&(*out)[*n], r, round, list[i].name.leaf, global_content, global, err);
		if (rc < 0) {
			free(*out);
			*out = NULL;
			free(list);
			return -1;
		}
		if (rc == 1 || (*out)[*n].reason[0])
			++*n;
	}
	free(list);
	return 0;
}

/* ---- when is there work? ---- */

enum ng_round_state ng_rounds_decide(
	const struct ng_experiment *exp, long round, long long created, size_t valid, long long now)
{
	bool late = exp->deadline > 0 && now - created >= exp->deadline;

	if (exp->rounds > 0 && round >= exp->rounds)
		return NG_ROUND_COMPLETE;
	if (valid >= (size_t)ng_experiment_expect(exp))
		return NG_ROUND_READY;
	if (!late)
		return NG_ROUND_WAITING;
	return valid >= (size_t)exp->quorum ? NG_ROUND_READY : NG_ROUND_STALLED;
}

const char *ng_round_state_name(enum ng_round_state s)
{
	static const char *const name[] = { "waiting", "ready", "stalled", "complete" };

	return name[s];
}

/* ---- claims ---- */

int ng_rounds_claim(
	struct ng_rounds *r, long round, const char *site, long long since, long long until, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_CLAIM, round, site);
	struct ng_object_writer *w;
	struct ng_statement s;
	char a[24], b[24], *text;
	json_t *all;
	int rc;

	ng_time_text(a, since);
	ng_time_text(b, until);
	all = json_pack("{s:s, s:s}", "since", a, "until", b);
	text = ng_json_canonical(all);
	json_decref(all);
	rc = ng_object_new(&w, r->board, &name, err);
	if (rc == 0) {
		ng_rounds_statement(&s, r, NG_OBJ_CLAIM, round, site, "");
		rc = ng_object_write(w, text, strlen(text), err);
		if (rc < 0)
			ng_object_abort(w);
		else
			rc = ng_object_commit(w, &s, err);
	}
	free(text);
	return rc;
}

static bool read_claim(struct ng_claim *out, struct ng_rounds *r, const struct ng_entry *e)
{
	struct ng_object *o = NULL;
	struct ng_statement s;
	char *text = NULL;
	size_t len;
	json_t *all = NULL;
	bool ok = false;

	if (ng_object_open(&o, r->board, &e->name, NULL) == 0 && ng_rounds_check_statement(&s, r, o, NULL) == 0 &&
		ng_object_load(&text, &len, o, 4096, NULL) == 0 &&
		(all = ng_json_parse(text, len, "claim", NULL)) != NULL) {
		const char *a = json_string_value(json_object_get(all, "since"));
		const char *b = json_string_value(json_object_get(all, "until"));
		ok = a && b && ng_time_parse(&out->since, a) && ng_time_parse(&out->until, b);
		memcpy(out->site, e->name.leaf, sizeof out->site);
	}
	json_decref(all);
	free(text);
	ng_object_close(o);
	return ok;
}

int ng_rounds_claims(struct ng_claim **out, size_t *n, struct ng_rounds *r, long round, struct ng_err *err)
{
	struct ng_entry *list;
	size_t count;

	*n = 0;
	if (ng_board_list(r->board, NG_OBJ_CLAIM, round, &list, &count, NULL, err) < 0)
		return -1;
	*out = ng_xcalloc(count + 1, sizeof **out);
	for (size_t i = 0; i < count; i++)
		if (read_claim(&(*out)[*n], r, &list[i])) /* a claim is a hint: a bad one is none */
			++*n;
	free(list);
	return 0;
}
