#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# setup.sh - makes sure that the Debian packages which Verbena is built, run and tested with are there.
#
# As root it installs what is missing; otherwise it prints the one line that does, and fails.
# Quiet and quick when nothing is missing.
#
#      setup.sh            what `make test` and `make bench` need
#      setup.sh --build    what plain `make` needs
#      setup.sh --demo     what `make demo` needs: the build, and the programs that it shows
#      setup.sh --interop  also what tests/interop boots its guest with
#      setup.sh --list     prints all packages, one a line
set -eu

build='gcc libc6-dev cmake make pkg-config libibverbs-dev librdmacm-dev libibumad-dev libisal-dev libcmocka-dev python3'
shown='ibverbs-utils perftest procps util-linux'
tests='clang libclang-rt-14-dev python3-pytest python3-pytest-xdist python3-pyverbs openmpi-bin libopenmpi-dev mpich libmpich-dev librpma-dev binutils rdmacm-utils infiniband-diags iproute2 iperf3 sockperf qperf fio tgt libiscsi-bin qemu-utils qemu-block-extra libfabric-bin ucx-utils qemu-system-x86'
interop='busybox-static nftables ibverbs-providers'

case ${1:-} in
--list)
	printf '%s\n' $build $shown $tests $interop
	exit 0
	;;
--build) packages="$build" ;;
--demo) packages="$build $shown" ;;
--interop) packages="$build $shown $tests $interop" ;;
*) packages="$build $shown $tests" ;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "setup: this is not a Debian system, so nothing is installed for you; Verbena needs what these packages hold:"
	echo "  $packages"
	exit 0
fi

missing=
for package in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=none
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "setup: some packages are missing; install them with this line, then try again:" >&2
	echo "  sudo apt-get install -y --no-install-recommends$missing" >&2
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# quietly WHAT COMMAND... - says what happens, shows the command's output only when it fails
quietly() {
	what=$1
	shift
	echo "setup: $what"
	if ! "$@" >"$log" 2>&1; then
		tail -n 15 "$log" >&2
		return 1
	fi
}

export DEBIAN_FRONTEND=noninteractive
for package in $missing; do
	if ! apt-cache show "$package" >/dev/null 2>&1; then
		quietly "fetching the package lists" apt-get update -q
		break
	fi
done
# tgt would start its daemon; a test starts its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy; then
	trap 'rm -f "$log" $policy' EXIT
fi
install="apt-get install -y -q --no-install-recommends$missing"
if ! quietly "installing$missing" $install; then
	quietly "that failed; fetching the package lists anew" apt-get update -q
	quietly "installing once more" $install
fi
