#!/usr/bin/env bash
# Builds the engine with CUDA on a machine with a GPU, runs every check that needs one, and writes the results to files.
# Needs CMake, a C++20 compiler, the CUDA toolkit, and the libraries of the CPU backend and the tests: from packages
# (scripts/packages.txt), from any prefix (-DCMAKE_PREFIX_PATH in LYNX_CMAKE_ARGS), or from the bundle, if
# scripts/gpu_bundle.sh made this folder. Does not need gRPC, protobuf or SQLite.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/gpu_check.sh OUT_DIR

Writes to OUT_DIR:
  machine.txt    the devices, their driver and links, the toolkit, the commit
  build.txt      the build's own words
  ops.txt        the ops' tests on the device
  rank.txt       whether the rank process can use each GPU, by its UUID
  measure.txt    rates of the device, and op times of a GPT-2 layer in fp32 and bfloat16, as JSON
  links.txt      what transfers between its GPUs cost, as JSON, where there are several and Lynx is built with NCCL
  memcheck.txt   the ops' tests under compute-sanitizer's memcheck
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

# check NAME COMMAND...: runs the command and writes its output to NAME.txt.
check() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$out/$name.txt" 2>&1; then
    say "$name" "passed in $((SECONDS - begin)) s"
  else
    say "$name" "failed with exit code $?; see $name.txt"
    failed=1
  fi
}

has_gpu=
nvidia-smi -L >/dev/null 2>&1 && has_gpu=1
{
  nvidia-smi || echo "no nvidia-smi"
  nvidia-smi topo -m || true
  nvcc --version || echo "no nvcc"
  cat COMMIT 2>/dev/null || git rev-parse HEAD || echo "not a git checkout"
} >"$out/machine.txt" 2>&1

arguments=(-DCMAKE_BUILD_TYPE=Release -DLYNX_ENGINE_ONLY=ON -DLYNX_DEVICE_CHECK=ON -DLYNX_CUDA=ON)
[ -z "$has_gpu" ] || arguments+=(-DCMAKE_CUDA_ARCHITECTURES=native)
if [ -d prefix ]; then
  libraries=$(echo "$PWD"/prefix/lib/*-linux-*)
  arguments+=("-DCMAKE_PREFIX_PATH=$PWD/prefix" "-DOPENSSL_ROOT_DIR=$PWD/prefix"
              "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,$libraries")  # also for what libraries load
fi

# shellcheck disable=SC2317  # check calls these
build_all() {
  # shellcheck disable=SC2086  # several arguments are meant
  cmake -B "$build" "${arguments[@]}" ${LYNX_CMAKE_ARGS:-} &&
    cmake --build "$build" -j "$(nproc)" --target cuda_device_test lynx-rank lynx-gpu-ranks
}
# shellcheck disable=SC2317
use_each_gpu() {
  local uuid
  for uuid in $(nvidia-smi --query-gpu=uuid --format=csv,noheader); do "$build/bin/lynx-rank" --check-cuda "$uuid" || return 1; done
}
# shellcheck disable=SC2317
measure() {
  local uuid shape
  uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | sed -n 1p)
  shape='"micro_batch": 8, "seq": 1024, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50304, "tp": 1, "dropout": true,
         "family": "gpt", "kv_heads": 0, "attention": "fused", "sequence_parallel": false'
  cat >"$out/request.json" <<TEXT
{"device_kind": "cuda", "device_uuid": "$uuid", "cores": [], "repetitions": 20, "budget_seconds": 60,
 "shapes": [{$shape, "dtype": "float32"}, {$shape, "dtype": "bfloat16"}]}
TEXT
  "$build/bin/lynx-rank" --measure "$out/request.json"
}
# shellcheck disable=SC2317
measure_links() {
  local uuids
  uuids=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | sed 's/.*/"&"/' | paste -sd, -)
  cat >"$out/links.json" <<TEXT
{"host": "127.0.0.1", "device_uuids": [$uuids], "cores": [], "blocks": [], "repetitions": 20, "budget_seconds": 60}
TEXT
  "$build/bin/lynx-rank" --measure-gpu-links "$out/links.json"
}
check build build_all
[ $failed -eq 0 ] || exit 1

if [ -z "$has_gpu" ]; then
  for name in ops rank measure links memcheck racecheck; do say $name "skipped: this machine has no GPU"; done
  exit 77
fi
test_program=$build/bin/cuda_device_test
check ops "$test_program"
check rank use_each_gpu
check measure measure
if [ "$(nvidia-smi --query-gpu=uuid --format=csv,noheader | wc -l)" -gt 1 ]; then
  check links measure_links
else
  say links "skipped: this machine has one GPU"
fi
if command -v compute-sanitizer >/dev/null; then
  short="--gtest_filter=-*Long*:*Determinism*"
  check memcheck compute-sanitizer --tool memcheck --error-exitcode 1 "$test_program" "$short"
  check racecheck compute-sanitizer --tool racecheck --error-exitcode 1 "$test_program" "$short"
else
  for name in memcheck racecheck; do say $name "skipped: compute-sanitizer is not installed"; done
fi
exit $failed
