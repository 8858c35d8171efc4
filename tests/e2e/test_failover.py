"""Three servers on one PostgreSQL: the one that leads is killed, then the next one is stopped, while a job trains and people submit."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import postgres
from cluster import BIN, JOB
from servers import Servers

ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class Submitter(threading.Thread):
    """Submits jobs that wait, each with a key of its own, and repeats what was not acknowledged under the same key."""

    def __init__(self, servers, path):
        super().__init__(daemon=True)
        self.servers, self.path = servers, path
        self.ended = threading.Event()
        self.acknowledged, self.times, self.refusals = {}, [], []  # key -> id; (begun, acknowledged); errors

    def run(self):
        n = 0
        while not self.ended.is_set():
            begun = time.monotonic()
            result = self.servers.ctl("submit", "-f", self.path, "--set", "scheduling.hold=true", "--idempotency-key", f"key-{n}")
            if result.code == 0:
                self.times.append((begun, time.monotonic()))
                self.acknowledged[f"key-{n}"] = result.out.split()[1]
                n += 1
            else:
                self.refusals.append(result.err)

    def stop(self):
        self.ended.set()
        self.join()

    def first_after(self, moment):
        """Seconds from the moment to the acknowledgement of the first submission that was begun after it; None: there is none yet."""
        return next((done - moment for begun, done in list(self.times) if begun >= moment), None)


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class FailoverTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-failover-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.postgres = postgres.Postgres()
        self.addCleanup(self.postgres.clean_up)
        self.postgres.make_database()
        self.servers = Servers(self.folder, self.postgres)
        self.addCleanup(self.servers.end)
        self.servers.start()
        self.servers.await_servers()
        self.servers.await_attached()

    def job_file(self, name, **changes):
        corpus = self.folder / "corpus.txt"
        corpus.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        values = dict(name=name, data=corpus, steps=100000, ranks=4, memory="auto", tp=2, pp=2, recompute="auto", dtype="float32", every=0,
                      extra="", max_restarts=3)
        path = self.folder / f"{name}.yaml"
        path.write_text(JOB.format(**(values | changes)))
        return path

    def page(self, job):
        page = self.servers.until(lambda: self.servers.json("get", job, "--events"), f"an answer about {job}")
        self.assertNotIn(page["state"], ENDED, f"{page.get('reason')}\n{self.servers.logs()}")
        return page

    def steps(self, job):
        return int(self.page(job)["progress"]["stepsDone"])

    def await_steps(self, job, steps):
        return self.servers.until(lambda: self.steps(job) >= steps and self.steps(job), f"{steps} steps of {job}")

    def assert_taken_over(self, what, old, moment, job, ranks):
        """Waits until another server leads, submissions and nodes are there again, and the job has gone on untouched."""
        new = self.servers.leader()
        self.assertIsNot(new, old)
        submitted = self.servers.until(lambda: self.submitter.first_after(moment), f"a submission after: {what}")
        self.servers.await_attached()
        attached = time.monotonic() - moment
        self.await_steps(job, self.steps(job) + 20)
        self.assertEqual(self.servers.rank_pids(), ranks, f"{what}: they trained on\n{self.servers.logs()}")
        print(f"{what}: a submission that was begun afterwards was acknowledged {submitted:.2f} s after the loss, all nodes were attached "
              f"after {attached:.2f} s", flush=True)
        return new

    def test_submissions_and_training_outlive_the_leader(self):
        made = self.servers.ctl("submit", "-f", self.job_file("trains"), "-o", "json")
        self.assertEqual(made.code, 0, made)
        job = json.loads(made.out)["id"]
        self.await_steps(job, 5)
        ranks = self.servers.rank_pids()
        self.assertEqual(len(ranks), 4)
        self.submitter = Submitter(self.servers, self.job_file("waits"))
        self.submitter.start()
        self.addCleanup(self.submitter.stop)
        self.servers.until(lambda: len(self.submitter.times) >= 5, "submissions")
        with open(self.folder / "watch.log", "w") as log:
            watch = subprocess.Popen([str(BIN / "lynxctl"), "watch", job], env=self.servers.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(watch.kill)

        first = self.servers.leader()
        moment = time.monotonic()
        first.kill()
        second = self.assert_taken_over("leader killed", first, moment, job, ranks)
        self.servers.mend(first)

        moment = time.monotonic()
        second.stop()
        third = self.assert_taken_over("leader stopped", second, moment, job, ranks)
        self.servers.mend(second)
        self.assertTrue(third.leads(), "the old leader has not led again")

        done = self.steps(job)
        self.await_steps(job, done + 20)
        self.submitter.stop()
        stored = dict(line.split("|") for line in self.postgres.sql("SELECT idempotency_key, id FROM jobs WHERE idempotency_key LIKE 'key-%'").splitlines())
        acknowledged = self.submitter.acknowledged
        self.assertEqual(stored | acknowledged, stored, f"lost; refused meanwhile: {self.submitter.refusals}")
        self.assertLessEqual(len(stored), len(acknowledged) + 1, "only the last may be unanswered")
        self.assertEqual(int(self.postgres.sql("SELECT count(*) FROM jobs")), len(stored) + 1, "no key is there twice")
        page = self.page(job)
        self.assertEqual(int(page.get("restarts", 0)), 0)
        self.assertEqual(self.servers.rank_pids(), ranks)
        self.assertEqual(self.servers.ctl("cancel", job).code, 0)
        self.assertEqual(watch.wait(timeout=120), 1, "the watch went on at each new leader, and the job was cancelled")
        self.assertIn("CANCELLED", (self.folder / "watch.log").read_text())

    def test_people_are_told_who_leads(self):
        leader = self.servers.leader()
        others = [server for server in self.servers.all if server is not leader]
        alone = self.servers.ctl("--server", others[0].address, "--timeout", "2", "list")
        self.assertEqual(alone.code, 3, alone)
        self.assertIn(f"{others[0].address} stands by; the server at {leader.address} leads, which is not among the addresses given", alone.err)
        backwards = ",".join(server.address for server in [*others, leader])
        self.assertEqual(self.servers.ctl("--server", backwards, "list").code, 0)
        said = self.servers.ctl("doctor").out
        self.assertRegex(said, rf"(?m)^ok +server +{leader.address} leads")
        for other in others:
            self.assertRegex(said, rf"(?m)^ok +server +{other.address} stands by for {leader.address}")
        others[0].kill()
        self.assertRegex(self.servers.ctl("doctor").out, rf"(?m)^warning +server +{others[0].address} does not answer")


if __name__ == "__main__":
    unittest.main()
