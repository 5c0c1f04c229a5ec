/*
 * cpu_ops.h - what is compiled once for each instruction set.
 *
 * Every function does one piece of an operation of device.h, on plain
 * pointers, in one thread.  cpu.c cuts the pieces.  The shared text is
 * cpu_vec.h (vectors, exp, erf, masks), cpu_rows_impl.h and cpu_attn_impl.h;
 * cpu_ops_c.c, cpu_ops_sse2.c and cpu_ops_avx2.c include it.
 */
#ifndef NG_CPU_OPS_H
#define NG_CPU_OPS_H

#include "kernels/device.h"

#include <stdint.h>

#define NG_CPU_COLSUM 128 /* the most columns of one colsum */
#define NG_BUCKETS 32	  /* rows of MPNet's relative bias */

struct ng_ln_args {
	float *y, *s, *mean, *rstd; /* forward: outputs, any but y may be NULL */
	const float *x, *res, *gamma, *beta;
	float eps;
	float *ds, *dx; /* backward: outputs, dx may be NULL */
	const float *dy, *sin, *mean_in, *rstd_in;
	const int32_t *cu;
	size_t S, T, C;
	const struct ng_dropout *drop_x, *drop_y; /* NULL when off */
};

struct ng_attn_args {
	float *ctx, *lse;
	const float *qkv, *bias;
	float *dqkv;
	float *dbias_parts; /* (S,H,32) or NULL */
	const float *dctx, *ctx_in, *lse_in;
	const int32_t *cu;
	size_t S, C, H;
	const struct ng_dropout *drop; /* NULL when off */
};

struct ng_cpu_ops {
	const char *isa;  /* "avx2" */
	const char *name; /* "AVX2+FMA" */

	/* y(rows,cols), row stride ldy, = b (NULL: 0) in every row */
	void (*fill_rows)(float *y, size_t ldy, const float *b, size_t rows, size_t cols);
	void (*act)(float *y, const float *pre, size_t n, enum ng_act act);
	void (*act_bwd)(float *dpre, const float *dy, const float *pre, size_t n, enum ng_act act);
	/* db[0..cols) += sum over T rows of dy (row stride ld); cols <= NG_CPU_COLSUM */
	void (*colsum)(float *db, const float *dy, size_t ld, size_t T, size_t cols);

	/* channels c0..c1 of all tokens when it scatters, all channels of some tokens when it gathers */
	void (*embed)(float *x, const int32_t *ids, const int32_t *pos, const float *wte, const float *wpe,
		const float *wtt, size_t t0, size_t t1, size_t C);
	void (*embed_bwd)(float *dwte, float *dwpe, float *dwtt, const float *dx, const int32_t *ids,
		const int32_t *pos, size_t T, size_t C, size_t c0, size_t c1);

	/* tokens t0..t1; part holds 2C floats (dgamma, dbeta of this piece, overwritten) or is NULL */
	void (*layernorm)(const struct ng_ln_args *a, size_t t0, size_t t1);
	void (*layernorm_bwd)(const struct ng_ln_args *a, size_t t0, size_t t1, float *part);

	/* sequence s, head h; scratch of attention_scratch floats, 64-byte aligned */
	size_t (*attention_scratch)(size_t longest, size_t D, bool backward);
	void (*attention)(const struct ng_attn_args *a, size_t s, size_t h, float *scratch);
	void (*attention_bwd)(const struct ng_attn_args *a, size_t s, size_t h, float *scratch);

	void (*pool)(float *e, const float *x, size_t L, size_t first, size_t C, enum ng_pool mode);
	void (*pool_bwd)(float *dx, const float *de, const float *x, size_t L, size_t first, size_t C,
		enum ng_pool mode, bool accumulate);
	void (*normalize)(float *y, float *norm, const float *x, size_t rows, size_t C);
	void (*normalize_bwd)(float *dx, const float *dy, const float *y, const float *norm, size_t rows, size_t C);
	void (*lse_update)(float *m, float *l, const float *z, size_t rows, size_t N);
	void (*softmax_from_lse)(float *z, const float *m, const float *l, float scale, size_t rows, size_t N);

	double (*sumsq)(const float *x, size_t n);
	void (*scale)(float *x, float a, size_t n);
	void (*axpy)(float *y, float a, const float *x, size_t n);
	void (*adamw)(float *w, float *m, float *v, const float *g, size_t n, float lr, float b1, float b2, float eps,
		float wd, float c1, float c2, float gscale);
	void (*sgd)(float *w, float *m, const float *g, size_t n, float lr, float mu, float wd, float gscale);

	/* For tests: factors (0 or the scale) of elements 0..n of one token; writes up to n rounded to 64. */
	void (*drop_row)(float *factor, size_t n, const struct ng_dropout *d, uint32_t position, uint32_t example,
		uint32_t stream);
	void (*exp)(float *y, const float *x, size_t n);
};

/* NULL where the build has no such instruction set. */
const struct ng_cpu_ops *ng_cpu_ops_c(void);
const struct ng_cpu_ops *ng_cpu_ops_sse2(void);
const struct ng_cpu_ops *ng_cpu_ops_avx2(void);

#endif
