/*
 * mem.h - checked sizes and allocations.  ng_x* die with 71 when memory is
 * out; sizes that come from a file use ng_mul/ng_add and ng_try_array.
 */
#ifndef NG_MEM_H
#define NG_MEM_H

#include "common/base/compat.h"

/* *out = a op b; false on overflow, *out then undefined. */
NG_WARN_UNUSED bool ng_mul(size_t *out, size_t a, size_t b);
NG_WARN_UNUSED bool ng_add(size_t *out, size_t a, size_t b);

void *ng_xmalloc(size_t size); /* never NULL, size 0 allowed */
void *ng_xcalloc(size_t n, size_t size);
void *ng_xarray(size_t n, size_t size); /* n * size, checked */
void *ng_xrealloc(void *p, size_t n, size_t size);
char *ng_xstrdup(const char *s);
char *ng_xstrndup(const char *s, size_t n);
char *ng_xasprintf(const char *fmt, ...) NG_PRINTF(1, 2);
/* NULL with errno = ENOMEM instead of dying. */
void *ng_try_array(size_t n, size_t size);
/* 64-byte aligned; free with free(). */
void *ng_xaligned(size_t size);

/* Grow a vector: `ng_grow(&v, &cap, need, sizeof *v)`: doubles. */
void ng_grow(void *pointer_to_vector, size_t *cap, size_t need, size_t size);

#endif
