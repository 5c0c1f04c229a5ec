#!/bin/sh
# aggregate-builds.sh - the same updates through ng-aggregate built by gcc -O0
# for SSE2 and by clang -O3 for AVX2 with FMA: the new globals must be the same
# bytes.  Builds twice into a temporary folder; part of scripts/check.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
command -v clang >/dev/null 2>&1 || {
	echo "skip: clang is not there"
	exit 0
}
grep -qw avx2 /proc/cpuinfo || {
	echo "skip: this CPU has no AVX2"
	exit 0
}
dir=$(mktemp -d "${TMPDIR:-/tmp}/ng-builds-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

build() { # build NAME CC CFLAGS
	make -s -C "$root" -j"$(nproc)" BUILD="$dir/$1" BIN="$dir/$1/bin" CC="$2" CFLAGS="$3" \
		"$dir/$1/bin/ng-aggregate" "$dir/$1/t/frames" >"$dir/$1.log" 2>&1 || {
		cat "$dir/$1.log"
		exit 1
	}
}
build gcc gcc "-O0 -msse2 -w"
build clang clang "-O3 -mavx2 -mfma -w"

cd "$dir"
made=$(gcc/t/frames path=g.zst kind=global)
for i in 1 2 3 4 5 6 7; do
	gcc/t/frames path=u$i.zst kind=update "base=${made% *}" site=site-$i seed=$i examples=$((i * 1237 + 11)) >/dev/null
done
gcc/bin/ng-aggregate -q --threads 1 -o gcc.zst g.zst u1.zst u2.zst u3.zst u4.zst u5.zst u6.zst u7.zst
clang/bin/ng-aggregate -q --threads 3 -o clang.zst u7.zst u3.zst u6.zst u1.zst u5.zst u2.zst u4.zst g.zst
cmp gcc.zst clang.zst
echo "ok: gcc -O0 SSE2 and clang -O3 AVX2+FMA give the same bytes"
