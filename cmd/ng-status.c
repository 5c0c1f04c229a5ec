/*
 * ng-status - what is on a blackboard: rounds, who contributed, who is at work,
 * what is waited for, how many bytes went up and down.
 *
 * Looks only: no claim, no pin, nothing is written.  Without --verify payloads
 * are not read, their statements are believed.
 */
#include "common/base/compat.h"

#include <math.h>
#include <time.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/str.h"
#include "common/board/rounds.h"

#define IDLE_SECONDS 3600 /* a complete round that nobody aggregates for so long is a warning */
#define METRICS_MAX 65536

static struct {
	const char *board, *experiment, *state;
	long round;
	bool check, json, verify;
} opt = { .round = -1 };

static const struct ng_opt options[] = {
	NG_OPT_BOARD(&opt.board),
	{ "check", 0, NG_OPT_FLAG, &opt.check, 0, 0, NULL,
		"one line, and exit 0, 1, 2 or 3 like a monitoring plug-in" },
	NG_OPT_EXPERIMENT(&opt.experiment),
	NG_OPT_JSON(&opt.json),
	NG_OPT_QUIET,
	{ "round", 'r', NG_OPT_LONG, &opt.round, 0, NG_NUMBER_MAX, "n", "only this round" },
	NG_OPT_STATE(&opt.state),
	NG_OPT_VERBOSE,
	{ "verify", 0, NG_OPT_FLAG, &opt.verify, 0, 0, NULL, "read every payload and check it" },
	NG_OPT_END,
};

struct row {
	long round;
	bool global; /* it is there */
	uint64_t global_bytes;
	long long created; /* 0 = not known */
	struct ng_update *update;
	size_t n_updates, valid;
	struct ng_claim *claim;
	size_t n_claims;
	size_t logged; /* updates that the log tells of, when they were pruned */
	uint64_t up, down;
};

static struct ng_rounds rounds;
static struct row *rows;
static size_t n_rows;
static long long now;

/* Plug-ins say unknown where they cannot look, critical where the board is wrong. */
static void die(const struct ng_err *err) NG_NORETURN;

static void die(const struct ng_err *err)
{
	bool wrong = err->code == NG_REFUSED || err->code == NG_DATA;

	if (!opt.check)
		ng_die_err(err);
	printf("%s - %s\n", wrong ? "CRITICAL" : "UNKNOWN", err->text);
	int code = ng_finish(NG_OK);
	exit(code ? code : wrong ? 2 : 3);
}

/* ---- gathering ---- */

static struct row *row_of(long round)
{
	static size_t cap;
	size_t i = 0;

	while (i < n_rows && rows[i].round < round)
		i++;
	if (i < n_rows && rows[i].round == round)
		return &rows[i];
	ng_grow(&rows, &cap, n_rows + 1, sizeof *rows);
	memmove(rows + i + 1, rows + i, (n_rows - i) * sizeof *rows);
	n_rows++;
	memset(&rows[i], 0, sizeof *rows);
	rows[i].round = round;
	return &rows[i];
}

/* Every round that has an object of this kind gets a row. */
static void list_rounds(enum ng_object_kind kind)
{
	struct ng_entry *list;
	struct ng_err err;
	size_t n, odd;

	if (ng_board_list(rounds.board, kind, -1, &list, &n, &odd, &err) < 0)
		die(&err);
	if (odd > 0)
		ng_verbose("%zu things in %s/ that are no objects", odd, ng_object_kind_name(kind));
	for (size_t i = 0; i < n; i++) {
		struct row *r = row_of(list[i].name.n);
		if (kind == NG_OBJ_GLOBAL) {
			r->global = true;
			r->global_bytes = list[i].bytes;
		}
	}
	free(list);
}

static void read_log(void)
{
	json_t *log, *e;
	struct ng_err err;
	size_t i;

	if (ng_rounds_log_all(&log, &rounds, &err) < 0)
		die(&err);
	json_array_foreach(log, i, e)
	{
		const char *kind = json_string_value(json_object_get(e, "kind"));
		json_int_t round = json_integer_value(json_object_get(e, "round"));
		if (kind && strcmp(kind, "global") == 0 && round > 0 && round <= NG_NUMBER_MAX)
			row_of((long)round - 1)->logged = json_array_size(json_object_get(e, "inputs"));
	}
	json_decref(log);
}

static bool contributed(const struct row *r, const char *site)
{
	for (size_t i = 0; i < r->n_updates; i++)
		if (r->update[i].valid && strcmp(r->update[i].site, site) == 0)
			return true;
	return false;
}

static void read_round(struct row *r)
{
	struct ng_header header = { 0 };
	char content[NG_HASH_HEX] = "";
	struct ng_object *o = NULL;
	struct ng_statement s;
	struct ng_err err;
	size_t takers;

	if (r->global && ng_rounds_global(&o, &rounds, r->round, opt.verify ? &header : NULL, &err) == 0) {
		if (ng_object_statement(&s, o, &err) == 0)
			r->created = s.created;
		if (opt.verify && ng_rounds_content(content, &rounds, o, &err) < 0)
			die(&err);
	} else if (r->global) {
		ng_warn("%s", err.text);
		r->global = false;
	}
	if (ng_rounds_updates(&r->update, &r->n_updates, &rounds, r->round, content, o && opt.verify ? &header : NULL,
		    &err) < 0 ||
		ng_rounds_claims(&r->claim, &r->n_claims, &rounds, r->round, &err) < 0)
		die(&err);
	takers = 0;
	for (size_t i = 0; i < r->n_updates; i++) {
		r->valid += r->update[i].valid;
		r->up += r->update[i].bytes;
		takers += r->update[i].valid;
		if (!r->update[i].valid)
			ng_warn("update/%05ld/%s does not count: %s", r->round, r->update[i].site, r->update[i].reason);
	}
	for (size_t i = 0; i < r->n_claims; i++)
		takers += !contributed(r, r->claim[i].site);
	r->down = r->global_bytes * takers;
	ng_object_close(o);
	ng_header_release(&header);
}

/* ---- printing ---- */

struct summary {
	enum ng_round_state state;
	struct row *row; /* of the newest global */
	size_t at_work, late;
	char who[600]; /* ": site-c (until ...)" */
	long long ready_since;
	uint64_t up, down;
};

static int by_created(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

/* When the round had all that it waited for. */
static long long ready_since(const struct row *r)
{
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	size_t expect = (size_t)ng_experiment_expect(exp), n = 0;
	long long *t = ng_xarray(r->n_updates + 1, sizeof *t), at;

	for (size_t i = 0; i < r->n_updates; i++)
		if (r->update[i].valid)
			t[n++] = r->update[i].created;
	qsort(t, n, sizeof *t, by_created);
	at = n >= expect && expect > 0 ? t[expect - 1] : r->created + exp->deadline;
	free(t);
	return at;
}

static void summarise(struct summary *out)
{
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	size_t at = 0;
	char until[24];

	memset(out, 0, sizeof *out);
	out->row = row_of(rounds.newest);
	out->state = ng_rounds_decide(exp, rounds.newest, out->row->created, out->row->valid, now);
	if (out->state == NG_ROUND_READY)
		out->ready_since = ready_since(out->row);
	for (size_t i = 0; i < out->row->n_claims; i++) {
		const struct ng_claim *c = &out->row->claim[i];
		if (contributed(out->row, c->site))
			continue;
		ng_time_text(until, c->until);
		if (c->until >= now)
			out->at_work++;
		else
			out->late++;
		if (at < sizeof out->who)
			at += (size_t)snprintf(out->who + at, sizeof out->who - at, "%s%s (%s %s)", at ? ", " : "",
				c->site, c->until >= now ? "until" : "late since", until);
	}
	for (size_t i = 0; i < n_rows; i++) {
		out->up += rows[i].up;
		out->down += rows[i].down;
	}
}

static void waits_for(char *text, size_t size, const struct summary *s)
{
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	long expect = ng_experiment_expect(exp);

	switch (s->state) {
	case NG_ROUND_COMPLETE:
		snprintf(text, size, "nothing: global %ld is the last", rounds.newest);
		break;
	case NG_ROUND_READY:
		snprintf(text, size, "an aggregation: %zu of %ld updates", s->row->valid, expect);
		break;
	case NG_ROUND_STALLED:
		snprintf(text, size, "updates past the deadline: %zu, quorum %ld", s->row->valid, exp->quorum);
		break;
	case NG_ROUND_WAITING:
		snprintf(text, size, "updates: %zu of %ld", s->row->valid, expect);
		break;
	}
}

static json_t *summary_json(const struct summary *s)
{
	const struct ng_experiment *exp = &rounds.manifest.experiment;
	char waits[200], text[24];
	json_t *all;

	waits_for(waits, sizeof waits, s);
	all = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "experiment",
		rounds.manifest.name, "id", rounds.id, "open", 1, "manifest", (json_int_t)rounds.manifest.version,
		"rounds", (json_int_t)exp->rounds, "round", (json_int_t)rounds.newest, "state",
		ng_round_state_name(s->state), "waits_for", waits, "updates", (json_int_t)s->row->valid, "expect",
		(json_int_t)ng_experiment_expect(exp), "quorum", (json_int_t)exp->quorum, "at_work",
		(json_int_t)s->at_work, "late", (json_int_t)s->late, "bytes_up", (json_int_t)s->up, "bytes_down",
		(json_int_t)s->down);
	if (exp->deadline > 0 && s->state != NG_ROUND_COMPLETE) {
		ng_time_text(text, s->row->created + exp->deadline);
		json_object_set_new(all, "deadline", json_string(text));
	}
	if (s->who[0])
		json_object_set_new(all, "claims", json_string(s->who));
	if (rounds.damaged[0])
		json_object_set_new(all, "damaged", json_string(rounds.damaged));
	return all;
}

static void print_json(json_t *all)
{
	char *text = ng_json_canonical(all);

	puts(text);
	free(text);
	json_decref(all);
}

static void print_summary(const struct summary *s)
{
	static const char *const order[] = { "experiment", "id", "open", "manifest", "rounds", "round", "state",
		"waits_for", "updates", "expect", "quorum", "at_work", "late", "claims", "deadline", "bytes_up",
		"bytes_down", "damaged" };
	json_t *all = summary_json(s);

	if (opt.json) {
		print_json(all);
		return;
	}
	for (size_t i = 0; i < NG_COUNT(order); i++) {
		const json_t *v = json_object_get(all, order[i]);
		if (json_is_string(v)) {
			char clean[700];
			ng_printable(clean, sizeof clean, json_string_value(v), json_string_length(v));
			printf("%s\t%s\n", order[i], clean);
		} else if (json_is_boolean(v))
			printf("%s\t%s\n", order[i], json_is_true(v) ? "yes" : "no");
		else if (v)
			printf("%s\t%lld\n", order[i], (long long)json_integer_value(v));
	}
	json_decref(all);
}

static void sites_text(struct ng_str *out, const struct row *r)
{
	ng_str_init(out, (size_t)1 << 24);
	for (size_t i = 0; i < r->n_updates; i++)
		if (r->update[i].valid)
			ng_str_addf(out, "%s%s", out->len ? "," : "", r->update[i].site);
	if (out->len == 0)
		ng_str_adds(out, "-");
}

static json_t *update_json(const struct ng_update *u)
{
	char text[24];

	ng_time_text(text, u->created);
	json_t *all = json_pack("{s:s, s:s, s:I, s:s, s:b}", "site", u->site, "digest", u->hex, "bytes",
		(json_int_t)u->bytes, "created", text, "valid", u->valid);
	if (opt.verify && u->valid) {
		json_object_set_new(all, "examples", json_integer(u->examples));
		json_object_set_new(all, "steps", json_integer(u->steps));
		json_object_set_new(all, "loss", isfinite(u->loss) ? json_real(u->loss) : json_null());
	}
	if (!u->valid)
		json_object_set_new(all, "reason", json_string(u->reason));
	return all;
}

static void print_row(const struct row *r)
{
	char created[24] = "-";
	struct ng_str sites;
	size_t updates = r->valid ? r->valid : r->logged, open = 0;

	if (r->created)
		ng_time_text(created, r->created);
	for (size_t i = 0; i < r->n_claims; i++)
		open += !contributed(r, r->claim[i].site);
	if (!opt.json) {
		sites_text(&sites, r);
		printf("%ld\t%zu\t%s\t%zu\t%llu\t%llu\t%llu\t%s\n", r->round, updates, sites.data, open,
			(unsigned long long)r->global_bytes, (unsigned long long)r->up, (unsigned long long)r->down,
			created);
		for (size_t i = 0; opt.verify && i < r->n_updates; i++)
			if (r->update[i].valid)
				printf("update\t%ld\t%s\t%lld\t%lld\t%.9g\n", r->round, r->update[i].site,
					r->update[i].examples, r->update[i].steps, r->update[i].loss);
		ng_str_release(&sites);
		return;
	}
	json_t *list = json_array(), *claims = json_array();
	for (size_t i = 0; i < r->n_updates; i++)
		json_array_append_new(list, update_json(&r->update[i]));
	for (size_t i = 0; i < r->n_claims; i++) {
		char since[24], until[24];
		ng_time_text(since, r->claim[i].since);
		ng_time_text(until, r->claim[i].until);
		json_array_append_new(
			claims, json_pack("{s:s, s:s, s:s}", "site", r->claim[i].site, "since", since, "until", until));
	}
	print_json(json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:s}", "round", (json_int_t)r->round, "updates",
		(json_int_t)updates, "sites", list, "claims", claims, "bytes_global", (json_int_t)r->global_bytes,
		"bytes_up", (json_int_t)r->up, "bytes_down", (json_int_t)r->down, "created", created));
}

/* metrics/<round>/<site>: a JSON object of numbers. */
static void print_metrics(void)
{
	struct ng_entry *list;
	struct ng_err err;
	size_t n;

	if (ng_board_list(rounds.board, NG_OBJ_METRICS, opt.round, &list, &n, NULL, &err) < 0)
		die(&err);
	for (size_t i = 0; i < n; i++) {
		struct ng_object *o = NULL;
		struct ng_statement s;
		char *text = NULL;
		size_t len;
		json_t *all = NULL, *v;
		const char *key;
		if (ng_object_open(&o, rounds.board, &list[i].name, &err) < 0 ||
			ng_rounds_check_statement(&s, &rounds, o, &err) < 0 ||
			ng_object_load(&text, &len, o, METRICS_MAX, &err) < 0 ||
			(all = ng_json_parse(text, len, "metrics", &err)) == NULL)
			ng_warn("%s", err.text);
		json_object_foreach(all, key, v)
		{
			char name[128];
			if (!json_is_number(v))
				continue;
			ng_printable(name, sizeof name, key, strlen(key));
			if (opt.json)
				print_json(json_pack("{s:I, s:s, s:s, s:f}", "round", (json_int_t)list[i].name.n,
					"site", list[i].name.leaf, "metric", name, "value", json_number_value(v)));
			else
				printf("metric\t%ld\t%s\t%s\t%.9g\n", list[i].name.n, list[i].name.leaf, name,
					json_number_value(v));
		}
		json_decref(all);
		free(text);
		ng_object_close(o);
	}
	free(list);
}

/* ---- monitoring ---- */

static int check(const struct summary *s)
{
	static const char *const name[] = { "OK", "WARNING", "CRITICAL" };
	char waits[200];
	int level = 0;

	waits_for(waits, sizeof waits, s);
	if (s->late > 0 || (s->state == NG_ROUND_READY && now - s->ready_since > IDLE_SECONDS))
		level = 1;
	if (s->state == NG_ROUND_STALLED || rounds.damaged[0])
		level = 2;
	printf("%s - %s: round %ld is %s; waits for %s%s%s%s%s | round=%ld updates=%zu late=%zu\n", name[level],
		rounds.manifest.name, rounds.newest, ng_round_state_name(s->state), waits,
		s->who[0] ? "; claims: " : "", s->who, rounds.damaged[0] ? "; " : "", rounds.damaged, rounds.newest,
		s->row->valid, s->late);
	return level;
}

int main(int argc, char **argv)
{
	struct summary s;
	struct ng_err err;

	ng_start(argv[0]);
	int first = ng_opt_parse(argc, argv,
		"[-jqv] -b board -e name [-r n] [--verify]\n"
		"[-qv] -b board -e name --check",
		options);
	if (first < argc)
		ng_opt_misuse("ng-status takes no operands");
	if (!opt.board || !opt.experiment)
		ng_opt_misuse("%s is needed", opt.board ? "-e" : "-b");
	if (opt.check && (opt.json || opt.round >= 0))
		ng_opt_misuse("--check goes with neither -j nor -r");

	now = (long long)time(NULL);
	if (ng_rounds_open(&rounds, opt.board, opt.experiment, opt.state, NULL,
		    NG_ROUNDS_NO_PIN | (opt.verify ? NG_ROUNDS_DEEP : NG_ROUNDS_SHALLOW), &err) < 0)
		die(&err);
	list_rounds(NG_OBJ_GLOBAL);
	list_rounds(NG_OBJ_UPDATE);
	list_rounds(NG_OBJ_CLAIM);
	read_log();
	for (size_t i = 0; i < n_rows; i++)
		read_round(&rows[i]);
	summarise(&s);
	if (opt.check) {
		int level = check(&s), code = ng_finish(NG_OK);
		return code ? code : level;
	}
	if (opt.round < 0)
		print_summary(&s);
	if (!opt.json)
		printf("%sround\tupdates\tsites\tclaims\tbytes_global\tbytes_up\tbytes_down\tcreated\n",
			opt.round < 0 ? "\n" : "");
	for (size_t i = 0; i < n_rows; i++)
		if (opt.round < 0 || rows[i].round == opt.round)
			print_row(&rows[i]);
	print_metrics();
	return ng_finish(NG_OK);
}
