/* ref.c - see ref.h. */
#include "t/ref/ref.h"
#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

double ref_drop(const struct ng_dropout *d, size_t e, size_t position, size_t seq, uint32_t add_to_stream)
{
	if (!d || d->p16 == 0)
		return 1;
	uint32_t key[2] = { d->seed, d->round };
	uint32_t block[4] = { (uint32_t)position << 16 | (uint32_t)(e / 8), (uint32_t)d->example[seq], d->step,
		d->stream + add_to_stream };
	ng_philox4x32(block, block, key);
	uint32_t lane = e % 8 % 2 ? block[e % 8 / 2] >> 16 : block[e % 8 / 2] & 0xffff;
	return lane < d->p16 ? 0 : 65536.0 / (65536.0 - d->p16);
}

double ref_act(double x, enum ng_act act)
{
	switch (act) {
	case NG_ACT_TANH:
		return tanh(x);
	case NG_ACT_GELU:
		return 0.5 * x * erfc(-x / sqrt(2));
	case NG_ACT_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
	case NG_ACT_RELU:
		return x > 0 ? x : 0;
	case NG_ACT_NONE:
		break;
	}
	return x;
}

double ref_act_slope(double x, enum ng_act act)
{
	double t;

	switch (act) {
	case NG_ACT_TANH:
		return 1 - tanh(x) * tanh(x);
	case NG_ACT_GELU:
		return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * PI);
	case NG_ACT_GELU_TANH:
		t = tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x));
		return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / PI) * (1 + 3 * 0.044715 * x * x);
	case NG_ACT_RELU:
		return x > 0 ? 1 : 0;
	case NG_ACT_NONE:
		break;
	}
	return 1;
}

void ref_matmul(double *c, const double *a, bool ta, const double *b, bool tb, size_t M, size_t N, size_t K)
{
	for (size_t i = 0; i < M; i++)
		for (size_t j = 0; j < N; j++) {
			double sum = 0;

			for (size_t k = 0; k < K; k++)
				sum += (ta ? a[k * M + i] : a[i * K + k]) * (tb ? b[j * K + k] : b[k * N + j]);
			c[i * N + j] = sum;
		}
}

void ref_layernorm(double *y, double *s, double *mean, double *rstd, const double *x, const double *res,
	const double *gamma, const double *beta, double eps, const int32_t *cu, size_t S, size_t C,
	const struct ng_dropout *drop_x, const struct ng_dropout *drop_y)
{
	for (size_t q = 0; q < S; q++)
		for (size_t t = (size_t)cu[q]; t < (size_t)cu[q + 1]; t++) {
			size_t pos = t - (size_t)cu[q];
			double m = 0, v = 0;

			for (size_t c = 0; c < C; c++) {
				s[t * C + c] = x[t * C + c] * ref_drop(drop_x, c, pos, q, 0) +
					       (res ? res[t * C + c] : 0);
				m += s[t * C + c] / (double)C;
			}
			for (size_t c = 0; c < C; c++)
				v += (s[t * C + c] - m) * (s[t * C + c] - m) / (double)C;
			mean[t] = m;
			rstd[t] = 1 / sqrt(v + eps);
			for (size_t c = 0; c < C; c++)
				y[t * C + c] = ((s[t * C + c] - m) * rstd[t] * gamma[c] + beta[c]) *
					       ref_drop(drop_y, c, pos, q, 0);
		}
}

void ref_layernorm_bwd(double *ds, double *dx, double *dgamma, double *dbeta, const double *dy, const double *s,
	const double *gamma, double eps, const int32_t *cu, size_t S, size_t C, const struct ng_dropout *drop_x,
	const struct ng_dropout *drop_y)
{
	memset(dgamma, 0, C * sizeof(double));
	memset(dbeta, 0, C * sizeof(double));
	for (size_t q = 0; q < S; q++)
		for (size_t t = (size_t)cu[q]; t < (size_t)cu[q + 1]; t++) {
			size_t pos = t - (size_t)cu[q];
			double m = 0, v = 0, m1 = 0, m2 = 0, r;

			for (size_t c = 0; c < C; c++)
				m += s[t * C + c] / (double)C;
			for (size_t c = 0; c < C; c++)
				v += (s[t * C + c] - m) * (s[t * C + c] - m) / (double)C;
			r = 1 / sqrt(v + eps);
			for (size_t c = 0; c < C; c++) {
				double d = dy[t * C + c] * ref_drop(drop_y, c, pos, q, 0);
				double hat = (s[t * C + c] - m) * r;

				dgamma[c] += d * hat;
				dbeta[c] += d;
				m1 += d * gamma[c] / (double)C;
				m2 += d * gamma[c] * hat / (double)C;
			}
			for (size_t c = 0; c < C; c++) {
				double d = dy[t * C + c] * ref_drop(drop_y, c, pos, q, 0);
				double hat = (s[t * C + c] - m) * r;

				ds[t * C + c] = (d * gamma[c] - m1 - hat * m2) * r;
				dx[t * C + c] = ds[t * C + c] * ref_drop(drop_x, c, pos, q, 0);
			}
		}
}

/* As transformers writes it, in floating point. */
int ref_bucket(long query, long key)
{
	long n = query - key, a = labs(n);
	int base = n < 0 ? 16 : 0;

	if (a < 8)
		return base + (int)a;
	/* the tiny addition keeps exact powers on their side in float64 too */
	int large = 8 + (int)(log((double)a / 8) / log(16) * 8 + 1e-9);
	return base + (large < 15 ? large : 15);
}

static double one_query(double *p, double *f, const double *qkv, const double *bias, size_t t0, size_t L, size_t i,
	size_t C, size_t H, size_t h, size_t seq, const struct ng_dropout *drop)
{
	size_t D = C / H;
	double top = -INFINITY, sum = 0;

	for (size_t j = 0; j < L; j++) {
		double dot = 0;

		for (size_t d = 0; d < D; d++)
			dot += qkv[(t0 + i) * 3 * C + h * D + d] * qkv[(t0 + j) * 3 * C + C + h * D + d];
		p[j] = dot / sqrt((double)D);
		if (bias)
			p[j] += bias[(size_t)ref_bucket((long)i, (long)j) * H + h];
		top = p[j] > top ? p[j] : top;
		f[j] = ref_drop(drop, j, i, seq, (uint32_t)h);
	}
	for (size_t j = 0; j < L; j++)
		sum += p[j] = exp(p[j] - top);
	for (size_t j = 0; j < L; j++)
		p[j] /= sum;
	return top + log(sum);
}

void ref_attention(double *ctx, double *lse, const double *qkv, const double *bias, const int32_t *cu, size_t S,
	size_t C, size_t H, const struct ng_dropout *drop)
{
	size_t D = C / H;

	for (size_t s = 0; s < S; s++) {
		size_t t0 = (size_t)cu[s], L = (size_t)cu[s + 1] - t0;
		double *p = calloc(2 * L + 1, sizeof(double)), *f = p + L;

		for (size_t h = 0; h < H; h++)
			for (size_t i = 0; i < L; i++) {
				double l = one_query(p, f, qkv, bias, t0, L, i, C, H, h, s, drop);

				if (lse)
					lse[(t0 + i) * H + h] = l;
				for (size_t d = 0; d < D; d++) {
					double sum = 0;

					for (size_t j = 0; j < L; j++)
						sum += p[j] * f[j] * qkv[(t0 + j) * 3 * C + 2 * C + h * D + d];
					ctx[(t0 + i) * C + h * D + d] = sum;
				}
			}
		free(p);
	}
}

void ref_attention_bwd(double *dqkv, double *dbias, const double *dctx, const double *qkv, const double *bias,
	const int32_t *cu, size_t S, size_t C, size_t H, const struct ng_dropout *drop)
{
	size_t D = C / H;

	memset(dqkv, 0, (size_t)cu[S] * 3 * C * sizeof(double));
	if (dbias)
		memset(dbias, 0, 32 * H * sizeof(double));
	for (size_t s = 0; s < S; s++) {
		size_t t0 = (size_t)cu[s], L = (size_t)cu[s + 1] - t0;
		double *p = calloc(3 * L + 1, sizeof(double)), *f = p + L, *dp = f + L;

		for (size_t h = 0; h < H; h++)
			for (size_t i = 0; i < L; i++) {
				double dot = 0, scale = 1 / sqrt((double)D);
				size_t qi = (t0 + i) * 3 * C + h * D;

				one_query(p, f, qkv, bias, t0, L, i, C, H, h, s, drop);
				for (size_t j = 0; j < L; j++) {
					size_t vj = (t0 + j) * 3 * C + 2 * C + h * D;

					dp[j] = 0;
					for (size_t d = 0; d < D; d++) {
						double o = dctx[(t0 + i) * C + h * D + d];

						dqkv[vj + d] += p[j] * f[j] * o;
						dp[j] += o * qkv[vj + d] * f[j];
					}
					dot += dp[j] * p[j];
				}
				for (size_t j = 0; j < L; j++) {
					size_t kj = (t0 + j) * 3 * C + C + h * D;
					double ds = p[j] * (dp[j] - dot);

					if (dbias)
						dbias[(size_t)ref_bucket((long)i, (long)j) * H + h] += ds;
					for (size_t d = 0; d < D; d++) {
						dqkv[qi + d] += ds * scale * qkv[kj + d];
						dqkv[kj + d] += ds * scale * qkv[qi + d];
					}
				}
			}
		free(p);
	}
}

/* The weight of position i (from 0) in a sequence of L; MAX is not one. */
static double weight(enum ng_pool mode, size_t L, size_t first, size_t i)
{
	double sum = 0;

	switch (mode) {
	case NG_POOL_MEAN:
		return 1.0 / (double)(L - first);
	case NG_POOL_MEAN_SQRT:
		return 1.0 / sqrt((double)(L - first));
	case NG_POOL_CLS:
		return i == first;
	case NG_POOL_LAST:
		return i == L - 1;
	case NG_POOL_WEIGHTED:
		for (size_t j = first; j < L; j++)
			sum += (double)(j + 1);
		return (double)(i + 1) / sum;
	case NG_POOL_MAX:
		break;
	}
	return 0;
}

static size_t argmax(const double *x, size_t L, size_t first, size_t C, size_t c)
{
	size_t best = first;

	for (size_t i = first; i < L; i++)
		if (x[i * C + c] > x[best * C + c])
			best = i;
	return best;
}

void ref_pool(
	double *e, const double *x, const int32_t *cu, const int32_t *first, size_t S, size_t C, enum ng_pool mode)
{
	for (size_t s = 0; s < S; s++) {
		size_t t0 = (size_t)cu[s], L = (size_t)cu[s + 1] - t0, f = first ? (size_t)first[s] : 0;

		for (size_t c = 0; c < C; c++) {
			e[s * C + c] = 0;
			if (f >= L)
				continue;
			if (mode == NG_POOL_MAX)
				e[s * C + c] = x[(t0 + argmax(x + t0 * C, L, f, C, c)) * C + c];
			else
				for (size_t i = f; i < L; i++)
					e[s * C + c] += weight(mode, L, f, i) * x[(t0 + i) * C + c];
		}
	}
}

void ref_pool_bwd(double *dx, const double *de, const double *x, const int32_t *cu, const int32_t *first, size_t S,
	size_t C, enum ng_pool mode)
{
	memset(dx, 0, (size_t)cu[S] * C * sizeof(double));
	for (size_t s = 0; s < S; s++) {
		size_t t0 = (size_t)cu[s], L = (size_t)cu[s + 1] - t0, f = first ? (size_t)first[s] : 0;

		for (size_t c = 0; c < C && f < L; c++) {
			if (mode == NG_POOL_MAX)
				dx[(t0 + argmax(x + t0 * C, L, f, C, c)) * C + c] = de[s * C + c];
			else
				for (size_t i = f; i < L; i++)
					dx[(t0 + i) * C + c] = weight(mode, L, f, i) * de[s * C + c];
		}
	}
}

static double length(const double *x, size_t C)
{
	double sq = 0;

	for (size_t c = 0; c < C; c++)
		sq += x[c] * x[c];
	return sqrt(sq);
}

void ref_normalize(double *y, const double *x, size_t B, size_t C)
{
	for (size_t b = 0; b < B; b++)
		for (size_t c = 0; c < C; c++)
			y[b * C + c] = x[b * C + c] / fmax(length(x + b * C, C), 1e-12);
}

void ref_normalize_bwd(double *dx, const double *dy, const double *x, size_t B, size_t C)
{
	for (size_t b = 0; b < B; b++) {
		double n = length(x + b * C, C), dot = 0;

		for (size_t c = 0; c < C && n > 1e-12; c++)
			dot += dy[b * C + c] * x[b * C + c] / n;
		for (size_t c = 0; c < C; c++)
			dx[b * C + c] = (dy[b * C + c] - x[b * C + c] / fmax(n, 1e-12) * dot) / fmax(n, 1e-12);
	}
}
