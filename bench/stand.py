# SPDX-License-Identifier: BSD-2-Clause
"""stand.py - where one build of Verbena is measured: its programs, and the hosts they run on.

    Stand    a build, a loopback address, and pairs of namespaces joined by veth, made when asked for
    Job      something that is run once a round and yields one number for each of its keys
"""
import contextlib
import dataclasses
import itertools
import pathlib
import typing

import hosts

NOT_BUILT = "not built"
PROGRAMS = pathlib.Path()  # the folder of bench_limits and its kin: this build's, whatever Verbena is measured
_numbers = itertools.count()


@dataclasses.dataclass
class Job:
    name: str
    units: dict  # {key: unit}
    function: typing.Callable  # yields {key: number}
    missing: str = ""  # why it cannot be run, if so
    stand: object = None  # whose Verbena it measures; None for a peer

    def run(self):
        if self.stand:
            hosts.VERBENA = self.stand.build / "bin" / "verbena"
        return self.function()


class Stand:
    def __init__(self, build):
        self.build = pathlib.Path(build).absolute()
        first = hosts.loopback_pair()[0].rpartition(".")[0]
        # A registry of its own: two builds may not understand each other's.
        number = 2 + 2 * next(_numbers)
        self.local = hosts.Host(f"{first}.{number}")
        self.second = hosts.Host(f"{first}.{number + 1}")
        self.veths = {}
        self.guest = None  # whoever boots one puts it here
        self.settings = self.known_settings()

    def known_settings(self):
        with hosts.Program([str(self.build / "bin" / "verbena"), "settings"], None) as program:
            return program.succeed()

    def knows(self, setting):
        return setting in self.settings

    def wire(self, mtu):
        """Two hosts in namespaces."""
        if mtu not in self.veths:
            self.veths[mtu] = hosts.Veth(mtu)
        return self.veths[mtu].hosts(4)

    def close(self):
        for made in [*self.veths.values(), *filter(None, [self.guest])]:
            made.close()


@contextlib.contextmanager
def serving(host, port, *command, ready=hosts.Program.listens, **environment):
    """A peer's server, from when it can be reached; ended with the block."""
    with host.start_plain(*command, **environment) as server:
        server.wait_until(lambda: ready(server, port), f"at port {port}")
        yield server
