#!/usr/bin/env python3
"""Training speed: ng-train beside sentence-transformers, in one run.

    python t/perf/train.py MODEL [--data FILE] [--rows N] [--threads 2] [--only NAME,...]

MODEL: all-MiniLM-L6-v2.  FILE: ../shared/data/leaflets/train-site-a.jsonl by
default.  Max length 256, dropout 0.1, fp32, AdamW, clip 1.0, the first N rows:

  st       MultipleNegativesRankingLoss, batch 128, padded to the longest of a
           column, as sentence-transformers' trainer does
  grouped  the same with rows of like length in a batch
  ng       ng-train, batch 128
  cached   CachedMultipleNegativesRankingLoss, batch 1024, mini-batch 32
  ng-1024  ng-train, batch 1024

Each runs in a process of its own.  pairs/s leaves out start and first step;
useful GFLOP/s counts products of real tokens, forward and backward once, no
padding and no replay; its share is of the best sgemm measured here.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("NG_BIN", os.path.join(ROOT, "bin"))
LENGTH = 256


def rows_of(path, n):
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(x) for x in f][:n]
    return [(r["anchor"], r["positive"]) for r in rows]


def work_of(model, rows):
    """(tokens, GFLOP of one pass over the rows) without padding"""
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(model + "/tokenizer.json")
    t.no_padding()
    t.enable_truncation(LENGTH)
    with open(model + "/config.json") as f:
        c = json.load(f)
    C, F, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    lengths = [len(e.ids) for col in (0, 1) for e in t.encode_batch([r[col] for r in rows])]
    flop = sum(L * layers * (2 * (4 * C * C + 2 * C * F) + 4 * L * C) for L in lengths)
    return sum(lengths), 3 * flop / 1e9


def sgemm_peak(threads):
    import torch
    torch.set_num_threads(threads)
    best = 0.0
    for m, n, k in ((2048, 1536, 384), (4096, 384, 1536), (2048, 2048, 2048)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        for _ in range(4):
            t = time.perf_counter()
            for _ in range(4):
                a @ b
            best = max(best, 4 * 2 * m * n * k / (time.perf_counter() - t) / 1e9)
    return best


def peer(kind, model, rows, threads):
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses
    torch.set_num_threads(threads)
    torch.manual_seed(42)
    m = SentenceTransformer(model, device="cpu")
    m.max_seq_length = LENGTH
    batch = 1024 if kind == "cached" else 128
    if kind == "cached":
        loss = losses.CachedMultipleNegativesRankingLoss(m, mini_batch_size=32)
    else:
        loss = losses.MultipleNegativesRankingLoss(m)
    m.train()
    if kind == "grouped":
        rows = sorted(rows, key=lambda r: len(r[1]))
        order = torch.randperm((len(rows) + batch - 1) // batch).tolist()
        batches = [rows[i * batch:(i + 1) * batch] for i in order]
    else:
        p = torch.randperm(len(rows)).tolist()
        batches = [[rows[j] for j in p[i:i + batch]] for i in range(0, len(p), batch)]
    opt = torch.optim.AdamW(m.parameters(), lr=2e-5, weight_decay=0.0)
    done, start = 0, None
    if len(batches) == 1:
        # nothing may be left out: let a small step warm up
        batches.insert(0, rows[:32])
    for b in batches:
        f = [m.preprocess([r[c] for r in b]) for c in (0, 1)]
        opt.zero_grad()
        loss(f, None).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        if start is None:
            start = time.perf_counter()
        else:
            done += len(b)
    seconds = time.perf_counter() - start
    return {"pairs": done, "seconds": seconds, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def ng(batch, model, rows, threads, tmp):
    data, exp, board = tmp + "/rows.jsonl", tmp + f"/e{batch}.json", tmp + f"/board{batch}"
    with open(data, "w") as f:
        f.writelines(json.dumps({"anchor": a, "positive": p}) + "\n" for a, p in rows)
    with open(exp, "w") as f:
        json.dump({"experiment": "perf", "rounds": 1, "quorum": 1, "train": {
            "batch": batch, "lr": 2e-5, "max_length": LENGTH, "sampler": "random"}}, f)
    env = dict(os.environ, NG_STATE=tmp + "/state")
    quiet = {"stdout": subprocess.DEVNULL}
    subprocess.run([BIN + "/ng-init", "-q", "--open", "-b", board, "-e", "perf", "-m", model, exp], check=True, env=env, **quiet)
    with open(tmp + "/global", "wb") as f:
        subprocess.run([BIN + "/ng-pull", "-q", "-b", board, "-e", "perf"], check=True, env=env, stdout=f)
    log = tmp + f"/log{batch}"
    start = time.perf_counter()
    p = subprocess.Popen([BIN + "/ng-train", "-q", "-m", model, "-d", data, "-s", "perf", "--threads", str(threads),
                          "--log", log, tmp + "/global"], env=env, **quiet)
    _, status, usage = os.wait4(p.pid, 0)
    wall = time.perf_counter() - start
    if status:
        sys.exit(f"ng-train failed: {status}")
    steps = [json.loads(x) for x in open(log)]
    steps = [s for s in steps if "loss" in s and "seconds" in s]
    part = steps[1:] if len(steps) > 1 else steps
    pairs, seconds = sum(s["rows"] for s in part), sum(s["seconds"] for s in part)
    return {"pairs": pairs, "seconds": seconds, "rss": usage.ru_maxrss * 1024, "wall": wall}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--data", default=os.path.join(ROOT, "../shared/data/leaflets/train-site-a.jsonl"))
    p.add_argument("--rows", type=int, default=1024)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="st,grouped,ng,cached,ng-1024")
    p.add_argument("--peer", help=argparse.SUPPRESS)
    o = p.parse_args()
    rows = rows_of(o.data, o.rows)
    if o.peer:
        print(json.dumps(peer(o.peer, o.model, rows, o.threads)))
        return
    peak = sgemm_peak(o.threads)
    tokens, gflop = work_of(o.model, rows)
    print(f"{len(rows)} pairs, {tokens} tokens, {o.threads} threads, best sgemm {peak:.0f} GFLOP/s", flush=True)
    print(f"{'':10} {'pairs/s':>8} {'GFLOP/s':>8} {'of sgemm':>8} {'MiB':>7} {'to st':>6} {'to cached':>9}", flush=True)
    speed = {}
    with tempfile.TemporaryDirectory() as tmp:
        for k in o.only.split(","):
            if k.startswith("ng"):
                r = ng(1024 if k == "ng-1024" else 128, o.model, rows, o.threads, tmp)
            else:
                out = subprocess.run([sys.executable, __file__, o.model, "--data", o.data, "--rows", str(o.rows), "--threads",
                                      str(o.threads), "--peer", k], check=True, stdout=subprocess.PIPE).stdout
                r = json.loads(out.splitlines()[-1])
            speed[k] = v = r["pairs"] / r["seconds"]
            g = gflop / len(rows) * v
            ratio = lambda other: f"{v / speed[other]:.2f}" if other in speed else "-"
            print(f"{k:10} {v:8.2f} {g:8.1f} {g / peak:7.0%} {r['rss'] / 2**20:8.0f} {ratio('st'):>6} {ratio('cached'):>9}",
                  flush=True)


if __name__ == "__main__":
    main()
