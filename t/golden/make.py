#!/usr/bin/env python3
"""Golden values from sentence-transformers and PyTorch.

    python t/golden/make.py [tiny] [golden] [minilm MODEL_DIR]

`tiny` writes the tiny random models (seed 20240601) as complete
sentence-transformers folders, `golden` the reference values of each,
`minilm` those of all-MiniLM-L6-v2 (its weights are not in the repository).
Without arguments: tiny and golden.  Versions: requirements.txt.

Arrays are safetensors, one file a model (t/golden/NAME.golden.safetensors):

  ids (T) I32, cu (21) I32       token ids of texts.json "texts", packed
  emb64, emb32 (20,D)            their embeddings, float64 and float32
  pool/MODE (20,H) F64           tiny-bert: other poolings, not normalised
  prompt (20,D) F64              tiny-bert: prompt of texts.json in front,
                                 its tokens left out of the mean
  loss/N (1) F64                 MNRL, scale 20, first 8 rows of "pairs" (minilm: "rolled_pairs"),
                                 N = 0, 1, 2 hard negatives a row
  grad/N/TENSOR                  its gradient (tiny: F32, rounded from float64; N = 0, 2)
  gradnorm/N/TENSOR (1) F64      minilm: its norm
  gradpick/N/TENSOR (64) F64     minilm: values at flat index (k * 2654435761) % size, k = 0..63
  curve/NAME/loss64,loss32 (20)  20 steps, batches of 8 rows (step s: rows 8 * (s % 4)...),
  curve/NAME/norm64 (20)         no hard negatives, dropout 0, clip 1.0; gradient norm before
  curve/NAME/lr (20)             clipping; learning rate.  Curves: "adamw" (linear, warm-up 2,
                                 weight decay 0), "adamw_wd" (cosine, warm-up 2, decay 0.01 on
                                 all but bias and LayerNorm), "sgd" (constant, momentum 0.9)

Tensors of Dense modules are called PATH/linear.weight with the module's folder,
such as 2_Dense/linear.weight.  Tolerances: embeddings 2e-6 max abs; gradients
||g - ref|| <= 1e-4 max(||ref||, 1e-3 ||all||) per tensor; curves 1e-4 relative.
"""
import json
import math
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from safetensors.numpy import save_file as _save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from texts import TEXTS, pairs, rolled_pairs  # noqa: E402

SEED = 20240601
PROMPT = "the dose: "

WORDS = """the of and to in is it for you your this that with not do if are be or on as at by an from have has may can
what how should take taken taking tell doctor before any all one two day days daily once twice dose usual maximum
medicine medicines tablet tablets capsule capsules bottle water glass food store keep out sight reach children above
below degrees used use pain fever adults possible side effects headache nausea rash dizziness common allergic
ingredients problems liver kidney pregnancy breast feeding cause mg ml without line text literal unknown""".split()
PIECES = """##s ##es ##ed ##ing ##er ##ly ##y ##al ##ic ##tion ##ment ##ness ##ine ##ea ##in ##an ##en ##or ##ar
al bo ce de em fj gr ha un re pre""".split()
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[]_")


def save_file(tensors, path, metadata):
    _save_file(tensors, path, metadata=metadata)
    os.chmod(path, 0o644)


def vocabulary():
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    digits = list("0123456789")
    v = PUNCT + digits + letters + ["##" + x for x in letters + digits]
    v += ["\u836f", "\u6c34", "\u00df", "\u00b0", "##\u00df", "##\u00b0", "c\u03b1"] + WORDS + PIECES
    return list(dict.fromkeys(v))


def tokenizer_json(vocab, mpnet):
    cls, sep = ("<s>", "</s>") if mpnet else ("[CLS]", "[SEP]")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if mpnet else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    added = [
        {"id": vocab[s], "content": s, "single_word": False, "lstrip": s == "<mask>", "rstrip": False,
         "normalized": False, "special": True}
        for s in sorted(special + (["[UNK]"] if mpnet else []), key=lambda s: vocab[s])
    ]
    second = ([{"SpecialToken": {"id": sep, "type_id": 0}}] if mpnet else [])
    t = 0 if mpnet else 1
    return {
        "version": "1.0",
        # as all-MiniLM-L6-v2's own: a truncation here that sentence-transformers ignores
        "truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": cls, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": sep, "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": cls, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": sep, "type_id": 0}}] + second +
                    [{"Sequence": {"id": "B", "type_id": t}}, {"SpecialToken": {"id": sep, "type_id": t}}],
            "special_tokens": {s: {"id": s, "ids": [vocab[s]], "tokens": [s]} for s in (cls, sep)},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def tiny(name, family, heads, pooling, dense, normalize):
    rng = np.random.Generator(np.random.PCG64([SEED, sum(name.encode())]))
    mpnet = family == "mpnet"
    H, L, FF, P = 32, 2, 64, 64
    words = vocabulary()
    if mpnet:
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words + ["<mask>"]
        P += 2
    else:
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words
    V = len(tokens)
    w = {}

    def matrix(n, *shape, std=0.15):
        w[n] = rng.standard_normal(shape).astype(np.float32) * np.float32(std)

    def norm(n):
        w[n + ".weight"] = (1 + 0.2 * rng.standard_normal(H)).astype(np.float32)
        w[n + ".bias"] = (0.1 * rng.standard_normal(H)).astype(np.float32)

    def linear(n, out, inp):
        matrix(n + ".weight", out, inp)
        matrix(n + ".bias", out, std=0.1)

    matrix("embeddings.word_embeddings.weight", V, H, std=0.5)
    matrix("embeddings.position_embeddings.weight", P, H, std=0.2)
    if mpnet:
        w["embeddings.position_embeddings.weight"][1] = 0
    else:
        matrix("embeddings.token_type_embeddings.weight", 2, H, std=0.2)
    norm("embeddings.LayerNorm")
    if mpnet:
        matrix("encoder.relative_attention_bias.weight", 32, heads, std=0.5)
    for i in range(L):
        p = f"encoder.layer.{i}."
        if mpnet:
            for x in "qkvo":
                linear(p + f"attention.attn.{x}", H, H)
            norm(p + "attention.LayerNorm")
        else:
            for x in ("query", "key", "value"):
                linear(p + f"attention.self.{x}", H, H)
            linear(p + "attention.output.dense", H, H)
            norm(p + "attention.output.LayerNorm")
        linear(p + "intermediate.dense", FF, H)
        linear(p + "output.dense", H, FF)
        norm(p + "output.LayerNorm")
    linear("pooler.dense", H, H)

    d = os.path.join(HERE, name)
    os.makedirs(d, exist_ok=True)
    save_file(w, d + "/model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["MPNetModel" if mpnet else "BertModel"], "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": H, "initializer_range": 0.02,
        "intermediate_size": FF, "layer_norm_eps": 1e-05 if mpnet else 1e-12, "max_position_embeddings": P,
        "model_type": family, "num_attention_heads": heads, "num_hidden_layers": L, "pad_token_id": 1 if mpnet else 0,
        "torch_dtype": "float32", "vocab_size": V,
    }
    config.update({"bos_token_id": 0, "eos_token_id": 2, "relative_attention_num_buckets": 32} if mpnet else
                  {"position_embedding_type": "absolute", "type_vocab_size": 2})
    write_json(d + "/config.json", config)
    vocab = {t: i for i, t in enumerate(tokens)}
    write_json(d + "/tokenizer.json", tokenizer_json(vocab, mpnet))
    if mpnet:
        special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>",
                   "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "[UNK]"}
    else:
        special = {"cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]",
                   "unk_token": "[UNK]"}
    write_json(d + "/special_tokens_map.json", special)
    write_json(d + "/tokenizer_config.json", dict(
        special, do_lower_case=True, model_max_length=64, strip_accents=None, tokenize_chinese_chars=True,
        tokenizer_class="MPNetTokenizer" if mpnet else "BertTokenizer"))
    with open(d + "/vocab.txt", "w", encoding="utf-8") as f:
        f.writelines(t + "\n" for t in tokens)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if dense:
        modules.append(("2_Dense", "Dense"))
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    write_json(d + "/modules.json", [
        {"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + t}
        for i, (p, t) in enumerate(modules)])
    write_json(d + "/sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    write_json(d + "/config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}})
    write_json(d + "/1_Pooling/config.json", {
        "word_embedding_dimension": H, "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False})
    if dense:
        write_json(d + "/2_Dense/config.json", {
            "in_features": H, "out_features": dense, "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh"})
        save_file({"linear.weight": (0.3 * rng.standard_normal((dense, H))).astype(np.float32),
                   "linear.bias": (0.1 * rng.standard_normal(dense)).astype(np.float32)},
                  d + "/2_Dense/model.safetensors", metadata={"format": "pt"})


def load(folder, double):
    from sentence_transformers import SentenceTransformer
    torch.manual_seed(0)
    m = SentenceTransformer(folder, device="cpu", local_files_only=True,
                            model_kwargs={"attn_implementation": "eager", "dtype": torch.float32})
    m.eval()  # dropout 0
    return m.double() if double else m


def features(model, texts):
    f = model.preprocess(texts) if hasattr(model, "preprocess") else model.tokenize(texts)
    return {k: v for k, v in f.items()}


def embed(model, texts):
    """One text at a time: no padding takes part."""
    with torch.no_grad():
        return torch.cat([model(features(model, [t]))["sentence_embedding"] for t in texts])


def named(model, folder):
    """(name as in the folder's files, parameter)"""
    with open(os.path.join(folder, "modules.json")) as f:
        paths = [m["path"] for m in json.load(f)]
    out = []
    for n, p in model.named_parameters():
        idx, rest = n.split(".", 1)
        if idx == "0":
            for prefix in ("auto_model.", "model."):
                if rest.startswith(prefix):
                    rest = rest[len(prefix):]
            out.append((rest, p))
        else:
            out.append((paths[int(idx)] + "/" + rest, p))
    return out


def mnrl(model, columns):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    return loss([features(model, c) for c in columns], None)


def own_mnrl(model, columns):
    e = [torch.nn.functional.normalize(model(features(model, c))["sentence_embedding"], dim=1) for c in columns]
    s = 20 * e[0] @ torch.cat(e[1:]).T
    return torch.nn.functional.cross_entropy(s, torch.arange(len(columns[0])))


def schedule(kind, s, T, w):
    """DESIGN section 6; s counts from 1"""
    if s <= w:
        return s / w
    if kind == "linear":
        return (T - s + 1) / (T - w)
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (s - w - 1) / (T - w)))
    return 1.0


CURVES = {  # optimizer, schedule, warm-up, decay
    "adamw": ("adamw", "linear", 2, 0.0),
    "adamw_wd": ("adamw", "cosine", 2, 0.01),
    "sgd": ("sgd", "constant", 0, 0.0),
}


def curve(folder, rows, double, kind, base_lr, T=20):
    opt_name, sched, w, wd = CURVES[kind]
    model = load(folder, double)
    params = named(model, folder)
    no_decay = [p for n, p in params if "bias" in n or "LayerNorm" in n]
    decay = [p for n, p in params if not ("bias" in n or "LayerNorm" in n)]
    groups = [{"params": decay, "weight_decay": wd}, {"params": no_decay, "weight_decay": 0.0}]
    if opt_name == "adamw":
        opt = torch.optim.AdamW(groups, lr=base_lr, betas=(0.9, 0.999), eps=1e-8)
    else:
        opt = torch.optim.SGD(groups, lr=base_lr, momentum=0.9)
    losses, norms, lrs = [], [], []
    for s in range(T):
        batch = rows[8 * (s % 4):8 * (s % 4) + 8]
        opt.zero_grad()
        loss = mnrl(model, [[r[0] for r in batch], [r[1] for r in batch]])
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_([p for _, p in params], 1.0)))
        lr = base_lr * schedule(sched, s + 1, T, w)
        for g in opt.param_groups:
            g["lr"] = lr
        opt.step()
        losses.append(float(loss.detach()))
        lrs.append(lr)
    return losses, norms, lrs


def golden(name, folder, full):
    out = {}
    m64, m32 = load(folder, True), load(folder, False)
    ids = [features(m64, [t])["input_ids"][0].tolist() for t in TEXTS]
    out["ids"] = np.array([i for t in ids for i in t], np.int32)
    out["cu"] = np.cumsum([0] + [len(t) for t in ids]).astype(np.int32)
    out["emb64"] = embed(m64, TEXTS).numpy()
    out["emb32"] = embed(m32, TEXTS).numpy()
    print(f"{name}: {out['cu'][-1]} tokens, |emb32 - emb64| {np.abs(out['emb32'] - out['emb64']).max():.2g}")

    if name == "tiny-bert":
        from sentence_transformers.sentence_transformer.modules import Pooling
        for mode in ("cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"):
            pool = Pooling(32, pooling_mode=mode)
            with torch.no_grad():
                out["pool/" + mode] = torch.cat(
                    [pool(m64[0](features(m64, [t])))["sentence_embedding"] for t in TEXTS]).numpy()
        m64[1].include_prompt = False
        rows = []
        with torch.no_grad():
            for t in TEXTS:
                rows.append(torch.from_numpy(np.atleast_2d(m64.encode(
                    [t], prompt=PROMPT, convert_to_numpy=True, show_progress_bar=False))))
        out["prompt"] = torch.cat(rows).double().numpy()
        m64[1].include_prompt = True

    all_rows = pairs() if full else rolled_pairs()
    rows = all_rows[:8]
    for n in (0, 1, 2):
        columns = [[r[c] for r in rows] for c in range(2 + n)]
        m64.zero_grad()
        loss = mnrl(m64, columns)
        own = own_mnrl(m64, columns)
        assert abs(loss.item() - own.item()) < 1e-9, (loss.item(), own.item())
        loss.backward()
        out[f"loss/{n}"] = np.array([loss.item()])
        if n == 1:
            continue
        for pname, p in named(m64, folder):
            if p.grad is None:
                continue
            g = p.grad.numpy()
            if full:
                out[f"grad/{n}/{pname}"] = g.astype(np.float32)
            else:
                flat = g.reshape(-1)
                out[f"gradnorm/{n}/{pname}"] = np.array([np.linalg.norm(flat)])
                pick = (np.arange(64, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(flat.size)
                out[f"gradpick/{n}/{pname}"] = flat[pick.astype(np.int64)]
    lr = {"adamw": 2e-4, "adamw_wd": 2e-4, "sgd": 0.004} if full else {"adamw": 2e-5}
    for kind, base in lr.items():
        l64, n64, lrs = curve(folder, all_rows, True, kind, base)
        l32, _, _ = curve(folder, all_rows, False, kind, base)
        rel = max(abs(a - b) / abs(a) for a, b in zip(l64, l32))
        print(f"  {kind}: loss {l64[0]:.4f} -> {l64[-1]:.4f}, float32 differs by {rel:.2g}")
        out[f"curve/{kind}/loss64"] = np.array(l64)
        out[f"curve/{kind}/loss32"] = np.array(l32, np.float32)
        out[f"curve/{kind}/norm64"] = np.array(n64)
        out[f"curve/{kind}/lr"] = np.array(lrs)
    out = {k: np.ascontiguousarray(v) for k, v in sorted(out.items())}
    versions = {}
    for m in ("torch", "sentence_transformers", "transformers", "tokenizers"):
        versions[m] = __import__(m).__version__
    save_file(out, os.path.join(HERE, name + ".golden.safetensors"),
              metadata={"format": "pt", "made_by": "t/golden/make.py", **versions})


MODELS = {  # family, heads, pooling, dense, normalize
    "tiny-bert": ("bert", 4, "mean", 0, True),
    "tiny-dense": ("bert", 2, "cls", 24, False),
    "tiny-mpnet": ("mpnet", 4, "mean", 0, True),
}


def main(args):
    torch.set_num_threads(2)
    what = args or ["tiny", "golden"]
    write_json(os.path.join(HERE, "texts.json"), {"prompt": PROMPT, "texts": TEXTS, "pairs": pairs(),
                                                 "rolled_pairs": rolled_pairs()})
    if "tiny" in what:
        for name, spec in MODELS.items():
            tiny(name, *spec)
    if "golden" in what:
        for name in MODELS:
            golden(name, os.path.join(HERE, name), True)
    if "minilm" in what:
        golden("minilm", what[what.index("minilm") + 1], False)


if __name__ == "__main__":
    main(sys.argv[1:])
