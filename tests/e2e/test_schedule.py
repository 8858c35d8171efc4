"""Tests with real daemons and ranks which job runs when: jobs give way, are held, or wait for other jobs; nodes are drained."""

import subprocess
import threading

from cluster import ClusterTest


class ScheduleTest(ClusterTest):
    devices = 1

    def start(self, name, *arguments, ranks=2, steps=100_000):
        path = self.job_file(name=name, steps=steps, every=500, ranks=ranks, tp="auto", pp="auto")
        return self.submit(path, *arguments)

    def checkpoint_before(self, page, kind):
        """The step of the newest checkpoint before the newest event of that kind."""
        kinds = self.event_kinds(page)
        before = page["events"][:len(kinds) - 1 - kinds[::-1].index(kind)]
        return max(int(e["reason"].split(":")[0].split()[1]) for e in before if e["kind"] == "checkpoint")

    def assert_goes_on(self, job, kind, generation):
        """The job continues from a checkpoint of the step in which its ranks gave way."""
        page = self.await_job(job, lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) == generation,
                              f"generation {generation} runs")
        running = [e["reason"] for e in page["events"] if e["kind"] == "running"][-1]
        self.assertEqual(running, f"all ranks run, from the checkpoint of step {self.checkpoint_before(page, kind)}")
        self.assertEqual(page["restarts"], 0)

    def test_makes_room_for_a_higher_priority_and_goes_on(self):
        low = self.start("low")
        self.await_steps(low, 50)
        behind = self.start("behind", steps=10)
        self.assertIn("waits for 2 devices; of 2 devices 0 are free", self.ctl("get", behind).out)
        high = self.start("high", "--set", "scheduling.priority=10", steps=20)
        page = self.await_state(high, "SUCCEEDED")
        self.assertEqual(int(page["progress"]["stepsDone"]), 20)
        self.assert_goes_on(low, "preempted", 2)
        page = self.get(low)
        self.assertEqual(page["preemptions"], 1)
        self.assertIn("gave way 1 time", self.ctl("get", low).out)

    def test_who_waits_for_a_job_is_told_why_it_waits(self):
        """The job that another job waits for fits on no node, so it never begins. An event says only that it waits for its
        turn."""
        job = self.job_file(name="never", ranks=2, tp=2, pp=1)
        with subprocess.Popen([str(self.binaries / "lynxctl"), "submit", "-f", str(job), "--wait"], env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as waits:
            watchdog = threading.Timer(120, waits.kill)
            watchdog.start()
            self.addCleanup(watchdog.cancel)
            lines = [waits.stdout.readline() for _ in range(3)]
            job = lines[0].split()[1]
            reason = self.get(job)["reason"]
            self.assertIn("waits for 2 devices with its tensor-parallel groups inside nodes; of 2 devices 2 are free", reason)
            self.assertEqual(lines[1:], ["QUEUED     waits for its turn\n", f"QUEUED     {reason}\n"])
            self.assertEqual(self.ctl("cancel", job).code, 0)
            rest = waits.stdout.read()
            self.assertEqual(waits.wait(), 1, rest)
        self.assertNotIn("QUEUED", rest.partition("CANCELLED")[0], "no line is repeated")

    def test_held_and_released(self):
        job = self.start("job")
        self.await_steps(job, 20)
        result = self.ctl("hold", job, "--reason", "wrong data")
        self.assertEqual(result.code, 0, result)
        self.assertIn("gives way with a checkpoint", result.out)
        page = self.await_state(job, "QUEUED")
        self.assertTrue(page["held"])
        self.assertEqual([reason["kind"] for reason in page["pending"]], ["held"])
        self.assertEqual(self.rank_pids(), [])
        self.assertEqual(self.ctl("release", job).code, 0)
        self.assert_goes_on(job, "held", 2)

    def test_after_another(self):
        first = self.start("first", "--set", "scheduling.hold=true", steps=30)
        second = self.start("second", "--set", "scheduling.after=first", steps=5)
        self.assertEqual(self.get(second)["waitsFor"], [first])
        self.assertEqual(self.ctl("release", first).code, 0)
        page = self.await_state(second, "SUCCEEDED")
        self.assertLessEqual(int(self.get(first)["endedUnixNs"]), int(page["startedUnixNs"]))

    def test_drained_node(self):
        job = self.start("job", ranks=1)
        page = self.await_steps(job, 20)
        node = page["placement"][0]["node"]
        result = self.ctl("node", "drain", node, "--reason", "new fans", "--grace", "10min")
        self.assertEqual(result.code, 0, result)
        self.assertIn("1 job leaves it", result.out)
        self.assert_goes_on(job, "moving", 2)
        self.assertNotEqual(self.get(job)["placement"][0]["node"], node)
        nodes = self.ctl("nodes").out
        self.assertIn("ready,drained", nodes)
        self.assertIn("drained: new fans", nodes)
        self.kill_daemon("server")
        self.up()
        self.assertIn("ready,drained", self.ctl("nodes").out, "it outlives the server")
        self.assertEqual(self.ctl("node", "uncordon", node).code, 0)
        self.assertNotIn("drained", self.ctl("nodes").out)

    def test_time_limit(self):
        job = self.start("job", "--set", "scheduling.timeLimit=3s")
        page = self.await_state(job, "FAILED")
        self.assertIn("its time limit of 3.00 s is over; its newest checkpoint, of step", page["reason"])
        step = page["reason"].split("of step ")[1].split(",")[0]
        again = self.start("again", "--set", f"checkpoint.from={page['checkpointPath']}", steps=int(step) + 5)
        self.await_state(again, "SUCCEEDED")

    def test_bad_input(self):
        for arguments, text in [
            (("hold", "nobody"), 'no job has the id or name "nobody"'),
            (("node", "cordon", "a b"), "node is"),
            (("node", "drain", "n0", "--grace", "soon"), "--grace: expected a duration"),
            (("queue", "set", "Big"), "queue.name is"),
            (("queue", "set", "big", "--no-borrowing"), "queue.noBorrowing is true: is for a queue with a quota"),
            (("queue", "set", "big", "--weight", "0"), "--weight"),
        ]:
            result = self.ctl(*arguments)
            self.assertNotEqual(result.code, 0, result)
            self.assertIn(text, result.err, arguments)
        self.assertEqual(self.ctl("queue", "set", "big", "--weight", "3", "--quota", "4").code, 0)
        self.assertIn("big      3       4", self.ctl("queue", "list").out)
