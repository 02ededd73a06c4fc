# SPDX-License-Identifier: BSD-2-Clause
"""kill -9 of either side in the middle of a transfer.

Both sides send (-b), so that each has requests whose answer will never come: the survivor's must
complete with RETRY_EXC_ERR, or be flushed behind one that did, as on hardware, and it must end. A new pair on the
same hosts works at once, and nothing of the dead is left in the registry.
"""
import re

import pytest

import hosts

pytestmark = pytest.mark.alone

RETRY_EXC_ERR, WR_FLUSH_ERR = 12, 5
BUSY_TICKS = 15  # of processor time, after the table's headings: it is in the middle of it


def is_transferring(program, since):
    return lambda: program.cpu_ticks() - since > BUSY_TICKS


def start_transfer(pair, program, size=65536):
    """A server and a client in the middle of an endless transfer, both ways."""
    port = hosts.free_port()
    # Line by line, so that we see where they are.
    command = ("stdbuf", "-oL", program, "-F", "-x", "1", "-b", "-D", "60", "-s", str(size), "-p", port)
    server = pair[0].start(*command)
    try:
        server.wait_listening(port)
        client = pair[1].start(*command, pair[0].reach)
    except BaseException:
        server.end()
        raise
    for one in (server, client):
        one.wait_until(lambda one=one: "#bytes" in one.output(), "at the headings of its table")
        one.wait_until(is_transferring(one, one.cpu_ticks()), "in the middle of its transfer")
    return server, client


def shared_files(pair):
    return [file for host in pair for file in host.shared_files()]


@pytest.mark.parametrize("victim", ["server", "client"])
@pytest.mark.parametrize("program, size", [("ib_write_bw", 65536), ("ib_send_bw", 65536), ("ib_send_bw", 1 << 20)])
def test_kill9_in_mid_transfer(pair, program, size, victim):
    server, client = start_transfer(pair, program, size)
    with server, client:
        assert len(shared_files(pair)) >= 2
        dead, survivor = (server, client) if victim == "server" else (client, server)
        dead.kill()
        assert survivor.wait() > 0, survivor.output()
        status = re.search(r"Failed status (\d+)", survivor.output())
        assert status, survivor.output()
        assert int(status[1]) in (RETRY_EXC_ERR, WR_FLUSH_ERR), survivor.output()
    _, output = hosts.run_pair(*pair, program, "-F", "-x", "1", "-n", "100")
    assert hosts.perftest_rows(output)[0][3] > 0
    assert shared_files(pair) == []


def test_kill9_of_both_leaves_a_clean_registry(loopback):
    pair = (loopback[0], loopback[0])
    server, client = start_transfer(pair, "ib_send_bw")
    with server, client:
        client.kill()
        server.kill()
    hosts.run_pair(*pair, "ib_send_bw", "-F", "-x", "1", "-n", "100")
    assert shared_files(pair) == []


def test_kill9_of_twenty_in_turn(loopback):
    """Each new process takes the place of the one before, which died at some point of its start."""
    for k in range(20):
        with loopback[0].start("ib_send_lat", "-p", hosts.free_port(), "-x", "1") as program:
            program.wait_until(lambda k=k: program.cpu_ticks() >= k % 5 or program.listens(),
                               "on its way")
            program.kill()
    hosts.run_pair(*loopback, "ib_send_lat", "-F", "-x", "1", "-n", "100")
    assert shared_files(loopback) == []
