#!/usr/bin/env bats
# ng-show: what it prints, what it refuses, what it writes.
load helper

S=$BATS_TEST_DIRNAME/fuzz/corpus/stream
TINY=$BATS_TEST_DIRNAME/golden/tiny-dense

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# value NAME: of the first such line of $output
value() {
	printf '%s\n' "$output" | awk -F'\t' -v n="$1" '$1 == n { print $2; exit }'
}

# word N: N as the eight bytes of a length word
word() {
	local i n=$1
	for i in 1 2 3 4 5 6 7 8; do
		# shellcheck disable=SC2059
		printf "\\$(printf %03o $((n % 256)))"
		n=$((n / 256))
	done
}

# plain HEADER DATA: a safetensors file on stdout
plain() {
	word ${#1}
	printf %s "$1"
	# shellcheck disable=SC2059
	printf "$2"
}

@test "a global from a file and from a pipe" {
	expect 0 ng-show "$S/global.zst"
	[ "$(value kind)" = global ]
	[ "$(value experiment)" = leaflets ]
	[ "$(value round)" = 3 ]
	[ "$(value version)" = 3.0.0 ]
	[ "$(value tensors)" = 3 ]
	[ "$(value elements)" = 271 ]
	[ "$(value bytes_coded)" = "$(($(wc -c <"$S/global.zst")))" ]
	[ "$(value metadata)" = x.other=kept ]
	digest=$(value object_digest)
	[ "$digest" = "$(b2sum -l 256 "$S/global.zst" | cut -d' ' -f1)" ]
	cp "$S/global.zst" g.zst
	from_file=$(ng-show g.zst | sed 1d)
	from_pipe=$(cat g.zst | ng-show | sed 1d)
	[ "$from_file" = "$from_pipe" ]
}

@test "updates, one after another and from several files" {
	expect 0 ng-show "$S/updates.zst"
	[ "$(printf '%s\n' "$output" | grep -c '^kind	update$')" = 2 ]
	[ "$(printf '%s\n' "$output" | sed -n 's/^site	//p' | tr '\n' ' ')" = "site-a site-b " ]
	[ "$(value examples)" = 100 ]
	[ "$(value loss)" = 0.25 ]
	expect 0 ng-show "$S/updates.zst" "$S/global.zst"
	[ "$(printf '%s\n' "$output" | grep -c '^kind	')" = 3 ]
	cat "$S/global.zst" "$S/updates.zst" "$S/global.zst" >all.zst
	expect 0 ng-show all.zst
	[ "$(printf '%s\n' "$output" | sed -n 's/^frame	//p' | tr '\n' ' ')" = "1 2 3 4 " ]
}

@test "--json: one object a line, tensors before their frame" {
	need_program jq
	expect 0 ng-show -j -t "$S/updates.zst"
	[ "$(printf '%s\n' "$output" | jq -s length)" = 8 ]
	[ "$(printf '%s\n' "$output" | jq -r 'select(.tensor) | .tensor' | tr '\n' ' ')" = "b w half b w half " ]
	[ "$(printf '%s\n' "$output" | jq -c 'select(.tensor == "w" and .frame == 2) | .shape')" = "[7,33]" ]
	[ "$(printf '%s\n' "$output" | jq -r 'select(.site == "site-b") | .kind, .metadata["x.other"]' | tr '\n' ' ')" = "update kept " ]
}

@test "norm, least, greatest and non-finite values by hand" {
	# 3, -4, NaN, inf as F32; 1.5 as BF16; an integer
	plain '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[],"data_offsets":[16,18]},"i":{"dtype":"U8","shape":[1],"data_offsets":[18,19]}}' \
		'\000\000\100\100\000\000\200\300\000\000\300\177\000\000\200\177\300\077\007' >v.safetensors
	expect 0 ng-show -t v.safetensors
	printf '%s\n' "$output" | grep -qx 'tensor	a	F32	\[4\]	16	5	-4	3	2'
	printf '%s\n' "$output" | grep -qx 'tensor	b	BF16	\[\]	2	1.5	1.5	1.5	0'
	printf '%s\n' "$output" | grep -qx 'tensor	i	U8	\[1\]	1	-	-	-	-'
	[ "$(value norm)" = 5.22015325 ]
	[ "$(value nonfinite)" = 2 ]
	[ "$(value elements)" = 6 ]
}

@test "the content digest is of the tensors alone, in any order of the file" {
	b='"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}' a='"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
	plain "{$a,$b}" xy >ordered
	plain "{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}" yx >other
	h="{$a,$b}"
	while [ $(((8 + ${#h}) % 64)) -ne 0 ]; do h="$h "; done
	want=$(plain "$h" xy | b2sum -l 256 | cut -d' ' -f1)
	for f in ordered other; do
		expect 0 ng-show $f
		[ "$(value content_digest)" = "$want" ] || fail "$f"
	done
	expect 0 ng-show <ordered
	[ "$(value content_digest)" = "$want" ]
}

@test "--safetensors writes what zstd -d gives" {
	need_program zstd
	expect 0 ng-show --safetensors out.safetensors "$S/global.zst"
	[ -z "$output" ]
	zstd -dcq "$S/global.zst" | cmp - out.safetensors
	ng-show --safetensors - "$S/global.zst" | cmp - out.safetensors
	expect 65 ng-show --safetensors two.safetensors "$S/updates.zst"
	says "more than one frame"
	[ ! -e two.safetensors ]
	expect 74 ng-show --safetensors no/such/folder "$S/global.zst"
}

@test "what is cut, flipped or nothing at all is 65" {
	size=$(wc -c <"$S/updates.zst")
	for n in 0 1 7 60 $((size / 2)) $((size - 1)); do
		head -c "$n" "$S/updates.zst" >cut.zst
		expect 65 ng-show cut.zst
		says "ng-show: error: "
		head -c "$n" "$S/updates.zst" >part.zst
		expect 65 sh -c 'cat part.zst | ng-show'
	done
	cp "$S/global.zst" flipped.zst
	printf '\377' | dd of=flipped.zst bs=1 seek=700 conv=notrunc 2>/dev/null
	expect 65 ng-show flipped.zst
	says damaged
	expect 65 ng-show </dev/null
	says "nothing came"
}

@test "a failure before it in the pipe is passed on with its reason" {
	expect 77 ng-show "$S/failed.zst"
	says "tensor 'w' holds NaN"
	expect 1 ng-show "$S/idle.zst"
	says "nothing new for site-a"
	case $stderr in *error*) fail "nothing to do is no error: $stderr" ;; esac
	expect 0 ng-show "$S/empty-brackets.zst"
	expect 65 ng-show "$S/large-window.zst"
	says "window"
	expect 65 ng-show "$S/no-checksum.zst"
	says "checksum"
}

@test "another thing than a model is named" {
	echo "version https://git-lfs.github.com/spec/v1" >lfs
	echo "<!DOCTYPE html><html></html>" >html
	printf 'PK\003\004xxxxxxxx' >zip
	expect 65 ng-show lfs
	says git-lfs
	expect 65 ng-show html
	says HTML
	expect 65 ng-show zip
	says "zip archive"
	expect 65 ng-show <html
	says HTML
	expect 66 ng-show absent
	mkdir empty
	expect 66 ng-show empty
	says "no model.safetensors"
}

@test "every bad file of ../shared is refused, every good one shown" {
	need_shared badfiles/safetensors/MANIFEST.tsv
	d=$SHARED/data/badfiles/safetensors
	tab=$(printf '\t')
	while IFS=$tab read -r file _ want _; do
		[ "$file" = file ] && continue
		case $want in
		refuse) expect 65 ng-show "$d/$file" ;;
		accept) expect 0 ng-show "$d/$file" ;;
		*) code=0 && ng-show "$d/$file" >/dev/null 2>&1 || code=$? && [ $code -eq 0 ] || [ $code -eq 65 ] || fail "$file: $code" ;;
		esac
	done <"$d/MANIFEST.tsv"
}

@test "control bytes of a name do not reach the terminal" {
	plain '{"__metadata__":{"k\u001b":"\u001b[31m\t"},"a\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' x >esc
	expect 0 ng-show -t esc
	case $output in *$'\033'*) fail "an escape sequence got through" ;; esac
	printf '%s\n' "$output" | grep -q '^tensor	a?\[2J	U8'
}

@test "a model folder, Dense modules included" {
	expect 0 ng-show -t "$TINY"
	printf '%s\n' "$output" | grep -q '^tensor	2_Dense/linear.weight	F32'
	[ "$(value nonfinite)" = 0 ]
}

@test "an object of a board, in parts" {
	mkdir o
	head -c 300 "$S/global.zst" >o/part-00000
	tail -c +301 "$S/global.zst" >o/part-00001
	digest=$(b2sum -l 256 "$S/global.zst" | cut -d' ' -f1)
	id=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
	printf 'ng-signature 1\nkind: global\nexperiment: %s\nmanifest: 0\nround: 3\nsite: -\nbase: -\nobject: %s\ncreated: 2026-12-01T01:10:00Z\nkey: -\n' \
		$id "$digest" >o/signature
	expect 0 ng-show o
	[ "$(value created)" = 2026-12-01T01:10:00Z ]
	[ "$(value kind)" = global ]
	[ "$(value object_digest)" = "$digest" ]
	cp "$S/plain.safetensors" o/part-00000
	rm o/part-00001
	expect 65 ng-show o
	says "not what its signature says"
	sed "s/^object: .*/object: $id/; s/^kind: .*/kind: manifest/" o/signature >s
	mv s o/signature
	printf '{"a": 1}' >o/part-00000
	expect 65 ng-show o
	says "not what its signature says"
	sed "s/^object: .*/object: $(b2sum -l 256 o/part-00000 | cut -d' ' -f1)/" o/signature >s
	mv s o/signature
	expect 0 ng-show o
	[ "$(value payload)" = '{"a":1}' ]
	echo x >o/signature
	expect 65 ng-show o
}

# A folder with an F16 tensor, an F32 one and an integer buffer, and a global of [1, 2] and [3].
make_model() {
	mkdir base base/1_Pooling
	plain '{"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"h":{"dtype":"F16","shape":[2],"data_offsets":[12,16]}}' \
		'\007\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >base/model.safetensors
	echo '{}' >base/config.json
	echo '{}' >base/1_Pooling/config.json
	id=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
	plain "{\"__metadata__\":{\"ng.version\":\"1\",\"ng.kind\":\"global\",\"ng.round\":\"0\",\"ng.config\":\"{}\",\"ng.experiment\":\"{\\\"id\\\":\\\"$id\\\",\\\"name\\\":\\\"x\\\"}\"},\"h\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}" \
		'\000\000\200\077\000\000\000\100\000\000\100\100' | zstd -1 -q >g.zst
}

@test "-o writes a model folder in the folder's own types" {
	need_program zstd
	make_model
	expect 0 ng-show -m base -o tuned g.zst
	[ -z "$output" ]
	expect 0 ng-show -t tuned
	printf '%s\n' "$output" | grep -qx 'tensor	h	F16	\[2\]	4	2.23606798	1	2	0'
	printf '%s\n' "$output" | grep -qx 'tensor	w	F32	\[1\]	4	3	3	3	0'
	printf '%s\n' "$output" | grep -q '^tensor	n	I64'
	cmp base/config.json tuned/config.json
	cmp base/1_Pooling/config.json tuned/1_Pooling/config.json
	expect 1 ng-show -m base -o tuned g.zst
	says exists
	expect 65 ng-show -m base -o other "$S/updates.zst"
	says "not a global"
	expect 77 ng-show -m base -o other "$S/global.zst"
	says "is not in the model folder"
	[ ! -e other ]
}

@test "a failing disk leaves no folder and no file, whichever call fails" {
	[ -z "${NG_SANITIZED:-}" ] || skip "the fault shim and a sanitizer do not mix"
	need_program zstd
	make_model
	ng-show -m base -o whole g.zst
	for what in write open mkdir fsync rename; do
		n=1
		while [ $n -le 40 ]; do
			rm -f log
			code=0
			LD_PRELOAD=$NG_BUILD/t/fault.so NG_FAULT=$what:$n:ENOSPC NG_FAULT_LOG=log \
				ng-show -m base -o tuned g.zst 2>err || code=$?
			[ -e log ] || break
			# an open may be one that is done without, a mkdir of a folder that is there
			case $what in write | fsync | rename) [ $code -ne 0 ] || fail "$what $n failed with exit 0" ;; esac
			[ $code -ne 0 ] || [ -e tuned ] || fail "$what $n: exit 0 and no folder"
			# the folder may be there only when the failure came after the rename
			if [ -e tuned ]; then
				[ $what != write ] || fail "$what $n left a folder"
				diff -r whole tuned || fail "$what $n left half a folder"
				rm -r tuned
			fi
			[ -z "$(ls -d tuned.ng-* 2>/dev/null)" ] || fail "$what $n left litter"
			n=$((n + 1))
		done
		[ $code -eq 0 ] || fail "$what: no end"
		[ $n -gt 1 ] || fail "$what: nothing was made to fail"
		rm -r tuned
	done
}

@test "misuse is told before any work" {
	expect 64 ng-show -o x "$S/global.zst"
	expect 64 ng-show -m "$TINY" "$S/global.zst"
	expect 64 ng-show -j --safetensors x "$S/global.zst"
	expect 64 ng-show --safetensors x a b
	expect 64 ng-show --safetensors x -o y -m "$TINY" a
	[ ! -e x ]
}

@test "binary never goes to a terminal, and no stream comes from one" {
	need_program script
	run -64 script -qec "ng-show --safetensors - '$S/global.zst'" /dev/null
	[[ $output == *"not written to a terminal"* ]]
	run -64 script -qec ng-show /dev/null
	[[ $output == *"is a terminal"* ]]
}

@test "a full disk is 74" {
	code=0
	ng-show "$S/global.zst" >/dev/full 2>err || code=$?
	[ $code -eq 74 ]
	code=0
	ng-show --safetensors - "$S/global.zst" >/dev/full 2>err || code=$?
	[ $code -eq 74 ]
}
