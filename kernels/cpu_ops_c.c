/* cpu_ops_c.c - the operations in C alone, for any processor; see cpu_ops.h. */
#define NG_ISA 0
#define NG_VL 4
#define NG_ISA_ID "c"
#define NG_ISA_NAME "C"
#include "kernels/cpu_vec.h"
#include "kernels/cpu_rows_impl.h"
#include "kernels/cpu_attn_impl.h"
#include "kernels/cpu_table_impl.h"

const struct ng_cpu_ops *ng_cpu_ops_c(void)
{
	return &table;
}
