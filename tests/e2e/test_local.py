"""The local cluster itself: its shape, and that it is stopped as a whole whatever happens."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request

from cluster import BIN, ClusterTest, processes


class ShapeTest(ClusterTest):
    nodes = 1
    devices = 1

    def test_up_mends_a_cluster_of_any_shape_and_refuses_another(self):
        self.kill_daemon("node0.agent")
        mended = self.ctl("local", "up", timeout=120)  # one node of one device: not what a new cluster has
        self.assertEqual(mended.code, 0, mended)
        self.assertIn("1 nodes", mended.out)
        self.assertEqual(self.ctl("local", "up", "--nodes", 1, "--devices", 1, "--link-rate", "0", timeout=120).code, 0)
        for option, value, has in (("--nodes", "2", "1"), ("--devices", "3", "1"), ("--link-rate", "1Gbit", "0")):
            other = self.ctl("local", "up", option, value, timeout=120)
            self.assertEqual(other.code, 5, other)
            self.assertIn(f"{option} {has}, not {value}", other.err)
        status = self.ctl("local", "status")
        self.assertEqual(status.code, 0)
        for said in (mended.out, status.out):
            address = re.search(r"^look at it in a browser: (http://127\.0\.0\.1:\d+/)$", said, re.MULTILINE).group(1)
            with urllib.request.urlopen(address, timeout=30) as page:
                self.assertIn("<title>Lynx", page.read().decode())


class WrongTest(ClusterTest):
    nodes = 1

    def up(self):
        pass  # the tests do

    def test_a_wrong_rate_leaves_nothing_behind(self):
        wrong = self.ctl("local", "up", "--nodes", 1, "--devices", 1, "--link-rate", "1G")
        self.assertEqual(wrong.code, 2, wrong)
        self.assertIn("--link-rate", wrong.err)
        self.assertFalse((self.home / "cluster.json").exists())
        self.assertEqual(self.ctl("local", "up", "--nodes", 1, "--devices", 1, "--link-rate", "1Gbit", timeout=120).code, 0)
        # As an earlier release would have written it down.
        path = self.home / "cluster.json"
        path.write_text(path.read_text().replace("--link-rate=1Gbit", "--link-rate=1G"))
        self.assertEqual(self.ctl("local", "down").code, 0)
        self.assertEqual(processes(self.directory), {})

    def test_a_folder_is_the_same_from_everywhere(self):
        there = self.directory / "there"
        there.mkdir()
        for folder, words in ((self.directory, ("up", "--nodes", "1", "--devices", "1", "--dir", "here")), (there, ("down", "--dir", "../here"))):
            done = subprocess.run([str(BIN / "lynxctl"), "local", *words], env=self.env, cwd=folder, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            # Beside its daemons an agent has a process that measures.
            left = [command for command in processes(self.directory).values() if "/here/" in command]
            self.assertEqual(sum("--metrics-address" in command for command in left), 3 if words[0] == "up" else 0, left)


class DownTest(ClusterTest):
    def test_a_node_that_cannot_be_stopped_does_not_keep_the_others(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 1)
        path = self.home / "cluster.json"
        cluster = json.loads(path.read_text())
        broken = json.loads(path.read_text())
        next(d for d in broken["daemons"] if d["name"] == "node0.worker")["argv"][0] = "/nonexistent/lynx-worker"
        path.write_text(json.dumps(broken))
        down = self.ctl("local", "down")
        self.assertEqual(down.code, 4, down)
        self.assertIn("/nonexistent/lynx-worker", down.err)
        left = [command for command in processes(self.directory).values() if "/node1/" in command]
        self.assertEqual(left, [])
        # What could not be stopped is not forgotten.
        path.write_text(json.dumps(cluster))
        self.assertEqual(self.ctl("local", "down").code, 0)
        self.assertEqual(processes(self.directory), {})


class InterruptTest(ClusterTest):
    nodes = 1

    def up(self):
        pass  # the test does

    def test_interrupted_up_leaves_no_daemon_that_down_does_not_know(self):
        # The file that the cluster is written to is a pipe that nobody reads: `up` waits there, with a daemon started.
        self.home.mkdir(parents=True)
        pipe = self.home / "cluster.json.new"
        os.mkfifo(pipe)
        up = subprocess.Popen([str(BIN / "lynxctl"), "local", "up", "--nodes", "1"], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(up.stderr.close)
        deadline = time.monotonic() + 60
        while not any("lynx-server" in command for command in processes(self.directory).values()):
            self.assertLess(time.monotonic(), deadline, "no server was started")
            time.sleep(0.01)
        up.send_signal(signal.SIGINT)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertNotEqual(up.wait(timeout=60), 0)
        self.ctl("local", "down")
        self.assertEqual(processes(self.directory), {}, up.stderr.read())
