/*
 * Rows and the two that every program has (--help, --version) become
 * getopt_long's arrays.  Its own messages are off: ours name the option as it
 * was typed and end in the usage.
 */
#include "common/base/compat.h"

#include <getopt.h>
#include <stdarg.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/str.h"

#define FIRST 1000 /* val of row 0: above every letter */

bool ng_opt_quiet;
int ng_opt_verbose;

static const char *form;

static void print_usage(FILE *to)
{
	const char *line = form, *end;
	const char *head = "usage:";

	while (line && *line) {
		end = strchr(line, '\n');
		fprintf(to, "%s %s %.*s\n", head, ng_program(), (int)(end ? end - line : (ptrdiff_t)strlen(line)),
			line);
		head = "      ";
		line = end ? end + 1 : NULL;
	}
	if (form == NULL || form[0] == 0)
		fprintf(to, "usage: %s\n", ng_program());
}

void ng_opt_misuse(const char *fmt, ...)
{
	char text[NG_ERR_MAX], clean[NG_ERR_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	ng_printable(clean, sizeof clean, text, strlen(text));
	fprintf(stderr, "%s: error: %s\n", ng_program(), clean);
	print_usage(stderr);
	exit(NG_USAGE);
}

static void print_row(int letter, const char *name, const char *arg, const char *help)
{
	char left[128];

	if (letter)
		snprintf(left, sizeof left, "  -%c, --%s%s%s", letter, name, arg ? " " : "", arg ? arg : "");
	else
		snprintf(left, sizeof left, "      --%s%s%s", name, arg ? " " : "", arg ? arg : "");
	if (strlen(left) > 28)
		printf("%s\n%-30s%s\n", left, "", help);
	else
		printf("%-30s%s\n", left, help);
}

static void help(const struct ng_opt *options)
{
	static const struct {
		const char *name, *help;
	} own[] = { { "help", "show this and exit" }, { "version", "show the version and exit" } };
	const struct ng_opt *o = options;
	size_t k = 0;

	print_usage(stdout);
	printf("\n");
	while (o->name || k < NG_COUNT(own))
		if (k == NG_COUNT(own) || (o->name && strcmp(o->name, own[k].name) < 0)) {
			print_row(o->letter, o->name, o->arg, o->help);
			o++;
		} else {
			print_row(0, own[k].name, NULL, own[k].help);
			k++;
		}
	exit(ng_finish(NG_OK));
}

static void version(void)
{
	printf("%s %s\n", ng_program(), NG_VERSION);
	exit(ng_finish(NG_OK));
}

static void name_option(char out[80], const struct ng_opt *o, int typed)
{
	if (typed < FIRST)
		snprintf(out, 80, "-%c", typed);
	else
		snprintf(out, 80, "--%.70s", o->name);
}

static void add_item(struct ng_opt_list *list, const char *text)
{
	list->item = ng_xrealloc(list->item, list->n + 1, sizeof *list->item);
	list->item[list->n++] = text;
}

static void set(const struct ng_opt *o, const char *what, const char *text)
{
	long long n;

	switch (o->kind) {
	case NG_OPT_FLAG:
		*(bool *)o->value = true;
		break;
	case NG_OPT_COUNT:
		*(int *)o->value += 1;
		break;
	case NG_OPT_LONG:
		if (!ng_parse_long(&n, text, o->min, o->max))
			ng_opt_misuse("option '%s' wants a whole number from %ld to %ld, not '%s'", what, o->min,
				o->max, text);
		*(long *)o->value = (long)n;
		break;
	case NG_OPT_DOUBLE:
		if (!ng_parse_double(o->value, text))
			ng_opt_misuse("option '%s' wants a number, not '%s'", what, text);
		break;
	case NG_OPT_SIZE:
		if (!ng_parse_size(o->value, text))
			ng_opt_misuse("option '%s' wants a size such as 700M or 2G, not '%s'", what, text);
		break;
	case NG_OPT_DURATION:
		if (!ng_parse_duration(o->value, text))
			ng_opt_misuse("option '%s' wants a duration such as 90s, 15m, 12h or 7d, not '%s'", what, text);
		break;
	case NG_OPT_STRING:
		*(const char **)o->value = text;
		break;
	case NG_OPT_LIST:
		add_item(o->value, text);
		break;
	}
}

static void from_environment(const struct ng_opt *options, const bool *seen)
{
	static const char *const names[][2] = { { "board", "NG_BOARD" }, { "experiment", "NG_EXPERIMENT" },
		{ "key", "NG_KEY" }, { "site", "NG_SITE" }, { "state", "NG_STATE" } };
	const char *env;
	size_t i, k;

	for (i = 0; options[i].name; i++)
		for (k = 0; k < NG_COUNT(names); k++) {
			if (seen[i] || options[i].kind != NG_OPT_STRING || strcmp(options[i].name, names[k][0]) != 0)
				continue;
			env = getenv(names[k][1]);
			if (env && env[0])
				*(const char **)options[i].value = env;
		}
}

static bool takes_argument(const struct ng_opt *o)
{
	return o->kind != NG_OPT_FLAG && o->kind != NG_OPT_COUNT;
}

static bool repeatable(const struct ng_opt *o)
{
	return o->kind == NG_OPT_FLAG || o->kind == NG_OPT_COUNT || o->kind == NG_OPT_LIST;
}

static void check_table(const struct ng_opt *options)
{
	size_t i;

	for (i = 0; options[i].name; i++) {
		if (i && strcmp(options[i - 1].name, options[i].name) >= 0)
			NG_BUG("option '%s' is out of order", options[i].name);
		if (takes_argument(&options[i]) != (options[i].arg != NULL))
			NG_BUG("option '%s': its kind and its argument disagree", options[i].name);
	}
}

int ng_opt_parse(int argc, char **argv, const char *usage, const struct ng_opt *options)
{
	struct option *longs;
	char letters[256], what[80];
	bool *seen;
	size_t n = 0, i, k = 0;
	int c, at;

	form = usage;
	check_table(options);
	while (options[n].name)
		n++;
	longs = ng_xcalloc(n + 3, sizeof *longs);
	seen = ng_xcalloc(n + 1, sizeof *seen);
	letters[k++] = ':'; /* a missing argument is told from an unknown option */
	for (i = 0; i < n; i++) {
		longs[i].name = options[i].name;
		longs[i].has_arg = takes_argument(&options[i]) ? required_argument : no_argument;
		longs[i].val = FIRST + (int)i;
		if (options[i].letter) {
			letters[k++] = (char)options[i].letter;
			if (takes_argument(&options[i]))
				letters[k++] = ':';
		}
	}
	letters[k] = 0;
	longs[n].name = "help";
	longs[n].val = FIRST + (int)n;
	longs[n + 1].name = "version";
	longs[n + 1].val = FIRST + (int)n + 1;

	opterr = 0;
	optind = 1;
	for (;;) {
		at = optind;
		c = getopt_long(argc, argv, letters, longs, NULL);
		if (c == -1)
			break;
		if (c == '?') {
			if (optopt > 0 && optopt < 256)
				ng_opt_misuse("unknown option '-%c'", optopt);
			if (optopt >= FIRST)
				ng_opt_misuse("option '--%s' takes no argument", longs[optopt - FIRST].name);
			ng_opt_misuse("unknown or ambiguous option '%s'", argv[optind - 1]);
		}
		if (c == ':') {
			if (optopt >= FIRST)
				ng_opt_misuse("option '--%s' needs an argument", longs[optopt - FIRST].name);
			ng_opt_misuse("option '-%c' needs an argument", optopt);
		}
		if (c == FIRST + (int)n)
			help(options);
		if (c == FIRST + (int)n + 1)
			version();
		for (i = 0; i < n; i++)
			if (c == FIRST + (int)i || c == options[i].letter)
				break;
		if (i == n)
			NG_BUG("getopt_long returned %d at '%s'", c, argv[at]);
		name_option(what, &options[i], c);
		if (seen[i] && !repeatable(&options[i]))
			ng_opt_misuse("option '%s' is given twice", what);
		seen[i] = true;
		set(&options[i], what, optarg);
	}
	from_environment(options, seen);
	free(longs);
	free(seen);
	ng_verbosity = ng_opt_quiet ? -1 : ng_opt_verbose;
	return optind;
}
