/* The experiment file: defaults, overrides, every refusal, the schedule. */
#include "common/base/compat.h"

#include "common/base/str.h"
#include "common/fed/experiment.h"
#include "t/unit/check.h"

#define HEAD "\"experiment\": \"leaflets\", \"rounds\": 9"

static int parse(struct ng_experiment *exp, const char *text, const char *const *set, size_t n, struct ng_err *err)
{
	memset(err, 0, sizeof *err);
	return ng_experiment_parse(exp, text, strlen(text), "e.json", set, n, err);
}

static void defaults(void)
{
	static const char text[] = "{ " HEAD " }\n";
	struct ng_experiment exp;
	struct ng_err err;

	CHECK_INT_EQ(parse(&exp, text, NULL, 0, &err), 0);
	CHECK_STR_EQ(exp.text, text); /* verbatim, blanks and all */
	CHECK_STR_EQ(exp.name, "leaflets");
	CHECK_INT_EQ(exp.rounds, 9);
	CHECK_INT_EQ(exp.quorum, 2);
	CHECK_INT_EQ(exp.expect, 0);
	CHECK_INT_EQ(ng_experiment_expect(&exp), 2);
	CHECK_INT_EQ(exp.deadline, 0);
	CHECK_INT_EQ(exp.keep_last, 0);
	CHECK_INT_EQ(exp.train.batch, 2048);
	CHECK_INT_EQ(exp.train.seed, 42);
	CHECK_INT_EQ(exp.train.max_length, 256);
	CHECK(exp.train.lr == 2e-5);
	CHECK(exp.train.dropout == 0.1);
	CHECK_INT_EQ(exp.train.sampler, NG_SAMPLER_NO_DUPLICATES);
	CHECK_INT_EQ(exp.weights, NG_WEIGHTS_EXAMPLES);
	CHECK_STR_EQ(exp.codec, "f32");
	CHECK_STR_EQ(exp.train.prompt_anchor, "");
	CHECK_INT_EQ(ng_experiment_supported(&exp, &err), 0);
	CHECK(ng_experiment_trains(&exp, "encoder.layer.0.output.dense.weight"));
	char *json = ng_experiment_json(&exp);
	ng_experiment_release(&exp);
	/* what is written back is itself an experiment file, and a fixed point */
	CHECK_INT_EQ(parse(&exp, json, NULL, 0, &err), 0);
	char *again = ng_experiment_json(&exp);
	CHECK_STR_EQ(again, json);
	CHECK(strstr(json, "\"lr\":2e-05") != NULL);
	free(again);
	free(json);
	ng_experiment_release(&exp);
}

static void whole(void)
{
	static const char text[] =
		"{" HEAD ", \"quorum\": 2, \"expect\": 3, \"deadline\": \"12h\","
		"\"train\": {\"loss\": \"mnrl\", \"scale\": 20, \"batch\": 2048, \"epochs\": 1, \"lr\": 2e-5,"
		" \"schedule\": \"linear\", \"warmup_ratio\": 0.1, \"max_length\": 256,"
		" \"prompts\": {\"anchor\": \"query: \"}, \"dropout\": 0.1, \"optimizer\": \"adamw\","
		" \"weight_decay\": 0, \"clip\": 1.0, \"moments\": \"reset\", \"seed\": 42,"
		" \"sampler\": \"no_duplicates\", \"trainable\": \"full\", \"precision\": \"fp32\"},"
		"\"aggregate\": {\"strategy\": \"fedavg\", \"weights\": \"steps\", \"staleness\": 0},"
		"\"codec\": \"f32\", \"seal\": \"none\", \"keep\": {\"last\": 5}, \"members\": []}";
	struct ng_experiment exp;
	struct ng_err err;

	CHECK_INT_EQ(parse(&exp, text, NULL, 0, &err), 0);
	CHECK_INT_EQ(exp.expect, 3);
	CHECK_INT_EQ(exp.deadline, 43200);
	CHECK_INT_EQ(exp.keep_last, 5);
	CHECK_INT_EQ(exp.weights, NG_WEIGHTS_STEPS);
	CHECK_STR_EQ(exp.train.prompt_anchor, "query: ");
	CHECK_INT_EQ(ng_experiment_supported(&exp, &err), 0);
	ng_experiment_release(&exp);
}

static void overrides(void)
{
	static const char text[] = "{" HEAD "}";
	static const char *const set[] = { "train.lr=3e-5", "deadline=90m", "train.prompts.anchor=query: ", "rounds=4",
		"train.batch=128", "keep.last=2" };
	struct ng_experiment exp;
	struct ng_err err;

	CHECK_INT_EQ(parse(&exp, text, set, NG_COUNT(set), &err), 0);
	CHECK(exp.train.lr == 3e-5);
	CHECK_INT_EQ(exp.deadline, 5400);
	CHECK_INT_EQ(exp.rounds, 4);
	CHECK_INT_EQ(exp.train.batch, 128);
	CHECK_INT_EQ(exp.keep_last, 2);
	CHECK_STR_EQ(exp.train.prompt_anchor, "query: ");
	CHECK_STR_EQ(exp.text, "{\"deadline\":\"90m\",\"experiment\":\"leaflets\",\"keep\":{\"last\":2},\"rounds\":4,"
			       "\"train\":{\"batch\":128,\"lr\":3e-05,\"prompts\":{\"anchor\":\"query: \"}}}");
	ng_experiment_release(&exp);

	static const char *const bad[] = { "train.lr", "=3", "train.rate=1", "rounds.x=1", "train.lr=fast" };
	for (size_t i = 0; i < NG_COUNT(bad); i++) {
		CHECK_MSG(parse(&exp, text, &bad[i], 1, &err) == -1 && err.code == NG_USAGE, bad[i]);
		ng_experiment_release(&exp);
	}
}

static void refusals(void)
{
	/* each is wrong in one place, and the message says where */
	static const char *const rows[][2] = {
		{ "{\"rounds\": 1}", "experiment" },
		{ "{\"experiment\": \"a\"}", "rounds" },
		{ "{\"experiment\": \"A\", \"rounds\": 1}", "experiment" },
		{ "{\"experiment\": \"a\\u0000b\", \"rounds\": 1}", "e.json" },
		{ "{\"experiment\": 7, \"rounds\": 1}", "experiment" },
		{ "{\"experiment\": \"a\", \"rounds\": -1}", "rounds" },
		{ "{\"experiment\": \"a\", \"rounds\": 1.5}", "rounds" },
		{ "{\"experiment\": \"a\", \"rounds\": \"3\"}", "rounds" },
		{ "{\"experiment\": \"a\", \"rounds\": 0}", "schedule" },
		{ "{" HEAD ", \"round\": 1}", "unknown key 'round'" },
		{ "{" HEAD ", \"train\": {\"learning_rate\": 1}}", "unknown key 'train.learning_rate'" },
		{ "{" HEAD ", \"train\": {\"prompts\": {\"query\": \"q\"}}}", "unknown key 'train.prompts.query'" },
		{ "{" HEAD ", \"aggregate\": {\"weight\": \"equal\"}}", "unknown key 'aggregate.weight'" },
		{ "{" HEAD ", \"keep\": {\"first\": 1}}", "unknown key 'keep.first'" },
		{ "{" HEAD ", \"rounds\": 8}", "e.json" }, /* a key twice */
		{ "{" HEAD ", \"quorum\": 0}", "quorum" },
		{ "{" HEAD ", \"quorum\": 4, \"expect\": 3}", "expect" },
		{ "{" HEAD ", \"deadline\": \"soon\"}", "deadline" },
		{ "{" HEAD ", \"deadline\": -5}", "deadline" },
		{ "{" HEAD ", \"train\": []}", "train" },
		{ "{" HEAD ", \"train\": {\"batch\": 1}}", "train.batch" },
		{ "{" HEAD ", \"train\": {\"batch\": 262145}}", "train.batch" },
		{ "{" HEAD ", \"train\": {\"lr\": 0}}", "train.lr" },
		{ "{" HEAD ", \"train\": {\"lr\": \"2e-5\"}}", "train.lr" },
		{ "{" HEAD ", \"train\": {\"dropout\": 1}}", "train.dropout" },
		{ "{" HEAD ", \"train\": {\"warmup_ratio\": 1.1}}", "train.warmup_ratio" },
		{ "{" HEAD ", \"train\": {\"schedule\": \"step\"}}", "\"cosine\"" },
		{ "{" HEAD ", \"train\": {\"seed\": 4294967296}}", "train.seed" },
		{ "{" HEAD ", \"train\": {\"betas\": [0.9]}}", "train.betas" },
		{ "{" HEAD ", \"train\": {\"trainable\": []}}", "train.trainable" },
		{ "{" HEAD ", \"codec\": \"zip\"}", "codec" },
		{ "{" HEAD ", \"aggregate\": {\"strategy\": \"mean\"}}", "aggregate.strategy" },
		{ "{" HEAD ", \"members\": {}}", "members" },
		{ "[]", "not a JSON object" },
		{ "{" HEAD, "e.json" },
		{ "", "e.json" },
	};
	struct ng_experiment exp;
	struct ng_err err;

	for (size_t i = 0; i < NG_COUNT(rows); i++) {
		bool ok = parse(&exp, rows[i][0], NULL, 0, &err) == -1 && err.code == NG_USAGE &&
			  strstr(err.text, rows[i][1]);
		if (!CHECK_MSG(ok, rows[i][0]))
			printf("# said: %s\n", err.text);
		ng_experiment_release(&exp);
	}
	/* whole numbers may be written as people write them */
	CHECK_INT_EQ(parse(&exp, "{" HEAD ", \"train\": {\"batch\": 2e3}, \"quorum\": null}", NULL, 0, &err), 0);
	CHECK_INT_EQ(exp.train.batch, 2000);
	CHECK_INT_EQ(exp.quorum, 2);
	ng_experiment_release(&exp);
}

static void later(void)
{
	static const char *const rows[] = {
		"\"members\": [{\"name\": \"a\"}]",
		"\"seal\": \"updates\"",
		"\"codec\": \"int8\"",
		"\"train\": {\"loss\": \"gist\"}",
		"\"train\": {\"precision\": \"bf16\"}",
		"\"train\": {\"trainable\": \"lora\"}",
		"\"aggregate\": {\"strategy\": \"fedadam\"}",
		"\"aggregate\": {\"staleness\": 1}",
	};
	struct ng_experiment exp;
	struct ng_err err;
	char text[256];

	for (size_t i = 0; i < NG_COUNT(rows); i++) {
		snprintf(text, sizeof text, "{" HEAD ", %s}", rows[i]);
		CHECK_MSG(parse(&exp, text, NULL, 0, &err) == 0, rows[i]);
		CHECK_INT_EQ(ng_experiment_supported(&exp, &err), -1);
		CHECK_INT_EQ(err.code, NG_USAGE);
		ng_experiment_release(&exp);
	}
}

static void trainable_list(void)
{
	struct ng_experiment exp;
	struct ng_err err;

	CHECK_INT_EQ(parse(&exp, "{" HEAD ", \"train\": {\"trainable\": [\"encoder.layer.5.*\", \"*.bias\"]}}", NULL, 0,
			     &err),
		0);
	CHECK(ng_experiment_trains(&exp, "encoder.layer.5.output.dense.weight"));
	CHECK(ng_experiment_trains(&exp, "encoder.layer.0.output.dense.bias"));
	CHECK(!ng_experiment_trains(&exp, "encoder.layer.0.output.dense.weight"));
	ng_experiment_release(&exp);
}

static void schedules(void)
{
	struct ng_experiment exp;
	struct ng_schedule_span span;
	struct ng_err err;

	/* 3 rounds of 10 steps, w = 3 */
	CHECK_INT_EQ(parse(&exp, "{\"experiment\": \"a\", \"rounds\": 3}", NULL, 0, &err), 0);
	ng_experiment_span(&span, &exp, 1, 10);
	CHECK_INT_EQ(span.total, 30);
	CHECK_INT_EQ(span.warmup, 3);
	CHECK_INT_EQ(span.first, 11);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_LINEAR, 1) == 1.0 / 3);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_LINEAR, 3) == 1.0);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_LINEAR, 4) == 1.0);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_LINEAR, 30) == 1.0 / 27); /* the last step still moves */
	CHECK_NEAR(ng_schedule_factor(&span, NG_SCHEDULE_COSINE, 4), 1, 0);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_COSINE, 30) > 0);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_CONSTANT, 30) == 1);
	ng_experiment_release(&exp);

	CHECK_INT_EQ(parse(&exp, "{\"experiment\": \"a\", \"rounds\": 0, \"train\": {\"schedule\": \"constant\"}}",
			     NULL, 0, &err),
		0);
	ng_experiment_span(&span, &exp, 7, 10);
	CHECK_INT_EQ(span.total, 10);
	CHECK_INT_EQ(span.warmup, 1);
	CHECK_INT_EQ(span.first, 71);
	CHECK(ng_schedule_factor(&span, NG_SCHEDULE_CONSTANT, span.first) == 1);
	ng_experiment_release(&exp);
}

static void tags(void)
{
	char hex[NG_HASH_HEX], name[65], got[NG_HASH_HEX];
	struct ng_err err;

	ng_hash_bytes(hex, "x", 1);
	char *tag = ng_experiment_tag("leaflets", hex);
	CHECK_INT_EQ(ng_experiment_tag_parse(name, got, tag, strlen(tag), &err), 0);
	CHECK_STR_EQ(name, "leaflets");
	CHECK_STR_EQ(got, hex);
	free(tag);
	CHECK_INT_EQ(ng_experiment_tag_parse(name, got, "{\"name\":\"../x\",\"id\":\"00\"}", 25, &err), -1);
}

int main(void)
{
	defaults();
	whole();
	overrides();
	refusals();
	later();
	trainable_list();
	schedules();
	tags();
	return check_done();
}
