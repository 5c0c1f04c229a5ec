#!/usr/bin/env bats
# The bridge's end of the stream format; needs python3 alone.  That it trains as
# ng-train does is checked by t/golden/bridge.sh, where there is a PyTorch.
load helper

setup() {
	need_program python3
	cd "$BATS_TEST_TMPDIR"
	echo '{"anchor": "a", "positive": "b"}' >d.jsonl
	mkdir model
}

bracket() { # bracket TEXT
	printf '\136\052\115\030'
	printf "\\$(printf %o $((${#1} % 256)))\\$(printf %o $((${#1} / 256)))\\0\\0"
	printf %s "$1"
}

# the closing of `out` has this code
closes() {
	tail -c 400 out | tr -d '\0' | grep -q "{\"ng\":{\"close\":{\"code\":$1,\"frames\":0,"
}

@test "a failed close upstream is passed on with its code and reason" {
	{ bracket '{"ng":{"open":{}}}' && bracket '{"ng":{"close":{"code":75,"frames":0,"reason":"ng-pull: the board moved"}}}'; } >in
	expect 75 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "ng-pull: the board moved"
	closes 75
	grep -q 'ng-pull: the board moved' out
}

@test "nothing to do upstream is 1, said without the word error" {
	{ bracket '{"ng":{"open":{}}}' && bracket '{"ng":{"close":{"code":1,"frames":0,"reason":"ng-pull: nothing new"}}}'; } >in
	expect 1 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "nothing new"
	[[ "$stderr" != *error* ]]
	closes 1
}

@test "nothing at all, no closing, a wrong count, a cut frame and a plain file are 65" {
	: >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	closes 65
	bracket '{"ng":{"open":{}}}' >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "without a closing"
	{ bracket '{"ng":{"open":{}}}' && bracket '{"ng":{"close":{"code":0,"frames":1,"reason":""}}}'; } >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	head -c 100000 /dev/urandom | zstd -q --check -1 >frame
	{ bracket '{"ng":{"open":{}}}' && head -c 5000 frame; } >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "cut"
	cp "$ROOT/t/golden/tiny-bert/model.safetensors" in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "not a stream"
}

@test "a program that failed inside a frame is believed rather than the cut" {
	head -c 100000 /dev/urandom | zstd -q --check -1 >frame
	{ bracket '{"ng":{"open":{}}}' && head -c 5000 frame &&
		bracket '{"ng":{"close":{"code":74,"frames":0,"reason":"ng-pull: disk full"}}}'; } >in
	expect 74 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "ng-pull: disk full"
}

@test "frames without a checksum or with a large window are 65" {
	head -c 3000000 /dev/zero | zstd -q --no-check -1 >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "without a checksum"
	head -c 3000000 /dev/urandom | zstd -q --check -19 >in
	expect 65 sh -c 'ng-train-torch -m model -d d.jsonl -s a --state state <in >out'
	says "512 KiB"
}

@test "misuse is 64 and says how" {
	expect 64 ng-train-torch -d d.jsonl -s a </dev/null
	says "no --model"
	expect 64 ng-train-torch -m model -d d.jsonl -s A_ </dev/null
	expect 64 ng-train-torch -m model -d d.jsonl -s a --shard 3/2 </dev/null
	expect 64 ng-train-torch -m model -d - -s a </dev/null
	expect 64 ng-train-torch --bogus </dev/null
	expect 0 ng-train-torch --help
	expect 66 ng-train-torch -m model -d d.jsonl -s a --state state -o out nothere </dev/null
	[ ! -e out ]
}

@test "the order of the data is that of common/text/sampler.h" {
	python3 -c 'import numpy' 2>/dev/null || skip "numpy is not there"
	# the values of t/unit/test_sampler.c: n 10, seed 42, round 3, epoch 1
	want=$(sed -n '/want\[10\]/s/.*{ *\(.*\) *}.*/\1/p' "$ROOT/t/unit/test_sampler.c" | tr -d ' ')
	[ -n "$want" ]
	cat >p.py <<-'EOF'
		import importlib.machinery as m, importlib.util as u, sys
		l = m.SourceFileLoader("bridge", sys.argv[1])
		b = u.module_from_spec(u.spec_from_loader("bridge", l))
		sys.dont_write_bytecode = True
		l.exec_module(b)
		print(",".join(map(str, b.permutation(10, 42, 3, 1))))
	EOF
	[ "$(PYTHONDONTWRITEBYTECODE=1 python3 p.py "$ROOT/scripts/ng-train-torch")" = "$want" ]
}
