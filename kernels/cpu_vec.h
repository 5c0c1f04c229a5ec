/*
 * cpu_vec.h - vectors of floats by the compiler's vector extensions, with
 * intrinsics only where the extensions say it badly (min, max, select, square
 * root, 32 x 32 -> 64 bit products, FMA).
 *
 * Included by the cpu_ops_*.c files, which set NG_VL, the floats in a vector
 * (4 or 8), and NG_ISA, 0 for C alone, 1 for SSE2, 2 for AVX2 and FMA.
 * Whatever the compiler, the operations and their order are those written
 * here, so one CPU type gives one result.
 */
#include "kernels/device.h"
#include "kernels/philox.h"

#include <math.h>
#include <string.h>
#if NG_ISA > 0
#include <immintrin.h>
#endif

#define VB (NG_VL * 4)
typedef float vf __attribute__((vector_size(VB), may_alias));
typedef int32_t vi __attribute__((vector_size(VB), may_alias));
typedef uint32_t vu __attribute__((vector_size(VB), may_alias));
typedef double vd __attribute__((vector_size(VB * 2)));
typedef float vf_any __attribute__((vector_size(VB), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf vload(const float *p)
{
	return *(const vf_any *)p;
}

INLINE void vstore(float *p, vf x)
{
	*(vf_any *)p = x;
}

INLINE vf vset(float a)
{
	return a - (vf){ 0 };
}

/* The first n < NG_VL floats of p, the rest zero. */
INLINE vf vload_n(const float *p, size_t n)
{
	float buf[NG_VL] = { 0 };

	memcpy(buf, p, n * sizeof(float));
	return vload(buf);
}

INLINE void vstore_n(float *p, vf x, size_t n)
{
	float buf[NG_VL];

	vstore(buf, x);
	memcpy(p, buf, n * sizeof(float));
}

/* The same where left may be anything: a whole vector if it is long enough. */
INLINE vf vget(const float *p, size_t left)
{
	return left >= NG_VL ? vload(p) : vload_n(p, left);
}

INLINE void vput(float *p, vf x, size_t left)
{
	if (left >= NG_VL)
		vstore(p, x);
	else
		vstore_n(p, x, left);
}

INLINE vf vsel(vi mask, vf yes, vf no)
{
#if NG_ISA == 2
	return (vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
	return (vf)((mask & (vi)yes) | (~mask & (vi)no));
#endif
}

/* If x is a NaN, so is the result: bound comes first. */
INLINE vf vmax(vf bound, vf x)
{
#if NG_ISA == 2
	return (vf)_mm256_max_ps((__m256)bound, (__m256)x);
#elif NG_ISA == 1
	return (vf)_mm_max_ps((__m128)bound, (__m128)x);
#else
	return vsel(bound > x, bound, x);
#endif
}

INLINE vf vmin(vf bound, vf x)
{
#if NG_ISA == 2
	return (vf)_mm256_min_ps((__m256)bound, (__m256)x);
#elif NG_ISA == 1
	return (vf)_mm_min_ps((__m128)bound, (__m128)x);
#else
	return vsel(bound < x, bound, x);
#endif
}

/* a * b + c; one rounding where there is FMA. */
INLINE vf vfma(vf a, vf b, vf c)
{
#if NG_ISA == 2
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
	return a * b + c;
#endif
}

INLINE vf vsqrt(vf x)
{
#if NG_ISA == 2
	return (vf)_mm256_sqrt_ps((__m256)x);
#elif NG_ISA == 1
	return (vf)_mm_sqrt_ps((__m128)x);
#else
	for (int i = 0; i < NG_VL; i++)
		x[i] = sqrtf(x[i]);
	return x;
#endif
}

INLINE vf vabs(vf x)
{
	return (vf)((vi)x & 0x7fffffff);
}

INLINE float vsum(vf x)
{
#if NG_VL == 8
	return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
#else
	return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

INLINE float vmaximum(vf x)
{
	float m = x[0];

	for (int i = 1; i < NG_VL; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

/*
 * e^x to about 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, a degree 6 minimax
 * polynomial (our fit, 3e-9) and n into the exponent.  Below -87.33, where
 * results would be denormal, 0; from 88.37 on stuck at 2.4e38; NaN stays NaN.
 */
INLINE vf vexp(vf x)
{
	const vf magic = vset(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
	vi tiny = x < -87.33f;
	vf c = vmin(vset(88.37f), vmax(vset(-87.33f), x));
	vf t = vfma(c, vset(1.44269504f), magic);
	vf n = t - magic;
	vf r = vfma(n, vset(-0.693359375f), c);
	vf p;

	r = vfma(n, vset(2.12194440e-4f), r);
	p = vfma(vset(0.00139504812f), r, vset(0.00836888364f));
	p = vfma(p, r, vset(0.041666206f));
	p = vfma(p, r, vset(0.166665189f));
	p = vfma(p, r, vset(0.50000001f));
	p = vfma(p, r * r, r) + 1.0f;
	p = (vf)((vi)p + (((vi)t - 0x4B400000) << 23));
	return (vf)(~tiny & (vi)p);
}

/*
 * The normal distribution: *pdf = e^(-x^2/2) / sqrt(2 pi), *cdf = Phi(x) =
 * (1 + erf(x / sqrt 2)) / 2.  Phi(-|x|) = e^(-x^2/2) q(t), t = 1 / (1 + 0.3 |x|),
 * q our minimax fit of degree 7 (7e-9), the form of Abramowitz and Stegun
 * 7.1.26; the negative side keeps its relative precision.
 */
INLINE void vnormal(vf x, vf *cdf, vf *pdf)
{
	vf a = vabs(x);
	vf e = vexp(x * x * -0.5f);
	vf t = 1.0f / vfma(a, vset(0.3f), vset(1.0f));
	vf q = vfma(vset(0.0377182808f), t, vset(-0.246310122f));

	q = vfma(q, t, vset(0.525502765f));
	q = vfma(q, t, vset(-0.312436666f));
	q = vfma(q, t, vset(0.299750029f));
	q = vfma(q, t, vset(0.0708465641f));
	q = vfma(q, t, vset(0.124929146f));
	q = q * t * e;
	*cdf = vsel(x > 0.0f, 1.0f - q, q);
	*pdf = e * 0.398942280f;
}

/* tanh: an odd polynomial (our fit, 4e-9) below 0.625, 1 - 2 / (e^2x + 1) above. */
INLINE vf vtanh(vf x)
{
	vf a = vabs(x), z = x * x;
	vf far = 1.0f - 2.0f / (vexp(vmin(vset(20.0f), a) * 2.0f) + 1.0f);
	vf near = vfma(vset(-0.00570498493f), z, vset(0.0206390854f));

	near = vfma(near, z, vset(-0.0537397145f));
	near = vfma(near, z, vset(0.133314422f));
	near = vfma(near, z, vset(-0.333332819f));
	near = vfma(near * z, x, x);
	far = (vf)((vi)far | ((vi)x & (vi)vset(-0.0f)));
	return vsel(a < 0.625f, near, far);
}

/* *hi, *lo = a * m, lane by lane. */
INLINE void vmul_wide(vu a, uint32_t m, vu *hi, vu *lo)
{
#if NG_ISA == 2
	__m256i k = _mm256_set1_epi32((int)m);
	__m256i even = _mm256_mul_epu32((__m256i)a, k);
	__m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), k);

	*lo = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
	*hi = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
#elif NG_ISA == 1
	__m128i k = _mm_set1_epi32((int)m);
	__m128i low = _mm_set1_epi64x(0xffffffff);
	__m128i even = _mm_mul_epu32((__m128i)a, k);
	__m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), k);

	*lo = (vu)_mm_or_si128(_mm_and_si128(even, low), _mm_slli_epi64(odd, 32));
	*hi = (vu)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_andnot_si128(low, odd));
#else
	for (int i = 0; i < NG_VL; i++) {
		uint64_t p = (uint64_t)m * a[i];

		(*lo)[i] = (uint32_t)p;
		(*hi)[i] = (uint32_t)(p >> 32);
	}
#endif
}

/*
 * Dropout factors (0 or 65536 / (65536 - p16)) of elements 0..n of one token,
 * as device.h defines them; NG_VL counters at a time.  Writes n rounded up to
 * 8 * NG_VL floats, at most 64 aligned.  block is the first e / 8.
 */
INLINE void drop_factors(float *factor, size_t n, const struct ng_dropout *d, uint32_t position, uint32_t example,
	uint32_t stream, uint32_t block)
{
	const float keep = 65536.0f / (float)(65536 - d->p16);

	for (size_t done = 0; done < n; done += 8 * NG_VL, block += NG_VL) {
		vu c0, c1 = (vu){ 0 } + example, c2 = (vu){ 0 } + d->step, c3 = (vu){ 0 } + stream;
		uint32_t k0 = d->seed, k1 = d->round;

		for (uint32_t i = 0; i < NG_VL; i++)
			c0[i] = position << 16 | (block + i);
		for (int r = 0; r < NG_PHILOX_ROUNDS; r++) {
			vu hi0, lo0, hi1, lo1;

			vmul_wide(c0, NG_PHILOX_M0, &hi0, &lo0);
			vmul_wide(c2, NG_PHILOX_M1, &hi1, &lo1);
			c0 = hi1 ^ c1 ^ k0;
			c1 = lo1;
			c2 = hi0 ^ c3 ^ k1;
			c3 = lo0;
			k0 += NG_PHILOX_W0;
			k1 += NG_PHILOX_W1;
		}
		float *out = factor + done;
#if NG_ISA == 2
		/* words to the order of the elements: a row of each half is one counter's 8 lanes of 16 bits */
		__m256i a = _mm256_unpacklo_epi32((__m256i)c0, (__m256i)c1);
		__m256i b = _mm256_unpackhi_epi32((__m256i)c0, (__m256i)c1);
		__m256i c = _mm256_unpacklo_epi32((__m256i)c2, (__m256i)c3);
		__m256i e = _mm256_unpackhi_epi32((__m256i)c2, (__m256i)c3);
		__m256i rows[4] = { _mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
			_mm256_unpacklo_epi64(b, e), _mm256_unpackhi_epi64(b, e) };
		__m256i least = _mm256_set1_epi16((short)(uint16_t)d->p16);
		__m256 k = _mm256_set1_ps(keep);

		for (int i = 0; i < 4; i++) {
			/* lane >= p16, unsigned: the larger of both is the lane */
			__m256i kept = _mm256_cmpeq_epi16(_mm256_max_epu16(rows[i], least), rows[i]);
			__m256i lo = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(kept));
			__m256i hi = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(kept, 1));

			_mm256_storeu_ps(out + 8 * i, _mm256_and_ps(_mm256_castsi256_ps(lo), k));
			_mm256_storeu_ps(out + 8 * (i + 4), _mm256_and_ps(_mm256_castsi256_ps(hi), k));
		}
#elif NG_ISA == 1
		__m128i a = _mm_unpacklo_epi32((__m128i)c0, (__m128i)c1);
		__m128i b = _mm_unpackhi_epi32((__m128i)c0, (__m128i)c1);
		__m128i c = _mm_unpacklo_epi32((__m128i)c2, (__m128i)c3);
		__m128i e = _mm_unpackhi_epi32((__m128i)c2, (__m128i)c3);
		__m128i rows[4] = { _mm_unpacklo_epi64(a, c), _mm_unpackhi_epi64(a, c), _mm_unpacklo_epi64(b, e),
			_mm_unpackhi_epi64(b, e) };
		__m128i least = _mm_set1_epi16((short)(uint16_t)d->p16);
		__m128 k = _mm_set1_ps(keep);

		for (int i = 0; i < 4; i++) {
			/* lane >= p16, unsigned: nothing is left of p16 - lane */
			__m128i kept = _mm_cmpeq_epi16(_mm_subs_epu16(least, rows[i]), _mm_setzero_si128());

			_mm_storeu_ps(out + 8 * i, _mm_and_ps(_mm_castsi128_ps(_mm_unpacklo_epi16(kept, kept)), k));
			_mm_storeu_ps(out + 8 * i + 4, _mm_and_ps(_mm_castsi128_ps(_mm_unpackhi_epi16(kept, kept)), k));
		}
#else
		for (int i = 0; i < NG_VL; i++) {
			uint32_t word[4] = { c0[i], c1[i], c2[i], c3[i] };

			for (int l = 0; l < 8; l++)
				out[8 * i + l] = (word[l / 2] >> (l % 2 * 16) & 0xffff) < d->p16 ? 0.0f : keep;
		}
#endif
	}
}
