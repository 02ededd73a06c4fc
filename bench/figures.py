# SPDX-License-Identifier: BSD-2-Clause
"""figures.py - the benchmark's arithmetic: what is compared with what, and what comes of it.

    values    {key: [one number for each round]}; a key says what was measured, as a person reads it
    Row       one line of the table: a key, what it is compared with, the target
    Outcome   what the values say about a row

A figure is the median of its rounds; a ratio is the ratio of two medians. How far the rounds agree is
told by the middle half of the ratios of each round: where the target lies within it, the verdict
stands on chance, and is marked as doubtful.
"""
import dataclasses
import statistics

KIB, MIB = 1 << 10, 1 << 20
JUDGED_ROUNDS = 5  # fewer are a look


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    key: str
    reference: str = ""
    at_least: float = None
    at_most: float = None
    by: str = "ratio"  # or "difference" from the reference, or the "value" itself

    def target(self):
        bound = self.at_least if self.at_least is not None else self.at_most
        if bound is None:
            return ""
        return f"{'>=' if self.at_least is not None else '<='} {'+' if self.by == 'difference' else ''}{bound:g}"

    def compare(self, value, reference):
        if self.by == "ratio":
            return value / reference if reference else float("inf")
        return value - reference if self.by == "difference" else value

    def holds(self, result):
        return result >= self.at_least if self.at_least is not None else result <= self.at_most


@dataclasses.dataclass(frozen=True)
class Outcome:
    row: Row
    value: float = None
    reference: float = None
    result: float = None  # a ratio or a difference; None when there is nothing to compare with
    low: float = None  # the middle half of the rounds' results
    high: float = None
    verdict: str = ""  # "met", "missed", "" without a target, or why there is no result
    doubtful: bool = False

    def spread(self):
        """How wide that middle half is, as a share of the result."""
        return (self.high - self.low) / abs(self.result) if self.result else 0.0


def middle_half(numbers):
    """The quartiles, each the nearest measured number outward."""
    ordered = sorted(numbers)
    outside = (len(ordered) - 1) // 4
    return ordered[outside], ordered[-1 - outside]


def judge(row, values, reasons):
    """The row's outcome; reasons says why a key has no values."""
    keys = [row.key] + ([row.reference] if row.reference else [])
    for key in keys:
        if not values.get(key):
            return Outcome(row, verdict=reasons.get(key, "not measured"))
    value = statistics.median(values[row.key])
    if not row.reference and row.by != "value":
        return Outcome(row, value)
    reference = statistics.median(values[row.reference]) if row.reference else None
    result = row.compare(value, reference)
    others = values[row.reference] if row.reference else values[row.key]
    low, high = middle_half([row.compare(a, b) for a, b in zip(values[row.key], others)])
    verdict, doubtful = "", False
    if row.target():
        verdict = "met" if row.holds(result) else "missed"
        doubtful = row.holds(low) != row.holds(high)
    return Outcome(row, value, reference, result, low, high, verdict, doubtful)


def size_text(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number_text(value, unit):
    if value is None:
        return ""
    digits = 0 if unit in ("B", "ticks", "1/s") else 2 if value < 100 else 1
    return f"{value:.{digits}f} {unit}".strip()
