/* out and sig: whole or not at all, whatever happens; and what is left behind. */
#include "common/base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/base/sig.h"
#include "t/unit/check.h"

static char dir[] = "/tmp/ng-out.XXXXXX";
static struct ng_err err;

static char *in(const char *name)
{
	return ng_xasprintf("%s/%s", dir, name);
}

static bool holds(const char *name, const char *want)
{
	char *p = in(name), *text = NULL;
	bool same = ng_file_read(&text, NULL, p, 1000, &err) == 0 && strcmp(text, want) == 0;

	free(p);
	free(text);
	return same;
}

/* temporaries left in dir */
static int litter(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)) != NULL)
		n += strstr(e->d_name, ".ng-") != NULL;
	closedir(d);
	return n;
}

static void whole(void)
{
	char *p = in("a"), *link = in("link");
	struct ng_out out;
	struct stat st;

	umask(027);
	CHECK(ng_out_open(&out, p, &err) == 0);
	fputs("new", out.fp);
	CHECK(!ng_file_exists(p));
	CHECK_INT_EQ(litter(), 1);
	CHECK(ng_out_commit(&out, &err) == 0);
	CHECK(holds("a", "new"));
	CHECK(stat(p, &st) == 0 && (st.st_mode & 0777) == 0640);
	ng_out_abort(&out);
	CHECK(holds("a", "new"));

	CHECK(ng_out_open(&out, p, &err) == 0);
	fputs("other", out.fp);
	ng_out_abort(&out);
	CHECK(holds("a", "new"));

	/* keep: no replacing */
	CHECK(ng_out_open(&out, p, &err) == 0);
	out.keep = true;
	fputs("other", out.fp);
	CHECK(ng_out_commit(&out, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	CHECK(holds("a", "new"));
	unlink(p);
	CHECK(ng_out_open(&out, p, &err) == 0);
	out.keep = true;
	CHECK(ng_out_commit(&out, &err) == 0);
	CHECK(holds("a", ""));

	/* a link stays one */
	CHECK(symlink("a", link) == 0);
	CHECK(ng_out_put(link, "via", 3, 0600, &err) == 0);
	CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(holds("a", "via"));
	CHECK(stat(p, &st) == 0 && (st.st_mode & 0777) == 0600);

	CHECK(ng_out_open(&out, dir, &err) == -1);
	CHECK_INT_EQ(err.code, NG_IOERR);
	CHECK(ng_out_open(&out, "/nonexistent/x", &err) == -1);
	CHECK_INT_EQ(err.code, NG_IOERR);
	CHECK(ng_out_put("/dev/full", "x", 1, 0, &err) == -1);
	CHECK_INT_EQ(err.code, NG_IOERR);
	CHECK(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));
	CHECK_INT_EQ(litter(), 0);
	free(p);
	free(link);
}

static void folders(void)
{
	char *p = in("d"), *inner;
	struct ng_outdir out;

	CHECK(ng_outdir_open(&out, p, &err) == 0);
	inner = ng_xasprintf("%s/sub", out.temp);
	CHECK(mkdir(inner, 0777) == 0);
	free(inner);
	inner = ng_xasprintf("%s/sub/file", out.temp);
	CHECK(ng_out_put(inner, "x", 1, 0, &err) == 0);
	free(inner);
	CHECK(ng_outdir_commit(&out, &err) == 0);
	CHECK(holds("d/sub/file", "x"));
	/* never over what is there, an empty folder neither */
	CHECK(ng_outdir_open(&out, p, &err) == 0);
	CHECK(ng_outdir_commit(&out, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	free(p);
	p = in("empty");
	CHECK(mkdir(p, 0777) == 0);
	CHECK(ng_outdir_open(&out, p, &err) == 0);
	CHECK(ng_outdir_commit(&out, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOTHING);
	CHECK(ng_outdir_open(&out, p, &err) == 0);
	ng_outdir_abort(&out);
	CHECK_INT_EQ(litter(), 0);
	free(p);
}

/* A child that holds a temporary file and a temporary tree and ends in `way`. */
static int child(const char *way)
{
	static struct ng_out out; /* static: no leak for a sanitizer that looks at exit */
	static struct ng_outdir tree;
	char *p = in("victim"), *t = in("tree"), *inner;
	pid_t pid, grandchild;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid != 0) {
		waitpid(pid, &status, 0);
		free(p);
		free(t);
		return status;
	}
	ng_start("child");
	ng_verbosity = -1;
	freopen("/dev/null", "w", stderr);
	if (ng_out_open(&out, p, &err) || ng_outdir_open(&tree, t, &err))
		_exit(99);
	inner = ng_xasprintf("%s/sub", tree.temp);
	mkdir(inner, 0777);
	free(inner);
	inner = ng_xasprintf("%s/sub/file", tree.temp);
	close(open(inner, O_CREAT | O_WRONLY, 0666));
	free(inner);
	free(p);
	free(t);
	if (litter() != 2)
		_exit(98);
	if (strcmp(way, "die") == 0)
		ng_die(NG_DATA, "x");
	if (strcmp(way, "return") == 0)
		exit(ng_finish(NG_OK));
	if (strcmp(way, "term") == 0)
		raise(SIGTERM);
	if (strcmp(way, "pipe") == 0)
		raise(SIGPIPE);
	if (strcmp(way, "chdir") == 0 && chdir("/") == 0)
		raise(SIGINT);
	if (strcmp(way, "fork") == 0) {
		/* a child of the child must not remove what is its parent's */
		grandchild = fork();
		if (grandchild == 0)
			raise(SIGTERM);
		waitpid(grandchild, &status, 0);
		_exit(litter() == 2 ? 0 : 97);
	}
	if (strcmp(way, "defer") == 0) {
		ng_sig_defer();
		raise(SIGTERM);
		if (ng_sig_pending() != SIGTERM || litter() != 2)
			_exit(96);
		raise(SIGTERM); /* the second kills at once */
	}
	if (strcmp(way, "deferred") == 0) {
		ng_sig_defer();
		raise(SIGINT);
		ng_sig_die(ng_sig_pending());
	}
	_exit(95);
}

static void signals(void)
{
	static const struct {
		const char *way;
		int sig;
	} kinds[] = { { "term", SIGTERM }, { "pipe", SIGPIPE }, { "chdir", SIGINT }, { "defer", SIGTERM },
		{ "deferred", SIGINT } };
	int status, left;
	size_t i;

	/* a shell starts what it puts in the background with SIGINT ignored, and we leave ignored ones ignored */
	for (i = 0; i < NG_COUNT(kinds); i++)
		signal(kinds[i].sig, SIG_DFL);
	for (i = 0; i < NG_COUNT(kinds); i++) {
		status = child(kinds[i].way);
		if (!CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == kinds[i].sig, kinds[i].way))
			printf("# status %d\n", status);
		CHECK_INT_EQ(litter(), 0);
	}
	status = child("die");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == NG_DATA);
	CHECK_INT_EQ(litter(), 0);
	status = child("return");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_INT_EQ(litter(), 0);
	status = child("fork");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	left = litter();
	CHECK_INT_EQ(left, 2);
	/* nohup */
	signal(SIGHUP, SIG_IGN);
	ng_start("test");
	raise(SIGHUP);
	CHECK_MSG(true, "an ignored signal stays ignored");
}

int main(void)
{
	if (mkdtemp(dir) == NULL)
		return 1;
	whole();
	folders();
	signals();
	ng_remove_tree(dir);
	return check_done();
}
