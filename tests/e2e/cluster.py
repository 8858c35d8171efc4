"""A local cluster for end-to-end tests. It is started, broken and mended with the commands that people use."""

import atexit
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))

# Tests must never reach another cluster that somebody uses on this machine. So these variables are removed, and
# contexts are looked for in an empty folder.
for name in ("LYNX_SERVER", "LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE"):
    os.environ.pop(name, None)
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="lynx-e2e-config-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], True)

# The agents of this test program keep their measurements here. The agents of the next cluster read them, because
# measuring again would take longer than most tests.
MEASURED = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-measured-"))
atexit.register(shutil.rmtree, MEASURED, True)

# All programs except the rank process, for tests that replace it: programs find each other in their folder.
PROGRAMS = ("lynxctl", "lynx-verbs", "lynx-server", "lynx-agent", "lynx-worker")

# A job that is small enough to end in seconds, and large enough that a test can kill it in the middle.
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {{layers: 4, hidden: 32, heads: 4, seq: 32, vocab: 256, dropout: 0.1, dtype: {dtype}}}
data: {{kind: text, path: {data}}}
train:
  steps: {steps}
  globalBatch: 8
  microBatch: 2
  optimizer: {{lr: 3e-3}}
resources: {{ranks: {ranks}, activationMemoryPerRank: {memory}}}
parallel: {{tp: {tp}, pp: {pp}}}
recompute: {recompute}
checkpoint: {{everySteps: {every}{extra}}}
maxRestarts: {max_restarts}
"""


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run(*arguments, timeout=60, env=None, binaries=BIN):
    """Runs lynxctl and returns its result. A hang is a failure."""
    return Result(subprocess.run([str(binaries / "lynxctl"), *map(str, arguments)], capture_output=True, text=True,
                                 timeout=timeout, env=env, stdin=subprocess.DEVNULL))


def processes(marker):
    """pid -> command line of all live processes whose command line contains `marker`."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if str(marker) in command and state != "Z":
            found[int(entry.name)] = command
    return found


def kill(pids, patience=30):
    """Sends SIGKILL to the processes and waits until all have ended, because the kernel may need some time."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + patience
    for pid in pids:
        while is_alive(pid):
            if time.monotonic() > deadline:
                raise AssertionError(f"process {pid} runs {patience} s after it was killed")
            time.sleep(0.002)


def is_alive(pid):
    try:
        return (pathlib.Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class ClusterTest(unittest.TestCase):
    """Each test has its own cluster in a temporary folder and leaves nothing behind."""

    nodes = 2
    devices = 2
    binaries = BIN
    poll_seconds = 0.1
    measures_anew = False  # True: agents measure again, even if an earlier test has stored its measurements

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-"))
        self.home = self.directory / "local"
        self.env = dict(os.environ, LYNX_HOME=str(self.directory), XDG_CONFIG_HOME=str(self.directory / "config"), NO_COLOR="1")
        self.corpus = self.directory / "corpus.txt"
        self.corpus.write_text("".join(f"Line {i}: the quick brown fox jumps over {i * 7 % 13} lazy dogs.\n"
                                       for i in range(2000)))
        self.addCleanup(self._clean_up)
        if not self.measures_anew:
            for node in range(self.nodes):
                shutil.copytree(MEASURED, self.home / f"node{node}" / "agent" / "measured")
        self.up()

    def _clean_up(self):
        try:
            self.ctl("local", "down")
        finally:
            kill(processes(self.directory))
            for file in self.home.glob("node*/agent/measured/*.measured"):
                if not (MEASURED / file.name).exists():
                    shutil.copy(file, MEASURED)
            shutil.rmtree(self.directory, ignore_errors=True)

    def ctl(self, *arguments, timeout=60):
        return run(*arguments, timeout=timeout, env=self.env, binaries=self.binaries)

    def up(self):
        result = self.ctl("local", "up", "--nodes", self.nodes, "--devices", self.devices, timeout=120)
        self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")

    def daemon_logs(self):
        return "\n".join(f"=== {path.name}\n{path.read_text()[-4000:]}" for path in sorted(self.home.glob("logs/*.log")))

    def job_file(self, name="tiny", **changes):
        values = dict(name=name, data=self.corpus, steps=20, ranks=4, memory="auto", tp=2, pp=2, recompute="auto",
                      dtype="float32", every=0, extra="", max_restarts=3)
        values.update(changes)
        path = self.directory / f"{name}.yaml"
        path.write_text(JOB.format(**values))
        return path

    def submit(self, path, *arguments):
        result = self.ctl("submit", "-f", path, "-o", "json", *arguments)
        self.assertEqual(result.code, 0, result)
        return json.loads(result.out)["id"]

    def get(self, job):
        result = self.ctl("get", job, "-o", "json", "--events")
        self.assertEqual(result.code, 0, result)
        return json.loads(result.out)

    def await_job(self, job, condition, what, timeout=180):
        """Waits until condition(job) holds. Fails at once if the job ends before."""
        deadline = time.monotonic() + timeout
        while True:
            page = self.get(job)
            if condition(page):
                return page
            ended = page["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")
            if ended or time.monotonic() > deadline:
                self.fail(f"job {job} did not come to: {what}\n{json.dumps(page, indent=1)[:6000]}\n{self.daemon_logs()}")
            time.sleep(self.poll_seconds)

    def await_on_disk(self, condition, what, timeout=120):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"did not come to: {what}\n{self.daemon_logs()}")
            time.sleep(0.1)

    def await_steps(self, job, steps):
        return self.await_job(job, lambda page: int(page["progress"]["stepsDone"]) >= steps, f"{steps} steps done")

    def await_state(self, job, state, timeout=180):
        return self.await_job(job, lambda page: page["state"] == f"JOB_STATE_{state}", state, timeout)

    def daemon(self, name):
        cluster = json.loads((self.home / "cluster.json").read_text())
        return next(d for d in cluster["daemons"] if d["name"] == name)

    def kill_daemon(self, name):
        kill([self.daemon(name)["pid"]])

    def rank_pids(self):
        """pids of the rank processes of this cluster."""
        return sorted(pid for pid, command in processes(self.directory).items()
                      if command.split(" ")[0].endswith("lynx-rank") and "--config" in command)

    def metrics(self, name):
        address = self.daemon(name)["metricsAddress"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            return response.read().decode()

    def page_status(self, name, path):
        try:
            with urllib.request.urlopen(f"http://{self.daemon(name)['metricsAddress']}{path}", timeout=10) as response:
                return response.status
        except urllib.error.HTTPError as refused:
            return refused.code

    def event_kinds(self, page):
        return [event["kind"] for event in page["events"]]
