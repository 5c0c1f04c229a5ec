/* A failed comparison must fail the process: t/harness.bats runs this and wants exit 1. */
#include "t/unit/check.h"

int main(void)
{
	CHECK(1 + 1 == 2);
	CHECK_INT_EQ(1, 2);
	CHECK_NEAR((double)NAN, 0.0, 1e9);
	return check_done();
}
