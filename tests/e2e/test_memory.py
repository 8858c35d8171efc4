"""Tests that a job that runs out of memory gets a new plan that needs less, and that its losses stay the same to the last
bit."""

import csv
import os
import shutil
import time

from cluster import BIN, PROGRAMS, ClusterTest

# Activations are large compared with the states: with nothing recomputed they take several times as much as with everything
# recomputed.
SHAPE = "model: {layers: 4, hidden: 64, heads: 4, seq: 512, vocab: 256, dropout: 0.1}"
STEPS = 5
MAX_RESTARTS = 12
KIB, MIB = 1 << 10, 1 << 20
# Replaces lynx-rank: limits the memory of a rank to the KiB in the file `limit`, and starts the real lynx-rank.
LIMITED_RANK = """#!/bin/sh
case " $* " in *" --config "*) ulimit -d $(cat {limit}) || exit 1 ;; esac
exec {rank} "$@"
"""


class MemoryTest(ClusterTest):
    nodes = 1
    devices = 1

    def up(self):
        self.binaries = self.directory / "bin"
        self.binaries.mkdir()
        for name in PROGRAMS:
            shutil.copy2(BIN / name, self.binaries)
        self.limit_ranks(None)
        rank = self.binaries / "lynx-rank"
        rank.write_text(LIMITED_RANK.format(limit=self.limit_file(), rank=BIN / "lynx-rank"))
        os.chmod(rank, 0o755)
        super().up()

    def limit_file(self):
        return self.directory / "limit"

    def limit_ranks(self, limit):
        """Limits the memory of ranks that start from now on to `limit` bytes. None: no limit."""
        self.limit_file().write_text("unlimited" if limit is None else str(limit // KIB))

    def large_job(self, name, steps):
        path = self.job_file(name=name, steps=steps, ranks=1, tp=1, pp=1, every=1, max_restarts=MAX_RESTARTS)
        lines = path.read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("model:"))
        text = "\n".join(lines[:at] + [SHAPE] + lines[at + 1:]) + "\n"
        path.write_text(text.replace("microBatch: 2", "microBatch: 8"))
        return path

    def losses(self, job):
        path = self.home / "server" / "jobs" / job / "checkpoints" / f"metrics-{job}" / "metrics.csv"
        with open(path, newline="") as file:
            return [(row["step"], row["loss"]) for row in csv.DictReader(file)]

    def data_bytes(self, pid):
        """The size of the process's private writable memory; 0 if the process is gone."""
        try:
            with open(f"/proc/{pid}/status") as file:
                return next((int(line.split()[1]) * KIB for line in file if line.startswith("VmData:")), 0)
        except OSError:
            return 0

    def run_undisturbed(self):
        """The job's page, its arena, and the largest memory that its rank was seen to use."""
        job = self.submit(self.large_job("undisturbed", STEPS))
        most = 0
        while self.get(job)["state"] not in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED"):
            most = max([most] + [self.data_bytes(pid) for pid in self.rank_pids()])
            time.sleep(0.02)
        self.await_state(job, "SUCCEEDED")
        arena = self.arena(job)
        self.assertGreater(arena, 200 * MIB, "else little depends on it")
        self.assertGreater(most, arena)
        return job, arena, most

    def arena(self, job):
        return int(self.get(job)["plan"]["stages"][0]["arenaBytes"])

    def reasons(self, page, kind):
        return [event["reason"] for event in page["events"] if event["kind"] == kind]

    def test_a_rank_that_may_have_less_than_its_plan(self):
        undisturbed, arena, most = self.run_undisturbed()
        self.limit_ranks(most - arena * 3 // 10)
        job = self.submit(self.large_job("limited", STEPS))
        page = self.await_state(job, "SUCCEEDED", timeout=120)
        forced, changed = self.reasons(page, "replan-forced"), self.reasons(page, "replanned")
        self.assertGreaterEqual(len(forced), 1, page["events"])
        self.assertEqual(len(changed), len(forced))
        self.assertRegex(forced[0], r"^out_of_memory: rank 0 on node \S+: cannot allocate .* counts as having .* for this job, "
                                    r"10% less than the .* that the plan took there; plans for 1 device in place of tp1 pp1 dp1")
        self.assertRegex(changed[0], r"^out_of_memory: tp1 pp1 dp1 .* replaces tp1 pp1 dp1 .*, which did not fit; a change takes about")
        self.assertEqual(page["restarts"], len(forced))
        self.assertLess(self.arena(job), arena)
        self.assertEqual(page["memoryLimits"][0]["times"], len(forced))
        self.assertEqual(self.losses(job), self.losses(undisturbed), "what is recomputed changes no bit")
        self.assertRegex(self.metrics("server"), r'lynx_job_replans_total\{[^}]*"forced"[^}]*\} [1-9]')
        print(f"\nout of memory {len(forced)} times; the arena went from {arena >> 20} MiB to {self.arena(job) >> 20} MiB")

    def test_a_job_that_nothing_fits(self):
        _, arena, most = self.run_undisturbed()
        self.limit_ranks(most - arena + 40 * MIB)
        job = self.submit(self.large_job("impossible", STEPS))
        page = self.await_state(job, "FAILED", timeout=120)
        self.assertRegex(page["reason"], r"^ran out of memory \d times on devices of model .*, which count as having .*, and no plan fits "
                                         r"that: .*; free memory on these nodes, or give the job more ranks")
        self.assertLess(page["restarts"], MAX_RESTARTS, "the budget is not spent")
