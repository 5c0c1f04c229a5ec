/*
 * test_model_config.c - what a model folder says: old forms and new, defaults,
 * and what is refused.  Folders are written here, in a temporary one.
 */
#include "common/base/compat.h"

#include "t/unit/check.h"

#include <sys/stat.h>

#include "common/base/file.h"
#include "common/model/model.h"

static char dir[256];
static struct ng_err err;
static struct ng_model_config c;

static void put(const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	char *slash = strrchr(path, '/');
	*slash = '\0';
	mkdir(path, 0755);
	*slash = '/';
	FILE *fp = fopen(path, "w");
	if (fp) {
		fputs(text, fp);
		fclose(fp);
	}
}

static void drop(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	remove(path);
}

static int load(void)
{
	ng_model_config_release(&c);
	memset(&err, 0, sizeof(err));
	return ng_model_config_load(&c, dir, &err);
}

#define BERT                                                                                       \
	"\"vocab_size\":100,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
	"\"intermediate_size\":64,\"max_position_embeddings\":64"
#define MODULES(pool, rest)                                                                                \
	"[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}," \
	"{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":\"" pool "\"}" rest "]"
#define NORMALIZE                                                       \
	",{\"idx\":2,\"name\":\"2\",\"path\":\"2_Normalize\",\"type\":" \
	"\"sentence_transformers.base.modules.normalize.Normalize\"}"
#define DENSE ",{\"idx\":2,\"name\":\"2\",\"path\":\"2_Dense\",\"type\":\"sentence_transformers.models.Dense\"}"

static void test_plain(void)
{
	put("config.json", "{\"model_type\":\"bert\"," BERT "}");
	CHECK_INT_EQ(load(), 0);
	CHECK(c.family == NG_FAMILY_BERT && c.hidden == 32 && c.dim == 32 && c.tails == 0);
	CHECK(c.pools == 1 && c.pool[0] == NG_POOL_MEAN);
	CHECK_MSG(c.types == 2 && c.pad_id == 0 && c.act == NG_ACT_GELU && c.eps == 1e-12f, "defaults of BERT");
	CHECK_INT_EQ(c.max_length, 64);
	CHECK_STR_EQ(c.similarity, "cosine");
	CHECK_STR_EQ(ng_model_query_prompt(&c), "");
	put("config.json", "{\"model_type\":\"mpnet\",\"layer_norm_eps\":1e-5,\"hidden_act\":\"gelu_new\"," BERT "}");
	CHECK_INT_EQ(load(), 0);
	CHECK(c.family == NG_FAMILY_MPNET && c.types == 0 && c.pad_id == 1 && c.position_offset == 2);
	CHECK_INT_EQ(c.max_positions, 62);
	CHECK_INT_EQ(c.max_length, 62);
	CHECK(c.act == NG_ACT_GELU_TANH && c.eps == 1e-5f);
}

static void test_modules(void)
{
	put("config.json", "{\"model_type\":\"bert\"," BERT "}");
	put("modules.json", MODULES("sentence_transformers.models.Pooling", NORMALIZE));
	put("1_Pooling/config.json", "{\"word_embedding_dimension\":32,\"pooling_mode_cls_token\":true,"
				     "\"pooling_mode_mean_tokens\":false,\"include_prompt\":false}");
	CHECK_INT_EQ(load(), 0);
	CHECK(c.pools == 1 && c.pool[0] == NG_POOL_CLS && !c.include_prompt);
	CHECK_MSG(c.tails == 1 && c.tail[0].kind == NG_TAIL_NORMALIZE, "Normalize needs no folder");
	put("modules.json", MODULES("sentence_transformers.sentence_transformer.modules.pooling.Pooling", ""));
	put("1_Pooling/config.json", "{\"embedding_dimension\":32,\"pooling_mode\":[\"mean\",\"cls\",\"lasttoken\"],"
				     "\"pooling_mode_max_tokens\":true}");
	CHECK_INT_EQ(load(), 0);
	CHECK_MSG(c.pools == 3 && c.pool[0] == NG_POOL_CLS && c.pool[1] == NG_POOL_MEAN && c.pool[2] == NG_POOL_LAST,
		"a list of modes, in the fixed order, the old booleans ignored");
	CHECK_INT_EQ(c.dim, 96);
	put("1_Pooling/config.json", "{\"word_embedding_dimension\":32}");
	CHECK_INT_EQ(load(), 0);
	CHECK_MSG(c.pools == 1 && c.pool[0] == NG_POOL_MEAN, "no mode is mean");
	put("modules.json", MODULES("sentence_transformers.models.Pooling", DENSE));
	put("2_Dense/config.json", "{\"in_features\":32,\"out_features\":8,\"bias\":false,"
				   "\"activation_function\":\"torch.nn.modules.linear.Identity\"}");
	CHECK_INT_EQ(load(), 0);
	CHECK(c.tails == 1 && c.dim == 8 && !c.tail[0].bias && c.tail[0].act == NG_ACT_NONE);
	put("2_Dense/config.json", "{\"in_features\":31,\"out_features\":8}");
	CHECK_INT_EQ(load(), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	CHECK(strstr(err.text, "in_features") != NULL);
	put("2_Dense/config.json", "{\"in_features\":32,\"out_features\":8,\"activation_function\":\"torch.nn.SiLU\"}");
	CHECK_INT_EQ(load(), -1);
	CHECK_INT_EQ(err.code, NG_REFUSED);
	put("modules.json", MODULES("sentence_transformers.models.LSTM", ""));
	CHECK_INT_EQ(load(), -1);
	CHECK_INT_EQ(err.code, NG_REFUSED);
	put("modules.json", "[{\"path\":\"../x\",\"type\":\"a.Transformer\"}]");
	CHECK_INT_EQ(load(), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	put("modules.json", "[]");
	CHECK_INT_EQ(load(), -1);
	drop("modules.json");
}

static void test_lengths_and_prompts(void)
{
	put("sentence_bert_config.json", "{\"max_seq_length\":48,\"do_lower_case\":false}");
	put("tokenizer_config.json", "{\"model_max_length\":1000000000000000019884624838656}");
	CHECK_INT_EQ(load(), 0);
	CHECK_INT_EQ(c.max_length, 48);
	put("sentence_bert_config.json", "{\"max_seq_length\":65}");
	CHECK_MSG(load() == -1 && err.code == NG_DATA, "a length over the position table is an error");
	drop("sentence_bert_config.json");
	CHECK_INT_EQ(load(), 0);
	CHECK_INT_EQ(c.max_length, 64);
	drop("tokenizer_config.json");
	put("config_sentence_transformers.json",
		"{\"prompts\":{\"query\":\"query: \",\"passage\":\"passage: \"},\"similarity_fn_name\":\"dot\"}");
	CHECK_INT_EQ(load(), 0);
	CHECK_STR_EQ(ng_model_query_prompt(&c), "query: ");
	CHECK_STR_EQ(ng_model_document_prompt(&c), "");
	CHECK_STR_EQ(ng_model_prompt(&c, "passage"), "passage: ");
	CHECK_STR_EQ(c.similarity, "dot");
	drop("config_sentence_transformers.json");
}

static void refused(const char *config, enum ng_code code, const char *text)
{
	put("config.json", config);
	CHECK_MSG(load() == -1 && err.code == code && strstr(err.text, text), text);
	if (!strstr(err.text, text))
		printf("# %d: %s\n", (int)err.code, err.text);
}

static void test_refusals(void)
{
	refused("{\"model_type\":\"modernbert\"," BERT "}", NG_REFUSED, "modernbert");
	refused("{" BERT "}", NG_DATA, "model_type");
	refused("{\"model_type\":\"bert\"}", NG_DATA, "vocab_size");
	refused("{\"model_type\":\"bert\",\"hidden_act\":\"silu\"," BERT "}", NG_REFUSED, "silu");
	refused("{\"model_type\":\"bert\",\"position_embedding_type\":\"relative_key\"," BERT "}", NG_REFUSED,
		"position_embedding_type");
	refused("{\"model_type\":\"bert\",\"vocab_size\":100,\"hidden_size\":33,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":4,\"intermediate_size\":64,\"max_position_embeddings\":64}",
		NG_DATA, "hidden_size");
	refused("{\"model_type\":\"bert\",\"vocab_size\":99999999999,\"hidden_size\":32}", NG_DATA, "vocab_size");
	refused("{\"model_type\":\"bert\",\"vocab_size\":-1}", NG_DATA, "vocab_size");
	refused("{\"model_type\":\"bert\",\"vocab_size\":1.5}", NG_DATA, "vocab_size");
	refused("[1]", NG_DATA, "not a JSON object");
	refused("{\"model_type\":", NG_DATA, "config.json");
	drop("config.json");
	CHECK_MSG(load() == -1 && err.code == NG_NOINPUT, "a folder without config.json");
	char was[256];
	memcpy(was, dir, sizeof(was));
	snprintf(dir, sizeof(dir), "/nonexistent");
	CHECK_MSG(load() == -1 && err.code == NG_NOINPUT, "no folder");
	memcpy(dir, was, sizeof(was));
}

static void test_names(void)
{
	CHECK(ng_model_trains("bert.encoder.layer.0.output.dense.weight"));
	CHECK(ng_model_trains("2_Dense/linear.weight"));
	CHECK(!ng_model_trains("pooler.dense.weight"));
	CHECK(!ng_model_trains("bert.pooler.dense.bias"));
	CHECK(!ng_model_trains("embeddings.position_ids"));
	CHECK(!ng_model_trains("cls.predictions.bias"));
	CHECK(!ng_model_trains("lm_head.dense.weight"));
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/ng-config-XXXXXX", tmp ? tmp : "/tmp");
	if (mkdtemp(dir) == NULL)
		return 1;
	test_plain();
	test_modules();
	test_lengths_and_prompts();
	test_refusals();
	test_names();
	ng_model_config_release(&c);
	ng_remove_tree(dir);
	return check_done();
}
