/*
 * ref.h - the operations of kernels/device.h again, in naive float64 C, to be
 * compared with.  Written for reading: no blocking, no vectors, no reuse.
 * Shapes, letters and meaning as there; every output is overwritten, also
 * gradients that the device accumulates.
 */
#ifndef NG_REF_H
#define NG_REF_H

#include "kernels/device.h"

double ref_drop(const struct ng_dropout *d, size_t e, size_t position, size_t seq, uint32_t add_to_stream);
double ref_act(double x, enum ng_act act);
double ref_act_slope(double x, enum ng_act act);
/* c(M,N) = op(a) op(b), rows of a and b without gaps */
void ref_matmul(double *c, const double *a, bool ta, const double *b, bool tb, size_t M, size_t N, size_t K);
void ref_layernorm(double *y, double *s, double *mean, double *rstd, const double *x, const double *res,
	const double *gamma, const double *beta, double eps, const int32_t *cu, size_t S, size_t C,
	const struct ng_dropout *drop_x, const struct ng_dropout *drop_y);
void ref_layernorm_bwd(double *ds, double *dx, double *dgamma, double *dbeta, const double *dy, const double *s,
	const double *gamma, double eps, const int32_t *cu, size_t S, size_t C, const struct ng_dropout *drop_x,
	const struct ng_dropout *drop_y);
int ref_bucket(long query, long key);
void ref_attention(double *ctx, double *lse, const double *qkv, const double *bias, const int32_t *cu, size_t S,
	size_t C, size_t H, const struct ng_dropout *drop);
void ref_attention_bwd(double *dqkv, double *dbias, const double *dctx, const double *qkv, const double *bias,
	const int32_t *cu, size_t S, size_t C, size_t H, const struct ng_dropout *drop);
void ref_pool(
	double *e, const double *x, const int32_t *cu, const int32_t *first, size_t S, size_t C, enum ng_pool mode);
void ref_pool_bwd(double *dx, const double *de, const double *x, const int32_t *cu, const int32_t *first, size_t S,
	size_t C, enum ng_pool mode);
void ref_normalize(double *y, const double *x, size_t B, size_t C);
void ref_normalize_bwd(double *dx, const double *dy, const double *x, size_t B, size_t C);

#endif
