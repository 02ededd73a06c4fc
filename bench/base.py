# SPDX-License-Identifier: BSD-2-Clause
"""base.py - another commit of this project, built to be measured beside the present one."""
import pathlib
import subprocess
import sys

from figures import Row

TARGETS = ("verbena", "ibverbs", "rdmacm", "ibumad")


class Unusable(Exception):
    """That commit cannot be measured; says why."""


def command(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        last = "\n".join(done.stdout.decode(errors="replace").splitlines()[-15:])
        raise Unusable(f"{' '.join(map(str, words))} failed:\n{last}")
    return done.stdout.decode().strip()


def build(root, commit, folder):
    """(its short name, its build folder); built once, kept in folder. A copy of the tree, not a
    worktree that git would remember."""
    name = command("git", "-C", root, "rev-parse", "--short=12", "--verify", f"{commit}^{{commit}}")
    source = pathlib.Path(folder) / name
    out = source / "build"
    if (source / "complete").exists():
        return name, out
    print(f"building {name}, to compare with", file=sys.stderr)
    source.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "-C", root, "archive", name], stdout=subprocess.PIPE, check=True).stdout
    command("tar", "-x", "-C", source, input=archive)
    command("cmake", "-S", source, "-B", out)
    command("cmake", "--build", out, "-j", "2", "--target", *TARGETS)
    (source / "complete").touch()
    return name, out


def other_name(key):
    return f"{key} (base)"


def jobs_in_turns(ours, theirs):
    """Verbena's jobs of both builds, each pair together; the base's figures get names of their own."""
    pairs = []
    for mine, base in zip(ours, theirs):
        if not mine.stand:
            continue
        base.units = {other_name(key): unit for key, unit in base.units.items()}
        function = base.function
        base.function = lambda function=function: {other_name(key): n for key, n in function().items()}
        base.name = other_name(base.name)
        pairs += [base, mine]
    return pairs


def rows(jobs):
    """A line for each figure that the present build and the base have in common."""
    names = {key for job in jobs for key in job.units}
    return [Row(key, key, other_name(key)) for job in jobs for key in job.units if other_name(key) in names]
