/*
 * stream.c - how fast are streams beside zstd itself?
 *
 * usage: stream [MB]           (default 90, the size of all-MiniLM-L6-v2)
 *
 * Writes a frame of normally distributed F32, reads it back, with and without
 * digests, and runs `zstd -dc` and `zstd -1` on the same bytes.  Processor time
 * of this process or of the child, so that a shared machine disturbs little;
 * best of three.  Compare lines of one run, never two runs.
 */
#include "common/base/compat.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/tensor/stream.h"

static struct ng_err err;

static double used(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void check(int rc)
{
	if (rc < 0)
		ng_die_err(&err);
}

static void run(const char *path, char *const argv[])
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int in = open(path, O_RDONLY), out = open("/dev/null", O_WRONLY);
		dup2(in, 0);
		dup2(out, 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0 || status != 0)
		ng_die(NG_UNAVAILABLE, "cannot run %s", argv[0]);
}

static void write_frame(int fd, const struct ng_header *h, const float *x, size_t n, unsigned flags)
{
	struct ng_writer *w;

	check(ng_writer_open_fd(&w, fd, "frame", flags, NULL, &err));
	check(ng_writer_begin(w, h, &err));
	for (size_t at = 0; at < n; at += 1 << 18)
		check(ng_writer_data(w, x + at, (n - at < 1 << 18 ? n - at : 1 << 18) * sizeof *x, &err));
	check(ng_writer_end(w, &err));
	check(ng_writer_close(w, NG_OK, NULL, &err));
}

static void read_frame(const char *path, float *x, size_t n, unsigned flags)
{
	struct ng_stream *s;

	check(ng_stream_open(&s, path, flags, &err));
	check(ng_stream_next(s, &err));
	check(ng_stream_tensor(s, NULL, &err));
	for (size_t at = 0; at < n; at += 1 << 18)
		check(ng_stream_read_f32(s, x, n - at < 1 << 18 ? n - at : 1 << 18, &err));
	check(ng_stream_next(s, &err));
	ng_stream_close(s);
}

int main(int argc, char **argv)
{
	static const char *const name[] = { "read", "read, content digest", "read, object digest", "zstd -dc", "write",
		"write, content digest", "zstd -1" };
	size_t n = (argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 90) * 250000;
	float *x = ng_xarray(n, sizeof *x), *block = ng_xarray(1 << 18, sizeof *block);
	char path[] = "/tmp/ng-perf-XXXXXX", plain[] = "/tmp/ng-perf-XXXXXX";
	int fd = mkstemp(path), pfd = mkstemp(plain), null = open("/dev/null", O_WRONLY);
	struct ng_header h;
	struct ng_frame f;
	uint64_t state = 42, dim = n;
	double best[NG_COUNT(name)];

	ng_start(argv[0]);
	for (size_t i = 0; i < n; i++) { /* the sum of twelve uniform numbers is close enough to normal */
		double sum = -6;
		for (int k = 0; k < 12; k++) {
			state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			sum += (double)(state >> 40) * 0x1p-24;
		}
		x[i] = (float)(sum * 1e-4);
	}
	ng_header_init(&h);
	check(ng_header_add(&h, "w", NG_F32, 1, &dim, &err));
	check(ng_header_finish(&h, &err));
	ng_frame_init(&f);
	snprintf(f.name, sizeof f.name, "perf");
	memset(f.id, 'a', 64);
	f.config = "{}";
	check(ng_frame_fill(&h.meta, &f, &err));
	write_frame(fd, &h, x, n, 0);
	if (write(pfd, x, n * sizeof *x) < 0)
		ng_die_errno(NG_IOERR, "cannot write");
	for (int turn = 0; turn < 3; turn++)
		for (size_t k = 0; k < NG_COUNT(name); k++) {
			char *const dc[] = { "zstd", "-dcq", NULL }, *const one[] = { "zstd", "-1", "-cq",
				"--single-thread", NULL };
			int who = k == 3 || k == 6 ? RUSAGE_CHILDREN : RUSAGE_SELF;
			double start = used(who);
			if (k < 3)
				read_frame(path, block, n, k == 1 ? NG_STREAM_DIGEST : k == 2 ? NG_STREAM_OBJECT : 0);
			else if (k == 3)
				run(path, dc);
			else if (k < 6)
				write_frame(null, &h, x, n, k == 5 ? NG_WRITER_DIGEST : 0);
			else
				run(plain, one);
			double t = used(who) - start;
			if (turn == 0 || t < best[k])
				best[k] = t;
		}
	for (size_t k = 0; k < NG_COUNT(name); k++)
		printf("%-22s %6.0f MB/s  %.2f of zstd\n", name[k], (double)n * 4e-6 / best[k],
			best[k < 4 ? 3 : 6] / best[k]);
	unlink(path);
	unlink(plain);
	return ng_finish(NG_OK);
}
