#!/usr/bin/env bats
# The tests of the tests: a failure is seen, a skip is counted, a death is no pass.
load helper

@test "a failed comparison fails the process, and NaN is a failure" {
	run "$NG_BUILD/t/must_fail"
	[ "$status" -eq 1 ]
	[ "${lines[0]}" = "ok 1 - 1 + 1 == 2" ]
	case $output in *"not ok 2 -"*"got 1, want 2"*"not ok 3 -"*) ;; *) fail "$output" ;; esac
}

@test "t/run counts failures, skips, deaths and tests that were not run" {
	cd "$BATS_TEST_TMPDIR"
	mk() {
		printf '#!/bin/sh\n%s\n' "$2" >"$1"
		chmod +x "$1"
	}
	mk good 'echo "ok 1 - a"; echo "ok 2 - # SKIP no data"; echo 1..2'
	mk bad 'echo "not ok 1 - a"; echo 1..1; exit 1'
	mk dead 'echo "ok 1 - a"; echo 1..1; kill -9 $$'
	mk short 'echo "ok 1 - a"; echo 1..2'
	run "$ROOT/t/run" ./good
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = "1 passed, 0 failed, 1 skipped" ]
	case $output in *"no data"*) ;; *) fail "the skip is not named" ;; esac
	run "$ROOT/t/run" ./good ./bad ./dead ./short
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = "3 passed, 3 failed, 1 skipped" ]
}
