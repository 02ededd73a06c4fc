# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests of the verbs API (Debian's python3-pyverbs), on Verbena.

docs/conformance.md names each case that is skipped, with the reason: something that the machine may lack.
All others must pass, so that the number on the page cannot fall.
"""
import gzip
import json
import pathlib
import re
import shutil
import subprocess

import pytest

import hosts

PACKAGED = pathlib.Path("/usr/share/doc/rdma-core/tests")
PAGE = hosts.ROOT / "docs" / "conformance.md"
CASES = 170
PASS_AT_LEAST = 157  # it rises, and does not fall


def unpacked(folder):
    """The suite in folder/tests. Where the machine installs no documentation, from the package itself."""
    source = PACKAGED
    if not source.is_dir():
        subprocess.run(["apt-get", "download", "-q", "python3-pyverbs"], cwd=folder, check=True, timeout=60)
        subprocess.run(["dpkg-deb", "-x", next(folder.glob("*.deb")), folder / "package"], check=True, timeout=60)
        source = folder / "package" / PACKAGED.relative_to("/")
    shutil.copytree(source, folder / "tests")
    for packed in (folder / "tests").glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="module")
def cases(veth, mount_namespaces, tmp_path_factory):
    """What became of each case."""
    folder = unpacked(tmp_path_factory.mktemp("pyverbs"))
    results = folder / "results.json"
    host = veth.hosts(4)[0]
    # its tests of the connection manager run `ls` on the device's folder, and `ip` for its addresses
    with host.start_plain(hosts.VERBENA, "run", "--namespace", "--", "/usr/bin/python3",
                          pathlib.Path(__file__).with_name("suite.py"), folder, results, "verbena0") as program:
        program.succeed(240)
    return json.loads(results.read_text())


def on_the_page():
    """Case and reason of each row of the page's table."""
    return dict(re.findall(r"^\| `(\w+\.\w+\.\w+)` \| (.+) \|$", PAGE.read_text(), re.M))


def test_none_fails(cases):
    failed = {name: text for name, text in cases.items() if text.startswith("failed")}
    assert not failed, "\n\n".join(f"{name}: {text}" for name, text in failed.items())
    assert len(cases) == CASES


def test_the_page_names_each_skip(cases):
    """These and no others, but that a machine may have what the page says one may lack (huge pages)."""
    skipped = {name: text for name, text in cases.items() if text.startswith("skipped")}
    unnamed = {name: text for name, text in skipped.items() if name not in on_the_page()}
    assert not unnamed, json.dumps(unnamed, indent=1)
    assert len(on_the_page()) == CASES - PASS_AT_LEAST and set(on_the_page()) <= set(cases)


def test_enough_pass(cases):
    passed = sum(text == "ok" for text in cases.values())
    said = re.search(r"(\d+) of the (\d+) cases pass", PAGE.read_text())
    assert said and (int(said[1]), int(said[2])) == (PASS_AT_LEAST, CASES)
    assert passed >= PASS_AT_LEAST
