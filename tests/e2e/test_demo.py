"""Runs the demo as a new user does, but shorter, and presses Ctrl-C in the middle of it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from cluster import BIN, processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

from pages import commands_of, lines_of

PAGES = commands_of("e2e.demo")
(DEMO, ALL_TESTS), (WITH_DASHBOARDS, DASHBOARDS) = map(lines_of, PAGES["README.md"])
((RECORDED,), (CHAOS,)) = (lines_of(*PAGES[f"docs/measurements/{name}.md"]) for name in ("demo", "elastic"))
PROMETHEUS = r"Prometheus has the cluster's metrics at (http://[\d.:]+)/graph"


def session_processes(session):
    """pid -> command line of all live processes of that session."""
    found = {}
    for pid, command in processes("").items():
        try:
            if os.getsid(pid) == session:
                found[pid] = command
        except ProcessLookupError:
            pass
    return found


class DemoFolder(unittest.TestCase):
    """A folder for a demo, and a check of what a demo leaves behind."""

    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="lynx-e2e-demo-")
        self.addCleanup(shutil.rmtree, self.home, True)
        self.env = dict(os.environ, LYNX_HOME=self.home, XDG_CONFIG_HOME=f"{self.home}/config", LYNX_SKIP_BUILD="1")
        # The person who runs the demo may use another cluster. So the context and the variables here name servers that do not
        # exist: a demo that used them would fail.
        for words in (("--server", "127.0.0.1:1", "context", "add", "elsewhere"), ("context", "use", "elsewhere")):
            subprocess.run([str(BIN / "lynxctl"), *words], env=self.env, check=True, capture_output=True, timeout=60)
        self.env.update(LYNX_SERVER="127.0.0.1:2", LYNX_CONTEXT="elsewhere", LYNX_CA_FILE="/nonexistent", LYNX_TOKEN_FILE="/nonexistent")

    def run_to_its_end(self):
        demo = subprocess.run([str(ROOT / DEMO), "--steps", "6"], env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=300)
        self.assertEqual(demo.returncode, 0, demo.stdout + demo.stderr)
        return demo

    def kill_session(self, session):
        """Kills the processes of a demo that are left. It finds them by their session, because a command line need not name
        the demo's folder."""
        for pid in session_processes(session):
            os.kill(pid, signal.SIGKILL)


class DemoTest(DemoFolder):
    def test_ends_by_itself_and_leaves_no_process(self):
        demo = self.run_to_its_end()
        for expected in ("PLAN", "PREDICTED AND MEASURED", "recomputation hidden", "SUCCEEDED", "checkpoint /", "Try next", "lynxctl studio "):
            self.assertIn(expected, demo.stdout)
        self.assertIn("lynxctl calls 127.0.0.1:1 because of context elsewhere; for this cluster: lynxctl --server 127.0.0.1:", demo.stdout)
        self.assertEqual(processes(self.home), {})

    def test_chaos_tells_its_story(self):
        demo = subprocess.run([*str(ROOT / CHAOS).split(), "--steps", "110"], env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=600)
        self.assertEqual(demo.returncode, 0, demo.stdout + demo.stderr)
        story = demo.stdout[demo.stdout.index("\n1. "):].strip().splitlines()
        self.assertGreaterEqual(len(story), 5, demo.stdout)
        for line, expected in zip(story, (r"1\. 2 ranks trained to step \d+", r"2\. node\d died; .* a plan for 1 rank",
                                          r"3\. It came to step \d+ without that node", r"4\. node\d was back; .* a plan for 2",
                                          r"5\. 110 steps are done.* restarts for faults: 1\.")):
            self.assertRegex(line, expected)
        self.assertEqual(processes(self.home), {})

    def test_the_record_is_of_the_same_demo(self):
        self.assertEqual((RECORDED, CHAOS), (DEMO, f"{DEMO} --chaos"))

    def test_the_other_command_is_what_runs_this(self):
        self.assertEqual((ROOT / ".ci/run").read_text().splitlines()[-1], ALL_TESTS)

    def test_own_text(self):
        missing = subprocess.run([str(ROOT / "scripts/demo.sh"), "--text", "/nonexistent.txt"], env=self.env,
                                 capture_output=True, text=True, timeout=60)
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("/nonexistent.txt", missing.stderr)

    def test_interrupt_leaves_no_process_and_no_job_in_the_way(self):
        demo = subprocess.Popen([str(ROOT / "scripts/demo.sh"), "--steps", "100000"], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(demo.stdout.close)
        self.addCleanup(self.kill_session, demo.pid)
        deadline = time.monotonic() + 120
        for line in demo.stdout:
            if line.startswith("step ") or time.monotonic() > deadline:
                break
        self.assertTrue(any("lynx-rank" in command for command in processes(self.home).values()))
        os.killpg(demo.pid, signal.SIGINT)
        self.assertNotEqual(demo.wait(timeout=60), 0)
        # Check at once, before the output is read to its end: that would wait until all processes that can write to it have
        # ended.
        self.assertEqual((session_processes(demo.pid), processes(self.home)), ({}, {}))
        demo.stdout.read()
        # The next demo trains its own job, and does not wait for the 100000 steps of the first.
        again = self.run_to_its_end()
        self.assertIn("is being cancelled", again.stdout)


class DashboardsTest(DemoFolder):
    def setUp(self):
        super().setUp()
        self.command = [*str(ROOT / WITH_DASHBOARDS).split(), "--steps", "6"]

    @unittest.skipIf(shutil.which("prometheus") is None, "prometheus is not installed: see scripts/packages.txt")
    def test_they_stay_until_the_interrupt(self):
        self.stay_until_the_interrupt(self.command, "stay until Ctrl-C", 130)

    @unittest.skipIf(shutil.which("prometheus") is None, "prometheus is not installed: see scripts/packages.txt")
    def test_so_do_those_of_a_cluster_that_is_up(self):
        def local(*words):
            done = subprocess.run([BIN / "lynxctl", "local", *words], env=self.env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        local("up", "--nodes", "2", "--devices", "1")
        self.addCleanup(local, "down")
        self.stay_until_the_interrupt([ROOT / DASHBOARDS], "Grafana", 0, left=True)

    def stay_until_the_interrupt(self, command, ready, code, left=False):
        """Runs `command` until it prints a line with the text `ready`, and interrupts it; its exit code must be `code`.
        `left`: true if the cluster is not the script's own, so it must stay."""
        demo = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(demo.stdout.close)
        self.addCleanup(self.kill_session, demo.pid)
        watchdog = threading.Timer(300, self.kill_session, (demo.pid,))
        watchdog.start()
        self.addCleanup(watchdog.cancel)
        said = ""
        for line in demo.stdout:
            said += line
            if ready in line:
                break
        self.assertRegex(said, PROMETHEUS)
        url = re.search(PROMETHEUS, said).group(1)
        deadline = time.monotonic() + 60
        while (found := self.targets(url)) < 5 and time.monotonic() < deadline:  # Prometheus reads the list some seconds after it is ready
            time.sleep(0.2)
        self.assertEqual(found, 5, said)
        self.assertRegex(said, "Grafana (shows the dashboards|is not installed)")
        self.assertIsNone(demo.poll())
        os.killpg(demo.pid, signal.SIGINT)
        self.assertEqual(demo.wait(timeout=60), code)
        self.assertEqual((session_processes(demo.pid), len(processes(self.home)) > 0), ({}, left))

    def targets(self, url):
        with urllib.request.urlopen(f"{url}/api/v1/targets", timeout=30) as response:
            return len(json.loads(response.read())["data"]["activeTargets"])

    def test_without_prometheus_it_says_what_to_install(self):
        programs = pathlib.Path(self.home) / "programs"
        programs.mkdir()
        for folder in reversed(os.environ["PATH"].split(os.pathsep)):
            for program in pathlib.Path(folder).glob("*"):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
        (programs / "prometheus").unlink(missing_ok=True)
        demo = subprocess.run(self.command, env=dict(self.env, PATH=str(programs)), capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(demo.returncode, 1)
        self.assertIn("prometheus is not installed, which --dashboards needs: run scripts/install.sh", demo.stderr)
