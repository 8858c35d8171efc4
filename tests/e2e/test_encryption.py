"""Tests a cluster whose operator wants ranks to encrypt their connections: what people see, and that a job has the same losses
as on a cluster without encryption."""

import csv
import shutil
import subprocess
import unittest

import cluster
from cluster import PROGRAMS, ClusterTest


class EncryptionTest(ClusterTest):
    devices = 1

    def up(self):
        # `lynxctl local up` has no option for this policy, so its lynx-server is a script that adds the policy in this file.
        self.policy = self.directory / "policy"
        self.policy.write_text("on")
        self.binaries = self.directory / "bin"
        self.binaries.mkdir()
        for program in cluster.BIN.iterdir():
            if program.name in (*PROGRAMS, "lynx-rank", "lynx-opt"):
                shutil.copy(program, self.binaries / program.name)
        server = self.binaries / "lynx-server"
        server.rename(self.binaries / "real-lynx-server")
        server.write_text(f'#!/bin/sh\nexec {self.binaries}/real-lynx-server --encrypt-ranks "$(cat {self.policy})" "$@"\n')
        server.chmod(0o755)
        super().up()

    def trained(self):
        """Trains a job of two ranks on two nodes. Returns its id, and why it says that it runs."""
        job = self.submit(self.job_file(steps=20, ranks=2, tp=1, pp=2, extra=", copyEverySteps: 1"))
        page = self.await_state(job, "SUCCEEDED")
        return job, [event["reason"] for event in page["events"] if event["kind"] == "running"]

    def losses(self, job):
        path = self.home / "server" / "jobs" / job / "checkpoints" / f"metrics-{job}" / "metrics.csv"
        with open(path, newline="") as file:
            return [row["loss"] for row in csv.DictReader(file)]

    def test_ranks_on_two_nodes_train_over_encrypted_connections(self):
        encrypted, running = self.trained()
        self.assertEqual(running, ["all ranks run, from initial weights; their connections are encrypted"])
        self.assertIn("their connections are encrypted", self.ctl("get", encrypted, "--events").out)
        self.assertNotIn("cannot encrypt", self.ctl("nodes", "node0").out)

        self.assertEqual(self.ctl("local", "down").code, 0)
        self.policy.write_text("off")
        super().up()
        plain, running = self.trained()
        self.assertEqual(running, ["all ranks run, from initial weights"])
        losses = self.losses(encrypted)
        self.assertEqual(len(losses), 20)
        self.assertEqual(self.losses(plain), losses)

    def test_the_server_refuses_what_it_does_not_understand(self):
        def refusal(*options):
            server = subprocess.run([cluster.BIN / "lynx-server", "--data-dir", self.directory / "none", *options],
                                    capture_output=True, text=True, timeout=60)
            self.assertEqual(server.returncode, 2, server)
            return server.stderr

        self.assertIn("--encrypt-ranks 'maybe' is not off, on or except-nccl", refusal("--encrypt-ranks", "maybe"))
        self.assertIn("--encrypt-ranks needs TLS",
                      refusal("--encrypt-ranks", "on", "--insecure", "--listen", "0.0.0.0:0"))


if __name__ == "__main__":
    unittest.main()
