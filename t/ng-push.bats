#!/usr/bin/env bats
# Publishing: first wins, whole or not at all, nothing bad gets through.
load helper
load board
load fault

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	new_board
}

good() { # good FILE SITE [KEY=VALUE...]
	local file=$1 site=$2
	shift 2
	ng-pull -q | answer "site=$site" brackets=0 "$@" >"$file"
}

@test "a round: updates, global, log" {
	round site-a site-b
	[ -e "$E/global/00001/signature" ]
	[ -z "$(litter)" ]
	grep -q '"kind":"global"' "$E/log/00002/part-00000"
	grep -q '"site":"site-b"' "$E/log/00002/part-00000"
	expect 0 ng-show -j "$E/global/00001/part-00000"
	case $output in *'"round":1'*) ;; *) fail "$output" ;; esac
}

@test "the first one wins; equal or not, the second exits 1" {
	good u.zst site-a
	expect 0 ng-push -s site-a u.zst
	before=$(b2sum "$E"/update/00000/site-a/*)
	expect 1 ng-push -s site-a u.zst
	good v.zst site-a seed=9
	expect 1 ng-push v.zst
	says "with other content"
	expect 0 ng-push --idle-ok v.zst
	[ "$before" = "$(b2sum "$E"/update/00000/site-a/*)" ]
}

@test "many at once: one publishes, the others find it, no litter" {
	for i in 1 2 3 4 5 6; do good u$i.zst site-a seed=$i; done
	for i in 1 2 3 4 5 6; do
		(
			code=0
			NG_STATE=$PWD/s$i ng-push -q u$i.zst || code=$?
			echo $code >code$i
		) &
	done
	wait
	[ "$(cat code? | sort | tr '\n' ' ')" = "0 1 1 1 1 1 " ] || fail "$(cat code?)"
	[ -z "$(litter)" ]
	expect 0 ng-status --verify -q
}

@test "two coordinators at once: one global, one log entry" {
	update site-a
	update site-b
	ng-pull -q --updates | ng-aggregate -q >g.zst
	for i in 1 2 3 4; do
		(
			code=0
			NG_STATE=$PWD/s$i ng-push -q --global g.zst || code=$?
			echo $code >code$i
		) &
	done
	wait
	[ "$(cat code? | sort | tr '\n' ' ')" = "0 1 1 1 " ] || fail "$(cat code?)"
	grep -l '"round":1' "$E"/log/*/part-00000 >entries
	[ "$(wc -l <entries)" -eq 1 ] || fail "$(cat entries)"
}

@test "killed at random moments: no half object, and a retry succeeds" {
	good u.zst site-a
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		rm -rf "$E/update"
		ng-push -q u.zst 2>/dev/null &
		pid=$!
		sleep "$(printf '0.%03d' $((i * 2)))"
		kill -9 $pid 2>/dev/null || true
		wait $pid 2>/dev/null || true
		if [ -e "$E/update/00000/site-a" ]; then
			[ "$(b2sum -l 256 "$E/update/00000/site-a/part-00000" | cut -d' ' -f1)" = "$(sed -n 's/^object: //p' "$E/update/00000/site-a/signature")" ]
			expect 1 ng-push u.zst
		else
			expect 0 ng-push u.zst
		fi
	done
}

@test "a young temporary is somebody's work and stays" {
	mkdir "$E/tmp/young"
	touch "$E/tmp/young/part-00000"
	update site-a
	[ -e "$E/tmp/young" ]
}

@test "SIGTERM leaves no litter" {
	(
		good u.zst site-a
		cat u.zst
		sleep 5
	) | ng-push -q &
	pid=$!
	sleep 0.5
	kill -TERM $pid
	wait $pid || true
	[ -z "$(ls "$NG_STATE/incoming")" ]
	[ -z "$(litter)" ]
	[ ! -e "$E/update" ]
}

@test "another experiment, site, round, base, codec: 77, and nothing is published" {
	good u.zst site-a id=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
	expect 77 ng-push u.zst
	says "another experiment"
	good u.zst site-a name=other
	expect 77 ng-push u.zst
	good u.zst site-a
	expect 77 ng-push -s site-b u.zst
	good u.zst site-a round=1
	expect 77 ng-push u.zst
	good u.zst site-a base=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
	expect 77 ng-push u.zst
	says "trained on another global"
	good u.zst site-a 'codec="int8"'
	expect 77 ng-push u.zst
	expect 77 ng-push --global u.zst
	ng-pull -q >g.zst
	expect 77 ng-push g.zst
	[ ! -e "$E/update" ]
	[ -z "$(litter)" ]
}

@test "a tensor missing, too many, of another shape or type, NaN, Inf: 77 and its name" {
	for bad in missing extra shape dtype nan inf; do
		good u.zst site-a bad=$bad
		expect 77 ng-push u.zst
		says "tensor '"
	done
	[ ! -e "$E/update" ]
}

@test "cut, flipped, two frames, no stream: 65, and nothing is published" {
	good u.zst site-a
	size=$(stat -c %s u.zst)
	for n in 0 3 100 $((size / 2)) $((size - 1)); do
		head -c "$n" u.zst >cut.zst
		expect 65 ng-push cut.zst
	done
	for at in 2000 $((size / 2)) $((size - 2)); do
		cp u.zst bad.zst
		flip bad.zst "$at"
		expect 65 ng-push bad.zst
	done
	cat u.zst u.zst >two.zst
	expect 65 ng-push two.zst
	says "more than one update"
	echo hello >text
	expect 65 ng-push text
	expect 66 ng-push nowhere.zst
	[ ! -e "$E/update" ]
}

@test "a failed close is passed on, and nothing is published" {
	expect 1 sh -c 'ng-pull -q -r 2 | "$0" | ng-push' "$NG_BUILD/t/answer"
	[ ! -e "$E/update" ]
	expect 0 sh -c 'ng-pull -q -r 2 | "$0" | ng-push --idle-ok' "$NG_BUILD/t/answer"
	expect 66 sh -c 'ng-pull -q -e nosuch | "$0" | ng-push' "$NG_BUILD/t/answer"
	says "ng-pull: there is no experiment"
	# a program that dies without closing
	expect 65 sh -c 'ng-pull -q | "$0" | head -c 5000 | ng-push' "$NG_BUILD/t/answer"
	[ ! -e "$E/update" ]
}

@test "large windows and frames without a checksum are made anew" {
	need_program zstd
	good u.zst site-a
	zstd -dcq u.zst | zstd -q --no-check --long=24 >w.zst
	expect 0 ng-push w.zst
	expect 0 ng-show "$E/update/00000/site-a/part-00000"
	zstd -dcq u.zst >one
	zstd -dcq "$E/update/00000/site-a/part-00000" >two
	cmp one two
}

@test "a board that is not there: 66, the update is kept, and can be pushed later" {
	good u.zst site-a
	mv board away
	run --separate-stderr sh -c 'cat u.zst | ng-push'
	[ "$status" -eq 66 ]
	kept=$(echo "$NG_STATE"/unsent/leaflets-00000-site-a.safetensors.zst)
	cmp "$kept" u.zst
	says "$kept"
	mv away board
	expect 0 ng-push "$kept"
	[ ! -e "$kept" ]
}

@test "write, fsync or rename that fails: 74, nothing half there, a retry succeeds" {
	needs_faults
	good u.zst site-a
	for what in write fsync rename; do
		for n in 1 2 3 4 5 6; do
			code=0
			LD_PRELOAD=$NG_BUILD/t/fault.so NG_FAULT=$what:$n:EIO ng-push -q u.zst 2>/dev/null || code=$?
			[ "$code" -eq 74 ] || [ "$code" -eq 0 ] || fail "$what $n: exit $code"
			if [ -e "$E/update/00000/site-a/signature" ]; then
				[ "$(b2sum -l 256 "$E/update/00000/site-a/part-00000" | cut -d' ' -f1)" = "$(sed -n 's/^object: //p' "$E/update/00000/site-a/signature")" ]
				rm -rf "$E/update"
			elif [ "$code" -eq 0 ]; then
				fail "$what $n: exit 0 and no update"
			fi
		done
	done
	expect 0 ng-push u.zst
}

# as UID command...: one of two users of the group 2000, who can see nothing else of each other
as() {
	local uid=$1
	shift
	mkdir -p "state$uid" && chown "$uid:2000" "state$uid"
	NG_STATE=$PWD/state$uid setpriv --reuid="$uid" --regid=2000 --clear-groups "$@"
}

need_users() {
	[ "$(id -u)" -eq 0 ] || skip "only root can be two users"
	need_program setpriv
	chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR"
	setpriv --reuid=2001 --regid=2000 --clear-groups "$NG_BIN/ng-push" --version >/dev/null 2>&1 ||
		skip "other users cannot reach the programs"
}

@test "a read-only board: 74, and the update is kept" {
	need_users
	good u.zst site-a
	expect 74 as 2001 ng-push u.zst
	says "Permission denied"
	says "is kept"
	[ ! -e "$E/update" ]
}

@test "two users with --shared=group: each publishes, either aggregates and prunes" {
	need_users
	rm -rf board
	mkdir board && chown 2001:2000 board
	as 2001 sh -c 'umask 077; ng-init -q --open -b board -m "$0" --shared=group --set keep="{\"last\": 1}" experiment.json' "$MODEL" >/dev/null
	for r in 0 1; do
		for u in 2001 2002; do
			as $u sh -c 'umask 077; ng-pull -q -s site-$1 | "$0" site=site-$1 | ng-push -q -s site-$1' "$NG_BUILD/t/answer" $u
		done
		as 2002 sh -c 'umask 077; ng-pull -q --updates | ng-aggregate -q | ng-push -q --global'
	done
	[ "$(ls board/leaflets/global)" = 00002 ]
	[ "$(stat -c %u board/leaflets/global/00002)" = 2002 ]
	expect 0 as 2001 ng-pull -q -o state2001/out
	[ -z "$(litter)" ]
}

@test "litter in the place of an object gives way: a file, an empty folder, a link" {
	mkdir -p "$E/update/00000/site-a" elsewhere
	update site-a
	echo x >"$E/update/00000/site-b"
	update site-b
	ln -s "$PWD/elsewhere" "$E/update/00000/site-c"
	update site-c
	[ -z "$(ls elsewhere)" ]
	expect 0 ng-status --verify
	case $output in *"site-a,site-b,site-c"*) ;; *) fail "$output" ;; esac
}

@test "a damaged update of the site is replaced" {
	update site-a
	flip "$E/update/00000/site-a/part-00000" 3000
	good again.zst site-a seed=97
	expect 0 ng-push again.zst
	says "is replaced"
	expect 0 ng-status --verify
	case $output in *"site-a"*) ;; *) fail "$output" ;; esac
}

@test "a late update: 75; the last round: 1" {
	new=$E
	good late.zst site-c
	round site-a site-b
	expect 75 ng-push late.zst
	says "too late"
	[ ! -e "$new/update/00000/site-c" ]
	round site-a site-b
	round site-a site-b
	good last.zst site-a
	expect 1 ng-push last.zst
	says "complete"
}

@test "globals: the wrong round, base or values are refused, one there already is 1" {
	update site-a
	update site-b
	ng-pull -q --updates | ng-aggregate -q >g.zst
	expect 0 ng-push --global -n g.zst
	[ ! -e "$E/global/00001" ]
	expect 0 ng-push --global -j g.zst
	case $output in *'"path":"global/00001"'*) ;; *) fail "$output" ;; esac
	expect 1 ng-push --global g.zst
	# a global made from another one: round 2 that no round 1 of ours led to
	cp -a board other
	rm -rf other/leaflets/global/00001 other/leaflets/log/00002
	expect 0 env NG_STATE="$PWD/fresh" ng-push -b other --global g.zst
	NG_STATE=$PWD/fresh ng-pull -q -b other | answer site=site-a brackets=0 bad=nan >n.zst
	expect 77 ng-push --global n.zst
}

@test "a log entry that a crash left out is added by the next global" {
	round site-a site-b
	rm -rf "$E/log/00002"
	round site-a site-b
	grep -q '"round":1' "$E/log/00002/part-00000"
	grep -q '"round":2' "$E/log/00003/part-00000"
	grep -q '"content":"[0-9a-f]\{64\}"' "$E/log/00002/part-00000"
}

@test "a damaged newest log entry is written again, and stops no round" {
	round site-a site-b
	cp -r "$E/log/00002" whole
	chmod u+w "$E/log/00002/part-00000"
	printf x >>"$E/log/00002/part-00000"
	update site-a
	update site-b
	expect 0 bash -o pipefail -c 'ng-pull -q --updates | ng-aggregate -q | ng-push --global'
	says "log/00002: its bytes are not those"
	# but for what was pruned then, which nobody knows any more
	[ "$(jq -S 'del(.pruned)' whole/part-00000)" = "$(jq -S 'del(.pruned)' "$E/log/00002/part-00000")" ]
	previous=$(b2sum -l 256 "$E/log/00002/part-00000" | cut -d' ' -f1)
	grep -q "\"previous\":\"$previous\"" "$E/log/00003/part-00000"
	[ ! -e "$E/log/00004" ]
}

@test "keep: old rounds go, the log tells of them" {
	rm -rf board "$NG_STATE"
	new_board rounds=6 'keep={"last": 2}'
	for r in 1 2 3 4; do round site-a site-b; done
	[ "$(ls "$E/global" | tr '\n' ' ')" = "00003 00004 " ]
	[ "$(ls "$E/update" | tr '\n' ' ')" = "00003 " ]
	grep -q '"pruned":\["update/00002/site-a","update/00002/site-b",.*"global/00002"\]' "$E/log/00005/part-00000"
	[ -z "$(litter)" ]
	expect 66 ng-pull -r 1 -o old
	update site-a
}

@test "any call that fails: a clear line, the update whole or not there" {
	needs_faults
	good u.zst site-a
	prepare() {
		rm -rf "$E/update"
	}
	quick "write:ENOSPC rename:EIO"
	storm "$E/update/00000/site-a/part-00000" ng-push u.zst
	expect 0 ng-status --verify
}

@test "any call that fails: a clear line, the global whole or not there" {
	needs_faults
	update site-a
	update site-b
	ng-pull -q --updates | ng-aggregate -q >g.zst
	cp -a "$NG_STATE" before
	prepare() {
		rm -rf "$E/global/00001" "$E/log/00002" "$NG_STATE"
		cp -a before "$NG_STATE"
	}
	FAULTS="open:EACCES write:ENOSPC fsync:EIO rename:EIO mkdir:ENOSPC"
	quick "write:ENOSPC"
	storm "$E/global/00001/part-00000" ng-push --global g.zst
}
