/* update.c - see update.h. */
#include "common/base/compat.h"

#include "common/model/update.h"

#include <math.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

#define BLOCK (1u << 18) /* elements */

static int write_tensor(struct ng_writer *w, const struct ng_model *m, const struct ng_tensor *t, int fd, float *was,
	float *is, struct ng_err *err)
{
	const struct ng_param *p = ng_model_param(m, t->name);

	for (uint64_t done = 0; done < t->count;) {
		size_t n = t->count - done < BLOCK ? (size_t)(t->count - done) : BLOCK, bytes = n * sizeof(*was);
		float bad = 0;

		if (ng_read_full(fd, was, bytes) != (ptrdiff_t)bytes)
			return ng_fail_errno(err, NG_IOERR, "cannot read back the global");
		if (p == NULL) {
			memset(is, 0, bytes);
		} else {
			int status = m->dev->download(m->dev, is, ng_at(m->w, p->off + (size_t)done), n);

			if (status)
				return ng_model_device_error(m, status, "cannot read the weights", err);
			for (size_t i = 0; i < n; i++) {
				is[i] -= was[i];
				bad += is[i] * 0.0f; /* NaN unless finite */
			}
			if (isnan(bad))
				return ng_fail(err, NG_DATA, "tensor '%s' is not finite after training", t->name);
		}
		if (ng_writer_data(w, is, bytes, err))
			return -1;
		done += n;
	}
	return 0;
}

int ng_update_write(struct ng_writer *w, const struct ng_model *m, const struct ng_header *global, int global_fd,
	const struct ng_frame *f, struct ng_err *err)
{
	struct ng_header h;
	float *was = ng_xarray(BLOCK, sizeof(*was)), *is = ng_xarray(BLOCK, sizeof(*is));
	int rc = -1;

	ng_header_init(&h);
	for (size_t i = 0; i < global->n; i++)
		if (ng_header_add(
			    &h, global->tensor[i].name, NG_F32, global->tensor[i].rank, global->tensor[i].dim, err))
			goto out;
	for (size_t i = 0; i < global->meta.n; i++)
		if (strncmp(global->meta.item[i].key, "ng.", 3) != 0)
			ng_meta_set(&h.meta, global->meta.item[i].key, global->meta.item[i].value);
	if (ng_header_finish(&h, err) || ng_frame_fill(&h.meta, f, err) || ng_writer_begin(w, &h, err))
		goto out;
	if (lseek(global_fd, 0, SEEK_SET) != 0) {
		ng_fail_errno(err, NG_IOERR, "cannot read back the global");
		goto out;
	}
	/* a global is all F32 (ng_model_load_stream checks it), so its order is that of the update */
	for (size_t i = 0; i < h.n; i++)
		if (write_tensor(w, m, &h.tensor[i], global_fd, was, is, err))
			goto out;
	rc = ng_writer_end(w, err);
out:
	free(was);
	free(is);
	ng_header_release(&h);
	return rc;
}
