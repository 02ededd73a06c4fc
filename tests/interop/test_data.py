# SPDX-License-Identifier: BSD-2-Clause
"""Verbena and Soft-RoCE move data, connected by hand: no connection manager yet."""
import pytest

import families

LONGEST = 1 << 20

# (program, transport or operation, size, path MTU)
PERFTEST = [
    *((program, kind, size, mtu)
      for program, kind in (("ib_write_bw", "RC"), ("ib_read_bw", "RC"), ("ib_send_bw", "RC"),
                            ("ib_write_bw", "UC"), ("ib_send_bw", "UC"))
      for size, mtu in ((1, 1024), (LONGEST, 1024), (4097, 4096), (LONGEST, 4096))),
    *(("ib_send_bw", "UD", size, mtu) for size, mtu in ((1, 1024), (1024, 1024), (4096, 4096))),
    ("ib_atomic_bw", "FETCH_AND_ADD", 8, 1024),
    ("ib_atomic_bw", "CMP_AND_SWAP", 8, 4096),
    ("ib_write_lat", "RC", 1000, 1024),
    ("ib_read_lat", "RC", 1000, 4096),
    ("ib_send_lat", "RC", 1000, 1024),
    ("ib_send_lat", "UC", 1000, 4096),
    ("ib_send_lat", "UD", 1000, 1024),
    ("ib_atomic_lat", "FETCH_AND_ADD", 8, 1024),
]


@pytest.mark.parametrize("mtu", [1024, 4096])
@pytest.mark.parametrize("gid", ["link-local", "ipv4", "ipv6"])
def test_every_operation(pair, gid, mtu):
    """13 operations with 30 lengths, less what is too long for UC and UD, and 3 of either atomic."""
    index = ["link-local", "ipv4", "ipv6"].index(gid)
    transfers = families.mover(pair, "--gid", index, "--mtu", mtu)
    assert transfers == 5 * 30 + 2 * 3 + 4 * 27 + 2 * (15 if mtu == 1024 else 19)


@pytest.mark.parametrize("mtu", [1024, 4096])
@pytest.mark.parametrize("program", families.PINGPONGS)
def test_pingpong(pair, program, mtu):
    families.pingpong(pair, program, 50, mtu=mtu, size=mtu if "ud" in program else 70001)


@pytest.mark.parametrize("program", families.PINGPONGS)
def test_pingpong_polls(pair, program):
    families.pingpong(pair, program, 10, size=1, gid=0, how="")


@pytest.mark.parametrize("program, kind, size, mtu", PERFTEST)
def test_perftest(pair, program, kind, size, mtu):
    families.perftest(pair, program, kind, size, mtu)
