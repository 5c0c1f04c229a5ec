/*
 * test_tokenizer.c - ids against the Rust tokenizers package (fixtures of
 * t/golden/tokenizer.py, and the shared data where it is), long texts,
 * truncation, threads, and folders and files that must be refused.
 */
#include "common/base/compat.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/tokenizer.h"
#include "t/unit/check.h"

#define FIXTURES "t/golden/tokenizer/"
#define MINILM "../shared/data/models/all-MiniLM-L6-v2-noweights"

static struct ng_err err;
static char *vocab_text;
static size_t vocab_len;
static json_t *vocab, *heads, *configs, *cases;
static char dir[] = "/tmp/ng-test-tokenizer-XXXXXX";

static void write_file(const char *name, const char *text, size_t len)
{
	char *path = ng_xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (f == NULL || fwrite(text, 1, len, f) != len || fclose(f) != 0)
		CHECK_MSG(false, "write a file of the test's folder");
	free(path);
}

static void write_text(const char *name, const char *text)
{
	write_file(name, text, strlen(text));
}

static void remove_file(const char *name)
{
	char *path = ng_xasprintf("%s/%s", dir, name);
	unlink(path);
	free(path);
}

/* One JSON text a line; NUL in strings allowed, which ng_json_parse does not. */
static json_t *load_lines(const char *path)
{
	char *text;
	size_t len;
	json_t *list = json_array();
	if (ng_file_read(&text, &len, path, 64u << 20, &err) < 0)
		return list;
	for (char *line = text; line < text + len;) {
		char *end = memchr(line, '\n', (size_t)(text + len - line));
		size_t n = end != NULL ? (size_t)(end - line) : (size_t)(text + len - line);
		json_t *row = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
		if (row != NULL)
			json_array_append_new(list, row);
		else
			CHECK_MSG(false, path);
		line += n + 1;
	}
	free(text);
	return list;
}

static bool load_fixtures(void)
{
	json_t *root = ng_json_load(FIXTURES "heads.json", 64u << 20, &err);
	heads = json_incref(json_object_get(root, "heads"));
	configs = json_incref(json_object_get(root, "configs"));
	json_decref(root);
	cases = load_lines(FIXTURES "cases.jsonl");
	vocab = json_object();
	if (ng_file_read(&vocab_text, &vocab_len, FIXTURES "vocab.txt", 1u << 20, &err) < 0)
		return false;
	long id = 0;
	for (char *line = vocab_text; line < vocab_text + vocab_len; id++) {
		char *end = strchr(line, '\n');
		json_object_setn_new(vocab, line, (size_t)(end - line), json_integer(id));
		line = end + 1;
	}
	return json_object_size(heads) > 5 && json_array_size(cases) > 1000 && json_object_size(vocab) > 1000;
}

/* The fixture of that name as the text of a tokenizer.json. */
static char *fixture(const char *name)
{
	json_t *full = json_deep_copy(json_object_get(heads, name));
	json_object_set(json_object_get(full, "model"), "vocab", vocab);
	char *text = json_dumps(full, JSON_COMPACT);
	json_decref(full);
	return text;
}

static struct ng_tokenizer *load_fixture(const char *name, unsigned flags)
{
	struct ng_tokenizer *tok = NULL;
	int rc;
	if (strncmp(name, "vocab-", 6) == 0) {
		const json_t *config = json_object_get(configs, name);
		remove_file("tokenizer_config.json");
		if (json_is_object(config)) {
			char *text = json_dumps(config, 0);
			write_text("tokenizer_config.json", text);
			free(text);
		}
		write_file("vocab.txt", vocab_text, vocab_len);
		rc = ng_tokenizer_load(&tok, dir, flags, &err);
		remove_file("vocab.txt");
		remove_file("tokenizer_config.json");
	} else {
		char *text = fixture(name);
		rc = ng_tokenizer_parse(&tok, text, strlen(text), name, flags, &err);
		free(text);
	}
	if (rc < 0)
		printf("# %s: %s\n", name, err.text);
	return tok;
}

static bool same(const struct ng_tokens *got, const json_t *want)
{
	if (got->n != json_array_size(want))
		return false;
	for (size_t i = 0; i < got->n; i++)
		if (got->id[i] != json_integer_value(json_array_get(want, i)))
			return false;
	return true;
}

static void show(const struct ng_tokens *got, const json_t *row)
{
	char *text = json_dumps(row, JSON_ENSURE_ASCII);
	printf("# %.1500s\n# got", text);
	for (size_t i = 0; i < got->n && i < 100; i++)
		printf(" %ld", (long)got->id[i]);
	printf("\n");
	free(text);
}

/* Also with the text cut into prompt and rest at a character, and with the total asked for. */
static bool run_case(struct ng_tokens *out, const struct ng_tokenizer *tok, const json_t *row)
{
	const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, "ids");
	const char *s = json_string_value(text);
	size_t len = json_string_length(text), half = len / 2, total = 0;
	size_t max = (size_t)json_integer_value(json_object_get(row, "max_length"));
	bool truncated = false, again = false;

	out->n = 0;
	if (ng_tokenizer_encode(out, tok, NULL, s, len, max, &truncated, NULL, &err) < 0 || !same(out, want)) {
		show(out, row);
		return false;
	}
	while (half > 0 && (s[half] & 0xc0) == 0x80)
		half--;
	char *prefix = ng_xstrndup(s, half);
	size_t cut = strlen(prefix); /* NUL ends a prompt */
	out->n = 0;
	int rc = ng_tokenizer_encode(out, tok, prefix, s + cut, len - cut, max, &again, &total, &err);
	free(prefix);
	return rc == 0 && same(out, want) && again == truncated && (total > out->n) == truncated &&
	       (truncated || total == out->n);
}

static void test_golden(void)
{
	struct ng_tokens out = { 0 };
	const char *name;
	json_t *value, *all = json_deep_copy(heads);
	json_object_update(all, configs);
	for (unsigned flags = 0; flags <= NG_TOKENIZER_ESCAPE_SPECIAL; flags += NG_TOKENIZER_ESCAPE_SPECIAL) {
		json_object_foreach(all, name, value)
		{
			size_t n = 0, bad = 0;
			struct ng_tokenizer *tok = load_fixture(name, flags);
			for (size_t i = 0; tok != NULL && i < json_array_size(cases); i++) {
				const json_t *row = json_array_get(cases, i);
				bool escape = json_is_true(json_object_get(row, "escape"));
				if (strcmp(json_string_value(json_object_get(row, "tok")), name) != 0 ||
					escape != (flags != 0))
					continue;
				n++;
				bad += !run_case(&out, tok, row);
			}
			if (n > 0 || flags == 0) {
				printf("# %s%s: %zu texts\n", name, flags ? ", escaped" : "", n);
				CHECK(tok != NULL && n > 0 && bad == 0);
			}
			ng_tokenizer_free(tok);
		}
	}
	json_decref(all);
	ng_tokens_release(&out);
}

static void test_shared(void)
{
	struct ng_tokens out = { 0 };
	struct ng_tokenizer *tok;
	json_t *rows;
	size_t bad = 0;

	if (!HAVE("../shared/data/tokenizer/expected_ids.jsonl") || !HAVE(MINILM "/tokenizer.json")) {
		SKIP("../shared/data/tokenizer is not there");
		return;
	}
	rows = load_lines("../shared/data/tokenizer/expected_ids.jsonl");
	CHECK_INT_EQ(json_array_size(rows), 2830);
	CHECK(ng_tokenizer_load(&tok, MINILM, 0, &err) == 0);
	for (size_t i = 0; i < json_array_size(rows); i++)
		bad += !run_case(&out, tok, json_array_get(rows, i));
	CHECK_INT_EQ(bad, 0);
	const struct ng_tokenizer_info *info = ng_tokenizer_info(tok);
	CHECK(info->vocab == 30522 && info->specials == 2 && info->lowercase);
	CHECK(info->pad == 0 && info->unk == 100 && info->cls == 101 && info->sep == 102 && info->mask == 103);
	size_t max;
	CHECK(ng_text_max_length(&max, MINILM, 512, &err) == 0 && max == 256);
	ng_tokenizer_free(tok);

	/* vocab.txt alone gives the same */
	char *text;
	size_t len;
	CHECK(ng_file_read(&text, &len, MINILM "/vocab.txt", 1u << 20, &err) == 0);
	write_file("vocab.txt", text, len);
	free(text);
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) == 0);
	bad = 0;
	for (size_t i = 0; i < json_array_size(rows); i += 10)
		bad += !run_case(&out, tok, json_array_get(rows, i));
	CHECK_INT_EQ(bad, 0);
	remove_file("vocab.txt");
	ng_tokenizer_free(tok);
	ng_tokens_release(&out);
	json_decref(rows);
}

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static char *repeat(const char *piece, size_t bytes, size_t *len)
{
	size_t n = strlen(piece), count = bytes / n;
	char *text = ng_xarray(count + 1, n);
	for (size_t i = 0; i < count; i++)
		memcpy(text + i * n, piece, n);
	*len = count * n;
	return text;
}

/* The ids of `piece` count times are the ids of one, count times; truncated they are the first of those. */
static void long_text(const struct ng_tokenizer *tok, const char *piece, bool repeats)
{
	struct ng_tokens one = { 0 }, all = { 0 }, cut = { 0 };
	size_t len, total = 0, count;
	bool truncated = false, good = true;
	char *text = repeat(piece, 1700000, &len);
	count = len / strlen(piece);

	CHECK(ng_tokenizer_encode(&one, tok, NULL, piece, strlen(piece), 0, NULL, NULL, &err) == 0);
	double t = now();
	CHECK(ng_tokenizer_encode(&all, tok, NULL, text, len, 0, &truncated, &total, &err) == 0 && !truncated);
	t = now() - t;
	printf("# %zu bytes in %.3f s, %zu ids\n", len, t, all.n);
	CHECK(t < 20);
	CHECK(total == all.n);
	if (repeats) {
		CHECK_INT_EQ(all.n - 2, count * (one.n - 2));
		for (size_t i = 1; i + 1 < all.n; i++)
			good = good && all.id[i] == one.id[1 + (i - 1) % (one.n - 2)];
		CHECK(good);
	}
	CHECK(ng_tokenizer_encode(&cut, tok, NULL, text, len, 256, &truncated, NULL, &err) == 0);
	CHECK_INT_EQ(truncated, all.n > 256);
	good = cut.n == (all.n > 256 ? 256 : all.n) && cut.id[cut.n - 1] == all.id[all.n - 1];
	for (size_t i = 0; i + 1 < cut.n; i++)
		good = good && cut.id[i] == all.id[i];
	CHECK(good);
	ng_tokens_release(&one);
	ng_tokens_release(&all);
	ng_tokens_release(&cut);
	free(text);
}

static void test_long(void)
{
	struct ng_tokenizer *tok = load_fixture("bert", 0);
	long_text(tok, "hello the tokenization of tokens, ", true);
	long_text(tok, "\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82", true);
	long_text(tok, "abcdeabc", false);			    /* one word of more than 100 characters */
	long_text(tok, "e\xcc\xa7\xcc\x81\xcd\x9c\xcd\x85", false); /* marks without end */
	long_text(tok, "[SEP]", true);
	long_text(tok, "[SEP [CLS ", true);
	ng_tokenizer_free(tok);
	/* marks that are kept are sorted: a run as long as the text */
	tok = load_fixture("only-nfd", 0);
	long_text(tok, "\xcc\x81\xcc\xa7\xcd\x9c", false);
	ng_tokenizer_free(tok);
	tok = load_fixture("added", 0);
	long_text(tok, "<a> New York zug ", true);
	ng_tokenizer_free(tok);
}

static void test_api(void)
{
	struct ng_tokenizer *tok = load_fixture("mpnet", 0);
	struct ng_tokens out = { 0 };
	const struct ng_tokenizer_info *info = ng_tokenizer_info(tok);
	size_t len = 0;
	const char *s;

	CHECK_INT_EQ(info->cls, ng_tokenizer_id(tok, "<s>", 3));
	CHECK_INT_EQ(info->sep, ng_tokenizer_id(tok, "</s>", 4));
	CHECK_INT_EQ(info->pad, ng_tokenizer_id(tok, "<pad>", 5));
	CHECK_INT_EQ(info->mask, ng_tokenizer_id(tok, "<mask>", 6));
	CHECK_INT_EQ(info->unk, ng_tokenizer_id(tok, "[UNK]", 5));
	CHECK_INT_EQ(info->specials, 2);
	CHECK_INT_EQ(info->vocab, json_object_size(vocab));
	CHECK_INT_EQ(ng_tokenizer_id(tok, "no such token", 13), -1);
	s = ng_tokenizer_token(tok, info->mask, &len);
	CHECK(s != NULL && len == 6 && memcmp(s, "<mask>", 6) == 0);
	CHECK(ng_tokenizer_token(tok, -1, &len) == NULL);
	CHECK(ng_tokenizer_token(tok, (int32_t)info->vocab, &len) == NULL);

	/* appended to what is there */
	CHECK(ng_tokenizer_encode(&out, tok, "", "", 0, 0, NULL, NULL, &err) == 0 && out.n == 2);
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "hello", 5, 0, NULL, NULL, &err) == 0 && out.n == 5);
	/* what cannot be encoded leaves no trace */
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "ab\xff\x63", 4, 0, NULL, NULL, &err) < 0);
	CHECK(err.code == NG_DATA && strstr(err.text, "byte 2") != NULL && out.n == 5);
	CHECK(ng_tokenizer_encode(&out, tok, "\xc3", "\xa9", 1, 0, NULL, NULL, &err) == 0);
	out.n = 5;
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "\xed\xa0\x80", 3, 0, NULL, NULL, &err) < 0 && err.code == NG_DATA);
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "hello", 5, 1, NULL, NULL, &err) < 0 && err.code == NG_USAGE);
	bool truncated = false;
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "hello", 5, 2, &truncated, NULL, &err) == 0);
	CHECK(truncated && out.n == 7);
	ng_tokenizer_free(tok);

	/* the word cache does not outlive its tokenizer */
	tok = load_fixture("bert", 0);
	out.n = 0;
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "HELLO", 5, 0, NULL, NULL, &err) == 0);
	int32_t hello = out.id[1];
	ng_tokenizer_free(tok);
	char text[] = "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"hello\":1}},"
		      "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}";
	CHECK(ng_tokenizer_parse(&tok, text, strlen(text), "small", 0, &err) == 0);
	out.n = 0;
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "hello HELLO", 11, 0, NULL, NULL, &err) == 0);
	CHECK(out.n == 2 && out.id[0] == 1 && out.id[1] == 0 && hello != 1);
	CHECK(ng_tokenizer_info(tok)->specials == 0 && ng_tokenizer_info(tok)->cls == -1);
	ng_tokenizer_free(tok);
	ng_tokens_release(&out);
}

/* vocab.txt with other line ends, tokens that stand twice, and odd white space */
static void test_vocab(void)
{
	struct ng_tokenizer *tok;
	static const char text[] = "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\nb\r\na\r\n\xe2\x80\xa8\r\n\r\n##b";
	write_file("vocab.txt", text, sizeof text - 1);
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) == 0);
	CHECK_INT_EQ(ng_tokenizer_id(tok, "a", 1), 6);
	CHECK_INT_EQ(ng_tokenizer_id(tok, "\xe2\x80\xa8", 3), 7);
	CHECK_INT_EQ(ng_tokenizer_id(tok, "##b", 3), 9);
	CHECK_INT_EQ(ng_tokenizer_info(tok)->vocab, 10);
	CHECK_INT_EQ(ng_tokenizer_info(tok)->mask, -1);
	ng_tokenizer_free(tok);

	/* do_lower_case of the sentence-transformers module: before all else, so the dot is an accent */
	struct ng_tokens out = { 0 };
	static const char dotted[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\ni\ni\xcc\x87\nI\n";
	write_file("vocab.txt", dotted, sizeof dotted - 1);
	write_text("tokenizer_config.json", "{\"do_lower_case\": false, \"strip_accents\": false}");
	write_text("sentence_bert_config.json", "{\"do_lower_case\": true, \"max_seq_length\": 9}");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) == 0);
	CHECK(ng_tokenizer_encode(&out, tok, NULL, "I \xc4\xb0", 4, 0, NULL, NULL, &err) == 0);
	CHECK(out.n == 4 && out.id[1] == 4 && out.id[2] == 5);
	CHECK(ng_tokenizer_info(tok)->lowercase);
	ng_tokenizer_free(tok);
	ng_tokens_release(&out);
	size_t max = 0;
	CHECK(ng_text_max_length(&max, dir, 512, &err) == 0 && max == 9);
	CHECK(ng_text_max_length(&max, dir, 8, &err) < 0 && err.code == NG_DATA);
	remove_file("sentence_bert_config.json");
	CHECK(ng_text_max_length(&max, dir, 512, &err) == 0 && max == 512);
	write_text("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}");
	CHECK(ng_text_max_length(&max, dir, 512, &err) == 0 && max == 512);
	write_text("tokenizer_config.json", "{\"model_max_length\": 384, \"max_length\": 128}");
	CHECK(ng_text_max_length(&max, dir, 512, &err) == 0 && max == 384);
	write_text("tokenizer_config.json", "{\"model_max_length\": 0}");
	CHECK(ng_text_max_length(&max, dir, 512, &err) < 0 && err.code == NG_DATA);
	remove_file("tokenizer_config.json");
	remove_file("vocab.txt");
}

struct job {
	const struct ng_tokenizer *tok;
	size_t bad;
};

static void *encode_all(void *arg)
{
	struct job *job = arg;
	struct ng_tokens out = { 0 };
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *row = json_array_get(cases, i), *text = json_object_get(row, "text");
		if (strcmp(json_string_value(json_object_get(row, "tok")), "bert") != 0 ||
			json_object_get(row, "max_length"))
			continue;
		struct ng_err mine;
		out.n = 0;
		job->bad += ng_tokenizer_encode(&out, job->tok, NULL, json_string_value(text), json_string_length(text),
				    0, NULL, NULL, &mine) < 0 ||
			    !same(&out, json_object_get(row, "ids"));
	}
	ng_tokens_release(&out);
	return NULL;
}

static void test_threads(void)
{
	struct ng_tokenizer *tok = load_fixture("bert", 0);
	struct job job[4];
	pthread_t thread[4];
	for (int i = 0; i < 4; i++) {
		job[i] = (struct job){ tok, 0 };
		CHECK(pthread_create(&thread[i], NULL, encode_all, &job[i]) == 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		CHECK_INT_EQ(job[i].bad, 0);
	}
	ng_tokenizer_free(tok);
}

static void refused(const char *json, enum ng_code code, const char *says)
{
	struct ng_tokenizer *tok = (struct ng_tokenizer *)&tok;
	err = (struct ng_err){ 0 };
	int rc = ng_tokenizer_parse(&tok, json, strlen(json), "t.json", 0, &err);
	if (!CHECK(rc == -1 && tok == NULL && err.code == code && strstr(err.text, says) != NULL))
		printf("# %d: %s\n# of %.200s\n", (int)err.code, err.text, json);
}

#define PRE "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
#define MODEL(vocab) "\"model\":{\"type\":\"WordPiece\",\"vocab\":{" vocab "}}"

static void test_refusals(void)
{
	struct ng_tokenizer *tok;

	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_NOINPUT);
	CHECK(strstr(err.text, "neither tokenizer.json nor vocab.txt") != NULL && tok == NULL);
	CHECK(ng_tokenizer_load(&tok, "/nonexistent", 0, &err) < 0 && err.code == NG_NOINPUT);
	write_text("tokenizer.json", "{\"model\": ");
	write_file("vocab.txt", vocab_text, vocab_len);
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA); /* no silent fall-back */
	remove_file("tokenizer.json");
	write_text("tokenizer_config.json", "{\"tokenizer_class\": \"T5Tokenizer\"}");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_REFUSED && strstr(err.text, "T5Tokenizer"));
	write_text("tokenizer_config.json", "[]");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA);
	write_text("tokenizer_config.json", "{\"cls_token\": \"nowhere\"}");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA);
	write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA);
	remove_file("tokenizer_config.json");
	write_text("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n\xff\n");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA);
	write_text("vocab.txt", "");
	CHECK(ng_tokenizer_load(&tok, dir, 0, &err) < 0 && err.code == NG_DATA);
	remove_file("vocab.txt");

	refused("", NG_DATA, "t.json");
	refused("{}", NG_DATA, "no model");
	refused("[1]", NG_DATA, "t.json");
	refused("{" MODEL("\"[UNK]\":0") "}", NG_REFUSED, "pre_tokenizer");
	refused("{" PRE "\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", NG_REFUSED, "Unigram");
	refused("{" PRE "\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", NG_REFUSED, "BPE");
	refused("{" PRE "\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", NG_REFUSED, "WordLevel");
	refused("{\"normalizer\":{\"type\":\"Precompiled\"}," PRE MODEL("\"[UNK]\":0") "}", NG_REFUSED, "Precompiled");
	refused("{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL("\"[UNK]\":0") "}", NG_REFUSED, "Metaspace");
	refused("{" PRE "\"post_processor\":{\"type\":\"ByteLevel\"}," MODEL("\"[UNK]\":0") "}", NG_REFUSED,
		"ByteLevel");
	refused("{" PRE "\"model\":{\"type\":\"WordPiece\"}}", NG_DATA, "no vocab");
	refused("{" PRE MODEL("") "}", NG_DATA, "unknown token");
	refused("{" PRE MODEL("\"a\":0") "}", NG_DATA, "unknown token");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":0") "}", NG_DATA, "two tokens have id 0");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":1,\"a\":2") "}", NG_DATA, "duplicate");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":-1") "}", NG_DATA, "id -1");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":5000") "}", NG_DATA, "id 5000");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":1e3") "}", NG_DATA, "'a'");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\":4294967296") "}", NG_DATA, "4294967296");
	refused("{" PRE MODEL("\"[UNK]\":0,\"a\\u0000\":1") "}", NG_DATA, "t.json");
	refused("{" PRE MODEL("\"[UNK]\":0,\"\\ud800\":1") "}", NG_DATA, "t.json");
	refused("{\"added_tokens\":[{\"id\":3,\"content\":\"[X]\"}]," PRE MODEL("\"[UNK]\":0") "}", NG_DATA, "[X]");
	refused("{\"added_tokens\":[{\"id\":1,\"content\":\"[UNK]\"}]," PRE MODEL("\"[UNK]\":0") "}", NG_DATA, "[UNK]");
	refused("{\"added_tokens\":{}," PRE MODEL("\"[UNK]\":0") "}", NG_DATA, "added_tokens");
	refused("{\"added_tokens\":[1]," PRE MODEL("\"[UNK]\":0") "}", NG_DATA, "content");
	refused("{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",7],\"sep\":[\"b\",0]}," PRE MODEL(
			"\"[UNK]\":0") "}",
		NG_DATA, "7");
	refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," PRE MODEL("\"[UNK]\":0") "}",
		NG_REFUSED, "once");
	refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}," PRE
			MODEL("\"[UNK]\":0") "}",
		NG_DATA, "'x'");
}

int main(void)
{
	ng_start("test_tokenizer");
	if (mkdtemp(dir) == NULL || !CHECK(load_fixtures()))
		return 1;
	test_golden();
	test_shared();
	test_long();
	test_api();
	test_vocab();
	test_threads();
	test_refusals();
	json_decref(vocab);
	json_decref(heads);
	json_decref(configs);
	json_decref(cases);
	free(vocab_text);
	ng_remove_tree(dir);
	return check_done();
}
