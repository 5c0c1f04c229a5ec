/*
 * cpu_attn_impl.h - attention within one sequence and head.
 * Included once by each cpu_ops_*.c after cpu_vec.h; see cpu_ops.h.
 *
 * Forward: for BQ queries at a time, scores against all keys, softmax, times
 * the values.  Backward: the probabilities again from the scores and the kept
 * log-sum-exp, then (Dao et al. 2022, appendix B, without the tiling over
 * keys, which a cache of a CPU does not need)
 *	dV += Pd^T dO,  dS = P (dO V^T f - delta),  dQ = dS K / sqrt(D),  dK += dS^T Q / sqrt(D),
 * f the dropout factors, Pd = P f, delta = sum(dO O).  No more than BQ rows of
 * scores exist at once.
 *
 * All products go through one register tile of MR x PW.  Its second operand
 * lies in panels of PW columns, padded with zeros, so it needs no edge case
 * but the number of rows.
 */
#include "kernels/cpu_ops.h"

#define MR 6
#define PW (2 * NG_VL)
#define BQ 48

INLINE size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* c(R,PW) = (add: +=) sum over k < K of a(r,k) b(k,PW); a(r,k) = a[r * ars + k * acs]. */
INLINE void tile(
	const int R, const float *a, size_t ars, size_t acs, const float *b, float *c, size_t ldc, size_t K, bool add)
{
	vf s[MR][2];

#pragma GCC unroll 6
	for (int r = 0; r < R; r++) {
		s[r][0] = (vf){ 0 };
		s[r][1] = (vf){ 0 };
	}
	for (size_t k = 0; k < K; k++) {
		vf b0 = vload(b), b1 = vload(b + NG_VL);

#pragma GCC unroll 6
		for (int r = 0; r < R; r++) {
			vf x = vset(a[(size_t)r * ars]);

			s[r][0] = vfma(x, b0, s[r][0]);
			s[r][1] = vfma(x, b1, s[r][1]);
		}
		a += acs;
		b += PW;
	}
#pragma GCC unroll 6
	for (int r = 0; r < R; r++) {
		float *out = c + (size_t)r * ldc;

		if (add) {
			s[r][0] += vload(out);
			s[r][1] += vload(out + NG_VL);
		}
		vstore(out, s[r][0]);
		vstore(out + NG_VL, s[r][1]);
	}
}

#define TILES(ars, acs, step)                                           \
	for (; rows >= MR; rows -= MR, a += MR * (step), c += MR * ldc) \
		tile(MR, a, ars, acs, b, c, ldc, K, add);               \
	switch (rows) {                                                 \
	case 5:                                                         \
		tile(5, a, ars, acs, b, c, ldc, K, add);                \
		break;                                                  \
	case 4:                                                         \
		tile(4, a, ars, acs, b, c, ldc, K, add);                \
		break;                                                  \
	case 3:                                                         \
		tile(3, a, ars, acs, b, c, ldc, K, add);                \
		break;                                                  \
	case 2:                                                         \
		tile(2, a, ars, acs, b, c, ldc, K, add);                \
		break;                                                  \
	case 1:                                                         \
		tile(1, a, ars, acs, b, c, ldc, K, add);                \
		break;                                                  \
	}

/* c(rows,PW) = a(rows,K) b(K,PW) */
static void mm(size_t rows, const float *a, size_t lda, const float *b, float *c, size_t ldc, size_t K)
{
	const bool add = false;

	TILES(lda, 1, lda)
}

/* c(rows,PW) (add: +=) a(K,rows)^T b(K,PW) */
static void mm_t(size_t rows, const float *a, size_t lda, const float *b, float *c, size_t ldc, size_t K, bool add)
{
	TILES(1, lda, 1)
}

/* Panels of the columns of x(n,D), row stride ld: out[D/PW][n][PW]. */
static void pack_columns(float *out, const float *x, size_t ld, size_t n, size_t D)
{
	for (size_t d0 = 0; d0 < D; d0 += PW) {
		if (D - d0 >= PW) {
			for (size_t i = 0; i < n; i++, out += PW) {
				vstore(out, vload(x + i * ld + d0));
				vstore(out + NG_VL, vload(x + i * ld + d0 + NG_VL));
			}
		} else {
			for (size_t i = 0; i < n; i++, out += PW) {
				memset(out, 0, PW * sizeof(float));
				memcpy(out, x + i * ld + d0, (D - d0) * sizeof(float));
			}
		}
	}
}

/* Panels of the rows of x(n,D): out[n/PW][D][PW]. */
static void pack_rows(float *out, const float *x, size_t ld, size_t n, size_t D)
{
	for (size_t i0 = 0; i0 < n; i0 += PW, out += D * PW) {
		size_t rows = n - i0 < PW ? n - i0 : PW, i = 0;

#if NG_ISA > 0
		for (; i + 4 <= rows; i += 4) {
			const float *in = x + (i0 + i) * ld;
			size_t d;

			for (d = 0; d + 4 <= D; d += 4) {
				__m128 r0 = _mm_loadu_ps(in + d), r1 = _mm_loadu_ps(in + ld + d);
				__m128 r2 = _mm_loadu_ps(in + 2 * ld + d), r3 = _mm_loadu_ps(in + 3 * ld + d);

				_MM_TRANSPOSE4_PS(r0, r1, r2, r3);
				_mm_storeu_ps(out + d * PW + i, r0);
				_mm_storeu_ps(out + (d + 1) * PW + i, r1);
				_mm_storeu_ps(out + (d + 2) * PW + i, r2);
				_mm_storeu_ps(out + (d + 3) * PW + i, r3);
			}
			for (; d < D; d++)
				for (size_t k = 0; k < 4; k++)
					out[d * PW + i + k] = in[k * ld + d];
		}
#endif
		for (; i < rows; i++)
			for (size_t d = 0; d < D; d++)
				out[d * PW + i] = x[(i0 + i) * ld + d];
		if (rows < PW)
			for (size_t d = 0; d < D; d++)
				memset(out + d * PW + rows, 0, (PW - rows) * sizeof(float));
	}
}

/* MPNet's bucket of a query at i and a key at j, n = i - j (conventions/embedding.md 3.2): exact, since
 * trunc(ln(a/8) / ln(16) * 8) first reaches v at a = 8 * 16^(v/8) = 2^(3 + v/2). */
static size_t bucket_of(long n)
{
	static const int first[] = { 8, 12, 16, 23, 32, 46, 64, 91 };
	size_t base = n < 0 ? 16 : 0, a = (size_t)(n < 0 ? -n : n), b = 8;

	if (a < 8)
		return base + a;
	while (b < 15 && a >= (size_t)first[b - 8 + 1])
		b++;
	return base + b;
}

/* by[j - i + L - 1] = the bias of head h; the rest of the row of 2 L + PW is zero. */
static void spread_bias(float *by, const float *bias, size_t L, size_t H, size_t h)
{
	for (size_t k = 0; k < 2 * L - 1; k++)
		by[k] = bias[bucket_of((long)L - 1 - (long)k) * H + h];
	memset(by + 2 * L - 1, 0, (PW + 1) * sizeof(float));
}

static size_t attention_scratch(size_t L, size_t D, bool backward)
{
	size_t Lp = up(L, PW), Dp = up(D, PW), ld = Lp + 16;
	size_t n = 2 * (Lp * up(D, 16) + Dp * Lp) + 2 * BQ * ld + up(Lp, 64) + 2 * (2 * Lp + 2 * PW) + 4 * BQ * Dp;

	return up(n + (backward ? 2 * Dp * Lp : 0), 16) + 16 * 16;
}

/* Takes n floats, aligned to 64 bytes, from the scratch. */
INLINE float *take(float **scratch, size_t n)
{
	float *p = *scratch;

	*scratch += up(n, 16);
	return p;
}

static void attention(const struct ng_attn_args *a, size_t s, size_t h, float *scratch)
{
	const size_t t0 = (size_t)a->cu[s], L = (size_t)a->cu[s + 1] - t0, D = a->C / a->H, C3 = 3 * a->C;
	const size_t Lp = up(L, PW), Dp = up(D, PW), ld = Lp + 16;
	const float *q = a->qkv + t0 * C3 + h * D, *k = q + a->C, *v = k + a->C;
	const float scale = 1.0f / sqrtf((float)D);
	float *kt = take(&scratch, Lp * D), *vp = take(&scratch, Dp * Lp), *sc = take(&scratch, BQ * ld);
	float *f = take(&scratch, up(Lp, 64)), *by = take(&scratch, 2 * Lp + 2 * PW), *o = take(&scratch, BQ * Dp);
	float inv[BQ];

	if (L == 0)
		return;
	pack_rows(kt, k, C3, L, D);
	pack_columns(vp, v, C3, L, D);
	if (a->bias)
		spread_bias(by, a->bias, L, a->H, h);
	for (size_t i0 = 0; i0 < L; i0 += BQ) {
		const size_t n = L - i0 < BQ ? L - i0 : BQ;

		for (size_t p = 0; p < Lp; p += PW)
			mm(n, q + i0 * C3, C3, kt + p * D, sc + p, ld, D);
		for (size_t i = 0; i < n; i++) {
			float *row = sc + i * ld;
			vf best = vset(-INFINITY), sum = { 0 };

			for (size_t j = L; j < Lp; j++)
				row[j] = -INFINITY;
			if (a->bias) {
				const float *b = by + (L - 1 - (i0 + i));

				for (size_t j = 0; j < Lp; j += NG_VL) {
					vf x = vfma(vload(row + j), vset(scale), vload(b + j));

					best = vmax(best, x);
					vstore(row + j, x);
				}
			} else {
				for (size_t j = 0; j < Lp; j += NG_VL)
					best = vmax(best, vload(row + j));
				best *= scale;
			}
			const float top = vmaximum(best), k1 = a->bias ? 1.0f : scale;
			if (a->drop) {
				drop_factors(f, L, a->drop, (uint32_t)(i0 + i), (uint32_t)a->drop->example[s],
					a->drop->stream + (uint32_t)h, 0);
				for (size_t j = 0; j < Lp; j += NG_VL) {
					vf e = vexp(vfma(vload(row + j), vset(k1), vset(-top)));

					sum += e;
					vstore(row + j, e * vload(f + j));
				}
			} else {
				for (size_t j = 0; j < Lp; j += NG_VL) {
					vf e = vexp(vfma(vload(row + j), vset(k1), vset(-top)));

					sum += e;
					vstore(row + j, e);
				}
			}
			const float total = vsum(sum);
			inv[i] = 1.0f / total;
			if (a->lse)
				a->lse[(t0 + i0 + i) * a->H + h] = top + logf(total);
		}
		for (size_t d = 0; d < Dp; d += PW)
			mm(n, sc, ld, vp + d * L, o + d, Dp, L);
		for (size_t i = 0; i < n; i++) {
			float *out = a->ctx + (t0 + i0 + i) * a->C + h * D;

			for (size_t d = 0; d < D; d += NG_VL)
				vput(out + d, vload(o + i * Dp + d) * inv[i], D - d);
		}
	}
}

static void attention_bwd(const struct ng_attn_args *a, size_t s, size_t h, float *scratch)
{
	const size_t t0 = (size_t)a->cu[s], L = (size_t)a->cu[s + 1] - t0, D = a->C / a->H, C = a->C, C3 = 3 * C;
	const size_t Lp = up(L, PW), Dp = up(D, PW), ld = Lp + 16;
	const float *q = a->qkv + t0 * C3 + h * D, *k = q + C, *v = k + C;
	const float *dctx = a->dctx + t0 * C + h * D, *ctx = a->ctx_in + t0 * C + h * D;
	const float scale = 1.0f / sqrtf((float)D);
	float *kt = take(&scratch, Lp * D), *vt = take(&scratch, Lp * D), *kp = take(&scratch, Dp * Lp);
	float *dk = take(&scratch, Dp * Lp), *dv = take(&scratch, Dp * Lp);
	float *pr = take(&scratch, BQ * ld), *ds = take(&scratch, BQ * ld), *f = take(&scratch, up(Lp, 64));
	float *by = take(&scratch, 2 * Lp + 2 * PW), *dby = take(&scratch, 2 * Lp + 2 * PW);
	float *qp = take(&scratch, BQ * Dp), *dop = take(&scratch, BQ * Dp), *o = take(&scratch, BQ * Dp);
	float *part = a->dbias_parts ? a->dbias_parts + (s * a->H + h) * NG_BUCKETS : NULL;

	if (part)
		memset(part, 0, NG_BUCKETS * sizeof(float));
	if (L == 0)
		return;
	pack_rows(kt, k, C3, L, D);
	pack_rows(vt, v, C3, L, D);
	pack_columns(kp, k, C3, L, D);
	if (a->bias)
		spread_bias(by, a->bias, L, a->H, h);
	if (part)
		memset(dby, 0, (2 * L + PW) * sizeof(float));
	for (size_t i0 = 0; i0 < L; i0 += BQ) {
		const size_t n = L - i0 < BQ ? L - i0 : BQ;

		pack_columns(qp, q + i0 * C3, C3, n, D);
		pack_columns(dop, dctx + i0 * C, C, n, D);
		for (size_t p = 0; p < Lp; p += PW) {
			mm(n, q + i0 * C3, C3, kt + p * D, pr + p, ld, D);
			mm(n, dctx + i0 * C, C, vt + p * D, ds + p, ld, D);
		}
		for (size_t i = 0; i < n; i++) {
			float *prow = pr + i * ld, *drow = ds + i * ld;
			const float lse = a->lse_in[(t0 + i0 + i) * a->H + h];
			const float *b = a->bias ? by + (L - 1 - (i0 + i)) : NULL;
			vf dot = { 0 };

			for (size_t d = 0; d < D; d += NG_VL)
				dot = vfma(
					vget(dctx + (i0 + i) * C + d, D - d), vget(ctx + (i0 + i) * C + d, D - d), dot);
			const float delta = vsum(dot);
			if (a->drop)
				drop_factors(f, L, a->drop, (uint32_t)(i0 + i), (uint32_t)a->drop->example[s],
					a->drop->stream + (uint32_t)h, 0);
			for (size_t j = 0; j < Lp; j += NG_VL) {
				vf x = vfma(vload(prow + j), vset(scale), vset(-lse)), dp = vload(drow + j), e;

				if (b)
					x += vload(b + j);
				e = vexp(x);
				if (a->drop) {
					vf keep = vload(f + j);

					vstore(prow + j, e * keep);
					dp *= keep;
				} else {
					vstore(prow + j, e);
				}
				vstore(drow + j, e * (dp - delta));
			}
			for (size_t j = L; j < Lp; j++)
				prow[j] = drow[j] = 0.0f;
			if (part) {
				float *to = dby + (L - 1 - (i0 + i));

				for (size_t j = 0; j < L; j += NG_VL)
					vstore(to + j, vload(to + j) + vload(drow + j));
			}
		}
		for (size_t d = 0; d < Dp; d += PW) {
			mm_t(L, pr, ld, dop + d * n, dv + d, Dp, n, i0 > 0);
			mm_t(L, ds, ld, qp + d * n, dk + d, Dp, n, i0 > 0);
			mm(n, ds, ld, kp + d * L, o + d, Dp, L);
		}
		for (size_t i = 0; i < n; i++) {
			float *out = a->dqkv + (t0 + i0 + i) * C3 + h * D;

			for (size_t d = 0; d < D; d += NG_VL)
				vput(out + d, vload(o + i * Dp + d) * scale, D - d);
		}
	}
	for (size_t i = 0; i < L; i++) {
		float *out = a->dqkv + (t0 + i) * C3 + h * D;

		for (size_t d = 0; d < D; d += NG_VL) {
			vput(out + C + d, vload(dk + i * Dp + d) * scale, D - d);
			vput(out + 2 * C + d, vload(dv + i * Dp + d), D - d);
		}
	}
	if (part)
		for (size_t kk = 0; kk < 2 * L - 1; kk++)
			part[bucket_of((long)L - 1 - (long)kk)] += dby[kk];
}
