/* Safetensors files from anywhere: parse or refuse, and what is parsed can be written and read again. */
#include "common/base/compat.h"

#include "common/base/mem.h"
#include "common/tensor/safetensors.h"
#include "t/fuzz/fuzz.h"

/* The canonical form must be accepted, and be the same when written again. */
static void rewrite(const struct ng_header *h)
{
	struct ng_header sorted, back;
	struct ng_str one, two;
	struct ng_err err;

	ng_str_init(&one, NG_HEADER_MAX + 64);
	ng_str_init(&two, NG_HEADER_MAX + 64);
	ng_header_copy(&sorted, h);
	if (ng_header_finish(&sorted, &err) < 0 || ng_header_encode(&one, &sorted, true, &err) < 0 ||
		ng_header_parse(&back, one.data + 8, one.len - 8, h->data_bytes, "again", &err) < 0)
		abort();
	if (!ng_header_canonical(&back) || ng_header_encode(&two, &back, true, &err) < 0 || one.len != two.len ||
		memcmp(one.data, two.data, one.len) != 0)
		abort();
	for (size_t i = 0; i < h->n; i++)
		if (!ng_header_find(&back, h->tensor[i].name))
			abort();
	ng_header_release(&back);
	ng_header_release(&sorted);
	ng_str_release(&one);
	ng_str_release(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ng_safetensors st;
	struct ng_err err;
	unsigned char buf[4096];

	if (ng_safetensors_open(&st, ng_fuzz_file(data, size), 0, &err) == 0) {
		rewrite(&st.header);
		for (size_t i = 0; i < st.header.n; i++) {
			const struct ng_tensor *t = &st.header.tensor[i];
			for (uint64_t at = 0; at < t->bytes; at += sizeof buf) {
				size_t n = t->bytes - at < sizeof buf ? (size_t)(t->bytes - at) : sizeof buf;
				if (ng_safetensors_read(&st, t, at, buf, n, &err) < 0)
					abort(); /* the header was checked against the file */
			}
		}
	}
	ng_safetensors_close(&st);
	return 0;
}
