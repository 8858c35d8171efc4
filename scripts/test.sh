#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: unit, golden, property and end-to-end. Ends with CTest's summary.
# Arguments go to ctest, such as: scripts/test.sh -R planner
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/install.sh --tests
scripts/build.sh
exec ctest --preset release --output-on-failure "$@"
