/*
 * corpus.h - a retrieval task made from pairs: queries are the distinct
 * anchors, documents the distinct positives and negatives, relevant to a query
 * are all positives of that anchor.  Texts are told apart byte by byte (by
 * 128-bit BLAKE2b) and stay in their files.
 *
 * Numbers go by first appearance: rows in order, within a row the positive
 * before the negatives.  A document's id is its number in decimal; ids are
 * compared as strings ("10" < "9") when scores tie, as a sentence-transformers
 * user gets who fills a dictionary with str(len(corpus)).
 */
#ifndef NG_RANK_CORPUS_H
#define NG_RANK_CORPUS_H

#include "common/base/err.h"
#include "common/text/rows.h"

struct ng_place {
	uint32_t row, column; /* of ng_row.text */
};

struct ng_corpus {
	struct ng_place *query, *doc;
	size_t queries, docs;
	size_t *start;	    /* (queries + 1) into relevant */
	uint32_t *relevant; /* documents, ascending within a query, each once */
};

int ng_corpus_make(struct ng_corpus *out, const struct ng_rows *rows, struct ng_err *err);
void ng_corpus_release(struct ng_corpus *c);
bool ng_corpus_relevant(const struct ng_corpus *c, size_t query, uint32_t doc);

/* Texts of some places, copied out of the rows; stops after `most` bytes or
 * count texts, whichever comes first, but always gives one. */
struct ng_texts {
	struct ng_text *text;
	size_t n;
	char *buf;
};
int ng_texts_get(struct ng_texts *out, const struct ng_rows *rows, const struct ng_place *place, size_t count,
	size_t most, struct ng_err *err);
void ng_texts_release(struct ng_texts *t);

#endif
