# SPDX-License-Identifier: BSD-2-Clause
"""cm.py - runs of the programs that connect through librdmacm, for the tests with and without loss."""
import re

import hosts


def connect(pair, space, port, server, client, limit=60):
    """What the server and the client printed; both must succeed."""
    with hosts.rdma_server(pair[0], space, port, *server) as listening, pair[1].start(*client) as connecting:
        return hosts.succeed_both(listening, connecting, limit)


def rping(pair, family="ipv4", size=1000, count=10):
    """SEND, READ and WRITE both ways; -V: the client compares what comes back."""
    port = hosts.free_port()
    options = ("-p", port, "-S", size, "-C", count)
    server = ("rping", "-s", "-a", pair[0].own(family), *options, "-v")
    client = ("rping", "-c", "-a", pair[1].other(family), *options, "-V")
    output, _ = connect(pair, "tcp", port, server, client)
    assert len(re.findall(r"^server ping data: rdma-ping-\d+: ", output, re.M)) == count, output


def ucmatose(pair, *options, family="ipv4"):
    port = hosts.free_port()
    server = ("ucmatose", "-b", pair[0].own(family), "-p", port, *options)
    client = ("ucmatose", "-s", pair[1].other(family), "-p", port, *options)
    for output in connect(pair, "tcp", port, server, client):
        assert output.rstrip().endswith("test complete\nreturn status 0"), output


UDADDY_PORT = 7174  # it has no option for another


def udaddy(pair, *options, family="ipv4"):
    server = ("udaddy", "-b", pair[0].own(family), *options)
    client = ("udaddy", "-s", pair[1].other(family), *options)
    for output in connect(pair, "udp", UDADDY_PORT, server, client):
        assert "data transfers complete" in output and output.rstrip().endswith("return status 0"), output


def rstream(pair, size, *options, transfers=5, rounds=4):
    """-T v: both sides compare what they receive."""
    port = hosts.free_port()
    common = ("-p", port, "-S", size, "-C", transfers, "-I", rounds, "-T", "v", *options)
    server = ("rstream", "-b", pair[0].own("ipv4"), *common)
    client = ("rstream", "-s", pair[1].other("ipv4"), *common)
    for output in connect(pair, "tcp", port, server, client):
        assert re.search(r"^custom\s", output, re.M), output


def perftest(pair, program, size, iterations=10):
    """-R: perftest connects its queue pairs through the connection manager, RC alone."""
    port = hosts.free_port()
    common = (program, "-R", "-F", "-s", size, "-n", iterations, "-p", port,
              *(() if program.startswith("ib_write") else ("-e",)))
    _, client = connect(pair, "tcp", port, common, (*common, pair[1].other("ipv4")))
    assert [row[:2] for row in hosts.perftest_rows(client)] == [[size, iterations]], client


def refused(pair, limit=hosts.DEFAULT_LIMIT):
    """A port where nobody listens, on a host where somebody does on another: status 8 is the reason
    "invalid service ID"."""
    port, other = hosts.free_port(), hosts.free_port()
    listener = ("rping", "-s", "-a", pair[0].own("ipv4"), "-p", other)
    with hosts.rdma_server(pair[0], "tcp", other, *listener), \
            pair[1].start("rping", "-c", "-a", pair[1].other("ipv4"), "-p", port, "-C", 1) as client:
        assert client.wait(limit) != 0
        assert "RDMA_CM_EVENT_REJECTED, error 8" in client.output(), client.output()
