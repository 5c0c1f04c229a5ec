/* plan.c - see trainer.h: what memory a step needs, known before the first one. */
#include "common/base/compat.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/model/trainer.h"

#define MARGIN (16u << 20) /* stacks, allocator, the BLAS's own buffers */
#define WORD 4u

uint64_t ng_resident(void)
{
	char buf[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	unsigned long long size = 0, resident = 0;
	long page = sysconf(_SC_PAGESIZE);

	if (fd < 0)
		return 0;
	ptrdiff_t n = ng_read_full(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0 || page <= 0)
		return 0;
	buf[n] = '\0';
	if (sscanf(buf, "%llu %llu", &size, &resident) != 2)
		return 0;
	return (uint64_t)resident * (uint64_t)page;
}

/* Largest grain that may come: full ones are of NG_GRAIN_TOKENS, made of short texts or of few long ones. */
static uint64_t largest_grain(const struct ng_plan_input *in, uint64_t *scratch)
{
	size_t T = in->max_length > NG_GRAIN_TOKENS ? in->max_length : NG_GRAIN_TOKENS;
	size_t S = in->B * in->columns < NG_GRAIN_TOKENS / 2 ? in->B * in->columns : NG_GRAIN_TOKENS / 2;

	if (in->B * in->columns * in->max_length < T)
		T = in->B * in->columns * in->max_length;
	*scratch = (uint64_t)ng_scratch_elements(in->cfg, S, T) * WORD;
	return (uint64_t)ng_acts_elements(in->cfg, S, T, true) * WORD;
}

int ng_plan_make(
	struct ng_plan *out, const struct ng_plan_input *in, uint64_t limit, const char *why, struct ng_err *err)
{
	uint64_t N = (uint64_t)in->B * in->columns, M = 1u << 20;

	memset(out, 0, sizeof(*out));
	out->limit = limit;
	out->why = why;
	out->process = in->process + MARGIN;
	out->gradient = (uint64_t)in->count * WORD;
	out->moments = (uint64_t)in->count * in->moments * WORD;
	out->vectors = (2 * N * in->cfg->dim + N + ng_loss_work(in->B, in->cfg->dim) + NG_LOSS_BLOCK * NG_LOSS_BLOCK) *
		       WORD;
	/* ids, offsets, grains, prompt lengths */
	out->tokens = N * (3 * in->max_length * WORD + 2 * sizeof(size_t) + 2 * WORD + sizeof(struct ng_acts) +
				  in->cfg->layers * sizeof(struct ng_layer_acts));
	out->grain = largest_grain(in, &out->scratch);
	/* a grain holds at least one text, and any two neighbours more than NG_GRAIN_TOKENS */
	uint64_t tokens = N * in->max_length, grains = 2 * tokens / NG_GRAIN_TOKENS + 1;
	grains = grains < N ? grains : N;
	out->batch_activations = (uint64_t)ng_acts_elements(in->cfg, N, tokens, true) * WORD +
				 grains * 64 * (16 + 10 * in->cfg->layers);
	uint64_t fixed = out->process + out->gradient + out->moments + out->vectors + out->tokens + out->scratch +
			 out->grain;
	if (fixed > limit)
		return ng_fail(err, NG_OSERR,
			"%llu MiB of memory (%s) are not enough for this batch and model: %lluM is the least that works",
			(unsigned long long)(limit / M), why, (unsigned long long)((fixed + M - 1) / M));
	out->keep = limit - fixed;
	if (out->grain + out->keep > out->batch_activations)
		out->keep = out->batch_activations > out->grain ? out->batch_activations - out->grain : 0;
	out->total = fixed + out->keep;
	return 0;
}
