"""Tests a cluster whose server keeps its state in PostgreSQL. The server and PostgreSQL are killed under load."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import postgres
from cluster import BIN, PROGRAMS, ClusterTest, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))

from pages import commands_of, lines_of

# Replaces lynx-server: adds the flag that `lynxctl local up` does not have.
SERVER = """#!/bin/sh
exec {server} "$@" --store '{url}'
"""


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class PostgresTest(ClusterTest):
    def up(self):
        self.postgres = postgres.Postgres()
        self.addCleanup(self.postgres.clean_up)
        self.postgres.make_database()
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
        # The next server waits until the lease of the killed one has run out; the job must still train then.
        job = self.submit(self.job_file(steps=2000, every=250))
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
        """Submits jobs, each with a key of its own, and repeats what was not acknowledged."""
        n = 0
        while not stop.is_set():
            result = self.ctl("submit", "-f", self.path, "--idempotency-key", f"key-{n}", "-o", "json")
            if result.code == 0:
                acknowledged[f"key-{n}"] = json.loads(result.out)["id"]
                n += 1
            else:
                self.refusals.append(result.err)

    def test_restarts_of_postgresql_lose_and_double_nothing(self):
        for node in ("node0", "node1"):  # cordoned nodes get no ranks, so the jobs wait
            self.assertEqual(self.ctl("node", "cordon", node, "--reason", "test").code, 0)
        self.path = self.job_file()
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
            self.assertRegex(refusal, "cannot write to the database postgresql://lynx@/lynx|this server (stands by|stopped leading)")

    def test_a_second_server_stands_by(self):
        other = self.directory / "other"
        with open(self.directory / "other.log", "w") as log:
            second = subprocess.Popen([BIN / "lynx-server", "--listen", "127.0.0.1:0", "--metrics-address", "", "--page-address", "",
                                       "--data-dir", other, "--store", self.postgres.url()], stderr=log)
        self.addCleanup(second.wait)
        self.addCleanup(second.kill)
        self.await_on_disk(lambda: (other / "server.address").exists(), "the second server")
        address = (other / "server.address").read_text().strip()
        first = json.loads((self.home / "cluster.json").read_text())["serverAddress"]
        result = self.ctl("--server", address, "--timeout", 2, "list")
        self.assertEqual(result.code, 3, result)
        self.assertIn(f"{address} stands by; the server at {first} leads", result.err)
        self.assertEqual(self.ctl("--server", f"{address},{first}", "list").code, 0)

    def test_a_store_in_use_is_not_moved(self):
        other = self.directory / "other"
        other.mkdir()
        moved = subprocess.run([BIN / "lynx-server", "--data-dir", other, "--store", self.postgres.url(), "--move-store",
                                f"sqlite:{other}/copy.db"], capture_output=True, text=True, timeout=60)
        self.assertEqual(moved.returncode, 1, moved)
        self.assertIn(f"in use by another lynx-server (process {self.daemon('server')['pid']} on host ", moved.stderr)


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class PageTest(unittest.TestCase):
    """Runs the commands of the page about operating: set up, move there and back, back up and restore."""

    JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: NAME
model: {layers: 2, hidden: 32, heads: 2, seq: 16, vocab: 256}
data: {kind: text, path: /data/text}
train: {steps: 2, globalBatch: 2}
resources: {ranks: 1}
"""

    def setUp(self):
        self.postgres = postgres.Postgres()
        self.addCleanup(self.postgres.clean_up)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-"))
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.directory.chmod(0o777)
        (self.directory / "backup").mkdir(mode=0o777)
        self.data = self.directory / "server"
        texts = [text for blocks in commands_of("e2e.postgres").values() for text in blocks]
        self.commands = [line for text in texts for line in lines_of(text)]

    def command(self, *words, last=""):
        """The only command of the page that has all these words and ends with `last`, for this machine."""
        found = [line for line in self.commands if set(words) <= set(line.split()) and line.endswith(last)]
        self.assertEqual(len(found), 1, f"{words} in {self.commands}")
        self.commands.remove(found[0])
        line = found[0].replace("/srv/lynx/server", str(self.data)).replace("/backup", str(self.directory / "backup"))
        for database in ("lynx", "restored"):
            line = line.replace(f"postgresql://lynx@db/{database}", self.postgres.url(database))
        program, *arguments = line.split()
        folder = BIN if program.startswith("lynx") else postgres.binaries()
        return [str(folder / program), *arguments]

    def run_command(self, *words, last=""):
        result = subprocess.run(self.command(*words, last=last), capture_output=True, text=True, timeout=120, cwd="/",
                                env=self.postgres.environment())
        self.assertEqual(result.returncode, 0, result)
        return result.stdout

    @contextlib.contextmanager
    def server(self, command=None, store=""):
        command = command or [str(BIN / "lynx-server"), "--data-dir", str(self.data), "--store", store]
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--metrics-address", "", "--page-address", ""],
                                   stderr=subprocess.PIPE, text=True)
        try:
            address = self.data / "server.address"
            while not address.exists():
                self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
                time.sleep(0.05)
            # The lease may be in the backup that the database was restored from; then the server stands by until it has run out.
            while run("--server", address.read_text().strip(), "list").code != 0:
                self.assertIsNone(process.poll())
            yield address.read_text().strip()
        finally:
            process.terminate()
            self.said = process.communicate(timeout=60)[1]

    def submit(self, server, name):
        path = self.directory / f"{name}.yaml"
        path.write_text(self.JOB.replace("NAME", name))
        result = run("--server", server, "submit", "-f", path, "-o", "json")
        self.assertEqual(result.code, 0, result)

    def names(self, server):
        result = run("--server", server, "list", "-o", "json")
        self.assertEqual(result.code, 0, result)
        return sorted(job["spec"]["name"] for job in json.loads(result.out)["jobs"])

    def test_every_command(self):
        self.run_command("createuser")
        self.run_command("createdb", "C", last="lynx")
        with self.server() as server:
            self.submit(server, "first")
        with self.server(store=f"sqlite:{self.data}/other.db") as server:
            self.assertEqual(self.names(server), [])
        self.assertIn(f"{self.data}/other.db is new and knows no jobs; those in {self.data}/lynx.db are not used", self.said)
        moved = self.run_command("--move-store", last="postgresql://lynx@db/lynx")
        self.assertRegex(moved, r"(?m)^jobs +1 rows  [0-9a-f]{64}$")
        self.assertIn("start lynx-server with --store postgresql://lynx@/lynx", moved)
        with self.server(self.command("lynx-server", "--store", last="--store postgresql://lynx@db/lynx")) as server:
            self.assertEqual(self.names(server), ["first"])
            self.submit(server, "second")
            self.run_command("pg_dump")  # the server runs during the dump
            self.submit(server, "third")
        self.run_command("createdb", "C", last="restored")
        self.run_command("pg_restore")
        with self.server(store=self.postgres.url("restored")) as server:
            self.assertEqual(self.names(server), ["first", "second"])
            self.submit(server, "fourth")
        self.run_command("--move-store", last="sqlite:/srv/lynx/server/back.db")
        with self.server(store=f"sqlite:{self.data}/back.db") as server:
            self.assertEqual(self.names(server), ["first", "second", "third"])
        self.assertEqual(self.commands, [])


if __name__ == "__main__":
    unittest.main()
