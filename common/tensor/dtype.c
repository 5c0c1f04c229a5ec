/*
 * dtype.c - element types and conversions; see dtype.h.
 * The half formats are converted by integer arithmetic, so that the result is
 * the same bits on every machine.
 */
#include "common/base/compat.h"

#include "common/tensor/dtype.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian and used as it lies"
#endif

static const struct {
	const char *name;
	unsigned char bits;
	bool computed;
} table[NG_DTYPES] = {
	[NG_BOOL] = { "BOOL", 8, false },
	[NG_F4] = { "F4", 4, false },
	[NG_F6_E2M3] = { "F6_E2M3", 6, false },
	[NG_F6_E3M2] = { "F6_E3M2", 6, false },
	[NG_U8] = { "U8", 8, false },
	[NG_I8] = { "I8", 8, false },
	[NG_F8_E5M2] = { "F8_E5M2", 8, false },
	[NG_F8_E4M3] = { "F8_E4M3", 8, false },
	[NG_F8_E8M0] = { "F8_E8M0", 8, false },
	[NG_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8, false },
	[NG_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8, false },
	[NG_I16] = { "I16", 16, false },
	[NG_U16] = { "U16", 16, false },
	[NG_F16] = { "F16", 16, true },
	[NG_BF16] = { "BF16", 16, true },
	[NG_I32] = { "I32", 32, false },
	[NG_U32] = { "U32", 32, false },
	[NG_F32] = { "F32", 32, true },
	[NG_C64] = { "C64", 64, false },
	[NG_F64] = { "F64", 64, true },
	[NG_I64] = { "I64", 64, false },
	[NG_U64] = { "U64", 64, false },
};

const char *ng_dtype_name(enum ng_dtype d)
{
	return table[d].name;
}

bool ng_dtype_parse(enum ng_dtype *out, const char *name, size_t len)
{
	for (int d = 0; d < NG_DTYPES; d++)
		if (strlen(table[d].name) == len && memcmp(table[d].name, name, len) == 0) {
			*out = (enum ng_dtype)d;
			return true;
		}
	return false;
}

unsigned ng_dtype_bits(enum ng_dtype d)
{
	return table[d].bits;
}

bool ng_dtype_float(enum ng_dtype d)
{
	return table[d].computed;
}

static float float_of(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint32_t bits_of(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

float ng_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t exp = (h >> 10) & 31u;
	uint32_t man = h & 0x3ffu;

	if (exp == 31)
		return float_of(sign | 0x7f800000u | man << 13 | (man ? 0x400000u : 0));
	if (exp == 0) {
		/* zero or subnormal: man * 2^-24, exact in F32 */
		float f = (float)man * 0x1p-24f;
		return float_of(sign | bits_of(f));
	}
	return float_of(sign | (exp + 112) << 23 | man << 13);
}

uint16_t ng_f32_to_f16(float f)
{
	uint32_t x = bits_of(f);
	uint32_t sign = (x >> 16) & 0x8000u;
	uint32_t mag = x & 0x7fffffffu;

	if (mag > 0x7f800000u) /* NaN: quiet, upper bits kept */
		return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
	if (mag >= 0x477ff000u) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7c00u);
	if (mag >= 0x38800000u) { /* normal: 2^-14 and above */
		uint32_t r = mag - (112u << 23);
		r += 0xfffu + ((r >> 13) & 1u);
		return (uint16_t)(sign | r >> 13);
	}
	if (mag <= 0x33000000u) /* 2^-25 is a tie to zero */
		return (uint16_t)sign;
	/* subnormal: shift the full mantissa right, round to even */
	uint32_t man = (mag & 0x7fffffu) | 0x800000u;
	uint32_t shift = 126u - (mag >> 23); /* 14..24 */
	uint32_t kept = man >> shift;
	uint32_t rest = man & ((1u << shift) - 1u);
	uint32_t half = 1u << (shift - 1u);
	if (rest > half || (rest == half && (kept & 1u)))
		kept++;
	return (uint16_t)(sign | kept);
}

float ng_bf16_to_f32(uint16_t b)
{
	uint32_t x = (uint32_t)b << 16;
	if ((x & 0x7fffffffu) > 0x7f800000u)
		x |= 0x400000u;
	return float_of(x);
}

uint16_t ng_f32_to_bf16(float f)
{
	uint32_t x = bits_of(f);
	if ((x & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(x >> 16 | 0x40u);
	x += 0x7fffu + ((x >> 16) & 1u);
	return (uint16_t)(x >> 16);
}

void ng_to_f32(float *dst, const void *src, enum ng_dtype d, size_t n)
{
	const unsigned char *p = src;

	switch (d) {
	case NG_F32:
		memmove(dst, src, n * sizeof *dst);
		break;
	case NG_F64:
		for (size_t i = 0; i < n; i++) {
			double v;
			memcpy(&v, p + 8 * i, sizeof v);
			dst[i] = (float)v;
		}
		break;
	case NG_F16:
	case NG_BF16:
		for (size_t i = 0; i < n; i++) {
			uint16_t v;
			memcpy(&v, p + 2 * i, sizeof v);
			dst[i] = d == NG_F16 ? ng_f16_to_f32(v) : ng_bf16_to_f32(v);
		}
		break;
	default:
		abort(); /* the caller asked ng_dtype_float first */
	}
}

void ng_from_f32(void *dst, enum ng_dtype d, const float *src, size_t n)
{
	unsigned char *p = dst;

	switch (d) {
	case NG_F32:
		memmove(dst, src, n * sizeof *src);
		break;
	case NG_F64:
		for (size_t i = 0; i < n; i++) {
			double v = (double)src[i];
			memcpy(p + 8 * i, &v, sizeof v);
		}
		break;
	case NG_F16:
	case NG_BF16:
		for (size_t i = 0; i < n; i++) {
			uint16_t v = d == NG_F16 ? ng_f32_to_f16(src[i]) : ng_f32_to_bf16(src[i]);
			memcpy(p + 2 * i, &v, sizeof v);
		}
		break;
	default:
		abort();
	}
}
