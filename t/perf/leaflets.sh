#!/bin/sh
# leaflets.sh DATA MODEL OUT: is a federation as good as carrying all data to one place?
#
# DATA holds leaflets/train-site-{a,b,c}.jsonl, leaflets/dev.jsonl and
# sts/stsb-en-dev.tsv; MODEL is a folder such as fetch-model makes; everything
# is kept under OUT, and a run that was stopped goes on there.  Arms: untuned,
# the federation of three sites, each site alone, all data in one place; every
# arm makes 3 rounds x 1 epoch with virtual batch 256 and max length 128 on the
# same part of each site's rows, and sees nothing of dev.  stdout: a Markdown table.
#
# Environment: PART (3: every third row; 1: all), LRS (learning rates, tried by
# the federation and by the central arm on every tenth row; a single one is
# taken as it is), SEED (42), ARMS (some of them), BATCH (256).
# On two slow cores PART=3 takes an hour and the rates as long again: run it
# by hand, it is no part of check.
set -eu

[ $# -eq 3 ] || { echo "usage: leaflets.sh data model out" >&2; exit 64; }
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$root/bin:$root/scripts:$PATH
data=$(cd "$1" && pwd) model=$(cd "$2" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)
part=${PART:-3} lrs=${LRS:-1e-4 2e-4 4e-4} seed=${SEED:-42} batch=${BATCH:-256}
arms=${ARMS:-federation alone-a alone-b alone-c central}

cut() { # cut PART: every PART-th row of each site, into OUT/rows-PART
	mkdir -p "$out/rows-$1"
	for s in a b c; do
		awk -v n="$1" 'NR % n == 1 || n == 1' "$data/leaflets/train-site-$s.jsonl" >"$out/rows-$1/$s.jsonl"
	done
}

sites() { # sites ARM PART: lines for ng-sim
	r=$out/rows-$2
	case $1 in
	federation) for s in a b c; do echo "site site-$s data=$r/$s.jsonl"; done ;;
	alone-*) echo "site site-${1#alone-} data=$r/${1#alone-}.jsonl" ;;
	central) echo "site all data=$r/a.jsonl data=$r/b.jsonl data=$r/c.jsonl" ;;
	esac
}

play() { # play ARM PART LR: train, then OUT/NAME.json with the last round's metrics
	name=$1-part$2-lr$3-seed$seed
	[ ! -s "$out/$name.json" ] || return 0
	n=1
	[ "$1" != federation ] || n=3
	cat >"$out/$name.experiment.json" <<-END
		{"experiment": "leaflets", "rounds": 3, "quorum": $n, "expect": $n,
		 "train": {"batch": $batch, "epochs": 1, "lr": $3, "max_length": 128, "seed": $seed}}
	END
	{
		echo "experiment $name.experiment.json"
		echo "model $model"
		sites "$1" "$2"
	} >"$out/$name.conf"
	ng-sim "$out/$name.conf" "$out/$name.run" >&2
	rm -rf "$out/$name.tuned"
	NG_STATE=$out/$name.run/state/reader ng-pull -q -b "$out/$name.run/board" -e leaflets -m "$model" -o "$out/$name.tuned"
	evaluate "$name" "$out/$name.tuned"
	rm -rf "$out/$name.tuned" "$out/$name.run/board"
}

evaluate() { # evaluate NAME FOLDER
	[ -s "$out/$1.json" ] || {
		ng-eval -q -j -m "$2" -d "$data/leaflets/dev.jsonl" --sts "$data/sts/stsb-en-dev.tsv" >"$out/$1.new"
		mv "$out/$1.new" "$out/$1.json"
	}
}

value() { jq -r --arg k "$2" '.[$k] * 10000 | round / 10000' "$out/$1.json"; }

best() { # best ARM: the rate with the best MRR@10 on a tenth
	# shellcheck disable=SC2086 # words on purpose
	set -- "$1" $lrs
	[ $# -gt 2 ] || { echo "$2"; return; }
	arm=$1
	shift
	cut 10
	for lr; do
		play "$arm" 10 "$lr"
		echo "$(value "$arm-part10-lr$lr-seed$seed" cosine_mrr@10) $lr"
	done | sort -rn | head -n 1 | awk '{ print $2 }'
}

cut "$part"
evaluate untuned "$model"
echo "| arm | rows | learning rate | MRR@10 | NDCG@10 | Accuracy@1 | STS-B Spearman |"
echo "|---|---|---|---|---|---|---|"
line() { # line TITLE ROWS LR NAME
	echo "| $1 | $2 | $3 | $(value "$4" cosine_mrr@10) | $(value "$4" cosine_ndcg@10) | $(value "$4" cosine_accuracy@1) | $(value "$4" spearman_cosine) |"
}
line untuned "" "" untuned
for arm in $arms; do
	case $arm in
	central) lr=$(best central) ;;
	*) lr=$(best federation) ;; # a site alone trains as it would in the federation
	esac
	play "$arm" "$part" "$lr"
	rows=$(sites "$arm" "$part" | tr ' ' '\n' | sed -n 's/^data=//p' | xargs cat | wc -l | tr -d ' ')
	line "$arm" "$rows" "$lr" "$arm-part$part-lr$lr-seed$seed"
done
