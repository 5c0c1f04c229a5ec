/*
 * safetensors.h - one safetensors file on disk, and the weights of a model
 * folder (one file or shards) as one list of tensors.
 *
 * Files are read by pread in the caller's blocks, or mapped where the caller
 * asks for it (a mapped file that is cut while we read kills us with SIGBUS:
 * only for folders of the user's own).  Opening checks the header against the
 * file's size; values (NaN, Inf) are never looked at here.
 */
#ifndef NG_TENSOR_SAFETENSORS_H
#define NG_TENSOR_SAFETENSORS_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/tensor/header.h"

#define NG_SAFETENSORS_MAP (1u << 0)

struct ng_safetensors {
	struct ng_header header;
	char *path;
	int fd;
	uint64_t data_start;	  /* offset of the data in the file */
	uint64_t size;		  /* of the file */
	const unsigned char *map; /* whole file, NULL unless mapped */
};

/* NG_NOINPUT when missing, NG_DATA when malformed; a folder, an LFS pointer, an
 * HTML page, a renamed pickle are named as such. */
int ng_safetensors_open(struct ng_safetensors *out, const char *path, unsigned flags, struct ng_err *err);
void ng_safetensors_close(struct ng_safetensors *st); /* harmless on a zeroed struct with fd -1 */
/* n bytes of t from its byte `at`. */
int ng_safetensors_read(const struct ng_safetensors *st, const struct ng_tensor *t, uint64_t at, void *buf, size_t n,
	struct ng_err *err);

/*
 * The weights of a model folder: model.safetensors, else the shards of
 * model.safetensors.index.json, of the first module's path in modules.json
 * (the root without one); then model.safetensors of every other module (Dense),
 * whose tensors are named PATH/NAME, such as "2_Dense/linear.weight".  Nothing
 * is followed out of the folder: an index naming "../x" or "/x" is refused.
 */
struct ng_weights {
	struct ng_header header; /* all tensors, canonical order; offset = within this list */
	struct ng_safetensors *file;
	char **file_name;   /* relative to the folder */
	char **file_prefix; /* "" or "2_Dense/": what was put before the names */
	size_t n_files;
	const struct ng_tensor **own; /* [header.n] the tensor as its file has it */
	char *dir;
};
int ng_weights_open(struct ng_weights *out, const char *dir, unsigned flags, struct ng_err *err);
void ng_weights_close(struct ng_weights *w);
/* t must be from w->header (ng_header_find). Raw bytes. */
int ng_weights_read(
	const struct ng_weights *w, const struct ng_tensor *t, uint64_t at, void *buf, size_t n, struct ng_err *err);
/* count elements from element `first`, converted; NG_DATA for a type not computed with. */
int ng_weights_read_f32(const struct ng_weights *w, const struct ng_tensor *t, uint64_t first, float *out, size_t count,
	struct ng_err *err);
/* The tensor's bytes in the map (any alignment), NULL unless mapped. */
const void *ng_weights_map(const struct ng_weights *w, const struct ng_tensor *t);
/* Content digest of all tensors as stored (ng.config's "base"). */
int ng_weights_digest(char hex[NG_HASH_HEX], const struct ng_weights *w, struct ng_err *err);
/* Digest of the tensors that the folder's global would hold as F32 is made by
 * the stream writer, not here. */

/* Write a whole safetensors file: header (finished, canonical), then the data
 * by ng_out's fp in order. */
int ng_safetensors_write_header(FILE *fp, const struct ng_header *h, const char *path, struct ng_err *err);

#endif
