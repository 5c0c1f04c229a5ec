/*
 * rounds.c - opening an experiment and its globals; see rounds.h.  Updates are
 * updates.c, the log and pruning are log.c.
 */
#include "common/base/compat.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/base/str.h"
#include "common/board/rounds.h"

/* ---- statements ---- */

void ng_rounds_statement(struct ng_statement *out, const struct ng_rounds *r, enum ng_object_kind kind, long round,
	const char *site, const char *base)
{
	memset(out, 0, sizeof *out);
	snprintf(out->kind, sizeof out->kind, "%s", ng_object_kind_name(kind));
	memcpy(out->experiment, r->id, NG_HASH_HEX);
	out->manifest = r->manifest.version;
	out->round = round;
	snprintf(out->site, sizeof out->site, "%s", site);
	snprintf(out->base, sizeof out->base, "%s", base);
	out->created = (long long)time(NULL);
}

/* ---- manifests ---- */

/* A manifest, its digest and its chain checked. */
static int load_manifest(struct ng_manifest *m, char hex[NG_HASH_HEX], struct ng_board *b, long n, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_MANIFEST, n, NULL);
	struct ng_object *o = NULL;
	struct ng_statement s;
	char *text = NULL;
	size_t len;
	int rc = -1;

	memset(m, 0, sizeof *m);
	if (ng_object_open(&o, b, &name, err) < 0 || ng_object_statement(&s, o, err) < 0 ||
		ng_object_load(&text, &len, o, NG_MANIFEST_MAX, err) < 0)
		goto out;
	if (strcmp(s.kind, "manifest") != 0 || s.round != n) {
		ng_fail(err, NG_DATA, "manifest/%05ld is signed as another object", n);
		goto out;
	}
	if (ng_manifest_parse(m, text, len, err) < 0) {
		ng_fail_prefix(err, "manifest/%05ld", n);
		goto out;
	}
	if (m->version != n || strcmp(m->name, ng_board_experiment(b)) != 0) {
		ng_fail(err, NG_DATA, "manifest/%05ld is of version %ld of the experiment '%s'", n, m->version,
			m->name);
		ng_manifest_release(m);
		goto out;
	}
	memcpy(hex, s.object, NG_HASH_HEX);
	rc = 0;
out:
	free(text);
	ng_object_close(o);
	return rc;
}

/* What a site would do otherwise, or send: without signatures nobody may change it. */
static bool same_work(const struct ng_manifest *a, const struct ng_manifest *b)
{
	static const char *const key[] = { "train", "aggregate", "codec", "seal", "members" };

	if (strcmp(a->config.base, b->config.base) != 0 || a->config.n_files != b->config.n_files)
		return false;
	for (size_t i = 0; i < a->config.n_files; i++)
		if (strcmp(a->config.file[i].path, b->config.file[i].path) != 0 ||
			strcmp(a->config.file[i].hex, b->config.file[i].hex) != 0)
			return false;
	for (size_t i = 0; i < NG_COUNT(key); i++)
		if (!json_equal(
			    json_object_get(a->experiment.json, key[i]), json_object_get(b->experiment.json, key[i])) &&
			(json_object_get(a->experiment.json, key[i]) || json_object_get(b->experiment.json, key[i])))
			return false;
	return true;
}

static int load_manifests(struct ng_rounds *r, struct ng_err *err)
{
	struct ng_entry *list = NULL;
	struct ng_manifest next;
	char hex[NG_HASH_HEX];
	size_t n;
	int rc = -1;

	if (ng_board_list(r->board, NG_OBJ_MANIFEST, -1, &list, &n, NULL, err) < 0)
		return -1;
	if (n == 0 || list[0].name.n != 0) {
		ng_fail(err, NG_NOINPUT, "the experiment '%s' on the blackboard '%s' has no manifest",
			ng_board_experiment(r->board), ng_board_address(r->board));
		goto out;
	}
	if (load_manifest(&r->manifest, r->manifest_hex, r->board, 0, err) < 0)
		goto out;
	memcpy(r->id, r->manifest_hex, NG_HASH_HEX);
	for (size_t i = 1; i < n && list[i].name.n == (long)i; i++) {
		struct ng_err why = { 0 };
		if (load_manifest(&next, hex, r->board, (long)i, &why) < 0) {
			if (why.code != NG_DATA && why.code != NG_REFUSED) {
				if (err)
					*err = why;
				goto out;
			}
			ng_warn("%s: manifest/%05zu stays in force", why.text, i - 1);
			break;
		}
		if (strcmp(next.previous, r->manifest_hex) != 0 || !same_work(&next, &r->manifest)) {
			ng_warn("manifest/%05zu is not accepted (%s): manifest/%05zu stays in force", i,
				strcmp(next.previous, r->manifest_hex) != 0 ? "it does not follow from the one before"
									    : "it changes what is trained or sent",
				i - 1);
			ng_manifest_release(&next);
			break;
		}
		ng_manifest_release(&r->manifest);
		r->manifest = next;
		memcpy(r->manifest_hex, hex, NG_HASH_HEX);
	}
	rc = 0;
out:
	free(list);
	return rc;
}

/* ---- globals ---- */

int ng_rounds_check_statement(
	struct ng_statement *s, const struct ng_rounds *r, struct ng_object *o, struct ng_err *err)
{
	const struct ng_name *name = &ng_object_entry(o)->name;
	char path[128];

	ng_object_path(path, name);
	if (ng_object_statement(s, o, err) < 0)
		return -1;
	if (strcmp(s->experiment, r->id) != 0)
		return ng_fail(err, NG_DATA, "%s is signed for another experiment", path);
	if (strcmp(s->kind, ng_object_kind_name(name->kind)) != 0 || s->round != name->n ||
		strcmp(s->site, name->kind == NG_OBJ_STATE ? "" : name->leaf) != 0)
		return ng_fail(err, NG_DATA, "%s is signed as another object (%s of round %ld%s%s)", path, s->kind,
			s->round, s->site[0] ? ", " : "", s->site);
	return 0;
}

static int check_global_frame(
	const struct ng_rounds *r, struct ng_object *o, long round, struct ng_header *header, struct ng_err *err)
{
	struct ng_stream *s = NULL;
	char path[32];
	int rc = -1, got;

	snprintf(path, sizeof path, "global/%05ld", round);
	if (ng_object_rewind(o, err) < 0 || ng_stream_open_fn(&s, ng_object_read, o, path, 0, err) < 0)
		return -1;
	got = ng_stream_next(s, err);
	if (got == 0)
		ng_fail(err, NG_DATA, "%s holds no frame", path);
	if (got != 1)
		goto out;
	const struct ng_frame *f = ng_stream_frame(s);
	if (f->kind != NG_KIND_GLOBAL || strcmp(f->id, r->id) != 0 || f->round != round) {
		ng_fail(err, NG_DATA, "%s holds the %s of round %ld of the experiment '%s' (%.12s)", path,
			ng_kind_name(f->kind), f->round, f->name, f->id);
		goto out;
	}
	if (header)
		ng_header_copy(header, ng_stream_header(s));
	rc = ng_object_rewind(o, err);
out:
	ng_stream_close(s);
	return rc;
}

/* STATE/.../header/DIGEST: the header of a global that was verified here. */
static char *header_path(const struct ng_rounds *r, const char *name)
{
	return ng_xasprintf("%s/header%s%s", r->pins.dir, name[0] ? "/" : "", name);
}

static bool header_known(struct ng_header *out, const struct ng_rounds *r, const char *object)
{
	char *path = header_path(r, object), *text = NULL;
	uint64_t json;
	size_t len;
	bool ok = ng_file_read(&text, &len, path, NG_HEADER_MAX, NULL) == 0 && len > 8 &&
		  ng_header_length(&json, (const unsigned char *)text, len, path, NULL) == 0 && json == len - 8 &&
		  ng_header_parse(out, text + 8, len - 8, UINT64_MAX, path, NULL) == 0;

	free(text);
	free(path);
	return ok;
}

/* A help for later runs: a failure does no harm. */
static void remember_header(const struct ng_rounds *r, const char *object, const struct ng_header *h)
{
	char *dir = header_path(r, ""), *path = header_path(r, object);
	struct ng_str text;
	struct dirent *e;
	DIR *d;

	ng_str_init(&text, NG_HEADER_MAX + 64);
	if (!ng_file_exists(path) && ng_mkdirs(dir, 0700, NULL) == 0 && ng_header_encode(&text, h, true, NULL) == 0) {
		d = opendir(dir);
		while (d && (e = readdir(d)) != NULL)
			if (ng_hash_valid(e->d_name)) /* those of older globals */
				(void)!unlinkat(dirfd(d), e->d_name, 0);
		if (d)
			closedir(d);
		(void)!ng_out_put(path, text.data, text.len, 0600, NULL);
	}
	ng_str_release(&text);
	free(dir);
	free(path);
}

static int open_global(struct ng_object **out, struct ng_statement *s, struct ng_rounds *r, long round,
	struct ng_header *header, struct ng_err *err)
{
	struct ng_name name = ng_object_name(NG_OBJ_GLOBAL, round, NULL);
	struct ng_object *o = NULL;

	*out = NULL;
	if (ng_object_open(&o, r->board, &name, err) < 0 || ng_rounds_check_statement(s, r, o, err) < 0)
		goto bad;
	bool known = header && r->flags & NG_ROUNDS_LIGHT && header_known(header, r, s->object);
	if (!(r->flags & NG_ROUNDS_SHALLOW) && !known &&
		(ng_object_verify(o, err) < 0 || check_global_frame(r, o, round, header, err) < 0))
		goto bad;
	*out = o;
	return 0;
bad:
	ng_object_close(o);
	return -1;
}

int ng_rounds_global(
	struct ng_object **out, struct ng_rounds *r, long round, struct ng_header *header, struct ng_err *err)
{
	struct ng_statement s;

	return open_global(out, &s, r, round, header, err);
}

/* The newest valid one.  What is damaged counts as absent, but is told. */
static int find_newest(struct ng_rounds *r, struct ng_err *err)
{
	struct ng_entry *list = NULL;
	struct ng_statement s;
	struct ng_object *o;
	size_t n;
	int rc = -1;

	r->newest = -1;
	if (ng_board_list(r->board, NG_OBJ_GLOBAL, -1, &list, &n, NULL, err) < 0)
		return -1;
	while (n-- > 0) {
		struct ng_err why = { 0 };
		if (open_global(&o, &s, r, list[n].name.n, &r->global_header, &why) == 0) {
			r->newest = list[n].name.n;
			r->global_created = s.created;
			r->global_bytes = ng_object_entry(o)->bytes;
			memcpy(r->global_hex, s.object, NG_HASH_HEX);
			r->global = o;
			if (!(r->flags & (NG_ROUNDS_SHALLOW | NG_ROUNDS_NO_PIN)))
				remember_header(r, s.object, &r->global_header);
			break;
		}
		if (why.code != NG_DATA && why.code != NG_NOINPUT) {
			if (err)
				*err = why;
			goto out;
		}
		if (!r->damaged[0])
			snprintf(r->damaged, sizeof r->damaged, "%.255s", why.text);
		if (!(r->flags & NG_ROUNDS_SHALLOW))
			ng_warn("%s", why.text);
	}
	rc = 0;
out:
	free(list);
	return rc;
}

int ng_rounds_content(char hex[NG_HASH_HEX], struct ng_rounds *r, struct ng_object *global, struct ng_err *err)
{
	long round = ng_object_entry(global)->name.n;
	struct ng_statement s;
	struct ng_stream *st = NULL;
	json_t *entry;
	int rc = -1;

	if (ng_object_statement(&s, global, err) < 0)
		return -1;
	entry = ng_rounds_log_find(r, "global", round, s.object);
	const char *told = json_string_value(json_object_get(entry, "content"));
	if (told && ng_hash_valid(told)) {
		memcpy(hex, told, NG_HASH_HEX);
		json_decref(entry);
		return 0;
	}
	json_decref(entry);
	if (r->flags & NG_ROUNDS_LIGHT && ng_object_verify(global, err) < 0)
		return -1;
	if (ng_object_rewind(global, err) < 0 ||
		ng_stream_open_fn(&st, ng_object_read, global, "global", NG_STREAM_DIGEST | NG_STREAM_THREADS, err) < 0)
		return -1;
	if (ng_stream_next(st, err) == 1 && ng_stream_drain(st, err) == 0) {
		memcpy(hex, ng_stream_digest(st), NG_HASH_HEX);
		rc = ng_object_rewind(global, err);
	}
	ng_stream_close(st);
	return rc;
}

/* ---- pins ---- */

/* Is object kind/n still the one that was pinned?  One that is gone (pruned) is fine. */
static int still(const struct ng_rounds *r, enum ng_object_kind kind, long n, const char *hex, struct ng_err *err)
{
	struct ng_name name = ng_object_name(kind, n, NULL);
	struct ng_object *o = NULL;
	struct ng_statement s;
	struct ng_err why = { 0 };
	int rc = 0;

	if (ng_object_open(&o, r->board, &name, &why) < 0)
		return why.code == NG_NOINPUT ? 0 : (err ? (*err = why, -1) : -1);
	if (ng_object_statement(&s, o, err) < 0)
		rc = -1;
	else if (strcmp(s.object, hex) != 0)
		rc = ng_fail(err, NG_REFUSED,
			"%s/%05ld is not the one that this host has seen (%.12s, now %.12s): the blackboard was changed",
			ng_object_kind_name(kind), n, hex, s.object);
	ng_object_close(o);
	return rc;
}

static int check_pins(struct ng_rounds *r, struct ng_err *err)
{
	const struct ng_pins *p = &r->pins;

	if (!p->id[0])
		return 0;
	if (strcmp(p->id, r->id) != 0)
		return ng_fail(err, NG_REFUSED,
			"the experiment '%s' there is not the one that this host knows (%.12s, now %.12s); "
			"if that is right: --accept-rollback %s",
			ng_board_experiment(r->board), p->id, r->id, r->id);
	if (r->manifest.version < p->manifest)
		return ng_fail(err, NG_REFUSED,
			"the blackboard was rolled back: this host has seen manifest %ld, there is %ld "
			"(to accept that: --accept-rollback %s)",
			p->manifest, r->manifest.version, r->id);
	if (r->newest < p->global)
		return ng_fail(err, NG_REFUSED,
			"the blackboard was rolled back or damaged: this host has seen global %ld, the newest valid one is %ld%s%s "
			"(to accept that: --accept-rollback %s)",
			p->global, r->newest, r->damaged[0] ? "; " : "", r->damaged, r->id);
	if (still(r, NG_OBJ_MANIFEST, p->manifest, p->manifest_hex, err) < 0)
		return -1;
	return p->global >= 0 ? still(r, NG_OBJ_GLOBAL, p->global, p->global_hex, err) : 0;
}

int ng_rounds_open(struct ng_rounds *out, const char *address, const char *experiment, const char *state,
	const char *accept_rollback, unsigned flags, struct ng_err *err)
{
	struct ng_rounds *r = out;
	struct ng_pins now = { 0 };
	bool replace = false;

	memset(r, 0, sizeof *r);
	r->newest = -1;
	r->flags = flags;
	if (ng_board_open(&r->board, address, experiment, 0, err) < 0)
		return -1;
	if (ng_pins_open(&r->pins, r->board, state, err) < 0 || load_manifests(r, err) < 0 || find_newest(r, err) < 0)
		goto bad;
	if (accept_rollback) {
		if (strcmp(accept_rollback, r->id) != 0) {
			ng_fail(err, NG_REFUSED, "--accept-rollback names %.12s, but the experiment is %s",
				accept_rollback, r->id);
			goto bad;
		}
		replace = true;
	} else if (check_pins(r, err) < 0) {
		goto bad;
	}
	if (r->newest < 0) {
		ng_fail(err, r->damaged[0] ? NG_DATA : NG_TEMPFAIL,
			"the experiment '%s' has no %sglobal model yet: run ng-init again%s%s", experiment,
			r->damaged[0] ? "valid " : "", r->damaged[0] ? "; " : "", r->damaged);
		goto bad;
	}
	if (flags & (NG_ROUNDS_NO_PIN | NG_ROUNDS_SHALLOW))
		return 0;
	memcpy(now.id, r->id, NG_HASH_HEX);
	now.manifest = r->manifest.version;
	memcpy(now.manifest_hex, r->manifest_hex, NG_HASH_HEX);
	now.global = r->newest;
	memcpy(now.global_hex, r->global_hex, NG_HASH_HEX);
	if (ng_pins_set(&r->pins, r->board, &now, replace, err) == 0)
		return 0;
bad:
	ng_rounds_close(r);
	return -1;
}

void ng_rounds_close(struct ng_rounds *r)
{
	ng_object_close(r->global);
	r->global = NULL;
	ng_header_release(&r->global_header);
	ng_manifest_release(&r->manifest);
	ng_pins_close(&r->pins);
	ng_board_close(r->board);
	r->board = NULL;
}
