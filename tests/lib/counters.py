# SPDX-License-Identifier: BSD-2-Clause
"""counters.py - a port's counters, as perfquery prints them."""
import contextlib
import os
import re

import hosts


def fields_of(text):
    """{label: value} of `label: value` lines; the dots of smpquery and perfquery left out."""
    return dict(re.findall(r"^[ \t]*([\w.\[\] ]+?)(?::\.*|\.*:)[ \t]*(\S.*?)[ \t]*$", text, re.M))


def counters_of(host, *options, **settings):
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # where an ordinary user's does not look
    text = host.run("perfquery", *options, **{"PATH": path, **settings})
    return {name: int(value, 0) for name, value in fields_of(text).items() if value[:1].isdigit()}


@contextlib.contextmanager
def counting(host):
    """A host counts as long as one of its processes lives: a server that nobody calls."""
    port = hosts.free_port()
    with host.start("ibv_rc_pingpong", "-p", port) as server:
        server.wait_listening(port)
        yield


@contextlib.contextmanager
def moves(host, octets):
    """What runs within must move more than so many octets through the port, in and out: then it was
    this port that it used, and not another way between its processes."""
    with counting(host):
        before = counters_of(host, "-x")
        yield
        after = counters_of(host, "-x")
    for way in ("PortXmitData", "PortRcvData"):
        assert 4 * (after[way] - before[way]) > octets, f"{way} of {host.address}"
