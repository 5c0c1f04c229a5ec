#include "common/base/compat.h"

#include <pthread.h>

#include "common/base/mem.h"
#include "common/fed/blocks.h"

struct slot {
	size_t read;		 /* readers done with the block */
	size_t part, parts_done; /* handed out, done */
};

struct plan {
	const struct ng_blocks *work;
	pthread_mutex_t lock;
	pthread_cond_t change;
	size_t *next; /* (readers) the block that each reads next */
	bool *busy;   /* (readers) */
	struct slot slot[NG_BLOCK_SLOTS];
	size_t written; /* blocks done; those under way are written .. written + NG_BLOCK_SLOTS - 1 */
	bool writing;
};

static struct slot *slot_of(struct plan *p, size_t block)
{
	return &p->slot[block % NG_BLOCK_SLOTS];
}

/* Each of the three takes a piece of work if there is one, does it with the lock
 * released, and tells whether it did. */

static bool write_one(struct plan *p)
{
	const struct ng_blocks *w = p->work;

	if (p->writing || p->written == w->blocks || slot_of(p, p->written)->parts_done < w->parts)
		return false;
	p->writing = true;
	pthread_mutex_unlock(&p->lock);
	w->write(w->arg, p->written); /* only the writer changes it */
	pthread_mutex_lock(&p->lock);
	memset(slot_of(p, p->written), 0, sizeof p->slot[0]);
	p->written++;
	p->writing = false;
	return true;
}

static bool sum_one(struct plan *p, size_t block)
{
	const struct ng_blocks *w = p->work;
	struct slot *s = slot_of(p, block);

	if (s->read < w->readers || s->part == w->parts)
		return false;
	size_t part = s->part++;
	pthread_mutex_unlock(&p->lock);
	w->sum(w->arg, part, block);
	pthread_mutex_lock(&p->lock);
	s->parts_done++;
	return true;
}

static bool read_one(struct plan *p, size_t block)
{
	const struct ng_blocks *w = p->work;

	if (slot_of(p, block)->read == w->readers)
		return false;
	for (size_t r = 0; r < w->readers; r++) {
		if (p->busy[r] || p->next[r] != block)
			continue;
		p->busy[r] = true;
		pthread_mutex_unlock(&p->lock);
		w->read(w->arg, r, block);
		pthread_mutex_lock(&p->lock);
		p->busy[r] = false;
		p->next[r]++;
		slot_of(p, block)->read++;
		return true;
	}
	return false;
}

/* What ends a block comes first, then the oldest block. */
static bool any_work(struct plan *p)
{
	size_t end = p->written + NG_BLOCK_SLOTS;

	if (write_one(p))
		return true;
	for (size_t b = p->written; b < end && b < p->work->blocks; b++)
		if (sum_one(p, b))
			return true;
	for (size_t b = p->written; b < end && b < p->work->blocks; b++)
		if (read_one(p, b))
			return true;
	return false;
}

static void worker(void *arg, size_t thread)
{
	struct plan *p = arg;

	(void)thread;
	pthread_mutex_lock(&p->lock);
	while (p->written < p->work->blocks)
		if (any_work(p))
			pthread_cond_broadcast(&p->change);
		else
			pthread_cond_wait(&p->change, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void ng_blocks_run(const struct ng_blocks *work, struct ng_pool *pool)
{
	struct plan p = { .work = work };

	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.change, NULL);
	p.next = ng_xcalloc(work->readers, sizeof *p.next);
	p.busy = ng_xcalloc(work->readers, sizeof *p.busy);
	ng_pool_run(pool, (size_t)ng_pool_threads(pool), worker, &p);
	free(p.next);
	free(p.busy);
	pthread_cond_destroy(&p.change);
	pthread_mutex_destroy(&p.lock);
}
