"""Runs tests in Python as `python3 -m unittest -v` does: program.py NAME..., in the tests' folder. For each skipped
test it also prints a line, from which scripts/skips.py makes its list. If tests were skipped and none succeeded, the exit
code is 77, which CTest counts as a skip. A failure gives 1."""

import os
import sys
import unittest

SKIPPED = 77


def tell(what):
    """Prints a line that scripts/skips.py looks for. `what`: the test or program that is skipped, and why."""
    sys.stdout.flush()  # otherwise buffered output would appear in the middle of the line
    print("skipped:", " ".join(str(what).split()), file=sys.stderr, flush=True)


class Result(unittest.TextTestResult):
    """Prints each skip at once, so that it is printed even if the program is killed later."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.succeeded = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.succeeded += 1

    # Tells each failure at once, because a program that is stopped for taking too long prints nothing at its end.
    def addError(self, test, err):
        super().addError(test, err)
        self.printErrorList("ERROR", self.errors[-1:])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.printErrorList("FAIL", self.failures[-1:])

    def addSubTest(self, test, subtest, err):
        failed, erred = len(self.failures), len(self.errors)
        super().addSubTest(test, subtest, err)
        self.printErrorList("FAIL", self.failures[failed:])
        self.printErrorList("ERROR", self.errors[erred:])

    def printErrors(self):
        """Prints nothing at the end: each failure has been told."""

    def addSkip(self, test, reason):
        sys.stdout.flush()
        super().addSkip(test, reason)
        tell(f"{test.id().removeprefix('__main__.')}: {reason}")


class Runner(unittest.TextTestRunner):
    resultclass = Result


def exit_code(result):
    if not result.wasSuccessful() or not (result.testsRun or result.skipped):
        return 1
    return SKIPPED if result.skipped and not result.succeeded else 0


def main(*names):
    """Runs the tests with these names, or all tests of the calling program if there is no name. Then exits."""
    made = unittest.main(module=None if names else "__main__", argv=[sys.argv[0], *names], exit=False, verbosity=2, testRunner=Runner)
    sys.exit(exit_code(made.result))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: program.py NAME...")
    sys.path[0] = os.getcwd()
    main(*sys.argv[1:])
