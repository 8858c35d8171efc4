#!/usr/bin/env bash
# Checks Lynx on a machine with a GPU and writes the results to files. In a folder of scripts/gpu_bundle.sh it runs the
# programs of the folder; elsewhere it builds them first, which needs CMake, a C++20 compiler, the CUDA toolkit, and the
# libraries of the CPU backend and the tests: from packages (scripts/packages.txt), from any prefix (-DCMAKE_PREFIX_PATH in
# LYNX_CMAKE_ARGS), or from the bundle of sources. Does not need gRPC, protobuf or SQLite.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: gpu_check.sh check OUT_DIR        does it work? at most 4 minutes
       gpu_check.sh measure OUT_DIR      how fast is it? at most 9 minutes
       gpu_check.sh sanitizers OUT_DIR   does it race, does it read what it must not? at most 8 minutes

Writes to OUT_DIR, which is for one of the three:
  summary.txt    a line for each step: passed, failed, timed out, or skipped and why
  machine.txt    the devices, their driver and links, the toolkit, the commit
  programs.txt   which libraries the programs load, or the words of the build
  bundle.txt     why the programs of the folder could not start, if its sources were built
  check:       rank.txt      whether the rank process can use each GPU, by its UUID
               ops.txt       the ops' tests on the device
               engine.txt    the engine's tests on the device: ranks share it, and their losses are compared with those on CPUs
  measure:     measure.txt   rates of the device, and op times of a GPT-2 layer in fp32 and bfloat16, as JSON
               links.txt     what transfers between its GPUs cost, as JSON, where there are several and Lynx is built with NCCL
               step.txt      what training steps cost, as a page, where the program gpu_step_bench is there
               step.json     and all its numbers
  sanitizers:  memcheck.txt  the ops' tests under compute-sanitizer's memcheck
               racecheck.txt and its racecheck, of the ops without attention's long shapes
               engine.txt    a test of the engine under memcheck

A step that fails does not stop the next one. Each has a limit of its own, and all together have the limit above; if the
programs must be built, which may take 8 minutes, all have 580 seconds.

LYNX_CMAKE_ARGS    more arguments for CMake
LYNX_BUILD_DIR     where to build (build-gpu)
LYNX_STEP_SECONDS  a limit for each step, if it is shorter than the step's own
Exits with 0 when nothing failed, and with 77 where there is no GPU and the programs start as far as they can.
TEXT
}

case "${1:-}" in
  check | measure | sanitizers) [ $# -eq 2 ] || { usage; exit 2; } ;;
  --help) usage; exit 0 ;;
  *) usage; exit 2 ;;
esac
kind=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle=
if [ -e "$here/programs.tar.gz" ] || [ -d "$here/bin" ]; then bundle=$here; fi
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$out/summary.txt"

say() { echo "$1: $2" | tee -a "$out/summary.txt"; }

# UUIDs of the devices that CUDA can use, one a line: of GPUs, or of their parts where a GPU is split (MIG).
list_gpus() {
  timeout 20 nvidia-smi -L 2>/dev/null | awk -F'UUID: |[)]' '
    function whole() { if (gpu != "" && !split_up) print gpu }
    /^GPU / { whole(); gpu = $(NF - 1); split_up = 0 }
    /^ +MIG / { split_up = 1; print $(NF - 1) }
    END { whole() }' || true
}

# limited SECONDS COMMAND...: runs it at most so long, and at most as long as this run may still take.
limited() {
  local seconds=$1 left=$((end - SECONDS))
  shift
  for most in "$left" "${LYNX_STEP_SECONDS:-$seconds}"; do [ "$most" -ge "$seconds" ] || seconds=$most; done
  [ "$seconds" -ge 1 ] || return 124
  timeout -k 5 "$seconds" "$@"
}

# step NAME SECONDS COMMAND...: runs the command and writes its output to NAME.txt. A program that exits with 77 says itself
# why it is skipped, which is right only without a GPU. The other programs then end at the call of the driver.
step() {
  local name=$1 seconds=$2 begin=$SECONDS code=0 took
  shift 2
  limited "$seconds" "$@" >"$out/$name.txt" 2>&1 || code=$?
  took=$((SECONDS - begin))
  if [ $code -eq 0 ]; then
    say "$name" "passed in $took s"
  elif [ $code -eq 124 ] || [ $code -eq 137 ]; then
    say "$name" "timed out after $took s; see $name.txt"
    failed=1
  elif [ -z "$gpus" ] && [ $code -eq 77 ]; then
    say "$name" "skipped: $(tail -n 1 "$out/$name.txt" | sed 's/^skipped: //')"
  elif [ -z "$gpus" ] && grep -q "CUDA: looking for devices: " "$out/$name.txt"; then
    say "$name" "skipped: it starts, but this machine has no GPU ($(sed -n 's/.*CUDA: looking for devices: //p' "$out/$name.txt" | tail -n 1))"
  else
    say "$name" "failed with exit code $code after $took s; see $name.txt"
    failed=1
  fi
}

# Where a program is, and how it is started.
has() { if [ -n "$bundle" ]; then "$bundle/gpu_run.sh" --find "$1"; else [ -x "$build/bin/$1" ]; fi; }
path_of() { if [ -n "$bundle" ]; then "$bundle/gpu_run.sh" --path "$1"; else realpath "$build/bin/$1"; fi; }
command_of() { if [ -n "$bundle" ]; then echo "$bundle/gpu_run.sh" "$1"; else echo "$build/bin/$1"; fi; }

# shellcheck disable=SC2317  # as_command calls it
machine() {
  date -u
  nvidia-smi || echo "no nvidia-smi"
  nvidia-smi -L || true
  nvidia-smi topo -m || true
  nvcc --version || echo "no nvcc"
  ldd --version | head -n 1
  grep -m 1 '^model name' /proc/cpuinfo || true
  echo "$(nproc) cores"
  free -m || true
  cat "$here/COMMIT" 2>/dev/null || cat "$here/../COMMIT" 2>/dev/null || git -C "$here" rev-parse HEAD || echo "not a git checkout"
}

# shellcheck disable=SC2317  # as_command calls it
build_all() {
  local arguments=(-DCMAKE_BUILD_TYPE=Release -DLYNX_ENGINE_ONLY=ON -DLYNX_DEVICE_CHECK=ON -DLYNX_CUDA=ON) libraries
  [ -z "$gpus" ] || arguments+=(-DCMAKE_CUDA_ARCHITECTURES=native)
  if [ -d prefix ]; then
    libraries=$(echo "$PWD"/prefix/lib/*-linux-*)
    arguments+=("-DCMAKE_PREFIX_PATH=$PWD/prefix" "-DOPENSSL_ROOT_DIR=$PWD/prefix"
                "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,$libraries")  # also for what libraries load
  fi
  # shellcheck disable=SC2086  # several arguments are meant
  cmake -B "$build" "${arguments[@]}" ${LYNX_CMAKE_ARGS:-} &&
    cmake --build "$build" -j "$(nproc)" --target gpu_check_programs
}

# shellcheck disable=SC2317  # as_command calls it
use_each_gpu() {
  local uuid code=0
  for uuid in ${gpus:-none}; do $rank --check-cuda "$uuid" || code=$?; done
  return "$code"
}

# shellcheck disable=SC2317  # as_command calls it
measure() {
  local shape='"micro_batch": 8, "seq": 1024, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50304, "tp": 1, "dropout": true,
         "family": "gpt", "kv_heads": 0, "head_dim": 0, "attention": "fused", "sequence_parallel": false, "qkv_bias": false,
         "qk_norm": false, "qk_norm_whole": false, "rotary_dims": 0,
         "experts": 0, "top_k": 0, "expert_ffn": 0, "ep": 1, "capacity_permille": 0, "skew_permille": 1000, "dropless": false,
         "shared_ffn": 0, "shared_gate": false, "query_rank": 0, "kv_rank": 0, "value_dim": 0'
  cat >"$work/request.json" <<TEXT
{"device_kind": "cuda", "device_uuid": "$(head -n 1 <<<"${gpus:-none}")", "cores": [], "repetitions": 20, "budget_seconds": 60,
 "shapes": [{$shape, "dtype": "float32"}, {$shape, "dtype": "bfloat16"}]}
TEXT
  $rank --measure "$work/request.json"
}

# shellcheck disable=SC2317  # as_command calls it
measure_links() {
  local uuids
  # shellcheck disable=SC2086  # several words are meant
  uuids=$(printf '"%s"\n' ${gpus:-none other} | paste -sd, -)
  cat >"$work/links.json" <<TEXT
{"host": "127.0.0.1", "device_uuids": [$uuids], "cores": [], "blocks": [],
 "repetitions": 20, "budget_seconds": 60}
TEXT
  $rank --measure-gpu-links "$work/links.json"
}

# The benchmark prints its page at its end, so it must end by itself before its time is over. Prints its seconds.
budget() {
  local seconds=300
  for most in $((end - SECONDS)) "${LYNX_STEP_SECONDS:-300}"; do [ "$most" -ge "$seconds" ] || seconds=$most; done
  seconds=$((seconds - 20))
  echo $((seconds > 1 ? seconds : 1))
}
# shellcheck disable=SC2317  # as_command calls it
measure_steps() { $steps --rank-binary "$rank_path" --device cuda --budget "$budget" --json "$out/step.json"; }

# Shell functions run in a shell of their own, which `timeout` can end.
as_command() {
  echo "export LC_ALL=C; gpus='$gpus'; rank='$rank'; rank_path='$rank_path'; steps='$steps'; budget='$(budget)'; work='$work'; here='$here'"
  echo "build='$build'; out='$out'; $(declare -f "$1"); $1"
}

# The programs: those of the bundle if they start and find the GPU, else those that are built here.
prepare() {
  if [ -n "$bundle" ]; then
    local code=0 program sources
    for program in cuda_device_test cuda_engine_device_test; do "$bundle/gpu_run.sh" --find "$program" || code=1; done >"$out/programs.txt" 2>&1
    # A driver that is too old for the programs.
    if [ $code -eq 0 ] && [ -n "$gpus" ]; then
      limited 60 "$bundle/gpu_run.sh" cuda_device_test --gtest_filter=None >>"$out/programs.txt" 2>&1 || code=1
    fi
    sources=$(find "$bundle" -maxdepth 1 -name 'sources.tar.*')
    if [ $code -eq 0 ]; then
      say programs "passed: they start with the libraries of this machine"
      return
    fi
    say programs "failed: $(grep -m 1 'not found' "$out/programs.txt" || tail -n 1 "$out/programs.txt"); see programs.txt"
    if [ -n "$sources" ] && command -v nvcc >/dev/null; then
      mv "$out/programs.txt" "$out/bundle.txt"
      if ! { mkdir -p "$bundle/sources" && tar -C "$bundle/sources" -xf "$sources"; } >"$out/programs.txt" 2>&1; then
        say sources "failed: they cannot be unpacked into $bundle/sources; see programs.txt"
        exit 1
      fi
      rm -rf "$work"
      LYNX_SPENT=$SECONDS exec "$bundle/sources/lynx-gpu-check/scripts/gpu_check.sh" "$kind" "$out"
    fi
    exit 1
  fi
  end=$((580 - ${LYNX_SPENT:-0}))  # LYNX_SPENT: seconds that the folder's script has used
  cd "$here/.."
  step programs 480 bash -c "$(as_command build_all)"
  [ $failed -eq 0 ] || exit 1
}

# The rank process, with NCCL if that can be loaded.
choose_rank() {
  local program=lynx-rank-cuda
  if ! has $program >>"$out/programs.txt" 2>&1 && has lynx-rank-one-cuda >>"$out/programs.txt" 2>&1; then program=lynx-rank-one-cuda; fi
  rank=$(command_of $program)
  rank_path=$(path_of $program)
}

sanitize() {  # NAME SECONDS TOOL PROGRAM ARGUMENT...
  local name=$1 seconds=$2 under="$sanitizer --tool $3 --error-exitcode 1" program=$4
  shift 4
  if [ -n "$bundle" ]; then
    step "$name" "$seconds" env LYNX_UNDER="$under" "$bundle/gpu_run.sh" "$program" "$@"
  else
    # shellcheck disable=SC2086  # several words are meant
    step "$name" "$seconds" $under "$build/bin/$program" "$@"
  fi
}

case $kind in check) end=235 ;; measure) end=535 ;; sanitizers) end=475 ;; esac
gpus=$(list_gpus)
if [ -z "$gpus" ] && [ -e /dev/nvidiactl ]; then gpus=0; fi  # a container without nvidia-smi
rank=
rank_path=
build=${LYNX_BUILD_DIR:-build-gpu}
steps=$(command_of gpu_step_bench)
timeout -k 5 60 bash -c "$(as_command machine)" >"$out/machine.txt" 2>&1 || true
prepare
choose_rank
case $kind in
  check)
    step rank 40 bash -c "$(as_command use_each_gpu)"
    # shellcheck disable=SC2046  # command_of prints words
    step ops 100 $(command_of cuda_device_test)
    # shellcheck disable=SC2046
    step engine 100 $(command_of cuda_engine_device_test)
    ;;
  measure)
    step measure 120 bash -c "$(as_command measure)"
    if [ "$(wc -w <<<"$gpus")" -eq 1 ]; then
      say links "skipped: this machine has one GPU"
    elif [[ $rank == *lynx-rank-one-cuda ]]; then
      say links "skipped: there is no NCCL that can be loaded; see programs.txt"
    else
      step links 120 bash -c "$(as_command measure_links)"
    fi
    if has gpu_step_bench >>"$out/programs.txt" 2>&1; then
      step step 300 bash -c "$(as_command measure_steps)"
    else
      say step "skipped: there is no program gpu_step_bench, or it cannot start; see programs.txt"
    fi
    ;;
  sanitizers)
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer || true)
    short="--gtest_filter=-*Long*:*Determinism*"
    if [ -n "$sanitizer" ]; then
      sanitize memcheck 200 memcheck cuda_device_test "$short"
      sanitize racecheck 200 racecheck cuda_device_test "$short"
      sanitize engine 70 memcheck cuda_engine_device_test "--gtest_filter=CudaEngine.OffloadingChangesNoBit"
    else
      for name in memcheck racecheck engine; do say $name "skipped: compute-sanitizer is not installed"; done
    fi
    ;;
esac
if [ $failed -eq 0 ] && [ -z "$gpus" ]; then exit 77; fi
exit $failed
