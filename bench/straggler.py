#!/usr/bin/env python3
"""A node becomes slower while a pipeline trains over it: when that is noticed, and what planning around it brings.

    bench/straggler.py [--runs 5] [--loops 2] [--steps 40] [--window 8]

Each run: two nodes of one CPU device each, and a pipeline over them. When it has trained for a while, busy loops begin on the core of the
second stage's rank, so that it computes several times slower. Measured are the steps' medians before, while slow, and with the new plan.
Needs two cores at least.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import cluster  # noqa: E402

JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: straggler
model: {{layers: 12, hidden: 128, heads: 4, seq: 64, vocab: 256, dropout: 0.1}}
data: {{kind: text, path: {data}}}
train: {{steps: 100000, globalBatch: 16, microBatch: 2}}
resources: {{ranks: 2}}
parallel: {{tp: 1, pp: 2, dp: 1, schedule: 1f1b}}
"""


class Run(cluster.ClusterTest):
    devices = 1
    poll_seconds = 1  # more frequent polls would slow the ranks

    def runTest(self):
        pass

    def step_millis(self, job, seconds):
        """The median of the step times that the server shows during `seconds` seconds, in milliseconds."""
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            times.append(int(self.get(job)["progress"]["stepNs"]) / 1e6)
            time.sleep(0.5)
        return statistics.median(times)

    def layers(self, page):
        return [sum(s["endLayer"] - s["firstLayer"] for s in stage["slices"]) for stage in page["plan"]["stages"]]

    def measure(self, loops, steps, window):
        path = self.directory / "job.yaml"
        path.write_text(JOB.format(data=self.corpus))
        job = self.submit(path)
        page = self.await_steps(job, 60)
        before = self.step_millis(job, window)
        had = self.layers(page)
        rank = next(pid for pid in self.rank_pids()
                    if page["placement"][1]["node"] in pathlib.Path(f"/proc/{pid}/cmdline").read_text())
        cores = os.sched_getaffinity(rank)
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                    preexec_fn=lambda: os.sched_setaffinity(0, cores)) for _ in range(loops)]
        try:
            began = time.monotonic()
            self.await_kind(job, "drift")
            noticed = time.monotonic() - began
            slow = int(self.get(job)["progress"]["stepNs"]) / 1e6
            page = self.await_job(job, lambda p: "replanned" in self.event_kinds(p) or self.event_kinds(p)[-1] == "replan-kept",
                                  "a decision")
            reason = [e["reason"] for e in page["events"] if e["kind"] == "drift"][0]
            if "replanned" not in self.event_kinds(page):
                return None, page["events"][-1]["reason"]
            page = self.await_job(job, lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) >= 2, "it runs")
            self.await_steps(job, int(page["progress"]["stepsDone"]) + steps)
            after = self.step_millis(job, window)
            return (before, slow, after, noticed, had, self.layers(page)), reason
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()

    def await_kind(self, job, kind):
        return self.await_job(job, lambda page: kind in self.event_kinds(page), kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loops", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40, help="with the new plan, before its steps are looked at")
    parser.add_argument("--window", type=float, default=8, help="seconds in which steps are looked at, before and after")
    arguments = parser.parse_args()
    results = []
    for number in range(arguments.runs):
        run = Run()
        run.setUp()
        try:
            result, reason = run.measure(arguments.loops, arguments.steps, arguments.window)
        finally:
            run.doCleanups()
        if result is None:
            print(f"run {number}: no change: {reason}")
            continue
        before, slow, after, noticed, had, has = result
        print(f"run {number}: step {before:.1f} ms, slow {slow:.1f}, planned around {after:.1f}; noticed after {noticed:.1f} s; "
              f"layers {had} -> {has}; {reason}", flush=True)
        results.append((slow / before, after / before, slow / after, noticed))
    if results:
        names = ("slow / before", "planned around / before", "slow / planned around", "noticed after (s)")
        for index, name in enumerate(names):
            values = [result[index] for result in results]
            print(f"{name}: median {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
