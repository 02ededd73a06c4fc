# SPDX-License-Identifier: BSD-2-Clause
"""noise.py - whether this machine was quiet enough to judge by.

Three signs. In moments in which the benchmark itself does nothing, the processors should be idle:
what they do then is others' work. The hypervisor should take nothing (steal). And the rounds of one
figure should agree.
"""
import os
import statistics
import time

PROBE_SECONDS = 0.15
MOST_OTHERS = 0.10  # of one processor
MOST_STEAL = 0.02  # of all
MOST_SPREAD = 0.25  # of a ratio, among its rounds
MOST_WIDE_ROWS = 0.25  # of the rows


def processor_ticks():
    """(busy, stolen, all) of all processors since the machine started."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + iowait


class Watch:
    def __init__(self):
        self.begin = processor_ticks()
        self.others = []  # processors that others kept busy, at each probe

    def probe(self):
        """To be called while no program of the benchmark runs."""
        before = processor_ticks()[0]
        begin = time.monotonic()
        time.sleep(PROBE_SECONDS)
        busy = (processor_ticks()[0] - before) / os.sysconf("SC_CLK_TCK")
        self.others.append(busy / (time.monotonic() - begin))

    def load_of_others(self):
        return statistics.mean(self.others) if self.others else 0.0

    def steal(self):
        _, stolen, every = (now - then for now, then in zip(processor_ticks(), self.begin))
        return stolen / every if every else 0.0


def complaints(others, steal, outcomes):
    """What speaks against judging by these figures, as sentences; none on a quiet machine."""
    found = []
    compared = [outcome for outcome in outcomes if outcome.result is not None and outcome.row.reference]
    wide = [outcome for outcome in compared if outcome.spread() > MOST_SPREAD]
    if others > MOST_OTHERS:
        found.append(f"other programs kept {others:.1f} of {os.cpu_count()} processors busy")
    if steal > MOST_STEAL:
        found.append(f"the hypervisor took {steal:.0%} of the processors' time")
    if compared and len(wide) > MOST_WIDE_ROWS * len(compared):
        found.append(f"in {len(wide)} of {len(compared)} rows the rounds differ by more than {MOST_SPREAD:.0%}")
    return found
