# SPDX-License-Identifier: BSD-2-Clause
"""UCX, as Debian ships it: its transports on our devices, and each kind of test of ucx_perftest.

UCX finds the devices by /dev/infiniband and /sys/class/infiniband, which libibverbs shows it.
"""
import pytest

import hosts
from counters import moves
from ucx import LARGE, TESTS, perftest, transports_of

VERBS = "rc_verbs,ud_verbs,self"
UCT_TESTS = {"am_lat": "-s 64", "am_bw": "-s 64", "put_lat": "-s 64", "get": "-s 4096 -D zcopy", "fadd": "-s 8",
             "cswap": "-s 8"}


def test_ucx_info(pair):
    """Both of verbs' transports, on each device."""
    assert transports_of(pair[0].run("ucx_info", "-d")) == [("rc_verbs", "verbena0:1"), ("ud_verbs", "verbena0:1")]


@pytest.mark.parametrize("transports", [VERBS, "ud_verbs,self"])
def test_perftest(pair, transports, tmp_path):
    with moves(pair[0], 20 * 200000):
        perftest(pair, TESTS, tmp_path, UCX_TLS=transports)


def test_perftest_beside_shared_memory(loopback, tmp_path):
    """What goes through shared memory is UCX's own choice then, where it waits without giving the processor away."""
    tests = {name: how.replace("-n 100 -w 10", "-n 20 -w 2") for name, how in TESTS.items()}
    perftest((loopback[0], loopback[0]), tests, tmp_path, UCX_TLS=VERBS + ",sm")


@pytest.mark.parametrize("transport", ["rc_verbs", "ud_verbs"])
def test_perftest_below_ucp(pair, transport, tmp_path):
    """The transports by themselves; over UD there are messages alone."""
    tests = {name: f"{how} -n 100 -w 10" for name, how in UCT_TESTS.items() if transport != "ud_verbs" or "am" in name}
    perftest(pair, tests, tmp_path, "-x", transport, "-d", "verbena0:1")


# --- several devices ---------------------------------------------------------------------------------


@pytest.fixture
def two_devices(loopback):
    """Two hosts with two devices each."""
    return tuple(hosts.Host(f"{host.address},{host.address}{i}", reach=host.reach) for i, host in enumerate(loopback))


def test_a_device_is_picked_by_name(two_devices, tmp_path):
    server = two_devices[0]
    with moves(server, 0, "verbena0", ["Rcv"]), moves(server, 20 * 200000, "verbena1", ["Rcv"]):
        perftest(two_devices, {"tag_bw": LARGE}, tmp_path, UCX_TLS=VERBS, UCX_NET_DEVICES="verbena1:1")


def test_two_devices_share_a_long_message(two_devices, tmp_path):
    server = two_devices[0]
    with moves(server, 4 << 20, "verbena0", ["Rcv"]), moves(server, 4 << 20, "verbena1", ["Rcv"]):
        perftest(two_devices, {"tag_bw": f"-s {4 << 20} -n 4 -w 1"}, tmp_path, UCX_TLS=VERBS, UCX_MAX_RNDV_RAILS="2")
