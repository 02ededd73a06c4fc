#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# fuzz.sh BUILD SECONDS - runs every libFuzzer target of a build for SECONDS seconds each, beginning
# with its corpus in fuzz/corpus/<target>. What is new and worth keeping stays in
# BUILD/fuzz/<target>; an input that fails, in BUILD/fuzz/<target>.found. Ends by itself; not 0 when a
# target failed.
set -eu
build=$1 seconds=$2
# Each input makes and frees two NICs' objects: keeping 256 MB of them would mean a page fault at every turn.
: "${ASAN_OPTIONS:=quarantine_size_mb=4}"
export ASAN_OPTIONS
found=0
failed=0
for program in "$build"/bin/fuzz_*; do
	[ -x "$program" ] || continue
	found=1
	name=$(basename "$program")
	work=$build/fuzz/$name
	seeds=fuzz/corpus/${name#fuzz_}
	rm -rf "$work.found"
	mkdir -p "$work" "$work.found"
	[ -d "$seeds" ] || seeds=
	echo "fuzz: $name for $seconds s"
	# shellcheck disable=SC2086 # no seeds: no argument
	if "$program" -max_total_time="$seconds" -timeout=20 -artifact_prefix="$work.found/" \
		-verbosity=0 -print_final_stats=1 "$work" $seeds >"$work.log" 2>&1; then
		grep -E 'number_of_executed_units|new_units_added' "$work.log"
	else
		tail -n 60 "$work.log"
		echo "fuzz: $name failed; its input is in $work.found" >&2
		failed=1
	fi
done
[ $found = 1 ] || { echo "fuzz: no fuzz targets in $build/bin" >&2; exit 1; }
exit $failed
