# SPDX-License-Identifier: BSD-2-Clause
"""Debian's programs over XRC: ibv_xsrq_pingpong, perftest with -c XRC, and rdma_xclient, which connects by
the connection manager.

One client: with more, ibv_xsrq_pingpong sends to each by the connections of the others, whose
processes would have to share an XRC domain.
"""
import pytest

import hosts

pytestmark = pytest.mark.alone

PERFTEST = [
    ("ib_send_bw", ("-b", "-q", "2")), ("ib_send_lat", ("-e",)), ("ib_write_bw", ()), ("ib_read_lat", ()),
    ("ib_atomic_bw", ("-A", "CMP_AND_SWAP")),
]


def test_xsrq_pingpong(pair):
    for output in hosts.run_pair(*pair, "ibv_xsrq_pingpong", "-g", 1, "-m", 1024, "-n", 100, "-s", 10001):
        assert output.rstrip().endswith("success"), output
        assert output.count("SRQN") == 2, output


@pytest.mark.parametrize("pair", ["one-host", "two-hosts"], indirect=True)
@pytest.mark.parametrize("program, options", PERFTEST, ids=[program for program, options in PERFTEST])
def test_perftest(pair, program, options):
    queue_pairs = 2 if "-q" in options else 1
    server, client = hosts.run_pair(*pair, program, "-F", "-c", "XRC", "-x", 1, "-n", 100, *options, limit=90)
    assert "Connection type : XRC" in client
    (row,) = hosts.perftest_rows(client)
    assert row[1] == 100 * queue_pairs, client
    assert row[4] > 0, client


@pytest.mark.parametrize("pair", ["one-host", "two-hosts"], indirect=True)
def test_connected_by_the_manager(pair):
    port = hosts.free_port()
    # xserver listens on IPv4 alone, and XRC is of the port space ib
    with hosts.rdma_server(pair[0], "ib", port, "rdma_xserver", "-p", port, "-c", "x") as listening, \
            pair[1].start("rdma_xclient", "-s", pair[0].reach, "-p", port, "-c", "x") as connecting:
        server, client = hosts.succeed_both(listening, connecting, hosts.DEFAULT_LIMIT)
    assert server == "rdma_xserver: start\nrdma_xserver: end 0\n"
    assert client == "rdma_xclient: start\nrdma_xclient: end 0\n"
