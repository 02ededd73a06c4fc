# SPDX-License-Identifier: BSD-2-Clause
"""UCX, as Debian ships it: its transports on our devices, and each kind of test of ucx_perftest.

UCX finds the devices by /dev/infiniband and /sys/class/infiniband, which libibverbs shows it.
"""
import re

import pytest

import hosts
from counters import moves

VERBS = "rc_verbs,ud_verbs,self"
SMALL, LARGE = "-s 8 -n 100 -w 10", "-s 200000 -n 20 -w 2"  # LARGE is beyond what UCX sends eagerly
TESTS = {
    "tag_lat": SMALL, "tag_bw": LARGE, "tag_sync_lat": SMALL, "tag_sync_bw": LARGE,
    "stream_lat": SMALL, "stream_bw": LARGE, "ucp_am_lat": SMALL, "ucp_am_bw": LARGE,
    "ucp_put_lat": SMALL, "ucp_put_bw": LARGE, "ucp_get": LARGE,
    "ucp_add": SMALL, "ucp_fadd": SMALL, "ucp_swap": SMALL, "ucp_cswap": SMALL,
}
UCT_TESTS = {"am_lat": "-s 64", "am_bw": "-s 64", "put_lat": "-s 64", "get": "-s 4096 -D zcopy", "fadd": "-s 8",
             "cswap": "-s 8"}


def perftest(pair, tests, folder, *options, **environment):
    """Runs the tests one after another on one connection; both sides succeed, and each test says a rate."""
    batch = folder / "tests"
    batch.write_text("".join(f"{name} -t {name} {how}\n" for name, how in tests.items()))
    command = ("ucx_perftest", *options, "-b", batch, "-f", "-v", "-p", port := hosts.free_port())
    settings = {"UCX_LOG_LEVEL": "warn", **environment}
    with pair[0].start(*command, **settings) as server:
        server.wait_listening(port)
        with pair[1].start(*command, pair[0].reach, **settings) as client:
            _, output = hosts.succeed_both(server, client, 60)
    rows = [line.split(",") for line in output.splitlines() if re.match(r"\w+, *\d+,", line)]
    assert [row[0] for row in rows] == list(tests), output
    assert all(float(row[-1]) > 0 for row in rows), output
    assert "ERROR" not in output and "WARN" not in output, output


def test_ucx_info(pair):
    """Both of verbs' transports, on each device."""
    found = re.findall(r"Transport: (\w+_verbs)\n#\s+Device: (\S+)", pair[0].run("ucx_info", "-d"))
    assert found == [("rc_verbs", "verbena0:1"), ("ud_verbs", "verbena0:1")]


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
