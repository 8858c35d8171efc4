#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: unit, golden, property and end-to-end. Prints CTest's summary, and then what was skipped here and
# why; ends as CTest does. With LYNX_REQUIRE_ALL=1 it also ends with 1 where something is skipped that scripts/skips_allowed.txt does not name.
# Arguments go to ctest, such as: scripts/test.sh -R planner
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/install.sh --tests
scripts/build.sh
results=$root/build/Testing/results.xml
rm -f "$results"  # of an earlier run
ended=0
# The sizes: CTest would keep no more than the first 1 KiB of what a test says that passes, and a skip may come later.
ctest --preset release --output-on-failure --output-junit "$results" --test-output-size-passed 100000000 --test-output-size-failed 100000000 "$@" ||
  ended=$?
scripts/skips.py "$results" || [ $ended -ne 0 ] || ended=1
exit $ended
