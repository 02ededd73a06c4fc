# SPDX-License-Identifier: BSD-2-Clause
"""perftest, as Debian ships it, with the options that issue trackers are full of.

Each run must succeed on both sides and print, for each size, the iterations that were asked for and
a bandwidth or latency above zero. Iterations are few: whether it works, not how fast.
"""
import pytest

import hosts

pytestmark = pytest.mark.alone

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
    """The variants that apply: -a but to atomics (8 bytes) and UD (one packet), -q and -b to bandwidth,
    -e where a completion is waited for, inline to what sends data. Both GIDs have their turn with each
    program and type. perftest measures the processor's clock for a quarter of a second at each size
    (twice in *_lat), so that -a takes 7 to 13 s: most of this file's time."""
    if "atomic" in program or "UD" in kind:
        yield "gid1", ("-x", "1")
    else:
        yield "all", ("-x", "1", "-a")
    if program.endswith("_bw"):
        yield "8qp", ("-x", "0", "-q", "8")
        yield "both-ways", ("-x", "1", "-b")
    if not program.startswith("ib_write"):
        yield "events", ("-x", "0", "-e")
    if program.startswith(("ib_write", "ib_send")):
        yield "inline", ("-x", "0", "--inline_size=64", "-s", "64")


def is_worth_its_time(topology, program, name):
    """Over IPv6 -a runs with the bandwidth programs, which send the same sizes in half the time."""
    return not (topology.endswith("ipv6") and name == "all" and program.endswith("_lat"))


CASES = [pytest.param(topology, program, kind, options, id="-".join([topology, program, *kind[1:], name]))
         for topology in hosts.TOPOLOGIES for program, kind in KINDS
         for name, options in options_of(program, kind) if is_worth_its_time(topology, program, name)]


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
            # Two decimals of MB/s: a few bytes may show as nothing.
            assert row[4] > 0 and (row[3] > 0 or row[0] < 4096), f"rate and bandwidth\n{output}"
        else:
            assert row[4] > 0, f"typical latency\n{output}"


@pytest.mark.parametrize("pair, program, kind, options", CASES, indirect=["pair"])
def test_perftest(pair, program, kind, options):
    iterations = 10 if "-a" in options else 100
    arguments = ["-F", *kind, *options, "-n", iterations]
    server, client = hosts.run_pair(*pair, program, *arguments, limit=90)
    queue_pairs = 8 if "-q" in options else 1
    check(client, program, expected_sizes(program, kind, options), iterations * queue_pairs)
