"""Tests that a job continues from copies of its states in the memory of nodes, and how many steps the loss of a rank or of a
node costs."""

import csv
import os
import shutil
import signal
import time

from cluster import ClusterTest, kill, processes


class CopiesTest(ClusterTest):
    devices = 1

    def lines(self, job):
        """Step -> loss, from the run's own metrics. Each step occurs once."""
        path = self.home / "server" / "jobs" / job / "checkpoints" / f"metrics-{job}" / "metrics.csv"
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        steps = [int(row["step"]) for row in rows]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        return {int(row["step"]): row["loss"] for row in rows}

    def await_resumed(self, job, killed):
        page = self.await_job(job, lambda p: "resumed" in self.event_kinds(p), "resumed from copies")
        reason = [e["reason"] for e in page["events"] if e["kind"] == "resumed"][-1]
        step = int(reason.split("at step ")[1].split(",")[0])
        self.assertEqual(reason, f"goes on at step {step}, from copies of the states in the memory of nodes")
        self.await_steps(job, step + 1)
        print(f"\nfrom the loss to the next step: {time.monotonic() - killed:.1f} s, resumed at step {step}")
        return step

    def await_no_copies(self, job):
        self.await_on_disk(lambda: not list(self.home.glob(f"*/copies/{job}")), f"no copies of {job}")

    def test_a_killed_rank(self):
        undisturbed = self.submit(self.job_file(steps=2000, ranks=2, tp=1, pp=2))
        self.await_state(undisturbed, "SUCCEEDED", timeout=300)
        expected = self.lines(undisturbed)
        job = self.submit(self.job_file(steps=2000, ranks=2, tp=1, pp=2, extra=", copyEverySteps: 1"))
        self.await_steps(job, 50)
        os.kill(self.rank_pids()[1], signal.SIGKILL)
        step = self.await_resumed(job, time.monotonic())
        self.assertGreater(step, 0, "there is no checkpoint, only copies")
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertEqual(page["restarts"], 1)
        self.assertEqual(self.lines(job), expected, "the same run to the bit")
        self.assertIn(f'lynx_job_resumes_from_copies_total{{job_id="{job}",job_name="tiny"}} 1', self.metrics("server"))
        self.await_no_copies(job)

    def test_a_lost_node(self):
        job = self.submit(self.job_file(steps=100_000, ranks="1..2", tp="auto", pp="auto", extra=", copyEverySteps: 1"))
        page = self.await_steps(job, 100)
        self.assertEqual(len(page["placement"]), 2)
        node = page["placement"][1]["node"]
        kill([pid for pid, command in processes(self.directory).items() if str(self.home / node) in command])
        shutil.rmtree(self.home / node / "copies")  # the node's memory
        step = self.await_resumed(job, time.monotonic())
        self.assertGreater(step, 0, "there is no checkpoint, only copies")
        page = self.get(job)
        self.assertEqual([rank["node"] for rank in page["placement"]], [n for n in ("node0", "node1") if n != node])
        self.lines(job)
        self.ctl("cancel", job)
        self.await_state(job, "CANCELLED")
        self.await_no_copies(job)
