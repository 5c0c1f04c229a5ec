# What the tests of the board's programs share: `load helper` first, then `load board`.

MODEL=$ROOT/t/golden/tiny-bert

# new_board [KEY=VALUE...]: an experiment 'leaflets' of the tiny model on ./board,
# taken by NG_BOARD and NG_EXPERIMENT; the values override the experiment file's.
new_board() {
	local set=()
	for v in "$@"; do set+=(--set "$v"); done
	echo '{"experiment": "leaflets", "rounds": 3, "quorum": 2, "train": {"batch": 8, "max_length": 32}}' >experiment.json
	ng-init -q --open -b board -m "$MODEL" "${set[@]}" experiment.json >id.txt || return 1
	export NG_BOARD=$PWD/board NG_EXPERIMENT=leaflets
	ID=$(cut -f2 id.txt)
	E=$PWD/board/leaflets
}

# answer KEY=VALUE...: stands in for ng-train in a pipe
answer() {
	"$NG_BUILD/t/answer" "$@"
}

# update SITE [KEY=VALUE...]: a round of one site
update() {
	local site=$1
	shift
	ng-pull -q -s "$site" | answer "site=$site" "seed=$(printf '%d' "'${site: -1}")" "$@" | ng-push -q -s "$site"
}

# aggregate: the coordinator's line
aggregate() {
	ng-pull -q --updates | ng-aggregate -q | ng-push -q --global
}

# round SITE...: updates of these sites and the next global
round() {
	for s in "$@"; do update "$s" || return 1; done
	aggregate
}

# objects: every object of the board, one a line
objects() {
	(cd "$E" && find . -path ./tmp -prune -o -name signature -print | sort)
}

# litter: what writers left behind
litter() {
	find "$E/tmp" -mindepth 1 2>/dev/null
}

# flip FILE OFFSET: change one bit
flip() {
	local byte
	chmod u+w "$1"
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059
	printf "\\$(printf '%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# quick FAULTS: what a storm fails in the fast tier; with NG_FULL, all it was set to
quick() {
	[ -n "${NG_FULL:-}" ] || FAULTS=$1
}
