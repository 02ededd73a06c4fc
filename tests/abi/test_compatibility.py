# SPDX-License-Identifier: BSD-2-Clause
"""docs/compatibility.md against what is here: the versions of the programs, the tests that it names, and in those
the programs and options of each row."""
import gzip
import re
import subprocess

import pytest

import hosts
import releases

TESTS = hosts.ROOT / "tests"
DOCUMENT = (hosts.ROOT / "docs" / "compatibility.md").read_text()
TESTED = DOCUMENT.partition("## Tried by hand")[0]
PACKAGES = {"UCX": "ucx-utils", "libfabric": "libfabric-bin", "Open MPI": "openmpi-bin", "MPICH": "mpich",
            "QEMU": "qemu-system-x86", "librpma": "librpma0"}  # where its name is not the program's
CODENAMES = {"11": "bullseye", "13": "trixie"}
NAMED = r"(\w[\w -]*?) (\d[\d.]*\d)\b"  # a program and its version


def rows():
    """The cells of each row that a test stands behind: program, command, result, test."""
    found = [re.split(r" *\| *", line)[1:-1] for line in TESTED.splitlines() if line.startswith("| ")]
    return [row for row in found if row[0] not in ("program", "---")]


def agrees(version, package_version):
    return re.match(rf"(\d+:)?([\w.~]+\+really\.)?{re.escape(version)}(?!\d|\.[1-9])", package_version)


def test_versions_are_those_that_are_installed():
    found = [match.groups() for row in rows() if (match := re.match(NAMED, row[0])) and not row[0].startswith("Debian")]
    assert len(found) > 10
    for program, version in found:
        package = PACKAGES.get(program, program)
        installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=True)
        assert agrees(version, installed.stdout), (program, version, installed.stdout)


@pytest.mark.parametrize("release", CODENAMES)
def test_versions_of_other_releases(release):
    """Each package brings its changelog, whose first entry is its own version."""
    root = releases.get(CODENAMES[release]).root
    found = [pair for row in rows() if row[0].startswith(f"Debian {release}: ")
             for pair in re.findall(NAMED, row[0].partition(": ")[2])]
    assert {program for program, _ in found} == {"ibverbs-utils", "perftest", "UCX"}
    for program, version in found:
        changelog = root / "usr/share/doc" / PACKAGES.get(program, program) / "changelog.Debian.gz"
        with gzip.open(changelog, "rt") as lines:
            unpacked = re.search(r"\((.+?)\)", next(lines))[1]
        assert agrees(version, unpacked), (program, version, unpacked)


def sources(cell):
    """The tests that a cell names; some are programs that ctest runs."""
    names = re.findall(r"`([^`]+)`", cell)
    return [TESTS / f"{name}.c" if "/" in name else TESTS / "abi" / name for name in names]


def test_named_tests_are_there():
    assert rows()
    for row in rows():
        assert sources(row[3]) and all(path.is_file() for path in sources(row[3])), row


def words_of(cell):
    """What distinguishes a command: the program, the options, names and values; of a source its name."""
    for span in re.findall(r"`([^`]+)`", cell):
        for word in span.split():
            yield from re.split(r"[=,;]", word.strip("'").rpartition("/")[2].removesuffix(".c"))


def test_commands_are_in_the_tests():
    """Whole words, in the named tests or in what they share; a star or dots stand for the rest of a word."""
    shared = "".join(path.read_text() for path in (TESTS / "lib").glob("*.py"))
    missing = []
    for row in rows():
        text = shared + "".join(path.read_text() for path in sources(row[3]))
        for word in words_of(row[1]):
            pattern = re.escape(word.rstrip("*.")) + ("" if word.endswith(("*", "...")) else r"(?!\w)")
            if not re.search(r"(?<!\w)" + pattern, text):
                missing.append((row[3], row[1][:60], word))
    assert not missing, missing
