# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests of librdmacm, as Debian's python3-pyverbs brings them: they ask ls in the
device's directory for its interface, and ip for that one's address."""
import gzip
import pathlib
import re
import shutil

import hosts

TESTS = pathlib.Path("/usr/share/doc/rdma-core/tests")
RUN = """
import sys, unittest
sys.path[:0] = [{folder!r}, {folder!r} + "/tests"]
from args_parser import parser
parser.parse_args()
tests = unittest.TestLoader().loadTestsFromName("tests.test_rdmacm")
sys.exit(not unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful())
"""


def unpack(folder):
    """Debian compresses the larger files."""
    target = folder / "tests"
    target.mkdir()
    for file in TESTS.iterdir():
        if file.suffix == ".gz":
            target.joinpath(file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        elif file.is_file():
            shutil.copy(file, target)
    target.joinpath("__init__.py").touch()


def test_all_pass_on_an_interface(veth, tmp_path):
    unpack(tmp_path)
    host = veth.hosts(4)[0]
    command = ("/usr/bin/python3", "-B", "-c", RUN.format(folder=str(tmp_path)), "--dev", "verbena0", "--gid", "1")
    with host.start_plain(hosts.VERBENA, "run", "--namespace", "--", *command) as program:
        text = program.succeed(limit=60)
    results = re.findall(r"^(test_rdmacm_\w+) .*\.\.\. (\w+)", text, re.M)
    assert [name for name, result in results if result != "ok"] == []
    assert len(results) == 10
