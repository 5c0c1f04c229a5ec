/* Every shape of data file that the header promises, and every refusal. */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/text/rows.h"
#include "t/unit/check.h"

static char dir[] = "/tmp/ng-rows.XXXXXX";
static struct ng_err err;

static char *file(const char *name, const void *data, size_t len)
{
	char *path = ng_xasprintf("%s/%s", dir, name);

	if (ng_out_put(path, data, len, 0, &err))
		ng_die_err(&err);
	return path;
}

static int open_text(struct ng_rows *rows, const char *name, const char *text, const struct ng_rows_opts *opts)
{
	static const struct ng_rows_opts plain = { .min_rows = 1 };
	char *path = file(name, text, strlen(text));
	const char *paths[1] = { path };
	int r = ng_rows_open(rows, paths, 1, opts ? opts : &plain, &err);

	free(path);
	return r;
}

static bool is(const struct ng_rows *rows, size_t i, size_t n, ...)
{
	struct ng_row row = { 0 };
	va_list args;
	bool same = true;
	size_t k;

	if (ng_rows_get(rows, i, &row, &err)) {
		printf("# %s\n", err.text);
		return false;
	}
	va_start(args, n);
	for (k = 0; k < n; k++) {
		const char *want = va_arg(args, const char *);

		same = same && k < row.n && row.text[k].len == strlen(want) &&
		       memcmp(row.text[k].s, want, row.text[k].len) == 0;
	}
	va_end(args);
	same = same && row.n == n;
	ng_row_release(&row);
	return same;
}

static void jsonl(void)
{
	struct ng_rows r;
	struct ng_row row = { 0 };
	char where[300];

	CHECK(open_text(&r, "a.jsonl",
		      "\xef\xbb\xbf{\"anchor\": \"q1\", \"positive\": \"p1\", \"id\": {\"x\": [1, -2.5e3, null, true, {}]}}\r\n"
		      "\n  \t\r\n"
		      "{\"pos\":[\"p2\",\"p3\"],\"query\":\"q2\",\"neg\":[\"n1\",\"n2\"]}\n"
		      "{\"negative_2\":\"b\",\"negative_10\":\"c\",\"negative_1\":\"a\",\"negative\":\"0\",\"anchor\":\"q\",\"positive\":\"p\"}",
		      NULL) == 0);
	CHECK_INT_EQ(r.n, 4);
	CHECK_INT_EQ(r.columns, 2);
	CHECK_INT_EQ(r.max_columns, 6);
	CHECK_INT_EQ(r.count.blank, 2);
	CHECK_INT_EQ(r.count.lines, 5);
	CHECK_INT_EQ(r.count.more_negatives, 3);
	CHECK(is(&r, 0, 2, "q1", "p1"));
	CHECK(is(&r, 1, 4, "q2", "p2", "n1", "n2"));
	CHECK(is(&r, 2, 4, "q2", "p3", "n1", "n2"));
	CHECK(is(&r, 3, 6, "q", "p", "0", "a", "b", "c"));
	ng_rows_where(&r, 3, where, sizeof where);
	CHECK(strstr(where, "a.jsonl:5") != NULL);
	ng_rows_close(&r);

	CHECK(open_text(&r, "u.jsonl",
		      "{\"anchor\":\"\\u00fc\\ud83d\\ude00\\n\\/\",\"positive\":\"\\ud83d x\\ude00\"}\n"
		      "{\"anchor\":\"a\\u0000b\",\"positive\":\"p\",\"negative\":null}\n",
		      NULL) == 0);
	CHECK(is(&r, 0, 2, "\xc3\xbc\xf0\x9f\x98\x80\n/", "\xef\xbf\xbd x\xef\xbf\xbd"));
	CHECK_INT_EQ(r.count.surrogates, 2);
	CHECK(ng_rows_get(&r, 1, &row, &err) == 0 && row.text[0].len == 3 && memcmp(row.text[0].s, "a\0b", 3) == 0);
	ng_row_release(&row);
	ng_rows_close(&r);
}

static void fields_and_shards(void)
{
	struct ng_rows_opts o = { .fields = "anchor=q,positive=p,negative=n,negative=m", .min_rows = 1 };
	const char *five = "{\"q\":\"0\",\"p\":\"x\"}\n{\"q\":\"1\",\"p\":\"x\"}\n{\"q\":\"\",\"p\":\"x\"}\n"
			   "{\"q\":\"2\",\"p\":\"x\"}\n{\"q\":\"3\",\"p\":\"x\"}\n{\"q\":\"4\",\"p\":\"x\"}\n";
	struct ng_rows r;
	long k, n;

	CHECK(open_text(&r, "f.jsonl",
		      "{\"m\":\"2\",\"q\":\"a\",\"n_2\":\"1\",\"p\":\"b\",\"n\":[\"0\"],\"anchor\":7}\n", &o) == 0);
	CHECK(is(&r, 0, 5, "a", "b", "0", "1", "2"));
	ng_rows_close(&r);
	o.shards = 2;
	o.shard = 2;
	CHECK(open_text(&r, "s.jsonl", five, &o) == 0);
	CHECK_INT_EQ(r.n, 2);
	CHECK_INT_EQ(r.kept, 5);
	CHECK_INT_EQ(r.count.empty, 1);
	CHECK(is(&r, 0, 2, "1", "x") && is(&r, 1, 2, "3", "x"));
	ng_rows_close(&r);
	o.shard = 1;
	o.keep_empty = true;
	CHECK(open_text(&r, "s.jsonl", five, &o) == 0);
	CHECK_INT_EQ(r.n, 3);
	CHECK(is(&r, 1, 2, "", "x"));
	ng_rows_close(&r);
	o.fields = "anker=q";
	CHECK(open_text(&r, "s.jsonl", five, &o) == -1);
	CHECK_INT_EQ(err.code, NG_USAGE);
	CHECK(ng_rows_parse_shard("2/3", &k, &n) && k == 2 && n == 3);
	CHECK(!ng_rows_parse_shard("0/3", &k, &n) && !ng_rows_parse_shard("4/3", &k, &n) &&
		!ng_rows_parse_shard("1", &k, &n) && !ng_rows_parse_shard("1/", &k, &n) &&
		!ng_rows_parse_shard("1/3x", &k, &n));
}

static void tables(void)
{
	struct ng_rows_opts sts = { .kind = NG_ROWS_STS, .min_rows = 1 };
	struct ng_row row = { 0 };
	struct ng_rows r;
	char where[300];

	CHECK(open_text(&r, "a.tsv",
		      "id\tpositive\tanchor\tnegative_1\tnegative_2\r\n1\t\"p\tq 1\tn\t\r\n\r\n2\tp2\tq2\t\tm\n",
		      NULL) == 0);
	CHECK_INT_EQ(r.n, 2);
	CHECK_INT_EQ(r.count.blank, 1);
	CHECK(is(&r, 0, 3, "q 1", "\"p", "n"));
	CHECK(is(&r, 1, 3, "q2", "p2", "m"));
	ng_rows_close(&r);

	CHECK(open_text(&r, "a.csv",
		      "anchor,\"positive\",x\r\n\"a \"\"b\"\",\nc\",d\"e,\r\nq,\"\",1\nq2,p2,\"z\nz\"\nq3,p3,",
		      NULL) == 0);
	CHECK_INT_EQ(r.n, 3);
	CHECK_INT_EQ(r.count.empty, 1);
	CHECK(is(&r, 0, 2, "a \"b\",\nc", "d\"e"));
	CHECK(is(&r, 2, 2, "q3", "p3"));
	ng_rows_where(&r, 2, where, sizeof where);
	CHECK(strstr(where, "a.csv:7") != NULL);
	ng_rows_close(&r);

	CHECK(open_text(&r, "s.tsv", "score\tsentence1\tsentence2\n4.5\ta\tb\n 0 \tc\td\n", &sts) == 0);
	CHECK_INT_EQ(r.columns, 2);
	CHECK(is(&r, 1, 2, "c", "d"));
	CHECK(ng_rows_get(&r, 0, &row, &err) == 0 && row.score == 4.5);
	ng_rows_close(&r);
	CHECK(open_text(&r, "s.jsonl", "{\"sentence1\":\"a\",\"sentence2\":\"b\",\"score\":3.25}\n", &sts) == 0);
	CHECK(ng_rows_get(&r, 0, &row, &err) == 0 && row.score == 3.25);
	ng_row_release(&row);
	ng_rows_close(&r);
	CHECK(open_text(&r, "s.tsv", "score\tsentence1\tsentence2\nnan\ta\tb\n", &sts) == -1);
	CHECK(strstr(err.text, "s.tsv:2: the score is not a number") != NULL);
}

static void refused(const char *name, const char *text, enum ng_code code, const char *message)
{
	struct ng_rows_opts skip = { .skip_bad = true, .min_rows = 1 };
	struct ng_rows r;
	char *more;

	if (!CHECK(open_text(&r, name, text, NULL) == -1)) {
		ng_rows_close(&r);
		return;
	}
	CHECK_INT_EQ(err.code, code);
	if (!CHECK_MSG(strstr(err.text, message) != NULL, message))
		printf("# got: %s\n", err.text);
	if (strchr(message, ':') == NULL || strstr(name, ".jsonl") == NULL)
		return;
	/* with skip_bad the rest is read */
	more = ng_xasprintf("%s\n{\"anchor\":\"good\",\"positive\":\"row\"}\n", text);
	if (CHECK(open_text(&r, name, more, &skip) == 0)) {
		CHECK(r.count.bad >= 1);
		CHECK(is(&r, r.n - 1, 2, "good", "row"));
		ng_rows_close(&r);
	}
	free(more);
}

static void refusals(void)
{
	static const struct ng_rows_opts train = { .min_rows = 2 };
	struct ng_rows r;
	const char *none[1] = { "/nonexistent/x.jsonl" }, *folder[1] = { dir };
	char *path;
	char *deep = ng_xmalloc(2000);

	refused("e.jsonl", "", NG_DATA, "holds 0 rows");
	refused("e.jsonl", "\n\n", NG_DATA, "holds 0 rows");
	refused("e.tsv", "anchor\tpositive\n", NG_DATA, "holds 0 rows");
	refused("b.jsonl", "{\"anchor\":\"a\",\"positive\":\"b\"}\n{\"anchor\":\"a\"}", NG_DATA,
		"b.jsonl:2: no positive");
	refused("b.jsonl", "{\"positive\":\"a\"}", NG_DATA, "b.jsonl:1: no anchor");
	refused("b.jsonl", "{\"anchor\":7,\"positive\":\"b\"}", NG_DATA, "b.jsonl:1:11: 'anchor' is not a string");
	refused("b.jsonl", "{\"anchor\":[\"x\"],\"positive\":\"b\"}", NG_DATA, ": 'anchor' is not a string");
	refused("b.jsonl", "{\"anchor\":\"a\",\"positive\":[\"b\",1]}", NG_DATA, ": 'positive' is not a string");
	refused("b.jsonl", "{\"anchor\":\"a\",\"anchor\":\"a\",\"positive\":\"b\"}", NG_DATA, ": a key stands twice");
	refused("b.jsonl", "{\"anchor\":\"a\xff\",\"positive\":\"b\"}", NG_DATA, "b.jsonl:1:13: invalid UTF-8");
	refused("b.jsonl", "{\"anchor\":\"a\tb\",\"positive\":\"b\"}", NG_DATA, ":1:13: control byte");
	refused("b.jsonl", "{\"anchor\":\"a", NG_DATA, ":1:13: string without an end");
	refused("b.jsonl", "{\"anchor\":\"\\x\",\"positive\":\"b\"}", NG_DATA, ": unknown escape");
	refused("b.jsonl", "{\"anchor\":\"\\u12g4\",\"positive\":\"b\"}", NG_DATA, ": malformed \\u escape");
	refused("b.jsonl", "{\"anchor\":\"a\",\"positive\":\"b\"} x", NG_DATA, ": text after the object");
	refused("b.jsonl", "{\"anchor\":\"a\",\"positive\":\"b\",}", NG_DATA, ": a key is missing");
	refused("b.jsonl", "{\"anchor\":\"a\",\"positive\":\"b\",\"x\":01}", NG_DATA, ": not a JSON value");
	refused("b.jsonl", "{\"anchor\":\"a\" \"positive\":\"b\"}", NG_DATA, ": a comma or a closing brace");
	refused("b.jsonl", "hello", NG_DATA, ":1:1: not a JSON object");
	refused("b.jsonl", "[{\"anchor\":\"a\"}]", NG_DATA, "one JSON array");
	refused("b.jsonl", "<html>", NG_DATA, ":1:1: not a JSON object");
	memset(deep, '[', 200);
	memcpy(deep + 200, "", 1);
	path = ng_xasprintf("{\"x\":%s", deep);
	refused("b.jsonl", path, NG_DATA, ": nested deeper than 64 levels");
	free(path);
	free(deep);
	refused("b.tsv", "foo\tpositive\na\tb\n", NG_DATA, "names no column for anchor");
	refused("b.tsv", "anchor\tpositive\tanchor\na\tb\tc\n", NG_DATA, "column 'anchor' stands twice");
	refused("b.tsv", "anchor\tpositive\na\tb\tc\n", NG_DATA, "b.tsv:2: 3 fields, but the header line names 2");
	refused("b.csv", "anchor,positive\n\"a,b\n", NG_DATA, "b.csv:2:1: quote without an end");
	refused("b.csv", "anchor,positive\n\"a\"b,c\n", NG_DATA, "b.csv:2:4: text after a closing quote");
	refused("u.csv",
		"\xff\xfe"
		"a",
		NG_DATA, "UTF-16");

	CHECK(open_text(&r, "one.jsonl", "{\"anchor\":\"a\",\"positive\":\"b\"}\n", &train) == -1);
	CHECK(strstr(err.text, "holds 1 row, at least 2 are needed") != NULL);
	CHECK(ng_rows_open(&r, none, 1, &train, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	CHECK(ng_rows_open(&r, folder, 1, &train, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	path = file("nul.jsonl", "\0\0\0\0\n", 5);
	none[0] = path;
	CHECK(ng_rows_open(&r, none, 1, &train, &err) == -1);
	CHECK(strstr(err.text, "nul.jsonl:1:1: NUL byte") != NULL);
	free(path);
}

static void replaced(void)
{
	struct ng_rows_opts o = { .replace_utf8 = true, .min_rows = 1 };
	struct ng_rows r;

	CHECK(open_text(&r, "r.jsonl", "{\"anchor\":\"a\xff\xe2\x82z\",\"positive\":\"b\"}\n", &o) == 0);
	CHECK_INT_EQ(r.count.replaced, 3);
	CHECK(is(&r, 0, 2, "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", "b"));
	ng_rows_close(&r);
}

static void long_and_many(void)
{
	struct ng_rows_opts o = { .min_rows = 2, .tmpdir = dir };
	size_t n = 1700000;
	char *text = ng_xmalloc(n + 200), *path, *again;
	struct ng_rows r;
	struct ng_row row = { 0 };
	uint64_t *hash;
	const char *paths[3];
	int head, pipefd[2], saved;

	head = snprintf(text, 100, "{\"anchor\":\"a\",\"positive\":\"");
	memset(text + head, 'x', n);
	memcpy(text + (size_t)head + n, "\"}\n{\"anchor\":\"b\",\"positive\":\"b\"}\n", 34);
	path = file("long.jsonl", text, strlen(text));
	again = file("more.csv", "query,pos\nb,c\n", 14);
	paths[0] = path;
	paths[1] = again;
	paths[2] = "-";
	/* standard input is a pipe: spooled */
	CHECK(pipe(pipefd) == 0);
	CHECK(ng_write_full(pipefd[1], "query\tpos\nlast\tone\n", 19) == 0);
	close(pipefd[1]);
	saved = dup(STDIN_FILENO);
	dup2(pipefd[0], STDIN_FILENO);
	close(pipefd[0]);
	CHECK(ng_rows_open(&r, paths, 3, &o, &err) == 0);
	dup2(saved, STDIN_FILENO);
	close(saved);
	CHECK_INT_EQ(r.n, 4);
	CHECK(ng_rows_get(&r, 0, &row, &err) == 0 && row.text[1].len == n && row.text[1].s[n - 1] == 'x');
	CHECK(is(&r, 2, 2, "b", "c"));
	CHECK(is(&r, 3, 2, "last", "one"));
	CHECK(ng_rows_hashes(&r, &hash, &err) == 0);
	CHECK(hash[2] == hash[3] && hash[2] == hash[4] && hash[0] != hash[1] && hash[5] != hash[2]);
	free(hash);
	/* cut under us */
	CHECK(truncate(path, 100) == 0);
	CHECK(ng_rows_get(&r, 0, &row, &err) == -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(strstr(err.text, "changed while it was in use") != NULL);
	ng_row_release(&row);
	ng_rows_close(&r);
	free(path);
	free(again);
	free(text);
}

static void real(void)
{
	static const char *const path[] = { "../shared/data/leaflets/train-site-a.jsonl",
		"../shared/data/leaflets/train-site-b.jsonl" };
	static const struct ng_rows_opts o = { .min_rows = 2 };
	struct ng_rows r;

	if (!HAVE(path[0]) || !HAVE(path[1])) {
		SKIP("../shared/data/leaflets is not there");
		return;
	}
	CHECK(ng_rows_open(&r, path, 2, &o, &err) == 0);
	CHECK_INT_EQ(r.n, 3044 + 2642);
	CHECK_INT_EQ(r.columns, 2);
	ng_rows_close(&r);
}

int main(void)
{
	if (mkdtemp(dir) == NULL)
		return 1;
	ng_verbosity = -1;
	jsonl();
	fields_and_shards();
	tables();
	refusals();
	replaced();
	long_and_many();
	real();
	ng_remove_tree(dir);
	return check_done();
}
