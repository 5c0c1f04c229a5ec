/* config.c - see config.h. */
#include "common/base/compat.h"

#include "common/model/config.h"

#include <errno.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/text/tokenizer.h"

#define JSON_MAX (4u << 20)
#define SIZE_LIMIT 65536 /* channels, inner, layers: products fit size_t */
#define TABLE_LIMIT (1l << 24)

static bool missing(const char *path)
{
	struct stat st;

	return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* NULL and no error when the file is not there. */
static int load_optional(json_t **out, const char *dir, const char *path, const char *file, struct ng_err *err)
{
	char *name = ng_xasprintf("%s/%s%s%s", dir, path, *path ? "/" : "", file);
	int rc = 0;

	*out = NULL;
	if (missing(name)) {
		free(name);
		return 0;
	}
	*out = ng_json_load(name, JSON_MAX, err);
	if (*out == NULL)
		rc = -1;
	else if (!json_is_object(*out) && !json_is_array(*out))
		rc = ng_fail(err, NG_DATA, "'%s' is not a JSON object", name);
	if (rc) {
		json_decref(*out);
		*out = NULL;
	}
	free(name);
	return rc;
}

static int get_size(size_t *out, const json_t *o, const char *key, long max, const char *where, struct ng_err *err)
{
	long v = -1;

	if (ng_json_long(&v, o, key, 1, max, where, err))
		return -1;
	if (v < 0)
		return ng_fail(err, NG_DATA, "%s: '%s' is missing", where, key);
	*out = (size_t)v;
	return 0;
}

static int parse_act(enum ng_act *out, const char *name, const char *where, struct ng_err *err)
{
	static const struct {
		const char *name;
		enum ng_act act;
	} known[] = { { "gelu", NG_ACT_GELU }, { "gelu_new", NG_ACT_GELU_TANH },
		{ "gelu_pytorch_tanh", NG_ACT_GELU_TANH }, { "gelu_python", NG_ACT_GELU }, { "relu", NG_ACT_RELU },
		{ "Tanh", NG_ACT_TANH }, { "Identity", NG_ACT_NONE }, { "GELU", NG_ACT_GELU },
		{ "ReLU", NG_ACT_RELU } };

	for (size_t i = 0; i < NG_COUNT(known); i++)
		if (strcmp(known[i].name, name) == 0) {
			*out = known[i].act;
			return 0;
		}
	return ng_fail(err, NG_REFUSED, "%s: activation '%s' is not one that ng computes", where, name);
}

static const char *last_component(const char *type)
{
	const char *dot = strrchr(type, '.');

	return dot ? dot + 1 : type;
}

/* A module's path stays within the folder. */
static bool path_valid(const char *path)
{
	if (*path == '/' || strlen(path) > 200)
		return false;
	for (const char *s = path; *s; s++) {
		if ((unsigned char)*s < 32 || *s == '\\')
			return false;
		if ((s == path || s[-1] == '/') && s[0] == '.' && (s[1] == '.' || s[1] == '/' || s[1] == '\0'))
			return false;
	}
	return true;
}

/* ---- config.json ---- */

static int read_transformer(struct ng_model_config *c, const json_t *o, struct ng_err *err)
{
	const char *where = "config.json", *type = NULL, *act = "gelu", *position = "absolute";
	double eps = 1e-12;
	long types = 0, pad = -1, buckets = 32;

	if (ng_json_string(&type, o, "model_type", where, err))
		return -1;
	if (type == NULL)
		return ng_fail(err, NG_DATA, "%s: 'model_type' is missing", where);
	if (strcmp(type, "bert") == 0)
		c->family = NG_FAMILY_BERT;
	else if (strcmp(type, "mpnet") == 0)
		c->family = NG_FAMILY_MPNET;
	else
		return ng_fail(
			err, NG_REFUSED, "%s: model type '%s' is not one that ng computes (bert, mpnet)", where, type);
	if (get_size(&c->vocab, o, "vocab_size", TABLE_LIMIT, where, err) ||
		get_size(&c->hidden, o, "hidden_size", SIZE_LIMIT, where, err) ||
		get_size(&c->layers, o, "num_hidden_layers", 1024, where, err) ||
		get_size(&c->heads, o, "num_attention_heads", 4096, where, err) ||
		get_size(&c->inner, o, "intermediate_size", SIZE_LIMIT, where, err) ||
		get_size(&c->positions, o, "max_position_embeddings", SIZE_LIMIT, where, err))
		return -1;
	if (c->hidden % c->heads)
		return ng_fail(err, NG_DATA, "%s: 'hidden_size' %zu is no multiple of 'num_attention_heads' %zu", where,
			c->hidden, c->heads);
	if (ng_json_double(&eps, o, "layer_norm_eps", 0, 1, where, err) ||
		ng_json_string(&act, o, "hidden_act", where, err) || parse_act(&c->act, act, where, err))
		return -1;
	c->eps = (float)eps;
	c->dropout = c->attention_dropout = 0.1;
	if (ng_json_double(&c->dropout, o, "hidden_dropout_prob", 0, 0.999, where, err) ||
		ng_json_double(&c->attention_dropout, o, "attention_probs_dropout_prob", 0, 0.999, where, err))
		return -1;
	if (c->family == NG_FAMILY_MPNET) {
		/* transformers fixes the padding row of both tables at 1, whatever the file says */
		c->pad_id = 1;
		c->position_offset = 2;
		if (ng_json_long(&buckets, o, "relative_attention_num_buckets", 1, 65536, where, err))
			return -1;
		if (buckets != 32)
			return ng_fail(
				err, NG_REFUSED, "%s: %ld relative attention buckets, ng computes 32", where, buckets);
		if (c->positions < 3)
			return ng_fail(err, NG_DATA, "%s: 'max_position_embeddings' leaves no position", where);
	} else {
		types = 2;
		pad = 0;
		if (ng_json_long(&types, o, "type_vocab_size", 1, 65536, where, err) ||
			ng_json_long(&pad, o, "pad_token_id", 0, TABLE_LIMIT, where, err) ||
			ng_json_string(&position, o, "position_embedding_type", where, err))
			return -1;
		if (strcmp(position, "absolute") != 0)
			return ng_fail(err, NG_REFUSED, "%s: position_embedding_type '%s', ng computes 'absolute'",
				where, position);
		bool decoder = false;
		if (ng_json_bool(&decoder, o, "is_decoder", where, err))
			return -1;
		if (decoder)
			return ng_fail(err, NG_REFUSED, "%s: a BERT decoder is not one that ng computes", where);
		c->types = (size_t)types;
		c->pad_id = (size_t)pad < c->vocab ? (int32_t)pad : -1;
	}
	c->max_positions = c->positions - (size_t)c->position_offset;
	return 0;
}

/* ---- 1_Pooling ---- */

static const struct {
	const char *name, *legacy;
	enum ng_pool pool;
} poolings[NG_MODEL_POOLS] = { /* in the fixed order of conventions 1.1.5 */
	{ "cls", "pooling_mode_cls_token", NG_POOL_CLS }, { "max", "pooling_mode_max_tokens", NG_POOL_MAX },
	{ "mean", "pooling_mode_mean_tokens", NG_POOL_MEAN },
	{ "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", NG_POOL_MEAN_SQRT },
	{ "weightedmean", "pooling_mode_weightedmean_tokens", NG_POOL_WEIGHTED },
	{ "lasttoken", "pooling_mode_lasttoken", NG_POOL_LAST }
};

static int mark_pooling(bool on[NG_MODEL_POOLS], const json_t *v, const char *where, struct ng_err *err)
{
	if (!json_is_string(v))
		return ng_fail(err, NG_DATA, "%s: 'pooling_mode' is not a string or a list of strings", where);
	for (size_t i = 0; i < NG_MODEL_POOLS; i++)
		if (strcmp(poolings[i].name, json_string_value(v)) == 0) {
			on[i] = true;
			return 0;
		}
	return ng_fail(err, NG_REFUSED, "%s: pooling '%s' is not one that ng computes", where, json_string_value(v));
}

static int read_pooling(struct ng_model_config *c, const char *dir, const char *path, struct ng_err *err)
{
	bool on[NG_MODEL_POOLS] = { false };
	char where[256];
	json_t *o;
	long width = 0;
	int rc = -1;

	snprintf(where, sizeof(where), "%s/config.json", path);
	if (load_optional(&o, dir, path, "config.json", err))
		return -1;
	if (!json_is_object(o)) {
		json_decref(o);
		return ng_fail(err, NG_DATA, "'%s/%s' is missing or not an object", dir, where);
	}
	const json_t *mode = json_object_get(o, "pooling_mode");
	if (json_is_array(mode)) {
		for (size_t i = 0; i < json_array_size(mode); i++)
			if (mark_pooling(on, json_array_get(mode, i), where, err))
				goto out;
	} else if (mode && !json_is_null(mode)) {
		if (mark_pooling(on, mode, where, err))
			goto out;
	} else {
		for (size_t i = 0; i < NG_MODEL_POOLS; i++)
			if (ng_json_bool(&on[i], o, poolings[i].legacy, where, err))
				goto out;
	}
	if (ng_json_long(&width, o, "word_embedding_dimension", 1, SIZE_LIMIT, where, err) ||
		ng_json_long(&width, o, "embedding_dimension", 1, SIZE_LIMIT, where, err) ||
		ng_json_bool(&c->include_prompt, o, "include_prompt", where, err))
		goto out;
	if (width && (size_t)width != c->hidden) {
		ng_fail(err, NG_DATA, "%s: the dimension is %ld, the model's %zu", where, width, c->hidden);
		goto out;
	}
	c->pools = 0;
	for (size_t i = 0; i < NG_MODEL_POOLS; i++)
		if (on[i])
			c->pool[c->pools++] = poolings[i].pool;
	if (c->pools == 0)
		c->pool[c->pools++] = NG_POOL_MEAN;
	rc = 0;
out:
	json_decref(o);
	return rc;
}

/* ---- what follows the pooling ---- */

static int read_dense(
	struct ng_model_config *c, struct ng_tail *t, const char *dir, const char *path, struct ng_err *err)
{
	const char *act = "torch.nn.modules.activation.Tanh", *io = NULL;
	char where[256];
	json_t *o;
	int rc = -1;

	snprintf(where, sizeof(where), "%s/config.json", path);
	if (load_optional(&o, dir, path, "config.json", err))
		return -1;
	if (!json_is_object(o)) {
		json_decref(o);
		return ng_fail(err, NG_DATA, "'%s/%s' is missing or not an object", dir, where);
	}
	t->bias = true;
	if (get_size(&t->in, o, "in_features", SIZE_LIMIT, where, err) ||
		get_size(&t->out, o, "out_features", SIZE_LIMIT, where, err) ||
		ng_json_bool(&t->bias, o, "bias", where, err) ||
		ng_json_string(&act, o, "activation_function", where, err) ||
		parse_act(&t->act, last_component(act), where, err) ||
		ng_json_string(&io, o, "module_input_name", where, err))
		goto out;
	if (io && strcmp(io, "sentence_embedding") != 0) {
		ng_fail(err, NG_REFUSED, "%s: a Dense over '%s' is not one that ng computes", where, io);
		goto out;
	}
	if (t->in != c->dim) {
		ng_fail(err, NG_DATA, "%s: 'in_features' is %zu, what comes before gives %zu", where, t->in, c->dim);
		goto out;
	}
	c->dim = t->out;
	rc = 0;
out:
	json_decref(o);
	return rc;
}

static int add_module(
	struct ng_model_config *c, const char *dir, size_t idx, const char *type, const char *path, struct ng_err *err)
{
	const char *name = last_component(type);

	if ((idx == 0) != (strcmp(name, "Transformer") == 0) || (idx == 1) != (strcmp(name, "Pooling") == 0)) {
		if (strcmp(name, "Transformer") && strcmp(name, "Pooling") && strcmp(name, "Dense") &&
			strcmp(name, "Normalize"))
			return ng_fail(err, NG_REFUSED, "modules.json: module '%s' is not one that ng computes", name);
		return ng_fail(err, NG_REFUSED,
			"modules.json: ng wants Transformer, then Pooling, then the rest, not '%s' at %zu", name, idx);
	}
	if (idx == 0)
		return 0; /* config.json is read before */
	if (idx == 1) {
		if (read_pooling(c, dir, path, err))
			return -1;
		c->dim = c->hidden * c->pools;
		return 0;
	}
	if (c->tails == NG_MODEL_TAILS)
		return ng_fail(err, NG_REFUSED, "modules.json: more than %d modules after the pooling", NG_MODEL_TAILS);
	struct ng_tail *t = &c->tail[c->tails];
	memset(t, 0, sizeof(*t));
	t->path = ng_xstrdup(path);
	c->tails++;
	if (strcmp(name, "Normalize") == 0) {
		t->kind = NG_TAIL_NORMALIZE;
		t->in = t->out = c->dim;
		return 0;
	}
	if (strcmp(name, "Dense") == 0) {
		t->kind = NG_TAIL_DENSE;
		return read_dense(c, t, dir, path, err);
	}
	return ng_fail(err, NG_REFUSED, "modules.json: module '%s' is not one that ng computes", name);
}

static int read_modules(struct ng_model_config *c, const char *dir, const json_t *modules, struct ng_err *err)
{
	if (modules == NULL) { /* plain transformers folder: mean pooling, no Normalize */
		c->pool[0] = NG_POOL_MEAN;
		c->pools = 1;
		c->dim = c->hidden;
		return 0;
	}
	for (size_t i = 0; i < json_array_size(modules); i++) {
		const json_t *m = json_array_get(modules, i);
		const char *type = NULL, *path = "";

		if (!json_is_object(m))
			return ng_fail(err, NG_DATA, "modules.json: entry %zu is not an object", i);
		if (ng_json_string(&type, m, "type", "modules.json", err) ||
			ng_json_string(&path, m, "path", "modules.json", err))
			return -1;
		if (type == NULL || !path_valid(path))
			return ng_fail(err, NG_DATA,
				"modules.json: entry %zu has no type or a path that leaves the folder", i);
		if (add_module(c, dir, i, type, path, err))
			return -1;
	}
	if (json_array_size(modules) < 2)
		return ng_fail(err, NG_DATA, "modules.json: no pooling");
	return 0;
}

/* ---- lengths and prompts ---- */

static int read_length(struct ng_model_config *c, const char *dir, struct ng_err *err)
{
	char *name = ng_xasprintf("%s%s%s", dir, *c->transformer ? "/" : "", c->transformer);
	int rc = ng_text_max_length(&c->max_length, name, c->max_positions, err);

	free(name);
	return rc;
}

static int read_prompts(struct ng_model_config *c, const char *dir, struct ng_err *err)
{
	const char *where = "config_sentence_transformers.json", *text = NULL;
	json_t *o;
	int rc = -1;

	c->similarity = ng_xstrdup("cosine");
	if (load_optional(&o, dir, "", where, err))
		return -1;
	if (o == NULL)
		return 0;
	const json_t *p = json_object_get(o, "prompts");
	const char *key;
	json_t *value;
	if (p && !json_is_null(p) && !json_is_object(p)) {
		ng_fail(err, NG_DATA, "%s: 'prompts' is not an object", where);
		goto out;
	}
	size_t n = json_object_size(p);
	c->prompt = ng_xcalloc(n ? n : 1, sizeof(*c->prompt));
	json_object_foreach((json_t *)(uintptr_t)p, key, value)
	{
		if (!json_is_string(value)) {
			ng_fail(err, NG_DATA, "%s: prompt '%s' is not a string", where, key);
			goto out;
		}
		c->prompt[c->prompts++] = (struct ng_prompt){ ng_xstrdup(key), ng_xstrdup(json_string_value(value)) };
	}
	if (ng_json_string(&text, o, "default_prompt_name", where, err))
		goto out;
	if (text)
		c->default_prompt = ng_xstrdup(text);
	text = NULL;
	if (ng_json_string(&text, o, "similarity_fn_name", where, err))
		goto out;
	if (text) {
		free(c->similarity);
		c->similarity = ng_xstrdup(text);
	}
	rc = 0;
out:
	json_decref(o);
	return rc;
}

const char *ng_model_prompt(const struct ng_model_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->prompts; i++)
		if (strcmp(cfg->prompt[i].name, name) == 0)
			return cfg->prompt[i].text;
	return "";
}

const char *ng_model_query_prompt(const struct ng_model_config *cfg)
{
	return ng_model_prompt(cfg, "query");
}

const char *ng_model_document_prompt(const struct ng_model_config *cfg)
{
	return ng_model_prompt(cfg, "document");
}

int ng_model_config_load(struct ng_model_config *out, const char *dir, struct ng_err *err)
{
	json_t *modules = NULL, *config = NULL;
	const char *path = "";
	int rc = -1;

	memset(out, 0, sizeof(*out));
	out->include_prompt = true;
	if (missing(dir)) {
		ng_fail_errno(err, NG_NOINPUT, "cannot open model folder '%s'", dir);
		goto out;
	}
	if (load_optional(&modules, dir, "", "modules.json", err))
		goto out;
	if (modules) {
		if (!json_is_array(modules) || json_array_size(modules) == 0) {
			ng_fail(err, NG_DATA, "'%s/modules.json' is not a list of modules", dir);
			goto out;
		}
		if (ng_json_string(&path, json_array_get(modules, 0), "path", "modules.json", err))
			goto out;
		if (!path_valid(path)) {
			ng_fail(err, NG_DATA, "modules.json: path '%s' leaves the folder", path);
			goto out;
		}
	}
	out->transformer = ng_xstrdup(path);
	if (load_optional(&config, dir, path, "config.json", err))
		goto out;
	if (config == NULL) {
		ng_fail(err, NG_NOINPUT, "'%s' is no model folder: it has no '%s%sconfig.json'", dir, path,
			*path ? "/" : "");
		goto out;
	}
	if (!json_is_object(config)) {
		ng_fail(err, NG_DATA, "'%s/config.json' is not a JSON object", dir);
		goto out;
	}
	if (read_transformer(out, config, err) || read_modules(out, dir, modules, err) || read_length(out, dir, err) ||
		read_prompts(out, dir, err))
		goto out;
	rc = 0;
out:
	json_decref(modules);
	json_decref(config);
	if (rc)
		ng_model_config_release(out);
	return rc;
}

void ng_model_config_release(struct ng_model_config *cfg)
{
	for (size_t i = 0; i < cfg->tails; i++)
		free(cfg->tail[i].path);
	for (size_t i = 0; i < cfg->prompts; i++) {
		free(cfg->prompt[i].name);
		free(cfg->prompt[i].text);
	}
	free(cfg->prompt);
	free(cfg->default_prompt);
	free(cfg->similarity);
	free(cfg->transformer);
	memset(cfg, 0, sizeof(*cfg));
}
