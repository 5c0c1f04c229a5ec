/*
 * pins.c - what this host has seen; see pins.h.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/board/pins.h"

#define TRIES 100 /* of 50 ms: the lock is held for one small write */

static int parse(struct ng_pins *p, const char *path, struct ng_err *err)
{
	json_t *all = ng_json_load(path, 65536, err);
	const char *id = NULL, *m = NULL, *g = NULL;
	int rc = -1;

	if (!all)
		return -1;
	if (ng_json_string(&id, all, "id", path, err) < 0 ||
		ng_json_string(&m, all, "manifest_digest", path, err) < 0 ||
		ng_json_string(&g, all, "global_digest", path, err) < 0 ||
		ng_json_long(&p->manifest, all, "manifest", 0, NG_NUMBER_MAX, path, err) < 0 ||
		ng_json_long(&p->global, all, "global", 0, NG_NUMBER_MAX, path, err) < 0)
		goto out;
	if (!id || !ng_hash_valid(id) || !m || !ng_hash_valid(m) || (g && !ng_hash_valid(g)) ||
		(p->global >= 0) != !!g) {
		ng_fail(err, NG_DATA, "'%s' is damaged; remove it only if you trust the blackboard as it is now", path);
		goto out;
	}
	memcpy(p->id, id, NG_HASH_HEX);
	memcpy(p->manifest_hex, m, NG_HASH_HEX);
	if (g)
		memcpy(p->global_hex, g, NG_HASH_HEX);
	rc = 0;
out:
	json_decref(all);
	return rc;
}

static int load(struct ng_pins *p, struct ng_err *err)
{
	char *path = ng_xasprintf("%s/pins.json", p->dir);
	int rc = 0;

	p->id[0] = p->manifest_hex[0] = p->global_hex[0] = '\0';
	p->manifest = 0;
	p->global = -1;
	if (ng_file_exists(path))
		rc = parse(p, path, err);
	free(path);
	return rc;
}

int ng_pins_open(struct ng_pins *out, const struct ng_board *b, const char *state, struct ng_err *err)
{
	char hex[NG_HASH_HEX], *sub;
	int rc;

	memset(out, 0, sizeof *out);
	ng_hash_bytes(hex, ng_board_address(b), strlen(ng_board_address(b)));
	sub = ng_xasprintf("boards/%s-%.16s", ng_board_experiment(b), hex);
	rc = ng_state_path(&out->dir, state, sub, err);
	free(sub);
	if (rc == 0 && load(out, err) < 0) {
		ng_pins_close(out);
		rc = -1;
	}
	return rc;
}

void ng_pins_close(struct ng_pins *p)
{
	free(p->dir);
	p->dir = NULL;
}

static int lock(int *fd, const char *path, struct ng_err *err)
{
	struct timespec wait = { 0, 50000000 };

	for (int i = 0;; i++) {
		if (ng_lock(fd, path, err) == 0)
			return 0;
		if (!err || err->code != NG_TEMPFAIL || i == TRIES)
			return -1;
		nanosleep(&wait, NULL);
	}
}

static int store(const struct ng_pins *p, const struct ng_board *b, struct ng_err *err)
{
	json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:I}", "address", ng_board_address(b), "experiment",
		ng_board_experiment(b), "id", p->id, "manifest_digest", p->manifest_hex, "manifest",
		(json_int_t)p->manifest);
	char *path = ng_xasprintf("%s/pins.json", p->dir), *text;
	int rc;

	if (!all) { /* an address that is not UTF-8 stays out */
		all = json_pack("{s:s, s:s, s:s, s:I}", "experiment", ng_board_experiment(b), "id", p->id,
			"manifest_digest", p->manifest_hex, "manifest", (json_int_t)p->manifest);
	}
	if (p->global >= 0) {
		json_object_set_new(all, "global", json_integer(p->global));
		json_object_set_new(all, "global_digest", json_string(p->global_hex));
	}
	text = ng_json_canonical(all);
	rc = ng_out_put(path, text, strlen(text), 0600, err);
	free(text);
	free(path);
	json_decref(all);
	return rc;
}

static bool same(const struct ng_pins *a, const struct ng_pins *b)
{
	return strcmp(a->id, b->id) == 0 && a->manifest == b->manifest && a->global == b->global &&
	       strcmp(a->manifest_hex, b->manifest_hex) == 0 && strcmp(a->global_hex, b->global_hex) == 0;
}

int ng_pins_set(
	struct ng_pins *p, const struct ng_board *b, const struct ng_pins *now, bool replace, struct ng_err *err)
{
	char *path;
	int fd, rc = -1;

	if (same(p, now))
		return 0;
	path = ng_xasprintf("%s/lock", p->dir);
	if (lock(&fd, path, err) < 0)
		goto out;
	if (load(p, err) == 0) {
		char *dir = p->dir;
		bool other = replace || strcmp(p->id, now->id) != 0;
		struct ng_pins next = *p;
		if (other || now->manifest > p->manifest) {
			memcpy(next.id, now->id, sizeof next.id);
			next.manifest = now->manifest;
			memcpy(next.manifest_hex, now->manifest_hex, sizeof next.manifest_hex);
		}
		if (other || now->global > p->global) {
			next.global = now->global;
			memcpy(next.global_hex, now->global_hex, sizeof next.global_hex);
		}
		next.dir = dir;
		rc = same(p, &next) ? 0 : store(&next, b, err);
		if (rc == 0)
			*p = next;
	}
	ng_unlock(fd);
out:
	free(path);
	return rc;
}
