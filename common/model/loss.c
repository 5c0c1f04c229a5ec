/* loss.c - see loss.h. */
#include "common/base/compat.h"

#include "common/model/loss.h"

#include <math.h>

#include "common/base/mem.h"

#define BLOCK ((size_t)NG_LOSS_BLOCK)
#define TRY(call)                      \
	do {                           \
		if ((status = (call))) \
			goto failed;   \
	} while (0)

size_t ng_loss_work(size_t B, size_t D)
{
	(void)B;
	(void)D;
	return BLOCK * BLOCK + 2 * BLOCK;
}

int ng_loss_begin(const struct ng_loss *l, const struct ng_model *m, size_t *bad, struct ng_err *err)
{
	struct ng_device *dev = m->dev;
	size_t N = l->B * l->columns;
	float *norm = ng_xarray(N, sizeof(*norm));
	int status, rc = -1;

	TRY(dev->normalize(dev, l->e, l->norm, l->e, N, l->D));
	TRY(dev->download(dev, norm, l->norm, N));
	for (size_t i = 0; i < N; i++)
		if (!isfinite(norm[i])) {
			*bad = i;
			free(norm);
			return ng_fail(err, NG_DATA, "a vector is not finite");
		}
	rc = 0;
failed:
	free(norm);
	return rc ? ng_model_device_error(m, status, "cannot compute the loss", err) : 0;
}

struct block {
	const struct ng_loss *l;
	struct ng_device *dev;
	struct ng_ref z, m, s; /* (BLOCK, BLOCK), (BLOCK), (BLOCK) */
	float *host;	       /* (BLOCK, BLOCK) */
};

/* z (R, n) = scale u_row c_col^T */
static int scores(const struct block *b, size_t row, size_t R, size_t col, size_t n)
{
	const struct ng_loss *l = b->l;

	return b->dev->gemm(b->dev, false, true, R, n, l->D, (float)l->scale, ng_at(l->e, row * l->D), l->D,
		ng_at(l->e, (l->B + col) * l->D), l->D, 0, b->z, n);
}

/* Rows row .. row + R: loss of each added to *sum. */
static int block_loss(const struct block *b, size_t row, size_t R, size_t M, double *sum, size_t *bad)
{
	struct ng_device *dev = b->dev;
	double diagonal[NG_LOSS_BLOCK];
	float top[NG_LOSS_BLOCK], total[NG_LOSS_BLOCK];
	int status;

	for (size_t i = 0; i < R; i++) {
		top[i] = -INFINITY;
		total[i] = 0;
	}
	TRY(dev->upload(dev, b->m, top, R));
	TRY(dev->upload(dev, b->s, total, R));
	for (size_t col = 0; col < M; col += BLOCK) {
		size_t n = M - col < BLOCK ? M - col : BLOCK;

		TRY(scores(b, row, R, col, n));
		if (col == row) { /* row is a multiple of BLOCK: the positives of these rows are all here */
			TRY(dev->download(dev, b->host, b->z, R * n));
			for (size_t i = 0; i < R; i++)
				diagonal[i] = (double)b->host[i * n + i];
		}
		TRY(dev->lse_update(dev, b->m, b->s, b->z, R, n));
	}
	TRY(dev->download(dev, top, b->m, R));
	TRY(dev->download(dev, total, b->s, R));
	for (size_t i = 0; i < R; i++) {
		double x = (double)top[i] - diagonal[i] + log((double)total[i]);

		if (!isfinite(x) && *bad == SIZE_MAX)
			*bad = row + i;
		*sum += x;
	}
failed:
	return status;
}

static int block_gradient(const struct block *b, size_t row, size_t R, size_t M)
{
	const struct ng_loss *l = b->l;
	struct ng_device *dev = b->dev;
	float one = (float)(l->scale / (double)l->B);
	int status = 0;

	for (size_t col = 0; col < M; col += BLOCK) {
		size_t n = M - col < BLOCK ? M - col : BLOCK;
		struct ng_ref cand = ng_at(l->e, (l->B + col) * l->D), dcand = ng_at(l->de, (l->B + col) * l->D);

		TRY(scores(b, row, R, col, n));
		TRY(dev->softmax_from_lse(dev, b->z, b->m, b->s, one, R, n));
		if (col == row) {
			TRY(dev->download(dev, b->host, b->z, R * n));
			for (size_t i = 0; i < R; i++)
				b->host[i * n + i] -= one;
			TRY(dev->upload(dev, b->z, b->host, R * n));
		}
		TRY(dev->gemm(
			dev, false, false, R, l->D, n, 1, b->z, n, cand, l->D, 1, ng_at(l->de, row * l->D), l->D));
		TRY(dev->gemm(dev, true, false, n, l->D, R, 1, b->z, n, ng_at(l->e, row * l->D), l->D, 1, dcand, l->D));
	}
failed:
	return status;
}

int ng_loss_run(const struct ng_loss *l, const struct ng_model *m, double *loss, size_t *bad,
	const struct ng_stop *stop, struct ng_err *err)
{
	struct ng_device *dev = m->dev;
	size_t N = l->B * l->columns, M = N - l->B;
	struct block b = { .l = l, .dev = dev, .z = l->work };
	double sum = 0;
	int status, rc = -1;

	b.m = ng_at(l->work, BLOCK * BLOCK);
	b.s = ng_at(b.m, BLOCK);
	b.host = ng_xarray(BLOCK * BLOCK, sizeof(*b.host));
	*bad = SIZE_MAX;
	TRY(dev->zero(dev, l->de, N * l->D));
	for (size_t row = 0; row < l->B; row += BLOCK) {
		size_t R = l->B - row < BLOCK ? l->B - row : BLOCK;

		if (stop && stop->fn && stop->fn(stop->arg)) {
			rc = 1;
			goto out;
		}
		TRY(block_loss(&b, row, R, M, &sum, bad));
		TRY(block_gradient(&b, row, R, M));
	}
	TRY(dev->normalize_bwd(dev, l->de, l->de, l->e, l->norm, N, l->D));
	*loss = sum / (double)l->B;
	if (*bad != SIZE_MAX)
		rc = ng_fail(err, NG_DATA, "the loss is not finite");
	else
		rc = 0;
	goto out;
failed:
	ng_model_device_error(m, status, "cannot compute the loss", err);
out:
	free(b.host);
	return rc;
}
