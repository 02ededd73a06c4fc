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
    """A host counts as long as one of its processes lives: on each of its devices a server that nobody calls."""
    with contextlib.ExitStack() as stack:
        for index in range(len(host.address.split(","))):
            port = hosts.free_port()
            server = stack.enter_context(host.start("ibv_rc_pingpong", "-d", f"verbena{index}", "-p", port))
            server.wait_listening(port)
        yield


@contextlib.contextmanager
def moves(host, octets, device="verbena0", ways=("Xmit", "Rcv")):
    """What runs within must move more than so many octets through the port, in and out: then it was
    this port that it used, and not another way between its processes. With octets 0, none."""
    with counting(host):
        before = counters_of(host, "-x", "-C", device)
        yield
        after = counters_of(host, "-x", "-C", device)
    for way in ways:
        moved = 4 * (after[f"Port{way}Data"] - before[f"Port{way}Data"])
        assert (moved > octets) == (octets > 0), f"{way} of {host.address}, {device}: {moved}"
