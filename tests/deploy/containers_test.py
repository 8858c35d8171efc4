#!/usr/bin/env python3
"""Tests deploy/docker in real containers: containers_test.py BUILD_FOLDER. The Dockerfile builds the image, but the
packages of this build replace its first stage. The cluster is started as docs/install.md says, and trains. No registry
is used: Debian is made from the machine's package sources, and Prometheus is the machine's own program. Debian has no
Grafana, so its container runs no Grafana; the test reads there the files that Grafana would read. Exit code 77 and a
reason if this machine cannot run the test."""

import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/docs"), str(ROOT / "tests/packages")]

from container_engine import NEEDED, Engine
from debian_tree import build_folder, check_machine, end_with_parent, make_packages, run_tests
from pages import commands_of, lines_of

COMPOSE = yaml.safe_load((ROOT / "deploy/docker/compose.yaml").read_text())["services"]
OWN = [name for name in COMPOSE if name not in ("prometheus", "grafana")]
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {{layers: 2, hidden: 32, heads: 4, seq: 32, vocab: 256}}
data: {{kind: text, path: /usr/share/common-licenses/GPL-3}}
train: {{steps: {steps}, globalBatch: 4, microBatch: 2, optimizer: {{lr: 1e-3}}}}
resources: {{ranks: 2}}
parallel: {{tp: 1, pp: 2}}
checkpoint: {{everySteps: 50}}
"""
ENDLESS = 100_000_000
PATIENCE = 120  # seconds for anything that must happen
BUILD = build_folder()


class ContainersTest(unittest.TestCase):
    def setUp(self):
        check_machine(NEEDED)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-containers-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.engine = Engine(self.folder)
        self.addCleanup(self.engine.end)
        self.engine.env.update(LYNX_HOME=str(self.folder / "home"), XDG_CONFIG_HOME=str(self.folder / "config"), LYNX_SERVER="127.0.0.1:7470")
        self.engine.env["PATH"] = f"{BUILD / 'bin'}:{self.engine.env['PATH']}"
        self.build_images()
        self.engine.start()

    def build_images(self):
        self.engine.import_debian("docker.io/library/debian:bookworm-slim", "docker.io/library/debian:bookworm")
        stage, empty = self.folder / "stage", self.folder / "empty"
        empty.mkdir()
        make_packages(BUILD, stage / "src/build/packages")
        # The Dockerfile's first stage would need half an hour to build what is built here.
        self.engine.build(COMPOSE["server"]["image"], empty, f"--build-context=build={stage}", f"--file={ROOT / 'deploy/docker/Dockerfile'}")
        shutil.copy(shutil.which("prometheus"), empty)
        self.engine.build(f"docker.io/{COMPOSE['prometheus']['image']}", empty, "--file=" + self.file(
            "FROM debian:bookworm-slim\nCOPY prometheus /bin/\nRUN install -d -o nobody /prometheus\nUSER nobody\nENTRYPOINT [\"/bin/prometheus\"]\n"))
        self.engine.build(f"docker.io/{COMPOSE['grafana']['image']}", empty, "--file=" + self.file(
            "FROM debian:bookworm-slim\nCMD [\"sleep\", \"infinity\"]\n"))

    def file(self, text):
        path = self.folder / "Dockerfile"
        path.write_text(text)
        return str(path)

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            if time.monotonic() > deadline:
                self.fail(f"waited {PATIENCE} s for {what}\n{(self.folder / 'up.log').read_text()[-6000:]}\n{self.engine.said()}")
            time.sleep(0.3)
        return value

    def asked(self, line):
        """What a command prints; "" if it fails."""
        done = subprocess.run(self.engine.within("bash", "-c", line), env=self.engine.env, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout if done.returncode == 0 else ""

    def start(self, line):
        """Starts a command that keeps running."""
        with open(self.folder / "up.log", "wb") as log:
            process = subprocess.Popen(self.engine.within("bash", "-c", f"exec {line}"), env=self.engine.env, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, preexec_fn=end_with_parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def inside(self, name, *command):
        return self.engine.podman("exec", f"lynx_{name}_1", *command)

    def submit(self, name, steps):
        job = self.folder / f"{name}.yaml"
        job.write_text(JOB.format(name=name, steps=steps))
        self.engine.run("lynxctl", "submit", "-f", job)

    def job(self, name):
        return self.engine.json("lynxctl", "get", name, "-o", "json")

    def steps(self, name):
        page = self.job(name)
        self.assertNotIn(page["state"], ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"), page["reason"])
        return int(page["progress"]["stepsDone"])

    def ask_prometheus(self, path, field):
        """Asks Prometheus; empty while it does not answer."""
        reader = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
        said = self.asked(shlex.join([sys.executable, "-c", reader, f"http://127.0.0.1:9090/api/v1/{path}"]))
        return json.loads(said)["data"][field] if said else []

    def test_the_cluster_of_the_compose_file(self):
        (up, nodes), = [lines_of(text) for text in commands_of("deploy.containers")["docs/install.md"]]
        cluster = self.start(up)
        said = self.wait(lambda: (said := self.asked(nodes)).count(" ready ") == 2 and said or cluster.poll() is not None, "two nodes that are ready")
        self.assertIsNone(cluster.poll(), (self.folder / "up.log").read_text())
        self.assertIn("node1", said)
        self.wait(lambda: self.engine.containers() == {f"lynx_{name}_1": True for name in COMPOSE}, "all containers to run")
        self.nothing_has_rights()
        self.submit("short", 20)
        self.wait(lambda: self.job("short")["state"] == "JOB_STATE_SUCCEEDED", "a job of one rank in each of two nodes")
        self.assertEqual({place["node"] for place in self.job("short")["placement"]}, {"node0", "node1"})
        self.has_dashboards_with_data()
        self.outlives_a_container_that_is_started_again()

    def nothing_has_rights(self):
        for name in OWN:
            status = dict(line.split(":", 1) for line in self.inside(name, "cat", "/proc/1/status").splitlines())
            self.assertNotIn("0", status["Uid"].split(), name)
            self.assertEqual((int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip()), (0, 0, "1"), name)
            self.assertIn("Read-only file system", self.inside(name, "sh", "-c", "touch /usr/x 2>&1 || true"), name)

    def has_dashboards_with_data(self):
        targets = self.wait(lambda: (found := self.ask_prometheus("targets", "activeTargets")) and all(one["health"] == "up" for one in found) and found,
                            "every daemon to be scraped")
        self.assertEqual(sorted(one["labels"]["job"] for one in targets), ["lynx-agent"] * 2 + ["lynx-server"] + ["lynx-worker"] * 2)
        query = urllib.parse.quote('lynx_job_steps_total{job_name="short"} >= 20')
        self.wait(lambda: self.ask_prometheus(f"query?query={query}", "result"), "the job's steps in Prometheus")
        self.assertNotEqual(self.ask_prometheus("rules", "groups"), [])
        # The command reads what Grafana would read: its provisioning, the dashboards, and Prometheus at the given address.
        said = self.inside("grafana", "bash", "-c", "cd $GF_PATHS_PROVISIONING && ls */*.yml $LYNX_DASHBOARDS/*.json; url=${LYNX_PROMETHEUS_URL#http://}; "
                           "exec 3<>/dev/tcp/${url/://} && printf 'GET /-/ready HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3")
        self.assertEqual(said.count(".json"), len(list((ROOT / "dashboards/grafana").glob("*.json"))))
        self.assertEqual(said.count(".yml"), len(list((ROOT / "dashboards/provisioning").glob("*/*.yml"))))
        self.assertIn("200 OK", said)

    def outlives_a_container_that_is_started_again(self):
        """Restarting the worker's container ends its ranks, and the job goes on from the newest copy. Restarting server
        or agent ends nothing else."""
        self.submit("long", ENDLESS)
        self.wait(lambda: self.steps("long") >= 100, "a checkpoint")
        for name in ("server", "node0-agent"):
            self.engine.podman("restart", "--time=20", f"lynx_{name}_1")
            self.wait(lambda: self.asked("lynxctl nodes").count(" ready ") == 2, f"both nodes after {name} was started again")
            done = self.steps("long")
            self.wait(lambda: self.steps("long") > done, "more steps")
            self.assertEqual(self.job("long")["restarts"], 0, self.engine.run("lynxctl", "events", "long"))
        self.engine.podman("restart", "--time=20", "lynx_node1-worker_1")
        self.wait(lambda: self.job("long")["restarts"] == 1 and self.job("long")["state"] == "JOB_STATE_RUNNING", "the job to go on")
        self.assertRegex(self.engine.run("lynxctl", "events", "long"), r"RUNNING +running +all ranks run, from .* step \d+")
        self.engine.run("lynxctl", "cancel", "long")


if __name__ == "__main__":
    run_tests()
