/* One table: values, refusals, environment.  Each parse runs in a child, since misuse exits. */
#include "common/base/compat.h"

#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "t/unit/check.h"

static struct {
	const char *board, *output;
	struct ng_opt_list data;
	bool json;
	long steps;
	double lr;
	uint64_t memory;
	long long wait;
} opt;

static const struct ng_opt options[] = {
	NG_OPT_BOARD(&opt.board),
	NG_OPT_DATA(&opt.data),
	NG_OPT_JSON(&opt.json),
	{ "lr", 0, NG_OPT_DOUBLE, &opt.lr, 0, 0, "x", "rate" },
	{ "memory", 0, NG_OPT_SIZE, &opt.memory, 0, 0, "size", "memory" },
	NG_OPT_OUTPUT(&opt.output),
	NG_OPT_QUIET,
	{ "steps", 0, NG_OPT_LONG, &opt.steps, 1, 100, "n", "steps (default 5)" },
	NG_OPT_VERBOSE,
	{ "wait", 0, NG_OPT_DURATION, &opt.wait, 0, 0, "time", "wait" },
	NG_OPT_END,
};

static char out[8192];

/* Exit code of the child; what it printed (both streams) in out. */
static int run(void (*then)(int first, char **argv), const char *args)
{
	char line[512], *argv[32] = { 0 }, *word, *save = NULL;
	int argc = 0, fd[2], status;
	ptrdiff_t n;
	pid_t pid;

	snprintf(line, sizeof line, "prog %s", args);
	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	fflush(stdout);
	if (pipe(fd) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(fd[1], 1);
		dup2(fd[1], 2);
		close(fd[0]);
		close(fd[1]);
		memset(&opt, 0, sizeof opt);
		opt.steps = 5;
		ng_start("/x/prog");
		then(ng_opt_parse(argc, argv, "[-j] -d file ...\n--list", options), argv);
		exit(ng_finish(NG_OK));
	}
	close(fd[1]);
	n = ng_read_full(fd[0], out, sizeof out - 1);
	out[n > 0 ? n : 0] = 0;
	close(fd[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void show(int first, char **argv)
{
	size_t i;

	printf("board=%s output=%s json=%d steps=%ld lr=%g memory=%llu wait=%lld verbosity=%d data=",
		opt.board ? opt.board : "", opt.output ? opt.output : "", opt.json, opt.steps, opt.lr,
		(unsigned long long)opt.memory, opt.wait, ng_verbosity);
	for (i = 0; i < opt.data.n; i++)
		printf("%s,", opt.data.item[i]);
	printf(" rest=");
	for (; argv[first]; first++)
		printf("%s,", argv[first]);
	printf("\n");
}

static void misuse(const char *args, const char *message)
{
	CHECK_INT_EQ(run(show, args), NG_USAGE);
	if (!CHECK_MSG(strstr(out, message) != NULL, message) ||
		!CHECK(strstr(out, "usage: prog [-j] -d file ...\n") != NULL))
		printf("# got: %s\n", out);
}

int main(void)
{
	unsetenv("NG_BOARD");
	CHECK_INT_EQ(run(show, "-d a x --data=b -j --steps 7 --lr 2e-5 --memory 1G --wait 2m -vv -o f -- -d"), 0);
	CHECK_STR_EQ(out, "board= output=f json=1 steps=7 lr=2e-05 memory=1073741824 wait=120 verbosity=2 data=a,b, "
			  "rest=x,-d,\n");
	CHECK_INT_EQ(run(show, "-q"), 0);
	CHECK_STR_EQ(out, "board= output= json=0 steps=5 lr=0 memory=0 wait=0 verbosity=-1 data= rest=\n");
	setenv("NG_BOARD", "/b", 1);
	CHECK_INT_EQ(run(show, ""), 0);
	CHECK(strncmp(out, "board=/b ", 9) == 0);
	CHECK_INT_EQ(run(show, "-b x"), 0);
	CHECK(strncmp(out, "board=x ", 8) == 0);
	setenv("NG_BOARD", "", 1);
	CHECK_INT_EQ(run(show, ""), 0);
	CHECK(strncmp(out, "board= ", 7) == 0);

	misuse("--steps 0", "prog: error: option '--steps' wants a whole number from 1 to 100, not '0'");
	misuse("--steps 5x", "not '5x'");
	misuse("--steps 5 --steps 6", "option '--steps' is given twice");
	misuse("-o a --output b", "option '--output' is given twice");
	misuse("--lr nan", "option '--lr' wants a number");
	misuse("--memory 1GB", "wants a size such as 700M");
	misuse("--wait 5", "wants a duration such as 90s");
	misuse("--nothing", "'--nothing'");
	misuse("-Z", "unknown option '-Z'");
	misuse("--json=1", "option '--json' takes no argument");
	misuse("-d", "option '-d' needs an argument");
	misuse("--data", "option '--data' needs an argument");

	CHECK_INT_EQ(run(show, "--help"), 0);
	CHECK(strstr(out, "usage: prog [-j] -d file ...\n       prog --list\n") == out);
	CHECK(strstr(out, "\n  -d, --data file             data file") != NULL);
	CHECK(strstr(out, "\n      --help                  show this and exit\n  -j, --json") != NULL);
	CHECK_INT_EQ(run(show, "--version"), 0);
	CHECK(strncmp(out, "prog ", 5) == 0);
	return check_done();
}
