/* The plan of blocks: order, exclusion, nothing twice, nothing early. */
#include "common/base/compat.h"

#include <pthread.h>

#include "common/fed/blocks.h"
#include "t/unit/check.h"

#define READERS 7
#define BLOCKS 50
#define PARTS 5

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t next_of[READERS], read_of[BLOCKS], sum_of[BLOCKS], written, wrong;
static bool reading[READERS], writing;
static uint32_t state = 7;

/* Uneven pieces of work, so that threads come in every order. */
static void dawdle(void)
{
	pthread_mutex_lock(&lock);
	state = state * 1664525u + 1013904223u;
	uint32_t turns = state >> 20;
	pthread_mutex_unlock(&lock);
	for (volatile uint32_t i = 0; i < turns; i++)
		continue;
}

static void read_one(void *arg, size_t r, size_t b)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	wrong += reading[r] || next_of[r] != b || b >= written + NG_BLOCK_SLOTS;
	reading[r] = true;
	pthread_mutex_unlock(&lock);
	dawdle();
	pthread_mutex_lock(&lock);
	reading[r] = false;
	next_of[r]++;
	read_of[b]++;
	pthread_mutex_unlock(&lock);
}

static void sum_one(void *arg, size_t part, size_t b)
{
	(void)arg;
	dawdle();
	pthread_mutex_lock(&lock);
	wrong += read_of[b] != READERS || part >= PARTS;
	sum_of[b]++;
	pthread_mutex_unlock(&lock);
}

static void write_one(void *arg, size_t b)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	wrong += writing || written != b || sum_of[b] != PARTS;
	writing = true;
	pthread_mutex_unlock(&lock);
	dawdle();
	pthread_mutex_lock(&lock);
	writing = false;
	written++;
	pthread_mutex_unlock(&lock);
}

static void run(int threads, size_t blocks)
{
	const struct ng_blocks work = { blocks, READERS, PARTS, read_one, sum_one, write_one, NULL };
	struct ng_pool *pool = ng_pool_new(threads);
	size_t whole = 0;

	memset(next_of, 0, sizeof next_of);
	memset(read_of, 0, sizeof read_of);
	memset(sum_of, 0, sizeof sum_of);
	written = wrong = 0;
	ng_blocks_run(&work, pool);
	ng_pool_free(pool);
	for (size_t b = 0; b < blocks; b++)
		whole += read_of[b] == READERS && sum_of[b] == PARTS;
	CHECK_INT_EQ(written, blocks);
	CHECK_INT_EQ(whole, blocks);
	CHECK_INT_EQ(wrong, 0);
}

int main(void)
{
	run(1, BLOCKS);
	run(2, BLOCKS);
	run(8, BLOCKS);
	run(3, 1);
	run(2, 0);
	return check_done();
}
