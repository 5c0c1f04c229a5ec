/*
 * test_kernels.c - every operation of the CPU device against t/ref.
 *
 * For each instruction set that runs here the same calls go to a device of 1
 * and one of 2 threads (3 where the sum of parts matters): outputs must be
 * equal bits, close to the float64 reference (NMSE, the squared error over the
 * squared reference, at most 1e-11, that is 3e-6 relative; a NaN fails), and
 * the guard words around each must stand.  The reference's own gradients are
 * checked by central differences first.  NG_TEST_SEED=n draws other values.
 */
#include "kernels/cpu.h"
#include "t/ref/ref.c"
#include "t/unit/check.h"

#include <stdlib.h>

#define NMSE 1e-11
#define GUARD 32
#define GUARD_WORD 0x7fc0dead /* a NaN, so that reading it shows too */

static uint64_t rng = 20240607;
static int bad; /* failures of the operation under test */

static double uniform(void)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (double)(rng >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform() + 1e-300)) * cos(2 * PI * uniform());
}

#define BAD(...)                             \
	do {                                 \
		if (bad++ < 5) {             \
			printf("# ");        \
			printf(__VA_ARGS__); \
			printf("\n");        \
		}                            \
	} while (0)

/* ---- buffers: one float copy a device, one float64 copy for the reference ---- */

enum { DEVICES = 3, MOST_BUFS = 32 };
static struct ng_device *dev[DEVICES];
static const int dev_threads[DEVICES] = { 1, 2, 3 };
static const char *isa;

struct buf {
	size_t n;
	float *f[DEVICES]; /* with guards */
	double *d;
};
static struct buf *live[MOST_BUFS];
static size_t n_live;

static struct buf *buf(size_t n)
{
	struct buf *b = calloc(1, sizeof(*b));

	b->n = n;
	b->d = calloc(n + 1, sizeof(double));
	for (int i = 0; i < DEVICES; i++) {
		b->f[i] = malloc((n + 2 * GUARD) * sizeof(float));
		for (size_t k = 0; k < n + 2 * GUARD; k++) {
			uint32_t w = GUARD_WORD;

			memcpy(b->f[i] + k, &w, sizeof(w));
		}
	}
	live[n_live++] = b;
	return b;
}

/* The reference sees what the device sees: values that are floats. */
static void put(struct buf *b, size_t k, double x)
{
	for (int i = 0; i < DEVICES; i++)
		b->f[i][GUARD + k] = (float)x;
	b->d[k] = (double)(float)x;
}

static struct buf *randoms(size_t n, double size)
{
	struct buf *b = buf(n);

	for (size_t k = 0; k < n; k++)
		put(b, k, normal() * size);
	return b;
}

static struct ng_ref ref_of(const struct buf *b, int i)
{
	return b ? (struct ng_ref){ b->f[i], GUARD } : (struct ng_ref){ NULL, 0 };
}

static struct ng_ref int_ref(const int32_t *p)
{
	return (struct ng_ref){ (void *)(uintptr_t)p, 0 };
}

static void check_guards(const char *op)
{
	for (size_t q = 0; q < n_live; q++)
		for (int i = 0; i < DEVICES; i++)
			for (size_t k = 0; k < 2 * GUARD; k++) {
				uint32_t w;

				memcpy(&w, live[q]->f[i] + (k < GUARD ? k : live[q]->n + k), sizeof(w));
				if (w != GUARD_WORD)
					BAD("%s: guard word %zu of buffer %zu (%zu floats) overwritten", op, k, q,
						live[q]->n);
			}
}

static void forget(const char *op)
{
	check_guards(op);
	while (n_live > 0) {
		struct buf *b = live[--n_live];

		for (int i = 0; i < DEVICES; i++)
			free(b->f[i]);
		free(b->d);
		free(b);
	}
}

/* want NULL: b->d holds it. */
static void compare(const char *op, const struct buf *b, const double *want, double tolerance)
{
	double err = 0, ref = 0;

	if (!want)
		want = b->d;
	for (int i = 1; i < DEVICES; i++)
		if (memcmp(b->f[0] + GUARD, b->f[i] + GUARD, b->n * sizeof(float)) != 0)
			BAD("%s: %d threads give other bits than 1", op, dev_threads[i]);
	for (size_t k = 0; k < b->n; k++) {
		double x = (double)b->f[0][GUARD + k];

		err += (x - want[k]) * (x - want[k]);
		ref += want[k] * want[k];
	}
	/* so written that a NaN fails */
	if (!(err <= tolerance * ref + 1e-25 * (double)b->n))
		BAD("%s: NMSE %.3g of %zu values", op, ref > 0 ? err / ref : err, b->n);
}

static void report(const char *op)
{
	char what[128];

	snprintf(what, sizeof(what), "%s: %s", isa ? isa : "reference", op);
	check_ok(bad == 0, __FILE__, __LINE__, what);
	bad = 0;
}

#define EACH(call)                               \
	for (int i_ = 0; i_ < DEVICES; i_++) {   \
		struct ng_device *D_ = dev[i_];  \
		if (D_->call != 0)               \
			BAD("%s failed", #call); \
	}
#define R(b) ref_of(b, i_)

static const size_t sizes[] = { 1, 7, 33, 127, 300 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* ---- sequences ---- */

static const int32_t one[] = { 0, 1 }, seven[] = { 0, 7 }, few[] = { 0, 33, 34, 39, 47, 67 },
		     more[] = { 0, 127, 175, 224, 320 }, large[] = { 0, 300, 320, 449 };
static const struct {
	const int32_t *cu;
	size_t S;
} layouts[] = { { one, 1 }, { seven, 1 }, { few, 5 }, { more, 4 }, { large, 3 } };
enum { ALL_LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };
static size_t LAYOUTS = ALL_LAYOUTS;
static const int32_t examples[] = { 5, 16390, 0, 77, 3 };

static struct ng_dropout drop_of(double p, uint32_t stream)
{
	return (struct ng_dropout){
		.p16 = (uint32_t)(p * 65536), .seed = 42, .round = 3, .step = 17, .stream = stream, .example = examples
	};
}

/* ---- the reference itself ---- */

/* g.f(x) by central differences at a few places of x against `slope`. */
typedef double loss_fn(void);
static void differences(const char *op, double *x, const double *slope, size_t n, loss_fn *loss)
{
	double scale = 0;

	for (size_t k = 0; k < n; k++)
		scale = fmax(scale, fabs(slope[k]));
	for (int tries = 0; tries < 24; tries++) {
		size_t k = (size_t)(uniform() * (double)n);
		double was = x[k], h = 1e-5, up, down;

		x[k] = was + h;
		up = loss();
		x[k] = was - h;
		down = loss();
		x[k] = was;
		if (!(fabs((up - down) / (2 * h) - slope[k]) <= 1e-7 * (1 + scale)))
			BAD("%s: slope %zu is %.9g, differences give %.9g", op, k, slope[k], (up - down) / (2 * h));
	}
}

static double X[4096], G[4096], Y[4096], S_[4096], DX[4096], P1[256], P2[256], DP1[256], DP2[256], M_[128], RS[128],
	RES[4096], DS[4096];
static const int32_t *CU = few;
static size_t NS = 5, NC = 24, NH = 3;
static struct ng_dropout DR;
static enum ng_pool PM;
static enum ng_act AM;
static size_t NX;

static double dot(const double *a, const double *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static double loss_act(void)
{
	for (size_t i = 0; i < NX; i++)
		Y[i] = ref_act(X[i], AM);
	return dot(Y, G, NX);
}

static double loss_ln(void)
{
	struct ng_dropout dy = DR;

	dy.stream++;
	ref_layernorm(Y, S_, M_, RS, X, RES, P1, P2, 1e-3, CU, NS, NC, &DR, &dy);
	return dot(Y, G, NX);
}

static double loss_attn(void)
{
	ref_attention(Y, NULL, X, P1, CU, NS, NC, NH, &DR);
	return dot(Y, G, (size_t)CU[NS] * NC);
}

static double loss_pool(void)
{
	ref_pool(Y, X, CU, NULL, NS, NC, PM);
	return dot(Y, G, NS * NC);
}

static double loss_normalize(void)
{
	ref_normalize(Y, X, 7, NC);
	return dot(Y, G, 7 * NC);
}

static void fill_normal(double *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = normal();
}

static void test_reference(void)
{
	isa = NULL;
	NX = 200;
	for (AM = NG_ACT_NONE; AM <= NG_ACT_RELU; AM++) {
		fill_normal(X, NX);
		fill_normal(G, NX);
		for (size_t i = 0; i < NX; i++)
			DX[i] = ref_act_slope(X[i], AM) * G[i];
		differences("act", X, DX, NX, loss_act);
	}
	report("act slopes");
	NX = (size_t)CU[NS] * NC;
	DR = drop_of(0.2, 100);
	struct ng_dropout dy = DR;
	dy.stream++;
	fill_normal(X, NX);
	fill_normal(RES, NX);
	fill_normal(G, NX);
	fill_normal(P1, NC);
	fill_normal(P2, NC);
	loss_ln();
	ref_layernorm_bwd(DS, DX, DP1, DP2, G, S_, P1, 1e-3, CU, NS, NC, &DR, &dy);
	differences("layernorm dx", X, DX, NX, loss_ln);
	differences("layernorm ds", RES, DS, NX, loss_ln);
	differences("layernorm dgamma", P1, DP1, NC, loss_ln);
	differences("layernorm dbeta", P2, DP2, NC, loss_ln);
	report("layernorm gradients");

	/* 7 tokens and 20, so that distances pass 8 */
	static const int32_t cu[] = { 0, 7, 27 };
	CU = cu;
	NS = 2;
	NX = 27 * 3 * NC;
	fill_normal(X, NX);
	fill_normal(G, 27 * NC);
	fill_normal(P1, 32 * NH);
	ref_attention_bwd(DX, DP1, G, X, P1, CU, NS, NC, NH, &DR);
	differences("attention dqkv", X, DX, NX, loss_attn);
	differences("attention dbias", P1, DP1, 32 * NH, loss_attn);
	report("attention gradients");

	NX = 27 * NC;
	for (PM = NG_POOL_MEAN; PM <= NG_POOL_WEIGHTED; PM++) {
		ref_pool_bwd(DX, G, X, CU, NULL, NS, NC, PM);
		differences("pool", X, DX, NX, loss_pool);
	}
	report("pool gradients");
	ref_normalize_bwd(DX, G, X, 7, NC);
	differences("normalize", X, DX, 7 * NC, loss_normalize);
	report("normalize gradients");
}

/* ---- each operation ---- */

static void test_act(void)
{
	for (size_t s = 0; s < SIZES; s++)
		for (int a = NG_ACT_NONE; a <= NG_ACT_RELU; a++) {
			enum ng_act act = (enum ng_act)a;
			size_t N = sizes[s] * 3;
			struct buf *x = randoms(7 * N, 2), *y = buf(7 * N), *dy = randoms(7 * N, 1), *dx = buf(7 * N);

			EACH(act(D_, R(y), R(x), 7, N, act));
			EACH(act_bwd(D_, R(dx), R(dy), R(x), 7, N, act));
			for (size_t k = 0; k < x->n; k++) {
				y->d[k] = ref_act(x->d[k], act);
				dx->d[k] = dy->d[k] * ref_act_slope(x->d[k], act);
			}
			compare("act", y, NULL, NMSE);
			compare("act_bwd", dx, NULL, NMSE);
			/* in place */
			EACH(act_bwd(D_, R(dy), R(dy), R(x), 7, N, act));
			compare("act_bwd onto dy", dy, dx->d, NMSE);
			EACH(act(D_, R(x), R(x), 7, N, act));
			compare("act onto pre", x, y->d, NMSE);
			forget("act");
		}
	/* the whole range, absolute and (where the result is not tiny) relative error */
	struct buf *x = buf(40001), *y = buf(40001), *t = buf(40001);
	double worst = 0, worst_slope = 0, worst_tanh = 0;
	for (size_t k = 0; k < x->n; k++)
		put(x, k, ((double)k - 20000) / 2000);
	EACH(act(D_, R(y), R(x), 1, x->n, NG_ACT_GELU));
	EACH(act(D_, R(t), R(x), 1, x->n, NG_ACT_TANH));
	for (size_t k = 0; k < x->n; k++) {
		double w = ref_act(x->d[k], NG_ACT_GELU), th = tanh(x->d[k]);

		/* y = x Phi(x): the error of Phi, the rounding of y included */
		if (x->d[k] != 0)
			worst = fmax(worst, fabs(((double)y->f[0][GUARD + k] - w) / x->d[k]));
		if (th != 0)
			worst_tanh = fmax(worst_tanh, fabs((double)t->f[0][GUARD + k] / th - 1));
	}
	for (size_t k = 0; k < x->n; k++)
		put(t, k, 1);
	EACH(act_bwd(D_, R(y), R(t), R(x), 1, x->n, NG_ACT_GELU));
	for (size_t k = 0; k < x->n; k++)
		worst_slope = fmax(worst_slope, fabs((double)y->f[0][GUARD + k] - ref_act_slope(x->d[k], NG_ACT_GELU)));
	if (!(worst <= 2e-7) || !(worst_slope <= 2.5e-7) || !(worst_tanh <= 3e-7))
		BAD("Phi %.3g (2e-7), gelu slope %.3g (2.5e-7), tanh relative %.3g (3e-7)", worst, worst_slope,
			worst_tanh);
	put(x, 0, NAN);
	for (int a = NG_ACT_TANH; a <= NG_ACT_RELU; a++) {
		EACH(act(D_, R(y), R(x), 1, 1, (enum ng_act)a));
		if (y->f[0][GUARD] == y->f[0][GUARD])
			BAD("activation %d hides a NaN", a);
		EACH(act_bwd(D_, R(y), R(t), R(x), 1, 1, (enum ng_act)a));
		if (y->f[0][GUARD] == y->f[0][GUARD])
			BAD("slope of activation %d hides a NaN", a);
	}
	forget("act");
	report("act, act_bwd");
}

static void test_exp(void)
{
	const struct ng_cpu_ops *ops = strcmp(isa, "c") == 0	  ? ng_cpu_ops_c()
				       : strcmp(isa, "sse2") == 0 ? ng_cpu_ops_sse2()
								  : ng_cpu_ops_avx2();
	static float x[175001], y[175001];
	double worst = 0;

	for (size_t k = 0; k < 175001; k++)
		x[k] = (float)((double)k / 1000 - 87);
	ops->exp(y, x, 175001);
	for (size_t k = 0; k < 175001; k++)
		worst = fmax(worst, fabs((double)y[k] / exp((double)x[k]) - 1));
	if (!(worst <= 1.5e-7))
		BAD("exp: relative error %.3g", worst);
	float special[5] = { -INFINITY, NAN, 0, -1000, -88 };
	ops->exp(special, special, 5);
	if (special[0] != 0 || special[1] == special[1] || special[2] != 1 || special[3] != 0 || special[4] != 0)
		BAD("exp of -inf, NaN, 0, -1000, -88 is %g %g %g %g %g", (double)special[0], (double)special[1],
			(double)special[2], (double)special[3], (double)special[4]);
	report("exp");
}

static void test_drop(void)
{
	const struct ng_cpu_ops *ops = strcmp(isa, "c") == 0	  ? ng_cpu_ops_c()
				       : strcmp(isa, "sse2") == 0 ? ng_cpu_ops_sse2()
								  : ng_cpu_ops_avx2();
	static float f[4096 + 64];
	static const double ps[] = { 1.0 / 65536, 0.1, 0.5, 0.9, 65535.0 / 65536 };
	size_t zeros = 0, all = 0;

	for (int p = 0; p < 5; p++)
		for (uint32_t position = 0; position < 60; position++) {
			struct ng_dropout d = drop_of(ps[p], 1000 + position);
			size_t n = 1 + (size_t)(uniform() * 1100), seq = position % 5;

			ops->drop_row(f, n, &d, position, (uint32_t)examples[seq], d.stream + 2);
			for (size_t e = 0; e < n; e++) {
				if ((double)f[e] != (double)(float)ref_drop(&d, e, position, seq, 2))
					BAD("factor %zu of position %u is %g", e, position, (double)f[e]);
				zeros += ps[p] == 0.1 && f[e] == 0;
				all += ps[p] == 0.1;
			}
		}
	/* 6553 of 65536, within 5 standard deviations */
	double share = (double)zeros / (double)all, want = 6553.0 / 65536;
	if (!(fabs(share - want) < 5 * sqrt(want * (1 - want) / (double)all)))
		BAD("share of dropped is %.4f of %zu", share, all);
	report("dropout factors");
}

static void test_products(void)
{
	static const struct {
		size_t T, K, N;
	} shapes[] = { { 1, 1, 1 }, { 7, 33, 5 }, { 33, 127, 7 }, { 127, 64, 129 }, { 300, 33, 400 }, { 1, 127, 300 },
		{ 1100, 40, 200 } };

	for (size_t q = 0; q < 7; q++) {
		size_t T = shapes[q].T, K = shapes[q].K, N = shapes[q].N;
		struct buf *x = randoms(T * K, 1), *w = randoms(N * K, 1), *b = randoms(N, 1), *y = buf(T * N);
		struct buf *pre = buf(T * N), *dy = randoms(T * N, 1), *dx = buf(T * K), *dx2 = randoms(T * K, 1);
		struct buf *dw = randoms(N * K, 1), *db = randoms(N, 1);
		double *plain = calloc(T * N, sizeof(double)), *more_dx = calloc(T * K, sizeof(double));
		double *more_dw = calloc(N * K, sizeof(double));

		ref_matmul(plain, x->d, false, w->d, true, T, N, K);
		EACH(linear(D_, R(y), R(NULL), R(x), R(w), R(NULL), T, K, N, NG_ACT_NONE));
		compare("linear", y, plain, NMSE);
		for (size_t k = 0; k < T * N; k++) {
			plain[k] += b->d[k % N];
			y->d[k] = ref_act(plain[k], NG_ACT_GELU);
		}
		EACH(linear(D_, R(y), R(pre), R(x), R(w), R(b), T, K, N, NG_ACT_GELU));
		compare("linear gelu", y, NULL, NMSE);
		compare("linear pre", pre, plain, NMSE);
		EACH(linear(D_, R(y), R(NULL), R(x), R(w), R(b), T, K, N, NG_ACT_TANH));
		for (size_t k = 0; k < T * N; k++)
			y->d[k] = tanh(plain[k]);
		compare("linear tanh without pre", y, NULL, NMSE);
		EACH(linear(D_, R(y), R(pre), R(x), R(w), R(b), T, K, N, NG_ACT_NONE));
		compare("linear bias", y, plain, NMSE);
		compare("linear bias pre", pre, plain, NMSE);
		EACH(linear(D_, R(pre), R(pre), R(x), R(w), R(b), T, K, N, NG_ACT_NONE));
		compare("linear y = pre", pre, plain, NMSE);

		ref_matmul(more_dx, dy->d, false, w->d, false, T, K, N);
		EACH(linear_dx(D_, R(dx), R(dy), R(w), T, K, N, false));
		compare("linear_dx", dx, more_dx, NMSE);
		for (size_t k = 0; k < T * K; k++)
			more_dx[k] += dx2->d[k];
		EACH(linear_dx(D_, R(dx2), R(dy), R(w), T, K, N, true));
		compare("linear_dx accumulated", dx2, more_dx, NMSE);

		ref_matmul(more_dw, dy->d, true, x->d, false, N, K, T);
		for (size_t k = 0; k < N * K; k++)
			dw->d[k] += more_dw[k];
		for (size_t k = 0; k < T * N; k++)
			db->d[k % N] += dy->d[k];
		EACH(linear_dw(D_, R(dw), R(db), R(dy), R(x), T, K, N));
		compare("linear_dw", dw, NULL, NMSE);
		compare("linear_dw db", db, NULL, NMSE);
		free(plain);
		free(more_dx);
		free(more_dw);
		forget("linear");
	}
	/* all transposes, gaps in the rows, alpha and beta; the gaps stay as they are */
	for (int t = 0; t < 4; t++) {
		size_t M = 140, N = 203, K = 37, lda = (t & 1 ? M : K) + 3, ldb = (t & 2 ? K : N) + 1, ldc = N + 5;
		struct buf *a = randoms((t & 1 ? K : M) * lda, 1), *b = randoms((t & 2 ? N : K) * ldb, 1);
		struct buf *c = randoms(M * ldc, 1);

		EACH(gemm(D_, t & 1, t & 2, M, N, K, 0.5f, R(a), lda, R(b), ldb, 2.0f, R(c), ldc));
		for (size_t i = 0; i < M; i++)
			for (size_t j = 0; j < N; j++) {
				double sum = 0;

				for (size_t k = 0; k < K; k++)
					sum += a->d[t & 1 ? k * lda + i : i * lda + k] *
					       b->d[t & 2 ? j * ldb + k : k * ldb + j];
				c->d[i * ldc + j] = 2 * c->d[i * ldc + j] + 0.5 * sum;
			}
		compare("gemm", c, NULL, NMSE);
		forget("gemm");
	}
	report("linear, linear_dx, linear_dw, gemm");
}

static void test_embed(void)
{
	for (size_t s = 0; s < SIZES; s++) {
		size_t T = sizes[s], C = s % 2 ? 100 : 37, V = 50, N = 20;
		int32_t *ids = calloc(T, sizeof(*ids)), *pos = calloc(T, sizeof(*pos));
		struct buf *wte = randoms(V * C, 1), *wpe = randoms(N * C, 1), *wtt = randoms(2 * C, 1);
		struct buf *x = buf(T * C), *dx = randoms(T * C, 1), *dwte = randoms(V * C, 1);
		struct buf *dwpe = randoms(N * C, 1), *dwtt = randoms(2 * C, 1);

		for (size_t t = 0; t < T; t++) {
			ids[t] = (int32_t)(uniform() * (double)V);
			pos[t] = (int32_t)(t % N);
			for (size_t c = 0; c < C; c++) {
				double d = dx->d[t * C + c];

				x->d[t * C + c] = wte->d[(size_t)ids[t] * C + c] + wpe->d[(size_t)pos[t] * C + c] +
						  wtt->d[c];
				dwte->d[(size_t)ids[t] * C + c] += d;
				dwpe->d[(size_t)pos[t] * C + c] += d;
				dwtt->d[c] += d;
			}
		}
		EACH(embed(D_, R(x), int_ref(ids), int_ref(pos), R(wte), R(wpe), R(wtt), T, C));
		compare("embed", x, NULL, NMSE);
		EACH(embed_bwd(D_, R(dwte), R(dwpe), R(dwtt), R(dx), int_ref(ids), int_ref(pos), T, C));
		compare("embed_bwd words", dwte, NULL, NMSE);
		compare("embed_bwd positions", dwpe, NULL, NMSE);
		compare("embed_bwd types", dwtt, NULL, NMSE);
		EACH(embed(D_, R(x), int_ref(ids), int_ref(NULL), R(wte), R(NULL), R(NULL), T, C));
		EACH(embed_bwd(D_, R(dwte), R(NULL), R(NULL), R(dx), int_ref(ids), int_ref(NULL), T, C));
		for (size_t t = 0; t < T; t++)
			for (size_t c = 0; c < C; c++) {
				x->d[t * C + c] = wte->d[(size_t)ids[t] * C + c];
				dwte->d[(size_t)ids[t] * C + c] += dx->d[t * C + c];
			}
		compare("embed words alone", x, NULL, NMSE);
		compare("embed_bwd words alone", dwte, NULL, NMSE);
		free(ids);
		free(pos);
		forget("embed");
	}
	report("embed, embed_bwd");
}

static void test_layernorm(void)
{
	static const size_t widths[] = { 1, 7, 33, 384, 1031 };

	for (size_t q = 0; q < LAYOUTS; q++)
		for (int mode = 0; mode < 4; mode++) {
			const int32_t *cu = layouts[q].cu;
			size_t S = layouts[q].S, T = (size_t)cu[S], C = widths[(q + (size_t)mode) % 5];
			struct ng_dropout dx_ = drop_of(0.1, 50), dy_ = drop_of(0.3, 60);
			struct ng_dropout *px = mode & 1 ? &dx_ : NULL, *py = mode & 2 ? &dy_ : NULL;
			struct buf *x = randoms(T * C, 3), *res = mode < 3 ? randoms(T * C, 1) : NULL;
			struct buf *g = randoms(C, 1), *b = randoms(C, 1), *y = buf(T * C), *s = buf(T * C);
			struct buf *mean = buf(T), *rstd = buf(T), *dy = randoms(T * C, 1), *ds = buf(T * C);
			struct buf *dx = buf(T * C), *dg = randoms(C, 1), *db = randoms(C, 1), *y2 = buf(T * C);
			double eps = 1e-3, *adg = calloc(C, sizeof(double)), *adb = calloc(C, sizeof(double));
			struct ng_ref none = { NULL, 0 };

			EACH(layernorm(D_, R(y), R(s), R(mean), R(rstd), R(x), R(res), R(g), R(b), (float)eps,
				int_ref(cu), S, T, C, px, py));
			ref_layernorm(y->d, s->d, mean->d, rstd->d, x->d, res ? res->d : NULL, g->d, b->d,
				(double)(float)eps, cu, S, C, px, py);
			compare("layernorm y", y, NULL, NMSE);
			compare("layernorm s", s, NULL, NMSE);
			compare("layernorm mean", mean, NULL, NMSE);
			compare("layernorm rstd", rstd, NULL, NMSE);
			EACH(layernorm(D_, R(y2), none, none, none, R(x), R(res), R(g), R(b), (float)eps, int_ref(cu),
				S, T, C, px, py));
			compare("layernorm y alone", y2, y->d, NMSE);
			EACH(layernorm_bwd(D_, R(ds), px ? R(dx) : none, R(dg), R(db), R(dy), R(s), R(mean), R(rstd),
				R(g), int_ref(cu), S, T, C, px, py));
			ref_layernorm_bwd(
				ds->d, dx->d, adg, adb, dy->d, s->d, g->d, (double)(float)eps, cu, S, C, px, py);
			for (size_t c = 0; c < C; c++) {
				dg->d[c] += adg[c];
				db->d[c] += adb[c];
			}
			/* one channel: the gradient is rounding alone */
			if (C > 1) {
				compare("layernorm_bwd ds", ds, NULL, NMSE);
				if (px)
					compare("layernorm_bwd dx", dx, NULL, NMSE);
				/* onto dy, no parameters */
				EACH(layernorm_bwd(D_, R(dy), none, none, none, R(dy), R(s), R(mean), R(rstd), R(g),
					int_ref(cu), S, T, C, NULL, py));
				compare("layernorm_bwd onto dy", dy, ds->d, NMSE);
				/* s in place of x, y in place of s */
				EACH(layernorm(D_, R(x), R(x), none, none, R(x), R(res), R(g), R(b), (float)eps,
					int_ref(cu), S, T, C, px, py));
				compare("layernorm in place", x, y->d, NMSE);
			}
			compare("layernorm_bwd dgamma", dg, NULL, NMSE);
			compare("layernorm_bwd dbeta", db, NULL, NMSE);
			free(adg);
			free(adb);
			forget("layernorm");
		}
	report("layernorm, layernorm_bwd");
}

static void test_attention(void)
{
	static const struct {
		size_t D, H;
	} heads[] = { { 32, 2 }, { 64, 1 }, { 5, 3 }, { 8, 2 }, { 20, 1 } };

	for (size_t q = 0; q < LAYOUTS; q++)
		for (int mode = 0; mode < 4; mode++) {
			const int32_t *cu = layouts[q].cu;
			size_t S = layouts[q].S, T = (size_t)cu[S], D = heads[(q + (size_t)mode) % 5].D;
			size_t H = heads[(q + (size_t)mode) % 5].H, C = D * H;
			struct ng_dropout d = drop_of(0.1, 70);
			const struct ng_dropout *p = mode & 1 ? &d : NULL;
			struct buf *qkv = randoms(T * 3 * C, 1), *bias = mode & 2 ? randoms(32 * H, 1) : NULL;
			struct buf *ctx = buf(T * C), *lse = buf(T * H), *dctx = randoms(T * C, 1);
			struct buf *dqkv = buf(T * 3 * C), *db = bias ? randoms(32 * H, 1) : NULL;
			double *add = calloc(32 * H, sizeof(double));

			EACH(attention(D_, R(ctx), R(lse), R(qkv), R(bias), int_ref(cu), S, T, C, H, p));
			ref_attention(ctx->d, lse->d, qkv->d, bias ? bias->d : NULL, cu, S, C, H, p);
			compare("attention ctx", ctx, NULL, NMSE);
			compare("attention lse", lse, NULL, NMSE);
			EACH(attention_bwd(D_, R(dqkv), R(db), R(dctx), R(qkv), R(ctx), R(lse), R(bias), int_ref(cu), S,
				T, C, H, p));
			ref_attention_bwd(dqkv->d, add, dctx->d, qkv->d, bias ? bias->d : NULL, cu, S, C, H, p);
			compare("attention_bwd dqkv", dqkv, NULL, NMSE);
			if (db) {
				for (size_t k = 0; k < 32 * H; k++)
					db->d[k] += add[k];
				compare("attention_bwd dbias", db, NULL, NMSE);
			}
			free(add);
			forget("attention");
		}
	/* scores far apart: nothing overflows, and a NaN is not hidden */
	struct buf *qkv = randoms(33 * 96, 40), *ctx = buf(33 * 32);
	static const int32_t cu[] = { 0, 33 };
	EACH(attention(D_, R(ctx), R(NULL), R(qkv), R(NULL), int_ref(cu), 1, 33, 32, 1, NULL));
	ref_attention(ctx->d, NULL, qkv->d, NULL, cu, 1, 32, 1, NULL);
	compare("attention of large scores", ctx, NULL, 1e-8);
	put(qkv, 20 * 96 + 40, NAN);
	EACH(attention(D_, R(ctx), R(NULL), R(qkv), R(NULL), int_ref(cu), 1, 33, 32, 1, NULL));
	for (size_t k = 0; k < 33; k++)
		if (ctx->f[0][GUARD + k * 32] == ctx->f[0][GUARD + k * 32])
			BAD("a NaN key is hidden from query %zu", k);
	forget("attention");
	report("attention, attention_bwd");
}

static void test_pool(void)
{
	static const int32_t first[] = { 3, 1, 0, 2, 19 };

	for (size_t q = 0; q < LAYOUTS; q++)
		for (int m = NG_POOL_MEAN; m <= NG_POOL_WEIGHTED; m++)
			for (int skip = 0; skip < 2; skip++) {
				const int32_t *cu = layouts[q].cu, *f = skip ? first : NULL;
				enum ng_pool mode = (enum ng_pool)m;
				size_t S = layouts[q].S, T = (size_t)cu[S], C = q % 2 ? 48 : 37, ld = C + 11;
				struct buf *x = randoms(T * C, 1), *e = randoms(S * ld, 1), *de = randoms(S * ld, 1);
				struct buf *dx = randoms(T * C, 1), *dx2 = randoms(T * C, 1);
				double *want = calloc(S * C, sizeof(double)), *want_dx = calloc(T * C, sizeof(double));

				if (mode == NG_POOL_MAX && T > 3)
					for (size_t c = 0; c < C; c++)
						put(x, 2 * C + c, x->d[3 * C + c]); /* ties */
				EACH(pool(D_, R(e), ld, R(x), int_ref(cu), int_ref(f), S, T, C, mode));
				ref_pool(want, x->d, cu, f, S, C, mode);
				for (size_t k = 0; k < S * C; k++) {
					e->d[k / C * ld + k % C] = want[k];
					want[k] = de->d[k / C * ld + k % C];
				}
				compare("pool", e, NULL, NMSE);
				ref_pool_bwd(want_dx, want, x->d, cu, f, S, C, mode);
				EACH(pool_bwd(
					D_, R(dx), R(de), ld, R(x), int_ref(cu), int_ref(f), S, T, C, mode, false));
				compare("pool_bwd", dx, want_dx, NMSE);
				for (size_t k = 0; k < T * C; k++)
					dx2->d[k] += want_dx[k];
				EACH(pool_bwd(
					D_, R(dx2), R(de), ld, R(x), int_ref(cu), int_ref(f), S, T, C, mode, true));
				compare("pool_bwd accumulated", dx2, NULL, NMSE);
				free(want);
				free(want_dx);
				forget("pool");
			}
	report("pool, pool_bwd");
}

static void test_normalize(void)
{
	for (size_t s = 0; s < SIZES; s++) {
		size_t B = sizes[SIZES - 1 - s], C = sizes[s];
		struct buf *x = randoms(B * C, 1), *y = buf(B * C), *n = buf(B), *dy = randoms(B * C, 1),
			   *dx = buf(B * C);

		for (size_t c = 0; c < C && B > 1; c++) {
			put(x, C + c, 0);			 /* a row of zeros stays one */
			put(dy, C + c, 1e-13 * (double)(c + 1)); /* a gradient is multiplied by 1e12 there */
		}
		EACH(normalize(D_, R(y), R(n), R(x), B, C));
		EACH(normalize_bwd(D_, R(dx), R(dy), R(y), R(n), B, C));
		ref_normalize(y->d, x->d, B, C);
		ref_normalize_bwd(dx->d, dy->d, x->d, B, C);
		compare("normalize", y, NULL, NMSE);
		/* in one dimension the gradient is rounding alone */
		if (C > 1)
			compare("normalize_bwd", dx, NULL, 1e-10);
		forget("normalize");
	}
	report("normalize, normalize_bwd");
}

static void test_lse(void)
{
	for (size_t s = 0; s < SIZES; s++) {
		size_t R_ = sizes[SIZES - 1 - s], N = sizes[s];
		struct buf *z = randoms(R_ * N, 8), *z2 = randoms(R_ * N, 8), *m = buf(R_), *l = buf(R_);
		struct buf *empty = buf(N), *em = buf(1), *el = buf(1);
		double *sum = calloc(R_, sizeof(double));

		for (size_t r = 0; r < R_; r++) {
			put(m, r, -INFINITY);
			put(l, r, 0);
			/* a masked entry, and a row whose first block is masked whole */
			for (size_t j = 0; j < N; j++)
				if ((r * N + j) % 5 == 0 || r % 7 == 3)
					put(z, r * N + j, -INFINITY);
		}
		EACH(lse_update(D_, R(m), R(l), R(z), R_, N));
		EACH(lse_update(D_, R(m), R(l), R(z2), R_, N));
		for (size_t r = 0; r < R_; r++) {
			double top = -INFINITY;

			for (size_t j = 0; j < N; j++)
				top = fmax(top, fmax(z->d[r * N + j], z2->d[r * N + j]));
			for (size_t j = 0; j < N; j++)
				sum[r] += exp(z->d[r * N + j] - top) + exp(z2->d[r * N + j] - top);
			for (size_t j = 0; j < N; j++)
				z->d[r * N + j] = 0.25 * exp(z->d[r * N + j] - top) / sum[r];
			m->d[r] = top;
		}
		compare("lse_update m", m, NULL, 0);
		compare("lse_update l", l, sum, NMSE);
		EACH(softmax_from_lse(D_, R(z), R(m), R(l), 0.25f, R_, N));
		compare("softmax_from_lse", z, NULL, NMSE);
		for (size_t j = 0; j < N; j++)
			put(empty, j, -INFINITY);
		put(em, 0, -INFINITY);
		put(el, 0, 0);
		EACH(lse_update(D_, R(em), R(el), R(empty), 1, N));
		EACH(softmax_from_lse(D_, R(empty), R(em), R(el), 1, 1, N));
		for (size_t j = 0; j < N; j++)
			empty->d[j] = 0;
		compare("softmax of nothing", empty, NULL, 0);
		free(sum);
		forget("lse");
	}
	report("lse_update, softmax_from_lse");
}

static void test_flat(void)
{
	static const size_t lengths[] = { 1, 7, 33, 127, 70001 };

	for (size_t s = 0; s < 5; s++) {
		size_t n = lengths[s];
		struct buf *w = randoms(n, 1), *m = randoms(n, 0.1), *v = randoms(n, 0.1), *g = randoms(n, 1);
		struct buf *x = randoms(n, 1), *y = randoms(n, 1), *mom = randoms(n, 1), *copy = buf(n);
		double lr = (double)1e-2f, b1 = (double)0.9f, b2 = (double)0.999f, eps = (double)1e-8f,
		       wd = (double)0.1f;
		double c1 = (double)0.271f, c2 = (double)0.002997f, gs = (double)0.7f, want = 0, got[DEVICES];

		for (size_t k = 0; k < n; k++) {
			put(v, k, fabs(v->d[k]));
			want += g->d[k] * g->d[k];
		}
		for (int i = 0; i < DEVICES; i++)
			if (dev[i]->sumsq(dev[i], &got[i], ref_of(g, i), n) != 0 || got[i] != got[0])
				BAD("sumsq differs with the threads");
		if (!(fabs(got[0] - want) <= 1e-12 * want))
			BAD("sumsq is %.17g, want %.17g", got[0], want);
		EACH(adamw(D_, R(w), R(m), R(v), R(g), n, (float)lr, (float)b1, (float)b2, (float)eps, (float)wd,
			(float)c1, (float)c2, (float)gs));
		for (size_t k = 0; k < n; k++) {
			double gk = g->d[k] * gs;

			w->d[k] -= lr * wd * w->d[k];
			m->d[k] = b1 * m->d[k] + (1 - b1) * gk;
			v->d[k] = b2 * v->d[k] + (1 - b2) * gk * gk;
			w->d[k] -= lr / c1 * m->d[k] / (sqrt(v->d[k]) / sqrt(c2) + eps);
		}
		compare("adamw w", w, NULL, NMSE);
		compare("adamw m", m, NULL, NMSE);
		compare("adamw v", v, NULL, NMSE);
		EACH(sgd(D_, R(y), R(mom), R(g), n, (float)lr, (float)b1, (float)wd, (float)gs));
		for (size_t k = 0; k < n; k++) {
			mom->d[k] = b1 * mom->d[k] + gs * g->d[k] + wd * y->d[k];
			y->d[k] -= lr * mom->d[k];
		}
		compare("sgd w", y, NULL, NMSE);
		compare("sgd m", mom, NULL, NMSE);
		EACH(sgd(D_, R(y), R(NULL), R(g), n, (float)lr, 0, (float)wd, (float)gs));
		EACH(axpy(D_, R(y), 0.5f, R(x), n));
		EACH(scale(D_, R(y), 3, n));
		for (size_t k = 0; k < n; k++)
			y->d[k] = 3 * (y->d[k] - lr * (gs * g->d[k] + wd * y->d[k]) + 0.5 * x->d[k]);
		compare("sgd, axpy, scale", y, NULL, NMSE);
		EACH(copy(D_, R(copy), R(x), n));
		compare("copy", copy, x->d, 0);
		EACH(zero(D_, R(copy), n));
		for (size_t k = 0; k < n; k++)
			copy->d[k] = 0;
		compare("zero", copy, NULL, 0);
		put(g, n / 2, s % 2 ? NAN : INFINITY);
		if (dev[1]->sumsq(dev[1], &got[1], ref_of(g, 1), n) != 0 || isfinite(got[1]))
			BAD("sumsq hides what is not finite");
		/* squares past the range of float are still counted */
		for (size_t k = 0; k < n; k++)
			put(g, k, 1e30);
		if (dev[1]->sumsq(dev[1], &got[1], ref_of(g, 1), n) != 0 ||
			!(fabs(got[1] / (1e60 * (double)n) - 1) < 1e-6))
			BAD("sumsq of 1e30 is %g", got[1]);
		forget("flat");
	}
	report("sumsq, adamw, sgd, axpy, scale, copy, zero");
}

int main(void)
{
	static const char *const sets[] = { "c", "sse2", "avx2" };

	if (getenv("NG_TEST_SEED"))
		rng = strtoull(getenv("NG_TEST_SEED"), NULL, 10);
	printf("# seed %llu\n", (unsigned long long)rng);
	if (getenv("NG_SANITIZED")) {
		LAYOUTS = ALL_LAYOUTS - 2;
		printf("# NG_SANITIZED: sequences of at most 33 tokens\n");
	}
	test_reference();
	for (int s = 0; s < 3; s++) {
		bool opened = true;
		char skip[64];

		for (int i = 0; i < DEVICES; i++)
			opened = ng_device_open(&dev[i], "cpu", dev_threads[i], sets[s], NULL) == 0 && opened;
		if (!opened) {
			snprintf(skip, sizeof(skip), "instruction set %s is not there", sets[s]);
			SKIP(skip);
			continue;
		}
		isa = sets[s];
		test_exp();
		test_drop();
		test_act();
		test_products();
		test_embed();
		test_layernorm();
		test_attention();
		test_pool();
		test_normalize();
		test_lse();
		test_flat();
		for (int i = 0; i < DEVICES; i++)
			dev[i]->close(dev[i]);
	}
	/* a check that must fail, so that we know that one can */
	isa = "none";
	printf("# the next four lines of errors are meant\n");
	struct buf *b = randoms(8, 1);
	b->f[1][GUARD + 3] += 1;
	b->f[0][GUARD + 2] = NAN;
	compare("meant", b, NULL, NMSE);
	CHECK_MSG(bad == DEVICES, "a NaN and a difference between threads are noticed");
	b->f[0][GUARD + 8] = 0;
	check_guards("meant");
	CHECK_MSG(bad == DEVICES + 1, "an overwritten guard word is noticed");
	bad = 0;
	uint32_t w = GUARD_WORD;
	memcpy(b->f[0] + GUARD + 8, &w, sizeof(w));
	forget("meant");
	return check_done();
}
