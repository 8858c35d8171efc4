#!/usr/bin/env bash
# Builds the engine with CUDA on a machine that has a GPU, runs every check that needs one, and writes what came out as files.
# Needs CMake, a C++20 compiler, the CUDA toolkit, and the libraries of the CPU backend and the tests (scripts/packages.txt,
# or any prefix that has them: -DCMAKE_PREFIX_PATH through LYNX_CMAKE_ARGS). No gRPC, protobuf or SQLite.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/gpu_check.sh OUT_DIR

Writes to OUT_DIR:
  machine.txt    the device, its driver, the toolkit, the commit
  build.txt      the build's own words
  ops.txt        the ops' tests on the device
  memcheck.txt   the same under compute-sanitizer's memcheck
  racecheck.txt  and its racecheck, of the ops without attention's long shapes
  summary.txt    a line for each: passed, failed, or skipped and why

LYNX_CMAKE_ARGS    more arguments for CMake
LYNX_BUILD_DIR     where to build (build-gpu)
Exits with 0 when nothing failed, and 77 where there is no GPU.
TEXT
}

if [ $# -ne 1 ] || [ "$1" = --help ]; then
  usage
  [ "${1:-}" = --help ] && exit 0
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${LYNX_BUILD_DIR:-build-gpu}
failed=0
: >"$out/summary.txt"

say() { echo "$1: $2" | tee -a "$out/summary.txt"; }

# check NAME COMMAND...: runs it with its output in NAME.txt.
check() {
  local name=$1
  shift
  if "$@" >"$out/$name.txt" 2>&1; then
    say "$name" passed
  else
    say "$name" "failed with exit code $?; see $name.txt"
    failed=1
  fi
}

{
  nvidia-smi || echo "no nvidia-smi"
  nvcc --version || echo "no nvcc"
  git rev-parse HEAD 2>/dev/null || echo "not a git checkout"
} >"$out/machine.txt" 2>&1

# shellcheck disable=SC2317  # check calls it
build_all() {
  # shellcheck disable=SC2086  # several arguments are meant
  cmake -B "$build" -DCMAKE_BUILD_TYPE=Release -DLYNX_ENGINE_ONLY=ON -DLYNX_CUDA=ON ${LYNX_CMAKE_ARGS:-} &&
    cmake --build "$build" -j "$(nproc)" --target cuda_device_test
}
check build build_all
[ $failed -eq 0 ] || exit 1

if ! nvidia-smi -L >/dev/null 2>&1; then
  for name in ops memcheck racecheck; do say $name "skipped: this machine has no GPU"; done
  exit 77
fi
test_program=$build/bin/cuda_device_test
check ops "$test_program"
if command -v compute-sanitizer >/dev/null; then
  short="--gtest_filter=-*Long*:*Determinism*"
  check memcheck compute-sanitizer --tool memcheck --error-exitcode 1 "$test_program" "$short"
  check racecheck compute-sanitizer --tool racecheck --error-exitcode 1 "$test_program" "$short"
else
  for name in memcheck racecheck; do say $name "skipped: compute-sanitizer is not installed"; done
fi
exit $failed
