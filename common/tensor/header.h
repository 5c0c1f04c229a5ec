/*
 * header.h - the header of a safetensors file: its tensors and __metadata__.
 *
 * Reading enforces every rule of the format on hostile bytes: lengths before
 * allocation, one strict pass over the JSON without recursion, no duplicate
 * names, no holes, no overlap, overflow-checked sizes.  In memory the tensors
 * are always in the order of their data.
 * Writing gives the canonical layout: types descending, then names; the JSON
 * without blanks; padded with spaces so that data starts at a multiple of 64.
 */
#ifndef NG_TENSOR_HEADER_H
#define NG_TENSOR_HEADER_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/tensor/dtype.h"

#define NG_HEADER_MAX 100000000u /* bytes of JSON, the format's own limit */
#define NG_RANK_MAX 8
#define NG_TENSOR_NAME_MAX 512 /* in streams (DESIGN.md section 2) */

struct ng_tensor {
	char *name; /* owned by the header */
	enum ng_dtype dtype;
	unsigned rank;
	uint64_t dim[NG_RANK_MAX]; /* row-major, last fastest; rank 0 is a scalar */
	uint64_t count;		   /* elements */
	uint64_t bytes;
	uint64_t offset; /* of its first byte, from the start of the data */
	unsigned file;	 /* which file of an ng_weights, else 0 */
};

struct ng_meta_item {
	char *key, *value;
};
struct ng_meta { /* string -> string, in the order read or set */
	struct ng_meta_item *item;
	size_t n, cap;
};

struct ng_header {
	struct ng_tensor *tensor;
	size_t n, cap;
	size_t *by_name; /* indices into tensor sorted by name; NULL until finished */
	struct ng_meta meta;
	uint64_t data_bytes; /* of all tensors */
};

void ng_header_init(struct ng_header *h);
void ng_header_release(struct ng_header *h); /* harmless on a zeroed struct */

/* Parse the len bytes of JSON after the length word. NG_DATA; h is released then.
 * data_size: bytes that follow the header, or UINT64_MAX when not known yet (a
 * stream).  name is for messages. */
int ng_header_parse(
	struct ng_header *h, const char *json, size_t len, uint64_t data_size, const char *name, struct ng_err *err);
/* What is wrong with a file's first 8 bytes, n of them there (or NULL): the length
 * word names an LFS pointer, an HTML page, a zip (a renamed .bin), GGUF, zstd.
 * 0 and *out = the JSON's length, else NG_DATA. */
int ng_header_length(uint64_t *out, const unsigned char *first, size_t n, const char *name, struct ng_err *err);

/* Build one. add copies the name; NG_DATA on rank, overflow. finish sorts
 * canonically, assigns offsets, refuses duplicates. */
int ng_header_add(struct ng_header *h, const char *name, enum ng_dtype dtype, unsigned rank, const uint64_t *dim,
	struct ng_err *err);
int ng_header_finish(struct ng_header *h, struct ng_err *err);
/* The index by name alone (finish and parse do it); NG_DATA on a name twice. */
int ng_header_index(struct ng_header *h, struct ng_err *err);
/* Copy tensors and metadata. */
void ng_header_copy(struct ng_header *out, const struct ng_header *h);

/* Is the data laid out in the canonical order? */
bool ng_header_canonical(const struct ng_header *h);
/* -1: NG_DATA naming the first name that is not fit for a stream: printable
 * UTF-8, at most 512 bytes, at most one '@', that only if `coded`. */
int ng_header_check_names(const struct ng_header *h, bool coded, struct ng_err *err);
/* Length word and JSON in canonical layout, appended to out (which needs a
 * limit over NG_HEADER_MAX).  The tensors must be canonical.  with_meta false:
 * the header of the content digest. */
int ng_header_encode(struct ng_str *out, const struct ng_header *h, bool with_meta, struct ng_err *err);

/* NULL when absent. Borrowed. */
const struct ng_tensor *ng_header_find(const struct ng_header *h, const char *name);
/* Same rank and dims? */
bool ng_tensor_same_shape(const struct ng_tensor *a, const struct ng_tensor *b);
/* "[2,384]" */
void ng_tensor_shape(char *out, size_t size, const struct ng_tensor *t);

/* Metadata. get: NULL when absent, borrowed. set copies, replaces; value NULL removes. */
const char *ng_meta_get(const struct ng_meta *m, const char *key);
void ng_meta_set(struct ng_meta *m, const char *key, const char *value);
void ng_meta_setf(struct ng_meta *m, const char *key, const char *fmt, ...) NG_PRINTF(3, 4);

#endif
