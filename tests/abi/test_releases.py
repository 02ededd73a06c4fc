# SPDX-License-Identifier: BSD-2-Clause
"""Programs of Debian 11 and Debian 13, older and newer than the libraries that Verbena takes the place of."""
import re

import pytest

import hosts
import releases
import ucx

pytestmark = pytest.mark.alone

ITERATIONS = 100


@pytest.fixture(params=releases.PACKAGES, scope="module")
def release(request):
    return releases.get(request.param)


def run_pair(pair, release, program, *arguments):
    port = hosts.free_port()
    command = release.command(program, "-p", port, *arguments)
    with pair[0].start_plain(*command) as server:
        server.wait_listening(port)
        with pair[1].start_plain(*command, pair[0].reach) as client:
            return hosts.succeed_both(server, client)


def test_ibv_devinfo(pair, release):
    with pair[0].start_plain(*release.command("ibv_devinfo", "-v")) as program:
        text = program.succeed()
    assert re.search(r"^hca_id:\s+verbena0$", text, re.M) and "PORT_ACTIVE (4)" in text
    assert re.search(r"GID\[\s*1\]:\s+\S*" + re.escape(pair[0].address) + r"(, RoCE v2)?$", text, re.M), text


def test_ibv_rc_pingpong(pair, release):
    for text in run_pair(pair, release, "ibv_rc_pingpong", "-g", 1, "-n", ITERATIONS, "-c"):
        assert f"{ITERATIONS} iters in" in text, text


def test_ib_write_bw(pair, release):
    _, client = run_pair(pair, release, "ib_write_bw", "-F", "-x", 1, "-n", ITERATIONS)
    rows = hosts.perftest_rows(client)
    assert [row[:2] for row in rows] == [[65536, ITERATIONS]] and rows[0][3] > 0, client


# UCX 1.10 has no tests of active messages. UCX 1.18 is built with MPI, and would take its processes from there; its newer
# protocols flush what they have written by a key that it makes on mlx5 alone, and fail with rc_verbs on others.
UCX = {"bullseye": ({name: how for name, how in ucx.TESTS.items() if "_am_" not in name}, (), {}),
       "trixie": (ucx.TESTS, ("-P", 0), {"UCX_PROTO_ENABLE": "n"})}


def test_ucx(loopback, release, tmp_path):
    with loopback[0].start_plain(*release.command("ucx_info", "-d")) as program:
        assert ucx.transports_of(program.succeed()) == [("rc_verbs", "verbena0:1"), ("ud_verbs", "verbena0:1")]

    def start(host, *arguments, **environment):
        return host.start_plain(*release.command("ucx_perftest", *arguments), **environment)
    tests, options, settings = UCX[release.codename]
    ucx.perftest(loopback, tests, tmp_path, *options, start=start, UCX_TLS="rc_verbs,ud_verbs,self", **settings)
