/*
 * opt.h - one table per program drives getopt_long, --help, --version and the
 * man-page test.  Misuse is one line plus the usage on stderr, exit 64; a
 * single-value option given twice is misuse.
 */
#ifndef NG_OPT_H
#define NG_OPT_H

#include "common/base/compat.h"

enum ng_opt_kind {
	NG_OPT_FLAG,	 /* bool *                              */
	NG_OPT_COUNT,	 /* int *, one more at each use         */
	NG_OPT_LONG,	 /* long *, min..max                    */
	NG_OPT_DOUBLE,	 /* double *                            */
	NG_OPT_SIZE,	 /* uint64_t *, 700M, 2G                */
	NG_OPT_DURATION, /* long long * seconds, 30m            */
	NG_OPT_STRING,	 /* const char **                       */
	NG_OPT_LIST,	 /* struct ng_opt_list *, repeatable    */
};

struct ng_opt_list {
	const char **item;
	size_t n;
};

struct ng_opt {
	const char *name; /* long name, the table is sorted by it */
	int letter;	  /* short option or 0 */
	enum ng_opt_kind kind;
	void *value;
	long min, max;	  /* for LONG */
	const char *arg;  /* what --help calls the argument, NULL for flags */
	const char *help; /* one line, lower case, with the default */
};
#define NG_OPT_END                                           \
	{                                                    \
		NULL, 0, NG_OPT_FLAG, NULL, 0, 0, NULL, NULL \
	}

/* Common rows, so that letter, name and words are the same in every program.
 * The environment ($NG_BOARD ...) is read by ng_opt_parse for rows named
 * board, experiment, site, key and state that were not given. */
#define NG_OPT_BOARD(v)                                                                                        \
	{                                                                                                      \
		"board", 'b', NG_OPT_STRING, (v), 0, 0, "board", "blackboard: a directory (default $NG_BOARD)" \
	}
#define NG_OPT_DATA(v)                                                                                  \
	{                                                                                               \
		"data", 'd', NG_OPT_LIST, (v), 0, 0, "file", "data file, JSONL, TSV or CSV; repeatable" \
	}
#define NG_OPT_DRY_RUN(v)                                                                              \
	{                                                                                              \
		"dry-run", 'n', NG_OPT_FLAG, (v), 0, 0, NULL, "say what would be done, change nothing" \
	}
#define NG_OPT_EXPERIMENT(v)                                                                               \
	{                                                                                                  \
		"experiment", 'e', NG_OPT_STRING, (v), 0, 0, "name", "experiment (default $NG_EXPERIMENT)" \
	}
#define NG_OPT_IDLE_OK(v)                                                                                     \
	{                                                                                                     \
		"idle-ok", 0, NG_OPT_FLAG, (v), 0, 0, NULL, "exit 0 instead of 1 when there is nothing to do" \
	}
#define NG_OPT_JSON(v)                                                                                   \
	{                                                                                                \
		"json", 'j', NG_OPT_FLAG, (v), 0, 0, NULL, "one JSON object per line on standard output" \
	}
#define NG_OPT_MODEL(v)                                                       \
	{                                                                     \
		"model", 'm', NG_OPT_STRING, (v), 0, 0, "dir", "model folder" \
	}
#define NG_OPT_OUTPUT(v)                                                                                 \
	{                                                                                                \
		"output", 'o', NG_OPT_STRING, (v), 0, 0, "path", "write here instead of standard output" \
	}
#define NG_OPT_QUIET                                                                \
	{                                                                           \
		"quiet", 'q', NG_OPT_FLAG, &ng_opt_quiet, 0, 0, NULL, "errors only" \
	}
#define NG_OPT_ROUND(v)                                                                        \
	{                                                                                      \
		"round", 'r', NG_OPT_LONG, (v), 0, 99999999, "n", "round (default the newest)" \
	}
#define NG_OPT_SITE(v)                                                                                \
	{                                                                                             \
		"site", 's', NG_OPT_STRING, (v), 0, 0, "name", "name of this site (default $NG_SITE)" \
	}
#define NG_OPT_STATE(v)                                                                         \
	{                                                                                       \
		"state", 0, NG_OPT_STRING, (v), 0, 0, "dir", "state folder (default $NG_STATE)" \
	}
#define NG_OPT_THREADS(v)                                                                                        \
	{                                                                                                        \
		"threads", 0, NG_OPT_LONG, (v), 1, 1024, "n", "threads (default what affinity and cgroup allow)" \
	}
#define NG_OPT_VERBOSE                                                                \
	{                                                                             \
		"verbose", 'v', NG_OPT_COUNT, &ng_opt_verbose, 0, 0, NULL, "say more" \
	}
extern bool ng_opt_quiet;
extern int ng_opt_verbose;

/* Parses argv, answers --help (stdout, 0) and --version, dies with 64 on
 * misuse.  usage: one line per form, newline-separated, without the program
 * name ("[-q] -m dir -d file ...").  Returns the index of the first operand.
 * Options may stand after operands; "--" ends them. */
int ng_opt_parse(int argc, char **argv, const char *usage, const struct ng_opt *options);
/* One line and the usage, exit 64: for combinations the table cannot express. */
void ng_opt_misuse(const char *fmt, ...) NG_PRINTF(1, 2) NG_NORETURN;

#endif
