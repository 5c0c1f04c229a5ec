/* Conversions of F16 and BF16, exhaustively where that is possible. */
#include "common/base/compat.h"

#include "common/tensor/dtype.h"
#include "t/unit/check.h"

static float bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}

static uint32_t to_bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, sizeof u);
	return u;
}

/* The value of a finite half by its definition. */
static double f16_value(uint16_t h)
{
	int e = (h >> 10) & 31, m = h & 0x3ff;
	double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return h & 0x8000 ? -v : v;
}

static void check_f16_all(void)
{
	bool value = true, back = true, nan = true;

	for (unsigned u = 0; u < 65536; u++) {
		uint16_t h = (uint16_t)u;
		float f = ng_f16_to_f32(h);
		if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff)) {
			nan &= isnan(f) && isnan(ng_f16_to_f32(ng_f32_to_f16(f))) &&
			       (ng_f32_to_f16(f) & 0x8000) == (h & 0x8000);
			continue;
		}
		if ((h & 0x7fff) != 0x7c00)
			value &= (double)f == f16_value(h);
		else
			value &= isinf(f) && (f < 0) == (h >> 15);
		back &= ng_f32_to_f16(f) == h;
	}
	CHECK_MSG(value, "every half has its value");
	CHECK_MSG(back, "every half comes back");
	CHECK_MSG(nan, "every NaN stays a NaN with its sign");
}

/* f rounded by brute force: the nearest half, ties to the even one. */
static bool nearest_f16(float f)
{
	uint16_t h = ng_f32_to_f16(f);
	double v = (double)f;

	if (fabs(v) >= 65520.0)
		return (h & 0x7fff) == 0x7c00;
	if ((h & 0x7fff) == 0x7c00)
		return false;
	double mine = fabs(f16_value(h) - v);
	for (int step = -1; step <= 1; step += 2) {
		int other = (h & 0x7fff) + step;
		if (other < 0 || other > 0x7bff)
			continue;
		double theirs = fabs(f16_value((uint16_t)(other | (h & 0x8000))) - v);
		if (theirs < mine || (theirs == mine && (h & 1)))
			return false;
	}
	return (h >> 15) == (to_bits(f) >> 31);
}

static void check_rounding(void)
{
	bool f16 = true, bf16 = true;
	uint32_t x = 1;

	for (int i = 0; i < 400000; i++) {
		x = x * 1664525u + 1013904223u;
		/* exponents around the half's range, and the ties between two halves */
		uint32_t e = 98 + (x >> 8) % 48;
		uint32_t m = i % 3 ? (x >> 9) & 0x7fffff : ((x >> 9) & 0x7fe000) | 0x1000;
		float f = bits((x & 0x80000000u) | e << 23 | m);
		f16 &= nearest_f16(f);
		uint32_t u = to_bits(f), low = u & 0xffff, want = u >> 16;
		if (low > 0x8000 || (low == 0x8000 && (want & 1)))
			want++;
		bf16 &= ng_f32_to_bf16(f) == want;
	}
	CHECK_MSG(f16, "F32 to F16 is to nearest even");
	CHECK_MSG(bf16, "F32 to BF16 is to nearest even");
	CHECK_INT_EQ(ng_f32_to_f16(65519.996f), 0x7bff);
	CHECK_INT_EQ(ng_f32_to_f16(65520.0f), 0x7c00);
	CHECK_INT_EQ(ng_f32_to_f16(0x1p-25f), 0);
	CHECK_INT_EQ(ng_f32_to_f16(0x1.000002p-25f), 1);
	CHECK_INT_EQ(ng_f32_to_f16(-0.0f), 0x8000);
	CHECK_INT_EQ(ng_f32_to_bf16(bits(0x7f7fffff)), 0x7f80);
	CHECK_MSG(isnan(ng_bf16_to_f32(ng_f32_to_bf16(bits(0x7f800001)))), "a NaN in the low bits stays one in BF16");
	CHECK_MSG(isnan(ng_f16_to_f32(ng_f32_to_f16(bits(0xff800001)))), "and in F16");
}

static void check_arrays(void)
{
	unsigned char raw[64];
	float in[3] = { 1.5f, -2.25f, 0x1p-14f }, out[3];
	static const enum ng_dtype type[] = { NG_F16, NG_BF16, NG_F32, NG_F64 };

	for (size_t i = 0; i < NG_COUNT(type); i++) {
		ng_from_f32(raw + 1, type[i], in, 3); /* unaligned on purpose */
		memset(out, 0xff, sizeof out);
		ng_to_f32(out, raw + 1, type[i], 3);
		CHECK_MSG(memcmp(in, out, sizeof in) == 0, ng_dtype_name(type[i]));
	}
}

int main(void)
{
	enum ng_dtype d;

	check_f16_all();
	check_rounding();
	check_arrays();
	for (int i = 0; i < NG_DTYPES; i++) {
		const char *name = ng_dtype_name((enum ng_dtype)i);
		CHECK_MSG(ng_dtype_parse(&d, name, strlen(name)) && (int)d == i, name);
	}
	CHECK(!ng_dtype_parse(&d, "F33", 3));
	CHECK(!ng_dtype_parse(&d, "F3", 2));
	CHECK(!ng_dtype_parse(&d, "", 0));
	return check_done();
}
