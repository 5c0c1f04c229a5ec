#include "common/base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/str.h"

void ng_hash_init(struct ng_hash *h)
{
	if (sodium_init() < 0)
		ng_die(NG_OSERR, "cannot initialise libsodium");
	crypto_generichash_init(&h->state, NULL, 0, NG_HASH_BYTES);
}

void ng_hash_update(struct ng_hash *h, const void *data, size_t len)
{
	if (len)
		crypto_generichash_update(&h->state, data, len);
}

void ng_hash_final(struct ng_hash *h, char hex[NG_HASH_HEX])
{
	unsigned char digest[NG_HASH_BYTES];

	crypto_generichash_final(&h->state, digest, sizeof digest);
	ng_hex(hex, digest, sizeof digest);
}

void ng_hash_bytes(char hex[NG_HASH_HEX], const void *data, size_t len)
{
	struct ng_hash h;

	ng_hash_init(&h);
	ng_hash_update(&h, data, len);
	ng_hash_final(&h, hex);
}

int ng_hash_file(char hex[NG_HASH_HEX], const char *path)
{
	const size_t block = 256 * 1024;
	struct ng_hash h;
	char *buf;
	ptrdiff_t n;
	int fd, saved;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	buf = ng_xmalloc(block);
	ng_hash_init(&h);
	while ((n = ng_read_full(fd, buf, block)) > 0)
		ng_hash_update(&h, buf, (size_t)n);
	saved = errno;
	free(buf);
	close(fd);
	if (n < 0) {
		errno = saved;
		return -1;
	}
	ng_hash_final(&h, hex);
	return 0;
}

bool ng_hash_valid(const char *hex)
{
	unsigned char digest[NG_HASH_BYTES];

	return ng_unhex(digest, hex, sizeof digest);
}
