#!/usr/bin/env python3
"""compare-updates.py A B [TOLERANCE]: do two updates (streams in files) agree?
   compare-updates.py --globals BASE A B [TOLERANCE]: what two federations made of BASE

||a - b|| <= TOLERANCE ||a|| over all tensors but the biases of keys, and their
metadata is that of the same work.  A key's bias shifts all scores of a query
alike, which a softmax does not see: its gradient is zero but for rounding, and
AdamW turns the sign of a rounding error into a whole step.  It must only be
no larger than such steps are.
"""
import json
import struct
import subprocess
import sys

import numpy as np
from safetensors.numpy import load


def read(path):
    data = subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
    n = struct.unpack_from("<Q", data)[0]
    return json.loads(data[8:8 + n])["__metadata__"], load(data)


def norm(tensors):
    return float(np.sqrt(sum((v.astype(np.float64) ** 2).sum() for v in tensors)))


def globals_agree(base, a, b, tolerance):
    (_, w), (ma, a), (mb, b) = read(base), read(a), read(b)
    rest = [n for n in w if not n.endswith(("key.bias", "attn.k.bias"))]
    moved = norm([a[n].astype(np.float64) - w[n] for n in rest])
    diff = norm([a[n].astype(np.float64) - b[n] for n in rest]) / moved
    print(f"round {ma['ng.round']}: moved by {moved:.4g}, difference {diff:.2g} of it")
    if ma["ng.round"] != mb["ng.round"] or not diff <= tolerance:
        sys.exit(f"the globals differ by {diff:.2g}, more than {tolerance}")


def main():
    if sys.argv[1] == "--globals":
        return globals_agree(*sys.argv[2:5], float(sys.argv[5]) if len(sys.argv) > 5 else 1e-3)
    (ma, a), (mb, b) = read(sys.argv[1]), read(sys.argv[2])
    tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-4
    bad = []
    for k in ("ng.kind", "ng.experiment", "ng.round", "ng.base", "ng.examples", "ng.batch", "ng.steps"):
        if ma.get(k) != mb.get(k):
            bad.append(f"{k}: {ma.get(k)} and {mb.get(k)}")
    if abs(float(ma["ng.loss"]) - float(mb["ng.loss"])) > 1e-4 * abs(float(ma["ng.loss"])):
        bad.append(f"ng.loss: {ma['ng.loss']} and {mb['ng.loss']}")
    if sorted(a) != sorted(b):
        sys.exit(f"other tensors: {sorted(set(a) ^ set(b))}")
    key = [n for n in a if n.endswith(("key.bias", "attn.k.bias"))]
    rest = [n for n in a if n not in key]
    total = norm([a[n] for n in rest])
    diff = norm([a[n].astype(np.float64) - b[n] for n in rest]) / total
    worst = max(rest, key=lambda n: norm([a[n].astype(np.float64) - b[n]]))
    most = max(float(np.abs(a[n]).max()) for n in rest)
    print(f"norm {total:.4g}, difference {diff:.2g} of it, most in {worst}; loss {ma['ng.loss']} {mb['ng.loss']}")
    if not diff <= tolerance:
        bad.append(f"updates differ by {diff:.2g}, more than {tolerance}")
    for n in key:
        if max(np.abs(a[n]).max(), np.abs(b[n]).max()) > 1.01 * most:
            bad.append(f"{n} moved by more than any other tensor")
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
