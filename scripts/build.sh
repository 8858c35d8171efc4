#!/usr/bin/env bash
# Installs what is missing and builds everything into build/. Arguments go to the build: targets, or none for all.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/install.sh
echo "building in $root/build (minutes the first time, seconds after)"
if ! cmake --preset release >build-configure.log 2>&1; then
  cat build-configure.log >&2
  echo "error: CMake could not configure the build; the reason is above" >&2
  exit 1
fi
rm -f build-configure.log
if [ -t 1 ]; then
  cmake --build --preset release -- "$@"
else
  # Without a terminal, build quietly and print the whole log only if the build fails.
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! cmake --build --preset release -- "$@" >"$log" 2>&1; then
    grep -vE '^\[[0-9]+/[0-9]+\] ' "$log" | head -100 >&2
    echo "error: the build failed; the compiler's words are above" >&2
    exit 1
  fi
fi
