"""TAP from unittest: one line for each test."""

import sys
import traceback
import unittest


class TapResult(unittest.TestResult):
    def _line(self, good, test, detail=""):
        word = "ok" if good else "not ok"
        print(f"{word} {self.testsRun} - {test.id().split('.', 1)[1]}", flush=True)
        for line in detail.splitlines():
            print(f"#   {line}", flush=True)

    def addSuccess(self, test):
        self._line(True, test)

    def addError(self, test, err):
        super().addError(test, err)
        self._line(False, test, "".join(traceback.format_exception(*err)))

    addFailure = addError


def main():
    """Run the tests of the program; returns its exit status."""
    result = TapResult()
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    suite.run(result)
    print(f"1..{result.testsRun}")
    return 1 if result.errors else 0
