# SPDX-License-Identifier: BSD-2-Clause
"""MPI, as Debian ships it: Open MPI over UCX and over its btl openib, MPICH over UCX.

mpi_check, compiled with each one's own compiler wrapper, compares all results. Four ranks are on one virtual host,
or each on a host of its own; every transport but verbs is switched off, so that no other carries their messages.
"""
import os
import re
import subprocess

import pytest

import hosts

RANKS = 4
SOURCE = hosts.ROOT / "tests" / "programs" / "mpi_check.c"

# What each rank runs: its number, which the launcher has told it, makes its host.
RANK = ('i=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; shift $i; VERBENA_ADDR=$1; export VERBENA_ADDR; '
        f'shift $((4 - i)); exec "{hosts.VERBENA}" run -- "$@"')

OPENMPI = ("mpirun.openmpi", "--oversubscribe", "-n", RANKS)
# Each component that looks for adapters of its own vendor takes a second to find none.
NO_OTHERS = ("--mca", "mtl", "^ofi,psm,psm2")
UCX = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_LOG_LEVEL": "warn"}
# name: compiler, launcher, settings
KINDS = {
    "openmpi-ucx": ("mpicc.openmpi", (*OPENMPI, *NO_OTHERS, "--mca", "pml", "ucx", "--mca", "osc", "ucx",
                                      "--mca", "btl", "self"), UCX),
    # Debian builds it with the connection scheme that knows InfiniBand alone
    "openmpi-openib": ("mpicc.openmpi", (*OPENMPI, *NO_OTHERS, "--mca", "pml", "ob1", "--mca", "osc", "pt2pt",
                                         "--mca", "btl", "openib,self", "--mca", "btl_openib_allow_ib", 1,
                                         "--mca", "btl_openib_warn_no_device_params_found", 0), {"VERBENA_LID": "1"}),
    "mpich-ucx": ("mpicc.mpich", ("mpirun.mpich", "-n", RANKS), UCX),
}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mpi")
    for compiler in {kind[0] for kind in KINDS.values()}:
        subprocess.run([compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", folder / compiler, SOURCE], check=True)
    return folder


@pytest.fixture(params=["one-host", "four-hosts"])
def addresses(request):
    network = f"127.{32 + os.getpid() % 32}.{os.getpid() // 32 % 256}"
    return [f"{network}.{10 + (i if request.param == 'four-hosts' else 0)}" for i in range(RANKS)]


@pytest.mark.parametrize("kind", KINDS)
def test_four_ranks(addresses, compiled, kind):
    compiler, launcher, settings = KINDS[kind]
    command = ("timeout", "-k", 2, 50, *launcher, "sh", "-c", RANK, "sh", *addresses, compiled / compiler)
    # told to end, the launcher ends its ranks
    with hosts.Host(addresses[0]).start_plain(*command, **AS_ROOT, **settings) as program:
        output = program.succeed(60)
    checks = re.search(rf"^{RANKS} ranks, (\d+) checks$", output, re.M)
    assert checks and int(checks[1]) == expected_checks(), output
    assert "WARN" not in output.upper() and "ERROR" not in output, output


def expected_checks():
    """Per count of elements and rank: from and to each, bcast from each, allreduce, alltoall, put and a counter."""
    counts = [64 ** k for k in range(4) if 64 ** k <= 1 << 18]
    return sum(RANKS * (count * (3 * RANKS + 2) + 1) for count in counts)
