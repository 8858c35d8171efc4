"""Tests the messages that people get about wrong job files and data."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
import unittest

from cluster import BIN, ClusterTest, run

ROOT = pathlib.Path(__file__).resolve().parents[2]


class WithoutServerTest(unittest.TestCase):
    def test_absent_server_fails_within_its_deadline_and_says_where_it_looked(self):
        begin = time.monotonic()
        result = run("list", "--server", "127.0.0.1:1", "--timeout", 2)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(result.code, 3, result)
        self.assertIn("127.0.0.1:1 (from --server)", result.err)
        self.assertIn("lynxctl local up", result.err)

    def test_unknown_verb_and_option(self):
        for arguments in (["frobnicate"], ["list", "--frobnicate"], []):
            result = run(*arguments)
            self.assertEqual(result.code, 2, result)
            self.assertNotEqual(result.err + result.out, "")

    def test_missing_job_file(self):
        result = run("plan", "-f", "/nonexistent.yaml")
        self.assertEqual(result.code, 4, result)
        self.assertIn("/nonexistent.yaml", result.err)

    def test_port_in_use(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            server = subprocess.run([str(BIN / "lynx-server"), f"--listen=127.0.0.1:{port}", f"--data-dir=/tmp/lynx-e2e-port-{os.getpid()}",
                                     "--metrics-address="], capture_output=True, text=True, timeout=30)
        shutil.rmtree(f"/tmp/lynx-e2e-port-{os.getpid()}", ignore_errors=True)
        self.assertNotEqual(server.returncode, 0)
        self.assertIn(f"127.0.0.1:{port}", server.stderr)
        self.assertIn("--listen", server.stderr)


class BadJobTest(ClusterTest):
    def refused(self, path, code, *words):
        result = self.ctl("submit", "-f", path)
        self.assertEqual(result.code, code, result)
        for word in words:
            self.assertIn(word, result.err)

    def failed(self, path, *words):
        job = self.submit(path)
        page = self.await_state(job, "FAILED")
        for word in words:
            self.assertIn(word, page["reason"])
        result = self.ctl("watch", job)
        self.assertEqual(result.code, 1, result)
        return page

    def test_job_file_errors(self):
        path = self.job_file()
        path.write_text(path.read_text().replace("globalBatch", "globalBach"))
        self.refused(path, 2, "did you mean 'globalBatch'", f"{path}:8:3")
        path.write_text("model: [")
        self.refused(path, 2, "not valid YAML")
        self.refused(self.job_file(tp=3, ranks=6, pp=2), 2, "model.heads", "3")

    def test_unknown_job(self):
        for verb in ("get", "watch", "cancel", "logs"):
            result = self.ctl(verb, "no-such-job")
            self.assertEqual(result.code, 4, result)
            self.assertIn("no-such-job", result.err)

    def test_more_ranks_than_devices(self):
        path = self.job_file(ranks=8, pp=4)
        job = self.submit(path)  # more nodes may attach, so the job waits and says what it waits for
        page = self.await_job(job, lambda p: "waits for 8 devices, but the attached nodes have 4" in p["reason"], "a reason")
        self.assertEqual(page["state"], "JOB_STATE_QUEUED")
        offline = run("plan", "-f", path, "--nodes", 2, "--devices-per-node", 2)
        self.assertEqual(offline.code, 2, offline)
        self.assertIn("8", offline.err)
        self.assertIn("4 devices", offline.err)

    def test_infeasible_says_by_how_much_and_what_would_fit(self):
        path = self.job_file(memory="48KiB")
        page = self.failed(path, "stage", "KiB")
        offline = run("plan", "-f", path, "--devices-per-node", 2)
        self.assertEqual(offline.code, 1, offline)
        self.assertIn("cannot fit", offline.err)
        # The job fits after the change that the message names.
        change = re.search(r"resources\.activationMemoryPerRank: (\S+)", offline.err)
        self.assertIsNotNone(change, offline.err)
        path.write_text(path.read_text().replace("48KiB", change.group(1)))
        self.assertEqual(run("plan", "-f", path, "--devices-per-node", 2).code, 0)
        self.assertIn("activationMemoryPerRank", json.dumps(page))

    def test_missing_data_file(self):
        page = self.failed(self.job_file(data="/nonexistent/corpus.txt"), "/nonexistent/corpus.txt")
        self.assertEqual(self.event_kinds(page).count("restarting"), 0, "trying again would not mend it")

    def test_empty_data_file(self):
        empty = self.directory / "empty.txt"
        empty.write_text("")
        self.failed(self.job_file(data=empty), str(empty))

    def test_token_beyond_the_vocabulary(self):
        """The ranks reach the token only after some steps. The job fails without a restart, because a restart would reach it again."""
        tokens = list(self.corpus.read_bytes())
        middle = len(tokens) // 2
        tokens[middle] = 300
        ids, prefix = self.directory / "ids.txt", self.directory / "bad"
        ids.write_text(" ".join(map(str, tokens)) + "\n")
        subprocess.run([str(ROOT / "scripts" / "prepare_tokens.py"), "--ids", "--out", str(prefix), str(ids)], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        path = self.job_file(data=prefix, steps=4000)
        path.write_text(path.read_text().replace("kind: text", "kind: megatron"))
        page = self.failed(path, f"{prefix}.bin: token 300 at position {middle} is outside the vocabulary of 256", "step ", "no restart helps")
        self.assertEqual(self.event_kinds(page).count("restarting"), 0, "trying again would not mend it")
        self.assertGreater(int(page["progress"]["stepsDone"]), 0)


class DamagedDatabaseTest(ClusterTest):
    def test_server_refuses_to_start_and_says_what_to_do(self):
        self.ctl("local", "down")
        databases = [p for p in (self.home / "server").iterdir() if p.suffix in (".db", ".sqlite", ".sqlite3")]
        self.assertEqual(len(databases), 1, list((self.home / "server").iterdir()))
        databases[0].write_bytes(b"this is no database" * 500)
        result = self.ctl("local", "up", timeout=120)
        self.assertEqual(result.code, 3, result)
        self.assertIn(databases[0].name, result.err)
        self.assertIn("server ended while starting", result.err)
