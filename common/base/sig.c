/*
 * What is guarded lies in a static table that the handler reads: paths are
 * published by `state` last and withdrawn by it first.  The handler calls only
 * what POSIX allows in one; a directory tree is read with getdents64, because
 * opendir allocates.
 */
#define _DEFAULT_SOURCE /* syscall */
#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/sig.h"
#include "common/base/sig_private.h"

#define SLOTS 64

static struct {
	volatile sig_atomic_t state; /* 1: path is to be removed */
	char *path;
} guarded[SLOTS];
static pid_t owner; /* a forked child must not remove its parent's files */
static volatile sig_atomic_t pending;

#ifdef __linux__
struct dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};

static void remove_entries(int fd, int depth)
{
	_Alignas(8) char buf[2048];
	const struct dirent64 *d;
	long n, at;
	int sub;

	while ((n = syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0)
		for (at = 0; at < n; at += d->reclen) {
			d = (const struct dirent64 *)(const void *)(buf + at);
			if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
				continue;
			if (unlinkat(fd, d->name, 0) == 0 || depth == 0)
				continue;
			sub = openat(fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (sub < 0)
				continue;
			remove_entries(sub, depth - 1);
			close(sub);
			unlinkat(fd, d->name, AT_REMOVEDIR);
		}
}

static void remove_tree(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	remove_entries(fd, 8);
	close(fd);
	rmdir(path);
}
#else
static void remove_tree(const char *path)
{
	rmdir(path);
}
#endif

void ng_sig_cleanup(void)
{
	int i, saved = errno;

	if (owner != 0 && owner == getpid())
		for (i = 0; i < SLOTS; i++) {
			if (!guarded[i].state)
				continue;
			guarded[i].state = 0;
			if (unlink(guarded[i].path) != 0 && (errno == EISDIR || errno == EPERM))
				remove_tree(guarded[i].path);
		}
	errno = saved;
}

static void die_by_signal(int sig)
{
	ng_sig_cleanup();
	raise(sig); /* SA_RESETHAND has put the default back */
}

static void set_pending(int sig)
{
	struct sigaction sa;

	pending = sig;
	/* the second one kills */
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = die_by_signal;
	sa.sa_flags = (int)(SA_RESETHAND | SA_NODEFER);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
}

static void handle(int sig, void (*handler)(int), int flags)
{
	struct sigaction sa, old;

	if (sigaction(sig, NULL, &old) != 0 || old.sa_handler == SIG_IGN)
		return;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = handler;
	sa.sa_flags = flags;
	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);
}

void ng_sig_setup(void)
{
	static const int fatal[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXCPU, SIGALRM, SIGUSR1, SIGUSR2 };
	size_t i;

	for (i = 0; i < NG_COUNT(fatal); i++)
		handle(fatal[i], die_by_signal, (int)(SA_RESETHAND | SA_NODEFER));
	/* a file-size limit is a failed write with a message, not a death */
	signal(SIGXFSZ, SIG_IGN);
}

void ng_sig_block(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, old);
}

void ng_sig_restore(const sigset_t *old)
{
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

int ng_sig_guard(const char *path)
{
	sigset_t old;
	char cwd[4096];
	int i;

	for (i = 0; i < SLOTS; i++)
		if (!guarded[i].state && guarded[i].path == NULL)
			break;
	if (i == SLOTS)
		NG_BUG("more than %d temporaries at once", SLOTS);
	if (path[0] == '/' || getcwd(cwd, sizeof cwd) == NULL)
		cwd[0] = '\0';
	size_t n = strlen(cwd) + strlen(path) + 2;
	guarded[i].path = malloc(n);
	if (guarded[i].path == NULL) {
		/* it is there already, and nobody else knows of it */
		if (unlink(path) != 0)
			remove_tree(path);
		ng_die(NG_OSERR, "out of memory (%zu bytes wanted)", n);
	}
	snprintf(guarded[i].path, n, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
	ng_sig_block(&old);
	owner = getpid();
	guarded[i].state = 1;
	ng_sig_restore(&old);
	return i;
}

void ng_sig_release(int slot)
{
	if (slot < 0 || slot >= SLOTS)
		return;
	guarded[slot].state = 0;
	free(guarded[slot].path);
	guarded[slot].path = NULL;
}

void ng_sig_defer(void)
{
	handle(SIGTERM, set_pending, SA_RESTART);
	handle(SIGINT, set_pending, SA_RESTART);
	handle(SIGHUP, set_pending, SA_RESTART);
}

int ng_sig_pending(void)
{
	return pending;
}

void ng_sig_die(int sig)
{
	struct sigaction sa;
	sigset_t set;

	fflush(NULL);
	ng_sig_cleanup();
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = SIG_DFL;
	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(sig);
	_exit(128 + sig); /* the signal does not kill by default */
}
