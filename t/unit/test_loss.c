/*
 * test_loss.c - the ranking loss against a plain double one, over more rows
 * than a block holds, and its stop, its clamp and its errors.
 */
#include "common/base/compat.h"

#include "t/unit/check.h"

#include "common/base/mem.h"
#include "common/model/loss.h"
#include "kernels/philox.h"

static struct ng_device *dev;
static struct ng_model model;
static struct ng_err err;

static double uniform(uint32_t i)
{
	uint32_t c[4] = { i, 1, 2, 3 }, key[2] = { 20240601, 0 };

	ng_philox4x32(c, c, key);
	return c[0] / 2147483648.0 - 1;
}

/* loss and gradient at e (N, D), all in double */
static double plain(double *de, const float *e, size_t B, size_t columns, size_t D, double scale)
{
	size_t N = B * columns, M = N - B;
	double *u = ng_xarray(N * D, sizeof(*u)), *du = ng_xcalloc(N * D, sizeof(*du)), *p = ng_xarray(M, sizeof(*p));
	double *norm = ng_xarray(N, sizeof(*norm)), loss = 0;

	for (size_t i = 0; i < N; i++) {
		double s = 0;

		for (size_t k = 0; k < D; k++)
			s += (double)e[i * D + k] * (double)e[i * D + k];
		norm[i] = sqrt(s) > 1e-12 ? sqrt(s) : 1e-12;
		for (size_t k = 0; k < D; k++)
			u[i * D + k] = (double)e[i * D + k] / norm[i];
	}
	for (size_t i = 0; i < B; i++) {
		double top = -INFINITY, sum = 0;

		for (size_t j = 0; j < M; j++) {
			p[j] = 0;
			for (size_t k = 0; k < D; k++)
				p[j] += scale * u[i * D + k] * u[(B + j) * D + k];
			top = p[j] > top ? p[j] : top;
		}
		for (size_t j = 0; j < M; j++)
			sum += exp(p[j] - top);
		loss += top + log(sum) - p[i];
		for (size_t j = 0; j < M; j++) {
			double g = scale / (double)B * (exp(p[j] - top) / sum - (i == j));

			for (size_t k = 0; k < D; k++) {
				du[i * D + k] += g * u[(B + j) * D + k];
				du[(B + j) * D + k] += g * u[i * D + k];
			}
		}
	}
	for (size_t i = 0; i < N; i++) {
		double dot = 0;

		for (size_t k = 0; k < D; k++)
			dot += du[i * D + k] * u[i * D + k];
		for (size_t k = 0; k < D; k++)
			de[i * D + k] = (du[i * D + k] - u[i * D + k] * dot) / norm[i];
	}
	free(u);
	free(du);
	free(p);
	free(norm);
	return loss / (double)B;
}

struct loss_buffers {
	struct ng_loss l;
	size_t N;
};

static void open_loss(struct loss_buffers *b, const float *e, size_t B, size_t columns, size_t D, double scale)
{
	b->N = B * columns;
	b->l = (struct ng_loss){ .B = B, .columns = columns, .D = D, .scale = scale };
	dev->alloc(dev, &b->l.e, b->N * D);
	dev->alloc(dev, &b->l.de, b->N * D);
	dev->alloc(dev, &b->l.norm, b->N);
	dev->alloc(dev, &b->l.work, ng_loss_work(B, D));
	dev->upload(dev, b->l.e, e, b->N * D);
}

static void close_loss(struct loss_buffers *b)
{
	dev->free(dev, b->l.e);
	dev->free(dev, b->l.de);
	dev->free(dev, b->l.norm);
	dev->free(dev, b->l.work);
}

static bool stop_once(void *arg)
{
	int *left = arg;

	return --*left == 0;
}

static void compare(size_t B, size_t columns, size_t D, double scale, double spread, double near)
{
	size_t N = B * columns, bad;
	float *e = ng_xarray(N * D, sizeof(*e)), *got = ng_xarray(N * D, sizeof(*got));
	double *want = ng_xarray(N * D, sizeof(*want)), loss = 0, diff = 0, size = 0;
	struct loss_buffers b;
	int left = B > NG_LOSS_BLOCK ? 2 : 1;
	struct ng_stop stop = { stop_once, &left };

	/* positives more or less near their anchors, so that the loss is as in training: far below
	 * that single precision has nothing to say, here and in PyTorch */
	for (size_t i = 0; i < N * D; i++)
		e[i] = (float)((i >= B * D && i < 2 * B * D ? near * (double)e[i - B * D] : 0) +
			       spread * uniform((uint32_t)i));
	double ref = plain(want, e, B, columns, D, scale);
	open_loss(&b, e, B, columns, D, scale);
	CHECK_INT_EQ(ng_loss_begin(&b.l, &model, &bad, &err), 0);
	CHECK_INT_EQ(ng_loss_run(&b.l, &model, &loss, &bad, &stop, &err), 1);
	left = 0;
	CHECK_INT_EQ(ng_loss_run(&b.l, &model, &loss, &bad, &stop, &err), 0);
	dev->download(dev, got, b.l.de, N * D);
	for (size_t i = 0; i < N * D; i++) {
		double d = (double)got[i] - want[i];

		diff += d * d;
		size += want[i] * want[i];
	}
	printf("# B %zu, %zu columns, D %zu: loss %.9g, want %.9g; gradient differs by %.3g\n", B, columns, D, loss,
		ref, sqrt(diff / size));
	CHECK_NEAR(loss, ref, 2e-6 * (ref > 1 ? ref : 1));
	CHECK(sqrt(diff) <= 1e-5 * sqrt(size) + 1e-9);
	close_loss(&b);
	free(e);
	free(got);
	free(want);
}

static void test_odd(void)
{
	float e[4 * 3] = { 0, 0, 0, 1, 2, 3, 1, 0, 0, 3, 2, 1 }, de[12];
	double want[12], loss;
	struct loss_buffers b;
	size_t bad = 0;

	/* a zero vector: cosine 0, no NaN */
	open_loss(&b, e, 2, 2, 3, 20);
	CHECK_INT_EQ(ng_loss_begin(&b.l, &model, &bad, &err), 0);
	CHECK_INT_EQ(ng_loss_run(&b.l, &model, &loss, &bad, NULL, &err), 0);
	CHECK_NEAR(loss, plain(want, e, 2, 2, 3, 20), 1e-5);
	dev->download(dev, de, b.l.de, 12);
	CHECK(isfinite(de[0]) && isfinite(de[11]));
	close_loss(&b);
	/* one row without negatives: loss 0, gradient 0 */
	open_loss(&b, e + 3, 1, 2, 3, 20);
	CHECK_INT_EQ(ng_loss_begin(&b.l, &model, &bad, &err), 0);
	CHECK_INT_EQ(ng_loss_run(&b.l, &model, &loss, &bad, NULL, &err), 0);
	CHECK_NEAR(loss, 0, 1e-7);
	close_loss(&b);
	/* NaN in the positive of row 1 is found there */
	e[10] = NAN;
	open_loss(&b, e, 2, 2, 3, 20);
	CHECK_INT_EQ(ng_loss_begin(&b.l, &model, &bad, &err), -1);
	CHECK_INT_EQ(bad, 3);
	CHECK_INT_EQ(err.code, NG_DATA);
	close_loss(&b);
}

int main(void)
{
	if (ng_device_open(&dev, "cpu", 2, NULL, NULL))
		return 1;
	model.dev = dev;
	compare(2, 2, 33, 20, 1, 0.1);
	compare(7, 5, 33, 20, 1, 0.1);
	compare(NG_LOSS_BLOCK, 2, 20, 20, 0.7, 1);
	compare(NG_LOSS_BLOCK + 1, 3, 20, 20, 0.7, 1);
	compare(1027, 2, 33, 50, 0.5, 1);
	test_odd();
	dev->close(dev);
	return check_done();
}
