#!/usr/bin/env bats
# Fetching: who gets what and when, and nothing damaged or foreign goes through.
load helper
load board
load fault

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	new_board
}

kinds() { # of the stream on standard input
	ng-show | sed -n 's/^kind\t//p' | tr '\n' ' '
}

@test "the newest global goes out as it lies on the board, between brackets" {
	ng-pull >g.st
	[ "$(kinds <g.st)" = "global " ]
	size=$(stat -c %s "$E/global/00000/part-00000")
	grep -qaF '"frames":[{"digest":"'"$(b2sum -l 256 "$E/global/00000/part-00000" | cut -d' ' -f1)"'","kind":"global"' g.st
	# the frame itself, byte for byte
	at=$(grep -obaP '\x28\xb5\x2f\xfd' g.st | head -1 | cut -d: -f1)
	tail -c "+$((at + 1))" g.st | head -c "$size" | cmp - "$E/global/00000/part-00000"
	round site-a site-b
	ng-pull | ng-show | grep -qx "round	1"
	ng-pull -r 0 | ng-show | grep -qx "round	0"
	expect 1 ng-pull -r 5
	expect 64 ng-pull -x
}

@test "a site gets work once, until the next round; the last global is no work" {
	expect 0 sh -c 'ng-pull -s site-a >g.st'
	expect 0 sh -c 'ng-pull -s site-a >g.st'
	update site-a
	expect 1 sh -c 'ng-pull -s site-a >g.st'
	expect 0 sh -c 'ng-pull --idle-ok -s site-a >g.st'
	expect 1 ng-show g.st
	says "the update of 'site-a' for round 0"
	expect 0 sh -c 'ng-pull >g.st' # without -s always
	update site-b
	aggregate
	expect 0 sh -c 'ng-pull -s site-a >g.st'
	round site-a site-b
	round site-a site-b
	expect 1 sh -c 'ng-pull -s site-a >g.st'
	says "complete"
	expect 1 sh -c 'ng-pull --updates >g.st'
	expect 0 sh -c 'ng-pull >g.st'
	NG_SITE=site-a expect 1 sh -c 'ng-pull >g.st'
}

@test "a site whose update is damaged gets work again" {
	update site-a
	flip "$E/update/00000/site-a/part-00000" 4000
	expect 0 sh -c 'ng-pull -s site-a >g.st'
	says "does not count"
}

@test "claims are written, and not by a dry run" {
	ng-pull -n -s site-a >/dev/null
	[ ! -e "$E/claim" ]
	ng-pull -s site-a --claim 2h >/dev/null
	grep -q '"until":' "$E/claim/00000/site-a"
	ng-pull -s site-a --claim 3h >/dev/null
	[ "$(ls "$E/claim/00000")" = site-a ]
}

@test "--updates: expect, quorum, deadline, stalled" {
	expect 1 sh -c 'ng-pull --updates >u.st'
	says "0 of 2"
	update site-a
	expect 1 sh -c 'ng-pull --updates >u.st'
	expect 1 ng-show u.st
	says "1 of 2"
	update site-b
	ng-pull --updates >u.st
	[ "$(kinds <u.st)" = "global update update " ]
	rm -rf board "$NG_STATE"
	new_board expect=3 deadline=2s
	update site-a
	update site-b
	expect 1 sh -c 'ng-pull --updates >u.st'
	says "2 of 3"
	sleep 2.2
	ng-pull --updates >u.st
	[ "$(kinds <u.st)" = "global update update " ]
	rm -rf "$E/update/00000/site-b"
	expect 1 sh -c 'ng-pull --updates >u.st'
	says "stalled"
}

@test "bad updates are left out with a line, and do not count" {
	update site-a
	update site-b
	update site-c
	rm -f "$E/update/00000/site-c/part-00000" # a part is missing
	mkdir "$E/update/00000/site-d"
	cp -a "$E/update/00000/site-a" "$E/update/00000/site-e" # signed as site-a
	flip "$E/update/00000/site-b/part-00000" 20000
	expect 1 sh -c 'ng-pull --updates >u.st'
	says "update/00000/site-b is left out"
	says "update/00000/site-e is left out"
	says "1 of 2"
	update site-f
	ng-pull --updates >u.st
	[ "$(kinds <u.st)" = "global update update " ]
}

@test "an update that is not what its place says is left out: frames of another site, round, base, shape" {
	forge() { # forge SITE FILE: an object of ours with any payload
		d=$E/update/00000/$1
		mkdir -p "$d"
		cp "$2" "$d/part-00000"
		printf 'ng-signature 1\nkind: update\nexperiment: %s\nmanifest: 0\nround: 0\nsite: %s\nbase: -\nobject: %s\ncreated: 2026-12-01T00:00:00Z\nkey: -\n' \
			"$ID" "$1" "$(b2sum -l 256 "$2" | cut -d' ' -f1)" >"$d/signature"
	}
	make() {
		ng-pull -q | answer brackets=0 "$@"
	}
	make site=good >f
	forge good f
	make site=site-a >f
	forge site-b f
	make site=site-c round=1 >f
	forge site-c f
	make site=site-d base=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef >f
	forge site-d f
	make site=site-e bad=shape >f
	forge site-e f
	make site=site-f id=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef >f
	forge site-f f
	make site=site-g >f
	head -c 30000 f >g
	forge site-g g
	cat f f >g
	forge site-h g
	echo hello >g
	forge site-i g
	ng-pull -q | sed 's/x/x/' >g
	forge site-j g
	expect 1 sh -c 'ng-pull --updates >u.st'
	says "1 of 2"
	for s in b c d e f g h i j; do says "update/00000/site-$s is left out"; done
	[ "$(echo "$stderr" | grep -c 'left out')" -eq 9 ]
}

@test "hostile names, links and litter are passed over" {
	update site-a
	update site-b
	d=$E/update/00000
	mkdir "$d/UPPER" "$d/-x" "$d/..." "$d/a b" "$d/$(printf 'x%.0s' {1..200})" "$E/update/0" "$E/update/000001" "$E/update/-1" "$E/global/00x"
	touch "$d/file" "$d/$(printf '\033[31m')" "$E/global/00007" "$E/global/x"
	ln -s / "$d/root"
	ln -s "$d/site-a" "$d/site-c"
	ln -s site-a "$E/update/00001"
	mkfifo "$d/fifo"
	mkdir "$E/global/00005"
	mkfifo "$E/global/00005/signature"
	mkdir "$d/site-z" && mkfifo "$d/site-z/part-00000" && cp "$d/site-a/signature" "$d/site-z/"
	ng-pull --updates >u.st
	[ "$(kinds <u.st)" = "global update update " ]
	expect 0 ng-status -v
	says "that are no objects"
}

@test "a flipped bit, a missing part or signature of the global: a clear error, and the close says so" {
	for f in part-00000 signature; do
		cp -a board copy
		flip board/leaflets/global/00000/$f 200
		expect 65 env NG_STATE="$PWD/fresh" sh -c 'ng-pull >g.st'
		expect 65 ng-show g.st
		says "global"
		# this host has seen it whole
		ec=0
		ng-pull >/dev/null 2>err || ec=$?
		[ "$ec" -eq 77 ] || [ "$ec" -eq 65 ] || fail "$ec"
		rm -rf board
		mv copy board
	done
	rm "$E/global/00000/part-00000"
	expect 75 env NG_STATE="$PWD/fresh" sh -c 'ng-pull >g.st'
}

@test "large payloads lie in parts of 32 MiB; one missing or swapped is found" {
	need_program python3
	need_program zstd
	# an update of noise would not shrink, but our model is tiny: make parts by hand
	d=$E/global/00000
	split -b 30000 -d -a 5 "$d/part-00000" part-
	rm -f "$d/part-00000"
	mv part-* "$d"
	[ "$(ls "$d" | grep -c part)" -gt 2 ]
	[ "$(ng-pull | kinds)" = "global " ]
	ng-pull --list >list
	read -r path kind site hex <list
	case $path in "$NG_STATE"/*) ;; *) fail "$path" ;; esac
	[ "$(b2sum -l 256 "$path" | cut -d' ' -f1)" = "$hex" ]
	mv "$d/part-00001" "$d/x" && mv "$d/part-00002" "$d/part-00001" && mv "$d/x" "$d/part-00002"
	expect 77 sh -c 'ng-pull >g.st'
	rm "$d/part-00001"
	expect 77 sh -c 'ng-pull >g.st'
}

@test "a rolled back or changed board is refused; --accept-rollback, --at-least" {
	cp -a board old
	round site-a site-b
	ng-pull >/dev/null
	cp -a board new
	rm -rf board && cp -a old board
	expect 77 sh -c 'ng-pull >g.st'
	says "rolled back"
	expect 77 ng-show g.st
	expect 77 ng-status
	expect 77 ng-pull --accept-rollback 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef -o x
	expect 0 ng-pull --accept-rollback "$ID" -o x
	expect 0 ng-pull -o y
	expect 77 ng-pull --at-least 1 -o z
	expect 0 ng-pull --at-least 0 -o z
	# another experiment of the same name at the same place
	rm -rf board
	NG_STATE=$PWD/other ng-init -q --open -b board -m "$MODEL" --set rounds=5 experiment.json >/dev/null
	expect 77 sh -c 'ng-pull >g.st'
	says "not the one that this host knows"
	# another global in the place of the one seen
	rm -rf board && cp -a new board
	NG_STATE=$PWD/s3 expect 0 ng-pull --accept-rollback "$ID" -o w
	rm -rf board/leaflets/global/00001
	NG_STATE=$PWD/s4 update site-c
	ng-pull --accept-rollback "$ID" -q --updates | ng-aggregate -q >g2.zst
	NG_STATE=$PWD/s4 ng-push -q --global g2.zst
	expect 77 env NG_STATE="$PWD/s3" sh -c 'ng-pull >g.st'
	says "was changed"
}

@test "no board, a vanished board, a file in its place" {
	expect 66 ng-pull -b nowhere -n
	expect 66 ng-pull -e other -n
	expect 64 ng-pull -e Bad_Name -n
	touch file
	expect 66 ng-pull -b file -n
	mkdir empty
	expect 66 ng-pull -b empty -n
	mkdir empty/leaflets
	expect 66 ng-pull -b empty -n
	says "no manifest"
}

@test "-o: the model folder, again in its own types, from the board or beside -m" {
	ng-pull -o out
	diff -r -x model.safetensors out "$MODEL"
	expect 0 ng-show -t out
	ng-show -t out | grep '^tensor' >one
	ng-show -t "$MODEL" | grep '^tensor' >two
	diff one two
	ng-pull -m "$MODEL" -o out2
	diff -r out out2
	expect 1 ng-pull -o out
	says "exists already"
	cp -a "$MODEL" foreign
	chmod -R u+w foreign
	echo '{}' >foreign/config.json
	expect 77 ng-pull -m foreign -o out3
	says "config.json"
	[ ! -e out3 ]
	expect 0 ng-pull -j -o out4
	case $output in *'"path":"out4"'*) ;; *) fail "$output" ;; esac
	[ "$(ls "$NG_STATE"/boards/*)" = "$(printf 'header\nlock\npins.json')" ] || fail "$(ls "$NG_STATE"/boards/*)"
}

@test "-o with a Dense module: its weights come back into their folder" {
	rm -rf board "$NG_STATE"
	MODEL=$ROOT/t/golden/tiny-dense
	new_board
	ng-pull -o out
	diff -r -x model.safetensors out "$MODEL"
	ng-show -t out | grep '^tensor' >one
	ng-show -t "$MODEL" | grep '^tensor' >two
	diff one two
}

@test "base weights that are not the experiment's are refused" {
	rm -rf other
	NG_STATE=$PWD/s2 ng-init -q --open -b other -m "$ROOT/t/golden/tiny-mpnet" experiment.json >/dev/null
	rm -rf "$E/base"
	cp -a other/leaflets/base "$E/base"
	expect 77 ng-pull -o out
	says "base weights"
	flip "$E/base/part-00000" 3000
	expect 65 ng-pull -o out
	flip "$E/manifest/00000/files/config.json" 3
	expect 65 ng-pull -o out
	[ ! -e out ]
}

@test "--update-of: a site's own model, as a stream and as a folder" {
	expect 1 ng-pull --update-of site-a -o a
	update site-a
	update site-b
	[ "$(ng-pull --update-of site-a | kinds)" = "global update " ]
	ng-pull --update-of site-a -o a
	ng-pull -o g
	! cmp -s a/model.safetensors g/model.safetensors
	aggregate
	expect 0 ng-pull --update-of site-b -o b
	says "0.site-b.0"
	expect 1 ng-pull --update-of site-b -r 1 -o c
	expect 64 ng-pull --update-of Bad -o c
}

@test "--list: verified files for ng-aggregate --files-from -" {
	update site-a
	update site-b
	ng-pull --updates --list >list
	[ "$(cut -f2,3 list | tr '\t\n' '  ')" = "experiment - global - update site-a update site-b " ]
	while read -r path kind site hex; do
		[ "$kind" = experiment ] || [ "$(b2sum -l 256 "$path" | cut -d' ' -f1)" = "$hex" ]
	done <list
	ng-aggregate -q --files-from - <list >one.zst
	ng-pull -q --updates | ng-aggregate -q >two.zst
	cmp one.zst two.zst
	ng-pull --updates --list -o files >list2
	[ "$(ls files | wc -l)" -eq 4 ]
	expect 0 ng-pull --updates --list -j
	[ "$(echo "$output" | grep -c '"digest"')" -eq 3 ]
}

@test "a full disk: 74, for the stream and the list" {
	ec=0
	ng-pull >/dev/full 2>err || ec=$?
	[ "$ec" -eq 74 ] || fail "$ec"
	ec=0
	ng-pull --list >/dev/full 2>err || ec=$?
	[ "$ec" -eq 74 ] || fail "$ec"
}

@test "a full disk: 74, and no folder" {
	needs_faults
	for what in write fsync rename; do
		expect 74 env LD_PRELOAD="$NG_BUILD/t/fault.so" NG_FAULT=$what:2+:ENOSPC NG_FAULT_PROGRAM=ng-pull ng-pull -o out
		[ ! -e out ]
	done
}

@test "a reader that goes away kills the writer, as with any program" {
	ec=0
	ng-pull -q | true || ec=$?
	[ "$ec" -eq 0 ]
	[ "$(ng-pull -q | kinds)" = "global " ]
}

@test "options that do not go together" {
	expect 64 ng-pull --updates --update-of a
	expect 64 ng-pull --updates -o x
	expect 64 ng-pull -m x
	expect 64 ng-pull -j
	expect 64 ng-pull -s 'Not/a/name'
	expect 64 ng-pull --accept-rollback 12
	expect 64 ng-pull operand
	unset NG_BOARD
	expect 64 ng-pull -n
}

@test "any call that fails: a clear line, the folder whole or not there" {
	needs_faults
	quick "rename:EIO"
	storm out/model ng-pull -o out/model
}

@test "any call that fails while the updates go out" {
	needs_faults
	update site-a
	update site-b
	FAULTS="open:EACCES read:EIO malloc:ENOMEM"
	quick "malloc:ENOMEM"
	storm "" ng-pull --updates
}
