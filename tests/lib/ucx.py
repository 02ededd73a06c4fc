# SPDX-License-Identifier: BSD-2-Clause
"""ucx.py - ucx_perftest on two hosts, many of its tests on one connection."""
import re

import hosts

SMALL, LARGE = "-s 8 -n 100 -w 10", "-s 200000 -n 20 -w 2"  # LARGE is beyond what UCX sends eagerly
TESTS = {
    "tag_lat": SMALL, "tag_bw": LARGE, "tag_sync_lat": SMALL, "tag_sync_bw": LARGE,
    "stream_lat": SMALL, "stream_bw": LARGE, "ucp_am_lat": SMALL, "ucp_am_bw": LARGE,
    "ucp_put_lat": SMALL, "ucp_put_bw": LARGE, "ucp_get": LARGE,
    "ucp_add": SMALL, "ucp_fadd": SMALL, "ucp_swap": SMALL, "ucp_cswap": SMALL,
}


def transports_of(text):
    """What ucx_info -d says: verbs' transports with their devices."""
    return re.findall(r"Transport: (\w+_verbs)\n#\s+Device: (\S+)", text)


def start_here(host, *command, **environment):
    return host.start("ucx_perftest", *command, **environment)


def perftest(pair, tests, folder, *options, start=start_here, **environment):
    """Runs the tests one after another on one connection; both sides succeed, and each test says a rate."""
    batch = folder / "tests"
    batch.write_text("".join(f"{name} -t {name} {how}\n" for name, how in tests.items()))
    command = (*options, "-b", batch, "-f", "-v", "-p", port := hosts.free_port())
    settings = {"UCX_LOG_LEVEL": "warn", **environment}
    with start(pair[0], *command, **settings) as server:
        server.wait_listening(port)
        with start(pair[1], *command, pair[0].reach, **settings) as client:
            _, output = hosts.succeed_both(server, client, 60)
    rows = [line.split(",") for line in output.splitlines() if re.match(r"\w+,(Final:)? *\d+,", line)]
    assert [row[0] for row in rows] == list(tests), output
    assert all(float(row[-1]) > 0 for row in rows), output
    assert "ERROR" not in output and "WARN" not in output, output
