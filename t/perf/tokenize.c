/*
 * tokenize.c - the C side of t/perf/tokenizer_speed.py and t/golden/tokenizer.py.
 *
 *   tokenize ids  MODEL_DIR [MAX_LENGTH [escape]]   texts on stdin, ids on stdout
 *   tokenize time MODEL_DIR SECONDS                 texts on stdin, one line on stdout:
 *                                                   best seconds of a pass, ids
 *
 * A text is its length (u32, native order) and its bytes; its ids are their
 * count and the ids, likewise.
 */
#include "common/base/compat.h"

#include <time.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/text/tokenizer.h"

struct texts {
	char *data;
	size_t n, cap;
};

static struct texts read_all(FILE *f)
{
	struct texts t = { 0 };
	for (;;) {
		ng_grow(&t.data, &t.cap, t.n + 65536, 1);
		size_t got = fread(t.data + t.n, 1, 65536, f);
		if (got == 0)
			return t;
		t.n += got;
	}
}

/* The text at *at; false at the end. */
static bool next(const struct texts *t, size_t *at, const char **s, uint32_t *len)
{
	if (t->n - *at < sizeof *len)
		return false;
	memcpy(len, t->data + *at, sizeof *len);
	*at += sizeof *len;
	if (*len > t->n - *at)
		ng_die(NG_DATA, "the texts are cut");
	*s = t->data + *at;
	*at += *len;
	return true;
}

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void put_ids(const struct texts *texts, const struct ng_tokenizer *tok, size_t max_length)
{
	struct ng_tokens out = { 0 };
	struct ng_err err;
	const char *s;
	uint32_t len;
	for (size_t at = 0; next(texts, &at, &s, &len);) {
		out.n = 0;
		if (ng_tokenizer_encode(&out, tok, NULL, s, len, max_length, NULL, NULL, &err) < 0)
			ng_die_err(&err);
		uint32_t n = (uint32_t)out.n;
		fwrite(&n, sizeof n, 1, stdout);
		fwrite(out.id, sizeof *out.id, out.n, stdout);
	}
	ng_tokens_release(&out);
}

static void put_time(const struct texts *texts, const struct ng_tokenizer *tok, double seconds)
{
	struct ng_tokens out = { 0 };
	struct ng_err err;
	double begin = now(), best = 1e9;
	const char *s;
	uint32_t len;
	do {
		double t = now();
		out.n = 0;
		for (size_t at = 0; next(texts, &at, &s, &len);)
			if (ng_tokenizer_encode(&out, tok, NULL, s, len, 0, NULL, NULL, &err) < 0)
				ng_die_err(&err);
		t = now() - t;
		best = t < best ? t : best;
	} while (now() - begin < seconds);
	printf("%.9g\t%zu\n", best, out.n);
	ng_tokens_release(&out);
}

int main(int argc, char **argv)
{
	struct ng_tokenizer *tok;
	struct ng_err err;
	double seconds = 1;
	long long max_length = 0;

	ng_start(argv[0]);
	bool timed = argc > 2 && strcmp(argv[1], "time") == 0;
	bool escape = argc > 4 && strcmp(argv[4], "escape") == 0;
	if (argc < 3 || argc > 5 || (!timed && strcmp(argv[1], "ids") != 0) ||
		(argc > 3 && !(timed ? ng_parse_double(&seconds, argv[3])
				     : ng_parse_long(&max_length, argv[3], 0, 1 << 30))))
		ng_die(NG_USAGE, "see the head of t/perf/tokenize.c");
	if (ng_tokenizer_load(&tok, argv[2], escape ? NG_TOKENIZER_ESCAPE_SPECIAL : 0, &err) < 0)
		ng_die_err(&err);
	struct texts texts = read_all(stdin);
	if (timed)
		put_time(&texts, tok, seconds);
	else
		put_ids(&texts, tok, (size_t)max_length);
	free(texts.data);
	ng_tokenizer_free(tok);
	return ng_finish(NG_OK);
}
