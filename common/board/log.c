/*
 * log.c - the coordinators' log and the pruning of old rounds; see rounds.h.
 *
 * Entry n is canonical JSON with at least
 *	{"kind": "manifest"|"global", "n": N, "object": HEX, "previous": HEX, "round": N}
 * (round: the version of a manifest), previous being the object digest of
 * entry n-1; a global's also has "content", "inputs", "pruned".
 */
#include "common/base/compat.h"

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/board/rounds.h"

#define ENTRY_MAX (16u << 20)
#define TRIES 20 /* other coordinators may add entries at the same time */

static json_t *load_entry(struct ng_rounds *r, long n, char hex[NG_HASH_HEX], struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_LOG, n, NULL);
	struct ng_object *o = NULL;
	struct ng_statement s;
	json_t *all = NULL;
	char *text = NULL;
	size_t len;

	if (ng_object_open(&o, r->board, &name, err) == 0 && ng_rounds_check_statement(&s, r, o, err) == 0 &&
		ng_object_load(&text, &len, o, ENTRY_MAX, err) == 0) {
		memcpy(hex, s.object, NG_HASH_HEX);
		all = ng_json_parse(text, len, "log entry", err);
		if (all && !json_is_object(all)) {
			json_decref(all);
			all = NULL;
			ng_fail(err, NG_DATA, "log/%05ld is no object", n);
		}
	}
	free(text);
	ng_object_close(o);
	return all;
}

json_t *ng_rounds_log_find(struct ng_rounds *r, const char *kind, long round, const char *object)
{
	struct ng_entry *list;
	char hex[NG_HASH_HEX];
	json_t *found = NULL;
	size_t n;

	if (ng_board_list(r->board, NG_OBJ_LOG, -1, &list, &n, NULL, NULL) < 0)
		return NULL;
	while (n-- > 0 && !found) {
		json_t *e = load_entry(r, list[n].name.n, hex, NULL);
		const char *k = json_string_value(json_object_get(e, "kind"));
		const char *o = json_string_value(json_object_get(e, "object"));
		const json_t *v = json_object_get(e, "round");
		if (k && o && strcmp(k, kind) == 0 && strcmp(o, object) == 0 && json_is_integer(v) &&
			json_integer_value(v) == round)
			found = e;
		else
			json_decref(e);
	}
	free(list);
	return found;
}

int ng_rounds_log_all(json_t **out, struct ng_rounds *r, struct ng_err *err)
{
	struct ng_entry *list;
	char hex[NG_HASH_HEX];
	size_t n;

	*out = NULL;
	if (ng_board_list(r->board, NG_OBJ_LOG, -1, &list, &n, NULL, err) < 0)
		return -1;
	*out = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *e = load_entry(r, list[i].name.n, hex, NULL);
		if (e)
			json_array_append_new(*out, e);
	}
	free(list);
	return 0;
}

static int append(struct ng_rounds *r, const json_t *entry, long n, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_LOG, n, NULL);
	char *text = ng_json_canonical(entry);
	struct ng_object_writer *w;
	struct ng_statement s;
	int rc = ng_object_new(&w, r->board, &name, err);

	if (rc == 0) {
		ng_rounds_statement(&s, r, NG_OBJ_LOG, n, "", "");
		rc = ng_object_write(w, text, strlen(text), err);
		if (rc < 0)
			ng_object_abort(w);
		else
			rc = ng_object_commit(w, &s, err);
	}
	free(text);
	return rc;
}

/* A damaged newest entry counts as absent: it gives way, or nobody could ever add one. */
static int drop_damaged(struct ng_rounds *r, long n, const struct ng_err *damage, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_LOG, n, NULL);
	struct ng_object *o = NULL;
	int rc;

	ng_warn("%s; it is written again", damage->text);
	rc = ng_object_open(&o, r->board, &name, err);
	if (rc == 0)
		rc = ng_object_discard(o, err);
	ng_object_close(o);
	/* another coordinator may have done so just now */
	return rc < 0 && err->code != NG_TEMPFAIL && err->code != NG_NOINPUT ? -1 : 0;
}

int ng_rounds_log(struct ng_rounds *r, json_t *entry, struct ng_err *err)
{
	struct ng_entry *list;
	struct ng_err why = { 0 };
	char hex[NG_HASH_HEX];
	size_t n;
	int rc = -1;

	for (int try = 0; try < TRIES; try++) {
		if (ng_board_list(r->board, NG_OBJ_LOG, -1, &list, &n, NULL, &why) < 0)
			break;
		long next = n ? list[n - 1].name.n + 1 : 0;
		free(list);
		json_object_set_new(entry, "n", json_integer(next));
		json_object_del(entry, "previous");
		if (next > 0) {
			json_t *last = load_entry(r, next - 1, hex, &why);
			if (!last && why.code == NG_DATA) {
				struct ng_err damage = why;
				if (drop_damaged(r, next - 1, &damage, &why) < 0)
					break;
				continue;
			}
			if (!last)
				break;
			/* another coordinator may have told of the same object just now */
			bool told = json_equal(json_object_get(last, "kind"), json_object_get(entry, "kind")) &&
				    json_equal(json_object_get(last, "round"), json_object_get(entry, "round")) &&
				    json_equal(json_object_get(last, "object"), json_object_get(entry, "object"));
			json_decref(last);
			if (told) {
				rc = 0;
				break;
			}
			json_object_set_new(entry, "previous", json_string(hex));
		}
		rc = append(r, entry, next, &why);
		if (rc == 0 || why.code != NG_NOTHING)
			break;
	}
	json_decref(entry);
	if (rc < 0 && why.code == NG_NOTHING)
		ng_fail(&why, NG_TEMPFAIL, "the log is being written by others without end");
	if (rc < 0 && err) {
		*err = why;
		ng_fail_prefix(err, "the log");
	}
	return rc;
}

/* ---- pruning ---- */

int ng_rounds_prunable(json_t **out, struct ng_rounds *r, long newest, struct ng_err *err)
{
	static const enum ng_object_kind kind[] = { NG_OBJ_UPDATE, NG_OBJ_STATE, NG_OBJ_CLAIM, NG_OBJ_GLOBAL };
	long keep = r->manifest.experiment.keep_last;
	struct ng_entry *list;
	char path[128];
	size_t n;

	*out = json_array();
	if (keep <= 0)
		return 0;
	for (size_t k = 0; k < NG_COUNT(kind); k++) {
		if (ng_board_list(r->board, kind[k], -1, &list, &n, NULL, err) < 0) {
			json_decref(*out);
			*out = NULL;
			return -1;
		}
		for (size_t i = 0; i < n && list[i].name.n <= newest - keep; i++) {
			ng_object_path(path, &list[i].name);
			json_array_append_new(*out, json_string(path));
		}
		free(list);
	}
	return 0;
}

/* The names come from ng_rounds_prunable: parse them back. */
static bool parse_path(struct ng_name *out, const char *path)
{
	for (int k = 0; k < NG_OBJ_KINDS; k++) {
		const char *kind = ng_object_kind_name((enum ng_object_kind)k), *slash;
		size_t len = strlen(kind);
		if (strncmp(path, kind, len) != 0 || path[len] != '/')
			continue;
		char *end;
		long n = strtol(path + len + 1, &end, 10);
		slash = *end == '/' ? end + 1 : NULL;
		*out = ng_object_name((enum ng_object_kind)k, n, slash);
		return true;
	}
	return false;
}

int ng_rounds_remove(struct ng_rounds *r, const json_t *paths, struct ng_err *err)
{
	struct ng_name name;
	const json_t *p;
	size_t i;

	json_array_foreach(paths, i, p)
	{
		if (!parse_path(&name, json_string_value(p)))
			return ng_fail(err, NG_SOFTWARE, "no object is called '%s'", json_string_value(p));
		if (ng_board_remove(r->board, &name, err) < 0)
			return -1;
	}
	return 0;
}
