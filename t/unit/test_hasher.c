/* A digest in a thread is the digest, whatever the pieces, one after another and given up half-way. */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/tensor/hasher.h"
#include "t/unit/check.h"

int main(void)
{
	static const size_t sizes[] = { 0, 1, 1 << 20, (1 << 20) + 1, 3 << 20, (4 << 20) + 12345, 100 };
	size_t max = 5 << 20;
	unsigned char *data = ng_xmalloc(max);

	for (size_t i = 0; i < max; i++)
		data[i] = (unsigned char)(i * 2654435761u >> 11);
	for (int thread = 0; thread < 2; thread++) {
		struct ng_hasher *h = ng_hasher_new(thread);
		for (size_t k = 0; k < NG_COUNT(sizes); k++) {
			char want[NG_HASH_HEX], got[NG_HASH_HEX];
			size_t piece = 1000;
			ng_hash_bytes(want, data, sizes[k]);
			ng_hasher_init(h);
			for (size_t at = 0; at < sizes[k];) {
				size_t n = piece < sizes[k] - at ? piece : sizes[k] - at;
				ng_hasher_update(h, data + at, n);
				at += n;
				piece = piece * 3 % 700001 + 1;
			}
			ng_hasher_final(h, got);
			CHECK_STR_EQ(got, want);
			ng_hasher_init(h); /* given up */
			ng_hasher_update(h, data, 4 << 20);
		}
		ng_hasher_free(h);
	}
	free(data);
	return check_done();
}
