#!/usr/bin/env bats
# scripts/ng-sim and scripts/demo, with the real programs and a tiny model
load helper

setup() {
	need_program jq
	cd "$BATS_TEST_TMPDIR"
	NG_DEMO_MEDICINES="3 3 2" ng-demo-data 1 data
	head -n 24 data/dev.jsonl >dev.jsonl
	cat >e.json <<-'EOF'
		{"experiment": "sim", "rounds": 2, "quorum": 2, "expect": 3,
		 "train": {"batch": 16, "lr": 1e-3, "max_length": 32}}
	EOF
	cat >sim.conf <<-EOF
		# three sites
		experiment e.json
		model $ROOT/t/golden/tiny-bert
		dev dev.jsonl

		site site-a data=data/train-site-a.jsonl threads=1
		site site-b data=data/train-site-b.jsonl memory=300M
		site site-c data=data/train-site-c.jsonl data=data/train-site-a.jsonl shard=1/2
	EOF
}

rounds() { jq -c .round out/rounds.jsonl | tr '\n' ' '; }

@test "a federation runs to its last round; a second run finds it done" {
	expect 0 ng-sim sim.conf out
	[ "$(rounds)" = "0 1 2 " ]
	[ "$(printf '%s\n' "$output" | jq -s 'length')" -eq 3 ]
	[ "$(jq -sc '.[2].updates' out/rounds.jsonl)" = '["site-a","site-b","site-c"]' ]
	jq -se 'all(.[]["cosine_mrr@10"]; . > 0 and . <= 1)' out/rounds.jsonl >/dev/null
	# it trained, so something moved
	jq -se '.[0]["cosine_mrr@10"] != .[2]["cosine_mrr@10"] or .[0]["cosine_ndcg@10"] != .[2]["cosine_ndcg@10"]' out/rounds.jsonl >/dev/null
	grep -q 'ng-train .*--shard=1/2' out/commands
	grep -q 'ng-train .*--memory=300M' out/commands
	before=$(cksum <out/rounds.jsonl)
	expect 0 ng-sim sim.conf out
	[ "$output" = "$(cat out/rounds.jsonl)" ]
	[ "$(cksum <out/rounds.jsonl)" = "$before" ]
	[ ! -e out/lock ]
}

@test "the same file gives the same models, several sites and runs at a time" {
	sed 's/^model/jobs 3\nmodel/' sim.conf >jobs.conf
	ng-sim sim.conf out >/dev/null 2>&1 &
	one=$!
	ng-sim jobs.conf out2 >/dev/null 2>&1 &
	two=$!
	wait $one
	wait $two
	for o in out out2; do
		NG_STATE=$o/state/reader ng-pull -q -b $o/board -e sim | ng-show -j | jq -r .content_digest
	done >digests
	[ "$(sort -u digests | wc -l)" -eq 1 ]
	[ "$(wc -l <digests)" -eq 2 ]
}

@test "a late update is not in its round; one site away leaves the quorum" {
	sed -i 's/"expect": 3/"expect": 2/' e.json
	sed 's/^\(site site-c.*\)/\1 delay=1/; s/^\(site site-b.*\)/\1 drop=0/' sim.conf >late.conf
	expect 0 ng-sim late.conf out
	[ "$(jq -sc '[.[].updates]' out/rounds.jsonl)" = '[[],["site-a","site-b"],["site-a","site-b"]]' ]
	sed 's/^\(site site-c.*\)/\1 drop=1/' sim.conf >away.conf
	expect 0 ng-sim away.conf out3
	says "site-c is away"
	[ "$(jq -sc '[.[].updates]' out3/rounds.jsonl)" = '[[],["site-a","site-b"],["site-a","site-b"]]' ]
}

@test "without a quorum the ticks are used up: 75, and it goes on from there" {
	sed 's/^\(site.*\)/\1 drop=1/; s/^model/ticks 2\nmodel/' sim.conf >none.conf
	expect 75 ng-sim none.conf out
	[ "$(rounds)" = "0 " ]
	expect 0 ng-sim sim.conf out
	[ "$(rounds)" = "0 1 2 " ]
	[ "$(printf '%s\n' "$output" | jq -c .round | tr '\n' ' ')" = "0 1 2 " ]
}

@test "a trainer that fails is named, with its code; another can be set" {
	printf '#!/bin/sh\necho boom >&2\nexit 70\n' >broken
	chmod +x broken
	sed "s|^\(site site-b.*\)|\1 trainer=$PWD/broken|" sim.conf >broken.conf
	run --separate-stderr ng-sim broken.conf out
	[ "$status" -ne 0 ]
	[ "$status" -ne 75 ]
	says "site-b failed"
}

@test "one run at a time in a folder; what a dead one left is taken over" {
	mkdir -p out/lock
	echo $$ >out/lock/pid
	expect 75 ng-sim sim.conf out
	says "in use"
	echo 999999 >out/lock/pid
	expect 0 ng-sim sim.conf out
}

@test "misuse is 64, a missing file 66" {
	expect 64 ng-sim sim.conf
	expect 66 ng-sim nothere out
	for bad in 'site x' 'site x data=a speed=3' 'site x data=a drop=x' 'sites 3' 'jobs many' 'set a' 'jobs 0'; do
		{ cat sim.conf && echo "$bad"; } >bad.conf
		expect 64 ng-sim bad.conf out
	done
	sed 's/^experiment.*/experiment none.json/' sim.conf >bad.conf
	expect 66 ng-sim bad.conf out
}

@test "the demo ends with its table" {
	[ -z "${NG_DEMO_BUILT-}" ] || unset NG_DEMO_BUILT
	mkdir -p demo/data
	cp data/*.jsonl demo/data/
	cp dev.jsonl demo/data/dev.jsonl
	NG_DEMO_BUILT=1 NG_DEMO_MODEL=$ROOT/t/golden/tiny-bert expect 0 demo demo
	[[ "$output" == *"all data in one place"* ]]
	[[ "$output" == *"ng-aggregate"* ]]
	[ "$(grep -cE '^  (the three sites together|site [abc] alone|all data in one place) +0\.[0-9]{3} +0\.[0-9]{3} +0\.[0-9]{3} +0\.[0-9]{3}$' demo/table.txt)" -eq 15 ]
	[ "$(grep -cE '^(MRR|NDCG|Accuracy)@' demo/table.txt)" -eq 3 ]
}
