#!/usr/bin/env bats
# What is on a board, for people, programs and monitoring.
load helper
load board

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	new_board
}

line() { # line NAME: its value
	echo "$output" | sed -n "s/^$1	//p"
}

@test "waiting, at work, ready, complete" {
	expect 0 ng-status
	[ "$(line state)" = waiting ] && [ "$(line round)" = 0 ] && [ "$(line updates)" = 0 ] && [ "$(line id)" = "$ID" ]
	ng-pull -s site-a >/dev/null
	expect 0 ng-status
	[ "$(line at_work)" = 1 ]
	case $(line claims) in "site-a (until 20"*) ;; *) fail "$output" ;; esac
	update site-a
	expect 0 ng-status
	[ "$(line at_work)" = 0 ] && [ "$(line updates)" = 1 ]
	update site-b
	expect 0 ng-status
	[ "$(line state)" = ready ]
	case $output in *"0	2	site-a,site-b	0	"*) ;; *) fail "$output" ;; esac
	aggregate
	round site-a site-b
	round site-a site-b
	expect 0 ng-status
	[ "$(line state)" = complete ]
	up=$(cat "$E"/update/*/*/part-* | wc -c)
	[ "$(line bytes_up)" = "$up" ]
	down=$(cat "$E"/global/0000[012]/part-* | wc -c)
	[ "$(line bytes_down)" = $((2 * down)) ]
	expect 0 ng-status -r 1
	[ "$(echo "$output" | wc -l)" -eq 2 ]
}

@test "--json: one object a line" {
	need_program jq
	round site-a site-b
	expect 0 ng-status -j --verify
	[ "$(echo "$output" | jq -r '.state // empty')" = waiting ]
	[ "$(echo "$output" | jq -r 'select(.sites) | .sites[] | .site' | tr '\n' ' ')" = "site-a site-b " ]
	[ "$(echo "$output" | jq -r 'select(.sites) | .sites[] | .steps' | tr '\n' ' ')" = "2 2 " ]
	[ "$(echo "$output" | jq -r 'select(.sites) | .claims[] | .site' | tr '\n' ' ')" = "site-a site-b " ]
}

@test "--check: 0 ok, 1 warning, 2 critical, 3 unknown" {
	expect 0 ng-status --check
	case $output in "OK - leaflets: round 0 is waiting"*) ;; *) fail "$output" ;; esac
	ng-pull -s site-c --claim 1s >/dev/null
	sleep 2.1
	expect 1 ng-status --check
	case $output in "WARNING - "*"site-c (late since"*) ;; *) fail "$output" ;; esac
	expect 3 ng-status --check -b nowhere
	case $output in "UNKNOWN - no blackboard"*) ;; *) fail "$output" ;; esac
	rm -rf board "$NG_STATE"
	new_board deadline=1s
	update site-a
	sleep 1.2
	expect 2 ng-status --check
	case $output in "CRITICAL - "*"stalled"*) ;; *) fail "$output" ;; esac
	expect 0 ng-status
	[ "$(line state)" = stalled ]
	ec=0
	ng-status --check >/dev/full 2>err || ec=$?
	[ "$ec" -eq 74 ]
}

@test "--verify finds a damaged update; without it statements are believed" {
	update site-a
	update site-b
	flip "$E/update/00000/site-a/part-00000" 9000
	expect 0 ng-status
	[ "$(line updates)" = 2 ]
	expect 0 ng-status --verify
	[ "$(line updates)" = 1 ]
	says "update/00000/site-a does not count"
}

@test "metrics are shown where there are any" {
	d=$E/metrics/00000/site-a
	mkdir -p "$d"
	printf '{"mrr@10":0.5,"note":"text"}' >"$d/part-00000"
	printf 'ng-signature 1\nkind: metrics\nexperiment: %s\nmanifest: 0\nround: 0\nsite: site-a\nbase: -\nobject: %s\ncreated: 2026-12-01T00:00:00Z\nkey: -\n' \
		"$ID" "$(b2sum -l 256 "$d/part-00000" | cut -d' ' -f1)" >"$d/signature"
	expect 0 ng-status
	case $output in *"metric	0	site-a	mrr@10	0.5"*) ;; *) fail "$output" ;; esac
	printf '{"mrr@10":0.7}' >"$d/part-00000"
	expect 0 ng-status
	case $output in *"mrr@10"*) fail "$output" ;; esac
}

@test "pruned rounds are told from the log; nothing is written" {
	rm -rf board "$NG_STATE"
	new_board rounds=6 'keep={"last": 1}'
	round site-a site-b
	round site-a site-b
	find board "$NG_STATE" -printf '%p %T@ %C@\n' | sort >before
	expect 0 ng-status
	case $output in *"
0	2	-	0	"*) ;; *) fail "$output" ;; esac
	find board "$NG_STATE" -printf '%p %T@ %C@\n' | sort | diff before -
	expect 64 ng-status --check -j
	expect 64 ng-status operand
}
