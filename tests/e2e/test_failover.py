"""Tests several servers on one PostgreSQL while a job trains and people submit. The server that leads is killed, then the next
one is stopped. In another test PostgreSQL itself is killed, and its standby is promoted."""

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
    """Submits jobs on hold, each with its own idempotency key. Without an acknowledgement, repeats it with its key."""

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


class ServersTest(unittest.TestCase):
    """Servers on the PostgreSQL that `start` is given, with a job that trains and people who submit."""

    def start(self, database, count, programs=BIN):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-failover-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.postgres = database
        self.addCleanup(self.postgres.clean_up)
        self.servers = Servers(self.folder, self.postgres, servers=count, programs=programs)
        self.addCleanup(self.servers.end)
        self.servers.start()
        self.servers.await_servers()
        self.servers.await_attached()

    def begin(self):
        """Starts a job that trains for long, and people who submit. Returns the job and its ranks."""
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
        return job, ranks

    def assert_nothing_lost(self, job, ranks):
        """Stops the people, and compares what was acknowledged with the database."""
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


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class FailoverTest(ServersTest):
    def setUp(self):
        database = postgres.Postgres()
        database.make_database()
        self.start(database, 3)

    def test_submissions_and_training_outlive_the_leader(self):
        job, ranks = self.begin()
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

        self.assert_nothing_lost(job, ranks)
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
        self.servers.until(lambda: len(self.servers.json("admin", "servers")["servers"]) == 3, "all servers in the list")
        listed = {server["address"]: server for server in self.servers.json("admin", "servers")["servers"]}
        self.assertEqual({address: server["role"] for address, server in listed.items()},
                         {leader.address: "SERVER_ROLE_LEADS"} | {other.address: "SERVER_ROLE_STANDS_BY" for other in others})
        self.assertRegex(self.servers.ctl("admin", "servers").out, rf"(?m)^{leader.address} +leads +{listed[leader.address]['epoch']} ")
        self.assertEqual(self.servers.ctl("admin", "servers", "-o", "name").out.split(), sorted(listed))
        self.assertIn(f'address: "{leader.address}"', self.servers.ctl("admin", "servers", "-o", "yaml").out)
        self.assertEqual(len(self.servers.ctl("admin", "servers", "-o", "csv").out.splitlines()), 4)
        others[0].kill()
        self.assertRegex(self.servers.ctl("doctor").out, rf"(?m)^warning +server +{others[0].address} does not answer")

    def test_commands_remember_who_leads(self):
        leader = self.servers.leader()
        others = [server for server in self.servers.all if server is not leader]
        addresses = ",".join(server.address for server in [*others, leader])
        leaders = self.folder / "config" / "lynx" / "leaders"
        for remembered in (leader.address, others[1].address, "head9:7470", "no answer there"):
            with self.subTest(remembered):
                leaders.parent.mkdir(parents=True, exist_ok=True)
                leaders.write_text(f"{addresses} {remembered}\n")
                self.assertEqual(self.servers.ctl("--server", addresses, "list").code, 0)
                self.assertEqual(leaders.read_text().splitlines()[0], f"{addresses} {leader.address}")
                leaders.write_text(f"{addresses} {remembered}\n")
                self.assertEqual(self.servers.ctl("--server", addresses, "submit", "-f", self.job_file("waits"), "--set", "scheduling.hold=true").code, 0)
                self.assertEqual(leaders.read_text().splitlines()[0], f"{addresses} {leader.address}", "so does the short way to submit")

    def test_a_server_with_another_policy_does_not_stand_by(self):
        leader = self.servers.leader()
        other = next(server for server in self.servers.all if server is not leader)
        other.kill()
        other.flags += ["--encrypt-ranks", "on"]
        other.start()
        self.assertEqual(other.process.wait(timeout=120), 1)
        self.assertIn(f"--encrypt-ranks is on here, and off on the server at {leader.address} that leads", other.log())
        told = f"{other.address}: --encrypt-ranks is on there, and off on the server that leads"
        self.servers.until(lambda: told in self.servers.ctl("admin", "servers").out, told)


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class PromotionTest(ServersTest):
    def test_submissions_and_training_outlive_the_primary(self):
        self.start(postgres.PrimaryAndStandby(), 2)
        job, ranks = self.begin()
        moment = self.postgres.lose_primary()
        promoted = time.monotonic() - moment
        submitted = self.servers.until(lambda: self.submitter.first_after(moment), "a submission on the new primary")
        self.servers.await_attached()
        attached = time.monotonic() - moment
        # The servers that found no primary in time have ended; the ones that a service manager would start stand by.
        for server in self.servers.all:
            if not server.runs():
                self.servers.mend(server)
        self.await_steps(job, self.steps(job) + 20)
        self.assert_nothing_lost(job, ranks)
        print(f"standby promoted after {promoted:.2f} s: submission {submitted:.2f} s, nodes {attached:.2f} s")
        self.assertEqual(self.servers.ctl("cancel", job).code, 0)


if __name__ == "__main__":
    unittest.main()
