# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet addresses of neighbours, as the kernel's own tools know them."""
import re

import hosts

PROGRAM = hosts.BUILD / "bin" / "l2_address"


def address_of(veth, namespace, interface="veth0"):
    text = veth.make(f"ip -o link show dev {interface}", namespace=namespace)
    return re.search(r"link/ether (\S+)", text)[1]


def answers(host, *addresses):
    return dict(line.split(" ", 1) for line in host.run(PROGRAM, *addresses).splitlines())


def test_a_neighbour_that_nobody_asked_for_yet(own_veth):
    first, second = (address_of(own_veth, i) for i in range(2))
    own_veth.make("ip neigh flush all")
    got = answers(own_veth.hosts(4)[0], "10.91.0.2", "10.91.0.1", "224.9.8.7")
    assert got == {"10.91.0.2": f"{second} vlan 65535",  # on the wire
                   "10.91.0.1": f"{first} vlan 65535",  # ourselves
                   "224.9.8.7": "01:00:5e:09:08:07 vlan 65535"}


def test_ipv6(own_veth):
    got = answers(own_veth.hosts(6)[0], "fd91::2", "ff0e::1:2")
    assert got == {"fd91::2": f"{address_of(own_veth, 1)} vlan 65535", "ff0e::1:2": "33:33:00:01:00:02 vlan 65535"}


def test_behind_a_router_it_is_the_routers(own_veth):
    own_veth.make("ip route add 10.92.0.0/16 via 10.91.0.2")
    got = answers(own_veth.hosts(4)[0], "10.92.3.4")
    assert got == {"10.92.3.4": f"{address_of(own_veth, 1)} vlan 65535"}


def test_nobody_there(own_veth):
    got = answers(own_veth.hosts(4)[0], "10.91.0.77", "10.99.0.1")
    assert got == {"10.91.0.77": "No route to host", "10.99.0.1": "No route to host"}
