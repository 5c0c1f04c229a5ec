/*
 * config.h - what a model folder says of itself: architecture, pooling, the
 * modules after it, prompts, lengths (conventions/embedding.md 1.1 - 1.4).
 *
 * Reads modules.json, config.json, the modules' own config.json,
 * sentence_bert_config.json, tokenizer_config.json and
 * config_sentence_transformers.json, old forms and new.  Everything is hostile
 * until checked: sizes are bounded here, so that products of them fit size_t.
 * Weights and tokenizer are read elsewhere (model.h, text/tokenizer.h).
 */
#ifndef NG_MODEL_CONFIG_H
#define NG_MODEL_CONFIG_H

#include "common/base/err.h"
#include "kernels/device.h"

#define NG_MODEL_POOLS 6
#define NG_MODEL_TAILS 8

enum ng_family {
	NG_FAMILY_BERT,	 /* MiniLM, BGE, E5, GTE */
	NG_FAMILY_MPNET, /* positions from 2, relative attention bias, no token types */
};

/* A module after pooling. */
enum ng_tail_kind { NG_TAIL_DENSE, NG_TAIL_NORMALIZE };
struct ng_tail {
	enum ng_tail_kind kind;
	size_t in, out;
	bool bias;	 /* DENSE */
	enum ng_act act; /* DENSE */
	char *path;	 /* "2_Dense": its weights are named PATH/linear.weight */
};

struct ng_prompt {
	char *name, *text;
};

struct ng_model_config {
	enum ng_family family;
	size_t vocab, hidden, layers, heads, inner; /* V, C, L, H, F */
	size_t positions;			    /* rows of the position table */
	size_t types;				    /* rows of the token type table, 0 = none */
	float eps;				    /* of the layer norms */
	enum ng_act act;
	double dropout, attention_dropout; /* the folder's; training uses the experiment's */
	int32_t pad_id;			   /* row of the word table that gets no gradient; -1 = none */
	int32_t position_offset;	   /* of the first token: 0, MPNet 2 */
	size_t max_positions;		   /* tokens that the table allows */
	size_t max_length;		   /* effective: sentence_bert_config, else the tokenizer's and the table's */
	enum ng_pool pool[NG_MODEL_POOLS]; /* in the fixed order of their outputs */
	size_t pools;
	bool include_prompt; /* false: the prompt's tokens are left out of the pooling */
	struct ng_tail tail[NG_MODEL_TAILS];
	size_t tails;
	size_t dim; /* of a vector */
	struct ng_prompt *prompt;
	size_t prompts;
	char *default_prompt; /* name, or NULL */
	char *similarity;     /* "cosine" unless the folder says otherwise */
	char *transformer;    /* path of the first module within the folder, "" usually */
};

/* NG_NOINPUT: not a model folder; NG_DATA: malformed, naming file and key;
 * NG_REFUSED: a family, module or value ng does not compute.  out is released on failure. */
int ng_model_config_load(struct ng_model_config *out, const char *dir, struct ng_err *err);
void ng_model_config_release(struct ng_model_config *cfg); /* harmless on a zeroed struct */

/* The prompt of that name, "" when the folder has none. */
const char *ng_model_prompt(const struct ng_model_config *cfg, const char *name);
/* What sentence-transformers' encode_query and encode_document put in front: the prompts "query" and
 * "document", "" when absent.  "passage" and "corpus" never count there, since ST makes an empty
 * "document" by itself (conventions 1.2.3). */
const char *ng_model_query_prompt(const struct ng_model_config *cfg);
const char *ng_model_document_prompt(const struct ng_model_config *cfg);

#endif
