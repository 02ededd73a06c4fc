# SPDX-License-Identifier: BSD-2-Clause
"""What the tests with programs share: the library in tests/lib, and hosts in pairs."""
import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import hosts  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: perftest's figures are judged. It measures the processor's clock first, and "
                            "shows nothing but zeros where others keep it from that.")


def pytest_sessionstart(session):
    if not hosts.VERBENA.exists():
        pytest.exit(f"{hosts.VERBENA} is not built; run make first", 2)


@pytest.fixture(scope="session")
def loopback():
    """Two virtual hosts on loopback addresses."""
    return tuple(hosts.Host(address) for address in hosts.loopback_pair())


def make_veth():
    """Skips where the machine forbids network namespaces to root and to ordinary users alike, as some
    containers do: then there is no pair of interfaces to test on. hosts.Veth says what was forbidden.
    Not in continuous integration (CI is set there): it must not be green for what it did not run."""
    try:
        pair = hosts.Veth()
    except OSError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not run, for want of a network namespace: {reason}")
    yield pair
    pair.close()


@pytest.fixture(scope="session")
def veth():
    yield from make_veth()


@pytest.fixture
def own_veth():
    """For a test that changes the interfaces: taking one down loses its IPv6 addresses."""
    yield from make_veth()


@pytest.fixture(scope="session")
def mount_namespaces():
    """Skips where the machine forbids mount namespaces (verbena run --namespace) to root and to ordinary
    users alike, as some containers do, and a root directory that is no mount; the sentence is the
    command's own. Not in continuous integration, as above."""
    tried = subprocess.run([hosts.VERBENA, "run", "--namespace", "--", "true"], capture_output=True, text=True)
    if tried.returncode:
        assert not os.environ.get("CI"), tried.stderr
        pytest.skip(f"not run, for want of a mount namespace: {tried.stderr}")


@pytest.fixture(params=hosts.TOPOLOGIES, scope="session")
def pair(request):
    """A server's host and a client's host, in each of the places where the two may be."""
    if request.param.startswith("namespaces"):
        return request.getfixturevalue("veth").hosts(4 if request.param.endswith("4") else 6)
    first, second = request.getfixturevalue("loopback")
    if request.param == "one-host":
        return first, first
    # by sockets alone, as who may not look at the network's packets; the other places have the ring
    return tuple(dataclasses.replace(host, environment={"VERBENA_RING": "0"}) for host in (first, second))
