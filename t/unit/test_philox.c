/* test_philox.c - the known answers of the Random123 distribution. */
#include "kernels/philox.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
	uint32_t counter[4], key[2], want[4];
} known[] = {
	{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
	{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
		{ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
	{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
		{ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

int main(void)
{
	int failed = 0, n = (int)(sizeof(known) / sizeof(known[0]));

	printf("1..%d\n", n + 1);
	for (int i = 0; i < n; i++) {
		uint32_t out[4];

		ng_philox4x32(out, known[i].counter, known[i].key);
		int same = memcmp(out, known[i].want, sizeof(out)) == 0;
		printf("%sok %d - philox4x32-10 known answer %d\n", same ? "" : "not ", i + 1, i + 1);
		if (!same) {
			printf("# got %08" PRIx32 " %08" PRIx32 " %08" PRIx32 " %08" PRIx32 "\n", out[0], out[1],
				out[2], out[3]);
			failed = 1;
		}
	}
	uint32_t block[4];
	memcpy(block, known[2].counter, sizeof(block));
	ng_philox4x32(block, block, known[2].key);
	int same = memcmp(block, known[2].want, sizeof(block)) == 0;
	printf("%sok %d - the output may be the counter\n", same ? "" : "not ", n + 1);
	return failed || !same;
}
