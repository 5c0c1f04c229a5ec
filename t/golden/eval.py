#!/usr/bin/env python3
"""Golden values for ng-eval: the metrics of sentence-transformers' own evaluators on fixed vectors.

Writes t/golden/eval/: NAME.jsonl (rows), NAME-queries.npy and NAME-documents.npy (in the order of first
appearance) for the tasks "floats" and "whole", NAME.tsv, NAME-sentence1.npy and
NAME-sentence2.npy for "sts" and "sts-whole", expected.json.  Many
scores tie, at every cut; 1,500 documents cross the blocks in which ng-eval ranks.

Made with sentence-transformers 6.0.1, torch 2.9.1, numpy's PCG64 from seed 20260901.  ng-eval must agree to 1e-6.
usage: t/golden/eval.py [FOLDER]
"""

import json
import pathlib
import sys

import numpy as np
import torch
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
)
from sentence_transformers.util import cos_sim, dot_score

SEED = 20260901
QUERIES, DOCUMENTS, DIM = 40, 1500, 6
AT = [1, 2, 7, 64, 1000]


class Card:
    def set_evaluation_metrics(self, *args, **kwargs):
        pass


class Model:
    """A stand-in that looks texts up."""

    similarity_fn_name = "cosine"
    model_card_data = Card()

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, texts, convert_to_tensor=False, **kwargs):
        out = np.stack([self.vectors[t] for t in texts])
        return torch.from_numpy(out) if convert_to_tensor else out

    encode_query = encode_document = encode


def retrieval(rng, out, name, query, document, functions):
    """One task; relevant are some of each query's better documents, so that every metric has something to say."""
    rows, relevant, order = [], {}, {}
    texts = [f"document {i}" for i in rng.permutation(DOCUMENTS)]
    for i in range(QUERIES):
        near = np.argsort(-(document @ query[i]) + rng.random(DOCUMENTS))[:60]
        for d in rng.choice(near, rng.integers(1, 6), replace=False):
            rows.append({"anchor": f"query {i}", "positive": f"document {d}"})
    rows.append(dict(rows[3]))  # the same pair twice counts once
    rng.shuffle(rows)
    rows[0]["negative"] = texts
    queries = {}
    for row in rows:
        queries.setdefault(row["anchor"], len(queries))
        for text in [row["positive"], *row.get("negative", [])]:
            order.setdefault(text, len(order))
        relevant.setdefault(row["anchor"], set()).add(str(order[row["positive"]]))
    with open(out / f"{name}.jsonl", "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
    np.save(out / f"{name}-queries.npy", np.stack([query[int(q.split()[1])] for q in queries]))
    np.save(out / f"{name}-documents.npy", np.stack([document[int(d.split()[1])] for d in order]))
    vectors = {q: query[int(q.split()[1])] for q in queries}
    vectors |= {d: document[int(d.split()[1])] for d in order}
    result = {}
    for case, k in (("default", None), ("at", AT)):
        options = {} if k is None else {
            key: k for key in ("accuracy_at_k", "precision_recall_at_k", "mrr_at_k", "ndcg_at_k", "map_at_k")
        }
        evaluator = InformationRetrievalEvaluator(
            queries={q: q for q in queries},
            corpus={str(i): d for d, i in order.items()},
            relevant_docs=relevant,
            score_functions=functions,
            corpus_chunk_size=400,
            write_csv=False,
            **options,
        )
        result[f"{name} {case}"] = {key: float(value) for key, value in evaluator(Model(vectors)).items()}
    return result


def retrievals(rng, out):
    # round-off decides between different vectors that ought to tie, so ties are between equal vectors here
    few = rng.standard_normal((DOCUMENTS // 5, DIM)).astype(np.float32)
    document = few[rng.integers(0, len(few), DOCUMENTS)]
    document[5] = 0  # cosine with a zero vector is 0, not NaN
    query = rng.standard_normal((QUERIES, DIM)).astype(np.float32)
    result = retrieval(rng, out, "floats", query, document, {"cosine": cos_sim, "dot": dot_score})
    # products of small whole numbers are exact: different vectors tie too
    query = rng.integers(-2, 3, (QUERIES, DIM)).astype(np.float32)
    document = rng.integers(-2, 3, (DOCUMENTS, DIM)).astype(np.float32)
    return result | retrieval(rng, out, "whole", query, document, {"dot": dot_score})


def likeness(out, name, first, second, functions):
    gold = np.clip(np.round((first * second).sum(1) / 2), 0, 5)  # many ties
    n = len(gold)
    with open(out / f"{name}.tsv", "w", encoding="utf-8") as f:
        f.write("score\tsentence1\tsentence2\n")
        for i in range(n):
            f.write(f"{gold[i]:.1f}\tfirst {i}\tsecond {i}\n")
    np.save(out / f"{name}-sentence1.npy", first)
    np.save(out / f"{name}-sentence2.npy", second.astype(np.float64))  # float64 is read as well
    vectors = {f"first {i}": first[i] for i in range(n)} | {f"second {i}": second[i] for i in range(n)}
    evaluator = EmbeddingSimilarityEvaluator(
        [f"first {i}" for i in range(n)],
        [f"second {i}" for i in range(n)],
        [float(g) for g in gold],
        similarity_fn_names=functions,
        write_csv=False,
    )
    evaluator.embed_inputs = lambda model, texts, **kwargs: model.encode(texts)
    result = evaluator(Model(vectors))
    return {name: {key: float(value) for key, value in result.items() if "max" not in key}}


def likenesses(rng, out):
    # no pair of equal vectors: its cosine is 1 but for PyTorch's round-off, which then ranks
    first = rng.standard_normal((200, DIM)).astype(np.float32)
    second = (first * 0.7 + rng.standard_normal((200, DIM)) * 0.6).astype(np.float32)
    result = likeness(out, "sts", first, second, ["cosine", "dot"])
    first = rng.integers(-2, 3, (200, DIM)).astype(np.float32)
    second = np.where(rng.random((200, DIM)) < 0.6, first, rng.integers(-2, 3, (200, DIM))).astype(np.float32)
    return result | likeness(out, "sts-whole", first, second, ["dot"])


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "eval")
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    expected = retrievals(rng, out) | likenesses(rng, out)
    (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
