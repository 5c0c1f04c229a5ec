/* ng.config: made from a folder, written, read, held against folders. */
#include "common/base/compat.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/out.h"
#include "common/fed/config.h"
#include "t/unit/check.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char dir[] = "/tmp/ng-test-XXXXXX";

static void put(const char *name, const char *text)
{
	char *path = ng_xasprintf("%s/%s", dir, name);
	struct ng_err err;

	if (ng_out_put(path, text, strlen(text), 0, &err) < 0)
		printf("# %s\n", err.text);
	free(path);
}

static void folder(void)
{
	char *sub = ng_xasprintf("%s/1_Pooling", dir);
	struct ng_config made, read;
	struct ng_err err;

	CHECK_INT_EQ(ng_config_make(&made, "{}", dir, HEX, &err), -1);
	CHECK_INT_EQ(err.code, NG_NOINPUT);
	ng_mkdirs(sub, 0777, &err);
	free(sub);
	put("config.json", "{}");
	CHECK_INT_EQ(ng_config_make(&made, "{}", dir, HEX, &err), -1);
	CHECK(strstr(err.text, "tokenizer.json") != NULL);
	put("tokenizer.json", "{}");
	put("modules.json", "[{\"path\": \"\"}, {\"path\": \"1_Pooling\"}, {\"path\": \"2_Normalize\"}]");
	put("1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
	CHECK_INT_EQ(ng_config_make(&made, "{ \"experiment\":\n 1 }", dir, HEX, &err), 0);
	CHECK_INT_EQ(made.n_files, 4);
	char *json = ng_config_json(&made);
	CHECK_INT_EQ(ng_config_parse(&read, json, strlen(json), &err), 0);
	CHECK_STR_EQ(read.experiment, "{ \"experiment\":\n 1 }"); /* verbatim */
	CHECK_STR_EQ(read.file[0].path, "1_Pooling/config.json");
	char *again = ng_config_json(&read);
	CHECK_STR_EQ(again, json);
	free(again);
	free(json);
	CHECK_INT_EQ(ng_config_check_folder(&read, dir, false, &err), 0);
	put("1_Pooling/config.json", "{\"pooling_mode\": \"cls\"}");
	CHECK_INT_EQ(ng_config_check_folder(&read, dir, false, &err), -1);
	CHECK_INT_EQ(err.code, NG_REFUSED);
	CHECK(strstr(err.text, "1_Pooling/config.json") != NULL);
	put("1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
	put("tokenizer.json", "{ }");
	CHECK_INT_EQ(ng_config_check_folder(&read, dir, false, &err), -1);
	CHECK(strstr(err.text, "tokenizer.json") != NULL);
	put("modules.json", "[{\"path\": \"../elsewhere\"}]");
	ng_config_release(&made);
	CHECK_INT_EQ(ng_config_make(&made, "{}", dir, HEX, &err), -1);
	CHECK_INT_EQ(err.code, NG_DATA);
	ng_config_release(&read);
}

static void malformed(void)
{
	static const char *const rows[] = { "", "[]", "{}", "{\"base\":\"" HEX "\",\"experiment\":\"x\"}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{}}",
		"{\"base\":\"" HEX "\",\"experiment\":{},\"files\":{\"a\":\"" HEX "\"}}",
		"{\"base\":\"00\",\"experiment\":\"x\",\"files\":{\"a\":\"" HEX "\"}}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{\"a\":\"zz\"}}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{\"../a\":\"" HEX "\"}}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{\"/a\":\"" HEX "\"}}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{\"a//b\":\"" HEX "\"}}",
		"{\"base\":\"" HEX "\",\"experiment\":\"x\",\"files\":{\"a/./b\":\"" HEX "\"}}" };
	struct ng_config cfg;
	struct ng_err err;

	for (size_t i = 0; i < NG_COUNT(rows); i++)
		CHECK_MSG(ng_config_parse(&cfg, rows[i], strlen(rows[i]), &err) == -1 && err.code == NG_DATA, rows[i]);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	folder();
	malformed();
	ng_remove_tree(dir);
	return check_done();
}
