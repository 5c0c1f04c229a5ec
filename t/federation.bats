#!/usr/bin/env bats
# The whole job with the real programs and a tiny model: sites, aggregator, rounds.
load helper

MODEL=$ROOT/t/golden/tiny-bert

# rows FILE N OFFSET: N pairs of short sentences, different for each offset
rows() {
	awk -v n="$2" -v off="$3" 'BEGIN {
		split("fever pain cough rash sleep blood heart skin eye bone", a, " ")
		split("tablet syrup cream drops patch spray powder gel", b, " ")
		for (i = 0; i < n; i++) {
			k = i + off
			printf "{\"anchor\": \"what helps with %s %d\", \"positive\": \"take the %s number %d for %s\"}\n",
				a[k % 10 + 1], k, b[k % 8 + 1], k, a[k % 10 + 1]
		}
	}' >"$1"
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cat >experiment.json <<'END'
{"experiment": "tiny", "rounds": 3, "quorum": 2, "expect": 3,
 "train": {"batch": 16, "epochs": 1, "lr": 1e-3, "max_length": 32, "dropout": 0.1}}
END
	rows a.jsonl 40 0
	rows b.jsonl 23 100
	rows c.jsonl 9 200
}

init() { # init BOARD [ng-init options]
	local board=$1
	shift
	expect 0 ng-init --open -b "$board" -e tiny -m "$MODEL" "$@" experiment.json
}

site() { # site BOARD SITE DATA [ng-train options]
	local board=$1 name=$2 data=$3
	shift 3
	ng-pull -b "$board" -e tiny -s "$name" --state "state-$name" |
		ng-train -m "$MODEL" -d "$data" -s "$name" --state "state-$name" -q "$@" |
		ng-push -b "$board" -e tiny --state "state-$name"
}

aggregate() { # aggregate BOARD [ng-aggregate options]
	local board=$1
	shift
	ng-pull -b "$board" -e tiny --updates --state state-agg |
		ng-aggregate "$@" |
		ng-push -b "$board" -e tiny --global --state state-agg
}

digest() { # digest BOARD ROUND: content digest of a global
	ng-pull -b "$1" -e tiny -r "$2" --state state-digest | ng-show -j | jq -r 'select(.kind == "global") | .content_digest' | head -1
}

@test "three sites, three rounds, then there is nothing to do" {
	init board
	for r in 0 1 2; do
		expect 1 aggregate board # nobody has come yet
		for s in a b c; do
			expect 0 site board site-$s $s.jsonl
			expect 1 site board site-$s $s.jsonl # done already
		done
		expect 0 aggregate board
		expect 1 aggregate board
	done
	expect 1 site board site-a a.jsonl # global/3 is the last
	expect 0 ng-pull -b board -e tiny -o tuned --state state-x
	expect 0 ng-eval -m tuned -d a.jsonl
	expect 0 ng-status -b board -e tiny
	# it learnt something: the loss on its own data fell
	before=$(ng-eval -m "$MODEL" -d a.jsonl -j | jq -r '.["cosine_mrr@10"] // .["mrr@10"]' | head -1)
	after=$(ng-eval -m tuned -d a.jsonl -j | jq -r '.["cosine_mrr@10"] // .["mrr@10"]' | head -1)
	awk -v a="$after" -v b="$before" 'BEGIN { exit !(a > b) }' || fail "MRR@10 $before -> $after"
}

@test "the order of arrival does not matter" {
	init one
	cp -r one two
	for s in a b c; do site one site-$s $s.jsonl; done
	for s in c a b; do site two site-$s $s.jsonl; done
	aggregate one
	aggregate two
	d=$(digest one 1)
	[ ${#d} -eq 64 ]
	[ "$d" = "$(digest two 1)" ]
	[ "$d" != "$(digest one 0)" ]
}

@test "three sites with the same data give the global of one site with that data" {
	init three
	init one --set quorum=1 --set expect=1
	for s in a b c; do site three site-$s a.jsonl; done
	site one site-a a.jsonl
	aggregate three
	aggregate one
	# the experiments differ (quorum), the tensors do not
	[ "$(digest three 1)" = "$(digest one 1)" ]
}

@test "threads and memory do not change a bit of the update" {
	init board
	ng-pull -b board -e tiny -s site-a --state sp >g
	for o in "--threads 1" "--threads 2" "--threads 2 --memory 64M" "--threads 1 --memory 8G"; do
		# shellcheck disable=SC2086
		ng-train -m "$MODEL" -d a.jsonl -s site-a --state "st" -q $o <g >u
		ng-show -j <u | jq -r 'select(.kind == "update") | .content_digest' | head -1
	done | sort | uniq -c >digests
	[ "$(wc -l <digests)" -eq 1 ] || fail "$(cat digests)"
}

@test "a failing first stage ends the pipe with its code and publishes nothing" {
	init board
	expect 66 site no-such-board site-a a.jsonl
	printf '{"anchor": 3, "positive": "x"}\n' >bad.jsonl
	expect 65 site board site-a bad.jsonl
	[ ! -e board/tiny/update/00000/site-a ]
}

@test "a cut stream is not a whole one" {
	init board
	ng-pull -b board -e tiny -s site-a --state sa | ng-train -m "$MODEL" -d a.jsonl -s site-a --state sa -q >u
	n=$(wc -c <u)
	for cut in 0 1 10 100 $((n / 2)) $((n - 40)) $((n - 1)); do
		head -c "$cut" u >cut
		run ng-push -b board -e tiny --state sa <cut
		[ "$status" -eq 65 ] || fail "cut at $cut of $n: exit $status"
		[ ! -e board/tiny/update/00000/site-a ]
	done
	expect 0 ng-push -b board -e tiny --state sa <u
}

@test "rows: 1, B-1, B, B+1" {
	init board --set train.batch=8 --set expect=4
	rows r1.jsonl 1 0
	expect 65 site board site-r1 r1.jsonl
	for n in 7 8 9 17; do
		rows r$n.jsonl $n 0
		expect 0 site board site-r$n r$n.jsonl
	done
	expect 0 aggregate board
}
