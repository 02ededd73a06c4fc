# SPDX-License-Identifier: BSD-2-Clause
"""Connections when packets are lost: one in 50, each way; then each kind of message of the connection manager, once."""
import pytest

import cm
import peer

LOST_ONCE = {
    # message: the run in which it is sent
    "REQ": cm.rping, "REP": cm.rping, "RTU": cm.rping, "DREQ": cm.ucmatose, "DREP": cm.ucmatose,
    "SIDR_REQ": cm.udaddy, "SIDR_REP": cm.udaddy,
}


@pytest.fixture
def lossy(network):
    with network.losing(peer.ONE_IN_50):
        yield


@pytest.mark.parametrize("run", [
    pytest.param(lambda pair: cm.rping(pair, "ipv4", 65535, 20), id="rping"),
    pytest.param(lambda pair: cm.rping(pair, "ipv6", 10000, 20), id="rping-ipv6"),
    pytest.param(lambda pair: cm.ucmatose(pair, "-c", 4, "-C", 10, "-S", 65536), id="ucmatose"),
    pytest.param(lambda pair: cm.rstream(pair, 65536), id="rstream"),
    pytest.param(lambda pair: cm.perftest(pair, "ib_write_bw", 65536, 50), id="perftest"),
])
def test_one_in_50(pair, lossy, run):
    run(pair)


@pytest.mark.parametrize("message", LOST_ONCE)
def test_lost_once(pair, network, message):
    with network.losing(peer.first_of(message)) as lost:
        LOST_ONCE[message](pair)
        assert sum(min(n, 1) for n in lost()) >= 1, lost()


def test_rejection_lost_once(pair, network):
    with network.losing(peer.first_of("REJ")) as lost:
        cm.refused(pair, limit=60)
        assert sorted(lost()) == [0, 1]
