/*
 * dtype.h - the element types of safetensors, and F32, F16, BF16 <-> F32.
 *
 * All types of the format are carried (copied, hashed, shown); only the float
 * types F64, F32, F16 and BF16 are computed with.  The enum ascends in the
 * order of the format's own writer, which lays tensors out by type descending,
 * then by name.
 */
#ifndef NG_TENSOR_DTYPE_H
#define NG_TENSOR_DTYPE_H

#include "common/base/compat.h"

enum ng_dtype {
	NG_BOOL,
	NG_F4,
	NG_F6_E2M3,
	NG_F6_E3M2,
	NG_U8,
	NG_I8,
	NG_F8_E5M2,
	NG_F8_E4M3,
	NG_F8_E8M0,
	NG_F8_E4M3FNUZ,
	NG_F8_E5M2FNUZ,
	NG_I16,
	NG_U16,
	NG_F16,
	NG_BF16,
	NG_I32,
	NG_U32,
	NG_F32,
	NG_C64,
	NG_F64,
	NG_I64,
	NG_U64,
	NG_DTYPES
};

const char *ng_dtype_name(enum ng_dtype d);
/* false when name (len bytes, no NUL needed) is no type of the format. */
bool ng_dtype_parse(enum ng_dtype *out, const char *name, size_t len);
unsigned ng_dtype_bits(enum ng_dtype d); /* 4 and 6 for the packed kinds */
bool ng_dtype_float(enum ng_dtype d);	 /* F64, F32, F16, BF16: ng_to_f32 knows it */

/* n elements of type d at src (any alignment) to F32, and back with rounding to
 * nearest, ties to even; a NaN stays a NaN (quiet, sign and upper bits kept).
 * src and dst must not overlap, but for F32 where they may be equal.  The type
 * must be ng_dtype_float. */
void ng_to_f32(float *dst, const void *src, enum ng_dtype d, size_t n);
void ng_from_f32(void *dst, enum ng_dtype d, const float *src, size_t n);

float ng_f16_to_f32(uint16_t h);
uint16_t ng_f32_to_f16(float f);
float ng_bf16_to_f32(uint16_t b);
uint16_t ng_f32_to_bf16(float f);

#endif
