#!/usr/bin/env bash
# Compiles the kernels of worker/backend/cuda and prints what the compiler says about each of them, as a Markdown table. Needs
# nvcc, but no GPU.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/gpu_static.sh [FILE.cu...]

Without files: all of worker/backend/cuda.

LYNX_ARCHITECTURES    compute capabilities ("80 90")
NVCC                  the compiler (nvcc, or else /usr/local/cuda/bin/nvcc)
Exits with 77 where there is no nvcc.
TEXT
}

case "${1:-}" in
  --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac
for file in "$@"; do
  [ -f "$file" ] || { echo "gpu_static.sh: there is no file $file" >&2; exit 2; }
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$nvcc" >/dev/null || { echo "skipped: there is no nvcc on this machine"; exit 77; }
[ $# -gt 0 ] || set -- "$root"/worker/backend/cuda/*.cu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Reads the PTX of one file, then what ptxas said of it. Prints `mangled name|registers|spills|shared memory|instructions`.
# shellcheck disable=SC2016  # the fields are awk's
table='
  FNR == 1 { ++file }
  file == 1 && /\.entry/ { match($0, /[A-Za-z_][A-Za-z0-9_]*\(/); kernel = substr($0, RSTART, RLENGTH - 1); count[kernel] = 0 }
  file == 1 && /^\.func|^\.visible \.func/ { kernel = "" }
  file == 1 && kernel != "" && /^\t+[@a-z{]/ && /;/ { ++count[kernel] }
  file == 2 && /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
  file == 2 && /bytes spill stores/ { match($0, /[0-9]+ bytes spill stores/); spills = substr($0, RSTART) + 0
                                      match($0, /[0-9]+ bytes spill loads/); spills += substr($0, RSTART) }
  file == 2 && /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5) + 0
    shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
    print kernel "|" registers "|" spills "|" shared "|" count[kernel]
  }'

# Shortens demangled names: the namespace, what a kernel returns, and its parameters are left out.
short_names() { c++filt | sed -E 's/lynx::(worker::(cuda::)?)?//g; s/\(anonymous namespace\):://g; s/^void //; s/\([A-Za-z]+\)([0-9]+)/\1/g; s/\([^|]*\)\|/|/'; }

echo "| kernel | arch | registers | spills (bytes) | shared memory (bytes) | PTX instructions |"
echo "| --- | --- | ---: | ---: | ---: | ---: |"
for file in "$@"; do
  for arch in ${LYNX_ARCHITECTURES:-80 90}; do
    kept=$folder/$(basename "$file" .cu)-$arch
    mkdir "$kept"
    "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -I"$root" -gencode "arch=compute_$arch,code=sm_$arch" -Xptxas -v -cubin \
      --keep --keep-dir "$kept" -o "$kept/kernels.cubin" "$file" >"$kept/said" 2>&1 || { cat "$kept/said" >&2; exit 1; }
    awk "$table" "$kept"/*.ptx "$kept/said" | short_names | sort |
      awk -F '|' -v arch="sm_$arch" '{ printf "| %s | %s | %s | %s | %s | %s |\n", $1, arch, $2, $3, $4, $5 }'
  done
done
