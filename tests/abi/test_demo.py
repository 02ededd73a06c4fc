# SPDX-License-Identifier: BSD-2-Clause
"""verbena demo, as built and as installed, as us and as nobody."""
import os
import re
import subprocess

import pytest

import hosts

pytestmark = pytest.mark.alone

PROGRAMS = ["ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_atomic_bw"]
LIMIT = 60  # "in under a minute"
NOBODY = 65534


def check(done):
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    rows = re.findall(r"^  (\S+) .*  (ok|FAILED)$", done.stdout, re.M)
    assert rows == [(program, "ok") for program in PROGRAMS], text
    assert re.search(r"^6 of 6 ok in [\d.]+ s$", done.stdout, re.M), text
    assert "\r" not in done.stdout, "a terminal's progress in a pipe"


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL, **more)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed tree that everybody may read."""
    folder = tmp_path_factory.mktemp("installed")
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    done = run("cmake", "--install", str(hosts.BUILD), "--prefix", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_demo():
    check(run(hosts.VERBENA, "demo"))


def test_install_has_everything(prefix):
    assert os.access(prefix / "bin/verbena", os.X_OK)
    assert (prefix / "share/man/man1/verbena.1").exists()
    libraries = prefix / "lib/verbena"
    for name in ("libibverbs.so.1", "libibverbs.so"):
        assert (libraries / name).exists(), sorted(os.listdir(libraries))
    done = run(prefix / "bin/verbena", "run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert done.stdout.strip().split(":")[0] == str(libraries)


def test_demo_as_nobody(prefix):
    if os.geteuid() != 0:
        return check(run(prefix / "bin/verbena", "demo"))  # an ordinary user already
    check(run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs",
              "--inh-caps=-all", prefix / "bin/verbena", "demo", cwd="/"))


def test_a_demo_that_fails_says_so(tmp_path):
    """A library that cannot be loaded, where ours should be."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libibverbs.so.1").write_text("not a library\n")
    copy = tmp_path / "bin/verbena"
    copy.write_bytes(hosts.VERBENA.read_bytes())
    copy.chmod(0o755)
    done = run(copy, "demo")
    assert done.returncode == 1
    assert "0 of 6 ok" in done.stdout and "ib_write_bw failed:" in done.stdout
    assert "libibverbs.so.1" in done.stdout


def test_without_libraries_the_command_says_where_it_looked(tmp_path):
    copy = tmp_path / "verbena"
    copy.write_bytes(hosts.VERBENA.read_bytes())
    copy.chmod(0o755)
    done = run(copy, "run", "ls")
    assert done.returncode == 125 and "the libraries are neither in" in done.stderr
