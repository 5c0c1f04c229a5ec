/*
 * config.h - the texts in a global's metadata that bind it to an experiment:
 * ng.experiment (which one) and ng.config (its file and the digests of the
 * model folder it was made for), so that ng-train and ng-aggregate need only
 * their stream, folder and data.
 */
#ifndef NG_FED_CONFIG_H
#define NG_FED_CONFIG_H

#include "common/base/err.h"
#include "common/base/hash.h"

/*
 * ng.config of a global: {"base": HEX, "experiment": TEXT, "files": {PATH: HEX}}
 * as canonical JSON.  TEXT is the experiment file verbatim, as a string.
 * files: BLAKE2b-256 of config.json, tokenizer.json (without one: vocab.txt
 * and tokenizer_config.json), modules.json and each module's config.json
 * (1_Pooling/config.json, ...), of those that exist.  base: content digest of
 * the folder's weights.
 */
struct ng_config_file {
	char *path; /* relative to the model folder, checked: no "..", not absolute */
	char hex[NG_HASH_HEX];
};
struct ng_config {
	char *experiment; /* text */
	char base[NG_HASH_HEX];
	struct ng_config_file *file;
	size_t n_files;
};
/* From a model folder; base is computed by the caller (ng_config_base). */
int ng_config_make(
	struct ng_config *out, const char *experiment_text, const char *dir, const char *base_hex, struct ng_err *err);
int ng_config_parse(struct ng_config *out, const char *text, size_t len, struct ng_err *err); /* NG_DATA */
char *ng_config_json(const struct ng_config *cfg); /* canonical; caller frees */
void ng_config_release(struct ng_config *cfg);
/* NG_REFUSED naming the file that is not the experiment's, or is missing.
 * check_base: the weights too (needed only when some tensors come from the
 * folder rather than from the global). */
int ng_config_check_folder(const struct ng_config *cfg, const char *dir, bool check_base, struct ng_err *err);
/* Content digest of the weights of a model folder (safetensors, sharded or not). */
int ng_config_base(char hex[NG_HASH_HEX], const char *dir, struct ng_err *err);

/* ng.experiment: {"id": HEX, "name": NAME}, canonical. */
char *ng_experiment_tag(const char *name, const char *id_hex); /* caller frees */
int ng_experiment_tag_parse(char name[65], char id_hex[NG_HASH_HEX], const char *text, size_t len, struct ng_err *err);

#endif
