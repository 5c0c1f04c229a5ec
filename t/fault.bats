#!/usr/bin/env bats
# Every program with the n-th write, fsync, rename, malloc, ... failing: one
# clear line, a documented code, nothing half written, nothing left behind.
load helper
load fault

if [ -n "${NG_FULL:-}" ]; then
	KILLS="open:KILL write:KILL fsync:KILL rename:KILL link:KILL unlink:KILL mkdir:KILL"
else
	KILLS="write:KILL fsync:KILL rename:KILL"
fi

setup() {
	needs_faults
	cd "$BATS_TEST_TMPDIR" || return 1
}

frames() { # frames N: g.zst and N updates, and the paths in $updates
	local base s
	read -r base _ < <("$NG_BUILD/t/frames" path=g.zst kind=global)
	updates=
	for s in $(seq "$1"); do
		"$NG_BUILD/t/frames" path="u$s.zst" kind=update base="$base" site="site-$s" seed="$s" examples=10 >/dev/null
		updates="$updates u$s.zst"
	done
}

@test "the shim fails what it is told to fail" {
	run env LD_PRELOAD="$NG_BUILD/t/fault.so" NG_FAULT=open:1:ENOENT NG_FAULT_PROGRAM=cat cat "$BATS_TEST_FILENAME"
	[ "$status" -ne 0 ]
	run env LD_PRELOAD="$NG_BUILD/t/fault.so" NG_FAULT=open:1:ENOENT NG_FAULT_PROGRAM=dog cat "$BATS_TEST_FILENAME"
	[ "$status" -eq 0 ]
	run env LD_PRELOAD="$NG_BUILD/t/fault.so" NG_FAULT=nonsense true
	[ "$status" -eq 99 ]
}

@test "ng-aggregate" {
	frames 2
	# shellcheck disable=SC2086
	storm out/new.zst ng-aggregate -q -o out/new.zst g.zst $updates
	# shellcheck disable=SC2086
	FAULTS=$KILLS storm out/new.zst ng-aggregate -q -o out/new.zst g.zst $updates
}

@test "ng-show" {
	frames 1
	storm "" ng-show -j g.zst u1.zst
}

@test "ng-show writes a safetensors file" {
	frames 1
	storm out/g.safetensors ng-show --safetensors out/g.safetensors g.zst
}

@test "ng-eval" {
	for i in 1 2 3 4 5; do
		printf '{"anchor": "what is %d", "positive": "it is number %d"}\n' "$i" "$i"
	done >dev.jsonl
	storm "" ng-eval -q --threads 1 -m "$ROOT/t/golden/tiny-dense" -d dev.jsonl
}

# ---- the programs of the board: whatever fails, the next run puts it right ----

board() { # a board with global/00000, and update.zst for it
	printf '{"experiment": "leaflets", "rounds": 3, "quorum": 1, "expect": 1}' >exp.json
	ng-init -q --open -b board -m "$ROOT/t/golden/tiny-dense" exp.json >/dev/null
	ng-pull -q -b board -e leaflets -s site-a | "$NG_BUILD/t/answer" site=site-a >update.zst
	mv board board.0
	rm -rf state
}

# Everything published, without the times in signatures
published() {
	# (a log entry that was made up for later need not name the same prunes)
	(cd board/leaflets && find log -name 'part-*' | sort && find . -path ./log -prune -o -path ./tmp -prune -o -name 'part-*' -print -o -path '*/files/*' -type f -print | sort | xargs sha256sum)
}

fresh() {
	rm -rf board state
	[ ! -d board.0 ] || cp -a board.0 board
	export NG_STATE=$PWD/state
}

# What the programs' own files test too, in another way: left to the whole tier
full() {
	[ -z "${NG_FULL:-}" ] || storm "$@"
}

@test "ng-init" {
	export NG_STATE=$PWD/state
	printf '{"experiment": "leaflets", "rounds": 3}' >exp.json
	init() { ng-init -q --open -b board -m "$ROOT/t/golden/tiny-dense" exp.json; }
	init >/dev/null
	published >want
	prepare() { fresh; }
	after() {
		local code=0
		init >/dev/null 2>again.stderr || code=$?
		[ "$code" -eq 0 ] || [ "$code" -eq 1 ] || fail "again: exit $code: $(cat again.stderr)"
		published | diff want - >&2
	}
	full "" ng-init -q --open -b board -m "$ROOT/t/golden/tiny-dense" exp.json
	FAULTS=$KILLS storm "" ng-init -q --open -b board -m "$ROOT/t/golden/tiny-dense" exp.json
}

@test "ng-push of an update" {
	board
	prepare() { fresh; }
	fresh
	ng-push -q -b board -e leaflets -s site-a update.zst
	published >want
	after() {
		local code=0
		ng-push -q -b board -e leaflets -s site-a update.zst 2>again.stderr || code=$?
		[ "$code" -eq 0 ] || [ "$code" -eq 1 ] || fail "again: exit $code: $(cat again.stderr)"
		published | diff want - >&2
	}
	full "" ng-push -q -b board -e leaflets -s site-a update.zst
	FAULTS=$KILLS storm "" ng-push -q -b board -e leaflets -s site-a update.zst
}

@test "ng-push of a global" {
	board
	fresh
	ng-push -q -b board -e leaflets -s site-a update.zst
	ng-pull -q -b board -e leaflets --updates | ng-aggregate -q >global.zst
	rm -rf board.0
	mv board board.0
	prepare() { fresh; }
	fresh
	ng-push -q -b board -e leaflets --global global.zst
	published >want
	after() {
		local code=0
		ng-push -q -b board -e leaflets --global global.zst 2>again.stderr || code=$?
		[ "$code" -eq 0 ] || [ "$code" -eq 1 ] || fail "again: exit $code: $(cat again.stderr)"
		published | diff want - >&2
	}
	full "" ng-push -q -b board -e leaflets --global global.zst
	FAULTS=$KILLS storm "" ng-push -q -b board -e leaflets --global global.zst
}

@test "ng-pull as a folder" {
	board
	prepare() { fresh; }
	fresh
	ng-pull -q -b board -e leaflets -o want
	after() {
		rm -rf out/again
		ng-pull -q -b board -e leaflets -o out/again || return 1
		diff -r want out/again >&2
	}
	full out/model ng-pull -q -b board -e leaflets -o out/model
	FAULTS=$KILLS storm out/model ng-pull -q -b board -e leaflets -o out/model
}

@test "ng-pull as a stream" {
	board
	prepare() { fresh; }
	after() { :; }
	storm "" ng-pull -q -b board -e leaflets -s site-a
}

@test "ng-status" {
	board
	prepare() { fresh; }
	after() { :; }
	storm "" ng-status -b board -e leaflets
}
