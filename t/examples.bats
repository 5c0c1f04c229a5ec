#!/usr/bin/env bats
# scripts/examples: they run
load helper

setup() {
	need_program jq
	cd "$BATS_TEST_TMPDIR"
	NG_DEMO_MEDICINES="3 3 2" ng-demo-data 1 data
	head -n 24 data/dev.jsonl >dev.jsonl
	echo '{"experiment": "ex", "rounds": 1, "quorum": 1, "train": {"batch": 16, "max_length": 32}}' >e.json
	TINY=$ROOT/t/golden/tiny-bert
}

@test "experiments.mk: one result a setting, none made twice" {
	need_program make
	printf 'experiment e.json\nmodel %s\ndev dev.jsonl\nsite a data=data/train-site-a.jsonl\n' "$TINY" >base.conf
	expect 0 make -s -j2 -f "$ROOT/scripts/examples/experiments.mk" RATES="1e-5 1e-2" BATCHES=16
	[ "$(printf '%s\n' "$output" | wc -l)" -eq 2 ]
	[ "$(ls results/*.json | wc -l)" -eq 2 ]
	# the learning rates arrived: two models
	[ "$(for d in results/*.d; do NG_STATE=$d/s ng-pull -q -b $d/board -e ex | ng-show -j | jq -r .content_digest; done | sort -u | wc -l)" -eq 2 ]
	expect 0 make -n -f "$ROOT/scripts/examples/experiments.mk" RATES="1e-5 1e-2" BATCHES=16
	[[ "$output" != *ng-sim* ]]
}

@test "slurm-site.sh: pull, submit once, publish, then nothing" {
	ng-init -q --open -b board -e ex -m "$TINY" e.json
	mkdir bin
	# a cluster of one node: a job runs when the test says so
	cat >bin/sbatch <<-'EOF'
		#!/bin/sh
		while [ $# -gt 1 ]; do shift; done
		echo "$1" >>job
	EOF
	printf '#!/bin/sh\n[ ! -s running ] || echo 1\n' >bin/squeue
	chmod +x bin/*
	export NG_BOARD=$PWD/board NG_EXPERIMENT=ex NG_SITE=site-a DIR=$PWD/scratch MODEL=$TINY DATA=$PWD/data/train-site-a.jsonl
	PATH=$PWD/bin:$PATH
	expect 0 "$ROOT/scripts/examples/slurm-site.sh"
	[ "$(wc -l <scratch/job)" -ge 1 ]
	cp scratch/job one
	# while the job is in the queue nothing is submitted; when it is lost, again
	echo 1 >scratch/running
	expect 0 "$ROOT/scripts/examples/slurm-site.sh"
	cmp one scratch/job
	: >scratch/running
	expect 0 "$ROOT/scripts/examples/slurm-site.sh"
	run ! cmp -s one scratch/job
	(cd scratch && sed 's/--memory 15G/--memory 500M -q/' ../one | sh)
	[ -s scratch/update.zst ]
	expect 0 "$ROOT/scripts/examples/slurm-site.sh"
	[ ! -e scratch/update.zst ]
	[ ! -e scratch/global.zst ]
	ng-pull -q --updates | ng-show -j | jq -e '.site == "site-a"' >/dev/null
}

@test "the crontab's lines and the units name options that exist" {
	for p in ng-pull ng-train ng-push ng-aggregate; do
		$p --help >$p.help
	done
	grep -ho 'ng-[a-z]*[^|]*' "$ROOT/scripts/examples/crontab" "$ROOT/scripts/examples/ng-site.service" \
		"$ROOT/scripts/examples/cronjob.yaml" | grep -E '^ng-(pull|train|push|aggregate) ' >calls
	[ "$(wc -l <calls)" -ge 12 ]
	while read -r p rest; do
		for w in $rest; do
			case $w in
			--*) grep -q -- "$w" $p.help || fail "$p has no $w" ;;
			-[a-z]) grep -q -- "^ *$w," $p.help || fail "$p has no $w" ;;
			esac
		done
	done <calls
}
