# SPDX-License-Identifier: BSD-2-Clause
"""Debian's ibv_*_pingpong: every type of queue pair, polling and sleeping, both GIDs, everywhere."""
import re

import pytest

import hosts

PROGRAMS = {
    "ibv_rc_pingpong": ("-s", "70000"),   # many packets a message
    "ibv_uc_pingpong": ("-s", "4096"),
    "ibv_ud_pingpong": ("-s", "1024"),    # one packet a message
    "ibv_srq_pingpong": ("-s", "4096", "-q", "8"),
}
ITERATIONS = 200


def check(output, size):
    """The sums that each side prints: every message went there and back, and arrived whole."""
    moved = re.search(r"^(\d+) bytes in [\d.]+ seconds = ([\d.]+) Mbit/sec$", output, re.M)
    rounds = re.search(r"^(\d+) iters in [\d.]+ seconds = ([\d.]+) usec/iter$", output, re.M)
    assert moved and rounds, output
    assert int(moved[1]) == size * ITERATIONS * 2
    assert int(rounds[1]) == ITERATIONS
    assert float(moved[2]) > 0
    assert "invalid data" not in output


@pytest.mark.parametrize("gid", [0, 1])
@pytest.mark.parametrize("how", ["polling", "events"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_pingpong(pair, program, how, gid):
    arguments = [*PROGRAMS[program], "-n", ITERATIONS, "-g", gid, "-c", *(["-e"] if how == "events" else [])]
    size = int(PROGRAMS[program][1])
    for output in hosts.run_pair(*pair, program, *arguments):
        check(output, size)


@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_every_path_mtu(loopback, mtu):
    for output in hosts.run_pair(*loopback, "ibv_rc_pingpong", "-g", 1, "-m", mtu, "-n", ITERATIONS,
                                 "-s", 10001, "-c"):
        check(output, 10001)


def test_the_new_way_to_post(loopback):
    """-N posts through struct ibv_qp_ex."""
    for output in hosts.run_pair(*loopback, "ibv_rc_pingpong", "-g", 1, "-N", "-n", ITERATIONS, "-s", 4096, "-c"):
        check(output, 4096)
