#!/usr/bin/env bats
# scripts/ng-demo-data: same bytes from any awk, valid JSON, dev apart from training
bats_require_minimum_version 1.5.0

setup() {
	ROOT=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
	T=$(mktemp -d)
	cd "$T"
}

teardown() {
	cd /
	rm -rf "$T"
}

@test "the same seed gives the same bytes, also with every other awk there is" {
	"$ROOT/scripts/ng-demo-data" 7 one
	# what awk gave when this was written
	[ "$(cat one/*.jsonl | cksum)" = "1538973043 258758" ]
	for a in gawk mawk original-awk busybox; do
		command -v $a >/dev/null || continue
		mkdir -p bin
		if [ $a = busybox ]; then
			printf '#!/bin/sh\nexec busybox awk "$@"\n' >bin/awk
			chmod +x bin/awk
		else
			ln -sf "$(command -v $a)" bin/awk
		fi
		PATH=$T/bin:$PATH "$ROOT/scripts/ng-demo-data" 7 two
		diff -r one two
	done
	"$ROOT/scripts/ng-demo-data" 8 three
	run ! cmp -s one/dev.jsonl three/dev.jsonl
}

@test "rows are whole and no medicine of dev is in training" {
	"$ROOT/scripts/ng-demo-data" 1
	jq -e '(.anchor | length > 5) and (.positive | length > 20) and (.negative | length > 20) and .negative != .positive' train-site-?.jsonl >/dev/null
	jq -e 'has("negative") | not' dev.jsonl >/dev/null
	jq -r .focus train-site-?.jsonl | sort -u >train
	jq -r .focus dev.jsonl | sort -u >dev
	[ "$(wc -l <dev)" -eq 30 ]
	[ "$(wc -l <train)" -eq 50 ]
	[ -z "$(comm -12 train dev)" ]
	# a company's products are its own
	[ "$(jq -r '.focus + .group' train-site-?.jsonl | sort -u | wc -l)" -eq 50 ]
}

@test "sizes by the environment; misuse is 64; a folder that cannot be written 74" {
	NG_DEMO_MEDICINES="2 3 4" "$ROOT/scripts/ng-demo-data" 1 x
	[ "$(wc -l <x/train-site-b.jsonl)" -eq 30 ]
	run "$ROOT/scripts/ng-demo-data" one
	[ "$status" -eq 64 ]
	run "$ROOT/scripts/ng-demo-data" 1 /proc/none
	[ "$status" -eq 74 ]
}
