# SPDX-License-Identifier: BSD-2-Clause
"""guest.py - Verbena and a kernel's Soft-RoCE inside one guest, the one of tests/interop, with two processors.

         QEMU, emulated: slow, but the same for both
      +---------------------------------------------------------------+
      |  ib_write_bw, two of them          ib_write_bw, two of them   |
      |  on rxe0, over its own loopback    on Verbena, one host       |
      |                                    a network namespace, since |
      |                                    rxe holds port 4791        |
      +---------------------------------------------------------------+
"""
import pathlib
import re
import subprocess
import sys

import hosts
import perftest
from figures import KIB, Row, size_text
from stand import Job

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "interop"))

LIMIT = 120
PROGRAMS = (("ib_write_bw", 64 * KIB, 1000), ("ib_send_lat", 8, 1000))
FOLDER = "opt/verbena"


def files_of(build):
    """{name in the guest: file} of Verbena's command, its libraries, and what these need."""
    files = {f"{FOLDER}/bin/verbena": build / "bin" / "verbena"}
    for library in (build / "lib").glob("*.so.*"):
        files[f"{FOLDER}/lib/verbena/{library.name}"] = library
    needed = subprocess.run(["ldd", *files.values()], capture_output=True, text=True, check=True).stdout
    for path in set(re.findall(r"=> (/\S+) \(0x", needed)):
        files[path[1:]] = pathlib.Path(path)
    return files


class Booted:
    """The guest, ready for both."""

    def __init__(self, build):
        import peer  # of tests/interop

        hosts.BUILD = build
        self.network = peer.Network(peer.MTU)
        try:
            self.guest = peer.Guest(self.network, processors=2, files=files_of(build))
            self.namespace = self.prepare()
        except BaseException:
            self.close()
            raise

    guest = None

    def prepare(self):
        """A namespace for Verbena; returns the number of a process in it."""
        return self.guest.shell("""
            mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
            unshare -n sleep 100000 >/dev/null 2>&1 &
            p=$!
            until nsenter -t $p -n true && [ "$(readlink /proc/$p/ns/net)" != "$(readlink /proc/1/ns/net)" ]; do
                usleep 10000
            done
            nsenter -t $p -n /usr/bin/ip link set lo up
            echo $p""").split()[-1]

    def side(self, verbena):
        return Side(self.guest, "127.0.0.1", (
            "nsenter", "-t", self.namespace, "-n", "env", "VERBENA_ADDR=127.0.0.1", f"/{FOLDER}/bin/verbena", "run",
            "--")) if verbena else Side(self.guest, self.guest.reach, ())

    def close(self):
        if self.guest:
            self.guest.close()
        self.network.close()


class Side:
    """A host of a test, as hosts.run_pair() wants it."""

    def __init__(self, guest, reach, prefix):
        self.guest, self.reach, self.prefix = guest, reach, prefix

    def start(self, *command):
        return self.guest.start(*self.prefix, *command)


def group(stand):
    jobs, names = [], {}
    for program, size, n in PROGRAMS:
        for who in ("rxe", "Verbena"):
            name = names[who, program] = f"guest: {who} {program} {size_text(size)}"

            def run(program=program, size=size, n=n, verbena=who == "Verbena", name=name):
                stand.guest = stand.guest or Booted(stand.build)
                side = stand.guest.side(verbena)
                _, output = hosts.run_pair(side, side, program, "-F", "-x", 1, "-s", size, "-n", n, limit=LIMIT)
                return {name: perftest.figures(program, output, size, name)[name]}

            jobs.append(Job(name, {name: "us" if program.endswith("_lat") else "GB/s"}, run,
                            stand=stand if who == "Verbena" else None))
    targets = ({"at_least": 2.0}, {"at_most": 0.7})
    return jobs, [Row(f"{program} {size_text(size)}", names["Verbena", program], names["rxe", program], **target)
                  for (program, size, _), target in zip(PROGRAMS, targets)], []
