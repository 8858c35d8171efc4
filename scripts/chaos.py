#!/usr/bin/env python3
"""Breaks a cluster on this machine again and again while jobs train on it, and checks that no harm is done.

    scripts/chaos.py [--faults 300] [--seed N] [--record FILE]

Four nodes of one CPU device each train three kinds of job at once, each begun again when it ends. At random, from a printed seed,
processes are killed (server, agent, worker daemon, rank, all of a node) or stopped for a while, nodes are cut off the network or
get a slow one, and the disks of the server, of a node or of the checkpoints fill up. Network and disks need namespaces
(`unshare`, as root or where users may make them); without, these faults are left out, and it says so. docs/promises.md says what
is checked. Exit codes: 0 no violation; 1 violations, which are printed; 2 the cluster could not be set up.
"""

import argparse
import collections
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from chaos_compare import check
from namespace_cluster import NODES, Cluster, Network, enter_namespaces, ranks_of_machine, send, stop_everything

SLOW = "4mbit"  # the rate at which a slow node sends
PATIENCE = 420  # seconds in which all jobs must end after everything is mended
ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")

# Kind -> parts of its job file. All jobs of a kind train in the same way. If two of them have the same layout, their weights
# must be the same to the last bit. The layout of the elastic kind changes, so its sums differ in their last bits. Its learning
# rate is so small that the loss of each step shows which samples the step had.
KINDS = {
    # The partition is fixed, because it decides in which order the gradient's norm is summed, and so the norm's last bits.
    "fixed": dict(ranks="2", parallel="{tp: 1, pp: 2, dp: 1, schedule: zero-bubble, partition: even}", seed=1, lr="3e-3"),
    "single": dict(ranks="1", parallel="{tp: 1, pp: 1, dp: 1}", seed=2, lr="3e-3"),
    "elastic": dict(ranks="1..2", parallel="{tp: auto, pp: auto}", seed=3, lr="1e-12"),
}
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {{layers: 4, hidden: 32, heads: 4, seq: 32, vocab: 256, dropout: 0.1}}
data: {{kind: text, path: {data}}}
train: {{steps: {steps}, globalBatch: 8, microBatch: 2, seed: {seed}, optimizer: {{lr: {lr}}}}}
resources: {{ranks: {ranks}, activationMemoryPerRank: 64MiB}}
parallel: {parallel}
checkpoint: {{everySteps: {every}}}
maxRestarts: 1000
"""


class Watch(threading.Thread):
    """Looks at processes and checkpoints four times a second for states that must never occur."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.violations = []
        self.overlaps = 0        # how often two generations of a job were seen to have ranks on different nodes
        self.checkpoints = {}    # job -> {step: generation}
        self.fences = {}         # (job, generation) -> when it was first seen
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(0.25):
            self.look_at_processes()
            self.look_at_checkpoints()

    def look_at_processes(self):
        ranks = ranks_of_machine(self.cluster.home)
        by_node = collections.defaultdict(set)
        generations = collections.defaultdict(set)
        for pid, node, job, generation, _ in ranks:
            by_node[node].add((pid, job, generation))
            generations[job].add(generation)
        self.overlaps += any(len(g) > 1 for g in generations.values())
        for node, there in by_node.items():
            if len(there) < 2:
                continue
            alive = {pid for pid, *_ in ranks_of_machine(self.cluster.home)}
            if sum(pid in alive for pid, *_ in there) > 1:
                self.violations.append(f"node{node}'s one device trains for {sorted(there)}")

    def look_at_checkpoints(self):
        now = time.monotonic()
        for folder in self.cluster.home.glob("checkpoints/*"):
            for fence in folder.glob(".fence-*"):
                match = re.fullmatch(r"\.fence-(.+)\.g(\d+)", fence.name)
                if match:
                    self.fences.setdefault((folder.name, int(match[2])), now)
            for index in folder.glob("step-*/index.json"):
                step = int(index.parent.name[5:])
                known = self.checkpoints.setdefault(folder.name, {})
                if step in known:
                    continue
                try:
                    generation = int(re.search(r'"generation"\s*:\s*"?(\d+)', index.read_text())[1])
                except (OSError, TypeError):
                    continue  # the checkpoint was removed in the meantime
                known[step] = generation
                newer = [g for (name, g), seen in self.fences.items()
                         if name == folder.name and g > generation and now - seen > 5]
                if newer:
                    self.violations.append(f"{folder.name}: generation {generation} published step {step} long after "
                                           f"generation {max(newer)} had raised its fence")


class Jobs:
    """Keeps one job of each kind running and remembers every job that was acknowledged."""

    def __init__(self, cluster, data, steps):
        self.cluster = cluster
        self.data = data
        self.steps = steps
        self.acknowledged = {}  # job id -> (kind, name)
        self.began = {}         # id -> time
        self.ended = {}         # id -> time
        self.pending = {}       # kind -> (name, key) of a submission without answer
        self.count = 0
        self.last = {}          # newest list of jobs
        self.closed = False     # true: no new job is begun

    def submit(self, kind):
        if kind not in self.pending:
            self.count += 1
            self.pending[kind] = f"{kind}-{self.count}"
        name = self.pending[kind]
        folder = self.cluster.home / "checkpoints" / name
        path = self.cluster.home / f"{name}.yaml"
        text = JOB.format(name=name, data=self.data, steps=self.steps, every=max(self.steps // 12, 5), **KINDS[kind])
        path.write_text(text.replace("checkpoint: {", "checkpoint: {directory: %s, " % folder))
        answer = self.cluster.ctl("submit", "-f", path, "--idempotency-key", name)
        if answer is not None:
            self.acknowledged[answer["id"]] = (kind, name)
            self.began.setdefault(answer["id"], time.monotonic())
            del self.pending[kind]

    def look(self):
        """Gets the list of jobs, and notes which jobs have ended. Returns False if the server does not answer."""
        jobs = self.cluster.jobs()
        if jobs is None:
            return False
        self.last = jobs
        for job in self.acknowledged:
            if job in jobs and jobs[job]["state"] in ENDED:
                self.ended.setdefault(job, time.monotonic())
        return True

    def keep_going(self):
        for kind in KINDS:
            if not self.closed and not any(k == kind and job not in self.ended for job, (k, _) in self.acknowledged.items()):
                self.submit(kind)

    def unfinished(self):
        return [job for job in self.acknowledged if job not in self.ended]

    def steps_done(self):
        """Returns for each unfinished job the number of steps that it has done."""
        return {job: int(self.last[job].get("progress", {}).get("stepsDone", 0)) for job in self.unfinished() if job in self.last}


class Fault:
    """Something that breaks and is mended after a while."""

    def __init__(self, kind, target, seconds, begin, mend):
        self.kind, self.target, self.seconds = kind, target, seconds
        self.begin, self.mend = begin, mend

    def __str__(self):
        return f"{self.kind} {self.target} ({self.seconds:.1f} s)"


KILLS_AND_STOPS = ("kill-server", "kill-agent", "kill-worker", "kill-rank", "kill-rank", "kill-node", "stop-server", "stop-agent",
                   "stop-worker", "stop-rank")
OF_NAMESPACES = ("cut-node", "cut-node", "slow-node", "full-server", "full-node", "full-checkpoints")


def draw(cluster, rng, real, busy):
    """Returns a random fault. None: the place of the fault already has a fault (`busy`), or there is no rank to break."""
    kind = rng.choice(KILLS_AND_STOPS + (OF_NAMESPACES if real else ()))
    action, what = kind.split("-")
    seconds = rng.choice([0.3, 1, 2, 4, 12]) * rng.uniform(0.7, 1.3)
    node = rng.randrange(NODES)
    place = what if what in ("server", "checkpoints") else f"node{node}"
    if what == "rank":
        there = sorted((pid, at) for pid, at, *_ in ranks_of_machine(cluster.home) if f"node{at}" not in busy)
        if not there:
            return None
        pid, node = rng.choice(there)
        place = f"node{node}"
        if action == "kill":
            return Fault(kind, place, 0, lambda: send(pid, signal.SIGKILL), lambda: None)
        return Fault(kind, place, seconds, lambda: send(pid, signal.SIGSTOP), lambda: send(pid, signal.SIGCONT))
    if place in busy:
        return None
    if action == "full":
        disk = cluster.disks[place]
        return Fault(kind, place, seconds, lambda: disk.fill(True), lambda: disk.fill(False))
    if action in ("cut", "slow"):
        network = cluster.network
        if action == "cut":
            return Fault(kind, place, seconds, lambda: network.cut(node, True), lambda: network.cut(node, False))
        return Fault(kind, place, seconds, lambda: network.limit(node, SLOW), lambda: network.limit(node, None))
    names = {"server": ["server"], "node": [f"node{node}.agent", f"node{node}.worker"]}.get(what, [f"node{node}.{what}"])
    if action == "stop":
        return Fault(kind, place, seconds, lambda: cluster.signal(names[0], signal.SIGSTOP),
                     lambda: cluster.signal(names[0], signal.SIGCONT))
    return Fault(kind, place, seconds, lambda: kill(cluster, names, node if what == "node" else None),
                 lambda: cluster.held.difference_update(names))


def kill(cluster, names, node):
    """Kills daemons, which are not restarted before the fault is mended. If `node` is not None, also kills the ranks of this
    node and deletes its copies in memory."""
    with cluster.lock:
        cluster.held.update(names)
        for name in names:
            cluster.signal(name, signal.SIGKILL)
    for pid, at, *_ in ranks_of_machine(cluster.home):
        if at == node:
            send(pid, signal.SIGKILL)
    if node is not None:
        shutil.rmtree(cluster.home / f"node{node}" / "copies", ignore_errors=True)


class Chaos:
    def __init__(self, cluster, jobs, watch, rng, real, log):
        self.cluster, self.jobs, self.watch, self.rng, self.real, self.log = cluster, jobs, watch, rng, real, log
        self.active = []                                  # (when it is mended, fault)
        # The fault whose recovery is measured: (fault, when it began, job -> steps that the job has done and must exceed,
        # job -> generation whose ranks were killed). None: no recovery is measured.
        self.measuring = None
        self.recoveries = collections.defaultdict(list)   # kind -> seconds
        self.counts = collections.Counter()

    def tend(self):
        """Does one round: mends what is due, restarts what has ended, submits what is missing. Returns False if the
        server does not answer."""
        now = time.monotonic()
        for item in [item for item in self.active if item[0] <= now]:
            self.active.remove(item)
            item[1].mend()
            if self.measuring is not None:  # the running jobs must make progress from now on
                self.measuring = (*self.measuring[:2], self.jobs.steps_done(), self.measuring[3])
        self.cluster.watch_over()
        answers = self.jobs.look()
        if answers:
            self.jobs.keep_going()
            self.measure()
        return answers

    def measure(self):
        if self.measuring is None:
            return
        fault, when, before, killed = self.measuring
        now = self.jobs.steps_done()
        moved = all(job not in now or now[job] > steps for job, steps in before.items())
        again = all(job not in now or int(self.jobs.last[job].get("generation", 0)) > old for job, old in killed.items())
        if not self.active and moved and again:
            self.recoveries[fault.kind].append(time.monotonic() - when)
            self.measuring = None

    def inject(self):
        fault = None
        while fault is None:
            fault = draw(self.cluster, self.rng, self.real, {f.target for _, f in self.active})
        alone = not self.active and self.measuring is None
        killed = {job: generation for _, at, job, generation, _ in ranks_of_machine(self.cluster.home)
                  if fault.kind in ("kill-rank", "kill-node") and f"node{at}" == fault.target}
        self.measuring = (fault, time.monotonic(), self.jobs.steps_done(), killed) if alone else None
        fault.begin()
        self.active.append((time.monotonic() + fault.seconds, fault))
        self.counts[fault.kind] += 1
        self.log(f"{sum(self.counts.values()):4} {fault}")

    def calm(self, patience):
        """Waits until nothing is broken and the last fault has no effect any more."""
        deadline = time.monotonic() + patience
        while (self.active or self.measuring is not None) and time.monotonic() < deadline:
            self.tend()
            time.sleep(0.2)
        self.measuring = None

    def run(self, faults):
        for _ in range(faults):
            if self.rng.random() < 0.5:
                self.calm(45)
                end = time.monotonic() + self.rng.uniform(0.5, 2)
            else:
                end = time.monotonic() + self.rng.uniform(0.2, 2)  # the next fault comes while earlier faults may still last
            while time.monotonic() < end:
                self.tend()
                time.sleep(0.1)
            self.inject()

    def finish(self):
        """Mends everything and waits for all jobs to end."""
        for _, fault in self.active:
            fault.mend()
        self.active.clear()
        self.jobs.closed = True
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.tend() and not self.jobs.unfinished():
                return
            time.sleep(0.3)


def undisturbed(chaos):
    """Runs one job of each kind, all at the same time and without faults. Returns kind -> (name, seconds)."""
    jobs = chaos.jobs
    before = set(jobs.acknowledged)
    deadline = time.monotonic() + PATIENCE
    missing = list(KINDS)
    while missing or not jobs.look() or jobs.unfinished():
        if time.monotonic() > deadline:
            sys.exit("error: undisturbed jobs do not begin or end; the logs are in " + str(chaos.cluster.home / "logs"))
        chaos.cluster.watch_over()
        for kind in missing[:1]:
            jobs.submit(kind)
            missing = [k for k in missing if k != kind or kind in jobs.pending]
        time.sleep(0.3)
    return {kind: (name, jobs.ended[job] - jobs.began[job])
            for job, (kind, name) in jobs.acknowledged.items() if job not in before}


def report(chaos, references, violations, seconds):
    """Returns the lines of the report. `references`: the results of undisturbed() from before and after the faults."""
    jobs = chaos.jobs
    undisturbed_names = {run[kind][0] for run in references for kind in KINDS}
    later = [(job, kind) for job, (kind, name) in jobs.acknowledged.items() if name not in undisturbed_names and job in jobs.ended]
    ideal = sum(statistics.mean(run[kind][1] for run in references) for _, kind in later)
    taken = sum(jobs.ended[job] - jobs.began[job] for job, _ in later)
    generations = sum(int(jobs.last[job].get("generation", 0)) for job, _ in later if job in jobs.last)
    lines = [f"faults {sum(chaos.counts.values())} in {seconds:.0f} s; jobs {len(later)} beside {len(undisturbed_names)} undisturbed ones, "
             f"{generations} generations", "", "| fault | times | recoveries measured | median s | most s |", "|---|---:|---:|---:|---:|"]
    for kind, count in sorted(chaos.counts.items()):
        times = chaos.recoveries[kind]
        figures = f"{statistics.median(times):.1f} | {max(times):.1f}" if times else "- | -"
        lines.append(f"| {kind} | {count} | {len(times)} | {figures} |")
    lines += ["", f"goodput {100 * ideal / taken if taken else 0:.0f}% of undisturbed training; checkpoints seen "
              f"{sum(len(c) for c in chaos.watch.checkpoints.values())}; looks with ranks of two generations of a job, on different "
              f"nodes, {chaos.watch.overlaps}", f"violations {len(violations)}"]
    return lines + [f"  {violation}" for violation in violations]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--steps", type=int, default=2000, help="of each job")
    parser.add_argument("--record", type=pathlib.Path, help="a file for the figures")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's folder with its logs")
    arguments = parser.parse_args()
    real = enter_namespaces()
    print(f"seed {arguments.seed}" + ("" if real else "; no namespaces here: no network is cut or slowed and no disk fills up"), flush=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix="lynx-chaos-"))
    try:
        cluster = Cluster(home, Network(real))
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"error: cannot set up network and disks: {error} {getattr(error, 'stderr', '')}", file=sys.stderr)
        return 2
    data = home / "corpus.txt"
    data.write_text("".join(f"Line {i}: the quick brown fox jumps over {i * 7 % 13} lazy dogs.\n" for i in range(2000)))
    watch = Watch(cluster)
    watch.start()
    jobs = Jobs(cluster, data, arguments.steps)
    chaos = Chaos(cluster, jobs, watch, random.Random(arguments.seed), real, lambda text: print(text, flush=True))
    violations = ["it was interrupted"]
    try:
        references = undisturbed(chaos)
        print("undisturbed: " + ", ".join(f"{kind} {seconds:.1f} s" for kind, (_, seconds) in references.items()), flush=True)
        begin = time.monotonic()
        chaos.run(arguments.faults)
        seconds = time.monotonic() - begin
        chaos.finish()
        after = undisturbed(chaos) if not chaos.jobs.unfinished() else references
        watch.done.set()
        violations = check(chaos, references)
        text = f"seed {arguments.seed}: " + "\n".join(report(chaos, [references, after], violations, seconds))
        print(text)
        if arguments.record:
            arguments.record.write_text(text + "\n")
    finally:
        stop_everything(cluster)
        if violations or arguments.keep:
            print(f"logs: {keep_logs(home)}")
        for disk in cluster.disks.values():
            disk.unmount()
        shutil.rmtree(home, ignore_errors=True)
    return 1 if violations else 0


def keep_logs(home):
    kept = pathlib.Path(tempfile.mkdtemp(prefix="lynx-chaos-logs-"))
    shutil.copytree(home / "logs", kept, dirs_exist_ok=True)
    for n in range(NODES):
        for log in home.glob(f"node{n}/worker/ranks/*/stderr.log"):
            shutil.copy(log, kept / f"node{n}.{log.parent.name}.log")
    return kept


if __name__ == "__main__":
    sys.exit(main())
