/*
 * hash.h - BLAKE2b-256 (what `b2sum -l 256` prints), by libsodium.
 */
#ifndef NG_HASH_H
#define NG_HASH_H

#include <sodium.h>

#include "common/base/compat.h"

#define NG_HASH_BYTES 32
#define NG_HASH_HEX 65 /* with the NUL */

struct ng_hash {
	crypto_generichash_state state;
};

void ng_hash_init(struct ng_hash *h); /* calls sodium_init once */
void ng_hash_update(struct ng_hash *h, const void *data, size_t len);
void ng_hash_final(struct ng_hash *h, char hex[NG_HASH_HEX]);
void ng_hash_bytes(char hex[NG_HASH_HEX], const void *data, size_t len);
/* Digest of a file's bytes, read in blocks. 0, or -1 and errno. */
int ng_hash_file(char hex[NG_HASH_HEX], const char *path);
bool ng_hash_valid(const char *hex); /* 64 lower-case hex digits */

#endif
