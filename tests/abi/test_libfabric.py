# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's verbs provider: message endpoints, reliable datagrams over them (rxm), datagrams over UD and
reliable ones over those (rxd). The provider takes no loopback interface, so the hosts are namespaces."""
import re

import pytest

import hosts
from counters import moves

# (endpoint type, provider): fi_info shows them, and fi_pingpong runs over them
ENDPOINTS = [("msg", "verbs"), ("rdm", "verbs;ofi_rxm"), ("dgram", "verbs"), ("rdm", "verbs;ofi_rxd")]
SIZES = {"64": 64, "256": 256, "1k": 1 << 10, "4k": 4 << 10, "64k": 64 << 10, "1m": 1 << 20}
PROTOCOLS = {"verbs": {"FI_EP_MSG": "FI_PROTO_RDMA_CM_IB_RC", "FI_EP_DGRAM": "FI_PROTO_IB_UD"},
             "verbs;ofi_rxm": {"FI_EP_RDM": "FI_PROTO_RXM"}, "verbs;ofi_rxd": {"FI_EP_RDM": "FI_PROTO_RXD"}}


@pytest.fixture(params=[4, 6], ids=["ipv4", "ipv6"])
def ends(request, veth):
    return veth.hosts(request.param)


def read_infos(output):
    """Each provider that fi_info printed, with its lines as a dict."""
    for text in re.split(r"^provider: ", output, flags=re.M)[1:]:
        provider, *lines = text.splitlines()
        yield provider, dict(line.strip().split(": ", 1) for line in lines if ": " in line)


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_fi_info(ends, provider):
    """Without a node the verbs provider looks for devices by the address of localhost."""
    found = {}
    for name, facts in read_infos(ends[0].run("fi_info", "-p", provider)):
        if name == provider:
            assert facts["domain"] in ("verbena0", "verbena0-dgram")
            found[facts["type"]] = facts["protocol"]
    assert found == PROTOCOLS[provider]


@pytest.mark.parametrize("endpoint, provider", ENDPOINTS)
def test_fi_pingpong(ends, endpoint, provider):
    """With -c the data are compared. They went through the device: its counters moved."""
    server_host, client_host = ends
    port = hosts.free_port()
    family = ["-6"] if ":" in server_host.address else []
    command = ("fi_pingpong", *family, "-e", endpoint, "-p", provider, "-c", "-I", 5)
    sizes = list(SIZES)[:4] if endpoint == "dgram" else list(SIZES)  # a datagram is one packet
    octets = 5 * sum(SIZES[size] for size in sizes)
    with moves(server_host, octets), server_host.start(*command, "-B", port) as server:
        server.wait_listening(port)
        with client_host.start(*command, "-P", port, server_host.address) as client:
            outputs = hosts.succeed_both(server, client)
    for output in outputs:
        rows = [line.split()[:3] for line in output.splitlines() if "=5" in line]
        assert rows == [[size, "5", "=5"] for size in sizes], output
