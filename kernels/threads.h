/*
 * threads.h - kept threads that share out the pieces of one operation.
 *
 * The pieces are handed out as threads become free, so nobody may rely on who
 * does which; whatever depends on the order of pieces is the caller's to put
 * in order afterwards.  A pool serves one caller at a time.
 */
#ifndef NG_THREADS_H
#define NG_THREADS_H

#include <stddef.h>

struct ng_threads;

/* piece is below the count given to run; who is below the number of threads
 * and no two calls that overlap have the same. */
typedef void ng_threads_fn(void *arg, size_t piece, int who);

/* threads counts the caller: 1 starts none.  NULL when none can be started. */
struct ng_threads *ng_threads_new(int threads);
void ng_threads_free(struct ng_threads *pool);
int ng_threads_count(const struct ng_threads *pool);
/* Calls fn for every piece and returns when all are done; all that the pieces
 * wrote is visible to the caller.  work: about how many nanoseconds all pieces
 * take one thread; little of it is done by the caller alone, since waking the
 * others takes longer.  Right within a factor of three is enough. */
void ng_threads_run(struct ng_threads *pool, ng_threads_fn *fn, void *arg, size_t pieces, double work);

#endif
