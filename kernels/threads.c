/*
 * threads.c - see threads.h.
 *
 * A run raises the generation; every worker answers each generation once, even
 * if no piece is left for it, so that the next run cannot begin while someone
 * still looks at the last one.  Waiting is a short spin, then a condition
 * variable: on a shared machine a spinning thread steals from the one it waits
 * for.
 */
#include "kernels/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPINS 2000
#define ALONE 30000.0 /* nanoseconds of work that are not worth waking anyone for */

struct worker {
	struct ng_threads *pool;
	pthread_t thread;
	int who;
};

struct ng_threads {
	int threads; /* the caller included */
	int started;
	struct worker *workers;
	pthread_mutex_t lock;
	pthread_cond_t go, done;
	atomic_uint generation;
	atomic_int busy; /* workers that have not yet answered this generation */
	atomic_bool stop;
	/* of the present run; written before the generation is raised */
	ng_threads_fn *fn;
	void *arg;
	size_t pieces, stride;
	atomic_size_t next;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static void work(struct ng_threads *pool, int who)
{
	for (;;) {
		size_t first = atomic_fetch_add_explicit(&pool->next, pool->stride, memory_order_relaxed);

		if (first >= pool->pieces)
			return;
		size_t end = pool->pieces - first < pool->stride ? pool->pieces : first + pool->stride;
		for (size_t i = first; i < end; i++)
			pool->fn(pool->arg, i, who);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct ng_threads *pool = w->pool;
	unsigned seen = 0;

	for (;;) {
		for (int i = 0; i < SPINS && atomic_load_explicit(&pool->generation, memory_order_acquire) == seen; i++)
			pause_cpu();
		if (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen) {
			pthread_mutex_lock(&pool->lock);
			while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen)
				pthread_cond_wait(&pool->go, &pool->lock);
			pthread_mutex_unlock(&pool->lock);
		}
		seen++;
		if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
			return NULL;
		work(pool, w->who);
		if (atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_acq_rel) == 1) {
			pthread_mutex_lock(&pool->lock);
			pthread_cond_signal(&pool->done);
			pthread_mutex_unlock(&pool->lock);
		}
	}
}

static void raise_generation(struct ng_threads *pool)
{
	pthread_mutex_lock(&pool->lock);
	atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
	pthread_cond_broadcast(&pool->go);
	pthread_mutex_unlock(&pool->lock);
}

struct ng_threads *ng_threads_new(int threads)
{
	struct ng_threads *pool = calloc(1, sizeof(*pool));
	sigset_t all, old;

	if (!pool)
		return NULL;
	pool->threads = threads < 1 ? 1 : threads;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->go, NULL);
	pthread_cond_init(&pool->done, NULL);
	if (pool->threads == 1)
		return pool;
	pool->workers = calloc((size_t)pool->threads - 1, sizeof(*pool->workers));
	if (!pool->workers) {
		ng_threads_free(pool);
		return NULL;
	}
	/* signals are the main thread's */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (; pool->started < pool->threads - 1; pool->started++) {
		struct worker *w = &pool->workers[pool->started];

		w->pool = pool;
		w->who = pool->started + 1;
		if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (pool->started < pool->threads - 1) {
		ng_threads_free(pool);
		return NULL;
	}
	return pool;
}

void ng_threads_free(struct ng_threads *pool)
{
	if (!pool)
		return;
	if (pool->started > 0) {
		atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
		raise_generation(pool);
		for (int i = 0; i < pool->started; i++)
			pthread_join(pool->workers[i].thread, NULL);
	}
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->go);
	pthread_mutex_destroy(&pool->lock);
	free(pool->workers);
	free(pool);
}

int ng_threads_count(const struct ng_threads *pool)
{
	return pool->threads;
}

void ng_threads_run(struct ng_threads *pool, ng_threads_fn *fn, void *arg, size_t pieces, double work_ns)
{
	if (pool->started == 0 || pieces < 2 || work_ns < ALONE) {
		for (size_t i = 0; i < pieces; i++)
			fn(arg, i, 0);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	pool->pieces = pieces;
	/* many small pieces: several at a time, yet enough hands-out to even out */
	pool->stride = pieces / ((size_t)pool->threads * 16);
	if (pool->stride == 0)
		pool->stride = 1;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->busy, pool->started, memory_order_relaxed);
	raise_generation(pool);
	work(pool, 0);
	for (int i = 0; i < SPINS && atomic_load_explicit(&pool->busy, memory_order_acquire) > 0; i++)
		pause_cpu();
	if (atomic_load_explicit(&pool->busy, memory_order_acquire) > 0) {
		pthread_mutex_lock(&pool->lock);
		while (atomic_load_explicit(&pool->busy, memory_order_acquire) > 0)
			pthread_cond_wait(&pool->done, &pool->lock);
		pthread_mutex_unlock(&pool->lock);
	}
}
