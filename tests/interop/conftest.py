# SPDX-License-Identifier: BSD-2-Clause
"""One guest for all tests, and both directions."""
import pathlib
import sys

import pytest
from _pytest.runner import runtestprotocol

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
    guests.append(made)
    yield made
    guests.remove(made)
    made.close()


@pytest.fixture(scope="session", params=DIRECTIONS)
def pair(request, network, guest):
    """The server's host and the client's."""
    both = (guest, network.host())
    return both if request.param == "guest-serves" else both[::-1]


MORE_TRIES = 2
MORE_BOOTS = 2
failed_before = []
guests = []
deaths = []


def replace_dead(item):
    """A guest whose kernel has panicked, or hangs, is replaced by another, few times; its last words are
    named at the end."""
    for guest in guests:
        if guest.answers():
            continue
        guest.stop()
        deaths.append((item.nodeid, guest.last_words()))
        if len(deaths) > MORE_BOOTS:
            pytest.exit(f"no guest lives long enough:\n{guest.last_words()}", 1)
        guest.boot()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """What fails is tried again, and named at the end with what it said: packets are lost at random
    here, in a guest whose one processor is emulated, so that a peer's own limits are met now and then."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for _ in range(MORE_TRIES):
        failures = [report for report in reports if report.failed]
        if not failures:
            break
        failed_before.extend(failures)
        replace_dead(item)
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for test, words in deaths:
        terminalreporter.section(f"the guest's kernel died in {test}")
        terminalreporter.write_line(words)
    for report in failed_before:
        terminalreporter.section(f"failed before: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
