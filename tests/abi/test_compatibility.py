# SPDX-License-Identifier: BSD-2-Clause
"""docs/compatibility.md against what is here: the versions of the programs, and the tests that it names."""
import re
import subprocess

import hosts

DOCUMENT = (hosts.ROOT / "docs" / "compatibility.md").read_text()
PACKAGES = {"UCX": "ucx-utils", "libfabric": "libfabric-bin", "Open MPI": "openmpi-bin", "MPICH": "mpich",
            "QEMU": "qemu-system-x86", "librpma": "librpma0"}  # where its name is not the program's


def rows():
    """(program, version) of each line that names Debian 12's programs and a test."""
    tested = DOCUMENT.partition("## Tried by hand")[0]
    return re.findall(r"^\| ((?!Debian)\w[\w -]*?) ([\d.]+)\b[^|]*\|", tested, re.M)


def test_versions_are_those_that_are_installed():
    found = rows()
    assert len(found) > 10
    for program, version in found:
        package = PACKAGES.get(program, program)
        installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=True)
        assert re.match(rf"(\d+:)?{re.escape(version)}(?![\d.])", installed.stdout), (program, version, installed.stdout)


def test_named_tests_are_there():
    named = set(re.findall(r"`(test_\w+\.py)`", DOCUMENT))
    assert named and all((hosts.ROOT / "tests" / "abi" / name).exists() for name in named)
