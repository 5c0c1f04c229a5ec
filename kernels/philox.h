/*
 * philox.h - philox4x32-10, the counter-based generator behind dropout masks,
 * data order and initial values.
 *
 * J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 * The output is a pure function of a 128-bit counter and a 64-bit key, so
 * nothing that is drawn depends on a thread, a micro-batch or a device.  It is
 * a generator for statistics, not for secrets.
 */
#ifndef NG_PHILOX_H
#define NG_PHILOX_H

#include <stdint.h>

#define NG_PHILOX_M0 0xD2511F53u
#define NG_PHILOX_M1 0xCD9E8D57u
#define NG_PHILOX_W0 0x9E3779B9u
#define NG_PHILOX_W1 0xBB67AE85u
#define NG_PHILOX_ROUNDS 10

/* out[4] = the block of counter[4] under key[2].  out may alias counter. */
static inline void ng_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int r = 0; r < NG_PHILOX_ROUNDS; r++) {
		uint64_t p0 = (uint64_t)NG_PHILOX_M0 * c0;
		uint64_t p1 = (uint64_t)NG_PHILOX_M1 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += NG_PHILOX_W0;
		k1 += NG_PHILOX_W1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

#endif
