# SPDX-License-Identifier: BSD-2-Clause
"""Debian's ibv_devices and ibv_devinfo: what they say about our devices."""
import ipaddress
import re

import pytest

import hosts


def fields_of(text):
    """{label: value} of ibv_devinfo's lines."""
    return dict(re.findall(r"^\s*([\w.\[\] ]+?):\s*(.*?)\s*$", text, re.M))


def gids_of(text):
    """{index: address}; ibv_devinfo shows an IPv4-mapped GID as ::ffff:a.b.c.d."""
    found = re.findall(r"GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)(?:,\s*(.*))?", text)
    return {int(index): (ipaddress.IPv6Address(address), kind) for index, address, kind in found}


def test_ibv_devices_lists_each_address_of_the_setting(loopback):
    first, second = (host.address for host in loopback)
    text = hosts.Host(f"{first},{second}").run("ibv_devices")
    rows = re.findall(r"^\s+(\S+)\s+([0-9a-f]{16})$", text, re.M)
    assert [name for name, _ in rows] == ["verbena0", "verbena1"]
    guids = [guid for _, guid in rows]
    assert len(set(guids)) == 2 and "0" * 16 not in guids
    # A GUID belongs to an address: the same one again, and on its own.
    assert f"{guids[1]}" in hosts.Host(second).run("ibv_devices")


def test_ibv_devinfo_lists_the_names(loopback):
    assert "verbena0" in loopback[0].run("ibv_devinfo", "-l")


def test_ibv_devinfo_shows_an_active_ethernet_port(pair):
    text = pair[0].run("ibv_devinfo", "-v")
    fields = fields_of(text)
    assert fields["hca_id"] == "verbena0"
    assert fields["state"] == "PORT_ACTIVE (4)"
    assert fields["link_layer"] == "Ethernet"
    assert fields["transport"] == "InfiniBand (0)"
    assert fields["phys_port_cnt"] == "1"
    # Loopback (65536) and veth (9000) both have room for the largest path MTU.
    assert fields["max_mtu"] == fields["active_mtu"] == "4096 (5)"
    for limit in ("max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd",
                  "max_qp_rd_atom", "max_srq", "max_srq_wr", "max_ah"):
        assert int(fields[limit]) > 0, limit


def test_gid_0_is_link_local_and_gid_1_is_the_address(pair):
    gids = gids_of(pair[0].run("ibv_devinfo", "-v"))
    address = ipaddress.ip_address(pair[0].address)
    if address.version == 4:
        address = ipaddress.IPv6Address(f"::ffff:{address}")
    assert gids[0][0].is_link_local
    assert gids[1][0] == address
    assert all(kind in ("RoCE v2", None) for _, kind in gids.values()), gids


def test_an_unknown_device_name_is_not_found(loopback):
    with loopback[0].start("ibv_devinfo", "-d", "verbena9") as program:
        assert program.wait() != 0
        assert "'verbena9' wasn't found" in program.output()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_loopback_address_itself_is_a_host(address):
    assert "PORT_ACTIVE" in hosts.Host(address).run("ibv_devinfo")


def test_without_a_setting_there_is_a_device(loopback):
    host = hosts.Host(loopback[0].address)
    assert "PORT_ACTIVE" in host.run("env", "-u", "VERBENA_ADDR", "ibv_devinfo")
