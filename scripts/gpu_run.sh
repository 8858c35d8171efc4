#!/usr/bin/env bash
# Starts a program of the folder that scripts/gpu_bundle.sh made, in which a copy of this script is. Unpacks the programs
# when it is called for the first time, and finds the libraries that the folder does not have.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: gpu_run.sh PROGRAM [ARGUMENT...]
       gpu_run.sh --find PROGRAM    prints which libraries it would load that are not in the folder
       gpu_run.sh --path PROGRAM    prints where it is

LYNX_UNDER    a command that starts the program, as words: "compute-sanitizer --tool memcheck"
Exits with 127, and prints what is missing, if the program could not start.
TEXT
}

if [ $# -lt 1 ] || [ "$1" = --help ]; then
  usage
  [ "${1:-}" = --help ] && exit 0
  exit 2
fi
only=
case $1 in --find | --path) only=$1; shift ;; esac
name=${1:?which program?}
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Unpacks the programs into the user's own folder for temporary files, or beside this script if that is not possible.
unpack() {
  local stamp
  stamp=$(cksum <"$here/programs.tar.gz")
  for root in "${TMPDIR:-/tmp}/lynx-gpu-programs-$(id -u)" "$here/unpacked"; do
    if [ -O "$root" ] && [ "$(cat "$root/stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    # A folder may be mounted so that no program starts there.
    if rm -rf "$root" && mkdir -m 700 "$root" && tar -C "$root" -xzf "$here/programs.tar.gz" &&
      [ -n "$(find "$root/bin" -type f -executable)" ]; then
      echo "$stamp" >"$root/stamp"
      return
    fi
  done
  echo "error: cannot unpack $here/programs.tar.gz into ${TMPDIR:-/tmp} or beside it" >&2
  exit 127
}
root=$here
if [ ! -d "$here/bin" ]; then unpack; fi
program=$root/bin/$name
if [ ! -x "$program" ]; then
  echo "error: the folder has no program $name; it has: $(cd "$root/bin" && echo *)" >&2
  exit 127
fi

if [ "$only" = --path ]; then echo "$program"; exit 0; fi

# Prints what the loader finds for each library, and its complaints.
path=${LD_LIBRARY_PATH:-}
loads() { LD_TRACE_LOADED_OBJECTS=1 LD_LIBRARY_PATH=$path "$program" 2>&1 || true; }
# The programs look into the folder's lib themselves, so that other programs that they start, such as Python, do not.
# Those that were not built for the folder do not look there.
loads | grep -qF "=> $root/" || path=$root/lib${path:+:$path}

# Where NVIDIA's libraries usually are: of the toolkit, of packages, and of Python's packages.
places() {
  local home
  ldconfig -p 2>/dev/null | awk '/=>/ {print $NF}' | xargs -r -n1 dirname | sort -u
  printf '%s\n' /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/*/lib /usr/lib/x86_64-linux-gnu \
    /usr/lib64 /opt/nvidia/*/lib /opt/cuda/lib64 ${CUDA_HOME:+"$CUDA_HOME/lib64" "$CUDA_HOME/lib"}
  {
    for python in python3 python; do
      $python -c 'import site; print(*site.getsitepackages(), site.getusersitepackages(), sep="\n")' 2>/dev/null || true
    done
    printf '%s\n' /usr/lib/python3/dist-packages /usr/local/lib/python3*/{dist,site}-packages "${HOME:-/root}"/.local/lib/python3*/site-packages \
      /opt/*/lib/python3*/site-packages "${HOME:-/root}"/*/lib/python3*/site-packages
  } | sort -u | while read -r home; do printf '%s\n' "$home"/nvidia/*/lib "$home"/torch/lib; done
}

# Makes links to the libraries that are missing. What is found may need others.
looked=
for _ in 1 2 3; do
  missing=$(loads | awk '/=> not found/ {print $1}' | sort -u)
  [ -n "$missing" ] || break
  [ -n "$looked" ] || looked=$(places | sort -u | while read -r folder; do if [ -d "$folder" ]; then echo "$folder"; fi; done)
  for library in $missing; do
    while read -r folder; do
      if [ -e "$folder/$library" ]; then ln -sfn "$folder/$library" "$root/lib/$library" && break; fi
    done <<<"$looked"
  done
done
# The C++ library of this machine comes first, because the driver's libraries were made for it.
if loads | grep -qE 'lib(stdc\+\+|gcc_s)\.so\.[0-9]+ => not found|version .(GLIBCXX|CXXABI|GCC)_[^ ]* not found'; then
  ln -sfn ../lib-c++/libstdc++.so.6 ../lib-c++/libgcc_s.so.1 "$root/lib/"
fi

report=$(loads)
complaints=$(grep 'not found' <<<"$report" | sed 's/^[[:space:]]*//' || true)
if [ "$only" = --find ]; then
  awk '/=>/ && !/not found/ {print $1, $3}' <<<"$report" | while read -r library file; do
    file=$(readlink -f "$file")
    case $file in "$root"/lib/*) ;; *) echo "$library => $file" ;; esac
  done
fi
if [ -n "$complaints" ]; then
  {
    echo "error: $name cannot start on this machine:"
    echo "$complaints"
    if grep -q 'GLIBC_' <<<"$complaints"; then
      echo "The C library is too old for these programs: build them here from sources (scripts/gpu_bundle.sh --sources)."
    fi
    if [ -n "$looked" ]; then
      echo "Looked in: ${looked//$'\n'/ }"
      echo "Add the folder that has it to LD_LIBRARY_PATH, or install it: libcublasLt and libcudart are of the CUDA toolkit, libnccl is of NCCL."
    fi
  } >&2
  exit 127
fi
[ -z "$only" ] || exit 0
[ -z "$path" ] || export LD_LIBRARY_PATH=$path
# shellcheck disable=SC2086  # several words are meant
exec ${LYNX_UNDER:-} "$program" "$@"
