#!/usr/bin/env bats
# Experiments are created once, whole, and completed after a crash.
load helper
load board
load fault

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
}

@test "an experiment: manifest, files, base, global, log" {
	new_board
	[ "$(objects | tr '\n' ' ')" = "./base/signature ./global/00000/signature ./log/00000/signature ./log/00001/signature ./manifest/00000/signature " ]
	[ -z "$(litter)" ]
	# the id is the digest of the manifest
	[ "$ID" = "$(b2sum -l 256 "$E/manifest/00000/part-00000" | cut -d' ' -f1)" ]
	grep -qx "experiment: $ID" "$E/global/00000/signature"
	grep -qx "object: $(b2sum -l 256 "$E/global/00000/part-00000" | cut -d' ' -f1)" "$E/global/00000/signature"
	diff "$E/manifest/00000/files/1_Pooling/config.json" "$MODEL/1_Pooling/config.json"
	expect 0 ng-show -j "$E/global/00000/part-00000"
	case $output in *'"kind":"global"'*) ;; *) fail "$output" ;; esac
	# the log: each entry names the one before
	grep -q "\"previous\":\"$(b2sum -l 256 "$E/log/00000/part-00000" | cut -d' ' -f1)\"" "$E/log/00001/part-00000"
}

@test "the same file and model give the same id anywhere; another value another" {
	new_board
	one=$ID
	NG_STATE=$PWD/other ng-init -q --open -b elsewhere -m "$MODEL" experiment.json >two
	[ "$one" = "$(cut -f2 two)" ]
	ng-init -q --open -b third -m "$MODEL" --set train.lr=1e-4 experiment.json >three
	[ "$one" != "$(cut -f2 three)" ]
	expect 0 ng-pull -b third -n
	expect 66 ng-pull -b third -e other -n
}

@test "again: 1, with --idle-ok 0, and nothing changes" {
	new_board
	find board -type f -exec b2sum {} + | sort >before
	expect 1 ng-init --open -b board -m "$MODEL" experiment.json
	expect 0 ng-init --idle-ok --open -b board -m "$MODEL" experiment.json
	expect 1 ng-init --open -b board -m "$MODEL" --set rounds=7 experiment.json
	says "exists already"
	find board -type f -exec b2sum {} + | sort | diff before -
}

@test "a crash at any step: again completes it, to the same bytes" {
	new_board
	cp -a board whole
	for part in base global log log/00001 global/00000/signature base/part-00000; do
		rm -rf board
		cp -a whole board
		rm -rf "board/leaflets/$part"
		expect 0 ng-init --open -b board -m "$MODEL" experiment.json
		for f in manifest/00000/part-00000 base/part-00000 global/00000/part-00000 log/00000/part-00000 log/00001/part-00000; do
			cmp "whole/leaflets/$f" "board/leaflets/$f"
		done
		expect 1 ng-init --open -b board -m "$MODEL" experiment.json
	done
	# damaged, not missing
	flip board/leaflets/global/00000/part-00000 5000
	expect 0 ng-init --open -b board -m "$MODEL" experiment.json
	says "written again"
	cmp whole/leaflets/global/00000/part-00000 board/leaflets/global/00000/part-00000
}

@test "killed at random moments, then run again" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	for i in 1 2 3 4 5 6 7 8; do
		rm -rf board
		ng-init -q --open -b board -m "$MODEL" experiment.json >/dev/null &
		pid=$!
		sleep 0.00$i
		kill -9 $pid 2>/dev/null || true
		wait $pid 2>/dev/null || true
		code=0
		ng-init -q --open -b board -m "$MODEL" experiment.json >/dev/null || code=$?
		[ "$code" -le 1 ] || fail "exit $code after a kill"
		expect 0 ng-pull -q -b board -e leaflets -o "out$i"
	done
}

@test "two at once: one creates it, the other finds it" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	for i in 1 2 3; do
		rm -rf board
		NG_STATE=$PWD/s1 ng-init -q --open -b board -m "$MODEL" experiment.json >/dev/null &
		a=$!
		NG_STATE=$PWD/s2 ng-init -q --open -b board -m "$MODEL" experiment.json >/dev/null &
		b=$!
		ra=0 rb=0
		wait $a || ra=$?
		wait $b || rb=$?
		[ "$ra" -le 1 ] && [ "$rb" -le 1 ] || fail "$ra $rb"
		expect 0 ng-pull -q -b board -e leaflets -n
	done
}

@test "what comes with a later version is refused, 64, and leaves no board" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	expect 64 ng-init -b board -m "$MODEL" experiment.json
	says "members come with a later version"
	for v in members='["a"]' seal=updates codec=int8 train.loss=gist aggregate.strategy=krum aggregate.staleness=2 train.precision=bf16 train.trainable=lora; do
		expect 64 ng-init --open -b board -m "$MODEL" --set "$v" experiment.json
	done
	expect 64 ng-init --open -b board -m "$MODEL" --set no.such=1 experiment.json
	expect 64 ng-init --open -b board -e other -m "$MODEL" experiment.json
	expect 64 ng-init --open -b git@host:repo -m "$MODEL" experiment.json
	expect 64 ng-init --open -b ssh://host/repo -m "$MODEL" experiment.json
	mkdir -p repo/objects repo/refs && touch repo/HEAD
	expect 64 ng-init --open -b repo -m "$MODEL" experiment.json
	says "git"
	[ ! -e board ]
}

@test "no model, no experiment file, no place for a board" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	expect 66 ng-init --open -b board -m nowhere experiment.json
	expect 66 ng-init --open -b board -m "$MODEL" nowhere.json
	echo '{"experiment": ' >broken.json
	expect 64 ng-init --open -b board -m "$MODEL" broken.json
	expect 74 ng-init --open -b /proc/board -m "$MODEL" experiment.json
}

@test "a write, fsync or rename that fails: 74, and again completes it" {
	needs_faults
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	for what in write fsync rename; do
		rm -rf board state
		expect 74 env LD_PRELOAD="$NG_BUILD/t/fault.so" NG_FAULT=$what:3:EIO NG_FAULT_PROGRAM=ng-init ng-init --open -b board -m "$MODEL" experiment.json || fail "$what"
		expect 0 ng-init --open -b board -m "$MODEL" experiment.json
	done
}

@test "--dry-run changes nothing" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	expect 0 ng-init -n --open -b board -m "$MODEL" experiment.json
	[ ! -e board ]
}

@test "--shared=group: folders of the group, setgid, files read-only for it" {
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	(umask 077 && ng-init -q --open -b board -m "$MODEL" --shared=group experiment.json >/dev/null)
	[ "$(stat -c %a board/leaflets)" = 2770 ]
	[ "$(stat -c %a board/leaflets/global/00000)" = 2770 ]
	[ "$(stat -c %a board/leaflets/global/00000/part-00000)" = 440 ]
	export NG_BOARD=$PWD/board NG_EXPERIMENT=leaflets
	(umask 077 && update site-a)
	[ "$(stat -c %a board/leaflets/update/00000)" = 2770 ]
	[ "$(stat -c %a board/leaflets/update/00000/site-a)" = 2770 ]
	expect 64 ng-init --open -b b2 -m "$MODEL" --shared=everyone experiment.json
}

@test "any call that fails: a clear line, and again completes it" {
	needs_faults
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2}' >experiment.json
	prepare() {
		rm -rf board "$NG_STATE"
	}
	FAULTS="open:EACCES write:ENOSPC write:SHORT fsync:EIO rename:EIO mkdir:ENOSPC malloc:ENOMEM"
	quick "rename:EIO mkdir:ENOSPC"
	storm board/leaflets/global/00000/part-00000 ng-init --open -b board -m "$MODEL" experiment.json
}
