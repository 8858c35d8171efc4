"""Tests problems with checkpoints: a full disk, damaged files, reports lost with a machine, an earlier generation that is still
alive, shared directories."""

import os
import pathlib
import shutil
import signal
import subprocess

from cluster import ClusterTest, kill, processes

NO_COPIES = ", copyEverySteps: 0"  # copies in memory would be newer than the checkpoints on disk


class CheckpointTest(ClusterTest):
    def small_disk(self):
        """A folder on a small file system, with room for one checkpoint but not for two."""
        small = self.directory / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(small)])
        return small

    def steps_in(self, directory):
        return sorted(int(path.name[5:]) for path in pathlib.Path(directory).glob("step-*"))

    def fill(self, disk):
        """Fills the file system, except for the space of an empty file."""
        filler = disk / "filler"
        with open(filler, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        return filler

    def test_full_disk_is_an_event_and_training_goes_on(self):
        disk = self.small_disk()
        (disk / "run").mkdir()
        filler = self.fill(disk)
        job = self.submit(self.job_file(steps=30, every=10, extra=f", directory: {disk}/run"))
        # The last checkpoint is the result of the run, so the ranks try to write it again until there is room.
        page = self.await_job(job, lambda p: self.event_kinds(p).count("checkpoint-failed") == 3, "three failures")
        failures = [e["reason"] for e in page["events"] if e["kind"] == "checkpoint-failed"]
        for failure, step in zip(failures, (10, 20, 30)):
            self.assertIn(f"no checkpoint of step {step}", failure)
            self.assertIn("No space left", failure)
        self.assertIn("training goes on", failures[0])
        self.assertIn("try again", failures[2])
        self.assertEqual(page["progress"]["stepsDone"], "30")
        self.assertEqual(page["state"], "JOB_STATE_RUNNING")
        filler.unlink()
        page = self.await_state(job, "SUCCEEDED")
        self.assertEqual(page["restarts"], 0)
        self.assertEqual(pathlib.Path(page["checkpointPath"]).name, "step-00000030")
        self.assertEqual(self.steps_in(disk / "run"), [30])

    def damage(self, directory, pattern="step-*"):
        for shard in pathlib.Path(directory).glob(f"{pattern}/shard-0000-0000.safetensors"):
            content = bytearray(shard.read_bytes())
            content[len(content) // 2] ^= 1
            shard.write_bytes(content)

    def freeze_and_kill(self, meanwhile):
        """Stops the ranks with SIGSTOP, so that they write no newer checkpoint; calls `meanwhile`; kills the ranks."""
        pids = self.rank_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        result = meanwhile()
        kill(pids)
        return result

    def test_damaged_checkpoints_are_an_error_that_says_so(self):
        job = self.submit(self.job_file(steps=100000, every=5, max_restarts=1, extra=NO_COPIES))
        page = self.await_job(job, lambda p: p["checkpointPath"], "a checkpoint")
        self.freeze_and_kill(lambda: self.damage(pathlib.Path(page["checkpointPath"]).parent))
        page = self.await_state(job, "FAILED", timeout=120)
        self.assertIn("shard-0000-0000.safetensors", page["reason"])

    def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(self):
        job = self.submit(self.job_file(steps=1000, every=20, extra=f", keep: 3{NO_COPIES}"))
        page = self.await_steps(job, 70)
        directory = pathlib.Path(page["checkpointPath"]).parent

        def damage_newest():
            steps = self.steps_in(directory)
            self.damage(directory, f"step-{steps[-1]:08}")
            return steps

        steps = self.freeze_and_kill(damage_newest)
        page = self.await_state(job, "SUCCEEDED")
        runs = [e["reason"] for e in page["events"] if e["kind"] == "running"]
        self.assertEqual(runs[1], f"all ranks run, from the checkpoint of step {steps[-2]}")
        self.assertEqual(page["progress"]["stepsDone"], "1000")

    def test_reports_lost_with_a_machine_lose_no_checkpoint(self):
        # The two losses have the same bits only if both jobs have the same plan. So the job file fixes every choice of the
        # planner that could depend on measured times.
        layout = "2, virtualStages: 1, sequenceParallel: off, schedule: 1f1b, partition: even"
        path = self.job_file(steps=1000, every=20, pp=layout, extra=NO_COPIES)
        undisturbed = self.submit(path)
        expected = self.await_state(undisturbed, "SUCCEEDED")
        job = self.submit(path)
        page = self.await_job(job, lambda p: p["checkpointPath"], "a checkpoint")
        directory = pathlib.Path(page["checkpointPath"]).parent
        self.kill_daemon("server")
        known = max(self.steps_in(directory))
        # Waits until so many newer checkpoints exist that every checkpoint that the server knows has been deleted. Then both
        # worker daemons and all ranks are killed.
        self.await_on_disk(lambda: self.steps_in(directory) and min(self.steps_in(directory)) > known + 20, "newer ones")
        for node in ("node0", "node1"):
            self.kill_daemon(f"{node}.worker")
        kill(self.rank_pids())
        newest = max(self.steps_in(directory))
        for node in ("node0", "node1"):
            shutil.rmtree(self.home / node / "worker", ignore_errors=True)
        self.up()
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        runs = [e["reason"] for e in page["events"] if e["kind"] == "running"]
        self.assertEqual(runs[-1], f"all ranks run, from the checkpoint of step {newest}")
        self.assertEqual(page["progress"]["loss"], expected["progress"]["loss"])

    def test_the_same_job_file_again_does_not_train_over_the_first_run(self):
        path = self.job_file(steps=30, every=10, extra=f", directory: {self.directory}/run")
        self.await_state(self.submit(path), "SUCCEEDED")
        page = self.await_state(self.submit(path), "FAILED")
        self.assertIn("checkpoint.directory", page["reason"])
        self.assertEqual(page["progress"].get("stepsDone", "0"), "0")
        self.assertEqual(self.steps_in(self.directory / "run"), [20, 30])

    def test_another_job_goes_on_in_another_layout(self):
        runs = self.directory / "runs"
        first = self.submit(self.job_file(steps=20, every=10, ranks=2, tp=2, pp=1, extra=f", directory: {runs}/first"))
        expected = self.await_state(first, "SUCCEEDED")
        second = self.submit(self.job_file(steps=20, ranks=4, tp=1, pp=2,
                                           extra=f", directory: {runs}/second, from: {runs}/first/step-00000010"))
        page = self.await_state(second, "SUCCEEDED")
        started = [e["reason"] for e in page["events"] if e["kind"] == "running"]
        self.assertEqual(started, ["all ranks run, from the checkpoint of step 10"])
        loss = float(expected["progress"]["loss"])
        self.assertAlmostEqual(float(page["progress"]["loss"]), loss, delta=1e-4 * loss)

        # Exports the weights of the second job for other programs, and imports them again.
        for arguments in (("export", f"{runs}/second", "--out", f"{runs}/hf"), ("import", f"{runs}/hf", "--out", f"{runs}/third")):
            result = self.ctl("checkpoint", *arguments)
            self.assertEqual(result.code, 0, result)
        third = self.submit(self.job_file(steps=2, ranks=2, tp=1, pp=1, extra=f", from: {runs}/third"))
        page = self.await_state(third, "SUCCEEDED")
        started = [e["reason"] for e in page["events"] if e["kind"] == "running"]
        self.assertEqual(started, [f"all ranks run, from the weights in {runs}/third"])
        self.assertLess(float(page["progress"]["loss"]), 1.2 * loss)

    def test_another_job_goes_on_with_its_ranks_in_another_order(self):
        runs, pages = self.directory / "runs", []
        for order, start in (("tp-pp-dp", ""), ("tp-dp-pp", f", from: {runs}/tp-pp-dp/step-00000004")):
            job = self.submit(self.job_file(order, steps=8, every=4, tp=1, pp=f"2, dp: 2, rankOrder: {order}",
                                            extra=f", directory: {runs}/{order}{start}"))
            pages.append(self.await_state(job, "SUCCEEDED"))
        orders = [page["plan"]["layout"]["rankOrder"] for page in pages]
        self.assertEqual(orders, ["RANK_ORDER_TP_PP_DP", "RANK_ORDER_TP_DP_PP"])
        started = [event["reason"] for event in pages[1]["events"] if event["kind"] == "running"]
        self.assertEqual(started, ["all ranks run, from the checkpoint of step 4"])
        loss = pages[0]["progress"]["loss"]
        self.assertAlmostEqual(pages[1]["progress"]["loss"], loss, delta=1e-4 * loss)


class SuccessorTest(ClusterTest):
    """A node that cannot be reached: its ranks go on training while the job continues elsewhere."""

    def test_ranks_of_a_lost_node_stop_at_their_next_checkpoint(self):
        job = self.submit(self.job_file(steps=1000000, every=500, ranks=2, tp=2, pp=1))
        self.await_job(job, lambda p: p["checkpointPath"], "a checkpoint")
        old = self.rank_pids()
        self.assertEqual(len(old), 2)
        command = processes(self.directory)[old[0]]
        node = "node0" if "/node0/" in command else "node1"
        self.kill_daemon(f"{node}.worker")
        page = self.await_job(job, lambda p: int(p["generation"]) == 2 and p["state"] == "JOB_STATE_RUNNING",
                              "a second generation", timeout=180)
        self.assertIn("node-lost", self.event_kinds(page))
        self.await_on_disk(lambda: not set(old) & set(self.rank_pids()), "the end of the old ranks")
        self.await_steps(job, int(page["progress"]["stepsDone"]) + 600)
        self.assertEqual(self.get(job)["generation"], "2")
        self.ctl("cancel", job)
