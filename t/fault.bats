#!/usr/bin/env bats
# Every program with the n-th write, fsync, rename, malloc, ... failing: one
# clear line, a documented code, nothing half written, nothing left behind.
load helper
load fault

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
	storm out/new.zst ng-aggregate -o out/new.zst g.zst $updates
}

@test "ng-show" {
	frames 1
	storm "" ng-show -j g.zst u1.zst
}

@test "ng-show writes a safetensors file" {
	frames 1
	storm out/g.safetensors ng-show --safetensors out/g.safetensors g.zst
}
