# SPDX-License-Identifier: BSD-2-Clause
"""The same when one packet in 50 is lost, each way.

Which ones is left to chance: a count that goes round loses the same packet of a long READ again
and again, whenever that READ's answer is a multiple of it. Reliable connections must bring
everything; of unreliable ones a message arrives whole or not at all, so that the pingpongs over
UC and UD, which wait for each message, are not for here. Nor is ib_send_lat: it has room for one SEND
in its queue, and posts the next when the peer's answer has come, be the ACK lost or not.
"""
import pytest

import families
import peer

LONGEST = 1 << 20

PERFTEST = [
    *((program, "RC", size, mtu) for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw")
      for size, mtu in ((1, 1024), (LONGEST, 1024), (65536, 4096))),
    ("ib_write_bw", "UC", LONGEST, 1024),
    ("ib_write_bw", "UC", 65536, 4096),
    ("ib_atomic_bw", "FETCH_AND_ADD", 8, 1024),
    ("ib_atomic_bw", "CMP_AND_SWAP", 8, 4096),
    ("ib_read_lat", "RC", 4097, 4096),
]


@pytest.fixture(autouse=True)
def lost(network):
    with network.losing(peer.ONE_IN_50) as count:
        yield count


@pytest.mark.parametrize("mtu", [1024, 4096])
def test_every_operation(pair, mtu, lost):
    assert families.mover(pair, "--only", "RC", "--mtu", mtu, limit=60) == 5 * 30 + 2 * 3
    to_guest, from_guest = lost()
    assert to_guest > 0 and from_guest > 0


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_every_operation_unreliable(pair, kind):
    """A lost message is sent again by the program; what arrives is right. Soft-RoCE's UC responder does not
    get over the loss of a packet within a WRITE: it drops every later message (as the last
    opcode that it has seen stays FIRST or MIDDLE). So what goes there is of one packet a message."""
    several_packets = kind == "UC" and not pair[0].is_guest
    transfers = families.mover(pair, "--only", kind, "--longest", 4097 if several_packets else 1024,
                               "--tries", 20, limit=60)
    assert transfers == {"UC": 4 * (20 if several_packets else 15), "UD": 2 * 15}[kind]


@pytest.mark.parametrize("mtu", [1024, 4096])
@pytest.mark.parametrize("program", families.RC_PINGPONGS)
def test_pingpong(pair, program, mtu):
    families.pingpong_with_loss(pair, program, 100, mtu, 16385)


@pytest.mark.parametrize("program, kind, size, mtu", PERFTEST)
def test_perftest(pair, program, kind, size, mtu):
    families.perftest(pair, program, kind, size, mtu, iterations=5 if size == LONGEST else 100)


@pytest.mark.parametrize("kind, size, mtu", [("UD", 1024, 1024), ("UD", 4096, 4096), ("UC", 4097, 1024)])
def test_perftest_unreliable(pair, kind, size, mtu):
    families.perftest_by_time(pair, "ib_send_bw", kind, size, mtu)
