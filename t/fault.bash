# storm: a command under t/shim/fault.c, the n-th call of each function failing,
# for every n there is (malloc: a sample).  `load fault` after `load helper`.
#
#     storm OUT command...
#
# OUT is a file or folder that the command makes ("" when it makes none); it is
# removed before each run.  A test may define `prepare`, called before each run,
# and `after CODE`, called after each run that a fault struck.  After each run:
#   - the exit code is one of the documented ones, never a death by a signal,
#     never 70;
#   - OUT is whole (equal to that of a run without faults) when the code is 0,
#     and absent or whole when not;
#   - a failure said one line "NAME: error: ..." on stderr;
#   - no temporary is left in OUT's folder.
# FAULTS overrides the list of function:errno pairs.  With errno KILL the process
# kills itself before the call: 137 is then the code wanted, litter is allowed,
# and `after` has to show that the next run puts things right.

needs_faults() {
	[ -z "${NG_SANITIZED:-}" ] || skip "the fault shim and a sanitizer do not mix"
	[ -e "$NG_BUILD/t/fault.so" ] || skip "the fault shim was not built"
}

# same A B: files or folders
same() {
	if [ -d "$1" ]; then diff -r "$1" "$2" >/dev/null; else cmp -s "$1" "$2"; fi
}

storm() {
	local out=$1 program fault fn n code said litter struck=0 runs=0 step=1
	[ -z "${NG_FULL:-}" ] || step=8
	shift
	program=$(basename "$1")
	[ -z "$out" ] || { mkdir -p "$(dirname "$out")" && rm -rf "$out" good.expected; }
	! declare -F prepare >/dev/null || prepare
	"$@" >good.stdout 2>good.stderr </dev/null || fail "without faults: exit $?: $(cat good.stderr)"
	[ -z "$out" ] || mv "$out" good.expected
	for fault in ${FAULTS:-open:EACCES read:EIO write:ENOSPC write:SHORT fsync:EIO rename:EIO link:EIO unlink:EIO mkdir:ENOSPC malloc:ENOMEM}; do
		fn=${fault%%:*}
		n=1
		while :; do
			[ -z "$out" ] || rm -rf "$out"
			! declare -F prepare >/dev/null || prepare
			rm -f struck
			code=0
			LD_PRELOAD=$NG_BUILD/t/fault.so NG_FAULT=$fn:$n:${fault#*:} NG_FAULT_LOG=$PWD/struck NG_FAULT_PROGRAM=$program \
				"$@" >bad.stdout 2>bad.stderr </dev/null || code=$?
			[ -e struck ] || break
			runs=$((runs + 1))
			said="$fn $n (${fault#*:}): exit $code: $(head -c 300 bad.stderr)"
			case $code in
			0) [ -z "$out" ] || same "$out" good.expected || fail "$said: OUT is not whole" ;;
			137)
				[ "${fault#*:}" = KILL ] || fail "$said"
				[ -z "$out" ] || [ ! -e "$out" ] || same "$out" good.expected || fail "$said: half of OUT was left"
				struck=$((struck + 1))
				;;
			1 | 64 | 65 | 66 | 69 | 71 | 74 | 75 | 76 | 77)
				struck=$((struck + 1))
				[ "$code" -eq 1 ] || grep -q "^$program: error: " bad.stderr || fail "$said: no message"
				[ "$fn" != malloc ] || [ "$code" -eq 71 ] || fail "$said: not 71"
				[ -z "$out" ] || [ ! -e "$out" ] || same "$out" good.expected || fail "$said: half of OUT was left"
				;;
			*) fail "$said" ;;
			esac
			if [ "$fn" != unlink ] && [ "${fault#*:}" != KILL ]; then
				litter=$(find . -name '*.ng-??????' | head -3)
				[ -z "$litter" ] || fail "$said: left $litter"
			elif [ "$fn" = unlink ]; then
				# what it could not remove is no fault of the runs that follow
				find . -depth -name '*.ng-??????' -exec rm -rf {} +
			fi
			if declare -F after >/dev/null; then
				after "$code" || fail "$said: and afterwards it is not right"
			fi
			# the first, then ever fewer; more of them with NG_FULL (scripts/check)
			n=$((n + 1 + n / step))
		done
	done
	[ "$struck" -gt 0 ] || fail "no fault struck: the shim does not work"
	echo "# $program: $runs faults, $struck failures" >&3
}
