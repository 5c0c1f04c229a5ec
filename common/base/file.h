/*
 * file.h - reading, folders, locks, free memory: what every program needs of
 * the system.  All descriptors are O_CLOEXEC.
 */
#ifndef NG_FILE_H
#define NG_FILE_H

#include "common/base/err.h"

/* Whole file, NUL added; more than max bytes is NG_DATA; missing is NG_NOINPUT. Caller frees. */
int ng_file_read(char **out, size_t *len, const char *path, size_t max, struct ng_err *err);
int ng_mkdirs(const char *path, unsigned mode, struct ng_err *err); /* like mkdir -p */
int ng_fsync_dir(const char *path);
bool ng_file_exists(const char *path);
/* Recursive removal of a tree we made; symlinks are removed, not followed. 0 or -1 and errno. */
int ng_remove_tree(const char *path);
/* Read or write exactly n bytes; EINTR retried. read returns bytes got (short at EOF) or -1. */
ptrdiff_t ng_read_full(int fd, void *buf, size_t n);
int ng_write_full(int fd, const void *buf, size_t n);

/* An exclusive fcntl lock on path (created 0600), held until release or death.
 * NG_TEMPFAIL and the holder's pid in the text when another holds it. */
int ng_lock(int *out_fd, const char *path, struct ng_err *err);
void ng_unlock(int fd);

/* The state folder: given, else $NG_STATE, else $XDG_STATE_HOME/ng, else
 * ~/.local/state/ng; sub may be NULL; the folder is made 0700. Caller frees. */
int ng_state_path(char **out, const char *given, const char *sub, struct ng_err *err);

/* Bytes that this process may still take: the least of MemAvailable, cgroup
 * v1/v2 limits up the tree, RLIMIT_AS and SLURM_MEM_PER_NODE; *why names the
 * winner ("cgroup", "ulimit -v", "slurm", "free memory"). */
uint64_t ng_memory_limit(const char **why);
/* CPUs allowed by affinity and cgroup quota (rounded up, at least 1). */
int ng_cpu_count(void);
/* The same with /proc and /sys looked for under root (tests). */
uint64_t ng_memory_limit_at(const char *root, const char **why);
int ng_cpu_count_at(const char *root);

#endif
