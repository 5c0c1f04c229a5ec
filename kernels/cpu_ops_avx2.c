/* cpu_ops_avx2.c - the operations for AVX2+FMA; no more than an empty answer where the build has none; see cpu_ops.h. */
#if defined(__AVX2__) && defined(__FMA__)
#define NG_ISA 2
#define NG_VL 8
#define NG_ISA_ID "avx2"
#define NG_ISA_NAME "AVX2+FMA"
#include "kernels/cpu_vec.h"
#include "kernels/cpu_rows_impl.h"
#include "kernels/cpu_attn_impl.h"
#include "kernels/cpu_table_impl.h"

const struct ng_cpu_ops *ng_cpu_ops_avx2(void)
{
	return &table;
}
#else
#include "kernels/cpu_ops.h"

const struct ng_cpu_ops *ng_cpu_ops_avx2(void)
{
	return NULL;
}
#endif
