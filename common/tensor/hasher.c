/*
 * hasher.c - see hasher.h.  A ring of blocks between the caller, who fills
 * them, and one thread, which hashes them in order.
 */
#include "common/base/compat.h"

#include <pthread.h>
#include <signal.h>

#include "common/base/mem.h"
#include "common/tensor/hasher.h"

#define SLOTS 4
#define SLOT (256u << 10)
#define START (1u << 20) /* bytes of a digest that are not worth a thread */

struct ng_hasher {
	struct ng_hash hash; /* the thread's while blocks are in the ring */
	bool want, running;
	uint64_t total;
	size_t fill; /* of the caller's block, slot[put % SLOTS] */
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	unsigned put, done; /* blocks handed over, blocks hashed */
	bool stop;
	size_t len[SLOTS];
	unsigned char *slot[SLOTS];
};

static void *work(void *arg)
{
	struct ng_hasher *h = arg;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		while (h->done == h->put && !h->stop)
			pthread_cond_wait(&h->changed, &h->lock);
		if (h->done == h->put)
			break;
		unsigned i = h->done % SLOTS;
		pthread_mutex_unlock(&h->lock);
		ng_hash_update(&h->hash, h->slot[i], h->len[i]);
		pthread_mutex_lock(&h->lock);
		h->done++;
		pthread_cond_broadcast(&h->changed);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

struct ng_hasher *ng_hasher_new(bool thread)
{
	struct ng_hasher *h = ng_xcalloc(1, sizeof *h);

	h->want = thread;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->changed, NULL);
	ng_hash_init(&h->hash);
	return h;
}

/* Wait until the ring holds at most n blocks. */
static void wait_for(struct ng_hasher *h, unsigned n)
{
	while (h->put - h->done > n)
		pthread_cond_wait(&h->changed, &h->lock);
}

void ng_hasher_free(struct ng_hasher *h)
{
	if (!h)
		return;
	if (h->running) {
		pthread_mutex_lock(&h->lock);
		h->stop = true;
		pthread_cond_broadcast(&h->changed);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
	}
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->changed);
	for (int i = 0; i < SLOTS; i++)
		free(h->slot[i]);
	free(h);
}

void ng_hasher_init(struct ng_hasher *h)
{
	if (h->running) { /* a digest that was given up may still be under way */
		pthread_mutex_lock(&h->lock);
		wait_for(h, 0);
		pthread_mutex_unlock(&h->lock);
	}
	h->fill = 0;
	h->total = 0;
	ng_hash_init(&h->hash);
}

static void start(struct ng_hasher *h)
{
	sigset_t all, old;

	for (int i = 0; i < SLOTS; i++)
		h->slot[i] = ng_xmalloc(SLOT);
	/* signals are for the thread that knows what to do */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	h->running = pthread_create(&h->thread, NULL, work, h) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!h->running) {
		h->want = false;
		for (int i = 0; i < SLOTS; i++) {
			free(h->slot[i]);
			h->slot[i] = NULL;
		}
	}
}

/* The caller's block is full, or the last: hand it over, and have room for the next. */
static void hand_over(struct ng_hasher *h, unsigned left)
{
	pthread_mutex_lock(&h->lock);
	h->len[h->put % SLOTS] = h->fill;
	h->put++;
	pthread_cond_broadcast(&h->changed);
	wait_for(h, left);
	pthread_mutex_unlock(&h->lock);
	h->fill = 0;
}

void ng_hasher_update(struct ng_hasher *h, const void *data, size_t len)
{
	const unsigned char *p = data;

	h->total += len;
	if (h->want && !h->running && h->total > START)
		start(h);
	if (!h->running) {
		ng_hash_update(&h->hash, p, len);
		return;
	}
	while (len > 0) {
		size_t n = SLOT - h->fill < len ? SLOT - h->fill : len;
		memcpy(h->slot[h->put % SLOTS] + h->fill, p, n);
		h->fill += n;
		p += n;
		len -= n;
		if (h->fill == SLOT)
			hand_over(h, SLOTS - 1);
	}
}

void ng_hasher_final(struct ng_hasher *h, char hex[NG_HASH_HEX])
{
	if (h->running)
		hand_over(h, 0);
	ng_hash_final(&h->hash, hex);
}
