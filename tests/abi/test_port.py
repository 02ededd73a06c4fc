# SPDX-License-Identifier: BSD-2-Clause
"""The port's state and its events follow the interface, whoever waits for them and however."""
import pathlib
import re

import pytest

import hosts

WATCH = hosts.BUILD / "bin" / "port_watch"

ACTIVE = "state 4, physical state 5"  # IBV_PORT_ACTIVE, LinkUp
DISABLED = "state 1, physical state 3"
POLLING = "state 1, physical state 2"


def lines(program, count):
    program.wait_until(lambda: program.output().count("\n") >= count, f"at its line {count}")
    return program.output().splitlines()


@pytest.mark.parametrize("mode", ["sleep", "spin"])
def test_both_ends_of_a_link_see_it_go_down_and_up(own_veth, mode):
    first, second = own_veth.hosts(4)
    with first.start(WATCH, mode) as here, second.start(WATCH, mode) as there:
        assert lines(here, 1) == lines(there, 1) == [f"open: {ACTIVE}"]
        own_veth.make("ip link set veth0 down")
        assert lines(here, 2)[1:] == [f"port error: {DISABLED}"]
        assert lines(there, 2)[1:] == [f"port error: {POLLING}"]
        own_veth.make("ip link set veth0 up")
        assert lines(here, 3)[2:] == lines(there, 3)[2:] == [f"port active: {ACTIVE}"]


def test_an_interface_that_disappears(own_veth):
    with own_veth.hosts(4)[0].start(WATCH) as here:
        lines(here, 1)
        own_veth.make("ip link del veth0")
        assert lines(here, 2)[1:] == [f"port error: {DISABLED}"]


def test_asyncwatch_and_devinfo(own_veth):
    first, second = own_veth.hosts(4)
    with first.start("stdbuf", "-oL", "ibv_asyncwatch") as watch:
        lines(watch, 1)
        own_veth.make("ip link set veth0 down", "ip link set veth0 up")
        assert [line.strip() for line in lines(watch, 3)[1:]] == \
            ["event_type IBV_EVENT_PORT_ERR (10), port 1", "event_type IBV_EVENT_PORT_ACTIVE (9), port 1"]
    own_veth.make("ip link set veth0 down")
    text = second.run("ibv_devinfo", "-v")
    assert re.search(r"state:\s+PORT_DOWN \(1\)", text) and re.search(r"phys_state:\s+POLLING \(2\)", text)


def switches(program):
    """How often Verbena's thread has slept. None: it has not come up yet."""
    for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir():
        if hosts.read(task / "comm").strip() == "verbena":
            return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", hosts.read(task / "status"), re.M)[1])
    return None


def test_other_interfaces_do_not_wake_it(own_veth):
    with own_veth.hosts(4)[0].start(WATCH) as here:
        lines(here, 1)
        here.wait_until(lambda: switches(here) is not None, "with a thread")
        before = switches(here)
        own_veth.make(*(f"ip link add a{i} up type veth peer name b{i} && ip link del a{i}" for i in range(30)))
        own_veth.make("ip link set veth0 down")
        assert lines(here, 2)[1:] == [f"port error: {DISABLED}"]
        # 60 interfaces are announced twice each at least
        assert switches(here) - before < 30
