"""A cluster whose server keeps its state in PostgreSQL: the server and PostgreSQL are killed under load."""

import json
import os
import shutil
import subprocess
import threading
import unittest

import postgres
from cluster import BIN, PROGRAMS, ClusterTest

# Replaces lynx-server: adds the flag that `lynxctl local up` does not have.
SERVER = """#!/bin/sh
exec {server} "$@" --store '{url}'
"""


@unittest.skipIf(postgres.binaries() is None, "PostgreSQL is not installed (postgresql-15): scripts/install.sh --tests installs it")
class PostgresTest(ClusterTest):
    def up(self):
        self.postgres = postgres.Postgres()
        self.addCleanup(self.postgres.clean_up)
        self.binaries = self.directory / "bin"
        self.binaries.mkdir()
        for name in PROGRAMS:
            shutil.copy2(BIN / name, self.binaries)
        (self.binaries / "lynx-rank").symlink_to(BIN / "lynx-rank")
        (self.binaries / "lynx-opt").symlink_to(BIN / "lynx-opt")
        server = self.binaries / "lynx-server"
        server.unlink()
        server.write_text(SERVER.format(server=BIN / "lynx-server", url=self.postgres.url()))
        os.chmod(server, 0o755)
        super().up()

    def server_log(self):
        return (self.home / "logs" / "server.log").read_text()

    def jobs_in_database(self):
        return int(self.postgres.sql("SELECT count(*) FROM jobs"))

    def test_a_job_outlives_a_kill_of_the_server(self):
        self.assertIn(f"keeps its state in the database {self.postgres.url()}", self.server_log())
        self.assertIn("has fsync=off", self.server_log())
        self.assertFalse((self.home / "server" / "lynx.db").exists())
        job = self.submit(self.job_file(steps=400, every=50))
        self.await_steps(job, 20)
        ranks = self.rank_pids()
        self.kill_daemon("server")
        self.assertEqual(self.ctl("local", "up", timeout=120).code, 0, self.daemon_logs())
        page = self.await_steps(job, 60)
        self.assertEqual(page["restarts"] if "restarts" in page else 0, 0)
        self.assertEqual(self.rank_pids(), ranks, "they trained on")
        page = self.await_state(job, "SUCCEEDED")
        self.assertIn("server-restarted", self.event_kinds(page))
        self.assertEqual(self.jobs_in_database(), 1)

    def submit_until(self, stop, acknowledged):
        """Submits held jobs, each with a key of its own, and repeats what was not acknowledged."""
        n = 0
        while not stop.is_set():
            result = self.ctl("submit", "-f", self.path, "--idempotency-key", f"key-{n}", "-o", "json")
            if result.code == 0:
                acknowledged[f"key-{n}"] = json.loads(result.out)["id"]
                n += 1
            else:
                self.refusals.append(result.err)

    def test_restarts_of_postgresql_lose_and_double_nothing(self):
        self.path = self.job_file(ranks=64, tp=8, pp=8)  # more ranks than there are devices: the jobs wait
        self.refusals = []
        acknowledged = {}
        stop = threading.Event()
        submitter = threading.Thread(target=self.submit_until, args=(stop, acknowledged))
        submitter.start()
        try:
            for restart in range(4):
                self.await_on_disk(lambda: len(acknowledged) >= 5 * (restart + 1), "submissions")
                self.postgres.control("restart", "-m", "immediate")
            self.await_on_disk(lambda: len(acknowledged) >= 25, "submissions after the last restart")
        finally:
            stop.set()
            submitter.join()
        stored = dict(line.split("|") for line in self.postgres.sql("SELECT idempotency_key, id FROM jobs").splitlines())
        self.assertEqual(stored | acknowledged, stored, f"refused meanwhile: {self.refusals}")
        self.assertEqual(len(stored), self.jobs_in_database(), "no key is there twice")
        self.assertLessEqual(len(stored), len(acknowledged) + 1, "only the last may be unanswered")
        for refusal in self.refusals:
            self.assertRegex(refusal, "cannot write to the database postgresql://lynx@/lynx")

    def test_a_second_server_is_refused(self):
        other = self.directory / "other"
        second = subprocess.run([BIN / "lynx-server", "--listen", "127.0.0.1:0", "--metrics-address", "", "--data-dir", other, "--store",
                                 self.postgres.url()], capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, 1, second)
        self.assertIn(f"in use by another lynx-server (process {self.daemon('server')['pid']} on host ", second.stderr)


if __name__ == "__main__":
    unittest.main()
