/* Exactly one zstd frame: any split of a good one passes, everything else is refused. */
#include "common/base/compat.h"

#include <zstd.h>

#include "common/base/mem.h"
#include "common/board/walk.h"
#include "t/unit/check.h"

static int walk(const unsigned char *p, size_t n, size_t piece)
{
	struct ng_walk w = { 0 };
	struct ng_err err;

	for (size_t at = 0; at < n; at += piece)
		if (ng_walk_feed(&w, p + at, n - at < piece ? n - at : piece, &err) < 0)
			return -1;
	return ng_walk_end(&w, &err);
}

int main(void)
{
	static const size_t size[] = { 0, 1, 7, 300, 70000, 400000 };

	for (size_t k = 0; k < NG_COUNT(size); k++)
		for (int mode = 0; mode < 6; mode++) {
			size_t n = size[k], room = ZSTD_compressBound(n) + 64;
			unsigned char *data = ng_xmalloc(n + 1), *out = ng_xmalloc(2 * room + 8);
			for (size_t i = 0; i < n; i++) /* runs, text, noise */
				data[i] = mode % 3 == 0	  ? 'a'
					  : mode % 3 == 1 ? (unsigned char)("abcab"[i % 5])
							  : (unsigned char)(i * 2654435761u >> 23);
			ZSTD_CCtx *c = ZSTD_createCCtx();
			ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, mode < 3);
			ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, mode != 1);
			size_t z = ZSTD_compress2(c, out, room, data, n);
			ZSTD_freeCCtx(c);
			if (!CHECK(!ZSTD_isError(z)))
				return 1;
			int bad = 0;
			for (size_t piece = 1; piece <= 20; piece += 3)
				bad += walk(out, z, piece) < 0;
			bad += walk(out, z, z) < 0;
			CHECK_INT_EQ(bad, 0);
			/* every cut */
			size_t cuts = 0, seen = 0;
			for (size_t cut = 0; cut < z; cut += 1 + z / 500) {
				seen++;
				cuts += walk(out, cut, 4096) < 0;
			}
			CHECK_INT_EQ(cuts, seen);
			/* something behind it: a byte, another frame */
			out[z] = 0;
			CHECK(walk(out, z + 1, 1000) < 0);
			memcpy(out + z, out, z);
			CHECK(walk(out, 2 * z, 1000) < 0);
			out[0] ^= 1;
			CHECK(walk(out, z, 1000) < 0);
			free(data);
			free(out);
		}
	return check_done();
}
