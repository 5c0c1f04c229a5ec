/*
 * vectors.h - rows of float vectors in memory, in an unlinked temporary file or
 * in a .npy file, read and written in blocks, so that a corpus larger than
 * memory can be ranked.
 */
#ifndef NG_RANK_VECTORS_H
#define NG_RANK_VECTORS_H

#include "common/base/err.h"

struct ng_vectors {
	size_t n, dim;
	float *mem;	/* (n, dim), or NULL: in fd */
	int fd;		/* -1 when in memory */
	uint64_t start; /* of the first row in fd */
	bool swapped;	/* the file is big-endian */
	bool wide;	/* the file holds float64 */
	char *name;	/* for messages */
};

/* n x dim, undefined until written; in memory when not larger than `most` bytes. */
int ng_vectors_new(struct ng_vectors *v, size_t n, size_t dim, uint64_t most, struct ng_err *err);
/* A .npy file of two dimensions, float32 or float64, C order (numpy.save). */
int ng_vectors_open_npy(struct ng_vectors *v, const char *path, struct ng_err *err);
void ng_vectors_release(struct ng_vectors *v);
/* count rows from row `first`. */
int ng_vectors_put(struct ng_vectors *v, size_t first, const float *rows, size_t count, struct ng_err *err);
int ng_vectors_get(const struct ng_vectors *v, size_t first, float *rows, size_t count, struct ng_err *err);
/* numpy.load reads it; appears whole or not at all. */
int ng_vectors_save_npy(const struct ng_vectors *v, const char *path, struct ng_err *err);

#endif
