/*
 * How much memory and how many CPUs this process may use.  Everything is read
 * under a root, so that tests can show another machine.
 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "common/base/compat.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/str.h"

/* The first number after `key` in a small file; key NULL: at the start.
 * "max" and whatever is no number give false. */
static bool number_in(uint64_t *out, const char *path, const char *key)
{
	char *text, *at, *end;
	size_t len;
	bool ok = false;

	if (ng_file_read(&text, &len, path, 1 << 20, NULL))
		return false;
	at = text;
	while (key && at && strncmp(at, key, strlen(key)) != 0) {
		at = strchr(at, '\n');
		if (at)
			at++;
	}
	if (at) {
		if (key)
			at += strlen(key);
		at += strspn(at, " \t:");
		errno = 0;
		*out = strtoull(at, &end, 10);
		ok = end != at && errno == 0 && *at != '-';
	}
	free(text);
	return ok;
}

/* What is under `limit` still free, with pages counted as free that the kernel gives back. */
static void cgroup_memory(uint64_t *least, const char *dir, const char *limit, const char *usage, const char *inactive)
{
	char *p = ng_xasprintf("%s/%s", dir, limit);
	uint64_t max, used, cache;

	if (number_in(&max, p, NULL) && max < UINT64_C(1) << 60) {
		free(p);
		p = ng_xasprintf("%s/%s", dir, usage);
		if (!number_in(&used, p, NULL))
			used = 0;
		free(p);
		p = ng_xasprintf("%s/memory.stat", dir);
		if (number_in(&cache, p, inactive))
			used = used > cache ? used - cache : 0;
		max = max > used ? max - used : 0;
		if (max < *least)
			*least = max;
	}
	free(p);
}

/* "quota period" (v2) or two files (v1): CPUs allowed, rounded up. */
static void cgroup_cpus(uint64_t *least, const char *dir, bool v2)
{
	char *p = ng_xasprintf("%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us");
	uint64_t quota = 0, period = 0, cpus;
	unsigned long long a, b;
	char *text;

	if (v2) {
		if (ng_file_read(&text, NULL, p, 4096, NULL) == 0) {
			if (sscanf(text, "%llu %llu", &a, &b) == 2)
				quota = a, period = b;
			free(text);
		}
	} else if (number_in(&quota, p, NULL)) {
		free(p);
		p = ng_xasprintf("%s/cpu.cfs_period_us", dir);
		if (!number_in(&period, p, NULL))
			period = 0;
	}
	if (quota > 0 && period > 0) {
		cpus = (quota + period - 1) / period;
		if (cpus < *least)
			*least = cpus;
	}
	free(p);
}

enum what { MEMORY, CPUS };

static void look(uint64_t *least, enum what what, const char *dir, bool v2)
{
	if (what == CPUS)
		cgroup_cpus(least, dir, v2);
	else if (v2)
		cgroup_memory(least, dir, "memory.max", "memory.current", "inactive_file");
	else
		cgroup_memory(least, dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
}

/* The group, and every group above it.  In a container the path of
 * /proc/self/cgroup may not exist; the walk then still meets the root. */
static void climb(uint64_t *least, enum what what, const char *mount, const char *path, bool v2)
{
	char *dir = ng_xasprintf("%s%s", mount, path);
	size_t stop = strlen(mount), n = strlen(dir);

	for (;;) {
		while (n > stop && dir[n - 1] == '/')
			n--;
		dir[n] = 0;
		look(least, what, dir, v2);
		if (n <= stop)
			break;
		while (n > stop && dir[n - 1] != '/')
			n--;
	}
	free(dir);
}

static bool has_controller(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (*list) {
		if (strncmp(list, name, n) == 0 && (list[n] == ',' || list[n] == 0))
			return true;
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return false;
}

static uint64_t cgroup_least(const char *root, enum what what)
{
	uint64_t least = UINT64_MAX;
	char *p = ng_xasprintf("%s/proc/self/cgroup", root), *text, *line, *next, *list, *path, *mount;
	const char *controller = what == CPUS ? "cpu" : "memory";

	if (ng_file_read(&text, NULL, p, 1 << 20, NULL)) {
		free(p);
		return least;
	}
	free(p);
	for (line = text; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = 0;
		list = strchr(line, ':');
		path = list ? strchr(list + 1, ':') : NULL;
		if (path == NULL || strstr(path, "/../") != NULL)
			continue;
		*path++ = 0;
		list++;
		if (*list == 0) { /* v2, alone or beside v1 */
			mount = ng_xasprintf("%s/sys/fs/cgroup", root);
			climb(&least, what, mount, path, true);
			free(mount);
			mount = ng_xasprintf("%s/sys/fs/cgroup/unified", root);
			climb(&least, what, mount, path, true);
			free(mount);
		} else if (has_controller(list, controller)) {
			mount = ng_xasprintf("%s/sys/fs/cgroup/%s", root, controller);
			climb(&least, what, mount, path, false);
			free(mount);
			if (what == CPUS) {
				mount = ng_xasprintf("%s/sys/fs/cgroup/cpu,cpuacct", root);
				climb(&least, what, mount, path, false);
				free(mount);
			}
		}
	}
	free(text);
	return least;
}

static void lower(uint64_t *least, const char **why, uint64_t value, const char *name)
{
	if (value < *least) {
		*least = value;
		*why = name;
	}
}

uint64_t ng_memory_limit_at(const char *root, const char **why)
{
	uint64_t least = UINT64_MAX, v, cpus;
	const char *name = "free memory", *env;
	struct rlimit limit;
	char *p = ng_xasprintf("%s/proc/meminfo", root);
	unsigned long long pages = 0, resident = 0;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	long long n;
	char *text;

	if (number_in(&v, p, "MemAvailable:") || number_in(&v, p, "MemFree:"))
		lower(&least, &name, v * 1024, "free memory");
	free(p);
	lower(&least, &name, cgroup_least(root, MEMORY), "cgroup");

	if (ng_file_read(&text, NULL, "/proc/self/statm", 4096, NULL) == 0) {
		if (sscanf(text, "%llu %llu", &pages, &resident) != 2)
			pages = resident = 0;
		free(text);
	}
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		v = (uint64_t)limit.rlim_cur;
		lower(&least, &name, v > pages * page ? v - pages * page : 0, "ulimit -v");
	}
	/* MiB; 0 means all of the node */
	if ((env = getenv("SLURM_MEM_PER_NODE")) != NULL && ng_parse_long(&n, env, 1, 1LL << 40)) {
		v = (uint64_t)n << 20;
		lower(&least, &name, v > resident * page ? v - resident * page : 0, "slurm");
	} else if ((env = getenv("SLURM_MEM_PER_CPU")) != NULL && ng_parse_long(&n, env, 1, 1LL << 40)) {
		long long k = 1;

		v = (uint64_t)n << 20;
		env = getenv("SLURM_CPUS_ON_NODE");
		cpus = env && ng_parse_long(&k, env, 1, 1 << 20) ? (uint64_t)k : 1;
		v = v > UINT64_MAX / cpus ? UINT64_MAX : v * cpus;
		lower(&least, &name, v > resident * page ? v - resident * page : 0, "slurm");
	}
	if (least == UINT64_MAX) { /* no /proc: half of what the machine has */
		long all = sysconf(_SC_PHYS_PAGES);

		least = all > 0 ? (uint64_t)all / 2 * page : UINT64_C(1) << 30;
	}
	if (why)
		*why = name;
	return least;
}

uint64_t ng_memory_limit(const char **why)
{
	return ng_memory_limit_at("", why);
}

int ng_cpu_count_at(const char *root)
{
	uint64_t n = 1, quota;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
	cpu_set_t *set;
	int cpus;

	/* a set of the default size is too small for the largest machines */
	for (cpus = 1024; cpus <= 1 << 18; cpus *= 2) {
		set = CPU_ALLOC((size_t)cpus);
		if (set == NULL)
			break;
		if (sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)cpus), set) == 0) {
			online = CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)cpus), set);
			CPU_FREE(set);
			break;
		}
		CPU_FREE(set);
		if (errno != EINVAL)
			break;
	}
#endif
	if (online > 0)
		n = (uint64_t)online;
	quota = cgroup_least(root, CPUS);
	if (quota < n)
		n = quota;
	return n < 1 ? 1 : n > 1024 ? 1024 : (int)n;
}

int ng_cpu_count(void)
{
	return ng_cpu_count_at("");
}
