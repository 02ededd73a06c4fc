# SPDX-License-Identifier: BSD-2-Clause
"""suite.py - runs rdma-core's own tests of the verbs API, and writes what became of each case.

    suite.py FOLDER RESULTS DEVICE

FOLDER has the tests as Debian's python3-pyverbs brings them, unpacked. The modules for one vendor's
hardware (mlx5, efa, cuda) are left out. RESULTS becomes a JSON object: the case's name, and "ok",
"skipped: why" or "failed: the traceback".
"""
import json
import pathlib
import sys
import unittest

OF_A_VENDOR = ("mlx5", "efa", "cuda")


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = {}

    def note(self, case, text):
        self.cases[case.id().removeprefix("tests.")] = text

    def addSuccess(self, case):
        self.note(case, "ok")

    def addSkip(self, case, reason):
        self.note(case, f"skipped: {reason}")

    def addError(self, case, error):
        self.note(case, f"failed: {self._exc_info_to_string(error, case)}")

    addFailure = addError

    def addSubTest(self, case, part, error):
        if error is not None:
            self.addError(case, error)

    def addExpectedFailure(self, case, error):
        self.note(case, "ok")

    def addUnexpectedSuccess(self, case):
        self.note(case, "failed: it was expected to fail")


def main():
    folder, results, device = sys.argv[1:]
    sys.path[:0] = [folder, str(pathlib.Path(folder) / "tests")]
    from args_parser import parser
    sys.argv[1:] = ["--dev", device, "--gid", "1"]
    parser.parse_args()
    names = sorted(file.stem for file in pathlib.Path(folder, "tests").glob("test_*.py")
                   if not any(vendor in file.stem for vendor in OF_A_VENDOR))
    result = Result()
    unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromNames([f"tests.{name}" for name in names])).run(result)
    pathlib.Path(results).write_text(json.dumps(result.cases))


if __name__ == "__main__":
    main()
