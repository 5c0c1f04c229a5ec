# Loaded by every .bats file: `load helper`.  The programs are on PATH, nothing
# of the caller's environment or state folder is seen, data of ../shared is
# asked for with need_shared, which skips and names what is absent.
bats_require_minimum_version 1.5.0

ROOT=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
SHARED=$ROOT/../shared
NG_BIN=${NG_BIN:-$ROOT/bin}
NG_BUILD=${NG_BUILD:-$ROOT/build}
PATH=$NG_BIN:$ROOT/scripts:$PATH
export PATH LC_ALL=C NG_STATE=$BATS_TEST_TMPDIR/state
unset NG_BOARD NG_EXPERIMENT NG_SITE NG_KEY CDPATH
umask 022

need_shared() { # need_shared leaflets/dev.jsonl
	[ -e "$SHARED/data/$1" ] || skip "../shared/data/$1 is not there"
}

need_program() { # need_program python3
	command -v "$1" >/dev/null 2>&1 || skip "$1 is not there"
}

fail() {
	echo "$*" >&2
	return 1
}

# expect CODE command...: run, and say what came when the exit code is another.
# $output is stdout, $stderr the other.
expect() {
	local want=$1
	shift
	run --separate-stderr "$@"
	if [ "$status" -ne "$want" ]; then
		echo "exit $status, not $want: $*" >&2
		echo "stdout: $output" >&2
		echo "stderr: $stderr" >&2
		return 1
	fi
}

# says TEXT: the last expect's stderr holds it
says() {
	case $stderr in
	*"$1"*) ;;
	*) fail "'$1' is not in: $stderr" ;;
	esac
}
