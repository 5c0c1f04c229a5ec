/* mem, err, file, hash, json, sysinfo. */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "t/unit/check.h"

static char dir[] = "/tmp/ng-base.XXXXXX";
static struct ng_err err;

static char *in(const char *name)
{
	return ng_xasprintf("%s/%s", dir, name);
}

static void put(const char *name, const char *text)
{
	char *p = in(name);

	if (ng_out_put(p, text, strlen(text), 0, &err))
		ng_die_err(&err);
	free(p);
}

static void memory(void)
{
	size_t n = 7, cap = 0;
	int *v = NULL;

	CHECK(ng_mul(&n, 3, 5) && n == 15);
	CHECK(!ng_mul(&n, SIZE_MAX / 2, 3));
	CHECK(ng_mul(&n, 0, SIZE_MAX) && n == 0);
	CHECK(ng_add(&n, SIZE_MAX - 1, 1) && n == SIZE_MAX);
	CHECK(!ng_add(&n, SIZE_MAX, 1));
	errno = 0;
	CHECK(ng_try_array(SIZE_MAX / 2, 4) == NULL && errno == ENOMEM);
	for (n = 0; n < 1000; n++) {
		ng_grow(&v, &cap, n + 1, sizeof *v);
		v[n] = (int)n;
	}
	CHECK(v[999] == 999 && cap >= 1000 && cap < 4000);
	free(v);
	v = ng_xaligned(100);
	CHECK(((uintptr_t)v & 63) == 0);
	free(v);
}

static void errors(void)
{
	char subject[3000];

	CHECK_INT_EQ(ng_fail(&err, NG_DATA, "bad '%s'", "a\nb\x1b"), -1);
	CHECK_STR_EQ(err.text, "bad 'a?b?'");
	CHECK_INT_EQ(err.code, NG_DATA);
	errno = ENOSPC;
	CHECK_INT_EQ(ng_fail_errno(&err, NG_NOINPUT, "cannot write 'x'"), -1);
	CHECK_STR_EQ(err.text, "cannot write 'x': No space left on device");
	CHECK_INT_EQ(err.code, NG_IOERR);
	CHECK_INT_EQ(errno, ENOSPC);
	errno = ENOMEM;
	ng_fail_errno(&err, NG_NOINPUT, "x");
	CHECK_INT_EQ(err.code, NG_OSERR);
	errno = ENOENT;
	ng_fail_errno(&err, NG_NOINPUT, "x");
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	ng_fail_prefix(&err, "file '%s'", "y");
	CHECK_STR_EQ(err.text, "file 'y': x: No such file or directory");
	CHECK_INT_EQ(ng_fail(NULL, NG_DATA, "nobody listens"), -1);
	/* a long subject does not push the reason out */
	memset(subject, 'a', sizeof subject - 1);
	subject[sizeof subject - 1] = 0;
	errno = ENOENT;
	ng_fail_errno(&err, NG_NOINPUT, "cannot open '%s'", subject);
	CHECK(strstr(err.text, ": No such file or directory") != NULL);
}

static void files(void)
{
	char *p = in("f"), *text = NULL, *deep = in("a/b/c"), *link = in("a/link"), *target = in("keep");
	size_t len = 0;

	put("f", "hello");
	CHECK(ng_file_read(&text, &len, p, 5, &err) == 0 && len == 5 && strcmp(text, "hello") == 0);
	free(text);
	CHECK(ng_file_read(&text, &len, p, 4, &err) == -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(ng_file_read(&text, &len, "/nonexistent/x", 4, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	CHECK(ng_file_read(&text, &len, dir, 4, &err) == -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	CHECK(ng_file_read(&text, NULL, "/proc/self/stat", 1 << 20, &err) == 0 && strlen(text) > 10);
	free(text);

	CHECK(ng_mkdirs(deep, 0777, &err) == 0 && ng_mkdirs(deep, 0777, &err) == 0 && ng_file_exists(deep));
	free(deep);
	deep = in("f/x");
	CHECK(ng_mkdirs(deep, 0777, &err) == -1);
	CHECK_INT_EQ(err.code, NG_IOERR);
	/* a link out of the tree is removed, not followed */
	put("keep", "x");
	CHECK(symlink(target, link) == 0);
	free(deep);
	deep = in("a");
	CHECK(ng_remove_tree(deep) == 0 && !ng_file_exists(deep) && ng_file_exists(target));
	free(deep);
	free(link);
	free(target);
	free(p);
}

static void locks(void)
{
	char *p = in("lock");
	int fd, other, status;
	pid_t child;

	CHECK(ng_lock(&fd, p, &err) == 0);
	fflush(stdout); /* or a sanitizer that flushes at exit prints it twice */
	child = fork();
	if (child == 0) {
		int code = ng_lock(&other, p, &err) == 0 ? 0 : (int)err.code;
		char want[64];

		snprintf(want, sizeof want, "process %ld", (long)getppid());
		_exit(code == NG_TEMPFAIL && strstr(err.text, want) ? 42 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
	ng_unlock(fd);
	CHECK(ng_lock(&fd, p, &err) == 0);
	ng_unlock(fd);
	free(p);
}

static void state(void)
{
	char *p = in("state"), *xdg = in("xdg"), *got = NULL, *want;
	struct stat st;

	CHECK(ng_state_path(&got, p, "locks", &err) == 0);
	want = in("state/locks");
	CHECK_STR_EQ(got, want);
	CHECK(stat(p, &st) == 0 && (st.st_mode & 0777) == 0700);
	free(got);
	free(want);
	unsetenv("NG_STATE");
	setenv("XDG_STATE_HOME", xdg, 1);
	CHECK(ng_state_path(&got, NULL, NULL, &err) == 0);
	want = in("xdg/ng");
	CHECK_STR_EQ(got, want);
	free(got);
	setenv("NG_STATE", p, 1);
	CHECK(ng_state_path(&got, NULL, NULL, &err) == 0);
	CHECK_STR_EQ(got, p);
	free(got);
	free(want);
	unsetenv("NG_STATE");
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
	CHECK(ng_state_path(&got, NULL, NULL, &err) == -1);
	CHECK_INT_EQ(err.code, NG_USAGE);
	free(p);
	free(xdg);
}

static void hashes(void)
{
	char hex[NG_HASH_HEX], again[NG_HASH_HEX], *p = in("h");

	/* b2sum -l 256 of nothing and of "abc" */
	ng_hash_bytes(hex, "", 0);
	CHECK_STR_EQ(hex, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
	ng_hash_bytes(hex, "abc", 3);
	CHECK_STR_EQ(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
	put("h", "abc");
	CHECK(ng_hash_file(again, p) == 0);
	CHECK_STR_EQ(again, hex);
	CHECK(ng_hash_file(again, "/nonexistent") == -1 && errno == ENOENT);
	CHECK(ng_hash_valid(hex) && !ng_hash_valid("abc"));
	hex[3] = 'G';
	CHECK(!ng_hash_valid(hex));
	free(p);
}

static void refuse_json(const char *text, const char *message)
{
	json_t *v = ng_json_parse(text, strlen(text), "x.json", &err);

	CHECK(v == NULL);
	CHECK_INT_EQ(err.code, NG_DATA);
	if (!CHECK_MSG(strstr(err.text, message) != NULL, message))
		printf("# got: %s\n", err.text);
	json_decref(v);
}

static void json(void)
{
	static const char text[] =
		"{\"b\": 2e-5, \"a\": [1, -0.5, true, null, 1e22, 100.0], \"\\u00fc\": \"x\\n\\u0001/\\\"\"}";
	char deep[300], number[32], *s;
	const char *str = "unset";
	json_t *v, *again;
	double d = 7;
	bool flag = true;
	long n = 3;

	v = ng_json_parse(text, strlen(text), "x", &err);
	CHECK(v != NULL);
	s = ng_json_canonical(v);
	CHECK_STR_EQ(s, "{\"a\":[1,-0.5,true,null,1e+22,100.0],\"b\":2e-05,\"\xc3\xbc\":\"x\\n\\u0001/\\\"\"}");
	again = ng_json_parse(s, strlen(s), "x", &err);
	CHECK(again != NULL && json_equal(v, again));
	json_decref(again);
	free(s);
	CHECK(ng_json_double(&d, v, "b", 0, 1, "x", &err) == 0 && d == 2e-5);
	CHECK(ng_json_double(&d, v, "b", 1, 2, "x", &err) == -1);
	CHECK(ng_json_double(&d, v, "none", 1, 2, "x", &err) == 0 && d == 2e-5);
	CHECK(ng_json_long(&n, v, "b", 0, 10, "x", &err) == -1 && n == 3);
	CHECK_STR_EQ(err.text, "x: 'b' is not a whole number");
	CHECK(ng_json_bool(&flag, v, "a", "x", &err) == -1 && flag);
	CHECK(ng_json_string(&str, v, "\xc3\xbc", "x", &err) == 0 && strlen(str) == 5);
	CHECK(ng_json_string(&str, v, "a", "x", &err) == -1);
	json_decref(v);

	/* "no limit", as transformers writes it */
	static const char big[] =
		"{\"12345678901234567890\": [1000000000000000019884624838656, -12345678901234567890, 7]}";
	v = ng_json_parse(big, strlen(big), "x", &err);
	again = json_object_get(v, "12345678901234567890");
	CHECK(json_is_real(json_array_get(again, 0)) && json_real_value(json_array_get(again, 0)) == 1e30);
	CHECK(json_real_value(json_array_get(again, 1)) == -12345678901234567890.0);
	CHECK(json_integer_value(json_array_get(again, 2)) == 7);
	json_decref(v);
	refuse_json("[1000000000000000019884624838656, 1e999]", "overflow");

	refuse_json("{\"a\":1,\"a\":2}", "duplicate");
	refuse_json("{\"a\":1} x", "line 1, column 9");
	refuse_json("{\"a\":\"\xff\"}", "unable to decode byte 0xff");
	refuse_json("", "line 1");
	memset(deep, '[', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	refuse_json(deep, "nested deeper than 64");

	ng_json_number(number, 0.1);
	CHECK_STR_EQ(number, "0.1");
	ng_json_number(number, (double)NAN);
	CHECK_STR_EQ(number, "null");
	ng_json_number(number, -(double)INFINITY);
	CHECK_STR_EQ(number, "null");
}

/* A machine of files: /proc and /sys under `dir`. */
static void machine(const char *cgroup, const char *const (*file)[2], size_t n)
{
	size_t i;
	char *p;

	p = in("sys");
	ng_remove_tree(p);
	free(p);
	p = in("proc/self");
	ng_mkdirs(p, 0777, &err);
	free(p);
	put("proc/self/cgroup", cgroup);
	put("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n");
	for (i = 0; i < n; i++) {
		char *parent = in(file[i][0]);

		*strrchr(parent, '/') = 0;
		ng_mkdirs(parent, 0777, &err);
		free(parent);
		put(file[i][0], file[i][1]);
	}
}

static void limits(void)
{
	static const char *const v2[][2] = {
		{ "sys/fs/cgroup/memory.max", "max\n" },
		{ "sys/fs/cgroup/job/memory.max", "1000000000\n" },
		{ "sys/fs/cgroup/job/memory.current", "600000000\n" },
		{ "sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 100000000\n" },
		{ "sys/fs/cgroup/job/step/memory.max", "max\n" },
		{ "sys/fs/cgroup/job/cpu.max", "50000 100000\n" },
	};
	static const char *const v1[][2] = {
		{ "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n" },
		{ "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000000\n" },
		{ "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100000000\n" },
		{ "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n" },
		{ "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n" },
	};
	const char *why;
	struct rlimit old, low;
	uint64_t m;

	unsetenv("SLURM_MEM_PER_NODE");
	unsetenv("SLURM_MEM_PER_CPU");
	machine("0::/job/step\n", v2, NG_COUNT(v2));
	CHECK_INT_EQ(ng_memory_limit_at(dir, &why), 500000000);
	CHECK_STR_EQ(why, "cgroup");
	CHECK_INT_EQ(ng_cpu_count_at(dir), 1);
	machine("5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n", v1, NG_COUNT(v1));
	CHECK_INT_EQ(ng_memory_limit_at(dir, &why), 200000000);
	CHECK_STR_EQ(why, "cgroup");
	CHECK(ng_cpu_count_at(dir) >= 1);
	machine("0::/../../x\n", NULL, 0);
	CHECK_INT_EQ(ng_memory_limit_at(dir, &why), 8000000LL * 1024);
	CHECK_STR_EQ(why, "free memory");
	setenv("SLURM_MEM_PER_NODE", "200", 1);
	m = ng_memory_limit_at(dir, &why);
	CHECK(m < 200u << 20);
	CHECK_STR_EQ(why, "slurm");
	unsetenv("SLURM_MEM_PER_NODE");
	if (getenv("NG_SANITIZED")) {
		SKIP("a sanitizer takes all addresses: no ulimit -v");
	} else if (getrlimit(RLIMIT_AS, &old) == 0) {
		low = old;
		low.rlim_cur = (rlim_t)3 << 30;
		CHECK(setrlimit(RLIMIT_AS, &low) == 0);
		m = ng_memory_limit_at(dir, &why);
		CHECK(m > 0 && m < UINT64_C(3) << 30);
		CHECK_STR_EQ(why, "ulimit -v");
		setrlimit(RLIMIT_AS, &old);
	}
	CHECK(ng_memory_limit(&why) > 0 && ng_cpu_count() >= 1);
}

int main(void)
{
	if (mkdtemp(dir) == NULL)
		return 1;
	memory();
	errors();
	files();
	locks();
	state();
	hashes();
	json();
	limits();
	ng_remove_tree(dir);
	return check_done();
}
