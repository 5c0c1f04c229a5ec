/* Data files: the first byte chooses format, kind and leniency. */
#include "common/base/compat.h"

#include "common/text/rows.h"
#include "t/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ng_rows_opts opts = { .min_rows = 1 };
	struct ng_row row = { 0 };
	struct ng_rows rows;
	struct ng_err err;
	const char *path[1];
	uint64_t *hash;
	size_t i;

	if (size == 0)
		return 0;
	ng_verbosity = -1;
	opts.kind = data[0] & 1 ? NG_ROWS_STS : NG_ROWS_PAIRS;
	opts.skip_bad = data[0] & 2;
	opts.replace_utf8 = data[0] & 4;
	opts.keep_empty = data[0] & 8;
	path[0] = ng_fuzz_file(data + 1, size - 1);
	if (ng_rows_open(&rows, path, 1, &opts, &err))
		return 0;
	/* what was indexed must be readable */
	for (i = 0; i < rows.n; i++)
		if (ng_rows_get(&rows, i, &row, &err) || row.n < rows.columns)
			abort();
	if (ng_rows_hashes(&rows, &hash, &err) == 0)
		free(hash);
	ng_row_release(&row);
	ng_rows_close(&rows);
	return 0;
}
