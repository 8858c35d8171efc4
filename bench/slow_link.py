#!/usr/bin/env python3
"""A link between nodes becomes slow while a job trains over it: when that is noticed, and what planning around it brings.

    bench/slow_link.py [--runs 5] [--rate 40mbit] [--log FOLDER]

Each run: two nodes of one CPU device each, in network namespaces, and a job whose layout is the planner's choice, on two devices. When it
has trained for a while, tc limits what the first node sends. Measured are the medians of the steps before and
with the new plan, and their mean while slow.
Needs namespaces and tc; exits with 77 where they cannot be had, with 1 where the link was not noticed in a run.
"""

import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
from namespace_cluster import Cluster, Network, enter_namespaces, stop_everything  # noqa: E402

JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: slow-link
model: {{layers: 8, hidden: 192, heads: 4, seq: 256, vocab: 256, dropout: 0.1}}
data: {{kind: text, path: {data}}}
train: {{steps: 1000000, globalBatch: 2, microBatch: 1}}
resources: {{ranks: 2}}
parallel: {{schedule: 1f1b}}
"""
DECIDED = ("replanned", "replan-kept")
NOT_HERE = 77


class Run:
    def __init__(self, home, network):
        self.home = home
        self.cluster = Cluster(home, network)
        self.text = home / "text"
        self.text.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        self.limited = False
        self.story = []  # the job's events, shown if a wait takes too long
        self.names = ["server", "node0.agent", "node0.worker", "node1.agent", "node1.worker"]

    def page(self, job):
        page = self.until(lambda: self.cluster.ctl("get", job, "--events"), "the server answers")
        self.story = [f"{event['kind']}: {event['reason']}" for event in page["events"]]
        return page

    def until(self, condition, what, timeout=120):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout} s: {what}\n" + "\n".join(self.story))
            time.sleep(0.25)

    def steps_beyond(self, job, count):
        page = self.page(job)
        return page if page["state"] == "JOB_STATE_RUNNING" and int(page["progress"].get("stepsDone", 0)) >= count else None

    def steps_done(self, job):
        return int(self.page(job)["progress"].get("stepsDone", 0))

    def step_millis(self, job, seconds):
        """The median of the step times that the server shows during `seconds` seconds, in milliseconds."""
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            times.append(int(self.page(job)["progress"]["stepNs"]) / 1e6)
            time.sleep(0.5)
        return statistics.median(times)

    def events(self, job, *kinds):
        return [event for event in self.page(job)["events"] if event["kind"] in kinds]

    def layout(self, job):
        layout = self.page(job)["plan"]["layout"]
        return " ".join(f"{name}{layout.get(name, 1)}" for name in ("tp", "pp", "dp"))

    def measure(self, rate):
        for name in self.names:
            self.cluster.start(name)
        path = self.home / "job.yaml"
        path.write_text(JOB.format(data=self.text))
        self.until(lambda: len((self.cluster.ctl("nodes") or {}).get("nodes", [])) == 2, "both nodes are there")
        job = self.until(lambda: self.cluster.ctl("submit", "-f", path), "the job is taken")["id"]
        self.until(lambda: self.steps_beyond(job, 60), "it trains")
        before, had = self.step_millis(job, 8), self.layout(job)
        self.cluster.network.limit(0, rate)
        self.limited = True
        began, done = time.monotonic(), self.steps_done(job)
        of_links = lambda: [e for e in self.events(job, "drift") if "link" in e["reason"]]  # noqa: E731
        drift = self.until(of_links, "the slow link is noticed")[0]
        noticed = time.monotonic() - began
        slow = noticed * 1000 / max(1, self.steps_done(job) - done)  # not the server's median, which still includes steps before the limit
        of_it = lambda: [e for e in self.events(job, *DECIDED) if int(e["sequence"]) > int(drift["sequence"])]  # noqa: E731
        decision = self.until(of_it, "it is decided")[0]
        reason = f"{drift['reason']}; {decision['reason']}"
        if decision["kind"] != "replanned":
            return (before, slow, None, noticed, had, had), reason
        done = self.steps_done(job)
        self.until(lambda: self.steps_beyond(job, done + 40), "it goes on")
        return (before, slow, self.step_millis(job, 8), noticed, had, self.layout(job)), reason

    def end(self):
        if self.limited:
            self.cluster.network.limit(0, None)
        stop_everything(self.cluster)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", default="40mbit", help="what the slow link carries, as tc has it")
    parser.add_argument("--log", type=pathlib.Path, help="keep the daemons' logs there")
    arguments = parser.parse_args()
    if not enter_namespaces():
        print("no namespaces or no tc here: no link can be slowed")
        return NOT_HERE
    network, results = Network(True), []
    for number in range(arguments.runs):
        home = pathlib.Path(tempfile.mkdtemp(prefix="lynx-slow-link-"))
        run = Run(home, network)
        try:
            (before, slow, after, noticed, had, has), reason = run.measure(arguments.rate)
        finally:
            run.end()
            if arguments.log:
                shutil.copytree(home / "logs", arguments.log / str(number), dirs_exist_ok=True)
            for disk in run.cluster.disks.values():
                disk.unmount()
            shutil.rmtree(home, ignore_errors=True)
        planned = "kept" if after is None else f"planned around {after:.1f}"
        print(f"run {number}: step {before:.1f} ms, slow {slow:.1f}, {planned}; noticed after {noticed:.1f} s; {had} -> {has}; {reason}", flush=True)
        results.append((slow / before, after and after / before, after and slow / after, noticed))
    names = ("slow / before", "planned around / before", "slow / planned around", "noticed after (s)")
    for index, name in enumerate(names):
        values = [result[index] for result in results if result[index] is not None]
        if values:
            print(f"{name}: median {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}), {len(values)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
