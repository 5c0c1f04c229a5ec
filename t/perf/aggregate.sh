#!/bin/sh
# aggregate.sh [UPDATES [SHAPE [THREADS]]] - speed and memory of ng-aggregate on
# synthetic updates of all-MiniLM-L6-v2's shape ("large": ten times as much),
# beside `zstd -dc` over the same files on as many cores.  Each update is a file
# of its own, since each names its site: 100 of them take 8 GB under $TMPDIR.
# Prints a table; not part of any check.
set -eu
updates=${1:-100} shape=${2:-minilm} threads=${3:-2}
root=$(cd "$(dirname "$0")/../.." && pwd)
NG_BIN=${NG_BIN:-$root/bin} FRAMES=${NG_BUILD:-$root/build}/t/frames
make -s -C "$root" bin/ng-aggregate build/t/frames
dir=$(mktemp -d "${TMPDIR:-/tmp}/ng-aggregate-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"

now() { date +%s.%N; }

made=$("$FRAMES" path=global.zst kind=global "shape=$shape" scale=0.1)
base=${made% *}
printf 'global.zst\tglobal\t\t%s\n' "${made#* }" >list
i=1
while [ "$i" -le "$updates" ]; do
	site=site-$(printf '%03d' "$i")
	made=$("$FRAMES" "path=$site.zst" kind=update "shape=$shape" "base=$base" "site=$site" "seed=$i" scale=0.0002)
	printf '%s.zst\tupdate\t%s\t%s\n' "$site" "$site" "${made#* }" >>list
	i=$((i + 1))
done
cat ./*.zst >/dev/null # both find the files in the page cache, or neither does

# zstd on as many cores: one process a core takes the next file
t0=$(now)
# shellcheck disable=SC2016 # $0 is for the inner shell
find . -name '*.zst' -print0 | xargs -0 -n 1 -P "$threads" sh -c 'zstd -dcq "$0" >/dev/null'
t1=$(now)
/usr/bin/time -f %M -o rss "$NG_BIN"/ng-aggregate -q --threads "$threads" --files-from list -o new.zst
t2=$(now)
awk -v n="$updates" -v shape="$shape" -v threads="$threads" -v z="$(echo "$t1 - $t0" | bc)" \
	-v a="$(echo "$t2 - $t1" | bc)" -v rss="$(cat rss)" \
	-v bytes="$(zstd -lv global.zst | sed -n 's/^Decompressed Size:.*(\([0-9]*\) B).*/\1/p')" 'BEGIN {
	printf "updates\tshape\tthreads\tzstd s\tng-aggregate s\tshare of zstd\tGB/s\tpeak MiB\n"
	printf "%d\t%s\t%d\t%.2f\t%.2f\t%.0f%%\t%.2f\t%.0f\n", n, shape, threads, z, a, 100 * z / a,
		(n + 1) * bytes / a / 1e9, rss / 1024 }'
