#!/bin/bash
# Fuzzes every target for that many seconds, starting from the kept corpus and from what earlier runs have found:
#   tests/fuzz/run.sh BUILD-FOLDER SECONDS [TARGET...]
# Then keeps, in tests/fuzz/corpus/TARGET, inputs of at most 4 KiB that cover everything that was covered. An input that
# ends the process is left in BUILD-FOLDER/found as TARGET-crash-... (or -oom-, -timeout-), and the exit status is 1.
# Prints a table row for each target.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
seconds=$2
shift 2
[ $# -gt 0 ] || set -- $(LYNX_FUZZ_TARGET=? "$build/bin/fuzz" 2>&1 | sed -n 's/.*one of //p')
status=0
mkdir -p "$here/corpus"
for target in "$@"; do
  found="$build/found/$target"
  least="$build/found/$target.least"
  "$here/corpus.py" unpack "$here/corpus/$target" "$found"
  rm -rf "$least"
  mkdir "$least"
  export LYNX_FUZZ_TARGET=$target
  log="$build/found/$target.log"
  "$build/bin/fuzz" -max_total_time="$seconds" -max_len=20000 -rss_limit_mb=4096 -timeout=60 -artifact_prefix="$build/found/$target-" \
    "$found" > "$log" 2>&1 || status=1
  "$build/bin/fuzz" -set_cover_merge=1 -max_len=4096 "$least" "$found" >> "$log" 2>&1 || status=1
  rm -f "$least"/good-*  # the target has them itself
  "$here/corpus.py" pack "$least" "$here/corpus/$target"
  runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log" | head -1)
  coverage=$(sed -n 's/^#[0-9]*[[:space:]]*DONE *cov: \([0-9]*\) .*/\1/p' "$log" | head -1)
  echo "| $target | ${runs:-stopped} | ${coverage:-?} | $(find "$least" -type f | wc -l) |"
done
find "$build/found" -maxdepth 1 -type f ! -name '*.log'
exit "$status"
