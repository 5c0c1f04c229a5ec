"""Texts of the golden values.  make.py writes them to texts.json for C."""

TEXTS = [
    "What is this medicine used for?",
    "Take one tablet twice a day with a glass of water.",
    "Do not take this medicine if you are allergic to any of its ingredients.",
    "Possible side effects: headache, nausea, dizziness, rash (common).",
    "The usual dose is 50 mg once daily; the maximum dose is 200 mg.",
    "pregnancy and breast-feeding",
    "a",
    "",
    "   ",
    "!?",
    "How should I store the bottle?",
    "Keep out of the sight and reach of children. Do not store above 25\u00b0C.",
    "Caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u00dcBER stra\u00dfe",
    "\u836f\u7269 and \u6c34",
    "unknownword zzzyyyxxxqqq medicines unallergic",
    "literal [SEP] and [MASK] in a text",
    "line one\nline two\ttab \u00a0 nbsp\u200bzwsp",
    "x" * 120,
    # longer than any tiny model's 64 tokens
    "the tablet is taken with water and the dose is 1 2 3 4 5 6 7 8 9 0 , " * 12,
    "Tell your doctor if you have liver or kidney problems before taking the capsules.",
]

# 32 pairs with two hard negatives each, built from parts so that all rows differ
_DRUGS = ["alpine", "borea", "cedar", "delta", "ember", "fjord", "grove", "haven"]
_KINDS = [
    ("what is {} for", "{} is used for pain and fever in adults"),
    ("how do I take {}", "take {} with water, one tablet a day, with or without food"),
    ("side effects of {}", "{} may cause headache, nausea or a rash; tell your doctor"),
    ("how to store {}", "keep {} below 25 degrees, in the bottle, out of the reach of children"),
]


def pairs():
    rows = []
    for i in range(32):
        # batches of 8 consecutive rows mix kinds and drugs
        drug = _DRUGS[(i * 3 + i // 8) % 8]
        kind = (i + i // 8) % 4
        other = _DRUGS[(_DRUGS.index(drug) + 1 + i // 4) % 8]
        q, p = _KINDS[kind]
        n1 = _KINDS[kind][1].format(other)
        n2 = _KINDS[(kind + 1) % 4][1].format(drug)
        rows.append([q.format(drug), p.format(drug), n1, n2])
    return rows


def rolled_pairs():
    """For a trained model, which solves pairs() at once: each positive is the
    next row's within its batch of 8, so that loss and gradient are large."""
    rows = pairs()
    return [[r[0], rows[8 * (i // 8) + (i + 1) % 8][1], r[2], r[3]] for i, r in enumerate(rows)]
