/*
 * cpu_rows_impl.h - the operations that go through rows or flat vectors.
 * Included once by each cpu_ops_*.c after cpu_vec.h; see cpu_ops.h.
 */
#include "kernels/cpu_ops.h"

#define COLSUM NG_CPU_COLSUM
#define CHUNK 512 /* channels whose dropout factors are held at once */
#define FACTORS (CHUNK + 64)

static void fill_rows(float *y, size_t ldy, const float *b, size_t rows, size_t cols)
{
	for (size_t r = 0; r < rows; r++) {
		if (b)
			memcpy(y + r * ldy, b, cols * sizeof(float));
		else
			memset(y + r * ldy, 0, cols * sizeof(float));
	}
}

INLINE vf gelu_tanh_gate(vf x, vf *gate_d)
{
	/* x Phi'(x) by tanh: 0.5 (1 + tanh u) = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
	vf x2 = x * x;
	vf u2 = x * vfma(x2, vset(2.0f * 0.7978845608f * 0.044715f), vset(2.0f * 0.7978845608f));
	vf e = vexp(-vmin(vset(80.0f), vabs(u2)));
	vf big = 1.0f / (1.0f + e);
	vf s = vsel(u2 > 0.0f, big, e * big);

	/* s (1 - s) = e / (1 + e)^2 */
	*gate_d = e * big * big * vfma(x2, vset(6.0f * 0.7978845608f * 0.044715f), vset(2.0f * 0.7978845608f));
	return s;
}

INLINE vf act_one(vf x, enum ng_act act)
{
	vf cdf, pdf;

	switch (act) {
	case NG_ACT_TANH:
		return vtanh(x);
	case NG_ACT_GELU:
		vnormal(x, &cdf, &pdf);
		return x * cdf;
	case NG_ACT_GELU_TANH:
		return x * gelu_tanh_gate(x, &pdf);
	case NG_ACT_RELU:
		return vmax(vset(0.0f), x);
	case NG_ACT_NONE:
		break;
	}
	return x;
}

INLINE vf act_slope(vf x, enum ng_act act)
{
	vf cdf, pdf;

	switch (act) {
	case NG_ACT_TANH:
		cdf = vtanh(x);
		return 1.0f - cdf * cdf;
	case NG_ACT_GELU:
		vnormal(x, &cdf, &pdf);
		return vfma(x, pdf, cdf);
	case NG_ACT_GELU_TANH:
		cdf = gelu_tanh_gate(x, &pdf);
		return vfma(x, pdf, cdf);
	case NG_ACT_RELU:
		/* NaN comes through; 0 at 0 as PyTorch */
		return vsel(x > 0.0f, vset(1.0f), x * 0.0f);
	case NG_ACT_NONE:
		break;
	}
	return vset(1.0f);
}

INLINE void act_all(float *y, const float *pre, size_t n, enum ng_act act)
{
	for (size_t i = 0; i < n; i += NG_VL)
		vput(y + i, act_one(vget(pre + i, n - i), act), n - i);
}

INLINE void act_bwd_all(float *dpre, const float *dy, const float *pre, size_t n, enum ng_act act)
{
	for (size_t i = 0; i < n; i += NG_VL)
		vput(dpre + i, vget(dy + i, n - i) * act_slope(vget(pre + i, n - i), act), n - i);
}

/* a loop for each activation, so that none is chosen inside one */
#define EACH_ACT(call)                  \
	switch (act) {                  \
	case NG_ACT_TANH:               \
		call(NG_ACT_TANH);      \
		break;                  \
	case NG_ACT_GELU:               \
		call(NG_ACT_GELU);      \
		break;                  \
	case NG_ACT_GELU_TANH:          \
		call(NG_ACT_GELU_TANH); \
		break;                  \
	case NG_ACT_RELU:               \
		call(NG_ACT_RELU);      \
		break;                  \
	case NG_ACT_NONE:               \
		call(NG_ACT_NONE);      \
		break;                  \
	}

static void act_rows(float *y, const float *pre, size_t n, enum ng_act act)
{
#define CALL(a) act_all(y, pre, n, a)
	EACH_ACT(CALL)
#undef CALL
}

static void act_bwd(float *dpre, const float *dy, const float *pre, size_t n, enum ng_act act)
{
#define CALL(a) act_bwd_all(dpre, dy, pre, n, a)
	EACH_ACT(CALL)
#undef CALL
}

/* At most COLSUM columns; in blocks of 128 rows, so that the error grows with T / 128 and not T. */
static void colsum(float *db, const float *dy, size_t ld, size_t T, size_t cols)
{
	vf total[COLSUM / NG_VL], sum[COLSUM / NG_VL];

	memset(total, 0, sizeof(total));
	for (size_t t0 = 0; t0 < T; t0 += NG_PIECE) {
		size_t t1 = T - t0 < NG_PIECE ? T : t0 + NG_PIECE;

		memset(sum, 0, sizeof(sum));
		for (size_t t = t0; t < t1; t++)
			for (size_t c = 0; c < cols; c += NG_VL)
				sum[c / NG_VL] += vget(dy + t * ld + c, cols - c);
		for (size_t c = 0; c < cols; c += NG_VL)
			total[c / NG_VL] += sum[c / NG_VL];
	}
	for (size_t c = 0; c < cols; c += NG_VL)
		vput(db + c, vget(db + c, cols - c) + total[c / NG_VL], cols - c);
}

static void embed(float *x, const int32_t *ids, const int32_t *pos, const float *wte, const float *wpe,
	const float *wtt, size_t t0, size_t t1, size_t C)
{
	for (size_t t = t0; t < t1; t++) {
		const float *w = wte + (size_t)ids[t] * C;
		const float *p = wpe ? wpe + (size_t)pos[t] * C : NULL;

		for (size_t c = 0; c < C; c += NG_VL) {
			size_t left = C - c;
			vf v = vget(w + c, left);

			/* word + type first, as PyTorch adds them */
			if (wtt)
				v += vget(wtt + c, left);
			if (p)
				v += vget(p + c, left);
			vput(x + t * C + c, v, left);
		}
	}
}

static void embed_bwd(float *dwte, float *dwpe, float *dwtt, const float *dx, const int32_t *ids, const int32_t *pos,
	size_t T, size_t C, size_t c0, size_t c1)
{
	for (size_t t = 0; t < T; t++) {
		float *w = dwte ? dwte + (size_t)ids[t] * C : NULL;
		float *p = dwpe ? dwpe + (size_t)pos[t] * C : NULL;

		for (size_t c = c0; c < c1; c += NG_VL) {
			size_t left = c1 - c;
			vf d = vget(dx + t * C + c, left);

			if (w)
				vput(w + c, vget(w + c, left) + d, left);
			if (p)
				vput(p + c, vget(p + c, left) + d, left);
		}
	}
	if (dwtt)
		colsum(dwtt + c0, dx + c0, C, T, c1 - c0);
}

/* The sequence that token t is in. */
static size_t find_sequence(const int32_t *cu, size_t S, size_t t)
{
	size_t lo = 0, hi = S;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if ((size_t)cu[mid] <= t)
			lo = mid;
		else
			hi = mid;
	}
	/* the last of those that begin here: empty sequences have no token */
	return lo;
}

/* out[c0..c0+n) = in * dropout; factors of one chunk. */
INLINE void drop_chunk(float *f, size_t c0, size_t n, const struct ng_dropout *d, uint32_t position, uint32_t example)
{
	drop_factors(f, n, d, position, example, d->stream, (uint32_t)(c0 / 8));
}

static void layernorm(const struct ng_ln_args *a, size_t t0, size_t t1)
{
	const size_t C = a->C, whole = C - C % NG_VL;
	const float over = 1.0f / (float)C;
	bool drops = a->drop_x || a->drop_y;
	size_t seq = drops ? find_sequence(a->cu, a->S, t0) : 0;
	float f[FACTORS];

	for (size_t t = t0; t < t1; t++) {
		const float *x = a->x + t * C, *res = a->res ? a->res + t * C : NULL;
		float *y = a->y + t * C, *s = a->s ? a->s + t * C : y;
		uint32_t position = 0, ex_x = 0, ex_y = 0;
		vf sum = { 0 }, sq = { 0 };

		if (drops) {
			while (t >= (size_t)a->cu[seq + 1])
				seq++;
			position = (uint32_t)(t - (size_t)a->cu[seq]);
			ex_x = a->drop_x ? (uint32_t)a->drop_x->example[seq] : 0;
			ex_y = a->drop_y ? (uint32_t)a->drop_y->example[seq] : 0;
		}
		for (size_t c0 = 0; c0 < C; c0 += CHUNK) {
			size_t n = C - c0 < CHUNK ? C - c0 : CHUNK;

			if (a->drop_x)
				drop_chunk(f, c0, n, a->drop_x, position, ex_x);
			for (size_t i = 0; i < n; i += NG_VL) {
				size_t c = c0 + i, left = n - i;
				vf v = vget(x + c, left);

				if (a->drop_x)
					v *= vload(f + i);
				if (res)
					v += vget(res + c, left);
				vput(s + c, v, left);
				sum += v;
			}
		}
		const float mean = vsum(sum) * over;
		for (size_t c = 0; c < whole; c += NG_VL) {
			vf v = vload(s + c) - mean;

			sq = vfma(v, v, sq);
		}
		float var = vsum(sq);
		for (size_t c = whole; c < C; c++)
			var += (s[c] - mean) * (s[c] - mean);
		const float rstd = 1.0f / sqrtf(var * over + a->eps);
		if (a->mean)
			a->mean[t] = mean;
		if (a->rstd)
			a->rstd[t] = rstd;
		for (size_t c0 = 0; c0 < C; c0 += CHUNK) {
			size_t n = C - c0 < CHUNK ? C - c0 : CHUNK;

			if (a->drop_y)
				drop_chunk(f, c0, n, a->drop_y, position, ex_y);
			for (size_t i = 0; i < n; i += NG_VL) {
				size_t c = c0 + i, left = n - i;
				vf v = (vget(s + c, left) - mean) * rstd;

				v = vfma(v, vget(a->gamma + c, left), vget(a->beta + c, left));
				if (a->drop_y)
					v *= vload(f + i);
				vput(y + c, v, left);
			}
		}
	}
}

static void layernorm_bwd(const struct ng_ln_args *a, size_t t0, size_t t1, float *part)
{
	const size_t C = a->C;
	const float over = 1.0f / (float)C;
	bool drops = a->drop_x || a->drop_y;
	size_t seq = drops ? find_sequence(a->cu, a->S, t0) : 0;
	float f[FACTORS];

	if (part)
		memset(part, 0, 2 * C * sizeof(float));
	for (size_t t = t0; t < t1; t++) {
		const float *dy = a->dy + t * C, *s = a->sin + t * C;
		float *ds = a->ds + t * C, *dx = a->dx ? a->dx + t * C : NULL;
		const float mean = a->mean_in[t], rstd = a->rstd_in[t];
		uint32_t position = 0, ex_x = 0, ex_y = 0;
		vf sum = { 0 }, dot = { 0 };

		if (drops) {
			while (t >= (size_t)a->cu[seq + 1])
				seq++;
			position = (uint32_t)(t - (size_t)a->cu[seq]);
			ex_x = a->drop_x ? (uint32_t)a->drop_x->example[seq] : 0;
			ex_y = a->drop_y ? (uint32_t)a->drop_y->example[seq] : 0;
		}
		/* ds holds dy past its dropout until the second pass */
		for (size_t c0 = 0; c0 < C; c0 += CHUNK) {
			size_t n = C - c0 < CHUNK ? C - c0 : CHUNK;

			if (a->drop_y)
				drop_chunk(f, c0, n, a->drop_y, position, ex_y);
			for (size_t i = 0; i < n; i += NG_VL) {
				size_t c = c0 + i, left = n - i;
				vf d = vget(dy + c, left);
				vf hat = (vget(s + c, left) - mean) * rstd;

				if (a->drop_y)
					d *= vload(f + i);
				vput(ds + c, d, left);
				if (part) {
					vput(part + c, vfma(d, hat, vget(part + c, left)), left);
					vput(part + C + c, vget(part + C + c, left) + d, left);
				}
				d *= vget(a->gamma + c, left); /* 0 past the end */
				sum += d;
				dot = vfma(d, hat, dot);
			}
		}
		const float m1 = vsum(sum) * over, m2 = vsum(dot) * over;
		for (size_t c0 = 0; c0 < C; c0 += CHUNK) {
			size_t n = C - c0 < CHUNK ? C - c0 : CHUNK;

			if (dx)
				drop_chunk(f, c0, n, a->drop_x, position, ex_x);
			for (size_t i = 0; i < n; i += NG_VL) {
				size_t c = c0 + i, left = n - i;
				vf hat = (vget(s + c, left) - mean) * rstd;
				vf d = vget(ds + c, left) * vget(a->gamma + c, left) - m1;

				d = (d - hat * m2) * rstd;
				vput(ds + c, d, left);
				if (dx)
					vput(dx + c, d * vload(f + i), left);
			}
		}
	}
}

/* The weight of the token at position i (from 0) of n pooled ones, the first left out. */
static float pool_weight(enum ng_pool mode, size_t L, size_t first, size_t i)
{
	float n = (float)(L - first);

	switch (mode) {
	case NG_POOL_MEAN:
		return 1.0f / n;
	case NG_POOL_MEAN_SQRT:
		return 1.0f / sqrtf(n);
	case NG_POOL_WEIGHTED:
		/* 1-based positions over their sum */
		return (float)(i + 1) / ((float)(L - first) * 0.5f * (float)(L + first + 1));
	case NG_POOL_CLS:
		return i == first ? 1.0f : 0.0f;
	case NG_POOL_LAST:
		return i == L - 1 ? 1.0f : 0.0f;
	case NG_POOL_MAX:
		break;
	}
	return 0.0f;
}

static void pool(float *e, const float *x, size_t L, size_t first, size_t C, enum ng_pool mode)
{
	size_t i0 = mode == NG_POOL_LAST ? L - 1 : first, i1 = mode == NG_POOL_CLS ? first + 1 : L;

	memset(e, 0, C * sizeof(float));
	if (first >= L)
		return;
	if (mode == NG_POOL_MAX) {
		memcpy(e, x + first * C, C * sizeof(float));
		for (size_t i = first + 1; i < L; i++)
			for (size_t c = 0; c < C; c += NG_VL) {
				vf m = vget(e + c, C - c), v = vget(x + i * C + c, C - c);

				/* a NaN in either stays */
				vput(e + c, vsel((v > m) | (v != v), v, m), C - c);
			}
		return;
	}
	bool even = mode == NG_POOL_MEAN || mode == NG_POOL_MEAN_SQRT;
	float same = pool_weight(mode, L, first, first);
	for (size_t i = i0; i < i1; i++) {
		float w = even ? 1.0f : pool_weight(mode, L, first, i);

		for (size_t c = 0; c < C; c += NG_VL)
			vput(e + c, vfma(vset(w), vget(x + i * C + c, C - c), vget(e + c, C - c)), C - c);
	}
	if (even)
		for (size_t c = 0; c < C; c += NG_VL)
			vput(e + c, vget(e + c, C - c) * same, C - c);
}

static void pool_bwd(float *dx, const float *de, const float *x, size_t L, size_t first, size_t C, enum ng_pool mode,
	bool accumulate)
{
	if (!accumulate)
		memset(dx, 0, L * C * sizeof(float));
	if (first >= L)
		return;
	if (mode == NG_POOL_MAX) {
		for (size_t c = 0; c < C; c++) {
			size_t best = first;

			for (size_t i = first + 1; i < L; i++)
				if (x[i * C + c] > x[best * C + c])
					best = i;
			dx[best * C + c] += de[c];
		}
		return;
	}
	for (size_t i = first; i < L; i++) {
		float w = pool_weight(mode, L, first, i);

		if (w == 0.0f)
			continue;
		for (size_t c = 0; c < C; c += NG_VL)
			vput(dx + i * C + c, vfma(vset(w), vget(de + c, C - c), vget(dx + i * C + c, C - c)), C - c);
	}
}

static void normalize(float *y, float *norm, const float *x, size_t rows, size_t C)
{
	for (size_t r = 0; r < rows; r++) {
		const float *in = x + r * C;
		float *out = y + r * C;
		vf sq = { 0 };

		for (size_t c = 0; c < C; c += NG_VL) {
			vf v = vget(in + c, C - c);

			sq = vfma(v, v, sq);
		}
		float n = sqrtf(vsum(sq));
		float div = n > 1e-12f || n != n ? n : 1e-12f;
		norm[r] = n;
		for (size_t c = 0; c < C; c += NG_VL)
			vput(out + c, vget(in + c, C - c) / div, C - c);
	}
}

static void normalize_bwd(float *dx, const float *dy, const float *y, const float *norm, size_t rows, size_t C)
{
	for (size_t r = 0; r < rows; r++) {
		const float *d = dy + r * C, *u = y + r * C;
		float *out = dx + r * C, n = norm[r];
		/* below the bound the divisor is a constant, so nothing is projected out */
		bool free = n > 1e-12f || n != n;
		float over = 1.0f / (free ? n : 1e-12f);
		vf sum = { 0 };

		for (size_t c = 0; c < C; c += NG_VL)
			sum = vfma(vget(d + c, C - c), vget(u + c, C - c), sum);
		float dot = free ? vsum(sum) : 0.0f;
		for (size_t c = 0; c < C; c += NG_VL)
			vput(out + c, (vget(d + c, C - c) - vget(u + c, C - c) * dot) * over, C - c);
	}
}

static void lse_update(float *m, float *l, const float *z, size_t rows, size_t N)
{
	for (size_t r = 0; r < rows; r++) {
		const float *row = z + r * N;
		const size_t whole = N - N % NG_VL;
		float top = m[r];
		vf best = vset(top), s0 = { 0 }, s1 = { 0 };
		size_t i;

		for (i = 0; i < whole; i += NG_VL)
			best = vmax(best, vload(row + i));
		top = vmaximum(best);
		for (i = whole; i < N; i++)
			top = row[i] > top ? row[i] : top;
		if (top == -INFINITY)
			continue; /* all masked so far */
		for (i = 0; i + 2 * NG_VL <= whole; i += 2 * NG_VL) {
			s0 += vexp(vload(row + i) - top);
			s1 += vexp(vload(row + i + NG_VL) - top);
		}
		if (i < whole)
			s0 += vexp(vload(row + i) - top);
		float sum = vsum(s0 + s1);
		if (whole < N) {
			vf e = vexp(vload_n(row + whole, N - whole) - top);

			for (i = 0; i < N - whole; i++)
				sum += e[i];
		}
		if (l[r] != 0.0f)
			sum += l[r] * expf(m[r] - top);
		m[r] = top;
		l[r] = sum;
	}
}

static void softmax_from_lse(float *z, const float *m, const float *l, float scale, size_t rows, size_t N)
{
	for (size_t r = 0; r < rows; r++) {
		float *row = z + r * N;
		/* a row without any entry that counts stays zero; exp(z - m) / l keeps more than exp(z - (m + log l)) */
		float top = m[r] == -INFINITY ? 0.0f : m[r], k = l[r] == 0.0f ? 0.0f : scale / l[r];

		for (size_t i = 0; i < N; i += NG_VL)
			vput(row + i, vexp(vget(row + i, N - i) - top) * k, N - i);
	}
}

static double sumsq(const float *x, size_t n)
{
	const size_t whole = n - n % NG_VL;
	vd s0 = { 0 }, s1 = { 0 };
	double sum = 0;
	size_t i;

	for (i = 0; i + 2 * NG_VL <= whole; i += 2 * NG_VL) {
		vd a = __builtin_convertvector(vload(x + i), vd);
		vd b = __builtin_convertvector(vload(x + i + NG_VL), vd);

		s0 += a * a;
		s1 += b * b;
	}
	if (i < whole) {
		vd a = __builtin_convertvector(vload(x + i), vd);

		s0 += a * a;
	}
	s0 += s1;
	for (i = 0; i < NG_VL; i++)
		sum += s0[i];
	for (i = whole; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

static void scale_rows(float *x, float a, size_t n)
{
	for (size_t i = 0; i < n; i += NG_VL)
		vput(x + i, vget(x + i, n - i) * a, n - i);
}

static void axpy(float *y, float a, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i += NG_VL)
		vput(y + i, vfma(vset(a), vget(x + i, n - i), vget(y + i, n - i)), n - i);
}

static void adamw(float *w, float *m, float *v, const float *g, size_t n, float lr, float b1, float b2, float eps,
	float wd, float c1, float c2, float gscale)
{
	const float step = lr / c1, root = sqrtf(c2), decay = lr * wd;

	for (size_t i = 0; i < n; i += NG_VL) {
		size_t left = n - i;
		vf wi = vget(w + i, left), mi = vget(m + i, left), vi_ = vget(v + i, left);
		vf gi = vget(g + i, left) * gscale;

		wi -= wi * decay;
		mi = mi * b1 + gi * (1.0f - b1);
		vi_ = vi_ * b2 + gi * gi * (1.0f - b2);
		wi -= mi * step / (vsqrt(vi_) / root + eps);
		vput(w + i, wi, left);
		vput(m + i, mi, left);
		vput(v + i, vi_, left);
	}
}

static void sgd(float *w, float *m, const float *g, size_t n, float lr, float mu, float wd, float gscale)
{
	for (size_t i = 0; i < n; i += NG_VL) {
		size_t left = n - i;
		vf wi = vget(w + i, left), gi = vget(g + i, left) * gscale + wi * wd;

		if (m) {
			gi += vget(m + i, left) * mu;
			vput(m + i, gi, left);
		}
		vput(w + i, wi - gi * lr, left);
	}
}

static void drop_row(
	float *factor, size_t n, const struct ng_dropout *d, uint32_t position, uint32_t example, uint32_t stream)
{
	drop_factors(factor, n, d, position, example, stream, 0);
}

static void exp_all(float *y, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i += NG_VL)
		vput(y + i, vexp(vget(x + i, n - i)), n - i);
}
