#!/usr/bin/env python3
"""Reports what a run of CTest skipped, and why: skips.py RESULTS, where RESULTS comes from `ctest --output-junit`.
Prints a line for each skipped test, and for each test that is skipped inside one that passed. With LYNX_REQUIRE_ALL=1
it exits with 1 if something is skipped that skips_allowed.txt does not name.

CTest's log is not enough: it lists a test that ended with the exit code for a skip as passed."""

import fnmatch
import os
import pathlib
import re
import sys
import xml.etree.ElementTree

ALLOWED = pathlib.Path(__file__).resolve().parent / "skips_allowed.txt"
# The line that tests/program.py prints for a skip. Every program that exits with 77 prints such a line, too.
TOLD = re.compile(r"^skipped: (.+)$", re.MULTILINE)
# The lines that GoogleTest prints for GTEST_SKIP() << "why".
GOOGLE_TEST = re.compile(r"^\S+:\d+: Skipped\n(.*?)\n\[  SKIPPED \] (\S+)", re.MULTILINE | re.DOTALL)
LONGEST = 300  # limit for a reason, in characters


def reasons(name, said):
    """Returns why this test or a part of it was skipped. `said` is the test's output."""
    found = [text for text in TOLD.findall(said)]
    for why, inner in GOOGLE_TEST.findall(said):
        why = " ".join(why.split()) or "no reason is given"
        found.append(why if name.endswith(inner) else f"{inner}: {why}")
    return list(dict.fromkeys(found))


def skips(results):
    """Returns a line for each skip: the test's name in CTest, the skipped part unless the whole test was skipped, and why."""
    lines = []
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        name, mark = case.get("name"), case.find("skipped")
        found = reasons(name, case.findtext("system-out") or "")
        if case.get("status") == "disabled":
            found = ["it is disabled"]
        elif not found and mark is not None and mark.get("message", "").startswith("SKIP_"):
            found = ["no reason is given"]
        lines += [f"{name}: {reason}"[:LONGEST] for reason in found]
    return lines


def allowed():
    """Returns shell patterns for the lines of skips() that skips_allowed.txt allows."""
    lines = (line.strip() for line in ALLOWED.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: skips.py RESULTS")
    require_all = os.environ.get("LYNX_REQUIRE_ALL") == "1"
    try:
        found = skips(sys.argv[1])
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        # CTest itself has said why it ran nothing.
        sys.exit(f"error: it is not known what was skipped: {error}" if require_all else 0)
    print("\nskipped here, and why:" if found else "\nnothing was skipped", *found, sep="\n  ")
    refused = [line for line in found if not any(fnmatch.fnmatchcase(line, pattern) for pattern in allowed())]
    if require_all and refused:
        sys.exit("\n  ".join(["error: LYNX_REQUIRE_ALL=1 asks for all tests but those of scripts/skips_allowed.txt, and skipped were", *refused]))


if __name__ == "__main__":
    main()
