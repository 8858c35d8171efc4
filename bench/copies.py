#!/usr/bin/env python3
"""What copies of the states in memory cost and save, with real processes on this machine.

    bench/copies.py cost [--steps 200] [--hidden 256]     steps with a copy under way beside steps without, alternating in one run
    bench/copies.py loss [--runs 5]                       a rank is killed, and then a node with its memory: steps lost, time to the next step

Prints medians, smallest and largest values. The programs are taken from build/bin, or from the folder LYNX_BIN.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
from cluster import ClusterTest, processes  # noqa: E402

MODEL = """apiVersion: lynx/v1
kind: TrainingJob
name: cost
model: {{layers: 4, hidden: {hidden}, heads: 4, seq: 128, vocab: 256, dropout: 0.1}}
data: {{kind: text, path: {data}}}
train: {{steps: {steps}, globalBatch: 8, microBatch: 2}}
resources: {{ranks: 2}}
parallel: {{tp: 1, pp: 2}}
checkpoint: {{copyEverySteps: 2}}
"""
WARM_UP = 20  # steps at the beginning that are not counted


class Cluster(ClusterTest):
    devices = 1

    def runTest(self):
        pass


def spread(values, unit=""):
    return f"median {statistics.median(values):.3g}{unit} ({min(values):.3g} to {max(values):.3g}, {len(values)})"


def step_reports(path):
    """The step reports in a rank's file. The last line is ignored, because it may be half written."""
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return [line for line in lines if line["type"] == "step"]


def reports_of(cluster, job, generation):
    """rank -> step reports; ranks that have written no report are missing."""
    paths = cluster.home.glob(f"*/worker/ranks/{job}.g{generation}.r*/report.jsonl")
    return {int(path.parent.name.rsplit(".r", 1)[1]): step_reports(path) for path in paths}


def cost(cluster, steps, hidden):
    path = cluster.directory / "cost.yaml"
    path.write_text(MODEL.format(data=cluster.corpus, steps=steps, hidden=hidden))
    job = cluster.submit(path)
    cluster.await_state(job, "SUCCEEDED", timeout=3000)
    for rank, found in sorted(reports_of(cluster, job, 1).items()):
        own = {report["step"]: report for report in found}
        # A copy begins after every second step. Training waits for a part of the copy before the following step; the rest is
        # done while that step runs.
        pairs = [(own[s], own[s + 1]) for s in range(WARM_UP, steps - 2, 2)]
        waits = [copy["checkpoint_ns"] / 1e6 for copy, _ in pairs]
        plain = [without["duration_ns"] / 1e6 for _, without in pairs]
        ratios = [(copy["duration_ns"] + copy["checkpoint_ns"]) / without["duration_ns"] for copy, without in pairs]
        print(f"rank {rank}: step without {spread(plain, ' ms')}; wait for a copy {spread(waits, ' ms')}; "
              f"step with a copy / without {spread(ratios)}; quartiles {statistics.quantiles(ratios, n=4)[0]:.3g} to "
              f"{statistics.quantiles(ratios, n=4)[2]:.3g}; copies left out {own[steps - 1]['copies_skipped']}")


def resumed_at(cluster, job, killed):
    """Seconds from `killed` to the first step of the next generation, and the step at which that generation resumed."""
    page = cluster.await_job(job, lambda p: "resumed" in cluster.event_kinds(p), "resumed")
    reason = next(e["reason"] for e in page["events"] if e["kind"] == "resumed")
    while not reports_of(cluster, job, page["generation"]).get(0):
        time.sleep(0.02)
    return time.monotonic() - killed, int(reason.split("at step ")[1].split(",")[0])


def loss(cluster, runs):
    for what in ("rank", "node"):
        times, lost = [], []
        for run in range(runs):
            ranks = "2" if what == "rank" else "1..2"
            layout = dict(tp=1, pp=2) if what == "rank" else dict(tp="auto", pp="auto")
            job = cluster.submit(cluster.job_file(name=f"{what}{run}", steps=100_000, ranks=ranks, every=0,
                                                  extra=", copyEverySteps: 1", **layout))
            page = cluster.await_job(job, lambda p: len(p["placement"]) == 2 and len(reports_of(cluster, job, 1)) == 2 and
                                     int(p["progress"]["stepsDone"]) >= 100, "100 steps on both nodes")
            node = page["placement"][1]["node"]
            killed = time.monotonic()
            if what == "rank":
                os.kill(cluster.rank_pids()[1], signal.SIGKILL)
            else:
                for pid, command in processes(cluster.directory).items():
                    if str(cluster.home / node) in command:
                        os.kill(pid, signal.SIGKILL)
                shutil.rmtree(cluster.home / node / "copies")
            took, step = resumed_at(cluster, job, killed)
            times.append(took)
            lost.append(min(len(done) for done in reports_of(cluster, job, 1).values()) - step)
            cluster.ctl("cancel", job)
            cluster.await_state(job, "CANCELLED")
            if what == "node":
                cluster.up()
        print(f"lost {what}: to the next step {spread(times, ' s')}; steps done again {spread(lost)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "loss"))
    parser.add_argument("--steps", type=int, default=200, help=f"{WARM_UP} of them to warm up")
    parser.add_argument("--hidden", type=int, default=256, help="size of the model whose steps are timed")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.steps < WARM_UP + 6:  # statistics.quantiles needs two pairs of steps
        parser.error(f"--steps must be at least {WARM_UP + 6}")
    cluster = Cluster()
    cluster.setUp()
    try:
        cost(cluster, arguments.steps, arguments.hidden) if arguments.what == "cost" else loss(cluster, arguments.runs)
    finally:
        cluster.doCleanups()


if __name__ == "__main__":
    main()
