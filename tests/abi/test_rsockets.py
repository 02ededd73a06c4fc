# SPDX-License-Identifier: BSD-2-Clause
"""Sockets over RDMA: Debian's programs for rsockets, and programs for TCP under librspreload."""
import ctypes
import json
import os
import subprocess
import textwrap

import pytest

import hosts

PRELOAD = hosts.BUILD / "lib" / "rsocket" / "librspreload.so"
PYTHON = "/usr/bin/python3"  # Debian's, which calls the C library as any program does


def pairs(cases):
    """Each case in each topology; a case is (its name, ...)."""
    return [pytest.param(topology, *case[1:], id=f"{topology}-{case[0]}")
            for topology in hosts.TOPOLOGIES for case in cases]


def place(host):
    """The address of its device: where TCP reaches it may be another one."""
    return host.address.split(",")[0]


def run_programs(pair, program, *arguments, limit=30):
    """A server that binds its own address, and a client; returns what both printed."""
    server_host, client_host = pair
    port = hosts.free_port()
    command = [program, "-p", port, *arguments]
    with hosts.rdma_server(server_host, "tcp", port, *command, "-b", place(server_host)) as server:
        with client_host.start(*command, "-s", place(server_host)) as client:
            return hosts.succeed_both(server, client, limit)


def check_row(output, size, transfers, iterations):
    """The one line of results: name, bytes, transfers, iterations, total, time, rate, latency."""
    rows = [line.split() for line in output.splitlines() if line.startswith("custom")]
    assert len(rows) == 1, output
    assert rows[0][1:4] == [size, str(transfers), str(iterations)], output
    assert len(rows[0]) == 8 and float(rows[0][6]) >= 0, output


# --- Debian's programs -------------------------------------------------------------------------

# Without an option the calls do not block and the program tries again at once.
RSTREAM = [
    ("one-byte", "1", "1", ()),
    ("small", "1000", "1000", ()),
    ("blocking", "5000", "4.8k", ("-T", "b")),
    ("polling", "5000", "4.8k", ("-T", "a")),
    ("polling-blocking", "65536", "64k", ("-T", "a", "-T", "b")),
    ("resolved", "5000", "4.8k", ("-T", "r", "-T", "b")),
    ("large", "1000000", "976k", ("-T", "b")),
    ("small-buffer", "100000", "97k", ("-T", "b", "-B", "3000")),
    ("large-buffer", "1000000", "976k", ("-T", "a", "-B", "4000000")),
    ("keepalive", "1000", "1000", ("-T", "b", "-k", "1")),
]


@pytest.mark.parametrize("pair, bytes_, size, options", pairs(RSTREAM), indirect=["pair"])
def test_rstream(pair, bytes_, size, options):
    arguments = ("-S", bytes_, "-C", 10, "-I", 4, "-T", "v", *options)
    for output in run_programs(pair, "rstream", *arguments):
        check_row(output, size, 10, 4)


@pytest.mark.parametrize("options", [("-T", "s"), ("-T", "f")], ids=["sockets", "fork"])
def test_rstream_without_rsockets(loopback, options):
    """Its options for ordinary sockets: our library is loaded and stays out of the way."""
    server_host, client_host = loopback
    port = hosts.free_port()
    arguments = ("rstream", "-p", port, "-S", 1000, "-C", 10, "-I", 4, "-T", "v", *options)
    with server_host.start(*arguments) as server:
        server.wait_listening(port)
        with client_host.start(*arguments, "-s", place(server_host)) as client:
            check_row(client.succeed(), "1000", 10, 4)
            server.succeed()


RIOSTREAM = [
    ("small", "100", "100", ()),
    ("blocking", "5000", "4.8k", ("-T", "b")),
    ("polling", "65536", "64k", ("-T", "a")),
    ("large", "1000000", "976k", ("-T", "a", "-T", "b")),
]


@pytest.mark.parametrize("pair, bytes_, size, options", pairs(RIOSTREAM), indirect=["pair"])
def test_riostream(pair, bytes_, size, options):
    arguments = ("-S", bytes_, "-C", 3, "-I", 4, "-T", "v", *options)
    for output in run_programs(pair, "riostream", *arguments):
        check_row(output, size, 3, 4)


@pytest.mark.parametrize("pair", [name for name in hosts.TOPOLOGIES if "ipv6" not in name], indirect=True)
def test_rcopy(pair, tmp_path):
    """Not by IPv6: what follows the first colon is a file's name to rcopy."""
    server_host, client_host = pair
    port = hosts.free_port()
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(3_000_001))
    with hosts.rdma_server(server_host, "tcp", port, "rcopy", "-p", port):
        client_host.run("rcopy", source, f"{place(server_host)}:{copy}", "-p", port)
    assert copy.read_bytes() == source.read_bytes()


UDPONG = [
    ("echo", ("-S", "500", "-T", "e")),
    ("one-way", ("-S", "900")),
    ("polling", ("-S", "100", "-T", "a", "-T", "e")),
    ("not-blocking", ("-S", "64", "-T", "n", "-T", "e")),
]


@pytest.mark.parametrize("pair, options", pairs(UDPONG), indirect=["pair"])
def test_udpong(pair, options):
    """Datagrams may be lost, and the program sends them again where it wants an answer to each. Its
    server never ends."""
    server_host, client_host = pair
    port = hosts.free_port()
    with server_host.start("udpong", "-p", port, "-b", place(server_host), *options[2:]) as server:
        server.wait_until(lambda: server.binds(port), f"bound to UDP port {port}")
        output = client_host.run("udpong", "-p", port, "-C", 100, *options, "-s", place(server_host))
    rows = [line.split() for line in output.splitlines() if line.startswith("custom")]
    assert len(rows) == 1 and rows[0][1] == options[1], output
    if "e" in options:
        assert int(rows[0][2]) >= 200, output  # there and back


@pytest.mark.parametrize("same", [True, False], ids=["one-host", "two-hosts"])
def test_killed_peer_is_noticed(loopback, same):
    """The client waits for an answer with nothing of its own under way, and the server is killed."""
    server_host = loopback[0]
    client_host = server_host if same else loopback[1]
    port = hosts.free_port()
    arguments = ("rstream", "-p", port, "-T", "b", "-I", 100_000_000, "-C", 1)
    with hosts.rdma_server(server_host, "tcp", port, *arguments, "-b", place(server_host)) as server:
        with client_host.start(*arguments, "-s", place(server_host)) as client:
            ticks = client.cpu_ticks()
            client.wait_until(lambda: client.cpu_ticks() > ticks + 5, "exchanging")
            server.kill()
            assert client.wait(60) != 0, client.output()
            assert "Connection" in client.output()


# --- under librspreload ------------------------------------------------------------------------


def preloaded(*command):
    return "env", f"LD_PRELOAD={PRELOAD}", *command


def python(script, *arguments):
    return PYTHON, "-c", textwrap.dedent(script), *arguments


GENUINE = """accept bind close connect dup2 fcntl getpeername getsockname getsockopt listen poll read readv
    recv recvfrom recvmsg select send sendfile sendmsg sendto setsockopt shutdown socket write writev""".split()


def test_what_is_intercepted():
    """Every call that Debian's librspreload stands before, at the name without a version, and no other
    name than those of the C library."""
    lines = subprocess.run(["nm", "-D", "--defined-only", PRELOAD], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1] for line in lines.splitlines()}
    assert names >= set(GENUINE)
    libc = ctypes.CDLL("libc.so.6")
    assert [name for name in names if not hasattr(libc, name)] == []


IPERF = [("up", ()), ("down", ("-R",)), ("four-streams", ("-P", "4"))]


@pytest.mark.parametrize("pair, options", pairs(IPERF), indirect=["pair"])
def test_iperf3(pair, options):
    server_host, client_host = pair
    port = hosts.free_port()
    with hosts.rdma_server(server_host, "tcp", port,
                           *preloaded("iperf3", "-s", "-1", "-p", port, "-B", place(server_host))) as server:
        assert not server.listens(port)
        command = preloaded("iperf3", "-c", place(server_host), "-p", port, "-n", "20M", "-J", *options)
        with client_host.start(*command) as client:
            _, output = hosts.succeed_both(server, client, 60)
    end = json.loads(output)["end"]
    sender = "sum_received" if "-R" in options else "sum_sent"
    assert end[sender]["bytes"] >= 20 * 2**20, output


ECHO = """
    import select, socket, sys
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    with socket.create_server((sys.argv[1], int(sys.argv[2])), family=family) as listener:
        connection, name = listener.accept()
    assert name[:2] == connection.getpeername()[:2]
    connection.setblocking(False)
    waiting, ended = b"", False
    while waiting or not ended:
        writable = [connection] if waiting else []
        ready = select.select([] if ended else [connection], writable, [], 20)
        assert any(ready), "nothing came for long"
        if ready[0]:
            piece = connection.recv(70000)
            waiting, ended = waiting + piece, not piece
        if ready[1]:
            waiting = waiting[connection.send(waiting):]
    connection.shutdown(socket.SHUT_WR)
    connection.close()
"""

CLIENT = """
    import os, select, socket, sys, tempfile
    SOL_RDMA, RDMA_SQSIZE = 0x10000, 0
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    data = os.urandom(1_000_003)
    stream = socket.socket(family, socket.SOCK_STREAM)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setblocking(False)
    stream.connect_ex((sys.argv[1], int(sys.argv[2])))
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    assert poll.poll(20000) == [(stream.fileno(), select.POLLOUT)]
    assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert stream.getsockopt(SOL_RDMA, RDMA_SQSIZE) == 384
    stream.setblocking(True)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        second = stream.dup()
        got, sent = b"", 0
        while len(got) < len(data):
            if sent < len(data):
                sent += os.sendfile(second.fileno(), file.fileno(), sent, 50000)
                if sent == len(data):
                    second.shutdown(socket.SHUT_WR)
            while sent == len(data) or select.select([stream], [], [], 0)[0]:
                piece = os.read(stream.fileno(), 100000)
                got += piece
                if not piece:
                    break
    assert got == data
    second.close()
    assert stream.recv(1) == b""
    stream.close()
    # what rsockets are not asked for stays as it is
    one, other = socket.socketpair()
    one.send(b"x")
    assert other.recv(1) == b"x"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.getsockopt(SOL_RDMA, RDMA_SQSIZE)
            raise AssertionError("a UDP socket became an rsocket")
        except OSError:
            pass
    print("all of it came back")
"""


def test_python_sockets(pair):
    server_host, client_host = pair
    port = hosts.free_port()
    with hosts.rdma_server(server_host, "tcp", port,
                           *preloaded(*python(ECHO, place(server_host), port))) as server:
        with client_host.start(*preloaded(*python(CLIENT, place(server_host), port))) as client:
            _, output = hosts.succeed_both(server, client, 60)
    assert output == "all of it came back\n"


FALLBACK = """
    import socket, sys
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=None) as stream:
        try:
            stream.getsockopt(0x10000, 0)
            raise AssertionError("it is an rsocket")
        except OSError:
            pass
        stream.sendall(b"by TCP")
        stream.shutdown(socket.SHUT_WR)
        assert stream.makefile("rb").read() == b"by TCP"
    print("fell back")
"""


def test_peer_without_rdma(pair):
    """Nobody listens on the RDMA port, as the connection manager there says: the socket under the rsocket
    connects by TCP."""
    server_host, client_host = pair
    port, other = hosts.free_port(), hosts.free_port()
    with hosts.rdma_server(server_host, "tcp", other, "rstream", "-p", other), \
            server_host.start(*python(ECHO, place(server_host), port)) as server:
        server.wait_listening(port)
        with client_host.start(*preloaded(*python(FALLBACK, place(server_host), port))) as client:
            _, output = hosts.succeed_both(server, client)
    assert output == "fell back\n"


def test_nothing_is_left(loopback):
    """Sockets that a program leaves open at its end deliver what was written, and go."""
    server_host, client_host = loopback
    port = hosts.free_port()
    script = """
        import os, socket, sys
        stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        stream.send(b"x" * 60000)
        stream.detach()
    """
    reader = """
        import socket, sys
        with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
            connection, _ = listener.accept()
        print(len(connection.makefile("rb").read()))
    """
    with hosts.rdma_server(server_host, "tcp", port,
                           *preloaded(*python(reader, place(server_host), port))) as server:
        with client_host.start(*preloaded(*python(script, place(server_host), port))) as client:
            output, _ = hosts.succeed_both(server, client)
    assert output == "60000\n"
