"""Checkpoints in trouble: a full disk, a damaged file."""

import os
import pathlib
import signal
import subprocess

from cluster import ClusterTest


class CheckpointTest(ClusterTest):
    def test_full_disk_is_an_event_and_training_goes_on(self):
        small = self.directory / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", str(small)])
        job = self.submit(self.job_file(steps=30, every=10, extra=f", directory: {small}/run"))
        page = self.await_state(job, "SUCCEEDED")
        self.assertEqual(page["progress"]["stepsDone"], "30")
        failures = [e["reason"] for e in page["events"] if e["kind"] == "checkpoint-failed"]
        self.assertTrue(failures)
        self.assertIn("No space left", failures[0])
        self.assertEqual(page["restarts"], 0)

    def test_damaged_checkpoint_is_an_error_that_says_so(self):
        job = self.submit(self.job_file(steps=100000, every=5, max_restarts=1))
        page = self.await_job(job, lambda p: p["checkpointPath"], "a checkpoint")
        # Stop the ranks so that no newer checkpoint takes its place, damage what is there, then lose a rank.
        pids = self.rank_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for shard in pathlib.Path(page["checkpointPath"]).parent.glob("step-*/shard-0000-0000.safetensors"):
            content = bytearray(shard.read_bytes())
            content[len(content) // 2] ^= 1
            shard.write_bytes(content)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        page = self.await_state(job, "FAILED", timeout=120)
        self.assertIn("shard-0000-0000.safetensors", page["reason"])
