/* cpu.h - inside of the CPU device, for its files and their tests. */
#ifndef NG_CPU_H
#define NG_CPU_H

#include "kernels/cpu_ops.h"

#include <cblas.h>

typedef void ng_sgemm_fn(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb,
	const blasint M, const blasint N, const blasint K, const float alpha, const float *a, const blasint lda,
	const float *b, const blasint ldb, const float beta, float *c, const blasint ldc);

/* Does sgemm multiply?  Awkward shapes, all transposes, against a float64 reference; a few milliseconds. */
bool ng_cpu_blas_works(ng_sgemm_fn *sgemm);

/* ng_device_open for the CPU with the BLAS given; NULL: the one that is linked. */
int ng_cpu_open(struct ng_device **out, int threads, const char *isa, ng_sgemm_fn *sgemm, const char **why);

#endif
