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

# zstd on as many cores: one process a core takes the next file.  On a machine that does other work too, the
# seconds of CPU say more than those of the clock: threads that wait for each other lose whole time slices.
# shellcheck disable=SC2016 # $0 is for the inner shell
find . -name '*.zst' -print0 | /usr/bin/time -f '%e %U %S' -o zstd.time \
	xargs -0 -n 1 -P "$threads" sh -c 'zstd -dcq "$0" >/dev/null'
/usr/bin/time -f '%e %U %S %M' -o ng.time "$NG_BIN"/ng-aggregate -q --threads "$threads" --files-from list -o new.zst
bytes=$(zstd -lv global.zst 2>/dev/null | sed -n 's/^Decompressed Size:.*(\([0-9]*\) B).*/\1/p')
cat zstd.time ng.time | awk -v n="$updates" -v shape="$shape" -v threads="$threads" -v bytes="$bytes" '
	NR == 1 { z = $1; zc = $2 + $3 }
	NR == 2 { a = $1; ac = $2 + $3; rss = $4 }
	END {
		print "updates\tshape\tthreads\tzstd s (CPU)\tng-aggregate s (CPU)\tshare of zstd (CPU)\tGB/s\tpeak MiB"
		printf "%d\t%s\t%d\t%.2f (%.2f)\t%.2f (%.2f)\t%.0f%% (%.0f%%)\t%.2f\t%.0f\n", n, shape, threads,
			z, zc, a, ac, 100 * z / a, 100 * zc / ac, (n + 1) * bytes / a / 1e9, rss / 1024
	}'
