#!/bin/sh
# Pull and push on a directory against the plain tools on the same bytes:
#	zstd -t FILE; b2sum FILE; cp FILE; sync
# usage: t/perf/board.sh [MODEL_DIR] [RUNS]
# Without a model folder one of MiniLM's shapes with random weights is made.
# Prints the median of RUNS (5) for each and the ratio; the limit is 1.3.
set -eu
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${NG_BIN:-$ROOT/bin}:$PATH
ANSWER=${NG_BUILD:-$ROOT/build}/t/answer
model=${1:-}
runs=${2:-5}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/ng-perf-XXXXXX")
trap 'rm -rf "$dir"' EXIT INT TERM
export NG_BOARD="$dir/board" NG_EXPERIMENT=perf NG_STATE="$dir/state"

if [ -z "$model" ]; then
	model=$dir/model
	cp -R "$ROOT/t/golden/tiny-bert" "$model"
	chmod -R u+w "$model"
	frames=${NG_BUILD:-$ROOT/build}/t/frames
	"$frames" path="$dir/g.zst" kind=global shape=minilm >/dev/null
	zstd -dcq "$dir/g.zst" >"$model/model.safetensors"
	rm "$dir/g.zst"
	echo "no model folder given: random weights of MiniLM's shapes"
fi
echo '{"experiment": "perf", "rounds": 1000}' >"$dir/experiment.json"
ng-init -q --open -b "$NG_BOARD" -m "$model" "$dir/experiment.json" >/dev/null
ng-pull -q | "$ANSWER" site=site-a brackets=0 >"$dir/u.zst"
cat "$NG_BOARD/perf/global/00000"/part-* >"$dir/g.zst"
sync

now() { date +%s.%N; }

# median of the times in the file
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

plain() { # plain FILE
	zstd -tq "$1"
	b2sum -l 256 "$1" >/dev/null
	cp "$1" "$dir/copy"
	sync "$dir/copy"
}

measure() { # measure NAME command...
	name=$1
	shift
	a=$(now)
	"$@"
	b=$(now)
	echo "$a $b" | awk '{ printf "%.4f\n", $2 - $1 }' >>"$dir/$name"
}

pull() { ng-pull -q >"$dir/pulled" && sync "$dir/pulled"; }
push() { ng-push -q "$dir/u.zst"; }

i=0
while [ $i -lt "$runs" ]; do
	measure plain-g plain "$dir/g.zst"
	rm -f "$dir/copy"
	measure pull pull
	rm -f "$dir/pulled"
	measure plain-u plain "$dir/u.zst"
	rm -f "$dir/copy"
	rm -rf "$NG_BOARD/perf/update"
	measure push push
	i=$((i + 1))
done

report() { # report NAME PLAIN FILE
	t=$(median "$dir/$1")
	p=$(median "$dir/$2")
	size=$(wc -c <"$3")
	echo "$1 $t $p $size" | awk '{ printf "%s\t%.0f MB\t%.3f s\tplain tools %.3f s\tratio %.2f\t%s\n",
		$1, $4 / 1e6, $2, $3, $2 / $3, $2 / $3 <= 1.3 ? "within 1.3" : "OVER 1.3" }'
}
report pull plain-g "$dir/g.zst"
report push plain-u "$dir/u.zst"
