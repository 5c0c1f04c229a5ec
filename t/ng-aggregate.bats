#!/usr/bin/env bats
# The pipe, files and lists; refusals; the quorum; streams that end badly.
load helper
load board

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	FRAMES=$NG_BUILD/t/frames
	read -r BASE OBJECT_G < <("$FRAMES" path=g.zst kind=global)
	for s in a b c; do
		seed=$(printf '%d' "'$s")
		read -r _ OBJECT < <("$FRAMES" path=$s.zst kind=update base="$BASE" site=site-$s "seed=$seed" examples="$seed")
		eval "OBJECT_$s=$OBJECT"
	done
}

list() { # the list that ng-pull prints
	printf 'g.zst\tglobal\t\t%s\n' "$OBJECT_G"
	printf 'a.zst\tupdate\tsite-a\t%s\nb.zst\tupdate\tsite-b\t%s\n' "$OBJECT_a" "$OBJECT_b"
	printf '%s\tupdate\tsite-c\t%s\n' "${1:-c.zst}" "$OBJECT_c"
}

@test "the same bytes from a pipe, from files in any order, from a list" {
	expect 0 ng-aggregate -o files.zst g.zst a.zst b.zst c.zst
	says "global/00001 of 'leaflets': 3 of 3 updates"
	expect 0 ng-aggregate -q -o order.zst c.zst b.zst g.zst a.zst
	[ -z "$stderr" ]
	cmp files.zst order.zst
	list | ng-aggregate -q --files-from - -o list.zst
	cmp files.zst list.zst
	cat g.zst b.zst a.zst c.zst | ng-aggregate -q -o pipe.zst
	cmp files.zst pipe.zst
	# a program's own output: brackets around the same frame
	ng-aggregate -q g.zst a.zst b.zst c.zst >bracketed.zst
	! cmp -s files.zst bracketed.zst
	zstd -dcq bracketed.zst >one
	zstd -dcq files.zst >two
	cmp one two
}

@test "threads and memory change no bit" {
	ng-aggregate -q --threads 1 -o one.zst g.zst a.zst b.zst c.zst
	ng-aggregate -q --threads 4 --memory 1 -o four.zst g.zst a.zst b.zst c.zst
	cmp one.zst four.zst
}

@test "the result is a global that goes on: round, base, inputs, config" {
	ng-aggregate -q -o next.zst g.zst a.zst b.zst c.zst
	zstd -dcq next.zst | tail -c +9 | head -c 6000 >header
	grep -q '"ng.kind":"global"' header
	grep -q '"ng.round":"1"' header
	grep -q "\"ng.base\":\"$BASE\"" header
	grep -q "$OBJECT_a" header
	grep -q 'verdict' header
	grep -q 'leaflets' header
}

@test "one bad update is named and left out, here and in the new global" {
	"$FRAMES" path=c.zst kind=update base="$BASE" site=site-c bad=nan
	expect 0 ng-aggregate -v -o bad.zst g.zst a.zst b.zst c.zst
	says "site 'site-c', 'c.zst': refused: tensor 'scalar': holds a value that is not finite"
	says "2 of 3 updates"
	says "2 readings"
	zstd -dcq bad.zst | grep -aq "refused: tensor 'scalar'"
	expect 0 ng-aggregate -n g.zst a.zst b.zst c.zst
	echo "$output" | grep -q "^site-a	$OBJECT_a	97	ok$"
	echo "$output" | grep -q "^site-c	[0-9a-f]*	0	refused: tensor 'scalar'"
	expect 0 ng-aggregate -nj g.zst a.zst b.zst
	[ "$(echo "$output" | jq -r .verdict | sort -u)" = ok ]
	list a.zst >l
	expect 0 ng-aggregate --files-from l -o other.zst
	says "site 'site-c', 'a.zst': refused: it says that it is of site 'site-a'"
	"$FRAMES" path=c.zst kind=update base="$BASE" site=site-c scale=3
	expect 0 ng-aggregate -o norm.zst g.zst a.zst b.zst c.zst
	says "over the limit"
	expect 0 ng-aggregate -q --max-norm 1e6 -o norm2.zst g.zst a.zst b.zst c.zst
	[ -z "$stderr" ]
}

@test "a cut or altered file is one site's fault, in a pipe it is the pipe's" {
	size=$(wc -c <c.zst)
	head -c $((size / 2)) c.zst >cut.zst
	expect 0 ng-aggregate -o new.zst g.zst a.zst b.zst cut.zst
	says "'cut.zst': refused"
	list cut.zst >l
	expect 0 ng-aggregate --files-from l -o new2.zst
	says "site 'site-c', 'cut.zst': refused"
	printf '\377' | dd of=c.zst bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
	expect 0 ng-aggregate -o new3.zst g.zst a.zst b.zst c.zst
	says "'c.zst': refused"
	run -65 bash -c 'cat g.zst a.zst cut.zst b.zst | ng-aggregate -q -o piped.zst'
	[ ! -e piped.zst ]
}

@test "a list that names other bytes is not believed" {
	list | sed "s/$OBJECT_b/$OBJECT_a/" >l
	expect 0 ng-aggregate --files-from l -o new.zst
	says "site 'site-b', 'b.zst': refused: its object digest is ${OBJECT_b:0:12}, not ${OBJECT_a:0:12} as listed"
	zstd -dcq new.zst | head -c 20000 | grep -aq "$OBJECT_b"
	list | sed "s/$OBJECT_G/$OBJECT_a/" >l
	expect 65 ng-aggregate --files-from l -o none.zst
	says "'g.zst': its object digest"
	[ ! -e none.zst ]
}

skippable() { # $1 in a frame of ng's kind; shorter than 256 bytes
	printf '\x5e\x2a\x4d\x18'
	printf "\\x$(printf %02x ${#1})\\0\\0\\0%s" "$1"
}

@test "a frame that is not the one its opening names is the pipe's fault" {
	for digest in "$OBJECT_a" "$OBJECT_b"; do
		skippable '{"ng":{"open":{"frames":[{"kind":"update","site":"site-a","digest":"'"$digest"'"}]}}}'
		cat g.zst a.zst b.zst
		skippable '{"ng":{"close":{"code":0,"frames":3,"reason":""}}}'
	done >both
	half=$(($(wc -c <both) / 2))
	head -c $half both >true.zst
	tail -c $half both >false.zst
	expect 0 ng-aggregate -q -o new.zst true.zst
	expect 65 ng-aggregate -o none.zst false.zst
	says "its object digest is not the one in the opening"
	[ ! -e none.zst ]
}

@test "below the quorum: exit 1, nothing written, and the stream says why" {
	expect 1 ng-aggregate -o none.zst g.zst a.zst
	says "1 of 1 updates can be used, and the quorum is 2"
	[ ! -e none.zst ]
	expect 0 ng-aggregate --idle-ok -o none.zst g.zst a.zst
	[ ! -e none.zst ]
	expect 1 bash -c 'ng-aggregate -q g.zst a.zst >closed.zst'
	# who reads that stream ends with the same code
	expect 1 bash -c 'ng-aggregate -o more.zst closed.zst'
	[ ! -e more.zst ]
}

@test "the last round has no next" {
	read -r base _ < <("$FRAMES" path=g9.zst kind=global round=9)
	"$FRAMES" path=a9.zst kind=update base="$base" site=site-a round=9
	"$FRAMES" path=b9.zst kind=update base="$base" site=site-b round=9
	expect 1 ng-aggregate -o ten.zst g9.zst a9.zst b9.zst
	says "the last of 9 rounds"
}

@test "the newest experiment file outranks the global's" {
	echo '{"experiment": "leaflets", "rounds": 9, "quorum": 4}' >e.json
	{ list; printf 'e.json\texperiment\n'; } >l
	expect 1 ng-aggregate --files-from l -o four.zst
	says "the quorum is 4"
	echo '{"experiment": "leaflets", "rounds": 9, "aggregate": {"weights": "equal"}}' >e.json
	expect 0 ng-aggregate --files-from l -n
	echo "$output" | grep -q "	1	ok$"
}

@test "what cannot be: no global, two globals, no file, a bad list, nothing at all" {
	expect 65 ng-aggregate -o x.zst a.zst b.zst
	says "no global model"
	expect 65 ng-aggregate -o x.zst g.zst g.zst a.zst b.zst
	says "second global"
	expect 66 ng-aggregate -o x.zst g.zst absent.zst
	: >l
	expect 1 ng-aggregate --files-from l -o x.zst
	says "the list is empty"
	echo 'g.zst	model' >l
	expect 65 ng-aggregate --files-from l -o x.zst
	expect 65 bash -c 'ng-aggregate -o x.zst </dev/null'
	expect 64 ng-aggregate --files-from l g.zst
	expect 64 ng-aggregate -j g.zst a.zst b.zst
	echo '<!DOCTYPE html>' >page.zst
	expect 65 ng-aggregate -o x.zst g.zst a.zst b.zst page.zst
	"$FRAMES" path=gnan.zst kind=global bad=nan
	expect 65 ng-aggregate -o x.zst gnan.zst a.zst b.zst
	says "tensor 'scalar'"
	[ ! -e x.zst ]
}

@test "a full disk is 74, for the file and for standard output" {
	[ -e /dev/full ] || skip "no /dev/full"
	run -74 bash -c 'ng-aggregate -q g.zst a.zst b.zst >/dev/full'
	TMPDIR=/nonexistent run -74 ng-aggregate -q g.zst a.zst b.zst
	mkdir ro && chmod 500 ro
	[ -w ro ] && skip "root writes anywhere"
	run -74 ng-aggregate -q -o ro/x.zst g.zst a.zst b.zst
}

@test "from a board: the pipe and the list give the same global, refusals and all" {
	new_board
	update site-b
	update site-a
	update site-c bad=nan 2>/dev/null || true # ng-push may refuse it already
	ng-pull -q --updates | ng-aggregate -o pipe.zst 2>log || fail "$(cat log)"
	ng-pull -q --updates --list >list
	grep -q '	experiment	' list
	ng-aggregate -q --files-from list -o list.zst
	cmp pipe.zst list.zst
	ng-pull -q --updates --list | ng-aggregate -q --files-from - | ng-push -q --global
	[ -d "$E/global/00001" ]
	# idle: nothing new, and every program of the pipe says so
	run -1 bash -o pipefail -c 'ng-pull -q --updates | ng-aggregate -q | ng-push -q --global'
	run -1 bash -c 'ng-pull -q --updates --list | ng-aggregate -q --files-from - | ng-push -q --global'
}

@test "the stage before fails, and its code comes through" {
	new_board
	run --separate-stderr -66 bash -c 'ng-pull -q -b nowhere --updates | ng-aggregate -q | ng-push -q --global'
	[ ! -d "$E/global/00001" ]
}
