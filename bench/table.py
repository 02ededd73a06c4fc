# SPDX-License-Identifier: BSD-2-Clause
"""table.py - outcomes as a table for people, and everything measured as JSON for programs."""
import datetime
import json
import os
import platform
import statistics
import subprocess

from figures import JUDGED_ROUNDS, number_text

COLUMNS = ("", "Verbena", "against", "", "ratio", "+-", "target", "")
TO_THE_RIGHT = (1, 3, 4, 5)


def cells(outcome, units, name_reference=True):
    row, unit = outcome.row, units.get(outcome.row.key, "")
    result = spread = ""
    if outcome.result is not None and row.by != "value":
        result = f"{outcome.result:+.2f}" if row.by == "difference" else f"{outcome.result:.2f}"
        spread = f"{outcome.spread() / 2:.0%}"
    return (f"  {row.what}", number_text(outcome.value, unit),
            row.reference if name_reference else "",
            number_text(outcome.reference, units.get(row.reference, "")), result, spread, row.target(),
            outcome.verdict + ("?" if outcome.doubtful else ""))


def table(groups, units, columns=COLUMNS):
    """groups are pairs of a heading and outcomes. Returns text. A reference is named where the columns do not."""
    body = {heading: [cells(outcome, units, not columns[3]) for outcome in outcomes] for heading, outcomes in groups}
    every = [columns] + [row for rows in body.values() for row in rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]

    def line(row):
        return "  ".join(cell.rjust(width) if i in TO_THE_RIGHT else cell.ljust(width)
                         for i, (cell, width) in enumerate(zip(row, widths))).rstrip()

    lines = [line(columns)]
    for heading, rows in body.items():
        lines += [heading, *map(line, rows)]
    return "\n".join(lines)


def summary(outcomes, rounds, complaints):
    """What the table comes to, as lines."""
    judged = [outcome for outcome in outcomes if outcome.verdict in ("met", "missed")]
    met = sum(outcome.verdict == "met" for outcome in judged)
    lines = [f"{met} of {len(judged)} targets met."]
    if any(outcome.doubtful for outcome in judged):
        lines.append("met?, missed?: the target lies within what half of the rounds differ by.")
    unmeasured = [outcome for outcome in outcomes if outcome.row.target() and outcome not in judged]
    if unmeasured:
        lines.append(f"{len(unmeasured)} targets have no figure.")
    if rounds < JUDGED_ROUNDS:
        lines.append(f"Fewer than {JUDGED_ROUNDS} rounds: a look, not a judgement.")
    if complaints:
        lines.append("This machine was too noisy to judge by: " + "; ".join(complaints) + ".")
    return lines


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.machine()


def document(root, results, groups, rounds, others, steal, complaints):
    """All of it, for json.dump()."""
    return {
        "commit": git(root, "rev-parse", "HEAD") + ("+" if git(root, "status", "--porcelain", "-uno") else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"kernel": platform.release(), "processor": processor(), "processors": os.cpu_count()},
        "rounds": rounds,
        "noise": {"others": round(others, 3), "steal": round(steal, 4), "complaints": complaints},
        "figures": {key: {"unit": results.units[key], "median": statistics.median(values), "rounds": values}
                    for key, values in results.values.items()},
        "rows": [{"group": heading, "what": outcome.row.what, "figure": outcome.row.key,
                  "against": outcome.row.reference, "result": outcome.result, "target": outcome.row.target(),
                  "verdict": outcome.verdict, "doubtful": outcome.doubtful}
                 for heading, outcomes in groups for outcome in outcomes],
        "failures": results.failures,
        "repeated": results.repeated,
    }


def write_json(path, contents):
    with open(path, "w") as file:
        json.dump(contents, file, indent=1)
        file.write("\n")
