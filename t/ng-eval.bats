#!/usr/bin/env bats
# Metrics against sentence-transformers' evaluators on the same vectors; files
# that are not vectors; a model folder and a global.
load helper
load board

setup() {
	GOLDEN=$ROOT/t/golden/eval
	TINY=$ROOT/t/golden/tiny-bert
	cd "$BATS_TEST_TMPDIR" || return 1
	need_program jq
}

# same CASE FUNCTION: $output (JSON) holds all of the case's values of that function, within 1e-6
same() {
	echo "$output" | jq -e --arg case "$1" --arg fn "$2" --slurpfile want "$GOLDEN/expected.json" '
		. as $got | $want[0][$case] | with_entries(select(.key | contains($fn)))
		| length > 0 and all(to_entries[]; ($got[.key] // 9) - .value | . < 1e-6 and . > -1e-6)' >/dev/null ||
		fail "$1 $2: $output"
}

vectors() { # vectors NAME option...
	local name=$1
	shift
	expect 0 ng-eval -j -d "$GOLDEN/$name.jsonl" --query-vectors "$GOLDEN/$name-queries.npy" \
		--corpus-vectors "$GOLDEN/$name-documents.npy" "$@"
}

@test "retrieval: cosine and dot, ties between equal vectors" {
	vectors floats
	same "floats default" cosine
	[ "$(echo "$output" | jq .queries,.documents | tr '\n' ' ')" = "40 1500 " ]
	vectors floats --at 1,2,7,64,1000
	same "floats at" cosine
	vectors floats --similarity dot
	same "floats default" dot
	vectors floats --similarity dot --at 1,2,7,64,1000 --threads 3
	same "floats at" dot
}

@test "retrieval: ties between different vectors, at every cut" {
	vectors whole --similarity dot
	same "whole default" dot
	vectors whole --similarity dot --at 1,2,7,64,1000 --memory 1
	same "whole at" dot
}

@test "likeness: average ranks of many ties; float64 is read too" {
	likeness() { # likeness NAME FUNCTION
		expect 0 ng-eval -j --sts "$GOLDEN/$1.tsv" --similarity "$2" \
			--query-vectors "$GOLDEN/$1-sentence1.npy" --corpus-vectors "$GOLDEN/$1-sentence2.npy"
		same "$1" "$2"
	}
	likeness sts cosine
	likeness sts dot
	likeness sts-whole dot
	printf 'score\tsentence1\tsentence2\n' >flat.tsv
	sed 1d "$GOLDEN/sts.tsv" | cut -f2- | sed 's/^/3\t/' >>flat.tsv
	expect 0 ng-eval -j --sts flat.tsv --query-vectors "$GOLDEN/sts-sentence1.npy" \
		--corpus-vectors "$GOLDEN/sts-sentence2.npy"
	[ "$(echo "$output" | jq -c '[.pearson_cosine, .spearman_cosine]')" = "[null,null]" ]
}

@test "text and JSON name the same fields" {
	vectors floats
	json=$(echo "$output" | jq -r keys[])
	expect 0 ng-eval -d "$GOLDEN/floats.jsonl" --query-vectors "$GOLDEN/floats-queries.npy" \
		--corpus-vectors "$GOLDEN/floats-documents.npy"
	[ "$(echo "$output" | cut -f1 | LC_ALL=C sort)" = "$json" ]
	[ "$(echo "$output" | head -3 | cut -f1 | tr '\n' ' ')" = "queries documents cosine_accuracy@1 " ]
}

@test "what is no matrix of vectors, or not of these texts" {
	bad() { # bad CODE TEXT
		run --separate-stderr ng-eval -d "$GOLDEN/floats.jsonl" --query-vectors "$GOLDEN/floats-queries.npy" \
			--corpus-vectors bad.npy
		[ "$status" -eq "$1" ] || fail "exit $status, not $1: $stderr"
		says "$2"
	}
	rm -f bad.npy && bad 66 "cannot open 'bad.npy'"
	cp "$GOLDEN/floats.jsonl" bad.npy && bad 65 "not a .npy file"
	head -c 5000 "$GOLDEN/floats-documents.npy" >bad.npy && bad 65 "its size"
	head -c 5 "$GOLDEN/floats-documents.npy" >bad.npy && bad 65 "not a .npy file"
	cp "$GOLDEN/floats-queries.npy" bad.npy && bad 65 "holds 40 vectors, and there are 1500 documents"
	sed 's/<f4/<i4/' "$GOLDEN/floats-documents.npy" >bad.npy && bad 65 "not a C-ordered matrix"
	sed 's/False/True /' "$GOLDEN/floats-documents.npy" >bad.npy && bad 65 "not a C-ordered matrix"
	{ head -c 36000 "$GOLDEN/floats-documents.npy" && printf '\000\000\300\177%.0s' $(seq 32); } >bad.npy
	bad 65 "not a finite number"
}

@test "misuse" {
	expect 64 ng-eval
	says "nothing to evaluate"
	expect 64 ng-eval -d x
	says "no model"
	expect 64 ng-eval -d x --query-vectors a
	expect 64 ng-eval -m "$TINY" -d x --query-vectors a --corpus-vectors b
	expect 64 ng-eval -m "$TINY" -d x --at 0
	expect 64 ng-eval -m "$TINY" -d x --at 5,5
	expect 64 ng-eval -m "$TINY" -d x --similarity euclidean
	expect 66 ng-eval -m "$TINY" -d absent.jsonl
	expect 66 ng-eval -m absent -d "$GOLDEN/floats.jsonl"
	run -74 bash -c "ng-eval -d $GOLDEN/floats.jsonl --query-vectors $GOLDEN/floats-queries.npy \
		--corpus-vectors $GOLDEN/floats-documents.npy >/dev/full"
}

data() {
	cat >data.jsonl <<-'E'
		{"anchor": "How is it taken?", "positive": "Twice a day with water.", "negative": "It is white."}
		{"anchor": "What colour is it?", "positive": "It is white.", "negative": ["Once a week.", "Never."]}
		{"anchor": "How is it taken?", "positive": "Swallow it whole."}
	E
}

@test "a model folder: distinct texts, all positives of an anchor, vectors out and in again" {
	data
	expect 0 ng-eval -j -m "$TINY" -d data.jsonl --vectors out
	[ "$(echo "$output" | jq -c '[.queries, .documents]')" = "[2,5]" ]
	echo "$output" | jq 'del(.x)' >model.json
	expect 0 ng-eval -j -d data.jsonl --query-vectors out-queries.npy --corpus-vectors out-documents.npy
	echo "$output" | jq 'del(.x)' >given.json
	cmp model.json given.json
	expect 0 ng-eval -j -m "$TINY" -d data.jsonl --memory 1 --threads 1
	echo "$output" | jq 'del(.x)' | cmp model.json
	# all five documents found within ten: recall is whole
	[ "$(jq '."cosine_recall@5"' model.json)" = 1.0 ] || [ "$(jq '."cosine_recall@5"' model.json)" = 1 ]
}

@test "a global in place of the folder's tensors, from a pipe and from a file" {
	data
	new_board
	ng-pull -q >g0.zst
	expect 0 ng-eval -j -m "$TINY" -d data.jsonl --vectors folder
	expect 0 ng-eval -j -m "$TINY" -d data.jsonl --vectors global g0.zst
	cmp folder-documents.npy global-documents.npy
	round site-a site-b
	ng-pull -q | ng-eval -q -m "$TINY" -d data.jsonl --vectors tuned - >/dev/null
	! cmp -s folder-documents.npy tuned-documents.npy
	ng-pull -q -o tuned
	ng-eval -q -m tuned -d data.jsonl --vectors pulled >/dev/null
	cmp tuned-documents.npy pulled-documents.npy
}

@test "what is not a global of this folder's experiment" {
	data
	new_board
	ng-pull -q >g0.zst
	cp -r "$TINY" other && echo ' ' >>other/config.json
	expect 77 ng-eval -m other -d data.jsonl g0.zst
	says "config.json"
	ng-pull -q | answer site=site-a >u.zst
	expect 65 ng-eval -m "$TINY" -d data.jsonl u.zst
	says "not a global"
	expect 65 ng-eval -m "$TINY" -d data.jsonl - <<<""
	size=$(wc -c <g0.zst)
	head -c $((size / 2)) g0.zst >cut.zst
	expect 65 ng-eval -m "$TINY" -d data.jsonl cut.zst
	[ -z "$output" ]
	run --separate-stderr -66 bash -c "ng-pull -q -b nowhere | ng-eval -m '$TINY' -d data.jsonl -"
}
