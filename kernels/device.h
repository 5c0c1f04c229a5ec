/*
 * device.h - what the encoder asks of the hardware.
 *
 * A device is one table of functions.  kernels/cpu*.c fills it with C and a
 * BLAS; accelerators will share one implementation that launches the kernels
 * of kernels/(*).cl.  Nothing here knows a model family, a file or a loss by
 * name, and nothing here prints: functions that can fail return 0 or a
 * negative enum ng_dev_status, and last_error() says why.
 *
 * Memory.  A tensor lives in memory of the device and is named by a
 * `struct ng_ref`: the allocation and an offset in elements (4 bytes each).
 * Float tensors are fp32, index tensors int32_t.  On the CPU `mem` is an
 * ordinary 64-byte aligned pointer.  All matrices are row-major, last index
 * fastest, no padding between rows.
 *
 * Packed sequences.  T tokens of S sequences lie end to end; cu (S+1 int32)
 * holds the first token of each, cu[0] = 0, cu[S] = T.
 *
 * Letters: T tokens, S sequences, C channels, H heads, D = C/H, K inputs and
 * N outputs of a linear layer, V rows of a table, B rows of a batch.
 * `d` before a name marks a gradient.
 *
 * Same bits.  For the same arguments an operation gives the same bits on one
 * CPU type whatever the number of threads: rows are cut into pieces of
 * NG_PIECE rows (or columns of NG_PIECE), each piece is computed whole by one
 * thread, sums over pieces are added in the order of the pieces.
 *
 * "accumulates" below means out += ...; otherwise the output is overwritten.
 * Arguments may not alias unless it is said.
 */
#ifndef NG_DEVICE_H
#define NG_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NG_DEVICE_ABI 1
#define NG_PIECE 128

enum ng_dev_status {
	NG_DEV_OK = 0,
	NG_DEV_MEMORY = -1,  /* an allocation failed */
	NG_DEV_MISSING = -2, /* no such device, or its library is not there */
	NG_DEV_FAILED = -3,  /* the driver or the start-up check failed */
};

struct ng_ref {
	void *mem;  /* NULL: absent (an optional argument) */
	size_t off; /* in elements */
};

/*
 * Dropout whose mask is a pure function of what is dropped, never of where it
 * runs.  Element e of the token at `position` (its index in its sequence) of
 * text `example` is dropped iff lane e % 8 of
 * philox4x32-10(key = {seed, round}, counter = {position << 16 | e / 8,
 * example, step, stream}) is < p16; lane l is the 16 bits of word l / 2, the
 * low half first.  The kept are multiplied by 65536 / (65536 - p16).
 * For rows of channels e is the channel.  For attention the token is the
 * query, e the key's index in its sequence, and head h draws from
 * stream + h: leave room for the heads between two streams.
 * Positions and e / 8 are below 65536; p16 is below 65536.
 */
struct ng_dropout {
	uint32_t p16; /* probability * 65536; 0 = off */
	uint32_t seed, round, step, stream;
	const int32_t *example; /* (S) host memory: number of each text in its batch */
};

enum ng_pool {
	NG_POOL_MEAN,
	NG_POOL_CLS,
	NG_POOL_MAX,
	NG_POOL_LAST,
	NG_POOL_MEAN_SQRT,
	NG_POOL_WEIGHTED,
};

enum ng_act { NG_ACT_NONE, NG_ACT_TANH, NG_ACT_GELU, NG_ACT_GELU_TANH, NG_ACT_RELU };

struct ng_device_info {
	char name[128]; /* "cpu: AVX2+FMA, OpenBLAS Zen, 2 threads" for -v and ng.device */
	int threads;
	size_t memory; /* free bytes for tensors, 0 = ask the host */
};

struct ng_device {
	uint32_t abi; /* NG_DEVICE_ABI */
	size_t size;  /* sizeof of this struct as the device was compiled */
	struct ng_device_info info;
	void *self;

	void (*close)(struct ng_device *dev);
	const char *(*last_error)(struct ng_device *dev);

	/* ---- memory ---- */
	int (*alloc)(struct ng_device *dev, struct ng_ref *out, size_t elements); /* contents undefined */
	void (*free)(struct ng_device *dev, struct ng_ref ref);
	int (*upload)(struct ng_device *dev, struct ng_ref dst, const void *src, size_t elements);
	int (*download)(struct ng_device *dev, void *dst, struct ng_ref src, size_t elements);
	int (*copy)(struct ng_device *dev, struct ng_ref dst, struct ng_ref src, size_t elements);
	int (*zero)(struct ng_device *dev, struct ng_ref dst, size_t elements);
	int (*sync)(struct ng_device *dev);

	/* ---- linear layers ---- */
	/* y(T,N) = act(x(T,K) w(N,K)^T + b(N)).  b may be absent.  pre, if present, (T,N) gets the
	 * value before act (for linear_act_bwd).  y may equal pre when act is NONE. */
	int (*linear)(struct ng_device *dev, struct ng_ref y, struct ng_ref pre, struct ng_ref x, struct ng_ref w,
		struct ng_ref b, size_t T, size_t K, size_t N, enum ng_act act);
	/* dpre(T,N) = dy * act'(pre); dpre may alias dy or pre. */
	int (*act_bwd)(struct ng_device *dev, struct ng_ref dpre, struct ng_ref dy, struct ng_ref pre, size_t T,
		size_t N, enum ng_act act);
	/* y(T,N) = act(pre): the activation again instead of keeping it. May alias. */
	int (*act)(struct ng_device *dev, struct ng_ref y, struct ng_ref pre, size_t T, size_t N, enum ng_act act);
	/* dx(T,K) (=, or += when accumulate) dy(T,N) w(N,K). */
	int (*linear_dx)(struct ng_device *dev, struct ng_ref dx, struct ng_ref dy, struct ng_ref w, size_t T, size_t K,
		size_t N, bool accumulate);
	/* accumulates dw(N,K) += dy(T,N)^T x(T,K) and db(N) += sum_t dy(t,N); either may be absent.
	 * Fixed pieces of dw and fixed parts of T, added in order, so equal for any threads. */
	int (*linear_dw)(struct ng_device *dev, struct ng_ref dw, struct ng_ref db, struct ng_ref dy, struct ng_ref x,
		size_t T, size_t K, size_t N);
	/* General c(M,N) = alpha * op(a) op(b) + beta * c; op transposes if ta/tb; lda, ldb, ldc in
	 * elements. Used by the loss. */
	int (*gemm)(struct ng_device *dev, bool ta, bool tb, size_t M, size_t N, size_t K, float alpha, struct ng_ref a,
		size_t lda, struct ng_ref b, size_t ldb, float beta, struct ng_ref c, size_t ldc);

	/* ---- embeddings ---- */
	/* x(T,C) = wte[ids[t]] + wpe[pos[t]] (absent: no positions) + wtt[0] (absent: none). ids, pos int32 (T). */
	int (*embed)(struct ng_device *dev, struct ng_ref x, struct ng_ref ids, struct ng_ref pos, struct ng_ref wte,
		struct ng_ref wpe, struct ng_ref wtt, size_t T, size_t C);
	/* accumulates dwte(V,C), dwpe, dwtt row 0, in token order; any may be absent. ids and pos are trusted. */
	int (*embed_bwd)(struct ng_device *dev, struct ng_ref dwte, struct ng_ref dwpe, struct ng_ref dwtt,
		struct ng_ref dx, struct ng_ref ids, struct ng_ref pos, size_t T, size_t C);

	/* ---- layer norm with the residual and dropout around it ---- */
	/* s(T,C) = dropout_x(x) + res (res absent: none); y = dropout_y((s - mean) * rstd * gamma + beta);
	 * mean, rstd (T); biased variance, eps inside the root.  Either dropout may be NULL.  Rows are done one
	 * by one: s may alias x or res; y may alias x, res or s (then s is lost).  s, mean, rstd may be absent
	 * when no backward follows.
	 * x-dropout serves the residual branches, y-dropout the embeddings. */
	int (*layernorm)(struct ng_device *dev, struct ng_ref y, struct ng_ref s, struct ng_ref mean,
		struct ng_ref rstd, struct ng_ref x, struct ng_ref res, struct ng_ref gamma, struct ng_ref beta,
		float eps, struct ng_ref cu, size_t S, size_t T, size_t C, const struct ng_dropout *drop_x,
		const struct ng_dropout *drop_y);
	/* ds(T,C) = gradient at s; dx(T,C) = dropout_x applied to ds (dx absent or drop_x NULL: only ds);
	 * dgamma(C), dbeta(C) accumulate (absent: not computed).  dy is first passed through dropout_y.
	 * ds or dx may alias dy. */
	int (*layernorm_bwd)(struct ng_device *dev, struct ng_ref ds, struct ng_ref dx, struct ng_ref dgamma,
		struct ng_ref dbeta, struct ng_ref dy, struct ng_ref s, struct ng_ref mean, struct ng_ref rstd,
		struct ng_ref gamma, struct ng_ref cu, size_t S, size_t T, size_t C, const struct ng_dropout *drop_x,
		const struct ng_dropout *drop_y);

	/* ---- attention within each sequence ---- */
	/* qkv(T,3C): q, k, v of a token side by side, each (H,D).  p = softmax_keys(q k^T / sqrt(D) + bias);
	 * ctx(T,C) = dropout(p) v;  lse(T,H) = log sum exp of the scores (for the backward; may be absent).
	 * bias absent, or (NB,H) with bucket(distance) as MPNet: conventions 3.2, 32 buckets, the row of
	 * NB = 32 chosen by key - query; the function computes buckets itself. */
	int (*attention)(struct ng_device *dev, struct ng_ref ctx, struct ng_ref lse, struct ng_ref qkv,
		struct ng_ref bias, struct ng_ref cu, size_t S, size_t T, size_t C, size_t H,
		const struct ng_dropout *drop);
	/* dqkv(T,3C) overwritten; dbias (32,H) accumulates (absent: none).  ctx and lse from the forward. */
	int (*attention_bwd)(struct ng_device *dev, struct ng_ref dqkv, struct ng_ref dbias, struct ng_ref dctx,
		struct ng_ref qkv, struct ng_ref ctx, struct ng_ref lse, struct ng_ref bias, struct ng_ref cu, size_t S,
		size_t T, size_t C, size_t H, const struct ng_dropout *drop);

	/* ---- pooling and what follows it ---- */
	/* e(S,C), rows lde >= C elements apart (several modes side by side: C times their number), from x(T,C)
	 * (conventions 3.4). first (S) int32 or absent: tokens of each sequence left out of pooling at its start
	 * (include_prompt false); a sequence with none left gives zeros. */
	int (*pool)(struct ng_device *dev, struct ng_ref e, size_t lde, struct ng_ref x, struct ng_ref cu,
		struct ng_ref first, size_t S, size_t T, size_t C, enum ng_pool mode);
	/* dx(T,C) (=, or += when accumulate). x is needed by MAX only (ties: the first token takes all). */
	int (*pool_bwd)(struct ng_device *dev, struct ng_ref dx, struct ng_ref de, size_t ldde, struct ng_ref x,
		struct ng_ref cu, struct ng_ref first, size_t S, size_t T, size_t C, enum ng_pool mode,
		bool accumulate);
	/* y = x / max(||x||, 1e-12); norm (B). y may alias x. */
	int (*normalize)(
		struct ng_device *dev, struct ng_ref y, struct ng_ref norm, struct ng_ref x, size_t B, size_t C);
	/* dx = (dy - y (y.dy)) / max(norm, 1e-12); dx may alias dy. */
	int (*normalize_bwd)(struct ng_device *dev, struct ng_ref dx, struct ng_ref dy, struct ng_ref y,
		struct ng_ref norm, size_t B, size_t C);

	/* ---- rows of a score matrix, for the contrastive losses ---- */
	/* z(R,N): running max m(R) and sum l(R) of exp over columns: m' = max(m, max_j z), l' = l exp(m-m') +
	 * sum_j exp(z - m').  Start with m = -INFINITY, l = 0; -inf entries are masked ones. */
	int (*lse_update)(struct ng_device *dev, struct ng_ref m, struct ng_ref l, struct ng_ref z, size_t R, size_t N);
	/* z(R,N) = scale * exp(z - m - log l): softmax in place, -inf gives 0. */
	int (*softmax_from_lse)(struct ng_device *dev, struct ng_ref z, struct ng_ref m, struct ng_ref l, float scale,
		size_t R, size_t N);

	/* ---- the optimiser, over flat vectors of n elements ---- */
	/* *out = sum of squares in float64 (fixed pieces, added in order); NaN and infinities come through. */
	int (*sumsq)(struct ng_device *dev, double *out, struct ng_ref x, size_t n);
	int (*scale)(struct ng_device *dev, struct ng_ref x, float a, size_t n);
	/* y += a x */
	int (*axpy)(struct ng_device *dev, struct ng_ref y, float a, struct ng_ref x, size_t n);
	/* PyTorch's AdamW: w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
	 * w -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps) with c = 1 - b^t given; g is multiplied by gscale first. */
	int (*adamw)(struct ng_device *dev, struct ng_ref w, struct ng_ref m, struct ng_ref v, struct ng_ref g,
		size_t n, float lr, float b1, float b2, float eps, float wd, float c1, float c2, float gscale);
	/* PyTorch's SGD: g = gscale g + wd w; m = mu m + g (mu 0: m absent); w -= lr m. */
	int (*sgd)(struct ng_device *dev, struct ng_ref w, struct ng_ref m, struct ng_ref g, size_t n, float lr,
		float mu, float wd, float gscale);
};

/* spec: "auto", "cpu" (others when they exist).  threads 0 = 1.  isa: NULL = best this CPU has, or
 * "c", "sse2", "avx2" to force one (tests). Opens or returns a status; why, if not NULL, gets static text.
 * One thread at a time may use a device; close() ends its threads. */
int ng_device_open(struct ng_device **out, const char *spec, int threads, const char *isa, const char **why);

#endif
