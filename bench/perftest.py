# SPDX-License-Identifier: BSD-2-Clause
"""perftest.py - Debian's perftest on Verbena, as jobs.

Bandwidth is perftest's average, latency its typical one (the median). How often a message is repeated
depends on its size, so that each run takes some tenths of a second.
"""
import hosts
from figures import KIB, MIB, size_text
from stand import NOT_BUILT, Job

SMALL = 8  # bytes; where messages a second say more than bytes
LIMIT = 90  # seconds, for a machine that does much else
LATENCY_TIMES = ((KIB, 10000), (16 * KIB, 5000), (128 * KIB, 2000), (MIB, 500), (8 * MIB, 100))
BANDWIDTH_TIMES = ((KIB, 1000000), (16 * KIB, 200000), (128 * KIB, 40000), (MIB, 6000), (8 * MIB, 800))


def times(program, size):
    table = LATENCY_TIMES if program.endswith("_lat") else BANDWIDTH_TIMES
    return next(n for largest, n in table if size <= largest)


def key(place, program, size, how=""):
    return f"{place}: {program} {how + ' ' if how else ''}{size_text(size)}"


def figures(program, output, size, name):
    """{key: number} of a perftest program's output."""
    row = hosts.perftest_rows(output)[-1]
    if row[3] <= 0:
        raise ValueError(f"{program} says a bandwidth or a latency of 0:\n{output}")
    if program.endswith("_lat"):
        return {name: row[4]}
    return {name: row[3] * MIB / 1e9, f"{name}, messages": row[3] * MIB / size / 1e6}


def job(stand, place, pair, program, size, *arguments, how="", needs="", **environment):
    """pair() makes the server's host and the client's, which may take a while."""
    name = key(place, program, size, how)
    units = {name: "us" if program.endswith("_lat") else "GB/s"}
    if program.endswith("_bw") and size == SMALL:
        units[f"{name}, messages"] = "M/s"
    # atomics have but one size, and take no option for it
    size_arguments = () if "atomic" in program else ("-s", size)

    def run():
        _, output = hosts.run_pair(*pair(), program, "-F", "-x", 1, *size_arguments, "-n", times(program, size),
                                   *arguments, limit=LIMIT, **environment)
        return figures(program, output, size, name)

    return Job(name, units, run, missing="" if not needs or stand.knows(needs) else NOT_BUILT, stand=stand)
