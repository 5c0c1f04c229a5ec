#!/usr/bin/env python3
"""Tokenizing speed: ng against the Rust `tokenizers` package, one thread each,
side by side in one run.

    make build/perf/tokenize && t/perf/tokenizer_speed.py [MODEL_DIR [FILE.jsonl ...]]

Defaults: the shared MiniLM folder; its English leaflets and SciFact's
abstracts (one column), and the shared tokenizer lines in 530 languages (the
other).  Both sides get the texts in memory, take no truncation and no padding,
and count the best of several passes, ours and theirs in turn.  The package is
timed by its fastest way, encode_batch_fast (no offsets kept) with parallelism
off; encode_batch is shown too.  Start-up is not counted.

What must hold: ours at least 5 times theirs; the ids are the same.
Exit 1 if either does not.
"""

import glob
import json
import os
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.path.join(ROOT, "..", "shared", "data")
TOOL = os.path.join(ROOT, os.environ.get("NG_BUILD", "build"), "perf", "tokenize")
KEYS = ("text", "title", "anchor", "positive", "negative")
LIMIT = 8 << 20  # bytes of text a set: enough to leave the caches, short to run
SECONDS = 2.0


def texts_of(paths):
    texts, size = [], 0
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                for key in KEYS:
                    if isinstance(row.get(key), str):
                        texts.append(row[key])
                        size += len(row[key].encode())
                if size > LIMIT:
                    return texts
    return texts


def packed(texts):
    return b"".join(struct.pack("=I", len(b)) + b for b in (t.encode() for t in texts))


def ours_time(model, data):
    out = subprocess.run([TOOL, "time", model, str(SECONDS)], input=data, stdout=subprocess.PIPE, check=True).stdout
    seconds, ids = out.split()
    return float(seconds), int(ids)


def ours_ids(model, data):
    out = subprocess.run([TOOL, "ids", model], input=data, stdout=subprocess.PIPE, check=True).stdout
    result, at = [], 0
    while at < len(out):
        (n,) = struct.unpack_from("=I", out, at)
        result.append(list(struct.unpack_from(f"={n}i", out, at + 4)))
        at += 4 + 4 * n
    return result


def theirs_time(encode, texts):
    best, begin = 1e9, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        t = time.perf_counter()
        encode(texts)
        best = min(best, time.perf_counter() - t)
    return best


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else os.path.join(SHARED, "models", "all-MiniLM-L6-v2-noweights")
    if len(sys.argv) > 2:
        sets = {"given": sys.argv[2:]}
    else:
        sets = {
            "English": sorted(glob.glob(os.path.join(SHARED, "leaflets", "*.jsonl")))
            + [os.path.join(SHARED, "ir", "scifact", "corpus.jsonl")],
            "530 languages": [os.path.join(SHARED, "tokenizer", "expected_ids.jsonl")],
        }
    theirs = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    print(f"tokenizers {tokenizers.__version__}, one thread each")
    print("texts\tMB\tids\tng MB/s\tfast MB/s\tbatch MB/s\tng/fast\tng/batch\tsame ids")
    good = True
    for name, paths in sets.items():
        texts = texts_of(paths)
        data = packed(texts)
        size = sum(len(t.encode()) for t in texts) / 1e6
        ours, ids = ours_time(model, data)
        fast = theirs_time(theirs.encode_batch_fast, texts)
        again, _ = ours_time(model, data)
        batch = theirs_time(theirs.encode_batch, texts)
        ours = min(ours, again)
        same = ours_ids(model, data) == [e.ids for e in theirs.encode_batch_fast(texts)]
        good = good and same and fast / ours >= 5
        print(
            f"{name}\t{size:.1f}\t{ids}\t{size / ours:.1f}\t{size / fast:.1f}\t{size / batch:.1f}\t"
            f"{fast / ours:.1f}\t{batch / ours:.1f}\t{'yes' if same else 'NO'}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
