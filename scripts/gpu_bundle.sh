#!/usr/bin/env bash
# Packs what a machine with a GPU, but without network and compilers, needs to check Lynx there: a folder with programs
# that are built here, and the libraries that they load except NVIDIA's large ones. With --sources, packs what
# scripts/gpu_check.sh needs to build them there instead, in addition to CUDA, CMake and a C++ compiler. Either is for a
# Linux machine of the same architecture; sources are for Debian and Ubuntu.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/gpu_bundle.sh DIR
         makes a folder with programs. On the other machine: DIR/gpu_check.sh check OUT_DIR
       scripts/gpu_bundle.sh --sources OUT.tar.gz
         packs sources, headers and libraries. On the other machine:
         tar xf OUT.tar.gz && lynx-gpu-check/scripts/gpu_check.sh check OUT_DIR

If the folder has a file sources.tar.gz or sources.tar.xz, DIR/gpu_check.sh builds it where the programs cannot start and nvcc is.

LYNX_BUILD_DIR      where to build the programs (build-gpu); a second call builds only what has changed
LYNX_SKIP_BUILD=1   packs the programs that are in LYNX_BUILD_DIR
LYNX_CUDA_ARCHITECTURES  the GPUs to build for, as CMake names them (90-real: H100 and H200)
TEXT
}
fail() { echo "error: $*" >&2; exit 1; }

kind=programs
if [ "${1:-}" = --sources ]; then kind=sources; shift; fi
if [ $# -ne 1 ] || [ "$1" = --help ]; then
  usage
  [ "${1:-}" = --help ] && exit 0
  exit 2
fi
out=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
max_mib=64
build=${LYNX_BUILD_DIR:-build-gpu}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

not_built() {
  tail -n 50 "$work/build.txt" >&2
  fail "the programs were not built"
}
build_programs() {
  if [ -z "${LYNX_SKIP_BUILD:-}" ]; then
    local generator=()
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    # The old kind of rpath also holds for libraries that libraries load.
    # shellcheck disable=SC2016  # $ORIGIN is for the loader
    cmake -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DLYNX_ENGINE_ONLY=ON -DLYNX_DEVICE_CHECK=ON \
      -DLYNX_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${LYNX_CUDA_ARCHITECTURES:-90-real}" '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' \
      -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >"$work/build.txt" || not_built
    cmake --build "$build" -j "$(nproc)" --target gpu_check_programs >>"$work/build.txt" || not_built
  fi
  for program in cuda_device_test cuda_engine_device_test lynx-rank lynx-rank-cuda; do
    [ -x "$build/bin/$program" ] || fail "$build/bin has no $program: it must be built with CUDA"
  done
}

# Copies the libraries that a program loads. The other machine has the C library and the driver, and must have cuBLASLt and
# NCCL, which are too large. The C++ library is used only if that machine has none that is new enough.
pack_libraries() {
  ldd "$1" | awk '$2 == "=>" {print $1, $3}' | while read -r name path; do
    case $name in
      libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libcuda.so* | libcublasLt.so* | libnccl.so*) ;;
      libstdc++.so* | libgcc_s.so*) cp -L "$path" "$tree/lib-c++/$name" ;;
      *) [ "$path" != not ] || fail "$1 needs $name, which is not on this machine"
         cp -L "$path" "$tree/lib/$name" ;;
    esac
  done
}

if [ "$kind" = programs ]; then
  build_programs
  tree=$work/programs
  mkdir -p "$tree/bin" "$tree/lib" "$tree/lib-c++"
  # The last two are not in every build.
  for program in cuda_device_test cuda_engine_device_test lynx-rank lynx-rank-cuda lynx-rank-one-cuda gpu_step_bench; do
    [ -x "$build/bin/$program" ] || continue
    strip -o "$tree/bin/$program" "$build/bin/$program"
    pack_libraries "$build/bin/$program"
  done
  # What gpu_step_bench runs with Python, where it looks for it.
  if [ -x "$tree/bin/gpu_step_bench" ]; then
    git ls-files -z -- 'bench/throughput/*.py' | tar --null --files-from=- -cf - | tar -C "$tree" -xf -
  fi
  mkdir -p "$out"
  rm -rf "$out/unpacked" "$out/sources"  # of a check here
  tar -C "$tree" --sort=name --mtime=@0 --owner=0 --group=0 -cf - . | gzip -n >"$out/programs.tar.gz"
  cp scripts/gpu_check.sh "$out/gpu_check.sh"
  cp scripts/gpu_run.sh "$out/gpu_run.sh"
  git describe --always --dirty >"$out/COMMIT"
  echo "$out: $(du -sm --apparent-size "$out" | cut -f1) MiB, of commit $(cat "$out/COMMIT")"
  [ "$(du -sb "$out" | cut -f1)" -le $((max_mib << 20)) ] || fail "$out is larger than $max_mib MiB"
  exit 0
fi

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

tar -C "$work" -caf "$out" lynx-gpu-check
echo "$out: $(($(stat -c %s "$out") / 1048576)) MiB, of commit $(cat "$tree/COMMIT")"
