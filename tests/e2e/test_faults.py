"""Kills each kind of process in the middle of a job (kill -9), with real processes."""

import json
import os
import signal
import time

from cluster import ClusterTest, processes


STEPS = 1000  # enough that the job outlasts the faults, even if a step takes only a few milliseconds


class KillTest(ClusterTest):
    def start(self, **changes):
        job = self.submit(self.job_file(steps=STEPS, every=20, **changes))
        self.await_steps(job, 25)
        pids = self.rank_pids()
        self.assertEqual(len(pids), 4)
        return job, pids

    def assert_undisturbed(self, job, pids):
        """Checks that the same rank processes trained until the end."""
        seen = self.rank_pids()
        if self.get(job)["state"] == "JOB_STATE_RUNNING":  # if the job still runs now, it also ran when the pids were read
            self.assertEqual(seen, pids)
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertEqual((page["generation"], page["restarts"]), ("1", 0))
        self.assertEqual(page["progress"]["stepsDone"], str(STEPS))
        return page

    def test_server_killed_and_restarted(self):
        job, pids = self.start()
        self.kill_daemon("server")
        time.sleep(0.5)
        self.assertEqual(self.rank_pids(), pids, "ranks train on without a server")
        for daemon in ("node0.agent", "node1.worker"):
            self.await_on_disk(lambda: self.page_status(daemon, "/readyz") == 503, f"{daemon} not ready")
            self.assertEqual(self.page_status(daemon, "/healthz"), 200, daemon)
        self.up()
        for daemon in ("node0.agent", "node1.worker"):
            self.await_on_disk(lambda: self.page_status(daemon, "/readyz") == 200, f"{daemon} ready again")
        page = self.assert_undisturbed(job, pids)
        self.assertIn("server-restarted", self.event_kinds(page))
        self.assertEqual(len(json.loads(self.ctl("list", "-o", "json").out)["jobs"]), 1)

    def test_agent_killed_and_restarted(self):
        job, pids = self.start()
        self.kill_daemon("node0.agent")
        time.sleep(0.5)
        self.up()
        self.assert_undisturbed(job, pids)

    def test_worker_daemon_killed_and_restarted(self):
        job, pids = self.start()
        self.kill_daemon("node1.worker")
        time.sleep(0.5)
        self.assertEqual(self.rank_pids(), pids, "ranks survive their daemon")
        self.up()
        self.assert_undisturbed(job, pids)

    def test_everything_but_the_ranks_killed_and_restarted(self):
        job, pids = self.start()
        for name in ("server", "node0.agent", "node0.worker", "node1.agent", "node1.worker"):
            self.kill_daemon(name)
        time.sleep(0.5)
        self.assertEqual(self.rank_pids(), pids)
        self.up()
        self.assert_undisturbed(job, pids)

    def test_rank_killed_restarts_from_its_checkpoint(self):
        # Both jobs have the same order of sums whatever was measured between their plans. It depends on the layers of each rank,
        # because the gradients' norm adds up the ranks, and on sequence parallelism.
        same_sums = {"pp": "2, partition: even, sequenceParallel: off, schedule: 1f1b"}
        undisturbed, _ = self.start(**same_sums)
        expected = self.await_state(undisturbed, "SUCCEEDED", timeout=300)
        job, pids = self.start(**same_sums)
        os.kill(pids[2], signal.SIGKILL)
        self.await_job(job, lambda p: int(p["generation"]) == 2, "a second generation")
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertEqual(page["restarts"], 1)
        kinds = self.event_kinds(page)
        self.assertIn("rank-lost", kinds)
        self.assertIn("restarting", kinds)
        reasons = " ".join(event["reason"] for event in page["events"])
        self.assertIn("signal 9", reasons)
        self.assertFalse(set(self.rank_pids()) & set(pids), "no survivor of the first generation hangs")
        # A resumed job continues exactly the same run: at the end it has the same bits as without the kill.
        self.assertEqual(page["progress"]["loss"], expected["progress"]["loss"])

    def test_rank_that_hangs_is_named_and_replaced(self):
        job, pids = self.start()
        placed = {rank["rank"]: rank["node"] for rank in self.get(job)["placement"]}
        hung = int(processes(self.directory)[pids[1]].split(".r")[1].split("/")[0])  # the path of JOB.gGENERATION.rRANK/config.json
        os.kill(pids[1], signal.SIGSTOP)
        # The server notices the stopped rank within seconds, whatever the rank was doing. (A live rank gets minutes if the
        # others wait for it while a checkpoint becomes visible.)
        page = self.await_job(job, lambda p: int(p["generation"]) == 2, "a second generation", timeout=120)
        lost = [event["reason"] for event in page["events"] if event["kind"] == "rank-lost"]
        self.assertEqual(len(lost), 1, lost)
        self.assertIn(f"rank {hung} on node {placed[hung]} neither went on nor ended when others gave up", lost[0])
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertEqual(page["restarts"], 1)
        self.assertFalse(set(self.rank_pids()) & set(pids), "a process that is stopped is ended too")

    def test_rank_killed_without_restarts_left_fails_with_the_reason(self):
        job, pids = self.start(max_restarts=0)
        os.kill(pids[0], signal.SIGKILL)
        page = self.await_state(job, "FAILED")
        self.assertIn("signal 9", page["reason"])
        self.assertEqual(self.rank_pids(), [])

    def test_job_submitted_before_the_server_is_killed_is_not_lost(self):
        job = self.submit(self.job_file(steps=5))
        self.kill_daemon("server")
        self.up()
        self.await_state(job, "SUCCEEDED")
