# SPDX-License-Identifier: BSD-2-Clause
"""Debian's qperf: each of its RC, UC and UD tests, of which two verify atomics.

Without the connection manager it names its peer by a LID alone, and for that needs VERBENA_LID=1; with
it (-cm1), which it has for RC, it goes as it is. A test takes a second, so some run at a time.
"""
import contextlib
import re

import hosts

RC = (["rc_bi_bw", "rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "ver_rc_compare_swap"],
      ["rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr",
       "ver_rc_fetch_add"])
UC = ["uc_bi_bw", "uc_bw", "uc_lat", "uc_rdma_write_bw", "uc_rdma_write_lat", "uc_rdma_write_poll_lat"]
UD = ["ud_bi_bw", "ud_bw", "ud_lat"]


def check(tests, output):
    """Each test has said how fast something was: a name that ends as what it measured, and a number."""
    sections = re.split(r"^(\w+):\n", output, flags=re.M)[1:]
    assert sections[::2] == tests, output
    for test, text in zip(tests, sections[1::2]):
        what = "bw" if test.endswith("bw") else "latency" if test.endswith("lat") else "msg_rate"
        rates = re.findall(rf"^\s+\w*{what}\s+=\s+([\d.]+)", text, re.M)
        assert rates and all(float(rate) > 0 for rate in rates), output


def run(pair, groups, *options, **environment):
    with contextlib.ExitStack() as stack:
        clients = []
        for tests in groups:  # a server serves one client at a time
            port = hosts.free_port()
            server = stack.enter_context(pair[0].start("qperf", "-lp", port, **environment))
            server.wait_listening(port)
            command = ("qperf", pair[0].reach, "-lp", port, "-t", 1, "-to", 30, *options, *tests)
            clients.append(stack.enter_context(pair[1].start(*command, **environment)))
        for tests, client in zip(groups, clients):
            check(tests, client.succeed(60))


def test_qperf_by_lid(pair):
    run(pair, (*RC, UC, UD), VERBENA_LID="1")


def test_qperf_by_connection_manager(pair):
    run(pair, RC, "-cm1")
