/*
 * manifest.h - the payload of manifest/<n>: what the experiment is.
 *
 * Canonical JSON:
 *	{"config": {...}, "experiment": NAME, "files": [{"digest": HEX, "path": PATH, "size": N}, ...],
 *	 "ng": 1, "open": true, "previous": HEX, "version": N}
 * config: what a global carries as ng.config (fed/config.h).  files: the model
 * folder's small files, which lie beside the manifest, sorted by path.
 * previous: object digest of the manifest before; absent in version 0.
 * There is no time and no host in it: the same file and model give the same id.
 */
#ifndef NG_BOARD_MANIFEST_H
#define NG_BOARD_MANIFEST_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/board/board.h"
#include "common/fed/config.h"
#include "common/fed/experiment.h"

#define NG_MANIFEST_MAX (4u << 20)
#define NG_MANIFEST_FILES 1000

struct ng_manifest_file {
	char *path;
	uint64_t size;
	char hex[NG_HASH_HEX];
};
struct ng_manifest {
	char *name;
	long version;
	char previous[NG_HASH_HEX];
	char *config_text; /* ng.config, canonical */
	struct ng_config config;
	struct ng_experiment experiment; /* parsed from the config */
	struct ng_manifest_file *file;
	size_t n_files;
};

/* Version 0 from a model folder. base_hex: content digest of its weights. Files that
 * are weights, hidden or over NG_SMALL_FILE_MAX are left out. */
int ng_manifest_make(struct ng_manifest *out, const char *name, const char *experiment_text, const char *dir,
	const char *base_hex, struct ng_err *err);
char *ng_manifest_text(const struct ng_manifest *m); /* caller frees */
/* NG_DATA. */
int ng_manifest_parse(struct ng_manifest *out, const char *text, size_t len, struct ng_err *err);
void ng_manifest_release(struct ng_manifest *m); /* harmless on a zeroed struct */

/* Write the small files (each compared with its digest) and the base weights
 * as a model folder at `out`, which must not exist. */
int ng_manifest_restore(const struct ng_manifest *m, struct ng_board *b, const char *out, struct ng_err *err);

#endif
