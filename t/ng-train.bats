#!/usr/bin/env bats
# ng-train on a tiny random model: what goes in and out, equal bytes, stops and resumes.
load helper
load fault

setup() {
	cd "$BATS_TEST_TMPDIR"
	model=$ROOT/t/golden/tiny-bert
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
		for j in 1 2 3 4; do
			echo "{\"anchor\": \"what dose of medicine $i in case $j\", \"positive\": \"take $i mg $j times daily with water and not more than $((i * j)) in all\"}"
		done
	done >d.jsonl
	setting
	train="ng-train -m $model -d d.jsonl -s site-a"
}

# setting [TRAIN-KEYS]: a board with an experiment, its global in `global`
setting() {
	rm -rf board
	jq -n "{experiment: \"x\", rounds: 2, quorum: 1, train: ({batch: 64, lr: 1e-3, max_length: 48} + {$1})}" >x.json
	ng-init -q --open -b board -e x -m "$model" x.json >/dev/null
	ng-pull -q -b board -e x >global
}

content() { # digest of the tensors alone
	ng-show -j "$1" | jq -r .content_digest
}

@test "an update comes out whose metadata says what was done" {
	expect 0 $train -o u global
	says "120 rows of 2 texts, batch 64, 2 steps, round 1"
	ng-show -j u >u.json
	jq -e '.kind == "update" and .site == "site-a" and .round == 0 and .examples == 120 and .batch == 64 and .steps == 2
		and (.loss > 0)' u.json
	[ "$(jq -r .base u.json)" = "$(content global)" ]
}

@test "through a pipe it is the same, and the push takes it" {
	$train -q -o u global
	ng-pull -q -b board -e x -s site-a | $train -q | tee v | ng-push -q -b board -e x
	[ "$(content u)" = "$(content v)" ]
	expect 1 ng-pull -b board -e x -s site-a
}

@test "the same bytes for any threads and memory" {
	setting '"epochs": 2'
	$train -q --threads 1 --state s1 -o one global
	$train -q --threads 2 --state s2 -o two global
	least=$($train -n -q global | awk '$1 == "memory_least" { print int(($2 + 1048575) / 1048576) + 1 }')
	$train -q --threads 2 --memory "${least}M" --log log --state s3 -o three global
	jq -se 'any(.kept < .grains)' log
	cmp one two
	cmp one three
	expect 71 $train --memory 20M --state s4 -o four global
	says "is the least that works"
	[ ! -e four ]
}

@test "stopped inside a step or killed, the next run gives the same bytes" {
	setting '"epochs": 20'
	$train -q --state s0 -o whole global
	for signal in TERM INT TERM TERM; do
		$train -q --state s1 -o part global 3>&- &
		pid=$!
		sleep "0.$((RANDOM % 3 + 2))"
		kill -s $signal $pid || true
		wait $pid && break
	done
	$train --state s1 -o part global 2>said
	grep -q 'going on after step\|trained already' said
	cmp whole part
	# no temporaries are left
	[ "$(ls s1/train/*)" = "$(printf 'checkpoint\nlock')" ]
	for pause in 3 4 5; do
		$train -q --checkpoint 1s --state s2 -o killed global 3>&- &
		pid=$!
		sleep "0.$pause"
		kill -s KILL $pid || true
		wait $pid && break
	done
	: >"$(echo s2/train/*)/checkpoint.ng-abcdef"
	$train -q --state s2 -o killed global
	cmp whole killed
	[ "$(ls s2/train/*)" = "$(printf 'checkpoint\nlock')" ]
}

@test "a stopped run dies by the signal, and closes its pipe with 75" {
	setting '"epochs": 200'
	set +e
	$train -q global >out 3>&- &
	pid=$!
	sleep 0.4
	kill $pid
	wait $pid
	code=$?
	set -e
	[ $code -eq 143 ]
	expect 75 ng-show out
	says "stopped by a signal"
}

@test "a state of other data or another experiment is not used" {
	$train -q --state s -o a global
	head -60 d.jsonl >e.jsonl
	expect 0 ng-train -m "$model" -d e.jsonl -s site-a --state s -o b global
	[[ "$stderr" != *"trained already"* ]]
	expect 0 $train --state s -o c global
	cmp a c
	expect 0 $train --state s -o d global
	says "trained already"
	cmp a d
}

@test "a damaged state is removed, and the run after it starts the round again" {
	$train -q --state s -o a global
	state=$(echo s/train/*/checkpoint)
	cp "$state" whole
	for damage in 'head -c 0' 'head -c 100' 'head -c 20000'; do
		$damage whole >"$state"
		expect 75 $train --state s -o b global
		says "the next run starts the round again"
		[ ! -e b ]
		expect 0 $train -q --state s -o b global
		cmp a b
		rm b
	done
}

@test "dropout changes the result, the seed too, 0 is off" {
	$train -q -o a global
	a=$(content a)
	setting '"dropout": 0'
	$train -q -o b global
	setting '"dropout": 0, "seed": 7'
	$train -q -o c global
	[ "$a" != "$(content b)" ] && [ "$(content b)" != "$(content c)" ]
}

@test "rows: one, two, B-1, B, B+1" {
	head -1 d.jsonl >one.jsonl
	expect 65 ng-train -m "$model" -d one.jsonl -s a -o u global
	[ ! -e u ]
	: >none.jsonl
	expect 65 ng-train -m "$model" -d none.jsonl -s a -o u global
	for n in 2 63 64 65 66; do
		head -$n d.jsonl >n.jsonl
		ng-train -q -m "$model" -d n.jsonl -s a -o u global
		ng-show -j u >u.json
		want=$n steps=1
		case $n in 65) want=64 ;; 66) steps=2 ;; esac
		jq -e ".examples == $want and .steps == $steps" u.json
	done
}

@test "negatives, prompts, TSV, --fields, --shard, standard input" {
	jq -c '. + {negative: ["not \(.positive)", "nor that \(.anchor)"]}' d.jsonl >neg.jsonl
	expect 0 ng-train -m "$model" -d neg.jsonl -s a -o u global
	says "120 rows of 4 texts"
	jq -r '[.anchor, .positive] | @tsv' d.jsonl | { printf 'q\tp\n'; cat; } >d.tsv
	ng-train -q -m "$model" -d d.tsv --fields anchor=q,positive=p -s a --state t1 -o tsv global
	$train -q -s a --state t2 -o json global || ng-train -q -m "$model" -d d.jsonl -s a --state t2 -o json global
	cmp tsv json
	ng-train -q -m "$model" -d - -s a --state t3 -o stdin global <d.jsonl
	cmp stdin json
	awk 'NR % 3 == 2' d.jsonl >third.jsonl
	ng-train -q -m "$model" -d d.jsonl --shard 2/3 -s a --state t4 -o shard global
	ng-train -q -m "$model" -d third.jsonl -s a --state t5 -o third global
	cmp shard third
	setting '"prompts": {"anchor": "query: ", "positive": "passage: "}'
	ng-train -q -m "$model" -d d.jsonl -s a --state t6 -o prompted global
	jq -c '{anchor: ("query: " + .anchor), positive: ("passage: " + .positive)}' d.jsonl >long.jsonl
	setting
	ng-train -q -m "$model" -d long.jsonl -s a --state t7 -o written global
	[ "$(content prompted)" = "$(content written)" ]
}

@test "the log and --eval" {
	expect 0 $train --log log --eval d.jsonl --every 1 -o u global
	says "MRR@10"
	jq -se 'map(select(.loss)) | length == 2 and .[1].step == 2 and .[1].lr < .[0].lr + 1 and all(.norm > 0 and .rows > 0)' log
	jq -se 'map(select(has("cosine_mrr@10"))) | map(.step) == [0, 1, 2]' log
	$train -q --state other -o v global
	cmp u v
	ng-eval -j -m "$model" -d d.jsonl >e.json
	a=$(jq -s '.[0]["cosine_mrr@10"]' log) b=$(jq '.["cosine_mrr@10"]' e.json)
	jq -ne "($a - $b) | . < 1e-6 and . > -1e-6"
}

@test "the rate is stretched over all rounds" {
	setting '"epochs": 2, "schedule": "linear", "warmup_ratio": 0.25'
	$train -q --log log -o u global
	# 2 rounds of 4 steps: w = 2, T = 8
	jq -se 'map(.lr / 1e-3) | map(. * 1e6 | round) == [500000, 1000000, 1000000, 833333]' log
}

@test "a model folder that is not the experiment's is 77, naming the file" {
	cp -r "$model" other
	chmod -R u+w other
	sed 's/"lowercase": true/"lowercase": false/' other/tokenizer.json >t.json
	mv t.json other/tokenizer.json
	expect 77 ng-train -m other -d d.jsonl -s a -o u global
	says "tokenizer.json"
	expect 77 ng-train -m "$ROOT/t/golden/tiny-mpnet" -d d.jsonl -s a -o u global
	expect 66 ng-train -m nowhere -d d.jsonl -s a -o u global
}

@test "the last global is nothing to do" {
	ng-show -j global >/dev/null
	setting '"epochs": 1'
	ng-pull -q -b board -e x -s site-a | $train -q | ng-push -q -b board -e x
	ng-pull -q -b board -e x --updates | ng-aggregate -q | ng-push -q -b board -e x --global
	ng-pull -q -b board -e x -s site-a | $train -q | ng-push -q -b board -e x
	ng-pull -q -b board -e x --updates | ng-aggregate -q | ng-push -q -b board -e x --global
	ng-pull -q -b board -e x >last
	expect 1 $train -o u last
	says "is the last"
}

@test "a second run of the site exits 75" {
	setting '"epochs": 200'
	$train -q -o u global 3>&- &
	pid=$!
	sleep 0.4
	expect 75 $train -q -o v global
	kill $pid
	wait $pid || true
}

@test "bad streams: cut, two globals, an update, a failed program before" {
	head -c 3000 global >cut
	expect 65 $train -o u cut
	cat global global >two
	expect 65 $train -o u two
	$train -q -o u global
	expect 65 $train -o v u
	expect 65 sh -c "$train -o v </dev/null"
	expect 66 sh -c "ng-pull -b nowhere -e x | $train >out"
	expect 66 ng-show out
	[ ! -e v ]
}

@test "an experiment file that is malformed comes from the stream, not from the command line" {
	"$NG_BUILD"/t/frames path=bad.zst kind=global experiment='{"experiment": "leaflets", "rounds": -1}' >/dev/null
	expect 65 ng-train -m "$model" -d d.jsonl -s site-a -o u bad.zst
	says "'rounds' must be a whole number"
	[ ! -e u ]
}

@test "misuse is 64" {
	expect 64 ng-train -d d.jsonl -s a global
	expect 64 ng-train -m "$model" -s a global
	expect 64 ng-train -m "$model" -d d.jsonl global
	expect 64 ng-train -m "$model" -d d.jsonl -s A_ global
	expect 64 $train --every 3 global
	expect 64 $train --shard 3/2 global
	expect 64 ng-train -m "$model" -d - -s a
	expect 69 $train --device cuda global
}

@test "a rate that blows up stops with step and rows, and writes nothing" {
	setting '"optimizer": "sgd", "lr": 100, "weight_decay": 0.9, "epochs": 20, "clip": 0, "warmup_ratio": 0'
	expect 65 $train -o u global
	says "step"
	says "d.jsonl:"
	says "not finite"
	[ ! -e u ]
}

@test "a full disk is 74" {
	[ -e /dev/full ] || skip "no /dev/full"
	expect 74 sh -c "$train -q global >/dev/full"
}

@test "every kind of call failing: a clear line, the right code, nothing half written" {
	needs_faults
	head -20 d.jsonl >few.jsonl
	prepare() { rm -rf fs; }
	[ -n "${NG_FULL:-}" ] || FAULTS="open:EACCES write:ENOSPC fsync:EIO rename:EIO mkdir:ENOSPC"
	storm out/u ng-train -q --threads 1 -m "$model" -d few.jsonl -s a --state fs --log log -o out/u global
}
