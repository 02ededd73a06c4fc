# SPDX-License-Identifier: BSD-2-Clause
"""One guest for all tests, and both directions."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import peer  # noqa: E402

DIRECTIONS = ("guest-serves", "we-serve")


@pytest.fixture(scope="session")
def network():
    made = peer.Network(peer.MTU)
    yield made
    made.close()


@pytest.fixture(scope="session")
def guest(network):
    made = peer.Guest(network)
    yield made
    made.close()


@pytest.fixture(scope="session", params=DIRECTIONS)
def pair(request, network, guest):
    """The server's host and the client's."""
    both = (guest, network.host())
    return both if request.param == "guest-serves" else both[::-1]
