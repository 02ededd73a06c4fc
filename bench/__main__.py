# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark: Verbena under Debian's perftest, beside what this machine does without RDMA.

A number alone says little: machines differ, and so does the load of one machine. So everything is
measured in rounds, Verbena and its peers in turns, and each target is a ratio of two medians of the
same run. The numbers themselves are shown and not judged.
"""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "lib"))

import base  # noqa: E402
import figures  # noqa: E402
import measure  # noqa: E402
import noise  # noqa: E402
import plot  # noqa: E402
import stand as stands  # noqa: E402
import table  # noqa: E402
from groups import GROUPS  # noqa: E402

QUICK_ROUNDS = 2

EPILOG = """groups:
""" + "\n".join(f"  {group.name:10} {group.about}" for group in GROUPS) + """

  All but guest are measured when none is named. The same through make:
    make bench
    make bench QUICK=1                          2 rounds, without the plots: a look, in a minute or two
    make bench GROUP="local wire9000" ROUNDS=9
    make bench ONLY=ib_send_lat                 the rows with this in their name
    make bench GROUP=guest                      as root; fetches a kernel the first time
    make bench BASE=HEAD~1                      that commit against the present build, in turns

results:
  BUILD/bench/results.json    every number of every round
  BUILD/bench/*.svg           bandwidth and latency over the size of a message
  (with BASE: BUILD/bench/compare.json)

exit status:
  0  measured; whether targets were missed is for the reader of the table
  1  something could not be measured; what and why is on standard error
  2  the command line makes no sense

docs/performance.md says how to read the table."""


def parse(arguments):
    parser = argparse.ArgumentParser(prog="make bench, or python3 bench", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="what to measure (see below)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                        help="the build to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help=f"how often each is measured (default: {figures.JUDGED_ROUNDS})")
    parser.add_argument("--only", metavar="TEXT", help="only rows of the table that contain TEXT; no plots")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, no plots")
    parser.add_argument("--base", metavar="COMMIT", help="compare with this commit instead of with the peers")
    options = parser.parse_args(arguments)
    known = {group.name: group for group in GROUPS}
    for name in options.groups:
        if name not in known:
            parser.error(f"there is no group \"{name}\"; there are {', '.join(known)}")
    options.groups = [known[name] for name in options.groups] or [group for group in GROUPS if group.default]
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else figures.JUDGED_ROUNDS)
    if options.rounds < 1:
        parser.error("at least one round is needed")
    options.curves = not (options.quick or options.only or options.base)
    if not (options.build / "bin" / "verbena").exists():
        parser.error(f"{options.build} holds no build of Verbena; make build makes one")
    return options


def chosen(jobs, rows, plots, only):
    """What of a group is wanted."""
    if only:
        rows = [row for row in rows if only in row.what or only in row.key]
        wanted = {row.key for row in rows} | {row.reference for row in rows}
        jobs = [job for job in jobs if wanted.intersection(job.units)]
    return jobs, rows, plots


def measure_targets(options, stand, out):
    made = {group: chosen(*group.make(stand, options.curves), options.only) for group in options.groups}
    made = {group: parts for group, parts in made.items() if parts[0]}
    watch = noise.Watch()
    results = measure.run([(group.name, jobs, group.rounds) for group, (jobs, _, _) in made.items()],
                          options.rounds, watch)
    outcomes = [(f"{group.name}: {group.about}", [figures.judge(row, results.values, results.reasons) for row in rows])
                for group, (_, rows, _) in made.items()]
    finish(options, results, outcomes, watch, out / "results.json", table.COLUMNS)
    note = f"median of {options.rounds} round{'s' * (options.rounds > 1)}; bars: the middle half"
    for drawing in (drawing for _, _, plots in made.values() for drawing in plots):
        svg = plot.draw(drawing, results.values, note)
        if svg:
            (out / f"{drawing.name}.svg").write_text(svg)
            print(out / f"{drawing.name}.svg")
    return results


def measure_base(options, stand, out):
    name, build = base.build(ROOT, options.base, out / "base")
    other = stands.Stand(build)
    try:
        made = {}
        for group in options.groups:
            ours, theirs = (chosen(*group.make(which, False), options.only)[0] for which in (stand, other))
            jobs = base.jobs_in_turns(ours, theirs)
            if jobs:
                made[group] = jobs, base.rows(jobs)
        watch = noise.Watch()
        results = measure.run([(g.name, jobs, g.rounds) for g, (jobs, _) in made.items()], options.rounds, watch)
    finally:
        other.close()
    outcomes = [(group.name, [figures.judge(row, results.values, results.reasons) for row in rows])
                for group, (_, rows) in made.items()]
    finish(options, results, outcomes, watch, out / "compare.json",
           ("", "this build", "", name, "ratio", "+-", "", ""))
    return results


def finish(options, results, groups, watch, path, columns):
    """The table, what it comes to, and the file."""
    every = [outcome for _, outcomes in groups for outcome in outcomes]
    complaints = noise.complaints(watch.load_of_others(), watch.steal(), every)
    print(table.table(groups, results.units, columns))
    print()
    lines = table.summary(every, options.rounds, complaints)
    print("\n".join(lines[1:] if options.base else lines))
    table.write_json(path, table.document(ROOT, results, groups, options.rounds, watch.load_of_others(),
                                          watch.steal(), complaints))
    print(path)


def main(arguments=None):
    options = parse(arguments)
    options.build = options.build.absolute()
    stands.PROGRAMS = options.build / "bench"
    out = options.build / "bench"
    out.mkdir(exist_ok=True)
    stand = stands.Stand(options.build)
    try:
        results = (measure_base if options.base else measure_targets)(options, stand, out)
    except base.Unusable as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted", file=sys.stderr)
        return 130
    finally:
        stand.close()
    if results.repeated:
        print(f"bench: {len(results.repeated)} runs failed and were repeated; see \"repeated\" in the file",
              file=sys.stderr)
    for failure in results.failures:
        print(f"bench: could not measure {failure}", file=sys.stderr)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
