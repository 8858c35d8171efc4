#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: unit, golden, property and end-to-end. Prints CTest's summary,
# then what was skipped on this machine and why. The exit code is CTest's. With LYNX_REQUIRE_ALL=1 it is also 1 if
# something is skipped that scripts/skips_allowed.txt does not name. Arguments are passed to ctest, for example:
# scripts/test.sh -R planner
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/install.sh --tests
scripts/build.sh
results=$root/build/Testing/results.xml
rm -f "$results"  # the results of an earlier run
ended=0
# By default CTest keeps only the first 1 KiB of a passing test's output, and a skip may come later.
ctest --preset release --output-on-failure --output-junit "$results" --test-output-size-passed 100000000 --test-output-size-failed 100000000 "$@" ||
  ended=$?
scripts/skips.py "$results" || [ $ended -ne 0 ] || ended=1
exit $ended
