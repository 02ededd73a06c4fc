#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# fuzz.sh BUILD SECONDS - runs every libFuzzer target of a build for SECONDS seconds each, beginning
# with its corpus in fuzz/corpus/<target>; what is found on the way stays in BUILD/fuzz/<target>.
set -eu
build=$1 seconds=$2
found=0
for program in "$build"/bin/fuzz_*; do
	[ -x "$program" ] || continue
	found=1
	name=$(basename "$program")
	work=$build/fuzz/$name
	seeds=fuzz/corpus/${name#fuzz_}
	mkdir -p "$work"
	[ -d "$seeds" ] || seeds=
	echo "fuzz: $name for $seconds s"
	"$program" -max_total_time="$seconds" -artifact_prefix="$work/" -verbosity=0 -print_final_stats=1 \
		"$work" $seeds 2>&1 | tail -n 20 >"$work.log" || true
	if ! grep -q '^stat::number_of_executed_units' "$work.log" || ls "$work"/crash-* "$work"/timeout-* >/dev/null 2>&1; then
		cat "$work.log"
		echo "fuzz: $name failed; its input is in $work" >&2
		exit 1
	fi
	grep -E 'number_of_executed_units|new_units_added' "$work.log"
done
[ $found = 1 ] || { echo "fuzz: no fuzz targets in $build/bin" >&2; exit 1; }
