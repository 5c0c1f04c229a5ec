/*
 * pool.h - a few threads that share out numbered items of work and meet again.
 * What is computed must not depend on who computes it: items write to places
 * of their own.
 */
#ifndef NG_FED_POOL_H
#define NG_FED_POOL_H

#include "common/base/compat.h"

struct ng_pool;

/* threads - 1 are started, the caller is the last one.  Fewer when the system
 * gives no more; never fails. */
struct ng_pool *ng_pool_new(int threads);
void ng_pool_free(struct ng_pool *p); /* NULL allowed */
int ng_pool_threads(const struct ng_pool *p);
/* fn(arg, i) for i in 0..n-1, handed out in that order; returns when all are done. */
void ng_pool_run(struct ng_pool *p, size_t n, void (*fn)(void *arg, size_t i), void *arg);

#endif
