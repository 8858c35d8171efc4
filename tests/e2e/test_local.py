"""Tests the local cluster itself: its numbers of nodes and devices, and that `down` always stops all its processes."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request

from cluster import BIN, ClusterTest, kill, processes


class ShapeTest(ClusterTest):
    nodes = 1
    devices = 1

    def test_up_mends_a_cluster_of_any_shape_and_refuses_another(self):
        self.kill_daemon("node0.agent")
        log = self.home / "logs/node0.agent.log"
        os.truncate(log, 17 << 20)
        mended = self.ctl("local", "up", timeout=120)  # it keeps one node with one device; a new cluster would have more
        self.assertEqual(mended.code, 0, mended)
        self.assertIn("1 nodes", mended.out)
        self.assertEqual(log.with_name("node0.agent.log.1").stat().st_size, 17 << 20, "a long log is put aside")
        self.assertLess(log.stat().st_size, 1 << 20)
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
        self.check_that_up_says_when_commands_go_elsewhere()

    def check_that_up_says_when_commands_go_elsewhere(self):
        here = json.loads((self.home / "cluster.json").read_text())["serverAddress"]

        def said():
            up = self.ctl("local", "up", timeout=120)
            self.assertEqual(up.code, 0, up)
            return [line for line in up.out.splitlines() if line.startswith("lynxctl calls")]

        self.assertEqual(said(), [])
        self.assertEqual(self.ctl("--server", "127.0.0.1:1", "context", "add", "other").code, 0)
        self.assertEqual(self.ctl("context", "use", "other").code, 0)
        self.assertEqual(said(), [f"lynxctl calls 127.0.0.1:1 because of context other; for this cluster: lynxctl --server {here} ..., "
                                  "or lynxctl context use --none"])
        self.env["LYNX_SERVER"] = "127.0.0.1:2"
        self.assertEqual(said(), [f"lynxctl calls 127.0.0.1:2 because of LYNX_SERVER; for this cluster: lynxctl --server {here} ..., "
                                  "or unset LYNX_SERVER; lynxctl context use --none"])
        del self.env["LYNX_SERVER"]
        self.assertEqual(self.ctl("context", "use", "--none").code, 0)
        self.env["LYNX_CONTEXT"] = "other"  # LYNX_CONTEXT has an effect even if --server is given
        self.assertEqual(said(), [f"lynxctl calls 127.0.0.1:1 because of LYNX_CONTEXT; for this cluster: unset LYNX_CONTEXT; lynxctl --server {here} ..."])
        del self.env["LYNX_CONTEXT"]
        self.assertEqual(said(), [])


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
        # The file is as an earlier release would have written it.
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
            # The filter leaves out the process that an agent starts for a while to measure a device.
            daemons = [command for command in processes(self.directory).values() if "/here/" in command and "--metrics-address=" in command]
            self.assertEqual(len(daemons), 3 if words[0] == "up" else 0, daemons)

    def test_a_folder_that_is_not_text_is_refused_before_anything_starts(self):
        done = subprocess.run([str(BIN / "lynxctl"), "local", "up", "--dir", bytes(self.directory) + b"/caf\xe9"], env=self.env, capture_output=True,
                              text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("/caf\\xe9/server' is not UTF-8", done.stderr)
        self.assertEqual(processes(self.directory), {})

    def test_what_cannot_be_written_down_is_not_started(self):
        (self.home / "cluster.json.new").mkdir(parents=True)  # the file is first written here, and then renamed
        up = self.ctl("local", "up", timeout=120)
        self.assertEqual(up.code, 5, up)
        self.assertIn("cluster.json.new", up.err)
        self.assertFalse((self.home / "logs").exists())

    def test_two_at_once_start_one_cluster(self):
        words = [str(BIN / "lynxctl"), "local", "up", "--nodes", "1", "--devices", "1"]
        both = [subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for _ in range(2)]
        said = [one.communicate(timeout=180)[0] for one in both]
        self.assertEqual([one.returncode for one in both], [0, 0], said)
        self.assertEqual(said[0], said[1])
        daemons = [command for command in processes(self.directory).values() if "--metrics-address=" in command]
        self.assertEqual(len(daemons), 3, daemons)


class DownTest(ClusterTest):
    def broken(self):
        """A program that only fails."""
        program = self.directory / "broken"
        program.write_text("#!/bin/sh\necho it is broken\nexit 1\n")
        program.chmod(0o755)
        return program

    def with_worker(self, program):
        """Puts another program for the first node's worker daemon into the cluster's file."""
        path = self.home / "cluster.json"
        cluster = json.loads(path.read_text())
        next(d for d in cluster["daemons"] if d["name"] == "node0.worker")["argv"][0] = str(program)
        path.write_text(json.dumps(cluster))

    def test_a_node_that_cannot_be_stopped_does_not_keep_the_others(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 1)
        self.with_worker(self.broken())
        down = self.ctl("local", "down")
        self.assertEqual(down.code, 3, down)
        self.assertRegex(down.err, r"some ranks of node0\.worker could not be stopped; the end of .*(.|\n)*it is broken")
        left = [command for command in processes(self.directory).values() if "/node1/" in command]
        self.assertEqual(left, [])
        # The cluster's file still names the processes that could not be stopped, so the next `down` stops them.
        self.with_worker(BIN / "lynx-worker")
        self.assertEqual(self.ctl("local", "down").code, 0)
        self.assertEqual(processes(self.directory), {})

    def test_programs_that_are_gone_or_broken_do_not_keep_a_cluster(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 1)
        self.with_worker("/nonexistent/lynx-worker")  # as if the programs had been moved
        down = self.ctl("local", "down")
        self.assertEqual(down.code, 0, down)
        self.assertEqual(processes(self.directory), {})
        self.up()
        self.ctl("cancel", "--all")
        self.await_state(job, "CANCELLED")
        self.with_worker(self.broken())
        down = self.ctl("local", "down")
        self.assertEqual(down.code, 0, down)
        self.assertFalse((self.home / "cluster.json").exists())


class InterruptTest(ClusterTest):
    nodes = 1

    def test_interrupted_up_leaves_no_daemon_that_down_does_not_know(self):
        # The cluster's file is a pipe that nobody reads: `up` waits there after it has started a daemon.
        kill(processes(self.home))
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
