#!/usr/bin/env python3
"""Does a folder from ng-pull -o load everywhere, and mean the same there?

    python t/golden/check-export.py FOLDER [TEXTS.json]

Loads FOLDER with sentence-transformers, with transformers (pooled by hand) and
with safetensors, and compares the vectors of TEXTS (default: t/golden/texts.json)
with those that ng-eval writes for it.  Exit 1 when one differs by more than 2e-6.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("NG_BIN", os.path.join(ROOT, "bin"))
TOLERANCE = 2e-6


def ng_vectors(folder, texts):
    import numpy as np
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/d.jsonl", "w") as f:
            f.writelines(json.dumps({"anchor": "what", "positive": t}) + "\n" for t in texts)
        subprocess.run([BIN + "/ng-eval", "-q", "-m", folder, "-d", tmp + "/d.jsonl", "--vectors", tmp + "/v"],
                       check=True, stdout=subprocess.DEVNULL)
        return np.load(tmp + "/v-documents.npy")


def main():
    import numpy as np
    import torch
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer
    folder = sys.argv[1]
    with open(sys.argv[2] if len(sys.argv) > 2 else HERE + "/texts.json", encoding="utf-8") as f:
        texts = [t for t in json.load(f)["texts"] if t.strip()]
    with safe_open(folder + "/model.safetensors", "pt") as f:
        names = list(f.keys())
        assert f.metadata().get("format") == "pt", "no format in the metadata"
        assert all(torch.isfinite(f.get_tensor(n)).all() for n in names if f.get_tensor(n).is_floating_point())
    print(f"safetensors: {len(names)} tensors, all finite")

    st = SentenceTransformer(folder, device="cpu")
    a = st.encode(texts, batch_size=1)
    ours = ng_vectors(folder, texts)
    worst = float(np.abs(a - ours).max())
    print(f"sentence-transformers: largest difference {worst:.2g}")

    pooling = json.load(open(folder + "/1_Pooling/config.json"))
    plain = len(json.load(open(folder + "/modules.json"))) <= 3 and pooling.get("pooling_mode_mean_tokens")
    if plain and st[-1].__class__.__name__ == "Normalize":
        tok, body = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        rows = []
        with torch.no_grad():
            for t in texts:
                x = tok(t, truncation=True, max_length=st.max_seq_length, return_tensors="pt")
                rows.append(torch.nn.functional.normalize(body(**x).last_hidden_state[0].mean(0), dim=0).numpy())
        w = float(np.abs(np.array(rows) - ours).max())
        worst = max(worst, w)
        print(f"transformers: largest difference {w:.2g}")
    else:
        print("transformers: left out, the folder does more than mean pooling and Normalize")
    if not worst <= TOLERANCE:
        sys.exit(f"vectors differ by {worst:.2g}, more than {TOLERANCE}")


if __name__ == "__main__":
    main()
