/* Metrics and top-k against values worked out by hand and a sort of everything. */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/rank/metrics.h"
#include "t/unit/check.h"

struct got {
	const char *want;
	double value;
};

static void pick(const char *key, double value, void *arg)
{
	struct got *g = arg;

	if (strcmp(key, g->want) == 0)
		g->value = value;
}

static double value_of(const struct ng_ir *ir, const char *key)
{
	struct got g = { key, NAN };

	ng_ir_report(ir, "cosine", pick, &g);
	return g.value;
}

static void by_hand(void)
{
	/* query 1: hits at ranks 2 and 4 of 3 relevant; query 2: none found of 1 */
	static const bool one[10] = { false, true, false, true }, two[10] = { false };
	struct ng_ir_at at;
	struct ng_ir ir;

	ng_ir_at_default(&at);
	CHECK_INT_EQ(ng_ir_at_max(&at), 100);
	ng_ir_init(&ir, &at);
	ng_ir_add(&ir, one, 10, 3);
	ng_ir_add(&ir, two, 10, 1);
	CHECK_NEAR(value_of(&ir, "cosine_accuracy@1"), 0, 0);
	CHECK_NEAR(value_of(&ir, "cosine_accuracy@3"), 0.5, 0);
	CHECK_NEAR(value_of(&ir, "cosine_precision@3"), 1.0 / 6, 1e-15);
	CHECK_NEAR(value_of(&ir, "cosine_precision@10"), 0.1, 1e-15);
	CHECK_NEAR(value_of(&ir, "cosine_recall@5"), 1.0 / 3, 1e-15);
	CHECK_NEAR(value_of(&ir, "cosine_mrr@10"), 0.25, 1e-15);
	CHECK_NEAR(value_of(&ir, "cosine_map@100"), (0.5 + 0.5) / 3 / 2, 1e-15);
	CHECK_NEAR(value_of(&ir, "cosine_ndcg@10"), (1 / log2(3) + 1 / log2(5)) / (1 + 1 / log2(3) + 0.5) / 2, 1e-15);
	CHECK(isnan(value_of(&ir, "cosine_ndcg@11")));
	/* fewer results than k: k stays the divisor */
	ng_ir_init(&ir, &at);
	ng_ir_add(&ir, one, 2, 1);
	CHECK_NEAR(value_of(&ir, "cosine_precision@10"), 0.1, 1e-15);
}

static void correlation(void)
{
	static const double x[] = { 1, 2, 2, 3, 5 }, y[] = { 2, 1, 4, 4, 9 }, flat[] = { 0.1, 0.1, 0.1, 0.1, 0.1 };
	/* ranks of x: 1 2.5 2.5 4 5, of y: 2 1 3.5 3.5 5 */
	static const double rx[] = { 1, 2.5, 2.5, 4, 5 }, ry[] = { 2, 1, 3.5, 3.5, 5 };

	CHECK_NEAR(ng_pearson(x, y, 5), 0.9092079184111859, 1e-12);
	CHECK_NEAR(ng_spearman(x, y, 5), ng_pearson(rx, ry, 5), 1e-15);
	CHECK_NEAR(ng_spearman(x, x, 5), 1, 1e-15);
	CHECK(isnan(ng_pearson(x, flat, 5)));
	CHECK(isnan(ng_spearman(flat, y, 5)));
	CHECK(isnan(ng_pearson(x, y, 1)));
}

int main(void)
{
	by_hand();
	correlation();
	return check_done();
}
