#!/usr/bin/env bash
# Runs a job on a cluster on this machine, from submission to the trained model. Installs what is missing, builds,
# starts one server and two nodes on loopback, trains examples/gpt-bytes.yaml, shows what was planned and measured, and
# stops everything.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'TEXT'
usage: scripts/demo.sh [--text FILE] [--steps N] [--link-rate RATE] [--chaos] [--dashboards]
  --text FILE       train on this text (default: the licence texts that every Debian system has)
  --steps N         optimizer steps (default: as the example says)
  --link-rate RATE  pace the ranks' connections, to stand for a network (default: 1Gbit; 0: none)
  --chaos           instead: a node is killed while the job trains, and comes back; the job is planned again each time
                    and goes on (CPU ranks; default of --steps: 150)
  --dashboards      with Prometheus, and Grafana where grafana-server is installed; cluster and dashboards stay until Ctrl-C
Everything is kept in $LYNX_HOME, by default .lynx in the source tree; jobs that a demo before has left there unfinished
are cancelled. LYNX_SKIP_BUILD=1 uses what is built, LYNX_BIN=FOLDER the programs there. Where this machine has a GPU that
Lynx can use, the demo trains on it.
TEXT
}

fail() { echo "error: $*" >&2; exit 1; }

text= steps= link_rate=1Gbit chaos= dashboards=
while [ $# -gt 0 ]; do
  case $1 in
    --text|--steps|--link-rate)
      [ $# -ge 2 ] || fail "$1 needs a value; see --help"
      case $1 in --text) text=$2 ;; --steps) steps=$2 ;; --link-rate) link_rate=$2 ;; esac
      shift 2 ;;
    --chaos) chaos=1; shift ;;
    --dashboards) dashboards=1; shift ;;
    -h|--help) usage; exit 0 ;;
    *) usage >&2; fail "unknown argument '$1'" ;;
  esac
done
[ -z "$text" ] || [ -r "$text" ] || fail "cannot read $text; give --text a file with the text to train on"
[ -z "$steps" ] || [[ $steps =~ ^[1-9][0-9]*$ ]] || fail "--steps takes a whole number above zero, not '$steps'"

[ -z "$dashboards" ] || command -v prometheus >/dev/null || [ -z "${LYNX_SKIP_BUILD:-}" ] ||
  fail "prometheus is not installed, which --dashboards needs: run scripts/install.sh, or apt-get install prometheus"

programs=(lynxctl lynx-server lynx-agent lynx-worker lynx-rank)
[ ! -e /dev/nvidiactl ] || programs+=(lynx-gpu-ranks)  # the kernels take minutes to build
[ -n "${LYNX_SKIP_BUILD:-}" ] || "$root/scripts/build.sh" "${programs[@]}"
export LYNX_HOME=${LYNX_HOME:-$root/.lynx}
mkdir -p "$LYNX_HOME"
unset LYNX_SERVER LYNX_CONTEXT LYNX_CA_FILE LYNX_TOKEN_FILE
bin=${LYNX_BIN:-$root/build/bin}
lynxctl=$bin/lynxctl
[ -x "$lynxctl" ] || fail "$lynxctl is missing; run scripts/build.sh"

if [ -z "$text" ]; then
  text=$LYNX_HOME/text.txt
  cat /usr/share/common-licenses/* >"$text" 2>/dev/null || true
  [ -s "$text" ] || fail "no text was found on this machine; give one with --text FILE"
fi
text=$(realpath "$text")

interrupted=
# Stops the cluster whatever happens. A second Ctrl-C must not leave half of it running. First end the command that
# follows the job: as a background command it does not receive Ctrl-C, and would keep trying to reach the server.
stop() {
  trap '' INT TERM HUP
  local pid
  for pid in $(jobs -p); do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  "$lynxctl" local down >/dev/null || echo "error: the cluster could not be stopped; see $LYNX_HOME/local" >&2
}
trap stop EXIT
trap 'interrupted=1; exit 130' INT TERM HUP

"$lynxctl" local down >/dev/null  # left over from a demo that was killed
# What an agent would offer: lines like "cuda 0: NVIDIA H200, ...", or lines for CPUs, with the reason on standard
# error.
offer=
[ -n "$chaos" ] || offer=$("$bin/lynx-agent" --probe --log-level error 2>"$LYNX_HOME/no-gpu.txt") || offer=
gpus=$(grep -c '^cuda ' <<<"$offer" || true)
changes=()
pace=()
[ "$link_rate" = 0 ] || pace=(--link-rate "$link_rate")
if [ "$gpus" -gt 0 ]; then
  # The example wants four ranks. With fewer GPUs each rank has more of the model, and more memory for activations.
  if [ "$gpus" -ge 4 ]; then gpus=4; elif [ "$gpus" -ge 2 ]; then gpus=2; fi
  model=$(sed -n '1s/^cuda [0-9]*: \([^,]*\),.*/\1/p' <<<"$offer")
  echo "training on $gpus GPU$([ "$gpus" -eq 1 ] || echo s) of this machine: $model"
  [ "$gpus" -eq 4 ] || changes+=(--set "resources.ranks=$gpus" --set "parallel.tp=$gpus" --set parallel.pp=1
                                 --set "resources.activationMemoryPerRank=$((96 / gpus))MiB")
  changes+=(--set resources.device=cuda)
  echo "starting a local cluster: one server, one node"
  "$lynxctl" local up --nodes 1 --devices "cuda:$gpus" "${pace[@]}"
elif [ -n "$chaos" ]; then
  changes+=(--set resources.device=cpu --set resources.ranks=1..2 --set parallel.tp=auto --set parallel.pp=auto
            --set resources.activationMemoryPerRank=auto --set checkpoint.everySteps=10)
  steps=${steps:-150}
  echo "starting a local cluster: one server, two nodes of one CPU rank each"
  "$lynxctl" local up --nodes 2 --devices 1 "${pace[@]}"
else
  why=$(tr '\n' ' ' <"$LYNX_HOME/no-gpu.txt")
  echo "training on CPU ranks: ${why:-this machine has no GPU}"
  changes+=(--set resources.device=cpu)
  echo "starting a local cluster: one server, two nodes of two CPU ranks each"
  "$lynxctl" local up --nodes 2 --devices 2 "${pace[@]}"
fi
# Use this cluster, whatever context is in use, because the commands below cancel jobs.
LYNX_SERVER=$(sed -n 's/^ *"serverAddress": "\(.*\)".*$/\1/p' "$LYNX_HOME/local/cluster.json")
[ -n "$LYNX_SERVER" ] || fail "$LYNX_HOME/local/cluster.json does not name the server"
export LYNX_SERVER
# Jobs outlive their cluster: a job of an interrupted demo would run first, and the new one would wait for it.
"$lynxctl" cancel --all --reason "another demo begins"
[ "$link_rate" = 0 ] || echo "connections between ranks are paced to $link_rate, to stand for a network"
"$lynxctl" nodes
watcher=
if [ -n "$dashboards" ]; then
  python3 "$root/scripts/dashboards.py" --home "$LYNX_HOME" &
  watcher=$!
fi
echo
echo "training a byte-level GPT on $text ($(wc -c <"$text") bytes)"
changes+=(--set "data.path=$text")
[ -z "$steps" ] || changes+=(--set "train.steps=$steps")
[ -z "$steps" ] || [ "$steps" -ge 20 ] || changes+=(--set train.warmupSteps=0)  # fewer steps than the example's warm-up
# In the background, so that this script reacts to a signal at once.
if [ -n "$chaos" ]; then
  LYNX_BIN=$bin python3 "$root/scripts/demo_chaos.py" "$root/examples/gpt-bytes.yaml" "${changes[@]}" &
else
  "$lynxctl" submit -f "$root/examples/gpt-bytes.yaml" "${changes[@]}" --wait &
fi
follower=$!
status=0
wait "$follower" || status=$?
if [ $status -ne 0 ]; then
  [ -n "$interrupted" ] || echo "error: the job did not succeed; the daemons' logs are in $LYNX_HOME/local/logs" >&2
  exit $status
fi
if [ -n "$watcher" ]; then
  echo
  echo "the job has ended; the cluster and its dashboards stay until Ctrl-C"
  status=0
  wait "$watcher" || status=$?
  exit $status
fi
[ -z "$chaos" ] || exit 0
cat <<TEXT

Try next:
  build/bin/lynxctl studio                                      plan by looking: choose a model and machines on a page in the browser
  docs/quickstart.md                                            step by step: plans, a report page, a node that dies, the weights
  scripts/demo.sh --text FILE                                   train on a text of your own
  scripts/demo.sh --chaos                                       a node dies and comes back while the job trains
  scripts/demo.sh --dashboards                                  with Prometheus and Grafana
  build/bin/lynxctl plan -f examples/gpt-bytes.yaml --actions 0 the program that rank 0 ran, action by action
  build/bin/lynxctl plan -f examples/gpt-bytes.yaml --set recompute=full    another policy, planned offline
  build/bin/lynxctl local up; build/bin/lynxctl submit -f examples/gpt-bytes.yaml; build/bin/lynxctl list
TEXT
