#include "common/base/compat.h"

#include <fnmatch.h>
#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/fed/experiment.h"

/* A word of the file and the enum value it stands for; `later` marks values
 * that the format knows and that this version does not carry out. */
struct word {
	const char *text;
	int value;
	bool later;
};

static const struct word losses[] = { { "mnrl", NG_LOSS_MNRL, false }, { "gist", NG_LOSS_GIST, true },
	{ "matryoshka", NG_LOSS_MATRYOSHKA, true }, { NULL, 0, false } };
static const struct word schedules[] = { { "linear", NG_SCHEDULE_LINEAR, false },
	{ "cosine", NG_SCHEDULE_COSINE, false }, { "constant", NG_SCHEDULE_CONSTANT, false }, { NULL, 0, false } };
static const struct word optimizers[] = { { "adamw", NG_OPTIMIZER_ADAMW, false }, { "sgd", NG_OPTIMIZER_SGD, false },
	{ NULL, 0, false } };
static const struct word moments[] = { { "reset", NG_MOMENTS_RESET, false }, { "keep", NG_MOMENTS_KEEP, true },
	{ NULL, 0, false } };
static const struct word samplers[] = { { "no_duplicates", NG_SAMPLER_NO_DUPLICATES, false },
	{ "random", NG_SAMPLER_RANDOM, false }, { NULL, 0, false } };
static const struct word trainables[] = { { "full", NG_TRAINABLE_FULL, false }, { "lora", NG_TRAINABLE_LORA, true },
	{ NULL, 0, false } };
static const struct word precisions[] = { { "fp32", NG_PRECISION_FP32, false }, { "bf16", NG_PRECISION_BF16, true },
	{ "fp16", NG_PRECISION_FP16, true }, { NULL, 0, false } };
static const struct word strategies[] = { { "fedavg", NG_STRATEGY_FEDAVG, false },
	{ "fedavgm", NG_STRATEGY_OTHER, true }, { "fedadam", NG_STRATEGY_OTHER, true },
	{ "fedyogi", NG_STRATEGY_OTHER, true }, { "fedadagrad", NG_STRATEGY_OTHER, true },
	{ "diloco", NG_STRATEGY_OTHER, true }, { "scaffold", NG_STRATEGY_OTHER, true },
	{ "qfedavg", NG_STRATEGY_OTHER, true }, { "median", NG_STRATEGY_OTHER, true },
	{ "trimmed-mean", NG_STRATEGY_OTHER, true }, { "krum", NG_STRATEGY_OTHER, true },
	{ "multi-krum", NG_STRATEGY_OTHER, true }, { "geometric-median", NG_STRATEGY_OTHER, true },
	{ NULL, 0, false } };
static const struct word weightings[] = { { "examples", NG_WEIGHTS_EXAMPLES, false },
	{ "steps", NG_WEIGHTS_STEPS, false }, { "equal", NG_WEIGHTS_EQUAL, false }, { NULL, 0, false } };
static const struct word codecs[] = { { "f32", 0, false }, { "bf16", 1, true }, { "f16", 1, true }, { "int8", 1, true },
	{ "int4", 1, true }, { "topk", 1, true }, { "lowrank", 1, true }, { NULL, 0, false } };
static const struct word seals[] = { { "none", NG_SEAL_NONE, false }, { "updates", NG_SEAL_UPDATES, true },
	{ "all", NG_SEAL_ALL, true }, { NULL, 0, false } };

/* Reading goes on after a failure with the object empty, so that the calls
 * below need no check each: the first message stays. */
struct reader {
	const char *name; /* of the file, for messages */
	struct ng_err *err;
	bool failed;
};

static void fail(struct reader *r, const char *key, const char *what)
{
	if (!r->failed)
		ng_fail(r->err, NG_USAGE, "'%s': '%s' %s", r->name, key, what);
	r->failed = true;
}

static const json_t *get(const json_t *obj, const char *key)
{
	/* the last component of "train.lr" is the key in its own object */
	const char *dot = strrchr(key, '.');
	const json_t *v = json_object_get(obj, dot ? dot + 1 : key);

	return json_is_null(v) ? NULL : v;
}

static void read_long(struct reader *r, long *out, const json_t *obj, const char *key, long min, long max)
{
	const json_t *v = get(obj, key);
	char what[96];

	if (!v)
		return;
	double d = json_number_value(v); /* 2e3 is an integer to people */
	if (!json_is_number(v) || d != floor(d) || !(d >= (double)min && d <= (double)max)) {
		snprintf(what, sizeof what, "must be a whole number from %ld to %ld", min, max);
		fail(r, key, what);
		return;
	}
	*out = (long)d;
}

static void read_double(
	struct reader *r, double *out, const json_t *obj, const char *key, double min, double max, bool above)
{
	const json_t *v = get(obj, key);
	char what[96];

	if (!v)
		return;
	double d = json_number_value(v);
	if (!json_is_number(v) || !(d >= min && d <= max) || (above && !(d > min))) {
		snprintf(what, sizeof what, "must be a number %s %g and at most %g", above ? "above" : "of at least",
			min, max);
		fail(r, key, what);
		return;
	}
	*out = d;
}

/* The word's index; *word (optional) gets the text as a copy. */
static void read_word(struct reader *r, int *out, const json_t *obj, const char *key, const struct word *words)
{
	const json_t *v = get(obj, key);
	struct ng_str list;

	if (!v)
		return;
	const char *s = json_string_value(v);
	for (const struct word *w = words; s && w->text; w++)
		if (strcmp(w->text, s) == 0) {
			*out = w->value;
			return;
		}
	ng_str_init(&list, 512);
	ng_str_adds(&list, "must be one of");
	for (const struct word *w = words; w->text; w++)
		ng_str_addf(&list, "%s \"%s\"", w == words ? "" : ",", w->text);
	fail(r, key, list.data ? list.data : "is not known");
	ng_str_release(&list);
}

static void read_text(struct reader *r, char **out, const json_t *obj, const char *key, size_t max)
{
	const json_t *v = get(obj, key);

	if (!v)
		return;
	const char *s = json_string_value(v);
	if (!s || strlen(s) != json_string_length(v) || strlen(s) > max) {
		fail(r, key, "must be a string without NUL, and not longer than a prompt or name is");
		return;
	}
	free(*out);
	*out = ng_xstrdup(s);
}

static void check_keys(struct reader *r, const json_t *obj, const char *prefix, const char *const *keys)
{
	const char *key;
	json_t *value;
	char shown[80];

	json_object_foreach((json_t *)obj, key, value)
	{
		size_t i = 0;
		while (keys[i] && strcmp(keys[i], key) != 0)
			i++;
		if (!keys[i] && !r->failed) {
			ng_printable(shown, sizeof shown, key, strlen(key));
			ng_fail(r->err, NG_USAGE, "'%s': unknown key '%s%s'", r->name, prefix, shown);
			r->failed = true;
		}
	}
}

/* An optional object; an empty one when absent, so that defaults stay. */
static const json_t *read_object(struct reader *r, const json_t *obj, const char *key, const char *const *keys)
{
	const json_t *v = get(obj, key);
	char prefix[32];

	if (!v)
		return NULL;
	if (!json_is_object(v)) {
		fail(r, key, "must be an object");
		return NULL;
	}
	snprintf(prefix, sizeof prefix, "%s.", key);
	check_keys(r, v, prefix, keys);
	return v;
}

static void read_deadline(struct reader *r, long long *out, const json_t *obj)
{
	const json_t *v = get(obj, "deadline");
	long long seconds = 0;

	if (!v)
		return;
	bool ok = json_is_string(v) ? ng_parse_duration(&seconds, json_string_value(v)) : json_is_integer(v);
	if (json_is_integer(v))
		seconds = json_integer_value(v);
	if (!ok || seconds < 1 || seconds > 10LL * 366 * 86400)
		fail(r, "deadline",
			"must be a duration such as \"90s\", \"30m\", \"12h\" or \"7d\", at most ten years");
	else
		*out = seconds;
}

static void read_betas(struct reader *r, struct ng_experiment_train *t, const json_t *train)
{
	const json_t *v = get(train, "train.betas");

	if (!v)
		return;
	double b1 = json_number_value(json_array_get(v, 0)), b2 = json_number_value(json_array_get(v, 1));
	bool ok = json_array_size(v) == 2 && json_is_number(json_array_get(v, 0)) &&
		  json_is_number(json_array_get(v, 1)) && b1 >= 0 && b1 < 1 && b2 >= 0 && b2 < 1;
	if (!ok) {
		fail(r, "train.betas", "must be two numbers of at least 0 and below 1");
		return;
	}
	t->beta1 = b1;
	t->beta2 = b2;
}

static void read_trainable(struct reader *r, struct ng_experiment_train *t, const json_t *train)
{
	const json_t *v = get(train, "train.trainable");
	int value = NG_TRAINABLE_FULL;

	if (!json_is_array(v)) {
		read_word(r, &value, train, "train.trainable", trainables);
		t->trainable = (enum ng_trainable)value;
		return;
	}
	size_t n = json_array_size(v);
	t->trainable = NG_TRAINABLE_LIST;
	if (n == 0 || n > 1024) {
		fail(r, "train.trainable", "must name at least one tensor, and at most 1024 patterns");
		return;
	}
	t->patterns = ng_xcalloc(n, sizeof *t->patterns);
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(v, i));
		if (!s || !*s || strlen(s) > 512) {
			fail(r, "train.trainable", "must be \"full\" or a list of patterns of tensor names");
			return;
		}
		t->patterns[t->n_patterns++] = ng_xstrdup(s);
	}
}

static void read_train(struct reader *r, struct ng_experiment *exp, const json_t *root)
{
	static const char *const keys[] = { "loss", "scale", "batch", "epochs", "lr", "schedule", "warmup_ratio",
		"max_length", "prompts", "dropout", "optimizer", "betas", "eps", "momentum", "weight_decay", "clip",
		"moments", "seed", "sampler", "trainable", "precision", NULL };
	static const char *const columns[] = { "anchor", "positive", "negative", NULL };
	struct ng_experiment_train *t = &exp->train;
	const json_t *o = read_object(r, root, "train", keys);
	int loss = NG_LOSS_MNRL, schedule = NG_SCHEDULE_LINEAR, optimizer = NG_OPTIMIZER_ADAMW;
	int moment = NG_MOMENTS_RESET, sampler = NG_SAMPLER_NO_DUPLICATES, precision = NG_PRECISION_FP32;
	long seed = 42;

	/* the defaults live here only */
	t->scale = 20;
	t->batch = 2048;
	t->epochs = 1;
	t->lr = 2e-5;
	t->warmup_ratio = 0.1;
	t->max_length = 256;
	t->dropout = 0.1;
	t->beta1 = 0.9;
	t->beta2 = 0.999;
	t->eps = 1e-8;
	t->clip = 1.0;
	t->prompt_anchor = ng_xstrdup("");
	t->prompt_positive = ng_xstrdup("");
	t->prompt_negative = ng_xstrdup("");
	exp->loss_name = ng_xstrdup("mnrl");

	read_word(r, &loss, o, "train.loss", losses);
	read_text(r, &exp->loss_name, o, "train.loss", 64);
	read_double(r, &t->scale, o, "train.scale", 0, 10000, true);
	/* a text's number in the batch is row * 16384 + column in 32 bits: 2^18 rows */
	read_long(r, &t->batch, o, "train.batch", 2, 262144);
	read_long(r, &t->epochs, o, "train.epochs", 1, 1000);
	read_double(r, &t->lr, o, "train.lr", 0, 100, true);
	read_word(r, &schedule, o, "train.schedule", schedules);
	read_double(r, &t->warmup_ratio, o, "train.warmup_ratio", 0, 1, false);
	read_long(r, &t->max_length, o, "train.max_length", 3, 1000000);
	read_double(r, &t->dropout, o, "train.dropout", 0, 0.9, false);
	read_word(r, &optimizer, o, "train.optimizer", optimizers);
	read_betas(r, t, o);
	read_double(r, &t->eps, o, "train.eps", 0, 1, true);
	read_double(r, &t->momentum, o, "train.momentum", 0, 0.9999, false);
	read_double(r, &t->weight_decay, o, "train.weight_decay", 0, 1, false);
	read_double(r, &t->clip, o, "train.clip", 0, 1e9, false);
	read_word(r, &moment, o, "train.moments", moments);
	read_long(r, &seed, o, "train.seed", 0, (long)UINT32_MAX);
	read_word(r, &sampler, o, "train.sampler", samplers);
	read_trainable(r, t, o);
	read_word(r, &precision, o, "train.precision", precisions);
	t->loss = (enum ng_loss_kind)loss;
	t->schedule = (enum ng_schedule_kind)schedule;
	t->optimizer = (enum ng_optimizer_kind)optimizer;
	t->moments = (enum ng_moments)moment;
	t->sampler = (enum ng_sampler)sampler;
	t->precision = (enum ng_precision)precision;
	t->seed = (uint32_t)seed;

	const json_t *p = get(o, "train.prompts");
	if (p && !json_is_object(p)) {
		fail(r, "train.prompts", "must be an object of prompts by column: anchor, positive, negative");
	} else if (p) {
		check_keys(r, p, "train.prompts.", columns);
		read_text(r, &t->prompt_anchor, p, "train.prompts.anchor", 4096);
		read_text(r, &t->prompt_positive, p, "train.prompts.positive", 4096);
		read_text(r, &t->prompt_negative, p, "train.prompts.negative", 4096);
	}
}

static void read_aggregate(struct reader *r, struct ng_experiment *exp, const json_t *root)
{
	static const char *const keys[] = { "strategy", "weights", "staleness", NULL };
	const json_t *o = read_object(r, root, "aggregate", keys);
	int strategy = NG_STRATEGY_FEDAVG, weights = NG_WEIGHTS_EXAMPLES;

	exp->strategy_name = ng_xstrdup("fedavg");
	read_word(r, &strategy, o, "aggregate.strategy", strategies);
	read_text(r, &exp->strategy_name, o, "aggregate.strategy", 64);
	read_word(r, &weights, o, "aggregate.weights", weightings);
	read_long(r, &exp->staleness, o, "aggregate.staleness", 0, 1000);
	exp->strategy = (enum ng_strategy)strategy;
	exp->weights = (enum ng_weighting)weights;
}

static void read_root(struct reader *r, struct ng_experiment *exp, const json_t *root)
{
	static const char *const keys[] = { "experiment", "rounds", "quorum", "expect", "deadline", "train",
		"aggregate", "codec", "seal", "keep", "members", NULL };
	static const char *const keep_keys[] = { "last", NULL };
	int codec = 0, seal = NG_SEAL_NONE;

	check_keys(r, root, "", keys);
	exp->quorum = 2;
	exp->codec = ng_xstrdup("f32");
	read_text(r, &exp->name, root, "experiment", 64);
	if (!exp->name || !ng_name_valid(exp->name))
		fail(r, "experiment", "must be a name of a-z, 0-9 and inner hyphens, at most 64 long");
	if (!get(root, "rounds"))
		fail(r, "rounds", "is missing: how many rounds, 0 for no end");
	read_long(r, &exp->rounds, root, "rounds", 0, NG_ROUNDS_MAX);
	read_long(r, &exp->quorum, root, "quorum", 1, 1000000);
	read_long(r, &exp->expect, root, "expect", 1, 1000000);
	read_deadline(r, &exp->deadline, root);
	read_train(r, exp, root);
	read_aggregate(r, exp, root);
	read_word(r, &codec, root, "codec", codecs);
	read_text(r, &exp->codec, root, "codec", 64);
	read_word(r, &seal, root, "seal", seals);
	exp->seal = (enum ng_seal)seal;
	const json_t *keep = read_object(r, root, "keep", keep_keys);
	read_long(r, &exp->keep_last, keep, "keep.last", 1, NG_ROUNDS_MAX);
	const json_t *members = get(root, "members");
	if (members && !json_is_array(members))
		fail(r, "members", "must be a list");
	exp->members = (json_t *)members;
	exp->n_members = json_array_size(members);

	if (exp->expect && exp->expect < exp->quorum)
		fail(r, "expect", "must not be less than the quorum");
	if (exp->rounds == 0 && exp->train.schedule != NG_SCHEDULE_CONSTANT)
		fail(r, "train.schedule", "must be \"constant\" when rounds is 0: there is no end to stretch it to");
}

/* "train.lr=3e-5" into root. */
static int override(json_t *root, const char *set, struct ng_err *err)
{
	const char *eq = strchr(set, '=');
	char key[128];
	json_t *obj = root, *value = NULL;
	char *part = key;

	if (!eq || eq == set || (size_t)(eq - set) >= sizeof key)
		return ng_fail(err, NG_USAGE, "'--set %.64s': expected KEY=VALUE", set);
	memcpy(key, set, (size_t)(eq - set));
	key[eq - set] = '\0';
	for (char *dot = strchr(part, '.'); dot; dot = strchr(part, '.')) {
		*dot = '\0';
		json_t *next = json_object_get(obj, part);
		if (!next || json_is_null(next)) {
			next = json_object();
			json_object_set_new(obj, part, next);
		}
		if (!json_is_object(next))
			return ng_fail(err, NG_USAGE, "'--set %.64s': '%s' is not an object", set, part);
		obj = next;
		part = dot + 1;
	}
	if (!ng_utf8_valid(set, strlen(set), NULL))
		return ng_fail(err, NG_USAGE, "'--set': not valid UTF-8");
	value = ng_json_parse(eq + 1, strlen(eq + 1), "--set", NULL);
	if (!value)
		value = json_string(eq + 1);
	if (!value || json_object_set_new(obj, part, value) < 0)
		return ng_fail(err, NG_USAGE, "'--set %.64s': cannot be set", set);
	return 0;
}

int ng_experiment_parse(struct ng_experiment *out, const char *text, size_t len, const char *name,
	const char *const *set, size_t n_set, struct ng_err *err)
{
	struct reader r = { name, err, false };

	memset(out, 0, sizeof *out);
	if (len > NG_EXPERIMENT_MAX)
		return ng_fail(err, NG_USAGE, "'%s': larger than an experiment file may be (1 MiB)", name);
	out->json = ng_json_parse(text, len, name, err);
	if (!out->json) {
		if (err)
			err->code = NG_USAGE;
		return -1;
	}
	if (!json_is_object(out->json)) {
		ng_experiment_release(out);
		return ng_fail(err, NG_USAGE, "'%s': not a JSON object", name);
	}
	for (size_t i = 0; i < n_set; i++)
		if (override(out->json, set[i], err) < 0) {
			ng_experiment_release(out);
			return -1;
		}
	out->text = n_set ? ng_json_canonical(out->json) : ng_xstrndup(text, len);
	out->text_len = strlen(out->text);
	read_root(&r, out, out->json);
	if (r.failed) {
		ng_experiment_release(out);
		return -1;
	}
	return 0;
}

int ng_experiment_load(
	struct ng_experiment *out, const char *path, const char *const *set, size_t n_set, struct ng_err *err)
{
	char *text = NULL;
	size_t len = 0;

	memset(out, 0, sizeof *out);
	if (ng_file_read(&text, &len, path, NG_EXPERIMENT_MAX, err) < 0)
		return -1;
	int result = ng_experiment_parse(out, text, len, path, set, n_set, err);
	free(text);
	return result;
}

void ng_experiment_release(struct ng_experiment *exp)
{
	struct ng_experiment_train *t = &exp->train;

	for (size_t i = 0; i < t->n_patterns; i++)
		free(t->patterns[i]);
	free(t->patterns);
	free(t->prompt_anchor);
	free(t->prompt_positive);
	free(t->prompt_negative);
	free(exp->text);
	free(exp->name);
	free(exp->strategy_name);
	free(exp->loss_name);
	free(exp->codec);
	json_decref(exp->json);
	memset(exp, 0, sizeof *exp);
}

static bool is_later(const struct word *words, const char *text)
{
	for (const struct word *w = words; w->text; w++)
		if (strcmp(w->text, text) == 0)
			return w->later;
	return true;
}

static const char *word_of(const struct word *words, int value)
{
	for (const struct word *w = words; w->text; w++)
		if (w->value == value)
			return w->text;
	return "";
}

int ng_experiment_supported(const struct ng_experiment *exp, struct ng_err *err)
{
	const struct ng_experiment_train *t = &exp->train;
	const struct {
		const char *key;
		const struct word *words;
		const char *text;
	} rows[] = { { "train.loss", losses, exp->loss_name },
		{ "train.moments", moments, word_of(moments, (int)t->moments) },
		{ "train.precision", precisions, word_of(precisions, (int)t->precision) },
		{ "aggregate.strategy", strategies, exp->strategy_name }, { "codec", codecs, exp->codec },
		{ "seal", seals, word_of(seals, (int)exp->seal) } };

	for (size_t i = 0; i < NG_COUNT(rows); i++)
		if (is_later(rows[i].words, rows[i].text))
			return ng_fail(err, NG_USAGE, "experiment '%s': %s \"%s\" is not carried out by this version",
				exp->name, rows[i].key, rows[i].text);
	if (t->trainable != NG_TRAINABLE_FULL)
		return ng_fail(err, NG_USAGE,
			"experiment '%s': train.trainable other than \"full\" is not carried out "
			"by this version",
			exp->name);
	if (exp->staleness)
		return ng_fail(err, NG_USAGE,
			"experiment '%s': aggregate.staleness above 0 is not carried out by this "
			"version",
			exp->name);
	if (exp->n_members)
		return ng_fail(err, NG_USAGE,
			"experiment '%s': members are not carried out by this version; leave "
			"them out and use --open",
			exp->name);
	return 0;
}

long ng_experiment_expect(const struct ng_experiment *exp)
{
	if (exp->expect)
		return exp->expect;
	return exp->n_members ? (long)exp->n_members : exp->quorum;
}

bool ng_experiment_trains(const struct ng_experiment *exp, const char *tensor)
{
	if (exp->train.trainable == NG_TRAINABLE_FULL)
		return true;
	for (size_t i = 0; i < exp->train.n_patterns; i++)
		if (fnmatch(exp->train.patterns[i], tensor, 0) == 0)
			return true;
	return false;
}

char *ng_experiment_json(const struct ng_experiment *exp)
{
	const struct ng_experiment_train *t = &exp->train;
	json_t *trainable = NULL;

	if (t->trainable == NG_TRAINABLE_LIST) {
		trainable = json_array();
		for (size_t i = 0; i < t->n_patterns; i++)
			json_array_append_new(trainable, json_string(t->patterns[i]));
	} else {
		trainable = json_string(word_of(trainables, (int)t->trainable));
	}
	json_t *train = json_pack(
		"{s:s,s:f,s:I,s:I,s:f,s:s,s:f,s:I,s:{s:s,s:s,s:s},s:f,s:s,s:[f,f],s:f,s:f,s:f,s:f,s:s,"
		"s:I,s:s,s:o,s:s}",
		"loss", exp->loss_name, "scale", t->scale, "batch", (json_int_t)t->batch, "epochs",
		(json_int_t)t->epochs, "lr", t->lr, "schedule", word_of(schedules, (int)t->schedule), "warmup_ratio",
		t->warmup_ratio, "max_length", (json_int_t)t->max_length, "prompts", "anchor", t->prompt_anchor,
		"positive", t->prompt_positive, "negative", t->prompt_negative, "dropout", t->dropout, "optimizer",
		word_of(optimizers, (int)t->optimizer), "betas", t->beta1, t->beta2, "eps", t->eps, "momentum",
		t->momentum, "weight_decay", t->weight_decay, "clip", t->clip, "moments",
		word_of(moments, (int)t->moments), "seed", (json_int_t)t->seed, "sampler",
		word_of(samplers, (int)t->sampler), "trainable", trainable, "precision",
		word_of(precisions, (int)t->precision));
	json_t *root = json_pack("{s:s,s:I,s:I,s:I,s:o,s:{s:s,s:s,s:I},s:s,s:s}", "experiment", exp->name, "rounds",
		(json_int_t)exp->rounds, "quorum", (json_int_t)exp->quorum, "expect",
		(json_int_t)ng_experiment_expect(exp), "train", train, "aggregate", "strategy", exp->strategy_name,
		"weights", word_of(weightings, (int)exp->weights), "staleness", (json_int_t)exp->staleness, "codec",
		exp->codec, "seal", word_of(seals, (int)exp->seal));
	if (!train || !root)
		NG_BUG("experiment '%s' cannot be written", exp->name);
	/* "none" has no value of its own: absent */
	if (exp->deadline)
		json_object_set_new(root, "deadline", json_integer(exp->deadline));
	if (exp->keep_last)
		json_object_set_new(root, "keep", json_pack("{s:I}", "last", (json_int_t)exp->keep_last));
	if (exp->n_members)
		json_object_set(root, "members", exp->members);
	char *text = ng_json_canonical(root);
	json_decref(root);
	return text;
}

void ng_experiment_span(struct ng_schedule_span *out, const struct ng_experiment *exp, long round, long steps)
{
	long rounds = exp->rounds ? exp->rounds : 1;

	out->total = rounds * steps;
	out->warmup = (long)ceil((double)out->total * exp->train.warmup_ratio);
	out->first = round * steps + 1;
}

double ng_schedule_factor(const struct ng_schedule_span *span, enum ng_schedule_kind kind, long s)
{
	const double pi = 3.14159265358979323846;
	double T = (double)span->total, w = (double)span->warmup, step = (double)s;

	if (s <= span->warmup)
		return step / w;
	switch (kind) {
	case NG_SCHEDULE_LINEAR:
		return s > span->total ? 0 : (T - step + 1) / (T - w);
	case NG_SCHEDULE_COSINE:
		return s > span->total ? 0 : 0.5 * (1 + cos(pi * (step - w - 1) / (T - w)));
	case NG_SCHEDULE_CONSTANT:
		break;
	}
	return 1;
}
