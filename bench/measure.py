# SPDX-License-Identifier: BSD-2-Clause
"""measure.py - runs the jobs of the groups, round by round, and collects what they yield."""
import sys
import time

import hosts
from stand import NOT_BUILT


TRIES = 2  # in each round, before a job is given up


class Progress:
    """One line on standard error, with the time left; where that is no terminal, a line for each round."""

    FIRST_GUESS = 1.2  # seconds a job takes before any was measured

    def __init__(self, runs, stream):
        self.left = list(runs)  # job names, in order
        self.stream = stream
        self.terminal = stream.isatty()
        self.taken = {}
        self.said = ""

    def seconds_left(self):
        mean = sum(self.taken.values()) / len(self.taken) if self.taken else self.FIRST_GUESS
        return sum(self.taken.get(name, mean) for name in self.left)

    def begin(self, where, name):
        left = self.seconds_left()
        text = f"{where}, about {left // 60:.0f}:{left % 60:02.0f} left"
        if self.terminal:
            print(f"\r\033[K{text}: {name}", end="", file=self.stream, flush=True)
        elif where != self.said:
            print(text, file=self.stream, flush=True)
        self.said = where

    def end(self, name, seconds):
        self.taken[name] = seconds
        self.left.remove(name)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", file=self.stream, flush=True)


class Results:
    def __init__(self):
        self.values = {}  # {key: [number of each round]}
        self.units = {}
        self.reasons = {}  # {key: why there is no number}
        self.failures = []  # what should have been measured and could not
        self.repeated = []  # what could at the second try

    def add(self, job, figures):
        for name in job.units:
            self.values.setdefault(name, []).append(figures[name])

    def fail(self, job, fault):
        reason = NOT_BUILT if job.missing == NOT_BUILT else "failed"
        for name in job.units:
            self.values.pop(name, None)
            self.reasons[name] = reason
        if reason == "failed":
            self.failures.append(f"{job.name}: {fault}")


# What a program that misbehaves, a machine that refuses, and output that is not understood look like.
FAULTS = (hosts.Failed, OSError, LookupError, TypeError, ValueError)


def attempt(job, results):
    if job.missing:
        raise OSError(job.missing)
    for _ in range(TRIES - 1):
        try:
            return job.run()
        except FAULTS as fault:
            results.repeated.append(f"{job.name}: {fault}")
    return job.run()


def run(groups, rounds, watch, stream=sys.stderr):
    """groups are triples: a name, jobs, and how many rounds it has (0: `rounds`)."""
    results = Results()
    plan = [(name, number, count or rounds, jobs) for name, jobs, count in groups for number in range(count or rounds)]
    progress = Progress([job.name for _, _, _, jobs in plan for job in jobs], stream)
    broken = set()
    for group, number, count, jobs in plan:
        watch.probe()
        for job in jobs:
            results.units.update(job.units)
            progress.begin(f"{group}, round {number + 1} of {count}", job.name)
            begin = time.monotonic()
            if id(job) not in broken:
                try:
                    results.add(job, attempt(job, results))
                except FAULTS as fault:
                    broken.add(id(job))
                    results.fail(job, fault)
            progress.end(job.name, time.monotonic() - begin)
    progress.clear()
    return results
