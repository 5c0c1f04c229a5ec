#!/usr/bin/env python3
"""Write common/text/unicode_table.c: what the Rust `tokenizers` package does
with every code point, found by asking it.

    t/golden/unicode_tables.py > common/text/unicode_table.c

Its crates carry Unicode data of several ages (categories of about Unicode 8,
canonical decompositions of Unicode 9, case and white space of its compiler),
so no one Unicode version, nor utf8proc's, gives the same answers.  Combining
classes cannot be seen one by one; they come from Python's unicodedata (a class
never changes once given) for the characters that NFD is seen to reorder.
"""

import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

SPACE, PUNCT, DROP, MARK, CJK, WORD, NFD, LOWER, COMBINING = (1 << i for i in range(9))
NAMES = "SPACE PUNCT DROP MARK CJK WORD NFD LOWER COMBINING".split()


def bert(**on):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    flags.update(on)
    return normalizers.BertNormalizer(**flags).normalize_str


def probe():
    clean, cjk = bert(clean_text=True), bert(handle_chinese_chars=True)
    strip = bert(strip_accents=True)
    nfd = normalizers.NFD().normalize_str
    lower = normalizers.Lowercase().normalize_str
    marks = normalizers.StripAccents().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    spaces = pre_tokenizers.WhitespaceSplit().pre_tokenize_str

    word = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    word.add_tokens([AddedToken("@", single_word=True, normalized=False)])
    strips = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    strips.add_tokens([AddedToken("@", lstrip=True, normalized=False)])

    flags, decomposed, lowered, classes = {}, {}, {}, {}
    for cp in range(0x110000):
        if 0xD800 <= cp < 0xE000:
            continue
        c = chr(cp)
        f = 0
        got = clean(c)
        if got == "":
            f |= DROP
        elif got != c:
            assert got == " ", hex(cp)
        pieces = [p for p, _ in split(f"a{c}a")]
        space = len(spaces(f"a{c}a")) == 2
        if space:
            assert pieces == ["a", "a"], hex(cp)
            f |= SPACE
            assert f & DROP or got == " ", hex(cp)
        elif len(pieces) == 3:
            f |= PUNCT
        else:
            assert pieces == [f"a{c}a"], hex(cp)
            assert f & DROP or got == c, hex(cp)
        # the regex crate's \s of lstrip is the same set
        assert (len(strips.encode(f"{c}@").ids) == 1) == space, hex(cp)
        got = cjk(c)
        if got != c:
            assert got == f" {c} ", hex(cp)
            f |= CJK
        d = nfd(c)
        if d != c:
            if 0xAC00 <= cp < 0xAC00 + 11172:
                s = cp - 0xAC00
                jamo = chr(0x1100 + s // 588) + chr(0x1161 + s % 588 // 28)
                assert d == jamo + (chr(0x11A7 + s % 28) if s % 28 else ""), hex(cp)
            else:
                f |= NFD
                decomposed[cp] = d
        elif strip(c) == "":
            f |= MARK
        if marks(c) == "":
            f |= COMBINING
        low = lower(c)
        if low != c:
            f |= LOWER
            lowered[cp] = low
        if 1 not in word.encode(f"{c}@").ids:
            f |= WORD
        ccc = unicodedata.combining(c)
        if ccc:
            # one of class 1 behind it comes first, unless the crate does not know it
            known = nfd("a" + c + "\u0334") != "a" + c + "\u0334" or nfd("a\u0345" + c) != "a\u0345" + c
            if known:
                classes[cp] = ccc
        flags[cp] = f
    # strip_accents is NFD, then MARK out
    for cp in list(decomposed) + list(range(0xAC00, 0xAC00 + 11172, 97)):
        want = "".join(c for c in nfd(chr(cp)) if not flags[ord(c)] & MARK)
        assert strip(chr(cp)) == want, hex(cp)
    return flags, decomposed, lowered, classes


def array(kind, name, values, fmt="%d"):
    print(f"const {kind} {name}[{len(values)}] = {{")
    line = "\t"
    for v in values:
        item = (fmt % v) + ","
        if len(line) + len(item) > 108:
            print(line.rstrip())
            line = "\t"
        line += item + " "
    print(line.rstrip())
    print("};")


def mapping(name, table):
    """Sorted keys, offsets into a pool of code points."""
    keys, at, pool = [], [0], []
    for cp in sorted(table):
        keys.append(cp)
        pool += [ord(c) for c in table[cp]]
        at.append(len(pool))
    array("uint32_t", f"ng_unicode_{name}_key", keys, "0x%x")
    array("uint16_t", f"ng_unicode_{name}_at", at)
    array("uint32_t", f"ng_unicode_{name}_pool", pool, "0x%x")
    print(f"const size_t ng_unicode_{name}_count = {len(keys)};")


def main():
    flags, decomposed, lowered, classes = probe()
    records, index = [], {}
    blocks, stage1, known = [], [], {}
    for start in range(0, 0x110000, 128):
        block = []
        for cp in range(start, start + 128):
            r = (flags.get(cp, 0), classes.get(cp, 0))
            if r not in index:
                index[r] = len(records)
                records.append(r)
            block.append(index[r])
        key = tuple(block)
        if key not in known:
            known[key] = len(blocks)
            blocks.append(block)
        stage1.append(known[key])
    assert len(records) < 256 and len(blocks) < 65536
    print("/*")
    print(" * unicode_table.c - made by t/golden/unicode_tables.py from the Rust tokenizers")
    print(f" * package {tokenizers.__version__} (combining classes: Unicode {unicodedata.unidata_version}); do not edit.")
    print(" * Each code point: ng_unicode_record[ng_unicode_block[ng_unicode_stage[cp >> 7]][cp & 127]].")
    print(" */")
    print("/* clang-format off */")
    print('#include "common/base/compat.h"')
    print()
    print('#include "common/text/unicode_table.h"')
    print()
    array("uint16_t", "ng_unicode_stage", stage1)
    print(f"const uint8_t ng_unicode_block[{len(blocks)}][128] = {{")
    for b in blocks:
        print("\t{ " + ",".join(map(str, b)) + " },")
    print("};")
    print("/* flags, combining class */")
    print(f"const struct ng_unicode_record ng_unicode_record[{len(records)}] = {{")
    for f, ccc in records:
        text = " | ".join("NG_UNICODE_" + n for i, n in enumerate(NAMES) if f >> i & 1) or "0"
        print(f"\t{{ {text}, {ccc} }},")
    print("};")
    mapping("nfd", decomposed)
    mapping("lower", lowered)
    from collections import Counter
    count = Counter(n for f in flags.values() for i, n in enumerate(NAMES) if f >> i & 1)
    print(dict(count), len(classes), "classes", len(records), "records", len(blocks), "blocks", file=sys.stderr)


if __name__ == "__main__":
    main()
