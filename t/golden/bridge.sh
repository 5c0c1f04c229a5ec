#!/bin/sh
# bridge.sh [MODEL...] - ng-train and scripts/ng-train-torch agree, on demand
#
# For each model folder (default: the tiny ones here): one round by both with
# dropout 0; the updates agree to 1e-4.  Then a federation of three sites for
# three rounds, one of them on the bridge.  Needs the packages of requirements.txt
# for $PYTHON (default python3), and the programs built.
#
# AdamW's eps is 1e-6 here: with 1e-8 an element whose gradient is all rounding
# error still takes a whole step, and one such of 28,000 was seen to make 1.5e-4.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
PATH=${NG_BIN:-$root/bin}:$PATH
export PATH
unset NG_BOARD NG_EXPERIMENT NG_SITE
[ $# -gt 0 ] || set -- "$here/tiny-bert" "$here/tiny-dense" "$here/tiny-mpnet"
dir=$(mktemp -d "${TMPDIR:-/tmp}/ng-bridge-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export NG_STATE="$dir/state"
printf '#!/bin/sh\nexec "%s" "%s/scripts/ng-train-torch" "$@"\n' "$python" "$root" >"$dir/bridge"
chmod +x "$dir/bridge"
NG_DEMO_MEDICINES="12 10 8" "$root/scripts/ng-demo-data" 3 "$dir"
bad=0

both() { # both MODEL NAME TRAIN-SETTINGS
	echo "{\"experiment\": \"$2\", \"rounds\": 2, \"quorum\": 1, \"train\": {$3}}" >"$dir/$2.json"
	ng-init -q --open -b "$dir/board" -e "$2" -m "$1" "$dir/$2.json" >"$dir/init.out"
	ng-pull -q -b "$dir/board" -e "$2" >"$dir/global"
	ng-train -q -m "$1" -d "$dir/train-site-a.jsonl" -s site-a -o "$dir/ng.zst" "$dir/global"
	"$dir/bridge" -q --device cpu -m "$1" -d "$dir/train-site-a.jsonl" -s site-a -o "$dir/torch.zst" "$dir/global"
	printf '%s, %s: ' "$(basename "$1")" "$2"
	"$python" "$here/compare-updates.py" "$dir/ng.zst" "$dir/torch.zst" || bad=1
}

for model; do
	model=$(cd "$model" && pwd)
	m=$(basename "$model" | tr 'A-Z_.' 'a-z--')
	both "$model" "$m-adamw" '"batch": 64, "lr": 2e-4, "max_length": 48, "dropout": 0, "epochs": 2, "eps": 1e-6'
	both "$model" "$m-wd" '"batch": 33, "lr": 2e-4, "max_length": 48, "dropout": 0, "weight_decay": 0.01, "eps": 1e-6,
		"schedule": "cosine", "sampler": "random", "prompts": {"anchor": "query: "}'
	both "$model" "$m-sgd" '"batch": 64, "lr": 0.01, "max_length": 48, "dropout": 0, "optimizer": "sgd", "momentum": 0.9'
done

# A federation with one site on the bridge makes the same globals as one without.
for f in plain mixed; do
	cat >"$dir/$f.json" <<-EOF
		{"experiment": "$f", "rounds": 3, "quorum": 3, "expect": 3,
		 "train": {"batch": 64, "lr": 5e-4, "max_length": 48, "dropout": 0}}
	EOF
	trainer=
	[ $f = plain ] || trainer=" trainer=$dir/bridge"
	cat >"$dir/$f.conf" <<-EOF
		experiment $f.json
		model $(cd "$1" && pwd)
		site site-a data=train-site-a.jsonl
		site site-b data=train-site-b.jsonl$trainer
		site site-c data=train-site-c.jsonl
	EOF
	"$root/scripts/ng-sim" "$dir/$f.conf" "$dir/$f" >"$dir/$f.out"
	jq -se 'length == 4 and all(.[1:][]; (.updates | length) == 3)' "$dir/$f.out" >/dev/null || {
		echo "$f federation: not three updates in each of three rounds"
		bad=1
	}
	ng-pull -q -b "$dir/$f/board" -e $f -r 0 >"$dir/$f.base"
	ng-pull -q -b "$dir/$f/board" -e $f >"$dir/$f.last"
done
printf 'a federation with one site of three on the bridge, and one without: '
"$python" "$here/compare-updates.py" --globals "$dir/plain.base" "$dir/plain.last" "$dir/mixed.last" || bad=1
exit $bad
