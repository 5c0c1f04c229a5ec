#!/bin/sh
# make layers: every #include "..." points the way that CONTRIBUTING.md allows.
cd "$(dirname "$0")/.." || exit 1
grep -n '^#include "' common/*/*.[ch] cmd/*.c kernels/*.[ch] 2>/dev/null | awk -F: '
	function bad(why) { print $1 ":" $2 ": " why ": " to; n++ }
	{
		from = $1; to = $3; sub(/^#include "/, "", to); sub(/".*/, "", to)
		split(from, f, "/"); split(to, t, "/")
		if (to == "config.h" || to !~ /\//) { if (f[1] != "kernels" || to !~ /\.cl\.h$/) bad("not from the root"); next }
		if (t[1] == "cmd" || t[1] == "t") { bad("nothing includes it"); next }
		if (f[1] == "kernels") { if (t[1] != "kernels") bad("kernels include kernels alone"); next }
		if (f[1] == "cmd") next
		if (t[1] == "kernels") { if (f[2] == "base") bad("base knows no kernels"); next }
		if (f[2] == t[2] || t[2] == "base") next
		if (f[2] == "base") { bad("base includes base alone"); next }
		if (f[2] == "tensor") { bad("tensor includes base alone"); next }
		if ((f[2] == "text" || f[2] == "model" || f[2] == "fed" || f[2] == "rank") && (t[2] == "board" || t[2] == "trust"))
			bad("knows neither board nor trust")
	}
	END { if (n) exit 1; print NR " includes, every one allowed" }'
for f in common/*/*.[ch] cmd/*.c; do
	[ -e "$f" ] || continue
	first=$(grep -m 1 '^#include ' "$f")
	case $first in
	*'"common/base/compat.h"'*) ;;
	*'<'*|*) case $f in
		common/base/compat.h) ;;
		*.h) ;;
		*) echo "$f: the first include is not common/base/compat.h: $first" && exit 1 ;;
		esac ;;
	esac
done
