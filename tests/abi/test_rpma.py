# SPDX-License-Identifier: BSD-2-Clause
"""librpma, as Debian ships it: the library alone, so that the program is ours."""
import subprocess

import pytest

import hosts

SOURCE = hosts.ROOT / "tests" / "programs" / "rpma_check.c"


@pytest.fixture(scope="module")
def rpma_check(tmp_path_factory):
    program = tmp_path_factory.mktemp("rpma") / "rpma_check"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE, "-lrpma", "-libverbs"], check=True)
    return program


def test_write_flush_read_and_send(pair, rpma_check):
    port = hosts.free_port()
    command = (rpma_check, "server", pair[0].address, port)
    with hosts.rdma_server(pair[0], "tcp", port, *command) as server:
        with pair[1].start(rpma_check, "client", pair[0].address, port) as client:
            assert hosts.succeed_both(server, client) == ("all checked\n", "all checked\n")
