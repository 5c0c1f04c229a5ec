#include "common/base/compat.h"

#include <pthread.h>

#include "common/base/mem.h"
#include "common/fed/pool.h"

struct ng_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	pthread_t *thread;
	int threads; /* the caller included */
	void (*fn)(void *arg, size_t i);
	void *arg;
	size_t n, next, finished;
	bool stop;
};

/* Called with the lock held. */
static void take_items(struct ng_pool *p)
{
	while (p->next < p->n) {
		size_t i = p->next++;
		pthread_mutex_unlock(&p->lock);
		p->fn(p->arg, i);
		pthread_mutex_lock(&p->lock);
		if (++p->finished == p->n)
			pthread_cond_signal(&p->done);
	}
}

static void *worker(void *arg)
{
	struct ng_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		take_items(p);
		if (!p->stop)
			pthread_cond_wait(&p->work, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct ng_pool *ng_pool_new(int threads)
{
	struct ng_pool *p = ng_xcalloc(1, sizeof *p);

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	p->thread = ng_xarray(threads > 1 ? (size_t)threads : 1, sizeof *p->thread);
	p->threads = 1;
	while (p->threads < threads && pthread_create(&p->thread[p->threads - 1], NULL, worker, p) == 0)
		p->threads++;
	return p;
}

void ng_pool_free(struct ng_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->threads - 1; i++)
		pthread_join(p->thread[i], NULL);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	free(p->thread);
	free(p);
}

int ng_pool_threads(const struct ng_pool *p)
{
	return p->threads;
}

void ng_pool_run(struct ng_pool *p, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
	if (n == 0)
		return;
	pthread_mutex_lock(&p->lock);
	p->fn = fn;
	p->arg = arg;
	p->n = n;
	p->next = p->finished = 0;
	pthread_cond_broadcast(&p->work);
	take_items(p);
	while (p->finished < n)
		pthread_cond_wait(&p->done, &p->lock);
	p->n = p->next = 0;
	pthread_mutex_unlock(&p->lock);
}
