#!/usr/bin/env bats
# scripts/ng-split: every row in exactly one site, by value, evenly or by Dirichlet.
load helper

setup() {
	need_program jq
	cd "$BATS_TEST_TMPDIR"
	for i in $(seq 1 300); do
		printf '{"anchor":"q%d","positive":"p \\u00fc %d","group":"g%d"}\n' "$i" "$i" $((i * i % 7))
	done >all.jsonl
}

complete() { # complete DIR FILE: the sites together are the file
	cat "$1"/site-*.jsonl | sort | diff - <(sort "$2")
}

@test "by a field: one site a value" {
	expect 0 ng-split --field group -o out all.jsonl
	complete out all.jsonl
	[ "$(ls out | wc -l)" -eq 4 ] # squares modulo 7: 0 1 2 4
	for f in out/*; do
		[ "$(jq -r .group "$f" | sort -u | wc -l)" -eq 1 ]
	done
	[ "$(echo "$output" | cut -f2 | paste -sd+ | bc 2>/dev/null || echo "$output" | awk '{s+=$2} END{print s}')" -eq 300 ]
}

@test "by a field into fewer sites: whole values, evenly" {
	expect 0 ng-split --field group --sites 2 -o out all.jsonl
	complete out all.jsonl
	[ "$(ls out | paste -sd' ')" = "site-a.jsonl site-b.jsonl" ]
	[ -z "$(comm -12 <(jq -r .group out/site-a.jsonl | sort -u) <(jq -r .group out/site-b.jsonl | sort -u))" ]
}

@test "at random: equal sizes" {
	expect 0 ng-split --sites 4 -o out all.jsonl
	complete out all.jsonl
	[ "$(wc -l <out/site-d.jsonl)" -eq 75 ]
	run ! cmp -s out/site-a.jsonl <(head -75 all.jsonl)
}

@test "Dirichlet: the same seed the same files, another seed others, small alpha uneven" {
	expect 0 ng-split --field group --sites 3 --alpha 1 --seed 5 -o a all.jsonl
	expect 0 ng-split --field group --sites 3 --alpha 1 --seed 5 -o b all.jsonl
	expect 0 ng-split --field group --sites 3 --alpha 1 --seed 6 -o c all.jsonl
	complete a all.jsonl
	diff -r a b
	run ! diff -rq a c
	expect 0 ng-split --field group --sites 3 --alpha 1000 -o even all.jsonl
	for f in even/*; do
		n=$(wc -l <"$f")
		[ "$n" -gt 80 ] && [ "$n" -lt 120 ]
	done
	expect 0 ng-split --field group --sites 3 --alpha 0.05 -o uneven all.jsonl
	complete uneven all.jsonl
	# nearly all rows of a value lie in one site
	most=$(for f in uneven/*; do jq -r .group "$f" | sort | uniq -c; done |
		awk '{ if ($1 > m[$2]) m[$2] = $1 } END { for (g in m) s += m[g]; print s }')
	[ "$most" -gt 220 ]
}

@test "TSV: the header in every file, CRLF and blank lines" {
	printf 'anchor\tpositive\tclinic\r\na\tb\tx\r\n\r\nc\td\ty\r\ne\tf\tx\r\ng\th\ty\r\n' >t.tsv
	expect 0 ng-split --field clinic -o out t.tsv
	[ "$(head -1 out/site-b.tsv | tr -d '\r')" = "$(printf 'anchor\tpositive\tclinic')" ]
	[ "$(wc -l <out/site-a.tsv)" -eq 3 ]
	[ "$(grep -c x out/site-b.tsv)" -eq 0 ]
}

@test "refusals" {
	expect 64 ng-split -o out all.jsonl
	expect 64 ng-split --field group all.jsonl
	expect 64 ng-split --field group --sites x -o out all.jsonl
	expect 64 ng-split --sites 2 --alpha 1 -o out all.jsonl
	expect 64 ng-split --field group --sites 2 --alpha 0.0 -o out all.jsonl
	expect 66 ng-split --sites 2 -o out none.jsonl
	expect 65 ng-split --field nothing -o out all.jsonl
	says "line 1: no field 'nothing'"
	expect 65 ng-split --field group --sites 9 -o out all.jsonl
	says "4 values, but 9 sites"
	echo '{"anchor":' >bad.jsonl
	expect 65 ng-split --field anchor -o out bad.jsonl
	expect 65 ng-split --sites 200 -o out all.jsonl
	[ -z "$(ls out)" ]
	expect 0 ng-split --sites 2 -o out all.jsonl
	expect 64 ng-split --sites 2 -o out all.jsonl
	says "is there already"
	expect 0 ng-split --help
}

@test "the leaflets are cut by company" {
	need_shared leaflets/train-site-a.jsonl
	expect 0 ng-split --field group --sites 3 -o out "$SHARED/data/leaflets/train-site-a.jsonl"
	complete out "$SHARED/data/leaflets/train-site-a.jsonl"
}
