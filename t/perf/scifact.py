#!/usr/bin/env python3
"""ng-eval on SciFact beside the published figures.

Makes pairs of a BEIR folder (queries of the test split with their relevant documents as positives, title + space +
text; every other document is a negative of the first row, so that the corpus is whole), runs ng-eval -j -m MODEL on
them, and prints its NDCG@10 and MRR@10 with those of ../shared/data/published.  Python's standard library only.
usage: t/perf/scifact.py MODEL [FOLDER [ng-eval option...]]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLISHED = {"nDCG@10": 0.64508, "MRR@10": 0.60472}  # all-MiniLM-L6-v2, embeddings-benchmark/results f4cc6c8b


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def pairs(folder):
    corpus = {d["_id"]: (d.get("title", "") + " " + d["text"]).strip() for d in lines(folder / "corpus.jsonl")}
    queries = {q["_id"]: q["text"] for q in lines(folder / "queries.jsonl")}
    rows = []
    with open(folder / "qrels" / "test.tsv", encoding="utf-8") as f:
        next(f)
        for line in f:
            query, document, score = line.split()
            if int(score) > 0:
                rows.append({"anchor": queries[query], "positive": corpus[document]})
    used = {row["positive"] for row in rows}
    rows[0]["negative"] = [text for text in corpus.values() if text not in used]
    return rows, len(corpus)


def main():
    model = sys.argv[1]
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "../shared/data/ir/scifact"
    rows, documents = pairs(folder)
    with tempfile.TemporaryDirectory() as tmp:
        data = pathlib.Path(tmp) / "pairs.jsonl"
        data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        program = os.environ.get("NG_BIN", str(ROOT / "bin")) + "/ng-eval"
        done = subprocess.run(
            [program, "-j", "-m", model, "-d", str(data), *sys.argv[3:]], stdout=subprocess.PIPE, check=True
        )
    got = json.loads(done.stdout)
    print(f"{got['queries']} queries, {got['documents']} distinct documents of {documents}")
    print("metric\tng-eval\tpublished\tdifference")
    for name, key in (("nDCG@10", "cosine_ndcg@10"), ("MRR@10", "cosine_mrr@10")):
        print(f"{name}\t{got[key]:.5f}\t{PUBLISHED[name]:.5f}\t{got[key] - PUBLISHED[name]:+.5f}")


if __name__ == "__main__":
    main()
