"""Tests that a job with a range of ranks follows its cluster: it shrinks when a node dies, and grows when a node joins."""

import pathlib
import sys
import time
import unittest

from cluster import ClusterTest, kill, processes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))

from pages import commands_of


class ReplanTest(ClusterTest):
    devices = 1

    def start(self, **changes):
        values = dict(steps=100_000, every=200, ranks="1..2", tp="auto", pp="auto", max_restarts=3)
        values.update(changes)
        return self.submit(self.job_file(**values))

    def kill_node(self, name):
        """Kills all processes of the node at once, as a power failure does."""
        cluster = self.home / name
        kill([pid for pid, command in processes(self.directory).items() if str(cluster) in command])

    def layout_ranks(self, page):
        return len(page["placement"])

    def await_kind(self, job, kind, count=1):
        return self.await_job(job, lambda page: self.event_kinds(page).count(kind) >= count, f"{count} x {kind}")

    def await_generation(self, job, generation):
        return self.await_job(job, lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) == generation,
                              f"generation {generation} runs")

    def test_node_dies_and_returns(self):
        job = self.start()
        page = self.await_kind(job, "checkpoint")
        self.assertEqual(self.layout_ranks(page), 2, page)
        node = page["placement"][1]["node"]
        self.kill_node(node)
        killed = time.monotonic()
        page = self.await_generation(job, 2)
        print(f"\nfrom the node's death to the smaller layout: {time.monotonic() - killed:.1f} s")
        self.assertEqual(self.layout_ranks(page), 1)
        self.assertNotEqual(page["placement"][0]["node"], node)
        done = int(page["progress"]["stepsDone"])
        self.assertGreaterEqual(done, 200, "at least from the checkpoint")
        self.await_steps(job, done + 20)

        self.up()
        returned = time.monotonic()
        page = self.await_generation(job, 3)
        print(f"from the node's return to its use: {time.monotonic() - returned:.1f} s")
        self.assertEqual(self.layout_ranks(page), 2)
        self.assertEqual(page["restarts"], 1, "only the death was a fault")
        resumed = int(page["progress"]["stepsDone"])
        kinds = self.event_kinds(page)
        for kind in ("replan-forced", "replan", "replan-adopted", "replanned"):
            self.assertIn(kind, kinds)
        # The ranks gave way with a checkpoint of their last step, so no step is repeated.
        before = page["events"][:len(kinds) - 1 - kinds[::-1].index("replanned")]
        checkpoint = max(int(e["reason"].split(":")[0].split()[1]) for e in before if e["kind"] == "checkpoint")
        reasons = [event["reason"] for event in page["events"] if event["kind"] == "running"]
        self.assertEqual(reasons[-1], f"all ranks run, from the checkpoint of step {checkpoint}")
        self.assertGreaterEqual(resumed, checkpoint)
        self.await_steps(job, resumed + 20)
        self.ctl("cancel", job)


class RecordTest(unittest.TestCase):
    def test_its_command_is_what_runs_this(self):
        self.assertEqual(commands_of("e2e.replan"), {"docs/measurements/elastic.md": ["cd tests/e2e && python3 -m unittest -v test_replan"]})
