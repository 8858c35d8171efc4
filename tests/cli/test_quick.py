"""Tests the fast path of 'lynxctl submit': it submits without the full program, and starts that program for what it cannot
handle."""

import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(os.environ["LYNX_BIN"])
NOBODY = pwd.getpwnam("nobody").pw_uid
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: quick
model: {layers: 4, hidden: 32, heads: 4, seq: 32, vocab: 256}
data: {kind: text, path: /data/text}
train: {steps: 20, globalBatch: 8, microBatch: 2}
resources: {ranks: 1}
scheduling: {hold: true}
"""
STAND_IN = """#!/bin/sh
for word in "$@"; do echo "$word"; done
"""


class QuickTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.job = self.folder / "job.yaml"
        self.job.write_text(JOB)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LYNX_")}
        self.env.update(HOME=str(self.folder), XDG_CONFIG_HOME="")

    def serve(self):
        """Starts a server for one test; returns its address."""
        process = subprocess.Popen([BIN / "lynx-server", "--listen", "127.0.0.1:0", "--metrics-address=", "--data-dir", self.folder / "data"],
                                   env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def stop():
            process.kill()
            process.wait()
        self.addCleanup(stop)
        address = self.folder / "data" / "server.address"
        while not address.exists() or not address.read_text().strip():
            self.assertIsNone(process.poll(), "the server has ended")
            time.sleep(0.02)
        return address.read_text().strip()

    def alone(self, stand_in=""):
        """lynxctl in a folder without the full program, or with one that prints its arguments."""
        folder = self.folder / "alone"
        folder.mkdir()
        shutil.copy(BIN / "lynxctl", folder)
        if stand_in:
            (folder / "lynx-verbs").write_text(stand_in)
            (folder / "lynx-verbs").chmod(0o755)
        return folder / "lynxctl"

    def run_ctl(self, program, *arguments, **more):
        return subprocess.run(["lynxctl", *map(str, arguments)], executable=str(program), env={**self.env, **more}, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL)

    def test_a_pipe_is_read_once(self):
        server = self.serve()
        # One address is a number, and the other one is a name, which the fast path does not resolve.
        for address in (server, server.replace("127.0.0.1", "localhost")):
            done = subprocess.run([str(BIN / "lynxctl"), "submit", "-f", "/dev/stdin", "--server", address], input=JOB, env=self.env,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"^job \w+ submitted")

    def test_a_cluster_file_of_somebody_else_is_not_believed(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives files to others")
        (self.folder / ".lynx" / "local").mkdir(parents=True)
        file = self.folder / ".lynx" / "local" / "cluster.json"
        file.write_text('{"serverAddress": "127.0.0.1:1", "daemons": []}')
        os.chown(file, NOBODY, NOBODY)
        status = self.run_ctl(BIN / "lynxctl", "local", "status")
        self.assertNotEqual(status.returncode, 0)
        self.assertIn(f"cluster.json belongs to another user ({NOBODY}); set LYNX_HOME", status.stderr)
        for words in (("list", "--timeout", "1"), ("submit", "-f", self.job)):
            called = self.run_ctl(BIN / "lynxctl", *words)
            self.assertEqual(called.returncode, 5, called)
            self.assertIn(f"cluster.json belongs to another user ({NOBODY})", called.stderr)

    def test_without_a_home_there_is_no_local_cluster(self):
        env = {name: value for name, value in self.env.items() if name not in ("HOME", "XDG_CONFIG_HOME")}
        for verb in ("up", "status", "down"):
            done = subprocess.run([str(BIN / "lynxctl"), "local", verb], env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("neither HOME nor LYNX_HOME says where it would be; set HOME or LYNX_HOME, or give --dir", done.stderr)
        called = subprocess.run([str(BIN / "lynxctl"), "list", "--timeout", "0.1"], env=env, capture_output=True, text=True, timeout=60,
                                stdin=subprocess.DEVNULL)
        self.assertIn("127.0.0.1:7470 (from the default)", called.stderr)

    def test_what_is_not_text_is_refused_with_its_field(self):
        done = subprocess.run([str(BIN / "lynxctl"), "submit", "-f", str(self.job), "--dry-run", "--set", b"data.path=/tmp/caf\xe9"], env=self.env,
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("data.path: '/tmp/caf\\xe9' is not UTF-8", done.stderr)
        folder = os.fsencode(self.folder) + b"/caf\xe9"
        os.mkdir(folder)
        pathlib.Path(os.fsdecode(folder), "job.yaml").write_text(JOB.replace("/data/text", "text"))
        done = subprocess.run([str(BIN / "lynxctl"), "submit", "-f", folder + b"/job.yaml"], env=self.env, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, errors="replace")
        self.assertEqual(done.returncode, 2, done)
        self.assertRegex(done.stderr, r"data\.path: '.*/caf\\xe9/text' is not UTF-8")

    def test_submits_by_itself(self):
        server = self.serve()
        ctl = self.alone()
        for arguments, more in ((("--server", server), {}), ((), {"LYNX_SERVER": server})):
            result = self.run_ctl(ctl, *arguments, "submit", "-f", self.job, "--set", "train.steps=30", **more)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)
            name = re.fullmatch(r"job ([0-9a-f]{12}) submitted; follow it with: lynxctl watch \1\n", result.stdout)
            self.assertIsNotNone(name, result)
            shown = self.run_ctl(BIN / "lynxctl", "--server", server, "get", name[1], "-o", "json")
            self.assertIn('"steps": "30"', shown.stdout)

    def test_tries_the_next_of_several_servers(self):
        server = self.serve()
        ctl = self.alone()
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        stopped = f"127.0.0.1:{silent.getsockname()[1]}"
        for servers in (f"127.0.0.1:1,{server}", f"{server},127.0.0.1:1", f"{stopped},127.0.0.1:1,{server}"):
            result = self.run_ctl(ctl, "submit", "-f", self.job, LYNX_SERVER=servers)
            self.assertEqual((result.returncode, result.stderr), (0, ""), result)

    def test_leaves_one_of_several_servers_that_hangs_with_the_call(self):
        server = self.serve()
        hangs = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(hangs.close)
        taken = []

        def speak():
            taken.append(hangs.accept()[0])
            taken[0].sendall(b"\0\0\0\4\0\0\0\0\0")  # the settings frame of HTTP/2, and no other frame
        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        result = self.run_ctl(self.alone(), "--timeout", "3", "submit", "-f", self.job, "--server", f"127.0.0.1:{hangs.getsockname()[1]},{server}")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        speaker.join(60)
        self.assertEqual(len(taken), 1, "the first one was called")
        taken[0].close()

    def test_finds_the_local_cluster(self):
        server = self.serve()
        local = self.folder / ".lynx" / "local"
        local.mkdir(parents=True)
        (local / "cluster.json").write_text('{"serverAddress": "%s", "daemons": []}' % server)
        self.assertEqual(self.run_ctl(self.alone(), "submit", "-f", self.job).returncode, 0)
        self.assertIn("submitted", self.run_ctl(BIN / "lynx-verbs", "submit", "-f", self.job).stdout)

    def test_a_key_makes_one_job(self):
        server = self.serve()
        ctl = self.alone()
        first = self.run_ctl(ctl, "submit", "-f", self.job, "--idempotency-key", "one", LYNX_SERVER=server).stdout
        again = self.run_ctl(ctl, "submit", "-f", self.job, "--idempotency-key", "one", LYNX_SERVER=server).stdout
        self.assertEqual(again, first.replace("submitted", "was submitted before with this key"))

    def test_says_what_the_program_of_all_verbs_says(self):
        server = self.serve()
        wrong = self.folder / "wrong.yaml"
        wrong.write_text(JOB.replace("layers", "layer"))
        self.run_ctl(BIN / "lynxctl", "submit", "-f", self.job, "--idempotency-key", "taken", "--server", server)
        closed = socket.socket()  # it is bound to a port, but does not listen
        self.addCleanup(closed.close)
        closed.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        for arguments in (["submit", "-f", wrong], ["submit", "-f", self.folder / "none.yaml"], ["submit"], ["submit", "-f", self.job, "--no"],
                          ["submit", "-f", self.job, "--set", "train.steps=x"], ["submit", "-f", self.job, "--server", nobody],
                          ["submit", "-f", self.job, "--server", "nowhere.invalid:1"], ["submit", "-f", self.job, "--ca-file", "none.pem"],
                          ["submit", "-f", self.job, "--idempotency-key", "taken", "--set", "train.steps=7"],
                          ["submit", "-f", self.job, "--idempotency-key", "taken"],
                          ["submit", "--help"], ["--version"], ["list", "-o", "json"], [], ["no-verb"]):
            with self.subTest(arguments=arguments):
                results = [self.run_ctl(BIN / program, *arguments, LYNX_SERVER=server) for program in ("lynxctl", "lynx-verbs")]
                texts = [(r.returncode, r.stdout, re.sub(r"type=A+", "", r.stderr)) for r in results]
                self.assertEqual(texts[0], texts[1])

    def test_leaves_what_it_does_not_do_as_it_was_given(self):
        ctl = self.alone(STAND_IN)
        for arguments in (["list"], [], ["submit", "-f", "a.yaml", "b.yaml"], ["submit", "-f", str(self.job), "-o", "json"],
                          ["submit", "-f", "none.yaml"]):
            self.assertEqual(self.run_ctl(ctl, *arguments).stdout.split("\n")[:-1], arguments)

    def test_leaves_calls_over_tls(self):
        ctl = self.alone(STAND_IN)
        words = ["submit", "-f", str(self.job)]
        for more in ({"LYNX_CONTEXT": "c.json"}, {"LYNX_CA_FILE": "ca.pem"}, {"LYNX_TOKEN_FILE": "token"}):
            self.assertEqual(self.run_ctl(ctl, *words, **more).stdout.split("\n")[:-1], words)
        standing = self.folder / ".config" / "lynx" / "context.json"
        standing.parent.mkdir(parents=True)
        standing.write_text("{}")
        self.assertEqual(self.run_ctl(ctl, *words).stdout.split("\n")[:-1], words)

    def test_asks_again_with_the_same_key_and_the_patience_that_is_left(self):
        ctl = self.alone(STAND_IN)
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        words = self.run_ctl(ctl, "--server", server, "--timeout", "0.4", "submit", "-f", self.job, "--set", "train.steps=9").stdout.split("\n")
        self.assertEqual(words[:2], ["submit", f"--file={self.job}"])
        self.assertRegex(words[2], r"^--idempotency-key=cli-[0-9a-f]{32}$")
        self.assertEqual(words[3:6], ["--timeout=0.1", "--set=train.steps=9", f"--server={server}"])
        words = self.run_ctl(ctl, "--timeout", "0.2", "submit", "-f", self.job, "--idempotency-key", "mine", LYNX_SERVER=server).stdout
        self.assertIn("\n--idempotency-key=mine\n", words)

    def test_says_what_is_missing(self):
        ctl = self.alone()
        result = self.run_ctl(ctl, "list")
        self.assertEqual(result.returncode, 5)
        self.assertRegex(result.stderr, r"^lynxctl: cannot begin .*/alone/lynx-verbs, which belongs beside it: No such file")

    def test_output_that_cannot_be_written(self):
        server = self.serve()
        with open("/dev/full", "w") as full:
            result = subprocess.run([self.alone(), "--server", server, "submit", "-f", self.job], env=self.env, stdout=full,
                                    stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 5)
        self.assertIn("could not be written whole: No space left on device", result.stderr)


if __name__ == "__main__":
    unittest.main()
