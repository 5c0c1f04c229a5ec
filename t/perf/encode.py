#!/usr/bin/env python3
"""Encoding speed: ng-eval beside sentence-transformers and onnxruntime, in one run.

    python t/perf/encode.py MODEL [--data FILE] [--texts 5000] [--threads 2] [--only NAME,...]

FILE: JSONL whose "positive" (or "text") is a passage; default the leaflets of
../shared.  All sort by length and use batches of 32; onnxruntime runs the graph
that torch.onnx exports.  Start-up is left out: ng-eval is timed on all passages
and on two, and the difference counts.  The last column compares vectors with
sentence-transformers' (largest absolute difference).
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


def passages(paths, n):
    out = []
    for path in paths:
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            out.append(r.get("positive") or ((r.get("title") or "") + " " + r["text"]).strip())
    return list(dict.fromkeys(out))[:n]


def peer(kind, model, texts, threads, tmp):
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(threads)
    m = SentenceTransformer(model, device="cpu")
    if kind == "st":
        m.encode(texts[:64])
        t = time.perf_counter()
        e = m.encode(texts, batch_size=32)
        seconds = time.perf_counter() - t
    else:
        import warnings
        import onnxruntime
        warnings.simplefilter("ignore")
        body = m[0].auto_model.eval()
        path = tmp + "/model.onnx"
        x = {k: v for k, v in m.preprocess(["an example", "another one, longer"]).items() if torch.is_tensor(v)}

        class Body(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = body

            def forward(self, input_ids, attention_mask):
                h = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
                w = attention_mask.unsqueeze(-1).to(h.dtype)
                return torch.nn.functional.normalize((h * w).sum(1) / w.sum(1), dim=1)
        dims = {0: "batch", 1: "length"}
        torch.onnx.export(Body(), (x["input_ids"], x["attention_mask"]), path, dynamo=False, opset_version=17,
                          input_names=["input_ids", "attention_mask"], output_names=["e"],
                          dynamic_axes={"input_ids": dims, "attention_mask": dims, "e": {0: "batch"}})
        o = onnxruntime.SessionOptions()
        o.intra_op_num_threads = threads
        s = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])

        def encode(texts):
            order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
            out = np.empty((len(texts), m.get_sentence_embedding_dimension()), np.float32)
            for i in range(0, len(order), 32):
                part = order[i:i + 32]
                f = m.preprocess([texts[j] for j in part])
                out[part] = s.run(None, {k: f[k].numpy() for k in ("input_ids", "attention_mask")})[0]
            return out
        encode(texts[:64])
        t = time.perf_counter()
        e = encode(texts)
        seconds = time.perf_counter() - t
    np.save(tmp + f"/{kind}.npy", e)
    return {"seconds": seconds, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def ng(model, texts, threads, tmp):
    import numpy as np

    def run(texts):
        with open(tmp + "/d.jsonl", "w") as f:
            f.writelines(json.dumps({"anchor": "what", "positive": t}) + "\n" for t in texts)
        t = time.perf_counter()
        p = subprocess.Popen([BIN + "/ng-eval", "-q", "-m", model, "-d", tmp + "/d.jsonl", "--threads", str(threads),
                              "--vectors", tmp + "/ng"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        if status:
            sys.exit(f"ng-eval failed: {status}")
        return time.perf_counter() - t, usage.ru_maxrss * 1024
    start, _ = run(texts[:2])
    seconds, rss = run(texts)
    np.save(tmp + "/ng.npy", np.load(tmp + "/ng-documents.npy"))
    return {"seconds": seconds - start, "rss": rss}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--data", action="append")
    p.add_argument("--texts", type=int, default=5000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="st,onnxruntime,ng")
    p.add_argument("--peer", help=argparse.SUPPRESS)
    p.add_argument("--tmp", help=argparse.SUPPRESS)
    o = p.parse_args()
    data = o.data or [os.path.join(ROOT, f"../shared/data/leaflets/{n}.jsonl")
                      for n in ("train-site-a", "train-site-b", "train-site-c", "dev")]
    texts = passages(data, o.texts)
    if o.peer:
        print(json.dumps(peer(o.peer, o.model, texts, o.threads, o.tmp)))
        return
    import numpy as np
    print(f"{len(texts)} passages, {o.threads} threads", flush=True)
    print(f"{'':12} {'texts/s':>8} {'MiB':>6} {'to st':>6} {'to onnxruntime':>14} {'difference':>10}", flush=True)
    speed = {}
    with tempfile.TemporaryDirectory() as tmp:
        for k in o.only.split(","):
            if k == "ng":
                r = ng(o.model, texts, o.threads, tmp)
            else:
                args = [sys.executable, __file__, o.model, "--texts", str(o.texts), "--threads", str(o.threads), "--peer", k,
                        "--tmp", tmp]
                for d in data:
                    args += ["--data", d]
                r = json.loads(subprocess.run(args, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
            speed[k] = v = len(texts) / r["seconds"]
            ratio = lambda other: f"{v / speed[other]:.2f}" if other in speed else "-"
            diff = "-"
            if "st" in speed:
                a, b = np.load(tmp + "/st.npy"), np.load(tmp + f"/{k}.npy")
                diff = f"{np.abs(a - b).max():.1e}" if a.shape == b.shape else f"{b.shape}"
            print(f"{k:12} {v:8.1f} {r['rss'] / 2**20:6.0f} {ratio('st'):>6} {ratio('onnxruntime'):>14} {diff:>10}", flush=True)


if __name__ == "__main__":
    main()
