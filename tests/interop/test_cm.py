# SPDX-License-Identifier: BSD-2-Clause
"""Verbena and Soft-RoCE connect through the connection manager. The path MTU is that of the interfaces."""
import pytest

import cm

LINK_MTU = {1024: 1500, 4096: 4200}


@pytest.fixture(scope="module", params=[1024, 4096], autouse=True)
def path_mtu(request, network, guest):
    network.set_mtu(LINK_MTU[request.param])
    guest.set_mtu(LINK_MTU[request.param])
    yield request.param
    network.set_mtu(LINK_MTU[4096])
    guest.set_mtu(LINK_MTU[4096])


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "link-local"])
@pytest.mark.parametrize("size", [64, 65535])
def test_rping(pair, family, size):
    cm.rping(pair, family, size)


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_ucmatose(pair, family):
    cm.ucmatose(pair, "-c", 4, "-C", 10, "-S", 65536, family=family)


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_udaddy(pair, family, path_mtu):
    cm.udaddy(pair, "-c", 2, "-C", 5, "-S", path_mtu, family=family)


@pytest.mark.parametrize("size", [1, 4097, 1 << 20])
def test_rstream(pair, size):
    cm.rstream(pair, size)


@pytest.mark.parametrize("program, size", [("ib_write_bw", 1 << 20), ("ib_send_bw", 4097), ("ib_read_bw", 65536)])
def test_perftest(pair, program, size):
    cm.perftest(pair, program, size)


def test_nobody_listens(pair):
    """REJ, and no retries."""
    cm.refused(pair)
