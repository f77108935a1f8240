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


def ctrl_c():
    raise KeyboardInterrupt


def interrupted(lines, functions, act, call):
    """Call it, and act() before so many lines of these functions, as a signal handler could. KeyboardInterrupt ends
    the call. -> whether it had so many"""
    codes, left = [function.__code__ for function in functions], lines

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code not in codes:
            return None
        left -= event == "line"
        if left == 0 and event == "line":
            sys.settrace(None)
            act()
        return trace

    try:
        sys.settrace(trace)
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return left <= 0


def main():
    """Run the tests of the program; returns its exit status."""
    result = TapResult()
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    suite.run(result)
    print(f"1..{result.testsRun}")
    return 1 if result.errors else 0
