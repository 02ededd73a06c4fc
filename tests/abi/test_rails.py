# SPDX-License-Identifier: BSD-2-Clause
"""Hosts with two adapters each (rails): programs choose one by name or by address, and each has its
own GUID, GIDs, processes and counters."""
import contextlib
import json
import os
import re

import pytest

import hosts

COUNT = """
import ctypes, json
ctypes.CDLL("libibverbs.so.1")
print(json.dumps([int(open(f"/sys/class/infiniband/{device}/ports/1/counters/port_xmit_packets").read())
                  for device in ("verbena0", "verbena1")]))
"""


@pytest.fixture
def rails(loopback):
    """Two hosts, each with an address of its own on both rails."""
    base = [host.address.rpartition(".")[0] for host in loopback]
    first, second = ([f"{base[i]}.{n}" for n in (20 + i, 40 + i)] for i in range(2))
    return tuple(hosts.Host(",".join(addresses)) for addresses in (first, second))


def address(host, rail):
    return host.address.split(",")[rail]


@contextlib.contextmanager
def counting(host):
    """Who keeps both devices open, so that what was counted stays; yields a function that says how
    many packets each device has sent."""
    with host.start("ibv_asyncwatch", "-d", "verbena0") as zero, host.start("ibv_asyncwatch", "-d", "verbena1") as one:
        for holder in zero, one:
            holder.wait_until(lambda: "async event" in holder.output(), "holding the device")
        yield lambda: json.loads(host.run("/usr/bin/python3", "-c", COUNT))


def run_on(rails, rail, peer_rail, *command):
    """The server on one rail of the first host, the client on one of the second."""
    port = hosts.free_port()
    with rails[0].start(command[0], "-p", port, "-d", f"verbena{rail}", *command[1:]) as server:
        server.wait_listening(port)
        with rails[1].start(command[0], "-p", port, "-d", f"verbena{peer_rail}", *command[1:],
                            rails[0].reach) as client:
            hosts.succeed_both(server, client)


@pytest.mark.parametrize("rail, peer_rail", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_perftest_chooses_by_name(rails, rail, peer_rail):
    with counting(rails[0]) as server, counting(rails[1]) as client:
        before = [*server(), *client()]
        run_on(rails, rail, peer_rail, "ib_send_bw", "-F", "-x", "1", "-s", "1000", "-n", "100")
        moved = [after - was for was, after in zip(before, [*server(), *client()])]
    # the client sends a hundred messages, the server answers at least once; nobody else does anything
    assert moved[rail] > 0 and moved[2 + peer_rail] >= 100
    assert moved[1 - rail] == 0 and moved[3 - peer_rail] == 0


@pytest.mark.parametrize("program", ["ibv_rc_pingpong", "ibv_ud_pingpong"])
@pytest.mark.parametrize("rail", [0, 1])
def test_pingpong_chooses_by_name(rails, program, rail):
    run_on(rails, rail, rail, program, "-g", "1")


def test_processes_of_one_host_meet_on_each_rail(rails):
    both = (rails[0], rails[0])
    with counting(rails[0]) as count:
        before = count()
        run_on(both, 1, 1, "ib_write_bw", "-F", "-x", "1", "-s", "65536", "-n", "100")
        run_on(both, 1, 1, "ib_send_bw", "-F", "-x", "1", "-s", "1000", "-n", "100")
        after = count()
    assert after[0] == before[0] and after[1] - before[1] >= 100


def test_both_rails_at_once(rails):
    command = ("ib_write_bw", "-F", "-x", "1", "-s", "65536", "-n", "1000")
    ports = hosts.free_port(), hosts.free_port()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(rails[0].start(*command, "-p", ports[rail], "-d", f"verbena{rail}"))
                   for rail in range(2)]
        for server, port in zip(servers, ports):
            server.wait_listening(port)
        clients = [stack.enter_context(rails[1].start(*command, "-p", ports[rail], "-d", f"verbena{rail}",
                                                      rails[0].reach)) for rail in range(2)]
        for server, client in zip(servers, clients):
            hosts.succeed_both(server, client)


@pytest.mark.parametrize("rail", [0, 1])
def test_rping_reaches_both_addresses(rails, rail):
    """The server listens on all devices; the client names its own address, and with it the device."""
    port = hosts.free_port()
    with counting(rails[1]) as count, hosts.rdma_server(rails[0], "tcp", port, "rping", "-s", "-p", port) as server:
        before = count()
        client = rails[1].start("rping", "-c", "-C", "10", "-p", port, "-a", address(rails[0], rail),
                                "-I", address(rails[1], rail))
        with client:
            hosts.succeed_both(server, client)
        moved = [after - was for was, after in zip(before, count())]
    assert moved[rail] > 0 and moved[1 - rail] == 0


@pytest.fixture
def networks(own_veth):
    """Two hosts with two interfaces each, in two networks."""
    own_veth.make(f"ip link add veth1 mtu 9000 type veth peer name veth1 mtu 9000 netns {own_veth.pids[1]}")
    for i in range(2):
        own_veth.make(f"ip addr add 10.92.0.{i + 1}/24 dev veth1", "ip link set veth1 up", namespace=i)
    return tuple(hosts.Host(f"10.91.0.{i + 1},10.92.0.{i + 1}", enter=own_veth.enter(i)) for i in range(2))


@pytest.mark.parametrize("rail", [0, 1])
def test_the_route_chooses_the_device(networks, rail):
    """The client names neither device nor source address: it takes the interface that leads there."""
    port = hosts.free_port()
    with counting(networks[1]) as count, hosts.rdma_server(networks[0], "tcp", port, "rping", "-s", "-p", port) as server:
        before = count()
        with networks[1].start("rping", "-c", "-C", "10", "-p", port, "-a", address(networks[0], rail)) as client:
            hosts.succeed_both(server, client)
        moved = [after - was for was, after in zip(before, count())]
    assert moved[rail] > 0 and moved[1 - rail] == 0


def test_each_device_has_its_interface(networks):
    text = networks[0].run("/usr/bin/python3", "-c", """
import ctypes, os
ctypes.CDLL("libibverbs.so.1")
for device in "verbena0", "verbena1":
    print(device, *os.listdir(f"/sys/class/infiniband/{device}/device/net"))""")
    assert text == "verbena0 veth0\nverbena1 veth1\n"


def test_a_port_is_down_with_its_interface_alone(networks, own_veth):
    read = """
import ctypes
ctypes.CDLL("libibverbs.so.1")
for device in "verbena0", "verbena1":
    print(open(f"/sys/class/infiniband/{device}/ports/1/state").read(), end="")"""
    assert networks[0].run("/usr/bin/python3", "-c", read) == "4: ACTIVE\n4: ACTIVE\n"
    own_veth.make("ip link set veth1 down")
    assert networks[0].run("/usr/bin/python3", "-c", read) == "4: ACTIVE\n1: DOWN\n"
    assert re.findall(r"state:\s+PORT_(\w+)", networks[0].run("ibv_devinfo")) == ["ACTIVE", "DOWN"]


def test_rping_listens_on_one_rail_alone(rails):
    """Somebody must be alive on the other one to refuse, as on every host."""
    port = hosts.free_port()
    server = hosts.rdma_server(rails[0], "tcp", port, "rping", "-s", "-p", port, "-a", address(rails[0], 1))
    with counting(rails[0]), server as server:
        refused = rails[1].start("rping", "-c", "-C", "1", "-p", port, "-a", address(rails[0], 0))
        with refused:
            assert refused.wait() != 0
            assert "REJECTED" in refused.output() or "rejected" in refused.output()
        with rails[1].start("rping", "-c", "-C", "1", "-p", port, "-a", address(rails[0], 1)) as client:
            hosts.succeed_both(server, client)


def test_perftest_connects_by_address(rails):
    port = hosts.free_port()
    with counting(rails[0]) as count:
        before = count()
        command = ("ib_send_bw", "-F", "-R", "-x", "1", "-p", port, "-s", "1000", "-n", "100")
        with hosts.rdma_server(rails[0], "tcp", port, *command) as server:
            with rails[1].start(*command, address(rails[0], 1)) as client:
                hosts.succeed_both(server, client)
        moved = [after - was for was, after in zip(before, count())]
    assert moved[1] > 0 and moved[0] == 0


def test_the_management_library_shows_each(rails, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    text = rails[0].run("ibstat", "-l")
    assert text.split() == ["verbena0", "verbena1"]
    guids = re.findall(r"Node GUID: (0x[0-9a-f]{16})", rails[0].run("ibstat"))
    assert len(set(guids)) == 2
    assert f"Node GUID: {guids[1]}" in rails[0].run("ibstat", "verbena1")


def test_as_many_devices_as_addresses(loopback):
    base = loopback[0].address.rpartition(".")[0]
    sixteen = [f"{base}.{100 + i}" for i in range(16)]
    text = hosts.Host(",".join(sixteen)).run("ibv_devices")
    assert re.findall(r"^\s+(\S+)\s+[0-9a-f]{16}$", text, re.M) == [f"verbena{i}" for i in range(16)]
    last = hosts.Host(",".join(sixteen))
    run_on((last, last), 15, 15, "ib_write_bw", "-F", "-x", "1", "-n", "10")
    with hosts.Host(",".join([*sixteen, f"{base}.200"])).start("ibv_devices") as program:
        program.wait()
        assert "more than 16 addresses" in program.output()


def test_an_address_cannot_be_two_devices(loopback):
    twice = hosts.Host(f"{loopback[0].address},{loopback[0].address}")
    with twice.start("ibv_devices") as program:
        program.wait()
        assert "verbena0 already has" in program.output()
