/* The directory board by its functions: statements, names, objects, parts, races, decisions. */
#include "common/base/compat.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/board/rounds.h"
#include "t/unit/check.h"

static char folder[] = "/tmp/ng-test-board-XXXXXX";
#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void statements(void)
{
	struct ng_statement s = { .kind = "update",
		.experiment = HEX,
		.manifest = 2,
		.round = 3,
		.site = "site-a",
		.base = HEX,
		.object = HEX,
		.created = 1764551400 },
			    t;
	struct ng_err err;
	char *text = ng_statement_text(&s), again[24];
	long long when;

	CHECK_STR_EQ(text,
		"ng-signature 1\nkind: update\nexperiment: " HEX "\nmanifest: 2\nround: 3\nsite: site-a\nbase: " HEX
		"\nobject: " HEX "\ncreated: 2025-12-01T01:10:00Z\nkey: -\n");
	CHECK_INT_EQ(ng_statement_parse(&t, text, strlen(text), &err), 0);
	CHECK(memcmp(&s, &t, sizeof s) == 0);
	/* every cut, every changed line and everything more is refused */
	int refused = 0;
	for (size_t n = 0; n < strlen(text); n++)
		refused += ng_statement_parse(&t, text, n, &err) < 0 && err.code == NG_DATA;
	CHECK_INT_EQ(refused, (long long)strlen(text));
	static const char *const bad[][2] = { { "round: 3", "round: 03" }, { "round: 3", "round: -3" },
		{ "round: 3", "Round: 3" }, { "site: site-a", "site: ../x" }, { "site: site-a", "site: Site" },
		{ "kind: update", "kind: up date" }, { "2025-12-01", "2025-02-30" }, { "key: -\n", "key: -\nx: 1\n" },
		{ "key: -", "key: a b" }, { "base: 00", "base: 0g" }, { "signature 1", "signature 2" },
		{ "manifest: 2\n", "" }, { "T01:10", "T25:10" } };
	for (size_t i = 0; i < NG_COUNT(bad); i++) {
		char *at = strstr(text, bad[i][0]);
		char *other = ng_xasprintf("%.*s%s%s", (int)(at - text), text, bad[i][1], at + strlen(bad[i][0]));
		CHECK_MSG(ng_statement_parse(&t, other, strlen(other), &err) < 0, bad[i][1]);
		free(other);
	}
	/* times: leap years, the ends of centuries */
	static const struct {
		long long t;
		const char *text;
	} times[] = { { 0, "1970-01-01T00:00:00Z" }, { 951782400, "2000-02-29T00:00:00Z" },
		{ 4107542400, "2100-03-01T00:00:00Z" }, { 1709251199, "2024-02-29T23:59:59Z" } };
	for (size_t i = 0; i < NG_COUNT(times); i++) {
		ng_time_text(again, times[i].t);
		CHECK_STR_EQ(again, times[i].text);
		CHECK(ng_time_parse(&when, times[i].text) && when == times[i].t);
	}
	CHECK(!ng_time_parse(&when, "2023-02-29T00:00:00Z"));
	free(text);
}

static void names(void)
{
	char path[128];
	struct ng_name n = ng_object_name(NG_OBJ_UPDATE, 3, "site-a");

	ng_object_path(path, &n);
	CHECK_STR_EQ(path, "update/00003/site-a");
	n = ng_object_name(NG_OBJ_GLOBAL, 1234567, NULL);
	ng_object_path(path, &n);
	CHECK_STR_EQ(path, "global/1234567");
	CHECK(ng_object_rel_valid("1_Pooling/config.json"));
	CHECK(!ng_object_rel_valid("../x"));
	CHECK(!ng_object_rel_valid("/x"));
	CHECK(!ng_object_rel_valid("a//b"));
	CHECK(!ng_object_rel_valid("a/./b"));
	CHECK(!ng_object_rel_valid("a/.git"));
	CHECK(!ng_object_rel_valid("a/"));
	CHECK(!ng_object_rel_valid("a\nb"));
	CHECK(!ng_object_rel_valid("a/b/c/d/e"));
	CHECK(!ng_object_rel_valid(""));
}

static int put(struct ng_board *b, const struct ng_name *name, const void *data, size_t n, struct ng_err *err)
{
	struct ng_object_writer *w;
	struct ng_statement s = { .experiment = HEX, .round = name->n, .created = 1764551400 };

	snprintf(s.kind, sizeof s.kind, "%s", ng_object_kind_name(name->kind));
	if (ng_object_new(&w, b, name, err) < 0)
		return -1;
	if (ng_object_write(w, data, n, err) < 0) {
		ng_object_abort(w);
		return -1;
	}
	return ng_object_commit(w, &s, err);
}

static void objects(struct ng_board *b)
{
	struct ng_name a = ng_object_name(NG_OBJ_UPDATE, 1, "site-b"), c = ng_object_name(NG_OBJ_UPDATE, 1, "site-a"),
		       d = ng_object_name(NG_OBJ_UPDATE, 0, "site-z"), m = ng_object_name(NG_OBJ_MANIFEST, 0, NULL);
	struct ng_entry *list;
	struct ng_object *o;
	struct ng_object_writer *w;
	struct ng_statement s = { .kind = "manifest", .experiment = HEX };
	struct ng_err err;
	size_t n, len, odd;
	char *data;

	CHECK_INT_EQ(ng_board_list(b, NG_OBJ_UPDATE, -1, &list, &n, &odd, &err), 0);
	CHECK_INT_EQ(n, 0);
	free(list);
	CHECK_INT_EQ(put(b, &a, "hello", 5, &err), 0);
	CHECK_INT_EQ(put(b, &c, "", 0, &err), 0); /* an empty payload is one */
	CHECK_INT_EQ(put(b, &d, "x", 1, &err), 0);
	CHECK_INT_EQ(put(b, &a, "other", 5, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	CHECK_INT_EQ(ng_board_list(b, NG_OBJ_UPDATE, -1, &list, &n, &odd, &err), 0);
	CHECK(n == 3 && strcmp(list[0].name.leaf, "site-z") == 0 && strcmp(list[1].name.leaf, "site-a") == 0);
	CHECK(list[2].bytes == 5 && list[2].parts == 1 && list[2].mtime > 0 && odd == 0);
	free(list);
	CHECK_INT_EQ(ng_board_list(b, NG_OBJ_UPDATE, 0, &list, &n, &odd, &err), 0);
	CHECK_INT_EQ(n, 1);
	free(list);
	CHECK_INT_EQ(ng_object_open(&o, b, &a, &err), 0);
	CHECK_INT_EQ(ng_object_load(&data, &len, o, 100, &err), 0);
	CHECK(len == 5 && memcmp(data, "hello", 6) == 0);
	free(data);
	CHECK_INT_EQ(ng_object_load(&data, &len, o, 4, &err), -1);
	/* discarded only while it is the one that was looked at */
	CHECK_INT_EQ(ng_board_remove(b, &a, &err), 0);
	CHECK_INT_EQ(put(b, &a, "newer", 5, &err), 0);
	CHECK_INT_EQ(ng_object_discard(o, &err), -1);
	CHECK_INT_EQ(err.code, NG_TEMPFAIL);
	ng_object_close(o);
	CHECK_INT_EQ(ng_object_open(&o, b, &a, &err), 0);
	CHECK_INT_EQ(ng_object_discard(o, &err), 0);
	ng_object_close(o);
	CHECK_INT_EQ(ng_object_open(&o, b, &a, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	CHECK_INT_EQ(ng_board_remove(b, &a, &err), 0); /* not there: fine */
	CHECK_INT_EQ(ng_board_remove(b, &d, &err), 0);
	/* files beside a manifest */
	CHECK_INT_EQ(ng_object_new(&w, b, &m, &err), 0);
	CHECK_INT_EQ(ng_object_add_file(w, "a/b.json", "{}", 2, &err), 0);
	CHECK_INT_EQ(ng_object_add_file(w, "../b.json", "{}", 2, &err), -1);
	CHECK_INT_EQ(ng_object_write(w, "m", 1, &err), 0);
	CHECK_INT_EQ(ng_object_commit(w, &s, &err), 0);
	CHECK_INT_EQ(ng_object_open(&o, b, &m, &err), 0);
	CHECK_INT_EQ(ng_object_file(&data, &len, o, "a/b.json", 10, &err), 0);
	CHECK(len == 2);
	free(data);
	CHECK_INT_EQ(ng_object_file(&data, &len, o, "a/b.json", 1, &err), -1);
	CHECK_INT_EQ(ng_object_file(&data, &len, o, "a/c.json", 1, &err), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	ng_object_close(o);
}

static void parts(struct ng_board *b)
{
	struct ng_name name = ng_object_name(NG_OBJ_GLOBAL, 7, NULL);
	size_t size = NG_PART_BYTES + 4321, n;
	unsigned char *big = ng_xmalloc(size), *back = ng_xmalloc(size);
	struct ng_object *o;
	struct ng_verified v;
	struct ng_err err;
	char path[256];

	for (size_t i = 0; i < size; i++)
		big[i] = (unsigned char)(i * 2654435761u >> 24);
	CHECK_INT_EQ(put(b, &name, big, size, &err), 0);
	CHECK_INT_EQ(ng_object_open(&o, b, &name, &err), 0);
	CHECK_INT_EQ(ng_object_entry(o)->parts, 2);
	CHECK_INT_EQ(ng_object_entry(o)->bytes, size);
	CHECK(ng_object_plain_path(o) == NULL);
	CHECK_INT_EQ(ng_object_verify(o, &err), 0);
	CHECK_INT_EQ(ng_object_read(o, back, size, &err), size);
	CHECK(memcmp(big, back, size) == 0);
	/* changed after it was verified: the last bytes are held back */
	CHECK_INT_EQ(ng_verified_start(&v, o, &err), 0);
	snprintf(path, sizeof path, "%s/board/x/global/00007/part-00001", folder);
	chmod(path, 0600);
	FILE *f = fopen(path, "r+");
	CHECK(f && fputc('!', f) != EOF && fclose(f) == 0);
	ptrdiff_t got = 0, k;
	while ((k = ng_verified_read(&v, back, 1u << 20, &err)) > 0)
		got += k;
	CHECK(k < 0 && err.code == NG_DATA && (size_t)got < size);
	CHECK_INT_EQ(ng_object_verify(o, &err), -1);
	ng_object_close(o);
	/* the first part missing: no object; the last one: another digest */
	snprintf(path, sizeof path, "%s/board/x/global/00007/part-00000", folder);
	CHECK_INT_EQ(unlink(path), 0);
	CHECK_INT_EQ(ng_object_open(&o, b, &name, &err), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	struct ng_entry *list;
	size_t odd;
	CHECK_INT_EQ(ng_board_list(b, NG_OBJ_GLOBAL, -1, &list, &n, &odd, &err), 0);
	CHECK(n == 0 && odd == 1);
	free(list);
	free(big);
	free(back);
}

static void claims(struct ng_board *b)
{
	struct ng_name name = ng_object_name(NG_OBJ_CLAIM, 1, "site-a");
	struct ng_object *o;
	struct ng_err err;
	char *data;
	size_t len;

	CHECK_INT_EQ(put(b, &name, "one", 3, &err), 0);
	CHECK_INT_EQ(put(b, &name, "two", 3, &err), 0); /* the only kind that replaces */
	CHECK_INT_EQ(ng_object_open(&o, b, &name, &err), 0);
	CHECK_INT_EQ(ng_object_load(&data, &len, o, 10, &err), 0);
	CHECK(len == 3 && memcmp(data, "two", 3) == 0);
	free(data);
	ng_object_close(o);
}

static void tidying(struct ng_board *b)
{
	struct ng_name name = ng_object_name(NG_OBJ_GLOBAL, 8, NULL);
	struct ng_object_writer *w;
	struct ng_err err;
	long removed;

	CHECK_INT_EQ(ng_object_new(&w, b, &name, &err), 0);
	CHECK_INT_EQ(ng_object_write(w, "x", 1, &err), 0);
	ng_board_tidy(b, NG_STALE_SECONDS, &removed);
	CHECK_INT_EQ(removed, 0);	 /* a young temporary is somebody's work */
	ng_board_tidy(b, -10, &removed); /* as if ten seconds in the future were old */
	CHECK_INT_EQ(removed, 1);
	ng_object_abort(w);
}

static void vanished(struct ng_board *b)
{
	struct ng_name name = ng_object_name(NG_OBJ_GLOBAL, 9, NULL);
	struct ng_object_writer *w;
	struct ng_entry *list;
	struct ng_object *o;
	struct ng_err err;
	size_t n;
	char *path = ng_xasprintf("%s/board", folder);
	struct ng_statement s = { .kind = "global", .experiment = HEX };

	CHECK_INT_EQ(ng_object_new(&w, b, &name, &err), 0);
	CHECK_INT_EQ(ng_object_write(w, "x", 1, &err), 0);
	ng_remove_tree(path);
	CHECK_INT_EQ(ng_object_commit(w, &s, &err), -1);
	CHECK(err.code == NG_IOERR && strstr(err.text, "has vanished"));
	CHECK_INT_EQ(ng_board_list(b, NG_OBJ_GLOBAL, -1, &list, &n, NULL, &err), -1);
	CHECK(err.code == NG_IOERR && strstr(err.text, "has vanished"));
	CHECK_INT_EQ(ng_object_open(&o, b, &name, &err), -1);
	CHECK(err.code == NG_IOERR && strstr(err.text, "has vanished"));
	CHECK_INT_EQ(put(b, &name, "x", 1, &err), -1);
	free(path);
}

/* DESIGN.md section 2, "When is there work?", row by row. */
static void decisions(void)
{
	static const struct {
		long rounds, quorum, expect;
		long long deadline;
		long round;
		size_t valid;
		long long age;
		enum ng_round_state want;
	} row[] = {
		{ 3, 2, 0, 0, 0, 1, 1000000, NG_ROUND_WAITING },
		{ 3, 2, 0, 0, 0, 2, 0, NG_ROUND_READY },
		{ 3, 2, 3, 0, 0, 2, 1000000, NG_ROUND_WAITING },
		{ 3, 2, 3, 100, 0, 2, 99, NG_ROUND_WAITING },
		{ 3, 2, 3, 100, 0, 2, 100, NG_ROUND_READY },
		{ 3, 2, 3, 100, 0, 1, 100, NG_ROUND_STALLED },
		{ 3, 2, 3, 100, 0, 3, 0, NG_ROUND_READY },
		{ 3, 2, 0, 0, 3, 9, 0, NG_ROUND_COMPLETE },
		{ 0, 2, 0, 0, 99999, 2, 0, NG_ROUND_READY },
		{ 0, 2, 0, 0, 99999, 0, 0, NG_ROUND_WAITING },
	};

	for (size_t i = 0; i < NG_COUNT(row); i++) {
		struct ng_experiment exp;
		struct ng_err err;
		char *text = ng_xasprintf(
			"{\"experiment\": \"x\", \"rounds\": %ld, \"quorum\": %ld, %s%ld%s\"deadline\": "
			"\"%llds\", \"train\": {\"schedule\": \"constant\"}}",
			row[i].rounds, row[i].quorum,
			row[i].expect ? "\"expect\": " : "\"keep\": {\"last\": ", row[i].expect ? row[i].expect : 1,
			row[i].expect ? ", " : "}, ", row[i].deadline ? row[i].deadline : 1);
		if (ng_experiment_parse(&exp, text, strlen(text), "test", NULL, 0, &err) < 0) {
			CHECK_MSG(false, err.text);
			free(text);
			continue;
		}
		exp.deadline = row[i].deadline;
		CHECK_STR_EQ(ng_round_state_name(
				     ng_rounds_decide(&exp, row[i].round, 5000, row[i].valid, 5000 + row[i].age)),
			ng_round_state_name(row[i].want));
		ng_experiment_release(&exp);
		free(text);
	}
}

int main(int argc, char **argv)
{
	struct ng_board *b;
	struct ng_err err;
	char *path;

	(void)argc;
	ng_start(argv[0]);
	if (!mkdtemp(folder))
		return 1;
	path = ng_xasprintf("%s/board", folder);
	statements();
	names();
	decisions();
	CHECK_INT_EQ(ng_board_open(&b, path, "x", 0, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	CHECK_INT_EQ(ng_board_open(&b, path, "../x", NG_BOARD_CREATE, &err), -1);
	CHECK_INT_EQ(err.code, NG_USAGE);
	CHECK_INT_EQ(ng_board_open(&b, path, "x", NG_BOARD_CREATE, &err), 0);
	objects(b);
	parts(b);
	claims(b);
	tidying(b);
	vanished(b);
	ng_board_close(b);
	ng_remove_tree(folder);
	free(path);
	return check_done();
}
