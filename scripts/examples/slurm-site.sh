#!/bin/sh
# slurm-site.sh - one round of a site on a Slurm cluster
#
# Compute nodes often have no network, and login nodes end what runs long.  So
# the login node only carries files: from cron, or by hand,
#
#     */15 * * * *  /srv/ng/slurm-site.sh
#
# fetches the newest global when there is one, hands it to sbatch, and publishes
# the update once the job has left it in $DIR.  A job that was preempted is
# requeued, one that ran out of time is submitted again by the next run; both go
# on in the middle of their step.  For PyTorch nodes put ng-train-torch in
# ng-train's place.
set -eu
: "${NG_BOARD:=/share/board}" "${NG_EXPERIMENT:=leaflets}" "${NG_SITE:=site-a}"
: "${DIR:=/scratch/ng/$NG_SITE}" "${MODEL:=/srv/ng/MiniLM}" "${DATA:=/srv/ng/$NG_SITE.jsonl}"
export NG_BOARD NG_EXPERIMENT NG_SITE
mkdir -p "$DIR/state"
cd "$DIR"

if [ -f update.zst ]; then
	rc=0
	ng-push -q --state state <update.zst || rc=$?
	# 1: it is published already, by the run before this one
	[ "$rc" -le 1 ] || exit "$rc"
	rm -f update.zst global.zst
fi
if [ -f global.zst ]; then
	# a job is waiting or at work on this global, or it ended without an update
	[ -z "$(squeue -h -u "$(id -un)" -n "ng-$NG_SITE")" ] || exit 0
else
	rc=0
	ng-pull -q --state state >global.new || rc=$?
	if [ "$rc" -ne 0 ]; then
		rm -f global.new
		[ "$rc" -ne 1 ] || exit 0
		exit "$rc"
	fi
	mv global.new global.zst
fi
sbatch --job-name "ng-$NG_SITE" --requeue --signal=B:TERM@60 --cpus-per-task 16 --mem 16G --time 4:00:00 \
	--output "$DIR/job-%j.log" --wrap "exec ng-train -s $NG_SITE --state $DIR/state -m $MODEL -d $DATA \
	--memory 15G -o $DIR/update.zst $DIR/global.zst" || exit 75
