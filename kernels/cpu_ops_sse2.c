/* cpu_ops_sse2.c - the operations for SSE2; no more than an empty answer where the build has none; see cpu_ops.h. */
#if defined(__SSE2__)
#define NG_ISA 1
#define NG_VL 4
#define NG_ISA_ID "sse2"
#define NG_ISA_NAME "SSE2"
#include "kernels/cpu_vec.h"
#include "kernels/cpu_rows_impl.h"
#include "kernels/cpu_attn_impl.h"
#include "kernels/cpu_table_impl.h"

const struct ng_cpu_ops *ng_cpu_ops_sse2(void)
{
	return &table;
}
#else
#include "kernels/cpu_ops.h"

const struct ng_cpu_ops *ng_cpu_ops_sse2(void)
{
	return NULL;
}
#endif
