#!/usr/bin/env bash
# package.sh [VERSION]: builds the programs and their Debian packages into build/packages. The default version is the
# project's.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [ $# -gt 1 ] || [[ ${1:-0} != [0-9]* ]]; then
  echo "usage: package.sh [VERSION], and a version begins with a digit" >&2
  exit 2
fi
for program in dpkg-deb dpkg-shlibdeps file; do
  if ! command -v "$program" >/dev/null; then
    echo "error: there is no $program, with which packages are made: apt-get install dpkg-dev file" >&2
    exit 1
  fi
done
scripts/build.sh lynx-server lynx-agent lynx-worker lynx-rank lynx-gpu-ranks lynx-opt lynx-studio lynx-verbs lynxctl python_package
rm -f build/packages/*.deb  # of other versions: apt would refuse two of one package
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! (cd build && cpack ${1:+-D CPACK_PACKAGE_VERSION="$1"}) >"$log" 2>&1; then
  cat "$log" >&2
  echo "error: cpack could not make the packages; its words are above" >&2
  exit 1
fi
sed -n 's/^CPack: - package: \(.*\) generated\.$/\1/p' "$log"
