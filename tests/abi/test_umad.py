# SPDX-License-Identifier: BSD-2-Clause
"""Debian's infiniband-diags, and the libibmad beneath them: what they say about our devices, held
against ibv_devinfo; and the port's counters."""
import ipaddress
import os
import re

import pytest

import hosts
from counters import counters_of, counting, fields_of

ITERATIONS, SIZE = 100, 1000
PACKET_WORDS = (12 + SIZE + 4) // 4  # BTH, payload, ICRC
ACK_WORDS = (12 + 4 + 4) // 4  # BTH, AETH, ICRC


@pytest.fixture(autouse=True)
def administrators_programs(monkeypatch):
    """Debian has them where an ordinary user's PATH does not look."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")


def verbs_say(host):
    return fields_of(host.run("ibv_devinfo", "-v"))


def guid(text):
    """0123:4567:... of ibv_devinfo as the number that the others print."""
    return int(text.replace(":", ""), 16)


def gid_0(verbs):
    return ipaddress.IPv6Address(verbs["GID[  0]"].partition(",")[0])


def port_guid(verbs):
    return int(gid_0(verbs)) & (1 << 64) - 1


# --- ibstat ------------------------------------------------------------------------------------

def test_ibstat_agrees_with_ibv_devinfo(pair):
    verbs, text = verbs_say(pair[0]), pair[0].run("ibstat")
    stat = fields_of(text)
    assert "CA 'verbena0'" in text
    assert stat["Number of ports"] == verbs["phys_port_cnt"] == "1"
    assert stat["Firmware version"] == verbs["fw_ver"]
    assert int(stat["Hardware version"], 0) == int(verbs["hw_ver"], 0)
    assert int(stat["Node GUID"], 0) == guid(verbs["node_guid"])
    assert int(stat["System image GUID"], 0) == guid(verbs["sys_image_guid"])
    assert (stat["State"], verbs["state"]) == ("Active", "PORT_ACTIVE (4)")
    assert (stat["Physical state"], verbs["phys_state"]) == ("LinkUp", "LINK_UP (5)")
    assert stat["Base lid"] == verbs["port_lid"] == "0"
    assert stat["SM lid"] == verbs["sm_lid"] == "0"
    assert stat["LMC"] == "0"
    assert int(stat["Capability mask"], 0) == int(verbs["port_cap_flags"], 0)
    assert stat["Rate"] == "100"  # 4X of 25 Gb/s lanes
    assert (verbs["active_width"], verbs["active_speed"]) == ("4X (2)", "25.0 Gbps (32)")
    assert int(stat["Port GUID"], 0) == port_guid(verbs)
    assert stat["Link layer"] == verbs["link_layer"] == "Ethernet"


def test_ibstat_lists_devices_and_guids(loopback):
    both = hosts.Host(",".join(host.address for host in loopback))
    assert both.run("ibstat", "-l").split() == ["verbena0", "verbena1"]
    guids = [int(word, 0) for word in both.run("ibstat", "-p").split()]
    assert guids == [port_guid(verbs_say(host)) for host in loopback]
    assert "State: Active" in both.run("ibstat", "verbena1", "1")
    assert "CA 'verbena1'" not in both.run("ibstat", "verbena0")


def test_ibstat_does_not_find_what_is_not_there(loopback):
    with loopback[0].start("ibstat", "verbena9") as program:
        assert program.wait() != 0
        assert "'verbena9' IB device can't be found" in program.output()


# --- subnet management, asked by the host itself -----------------------------------------------

def test_ibaddr_shows_gid_0(pair):
    text = pair[0].run("ibaddr")
    shown = re.search(r"GID (\S+) LID start (\S+) end (\S+)", text)
    assert ipaddress.IPv6Address(shown[1]) == gid_0(verbs_say(pair[0]))
    assert (int(shown[2], 0), int(shown[3], 0)) == (0, 0)


def test_smpquery_node(pair):
    verbs = verbs_say(pair[0])
    node = fields_of(pair[0].run("smpquery", "-D", "nodeinfo", "0"))
    assert node["NodeType"] == "Channel Adapter"
    assert node["NumPorts"] == verbs["phys_port_cnt"]
    assert int(node["SystemGuid"], 0) == guid(verbs["sys_image_guid"])
    assert int(node["Guid"], 0) == guid(verbs["node_guid"])
    assert int(node["PortGuid"], 0) == port_guid(verbs)
    assert int(node["VendorId"], 0) == int(verbs["vendor_id"], 0)
    assert int(node["DevId"], 0) == int(verbs["vendor_part_id"], 0)
    assert int(node["Revision"], 0) == int(verbs["hw_ver"], 0)
    assert node["LocalPort"] == verbs["port"] == "1"
    assert "verbena0" in pair[0].run("smpquery", "-D", "nodedesc", "0")


def test_smpquery_port(pair):
    verbs = verbs_say(pair[0])
    port = fields_of(pair[0].run("smpquery", "-D", "portinfo", "0", "1"))
    assert int(port["GidPrefix"], 0) == int(gid_0(verbs)) >> 64
    assert (port["Lid"], port["SMLid"], port["LMC"]) == ("0", "0", "0")
    assert (port["LinkState"], port["PhysLinkState"]) == ("Active", "LinkUp")
    assert port["LinkWidthActive"] == "4X"
    assert port["LinkSpeedExtActive"] == "25.78125 Gbps"
    assert f"{port['NeighborMTU']} (5)" == verbs["active_mtu"]
    assert f"{port['MtuCap']} (5)" == verbs["max_mtu"]


def test_smpquery_tables(loopback):
    host = loopback[0]
    guids = host.run("smpquery", "-D", "guidinfo", "0")
    assert int(re.search(r"0: (0x\w+)", guids)[1], 16) == port_guid(verbs_say(host))
    assert "1 guids capacity" in guids
    pkeys = host.run("smpquery", "-D", "pkeys", "0")
    assert re.search(r"0: 0xffff 0x0000", pkeys) and "1 pkeys capacity" in pkeys


@pytest.mark.parametrize("query", [
    ("-D", "switchinfo", "0"),           # an adapter is no switch
    ("-D", "portinfo", "0", "2"),        # one port
    ("-t", "50", "-D", "nodeinfo", "0,1"),  # nobody is at the other end of the cable
    ("nodeinfo", "7"),                   # nobody gave us LIDs
])
def test_smpquery_fails_in_words(loopback, query):
    with loopback[0].start("smpquery", *query) as program:
        assert program.wait() != 0
        assert "iberror: failed" in program.output()


def test_ibnetdiscover_finds_the_adapter_alone(loopback):
    verbs = verbs_say(loopback[0])
    text = loopback[0].run("ibnetdiscover", "-t", "50")
    assert f"Ca\t1 \"H-{guid(verbs['node_guid']):016x}\"" in text
    assert "Switch" not in text


# --- counters ----------------------------------------------------------------------------------

def pingpong(pair, iterations=ITERATIONS):
    index = 1  # of the GID that both have
    hosts.run_pair(*pair, "ibv_rc_pingpong", "-g", index, "-n", iterations, "-s", SIZE, "-m", 1024)


def test_counters_move(pair):
    with counting(pair[0]):
        # Of this host since it has any process: tests before may have left some.
        before, short_before = counters_of(pair[0], "-x"), counters_of(pair[0])
        pingpong(pair)
        after, short = counters_of(pair[0], "-x"), counters_of(pair[0])
    sent = ITERATIONS * (2 if pair[0] == pair[1] else 1)  # both sides are this host's
    for way in ("Xmit", "Rcv"):
        moved = {what: after[f"Port{what}"] - before[f"Port{what}"]
                 for what in (f"{way}Pkts", f"{way}Data", f"Unicast{way}Pkts")}
        # Each message is a packet; the others are acknowledgements, or messages once more.
        packets, words = moved[f"{way}Pkts"], moved[f"{way}Data"]
        assert sent < packets <= 3 * sent, moved
        assert sent * PACKET_WORDS + (packets - sent) * ACK_WORDS <= words <= packets * PACKET_WORDS, moved
        assert moved[f"Unicast{way}Pkts"] == moved[f"{way}Pkts"]
        assert short[f"Port{way}Pkts"] == after[f"Port{way}Pkts"]
    for name in ("PortMulticastXmitPkts", "PortMulticastRcvPkts"):
        assert after[name] == before[name]
    for name in ("PortRcvErrors", "PortXmitDiscards", "SymbolErrorCounter", "LinkDownedCounter"):
        assert short[name] == short_before[name]


def test_counters_are_reset(loopback):
    host = loopback[0]
    with counting(host):
        pingpong((host, host))
        assert counters_of(host, "-r")["PortXmitPkts"] >= ITERATIONS  # shown, then reset
        assert counters_of(host)["PortXmitPkts"] == 0
        assert counters_of(host, "-x")["PortXmitPkts"] >= ITERATIONS  # those are others
        host.run("perfquery", "-x", "-R")
        assert counters_of(host, "-x")["PortXmitPkts"] == 0


def test_counters_outlive_their_process(loopback):
    host = loopback[0]
    with counting(host):
        port = hosts.free_port()
        with host.start("ibv_rc_pingpong", "-p", port, "-g", 1, "-n", 100000000) as server:
            server.wait_listening(port)
            with host.start("ibv_rc_pingpong", "-p", port, "-g", 1, "-n", 100000000, host.reach) as client:
                client.wait_until(lambda: counters_of(host, "-x")["PortXmitPkts"] > 1000, "many packets")
                server.kill()
                client.kill()
        left = counters_of(host, "-x")["PortXmitPkts"]
        assert left > 1000
        pingpong((host, host))
        assert counters_of(host, "-x")["PortXmitPkts"] >= left + 2 * ITERATIONS


# --- with LIDs, other hosts can be asked -------------------------------------------------------

LAST_LID = 0xbfff  # that names a port; those above are multicast


def lid_of(host):
    """VERBENA_LID=1: the last 16 bits of the address."""
    return int(ipaddress.ip_address(host.address)) & 0xffff


@pytest.fixture(params=hosts.TOPOLOGIES)
def lid_pair(request):
    """The fixture `pair`, with addresses whose ends are LIDs of ports."""
    if request.param.startswith("namespaces"):
        return request.getfixturevalue("veth").hosts(4 if request.param.endswith("4") else 6)
    pid = os.getpid()
    first, second = (hosts.Host(f"127.{32 + pid // 190 % 32}.{pid % 190}.{last}") for last in (8, 9))
    assert lid_of(second) <= LAST_LID
    return (first, first) if request.param == "one-host" else (first, second)


def test_a_lid_is_shown_by_all(lid_pair):
    host, lid = lid_pair[0], lid_of(lid_pair[0])
    verbs, stat = (fields_of(host.run(program, VERBENA_LID="1")) for program in ("ibv_devinfo", "ibstat"))
    assert verbs["port_lid"] == stat["Base lid"] == str(lid)
    assert verbs["link_layer"] == stat["Link layer"] == "InfiniBand"
    assert f"LID start {lid:#x} end {lid:#x}" in host.run("ibaddr", VERBENA_LID="1")
    assert fields_of(host.run("smpquery", "portinfo", lid, VERBENA_LID="1"))["Lid"] == str(lid)


def test_another_host_is_asked_by_its_lid(lid_pair):
    asked, asker = lid_pair
    with asked.start("ibping", "-S", VERBENA_LID="1") as server:
        # The server says nothing: it is there when it answers.
        server.wait_until(lambda: "3 received" in ping(asker, asked), "answering")
        first, second = (counters_of(asker, "-x", lid_of(asked), 1, VERBENA_LID="1") for _ in range(2))
        assert first["PortRcvPkts"] >= 3 and first["PortXmitPkts"] >= 3  # the pings
        # A query is one of the class and one of the counters; to oneself neither travels.
        moved = 0 if asked == asker else 2
        assert second["PortRcvPkts"] - first["PortRcvPkts"] == moved
        assert second["PortXmitPkts"] - first["PortXmitPkts"] == moved


def ping(asker, asked):
    with asker.start("ibping", "-f", "-c", 3, "-t", 100, lid_of(asked), VERBENA_LID="1") as client:
        client.wait()
        return client.output()


def test_nobody_answers_where_nobody_is(lid_pair):
    nobody = lid_of(lid_pair[0]) + 100
    with lid_pair[0].start("perfquery", "-t", 50, nobody, 1, VERBENA_LID="1") as query:
        assert query.wait() != 0
        assert "iberror: failed" in query.output()
