/*
 * hasher.h - a digest computed in a thread of its own, so that a stream is
 * decoded and hashed at the same time: BLAKE2b is about as slow as zstd.
 * Without a thread (not asked for, or the system gives none) it is the same
 * digest, computed in place.
 */
#ifndef NG_TENSOR_HASHER_H
#define NG_TENSOR_HASHER_H

#include "common/base/hash.h"

struct ng_hasher;

/* The thread starts with the second MiB of a digest and stays until free. */
struct ng_hasher *ng_hasher_new(bool thread);
void ng_hasher_free(struct ng_hasher *h);				  /* NULL allowed */
void ng_hasher_init(struct ng_hasher *h);				  /* a new digest */
void ng_hasher_update(struct ng_hasher *h, const void *data, size_t len); /* data is copied or done with */
void ng_hasher_final(struct ng_hasher *h, char hex[NG_HASH_HEX]);

#endif
