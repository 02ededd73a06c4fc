# SPDX-License-Identifier: BSD-2-Clause
"""Connections when packets are lost: one in 50, each way; then each kind of message of the connection manager, once."""
import pytest

import cm
import hosts
import peer


def udaddy_without_answer(pair):
    """As cm.udaddy, but for a guest that serves. Its kernel takes the SIDR_REQ that comes again for one more
    request, and udaddy, which has sent its answer and waits for data, does not see it. So what must come is the
    kernel's refusal of that request, when udaddy has ended; it ends our client."""
    if not pair[0].is_guest:
        return cm.udaddy(pair)
    before = pair[0].cm_received("sidr_req")
    with hosts.rdma_server(pair[0], "udp", cm.UDADDY_PORT, "udaddy", "-b", pair[0].own("ipv4")) as server, \
            pair[1].start("udaddy", "-s", pair[1].other("ipv4")) as client:
        server.wait_until(lambda: pair[0].cm_received("sidr_req") >= before + 2, "asked twice")
        server.kill()
        assert client.wait() != 0
        assert "RDMA_CM_EVENT_UNREACHABLE" in client.output(), client.output()


LOST_ONCE = {
    # message: the run in which it is sent
    "REQ": cm.rping, "REP": cm.rping, "RTU": cm.rping, "DREQ": cm.ucmatose, "DREP": cm.ucmatose,
    "SIDR_REQ": cm.udaddy, "SIDR_REP": udaddy_without_answer,
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
    pytest.param(lambda pair: cm.perftest(pair, "ib_write_bw", 65536, 20), id="perftest"),
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
