#include "common/base/compat.h"

#include <errno.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/fed/config.h"
#include "common/fed/experiment.h"
#include "common/tensor/safetensors.h"

#define FILES_MAX 64
#define SMALL_FILE (64u << 20) /* modules.json and its like; tokenizers are hashed, not read */

/* A path out of a file: inside the folder, without tricks. */
static bool path_valid(const char *path)
{
	size_t len = strlen(path);

	if (len == 0 || len > 255 || path[0] == '/' || path[len - 1] == '/')
		return false;
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == '\\' || *p == 0x7f)
			return false;
	for (const char *p = path; p;) {
		size_t part = strcspn(p, "/");
		if (part == 0 || (part == 1 && p[0] == '.') || (part == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p = p[part] ? p + part + 1 : NULL;
	}
	return true;
}

static void add(struct ng_config *cfg, const char *path, const char *hex)
{
	if (cfg->n_files == FILES_MAX)
		return;
	struct ng_config_file *f = &cfg->file[cfg->n_files++];
	f->path = ng_xstrdup(path);
	snprintf(f->hex, sizeof f->hex, "%s", hex);
}

/* 1 and hex; 0 when the file is not there; -1. */
static int digest(char hex[NG_HASH_HEX], const char *dir, const char *path, struct ng_err *err)
{
	char *full = ng_xasprintf("%s/%s", dir, path);
	int result = 1;

	if (ng_hash_file(hex, full) < 0)
		result = errno == ENOENT || errno == ENOTDIR ? 0
							     : ng_fail_errno(err, NG_NOINPUT, "cannot read '%s'", full);
	free(full);
	return result;
}

static int add_file(struct ng_config *cfg, const char *dir, const char *path, struct ng_err *err)
{
	char hex[NG_HASH_HEX];
	int found = digest(hex, dir, path, err);

	if (found == 1)
		add(cfg, path, hex);
	return found;
}

/* config.json of each module that modules.json lists in a folder of its own. */
static int add_modules(struct ng_config *cfg, const char *dir, struct ng_err *err)
{
	char *full = ng_xasprintf("%s/modules.json", dir);
	json_t *modules = NULL, *module;
	size_t i;
	int result = add_file(cfg, dir, "modules.json", err);

	if (result <= 0)
		goto out;
	modules = ng_json_load(full, SMALL_FILE, err);
	if (!modules) {
		result = -1;
		goto out;
	}
	json_array_foreach(modules, i, module)
	{
		const char *path = json_string_value(json_object_get(module, "path"));
		if (!path || !*path)
			continue;
		if (!path_valid(path)) {
			result = ng_fail(err, NG_DATA, "'%s': a module's path leaves the folder", full);
			goto out;
		}
		char *config = ng_xasprintf("%s/config.json", path);
		result = add_file(cfg, dir, config, err);
		free(config);
		if (result < 0)
			goto out;
	}
	result = 0;
out:
	json_decref(modules);
	free(full);
	return result < 0 ? -1 : 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ng_config_file *)a)->path, ((const struct ng_config_file *)b)->path);
}

int ng_config_make(
	struct ng_config *out, const char *experiment_text, const char *dir, const char *base_hex, struct ng_err *err)
{
	memset(out, 0, sizeof *out);
	out->file = ng_xcalloc(FILES_MAX, sizeof *out->file);
	out->experiment = ng_xstrdup(experiment_text);
	snprintf(out->base, sizeof out->base, "%s", base_hex);

	int config = add_file(out, dir, "config.json", err);
	if (config == 0)
		ng_fail(err, NG_NOINPUT, "'%s' is not a model folder: it has no config.json", dir);
	int tokenizer = config == 1 ? add_file(out, dir, "tokenizer.json", err) : -1;
	if (tokenizer == 0) {
		tokenizer = add_file(out, dir, "vocab.txt", err);
		if (tokenizer == 0)
			ng_fail(err, NG_NOINPUT, "'%s' has neither tokenizer.json nor vocab.txt", dir);
		if (tokenizer == 1 && add_file(out, dir, "tokenizer_config.json", err) < 0)
			tokenizer = -1;
	}
	if (config != 1 || tokenizer != 1 || add_modules(out, dir, err) < 0) {
		ng_config_release(out);
		return -1;
	}
	qsort(out->file, out->n_files, sizeof *out->file, by_path);
	return 0;
}

int ng_config_parse(struct ng_config *out, const char *text, size_t len, struct ng_err *err)
{
	const char *path;
	json_t *root, *value, *files;
	int result = -1;

	memset(out, 0, sizeof *out);
	root = ng_json_parse(text, len, "ng.config", err);
	if (!root)
		return -1;
	const json_t *experiment = json_object_get(root, "experiment");
	const char *base = json_string_value(json_object_get(root, "base"));
	files = json_object_get(root, "files");
	if (!json_is_string(experiment) || json_string_length(experiment) > NG_EXPERIMENT_MAX ||
		strlen(json_string_value(experiment)) != json_string_length(experiment)) {
		ng_fail(err, NG_DATA, "ng.config: 'experiment' must be the text of an experiment file");
		goto out;
	}
	if (!base || !ng_hash_valid(base)) {
		ng_fail(err, NG_DATA, "ng.config: 'base' must be a digest");
		goto out;
	}
	if (!json_is_object(files) || json_object_size(files) == 0 || json_object_size(files) > FILES_MAX) {
		ng_fail(err, NG_DATA, "ng.config: 'files' must be an object of digests by path");
		goto out;
	}
	out->file = ng_xcalloc(FILES_MAX, sizeof *out->file);
	out->experiment = ng_xstrdup(json_string_value(experiment));
	snprintf(out->base, sizeof out->base, "%s", base);
	json_object_foreach(files, path, value)
	{
		const char *hex = json_string_value(value);
		if (!path_valid(path) || !hex || !ng_hash_valid(hex)) {
			ng_fail(err, NG_DATA, "ng.config: 'files' must be an object of digests by path");
			goto out;
		}
		add(out, path, hex);
	}
	qsort(out->file, out->n_files, sizeof *out->file, by_path);
	result = 0;
out:
	if (result < 0)
		ng_config_release(out);
	json_decref(root);
	return result;
}

char *ng_config_json(const struct ng_config *cfg)
{
	json_t *root = json_object(), *files = json_object();

	for (size_t i = 0; i < cfg->n_files; i++)
		json_object_set_new(files, cfg->file[i].path, json_string(cfg->file[i].hex));
	if (json_object_set_new(root, "base", json_string(cfg->base)) < 0 ||
		json_object_set_new(root, "experiment", json_string(cfg->experiment)) < 0 ||
		json_object_set_new(root, "files", files) < 0)
		NG_BUG("ng.config cannot be written");
	char *text = ng_json_canonical(root);
	json_decref(root);
	return text;
}

void ng_config_release(struct ng_config *cfg)
{
	for (size_t i = 0; i < cfg->n_files; i++)
		free(cfg->file[i].path);
	free(cfg->file);
	free(cfg->experiment);
	memset(cfg, 0, sizeof *cfg);
}

int ng_config_check_folder(const struct ng_config *cfg, const char *dir, bool check_base, struct ng_err *err)
{
	char hex[NG_HASH_HEX];

	for (size_t i = 0; i < cfg->n_files; i++) {
		int found = digest(hex, dir, cfg->file[i].path, err);
		if (found < 0)
			return -1;
		if (found == 0)
			return ng_fail(err, NG_REFUSED, "'%s/%s' is missing, and the experiment's model has it", dir,
				cfg->file[i].path);
		if (strcmp(hex, cfg->file[i].hex) != 0)
			return ng_fail(err, NG_REFUSED, "'%s/%s' is not the experiment's", dir, cfg->file[i].path);
	}
	if (!check_base)
		return 0;
	if (ng_config_base(hex, dir, err) < 0)
		return -1;
	if (strcmp(hex, cfg->base) != 0)
		return ng_fail(err, NG_REFUSED, "the weights in '%s' are not the experiment's", dir);
	return 0;
}

int ng_config_base(char hex[NG_HASH_HEX], const char *dir, struct ng_err *err)
{
	struct ng_weights w;

	if (ng_weights_open(&w, dir, 0, err) < 0)
		return -1;
	int result = ng_weights_digest(hex, &w, err);
	ng_weights_close(&w);
	return result;
}

char *ng_experiment_tag(const char *name, const char *id_hex)
{
	/* both are plain: nothing to escape */
	return ng_xasprintf("{\"id\":\"%s\",\"name\":\"%s\"}", id_hex, name);
}

int ng_experiment_tag_parse(char name[65], char id_hex[NG_HASH_HEX], const char *text, size_t len, struct ng_err *err)
{
	json_t *root = ng_json_parse(text, len, "ng.experiment", err);
	int result = -1;

	if (!root)
		return -1;
	const char *n = json_string_value(json_object_get(root, "name"));
	const char *id = json_string_value(json_object_get(root, "id"));
	if (!n || !ng_name_valid(n) || !id || !ng_hash_valid(id)) {
		ng_fail(err, NG_DATA, "ng.experiment must hold an experiment's name and id");
	} else {
		snprintf(name, 65, "%s", n);
		snprintf(id_hex, NG_HASH_HEX, "%s", id);
		result = 0;
	}
	json_decref(root);
	return result;
}
