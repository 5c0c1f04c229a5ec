/* cpu.h - inside of the CPU device, for its files and their tests. */
#ifndef NG_CPU_H
#define NG_CPU_H

#include "kernels/cpu_ops.h"
#include "kernels/threads.h"

#include <cblas.h>

typedef void ng_sgemm_fn(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb,
	const blasint M, const blasint N, const blasint K, const float alpha, const float *a, const blasint lda,
	const float *b, const blasint ldb, const float beta, float *c, const blasint ldc);

#define NG_CPU_FLAT 32768 /* elements of a piece of a flat vector */

struct cpu {
	struct ng_device dev;
	const struct ng_cpu_ops *ops;
	struct ng_threads *pool;
	ng_sgemm_fn *sgemm;
	const char *error;
	float *scratch; /* of all threads, or partial sums; grows, never shrinks */
	size_t scratch_size;
};

static inline struct cpu *cpu_of(struct ng_device *dev)
{
	return dev->self;
}

static inline float *at(struct ng_ref ref)
{
	return ref.mem ? (float *)ref.mem + ref.off : NULL;
}

static inline int32_t *ints(struct ng_ref ref)
{
	return ref.mem ? (int32_t *)ref.mem + ref.off : NULL;
}

static inline size_t count(size_t n, size_t piece)
{
	return n / piece + (n % piece != 0);
}

static inline size_t part(size_t n, size_t piece, size_t i)
{
	return n - i * piece < piece ? n - i * piece : piece;
}

/* What ng_threads_run is told: nanoseconds of a * b * c multiply-adds, and of a * b elements passed through. */
static inline double product_ns(size_t a, size_t b, size_t c)
{
	return (double)a * (double)b * (double)c / 16;
}

static inline double pass_ns(size_t a, size_t b)
{
	return (double)a * (double)b;
}

static inline int fail(struct cpu *cpu, enum ng_dev_status status, const char *text)
{
	cpu->error = text;
	return status;
}

/* At least each * n floats at cpu->scratch, contents undefined; 0 or NG_DEV_MEMORY. */
int ng_cpu_scratch(struct cpu *cpu, size_t each, size_t n);

/* Each fills in the functions of its file. */
void ng_cpu_flat(struct ng_device *dev);
void ng_cpu_products(struct ng_device *dev);
void ng_cpu_encoder(struct ng_device *dev);

/* Does sgemm multiply?  Awkward shapes, all transposes, against float64; a few milliseconds. */
bool ng_cpu_blas_works(ng_sgemm_fn *sgemm);
/* One thread a call from now on; returns the library's name of the processor, or NULL. */
const char *ng_cpu_blas_quiet(void);
/* Prepares the library for calls from that many threads at once. */
void ng_cpu_blas_warm(int threads);

/* ng_device_open for the CPU with the BLAS given; NULL: the one that is linked. */
int ng_cpu_open(struct ng_device **out, int threads, const char *isa, ng_sgemm_fn *sgemm, const char **why);

#endif
