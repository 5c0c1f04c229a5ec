#!/usr/bin/env bats
# Every program: --help and the page's .It Fl lines name the same options, the
# codes of the source stand in EXIT STATUS, and the habits of every program hold.
load helper

programs() {
	for p in "$NG_BIN"/ng-*; do
		[ -x "$p" ] && basename "$p"
	done
}

# "-b --board arg" a line, sorted
of_help() {
	"$1" --help | awk '/^  (-[A-Za-z], |    )--/ {
		letter = ""; rest = $0
		sub(/^ +/, "", rest)
		if (rest ~ /^-[A-Za-z], /) { letter = substr(rest, 1, 2); rest = substr(rest, 5) }
		name = rest; sub(/ .*/, "", name)
		arg = substr(rest, length(name) + 1)
		print (letter == "" ? "" : letter " ") name (arg ~ /^ [^ ]/ ? " arg" : "")
	}' | sort
}

# .It Fl b , Fl -board Ar dir    (or: .It Fl -loss Ar name)
of_page() {
	awk '/^\.It Fl / {
		letter = ""; name = ""; arg = ""
		for (i = 2; i <= NF; i++) {
			if ($i == "Ar") { arg = " arg"; break }
			if ($i == "Fl" || $i == "," || $i == "Ns") continue
			if ($i ~ /^-/) name = "-" $i
			else if ($i ~ /^[A-Za-z]$/) letter = "-" $i " "
		}
		print letter name arg
	}' "$1" | sort
}

@test "there is a program, and each has a page" {
	[ -n "$(programs)" ]
	for p in $(programs); do
		[ -f "$ROOT/man/$p.1" ] || fail "man/$p.1 is missing"
	done
}

@test "--help and the page name the same options" {
	for p in $(programs); do
		[ -n "$(of_help "$p")" ] || fail "$p --help names no option"
		diff <(of_help "$p") <(of_page "$ROOT/man/$p.1") || fail "$p: --help (<) and the page (>) differ"
	done
}

@test "--help is sorted and shows every form of the usage" {
	for p in $(programs); do
		"$p" --help | grep -o -- '^  .\{4\}--[a-z0-9-]*' | sed 's/.*--//' | LC_ALL=C sort -c || fail "$p"
		"$p" --help | head -1 | grep -q "^usage: $p " || fail "$p"
	done
}

@test "the page's sections stand in order" {
	for p in $(programs); do
		want="NAME SYNOPSIS DESCRIPTION ENVIRONMENT FILES EXIT_STATUS EXAMPLES SEE_ALSO"
		have=$(sed -n 's/^\.Sh //p' "$ROOT/man/$p.1" | tr ' ' '_' | tr '\n' ' ')
		at=0
		for s in $want; do
			n=$(echo "$have" | tr ' ' '\n' | grep -nx "$s" | head -1 | cut -d: -f1)
			[ -n "$n" ] && [ "$n" -gt "$at" ] || fail "$p: section $s is missing or out of order in: $have"
			at=$n
		done
	done
}

@test "every code of the source stands in EXIT STATUS, and none that is no code" {
	for p in $(programs); do
		page=$(sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EXAMPLES/p' "$ROOT/man/$p.1" |
			sed -n 's/^\.It *\(Li *\)\{0,1\}\([0-9]\{1,3\}\)$/\2/p' | sort -n | tr '\n' ' ')
		for c in 0 64 74; do
			case " $page" in *" $c "*) ;; *) fail "$p: $c is not in EXIT STATUS ($page)" ;; esac
		done
		codes=$(sed -n 's/^\t\(NG_[A-Z]*\) = \([0-9]*\),.*/\1=\2/p' "$ROOT/common/base/err.h")
		for c in $page; do
			case "$codes" in *"=$c"*) ;; *) fail "$p: EXIT STATUS has $c, which is no code of err.h" ;; esac
		done
		for name in $(grep -o '\bNG_[A-Z]*\b' "$ROOT/cmd/$p.c" | sort -u); do
			c=$(echo "$codes" | sed -n "s/^$name=//p")
			[ -z "$c" ] && continue
			[ "$c" = 70 ] && continue # a bug is not documented
			case " $page" in *" $c "*) ;; *) fail "$p: $name ($c) is not in EXIT STATUS ($page)" ;; esac
		done
	done
}

@test "--help and --version end with 0, and with 74 on a full disk" {
	for p in $(programs); do
		"$p" --help >/dev/null || fail "$p --help"
		"$p" --version | grep -qx "$p [0-9]*\.[0-9]*\.[0-9]*" || fail "$p --version"
		for o in --help --version; do
			code=0
			"$p" $o >/dev/full 2>/dev/null || code=$?
			[ "$code" -eq 74 ] || fail "$p $o on a full disk: exit $code"
		done
	done
}

@test "misuse is one line and the usage on stderr, exit 64" {
	for p in $(programs); do
		expect 64 "$p" --no-such-option
		[ -z "$output" ] || fail "$p: misuse wrote to stdout"
		echo "$stderr" | sed -n 1p | grep -q "^$p: error: .*--no-such-option" || fail "$p: $stderr"
		echo "$stderr" | sed -n 2p | grep -q "^usage: $p " || fail "$p: $stderr"
		# control bytes do not reach the terminal
		expect 64 "$p" "$(printf -- '--x\033[31m')"
		case $stderr in *$'\033'*) fail "$p: an escape sequence got through" ;; esac
	done
}

@test "a closed stdin, stdout or stderr does no harm" {
	for p in $(programs); do
		"$p" --version 0<&- >/dev/null || fail "$p without stdin"
		code=0
		"$p" --version >&- 2>/dev/null || code=$?
		[ "$code" -eq 74 ] || fail "$p without stdout: exit $code"
	done
}
