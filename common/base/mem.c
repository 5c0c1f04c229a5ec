#include "common/base/compat.h"

#include <errno.h>
#include <stdarg.h>

#include "common/base/err.h"
#include "common/base/mem.h"

bool ng_mul(size_t *out, size_t a, size_t b)
{
	if (b != 0 && a > SIZE_MAX / b)
		return false;
	*out = a * b;
	return true;
}

bool ng_add(size_t *out, size_t a, size_t b)
{
	if (a > SIZE_MAX - b)
		return false;
	*out = a + b;
	return true;
}

static void out_of_memory(size_t size) NG_NORETURN;

static void out_of_memory(size_t size)
{
	ng_die(NG_OSERR, "out of memory (%zu bytes wanted)", size);
}

static size_t product(size_t n, size_t size)
{
	size_t bytes;

	if (!ng_mul(&bytes, n, size) || bytes > PTRDIFF_MAX)
		ng_die(NG_OSERR, "out of memory (%zu times %zu bytes wanted)", n, size);
	return bytes;
}

void *ng_xmalloc(size_t size)
{
	void *p = malloc(size ? size : 1);

	if (p == NULL)
		out_of_memory(size);
	return p;
}

void *ng_xcalloc(size_t n, size_t size)
{
	size_t bytes = product(n, size);
	void *p = calloc(1, bytes ? bytes : 1);

	if (p == NULL)
		out_of_memory(bytes);
	return p;
}

void *ng_xarray(size_t n, size_t size)
{
	return ng_xmalloc(product(n, size));
}

void *ng_xrealloc(void *p, size_t n, size_t size)
{
	size_t bytes = product(n, size);
	void *q = realloc(p, bytes ? bytes : 1);

	if (q == NULL)
		out_of_memory(bytes);
	return q;
}

char *ng_xstrdup(const char *s)
{
	return ng_xstrndup(s, strlen(s));
}

char *ng_xstrndup(const char *s, size_t n)
{
	const char *end = memchr(s, 0, n);
	size_t len = end ? (size_t)(end - s) : n;
	char *p = ng_xmalloc(len + 1);

	memcpy(p, s, len);
	p[len] = 0;
	return p;
}

char *ng_xasprintf(const char *fmt, ...)
{
	va_list args, again;
	char *p;
	int n;

	va_start(args, fmt);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (n < 0)
		ng_die_errno(NG_OSERR, "cannot format a text");
	p = ng_xmalloc((size_t)n + 1);
	vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

void *ng_try_array(size_t n, size_t size)
{
	size_t bytes;

	if (!ng_mul(&bytes, n, size) || bytes > PTRDIFF_MAX) {
		errno = ENOMEM;
		return NULL;
	}
	return malloc(bytes ? bytes : 1);
}

void *ng_xaligned(size_t size)
{
	void *p = NULL;

	if (size > PTRDIFF_MAX || posix_memalign(&p, 64, size ? size : 1) != 0)
		out_of_memory(size);
	return p;
}

void ng_grow(void *pointer_to_vector, size_t *cap, size_t need, size_t size)
{
	size_t to = *cap;
	void *p;

	if (need <= *cap)
		return;
	if (to < 8)
		to = 8;
	while (to < need)
		to = to > SIZE_MAX / 2 ? need : to * 2;
	/* the caller's pointer is of another type: copied, not dereferenced as void * */
	memcpy(&p, pointer_to_vector, sizeof p);
	p = ng_xrealloc(p, to, size);
	memcpy(pointer_to_vector, &p, sizeof p);
	*cap = to;
}
