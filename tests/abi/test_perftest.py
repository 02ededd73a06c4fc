# SPDX-License-Identifier: BSD-2-Clause
"""perftest, as Debian ships it, with the options that issue trackers are full of.

Each run must succeed on both sides and print, for each size, the iterations that were asked for and
a bandwidth or latency above zero. Iterations are few: whether it works, not how fast.
"""
import pytest

import hosts

ALL_SIZES = [2 << k for k in range(23)]  # -a: 2 B to 8 MiB

# (program, its arguments that say what it measures)
KINDS = [
    ("ib_write_bw", ()), ("ib_write_lat", ()),
    ("ib_write_bw", ("-c", "UC")), ("ib_write_lat", ("-c", "UC")),
    ("ib_read_bw", ()), ("ib_read_lat", ()),
    ("ib_send_bw", ()), ("ib_send_lat", ()),
    ("ib_send_bw", ("-c", "UC")), ("ib_send_lat", ("-c", "UC")),
    ("ib_send_bw", ("-c", "UD")), ("ib_send_lat", ("-c", "UD")),
    ("ib_atomic_bw", ("-A", "FETCH_AND_ADD")), ("ib_atomic_lat", ("-A", "FETCH_AND_ADD")),
    ("ib_atomic_bw", ("-A", "CMP_AND_SWAP")), ("ib_atomic_lat", ("-A", "CMP_AND_SWAP")),
]


def options_of(program, kind):
    """The variants that apply: -q and -b to bandwidth, -e where a completion is waited for, inline to
    what sends data, -a to what has a size (a UD message has at most one packet)."""
    bandwidth = program.endswith("_bw")
    unconnected = "UD" in kind
    yield "gid0", ("-x", "0")
    # perftest measures the processor's clock for a quarter of a second at each size, so this is where
    # the time of this file goes; it is the plain run with GID 1 as well.
    if "atomic" not in program and not unconnected:
        yield "all", ("-x", "1", "-a")
    else:
        yield "gid1", ("-x", "1")
    if bandwidth:
        yield "8qp", ("-x", "1", "-q", "8")
        yield "both-ways", ("-x", "1", "-b")
    if "ib_write" not in program:
        yield "events", ("-x", "1", "-e")
    if program.startswith(("ib_write", "ib_send")):
        yield "inline", ("-x", "1", "--inline_size=64", "-s", "64")


CASES = [pytest.param(program, kind, options, id="-".join([program, *kind[1:], name]))
         for program, kind in KINDS for name, options in options_of(program, kind)]


def expected_sizes(program, kind, options):
    if "-a" in options:
        return ALL_SIZES
    if "atomic" in program:
        return [8]
    if "-s" in options:
        return [64]
    if program.endswith("_lat"):
        return [2]
    return [4096 if "UD" in kind else 65536]


def check(output, program, sizes, iterations):
    rows = hosts.perftest_rows(output)
    assert [row[0] for row in rows] == sizes, output
    for row in rows:
        assert row[1] == iterations, output
        if program.endswith("_bw"):
            assert row[3] > 0, f"average bandwidth\n{output}"
        else:
            assert row[4] > 0, f"typical latency\n{output}"


@pytest.mark.parametrize("program, kind, options", CASES)
def test_perftest(pair, program, kind, options):
    iterations = 10 if "-a" in options else 100
    arguments = ["-F", *kind, *options, "-n", iterations]
    server, client = hosts.run_pair(*pair, program, *arguments, limit=90)
    queue_pairs = 8 if "-q" in options else 1
    check(client, program, expected_sizes(program, kind, options), iterations * queue_pairs)
