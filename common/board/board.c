/*
 * board.c - what all kinds of boards have in common: names, digests, and the
 * choice of an implementation by the address; see board.h.
 */
#include "common/base/compat.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/board/board.h"
#include "common/tensor/hasher.h"

#define BLOCK (1u << 20)

static const char *const kind_name[NG_OBJ_KINDS] = { "manifest", "base", "global", "update", "metrics", "state", "log",
	"claim" };

const char *ng_object_kind_name(enum ng_object_kind k)
{
	return kind_name[k];
}

static bool leaf_is_site(enum ng_object_kind k)
{
	return k == NG_OBJ_UPDATE || k == NG_OBJ_METRICS || k == NG_OBJ_CLAIM;
}

struct ng_name ng_object_name(enum ng_object_kind kind, long n, const char *leaf)
{
	struct ng_name name = { .kind = kind, .n = n };
	bool wanted = leaf_is_site(kind) || kind == NG_OBJ_STATE;

	if (n < 0 || n > NG_NUMBER_MAX || (kind == NG_OBJ_BASE && n != 0))
		NG_BUG("no object has the number %ld", n);
	if (wanted != (leaf != NULL) || (leaf_is_site(kind) && !ng_name_valid(leaf)) ||
		(kind == NG_OBJ_STATE && !ng_hash_valid(leaf)))
		NG_BUG("a %s cannot be called '%s'", kind_name[kind], leaf ? leaf : "");
	if (leaf)
		memcpy(name.leaf, leaf, strlen(leaf) + 1);
	return name;
}

void ng_object_path(char out[128], const struct ng_name *name)
{
	if (name->kind == NG_OBJ_BASE)
		snprintf(out, 128, "base");
	else if (name->leaf[0])
		snprintf(out, 128, "%s/%05ld/%s", kind_name[name->kind], name->n, name->leaf);
	else
		snprintf(out, 128, "%s/%05ld", kind_name[name->kind], name->n);
}

bool ng_object_rel_valid(const char *rel)
{
	size_t n = strlen(rel), depth = 1;

	if (n == 0 || n > 255 || rel[0] == '/' || rel[n - 1] == '/' || !ng_utf8_valid(rel, n, NULL))
		return false;
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)rel[i] < 0x20 || rel[i] == 0x7f || rel[i] == '\\')
			return false;
		if (rel[i] == '/') {
			depth++;
			if (rel[i + 1] == '/')
				return false;
		}
		/* no component begins with a dot: neither "..", "." nor a hidden file */
		if (rel[i] == '.' && (i == 0 || rel[i - 1] == '/'))
			return false;
	}
	return depth <= 4;
}

/* ---- boards ---- */

static bool is_git(const char *path)
{
	static const char *const sign[] = { "HEAD", "objects", "refs" };
	bool all = true;

	for (size_t i = 0; i < NG_COUNT(sign) && all; i++) {
		char *p = ng_xasprintf("%s/%s", path, sign[i]);
		all = ng_file_exists(p);
		free(p);
	}
	return all;
}

/* "file:///x" is /x; other schemes and host:path are not built in yet. */
static int local_path(const char **out, const char *address, struct ng_err *err)
{
	const char *colon = strchr(address, ':'), *slash = strchr(address, '/');

	if (address[0] == '\0')
		return ng_fail(err, NG_USAGE, "no blackboard is given (-b or NG_BOARD)");
	*out = address;
	if (strncmp(address, "file://", 7) == 0) {
		*out = address + 7;
		if (**out != '/')
			return ng_fail(err, NG_USAGE, "the address '%s' names no absolute path", address);
	} else if (colon && (!slash || colon < slash)) {
		return ng_fail(err, NG_USAGE,
			"the blackboard '%s' is no directory; git boards come with a later version", address);
	}
	if (is_git(*out))
		return ng_fail(
			err, NG_USAGE, "'%s' is a git repository; git boards come with a later version", address);
	return 0;
}

int ng_board_open(
	struct ng_board **out, const char *address, const char *experiment, unsigned flags, struct ng_err *err)
{
	struct ng_board *b;
	const char *path = NULL;

	*out = NULL;
	if (!ng_name_valid(experiment))
		return ng_fail(err, NG_USAGE, "'%s' is no name of an experiment: [a-z0-9-], at most 64", experiment);
	if (local_path(&path, address, err) < 0)
		return -1;
	b = ng_xcalloc(1, sizeof *b);
	b->ops = &ng_board_dir;
	b->address = ng_xstrdup(path);
	b->experiment = ng_xstrdup(experiment);
	if (b->ops->open(b, flags, err) < 0) {
		ng_board_close(b);
		return -1;
	}
	*out = b;
	return 0;
}

void ng_board_close(struct ng_board *b)
{
	if (!b)
		return;
	if (b->impl)
		b->ops->close(b);
	free(b->address);
	free(b->experiment);
	free(b);
}

const char *ng_board_address(const struct ng_board *b)
{
	return b->address;
}

const char *ng_board_experiment(const struct ng_board *b)
{
	return b->experiment;
}

static int by_name(const void *a, const void *b)
{
	const struct ng_entry *x = a, *y = b;

	if (x->name.n != y->name.n)
		return x->name.n < y->name.n ? -1 : 1;
	return strcmp(x->name.leaf, y->name.leaf);
}

int ng_board_list(struct ng_board *b, enum ng_object_kind kind, long n, struct ng_entry **out, size_t *count,
	size_t *odd, struct ng_err *err)
{
	size_t ignored;

	*out = NULL;
	*count = 0;
	if (!odd)
		odd = &ignored;
	*odd = 0;
	if (b->ops->list(b, kind, n, out, count, odd, err) < 0) {
		free(*out);
		*out = NULL;
		*count = 0;
		return -1;
	}
	if (*count > 1)
		qsort(*out, *count, sizeof **out, by_name);
	return 0;
}

int ng_board_remove(struct ng_board *b, const struct ng_name *name, struct ng_err *err)
{
	return b->ops->remove(b, name, err);
}

void ng_board_tidy(struct ng_board *b, long age, long *removed)
{
	long ignored;

	if (!removed)
		removed = &ignored;
	*removed = 0;
	b->ops->tidy(b, age, removed);
}

/* ---- reading ---- */

int ng_object_open(struct ng_object **out, struct ng_board *b, const struct ng_name *name, struct ng_err *err)
{
	struct ng_object *o = ng_xcalloc(1, sizeof *o);

	*out = NULL;
	o->board = b;
	o->entry.name = *name;
	if (b->ops->object_open(o, err) < 0) {
		ng_object_close(o);
		return -1;
	}
	*out = o;
	return 0;
}

void ng_object_close(struct ng_object *o)
{
	if (!o)
		return;
	if (o->impl)
		o->board->ops->object_close(o);
	free(o->signature);
	free(o->path);
	free(o);
}

const struct ng_entry *ng_object_entry(const struct ng_object *o)
{
	return &o->entry;
}

static int named(const struct ng_object *o, struct ng_err *err)
{
	char path[128];

	ng_object_path(path, &o->entry.name);
	return ng_fail_prefix(err, "%s", path);
}

int ng_object_statement(struct ng_statement *out, const struct ng_object *o, struct ng_err *err)
{
	return ng_statement_parse(out, o->signature, o->signature_len, err) < 0 ? named(o, err) : 0;
}

ptrdiff_t ng_object_read(void *object, void *buf, size_t n, struct ng_err *err)
{
	struct ng_object *o = object;

	return o->board->ops->object_read(o, buf, n, err);
}

int ng_object_rewind(struct ng_object *o, struct ng_err *err)
{
	return o->board->ops->object_rewind(o, err);
}

static int differs(const struct ng_object *o, struct ng_err *err)
{
	ng_fail(err, NG_DATA, "its bytes are not those that its signature text names (damaged, or a part is missing)");
	return named(o, err);
}

int ng_object_load(char **out, size_t *len, struct ng_object *o, size_t max, struct ng_err *err)
{
	struct ng_statement s;
	char hex[NG_HASH_HEX];
	size_t size = (size_t)o->entry.bytes, got = 0;
	ptrdiff_t n = 0;

	*out = NULL;
	if (ng_object_statement(&s, o, err) < 0 || ng_object_rewind(o, err) < 0)
		return -1;
	if (o->entry.bytes > max) {
		ng_fail(err, NG_DATA, "%llu bytes, more than %zu", (unsigned long long)o->entry.bytes, max);
		return named(o, err);
	}
	char *buf = ng_xmalloc(size + 1);
	while (got < size && (n = ng_object_read(o, buf + got, size - got, err)) > 0)
		got += (size_t)n;
	if (n < 0) {
		free(buf);
		return -1;
	}
	buf[got] = '\0';
	ng_hash_bytes(hex, buf, got);
	if (strcmp(hex, s.object) != 0) {
		free(buf);
		return differs(o, err);
	}
	*out = buf;
	*len = got;
	return 0;
}

int ng_object_verify(struct ng_object *o, struct ng_err *err)
{
	struct ng_statement s;
	struct ng_hash h;
	char hex[NG_HASH_HEX], *buf = NULL;
	ptrdiff_t n;
	int rc = -1;

	if (ng_object_statement(&s, o, err) < 0 || ng_object_rewind(o, err) < 0)
		return -1;
	buf = ng_xmalloc(BLOCK);
	ng_hash_init(&h);
	while ((n = ng_object_read(o, buf, BLOCK, err)) > 0)
		ng_hash_update(&h, buf, (size_t)n);
	if (n < 0)
		goto out;
	ng_hash_final(&h, hex);
	rc = strcmp(hex, s.object) == 0 ? ng_object_rewind(o, err) : differs(o, err);
out:
	free(buf);
	return rc;
}

int ng_verified_start(struct ng_verified *v, struct ng_object *o, struct ng_err *err)
{
	struct ng_statement s;

	if (ng_object_statement(&s, o, err) < 0 || ng_object_rewind(o, err) < 0)
		return -1;
	v->object = o;
	v->left = o->entry.bytes;
	memcpy(v->hex, s.object, NG_HASH_HEX);
	ng_hash_init(&v->hash);
	return 0;
}

ptrdiff_t ng_verified_read(void *verified, void *buf, size_t n, struct ng_err *err)
{
	struct ng_verified *v = verified;
	char hex[NG_HASH_HEX];
	ptrdiff_t got;

	if (v->left == 0)
		return 0;
	got = ng_object_read(v->object, buf, v->left < n ? (size_t)v->left : n, err);
	if (got < 0)
		return -1;
	ng_hash_update(&v->hash, buf, (size_t)got);
	v->left -= (uint64_t)got;
	if (v->left > 0 && got > 0)
		return got;
	ng_hash_final(&v->hash, hex);
	if (v->left > 0 || strcmp(hex, v->hex) != 0) {
		ng_fail(err, NG_DATA, "its bytes changed while they were read");
		return named(v->object, err);
	}
	return got;
}

int ng_object_file(char **out, size_t *len, struct ng_object *o, const char *rel, size_t max, struct ng_err *err)
{
	*out = NULL;
	if (!ng_object_rel_valid(rel))
		return ng_fail(err, NG_DATA, "'%s' is no name of a model folder's file", rel);
	return o->board->ops->object_file(o, rel, out, len, max, err) < 0 ? named(o, err) : 0;
}

const char *ng_object_plain_path(const struct ng_object *o)
{
	return o->path;
}

int ng_object_discard(struct ng_object *o, struct ng_err *err)
{
	return o->board->ops->object_discard(o, err);
}

/* ---- writing ---- */

int ng_object_new(struct ng_object_writer **out, struct ng_board *b, const struct ng_name *name, struct ng_err *err)
{
	struct ng_object_writer *w = ng_xcalloc(1, sizeof *w);

	*out = NULL;
	w->board = b;
	w->name = *name;
	w->hash = ng_hasher_new(true);
	ng_hasher_init(w->hash);
	if (b->ops->writer_open(w, err) < 0) {
		ng_object_abort(w);
		return -1;
	}
	*out = w;
	return 0;
}

int ng_object_write(void *writer, const void *data, size_t n, struct ng_err *err)
{
	struct ng_object_writer *w = writer;

	if (w->hex[0])
		return ng_fail(err, NG_SOFTWARE, "bytes after the end of an object");
	if (w->board->ops->writer_write(w, data, n, err) < 0)
		return -1;
	ng_hasher_update(w->hash, data, n);
	w->bytes += n;
	return 0;
}

int ng_object_add_file(struct ng_object_writer *w, const char *rel, const void *data, size_t len, struct ng_err *err)
{
	if (!ng_object_rel_valid(rel))
		return ng_fail(err, NG_DATA, "'%s' is no name of a model folder's file", rel);
	return w->board->ops->writer_file(w, rel, data, len, err);
}

const char *ng_object_digest(struct ng_object_writer *w)
{
	if (!w->hex[0])
		ng_hasher_final(w->hash, w->hex);
	return w->hex;
}

uint64_t ng_object_bytes(const struct ng_object_writer *w)
{
	return w->bytes;
}

int ng_object_commit(struct ng_object_writer *w, struct ng_statement *s, struct ng_err *err)
{
	const char *hex = ng_object_digest(w);

	memcpy(s->object, hex, NG_HASH_HEX);
	char *text = ng_statement_text(s);
	int rc = w->board->ops->writer_commit(w, text, strlen(text), err);
	free(text);
	ng_object_abort(w);
	return rc;
}

void ng_object_abort(struct ng_object_writer *w)
{
	if (!w)
		return;
	if (w->impl)
		w->board->ops->writer_close(w);
	ng_hasher_free(w->hash);
	free(w);
}
