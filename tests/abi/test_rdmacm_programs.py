# SPDX-License-Identifier: BSD-2-Clause
"""Debian's rdmacm-utils, unmodified: what they say must be what they say on hardware.

Each program is a server on one host and a client on another. IPv6 is spoken by its address where the
program takes one.
"""
import contextlib
import re

import pytest

import hosts

PINGS = 3


def run(pair, space, port, server, client, limit=hosts.DEFAULT_LIMIT):
    """What the server and the client printed; both must succeed."""
    with hosts.rdma_server(pair[0], space, port, *server) as listening, pair[1].start(*client) as connecting:
        return hosts.succeed_both(listening, connecting, limit)


# --- rping: SEND, READ and WRITE, the data compared ----------------------------------------------


def pings(size, count):
    """What rping -v shows: a count, then a piece of the alphabet from A (0x41) to z that moves on by one
    each time; the last byte is a NUL."""
    shown = []
    for i in range(count):
        head = f"rdma-ping-{i}: "
        tail = "".join(chr(65 + (i + k) % 58) for k in range(size - 1 - len(head)))
        shown.append(head + tail)
    return shown


def rping(pair, port, *options):
    # Line by line: what it says of the connection comes by another stream, from another thread.
    server = ("stdbuf", "-oL", "rping", "-s", "-a", pair[0].address, "-p", port, *options)
    client = ("stdbuf", "-oL", "rping", "-c", "-a", pair[0].address, "-p", port, *options, "-C", PINGS)
    return run(pair, "tcp", port, server, client)


def test_rping(pair):
    _, client = rping(pair, hosts.free_port())
    assert client.strip() in ("client DISCONNECT EVENT...", "")  # as its thread gets there in time


def test_rping_to_localhost(veth):
    """As in the kernel: where no device has a loopback address, those name any device of this host."""
    for family, address in ((4, "127.0.0.1"), (6, "::1")):
        host, port = veth.hosts(family)[0], hosts.free_port()
        run((host, host), "tcp", port, ("rping", "-s", "-a", address, "-p", port, "-C", PINGS),
            ("rping", "-c", "-a", address, "-p", port, "-C", PINGS))


@pytest.mark.parametrize("size", [23, 100, 4097, 65535])
def test_rping_compares_the_data(pair, size):
    server, client = rping(pair, hosts.free_port(), "-v", "-V", "-S", size)
    assert re.findall(r"^ping data: (.*)$", client, re.M) == pings(size, PINGS)
    assert re.findall(r"^server ping data: (.*)$", server, re.M) == pings(size, PINGS)


def test_rping_with_its_own_queue_pair(pair):
    rping(pair, hosts.free_port(), "-q", "-V")


def test_rping_persistent_server_with_many_clients(pair):
    """Many at a time, but they connect one after another: Debian's rping forgets a request that comes
    while it looks at another."""
    port = hosts.free_port()
    command = ("stdbuf", "-oL", "rping", "-v", "-V", "-a", pair[0].address, "-p", port, "-S", 1000)
    with hosts.rdma_server(pair[0], "tcp", port, *command, "-s", "-P") as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            clients = []
            for _ in range(8):
                client = stack.enter_context(pair[1].start(*command, "-c", "-C", 100))
                client.wait_until(lambda client=client: "rdma-ping-0" in client.output(), "connected")
                clients.append(client)
            for client in clients:
                assert "rdma-ping-99: " in client.succeed()
        assert server.is_running(), server.output()


# --- ucmatose, udaddy: many connections, many sizes -----------------------------------------------


@pytest.mark.parametrize("options", [
    (), ("-c", 100, "-C", 4), ("-c", 4, "-C", 50, "-S", 65536), ("-C", 0), ("-t", 32, "-a", 16),
], ids=lambda options: "".join(map(str, options)) or "plain")
def test_ucmatose(pair, options):
    port = hosts.free_port()
    server = ("ucmatose", "-b", pair[0].address, "-p", port, *options)
    client = ("ucmatose", "-s", pair[0].address, "-p", port, *options)
    for output in run(pair, "tcp", port, server, client):
        assert output.endswith("test complete\nreturn status 0\n"), output


def test_ucmatose_migrates_to_another_channel(pair):
    port = hosts.free_port()
    server = ("ucmatose", "-b", pair[0].address, "-p", port, "-c", 8, "-m")
    client = ("ucmatose", "-s", pair[0].address, "-p", port, "-c", 8, "-m")
    for output in run(pair, "tcp", port, server, client):
        assert "migrating to new event channel" in output and output.endswith("return status 0\n"), output


@pytest.mark.parametrize("options", [(), ("-c", 20, "-C", 5, "-S", 1024), ("-S", 4096)],
                         ids=lambda options: "".join(map(str, options)) or "plain")
def test_udaddy(pair, options):
    server = ("udaddy", "-b", pair[0].address, *options)
    client = ("udaddy", "-s", pair[0].address, *options)
    for output in run(pair, "udp", 7174, server, client):
        assert "data transfers complete" in output and output.endswith("return status 0\n"), output


# --- datagrams through rsockets, multicast --------------------------------------------------------


@pytest.mark.parametrize("mode", ["b", "n", "a", "e"], ids=["blocking", "nonblocking", "async", "echo"])
def test_udpong(pair, mode):
    port = hosts.free_port()
    common = ("-p", port, "-T", mode, "-S", 1000, "-C", 200)
    with pair[0].start("udpong", "-b", pair[0].address, *common) as server:
        server.wait_until(lambda: server.binds(port), f"at UDP port {port}")
        with pair[1].start("udpong", "-s", pair[0].address, *common) as client:
            shown = client.succeed()
        assert server.is_running(), server.output()  # it serves for ever
    assert re.search(r"^custom\s+1000\s+\S+\s+\S+\s+\d+\.\d+s\s+\d+\.\d+\s+\d+\.\d+$", shown, re.M), shown


def test_mckey(pair):
    """It sleeps for three seconds after it has joined."""
    group = "ff15::45:7" if ":" in pair[0].address else "239.45.0.7"
    options = ("stdbuf", "-oL", "mckey", "-m", group, "-c", 4, "-C", 20, "-S", 512)
    with pair[0].start(*options, "-b", pair[0].address) as receiver:
        receiver.wait_until(lambda: receiver.output().count("joined") == 4, "in the group")
        with pair[1].start(*options, "-s", "-b", pair[1].address) as sender:
            for output in hosts.succeed_both(receiver, sender):
                assert "data transfers complete" in output, output


# --- the synchronous calls --------------------------------------------------------------------------


def test_rdma_client_and_server(pair):
    port = hosts.free_port()
    server, client = run(pair, "tcp", port, ("rdma_server", "-s", pair[0].address, "-p", port),
                         ("rdma_client", "-s", pair[0].address, "-p", port))
    assert server == "rdma_server: start\nrdma_server: end 0\n"
    assert client == "rdma_client: start\nrdma_client: end 0\n"


def test_rdma_xclient_and_xserver_over_rc(pair):
    port = hosts.free_port()
    # xserver listens on IPv4 alone
    server, client = run(pair, "tcp", port, ("rdma_xserver", "-p", port, "-c", "r"),
                         ("rdma_xclient", "-s", pair[0].reach, "-p", port, "-c", "r"))
    assert server == "rdma_xserver: start\nrdma_xserver: end 0\n"
    assert client == "rdma_xclient: start\nrdma_xclient: end 0\n"


# --- a thousand connections -------------------------------------------------------------------------


def test_cmtime_with_a_thousand_connections(pair):
    port = hosts.free_port()
    command = ("cmtime", "-p", port, "-c", 1000)
    with hosts.rdma_server(pair[0], "tcp", port, *command, "-b", pair[0].address) as server:
        with pair[1].start(*command, "-s", pair[0].address) as connecting:
            client = connecting.succeed(60)
        assert server.is_running(), server.output()  # it serves for ever
    steps = re.findall(r"^(\w[\w ]*?)\s*:(?:\s+\d+\.\d\d){4}$", client, re.M)
    assert steps == ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect",
                     "destroy"], client
