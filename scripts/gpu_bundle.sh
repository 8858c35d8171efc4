#!/usr/bin/env bash
# Packs what scripts/gpu_check.sh needs in addition to CUDA, CMake and a C++ compiler: the sources of the engine, and
# the headers and libraries that the engine and its tests use, from this machine's packages. The bundle is for a Debian
# or Ubuntu machine with a GPU and without network, of the same architecture and with a C library that is not older.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/gpu_bundle.sh OUT.tar.gz

On the other machine: tar xzf OUT.tar.gz && lynx-gpu-check/scripts/gpu_check.sh OUT_DIR
TEXT
}

if [ $# -ne 1 ] || [ "$1" = --help ]; then
  usage
  [ "${1:-}" = --help ] && exit 0
  exit 2
fi
fail() { echo "error: $*" >&2; exit 1; }

out=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/lynx-gpu-check
prefix=$tree/prefix
mkdir -p "$prefix"

# Git knows which files are sources. Documents are not needed.
git ls-files -z --cached -- CMakeLists.txt CMakePresets.json cmake common planner worker node agent bench tests scripts |
  tar --null --files-from=- -cf - | tar -C "$tree" -xf -
git describe --always --dirty >"$tree/COMMIT"

# Copies a file of /usr to its place in the prefix. Links are followed, because what they lead to may be elsewhere.
pack() {
  local to=$prefix/${1#/usr/}
  mkdir -p "$(dirname "$to")"
  cp -L "$1" "$to"
}

# Copies headers, CMake's files and libraries; one kind of library is enough. Abseil's shared libraries are a separate
# package.
abseil=$(dpkg-query -W -f='${Package}\n' 'libabsl2*' | sed -n 1p)  # sed must read all input, or the pipe would fail
for package in libabsl-dev "$abseil" libgtest-dev libgmock-dev nlohmann-json3-dev libcli11-dev libssl-dev libdnnl-dev libopenblas-pthread-dev; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
    fail "$package is not installed here; scripts/install.sh installs what Lynx needs"
  dpkg -L "$package" | grep -E '^/usr/(include|lib|share/cmake)/' |
    grep -vE '/pkgconfig/|/cmake/(dnnl|openblas)/|/lib(openblas[^/]*|blas|lapack|crypto|ssl|absl_[^/]*)\.a$|/lib(blas|lapack)\.so$' |
    while read -r file; do
      if [ -f "$file" ]; then pack "$file"; fi
    done
done
# Compilers look into the folder of the architecture only below /usr.
cp -r "$prefix/include/$(gcc -print-multiarch)/openssl" "$prefix/include/"
# Debian's file names this machine's paths.
libraries=$prefix/lib/$(gcc -print-multiarch)
mkdir -p "$libraries/cmake/openblas"
cat >"$libraries/cmake/openblas/OpenBLASConfig.cmake" <<'TEXT'
get_filename_component(libraries ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
get_filename_component(triplet ${libraries} NAME)
set(OpenBLAS_INCLUDE_DIRS ${libraries}/../../include/${triplet}/openblas-pthread)
set(OpenBLAS_LIBRARIES ${libraries}/openblas-pthread/libopenblas.so)
TEXT

# Libraries are found by the names that other libraries ask for.
link_name() {
  local name
  name=$(objdump -p "$1" | awk '/SONAME/ {print $2}')
  if [ "$(dirname "$1")" != "$libraries" ]; then mv "$1" "$libraries/$name" && ln -s "../$name" "$1"; fi
  [ -e "$libraries/$name" ] || ln -s "$(basename "$1")" "$libraries/$name"
}
for library in "$libraries"/*.so* "$libraries"/*/*.so; do link_name "$library"; done
# Also copy what they load; the C and C++ libraries are those of the other machine.
for _ in 1 2 3; do
  for library in "$libraries"/*.so*; do
    objdump -p "$library" | awk '/NEEDED/ {print $2}'
  done | sort -u | while read -r needed; do
    case $needed in libc.so* | libm.so* | libstdc++.so* | libgcc_s.so* | ld-linux*) continue ;; esac
    [ -e "$libraries/$needed" ] && continue
    found=$(ldconfig -p | awk -v name="$needed" '$1 == name && !found {print $NF; found = 1}')
    [ -n "$found" ] || fail "$needed is not on this machine"
    cp -L "$found" "$libraries/$needed"
  done
done

tar -C "$work" -czf "$out" lynx-gpu-check
echo "$out: $(($(stat -c %s "$out") / 1048576)) MiB, of commit $(cat "$tree/COMMIT")"
