# SPDX-License-Identifier: BSD-2-Clause
"""perftest with -R and -z, as Debian ships it: the connection manager connects what is measured, or
carries what the two sides tell each other."""
import pytest

import hosts

pytestmark = pytest.mark.alone

ITERATIONS = 100

# Not UC: perftest itself refuses -R with it.
KINDS = [
    ("ib_write_bw", "-R"), ("ib_write_lat", "-R"), ("ib_read_bw", "-R"), ("ib_atomic_bw", "-R"),
    ("ib_send_bw", "-R"), ("ib_send_lat", "-R"), ("ib_send_bw", "-R", "-c", "UD"), ("ib_send_lat", "-R", "-c", "UD"),
    ("ib_write_bw", "-R", "-q", "4", "-b"),
    ("ib_write_bw", "-z", "-x", "1"), ("ib_send_bw", "-z", "-x", "1", "-c", "UC"),
]


def run(pair, command):
    port = hosts.free_port()
    program, *options = command
    arguments = ("-F", "-n", ITERATIONS, "-p", port, *options)
    with hosts.rdma_server(pair[0], "tcp", port, program, *arguments) as server:
        # its -R speaks IPv4 alone, whichever GID it then uses
        with pair[1].start(program, *arguments, pair[0].reach) as client:
            return hosts.succeed_both(server, client)


@pytest.mark.parametrize("command", KINDS, ids=lambda command: "".join(command))
def test_perftest(pair, command):
    _, client = run(pair, command)
    rows = hosts.perftest_rows(client)
    queue_pairs = 4 if "-q" in command else 1
    assert [row[1] for row in rows] == [ITERATIONS * queue_pairs], client
    assert rows[0][4] > 0, client
