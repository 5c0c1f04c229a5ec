#include "common/base/compat.h"

#include "common/fed/mean.h"

/*
 * Finite without a branch: the exponent of a NaN or an infinity is all ones.
 * Bits are read through memcpy, which every compiler turns into a register
 * move, also at -O0 with the same meaning.
 */
static uint32_t exponent(const float *x)
{
	uint32_t u;

	memcpy(&u, x, sizeof u);
	return u & 0x7f800000u;
}

static bool one_by_one(struct ng_square_sum *s, uint64_t at, const float *x, size_t n)
{
	bool finite = true;

	for (size_t i = 0; i < n; i++) {
		double v = x[i];
		finite = finite && exponent(x + i) != 0x7f800000u;
		s->lane[(at + i) % NG_LANES] += v * v;
	}
	return finite;
}

bool ng_square_add(struct ng_square_sum *s, uint64_t at, const float *x, size_t n)
{
	size_t head = (size_t)((NG_LANES - at % NG_LANES) % NG_LANES);
	double lane[NG_LANES];
	uint32_t bad[NG_LANES] = { 0 };

	if (head > n)
		head = n;
	bool finite = one_by_one(s, at, x, head);
	x += head;
	n -= head;
	memcpy(lane, s->lane, sizeof lane);
	size_t whole = n / NG_LANES * NG_LANES;
	for (size_t i = 0; i < whole; i += NG_LANES)
		for (size_t j = 0; j < NG_LANES; j++) {
			double v = x[i + j];
			lane[j] += v * v;
			bad[j] |= (exponent(x + i + j) + 0x00800000u) & 0x80000000u;
		}
	memcpy(s->lane, lane, sizeof lane);
	for (size_t j = 0; j < NG_LANES; j++)
		finite = finite && bad[j] == 0;
	return one_by_one(s, at + head + whole, x + whole, n - whole) && finite;
}

double ng_square_total(const struct ng_square_sum *s)
{
	double sum = 0;

	for (size_t j = 0; j < NG_LANES; j++)
		sum += s->lane[j];
	return sum;
}

void ng_mean_add(double *restrict acc, const float *restrict x, double w, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		for (size_t j = 0; j < 8; j++)
			acc[i + j] += w * (double)x[i + j];
	for (; i < n; i++)
		acc[i] += w * (double)x[i];
}

bool ng_mean_finish(float *out, const float *base, const double *acc, double W, size_t n)
{
	uint32_t bad = 0;

	for (size_t i = 0; i < n; i++) {
		out[i] = (float)((double)base[i] + acc[i] / W);
		bad |= (exponent(out + i) + 0x00800000u) & 0x80000000u;
	}
	return bad == 0;
}
