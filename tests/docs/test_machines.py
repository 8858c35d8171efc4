"""Runs the commands that pages give for several machines. Three simulated machines stand for them: a server's, a node's and a
person's."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from machines import BIN, PATIENCE, USER, Machines, run_tests
from pages import anchors_of, commands_of, lines_of

ADDRESSES = {"head": "10.0.0.1", "n0": "10.0.0.10", "laptop": "10.0.0.20"}
PROMETHEUS = "http://head:9090/api/v1"
ADMIN = "LYNX_CONTEXT=/srv/lynx/server/admin.context lynxctl"
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: first
model: {layers: 2, hidden: 32, heads: 4, seq: 32, vocab: 256}
data: {kind: text, path: /usr/share/common-licenses/GPL-3}
train: {steps: 20, globalBatch: 4, microBatch: 2}
resources: {ranks: 2}
checkpoint: {directory: /srv/checkpoints}
"""
# Prints the status, and the page if the status is a success: get.py URL [PASSWORD]
GET = """import base64, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1])
for word in sys.argv[2:]:
    request.add_header("Authorization", "Basic " + base64.b64encode(f"any:{word}".encode()).decode())
try:
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
SSHD = """Port 22
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
"""
SSH = """Host *
  User root
  IdentityFile {folder}/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""


class MachinesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-machines-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.machines = Machines(self.folder, ADDRESSES)
        self.addCleanup(self.machines.end)
        self.head, self.node, self.laptop = (self.machines[name] for name in ADDRESSES)
        self.pages = commands_of("e2e.machines")

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            if time.monotonic() > deadline:
                self.fail(f"waited {PATIENCE} s for {what}\n" + "\n".join(machine.logs() for machine in self.machines.all.values()))
            time.sleep(0.1)
        return value

    def start(self, machine, line):
        process = machine.start(line)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def type(self, machine, text, **words):
        """Runs a block on the machine. Daemons keep running, and exports stay in effect. `words`: values that replace words of the block."""
        said = []
        for line in lines_of(text):
            for word, value in words.items():
                line = re.sub(rf"\b{word}\b", value, line)
            if line.startswith("export "):
                machine.exports.append(line)
            elif not line.startswith("lynx-"):
                said.append(machine.run(line))
            else:
                self.start(machine, line)
                if line.startswith("lynx-server"):
                    self.wait(lambda: machine.tried(f"{ADMIN} nodes").returncode == 0, "the server to answer")
        return "".join(said)

    def carry(self, name, source, target):
        """Copies a file to another machine, as a reader does where a page says 'bring it there'."""
        shutil.copy(source.home / name, target.home / name)

    def nodes(self):
        return {node["name"]: node for node in json.loads(self.head.run(f"{ADMIN} nodes -o json")).get("nodes", [])}

    def wait_for_node(self):
        self.wait(lambda: (node := self.nodes().get("n0")) and node.get("agentAttached") and node.get("workerAttached"), "n0 to be attached")

    def get(self, machine, *arguments):
        return subprocess.run(machine.within(sys.executable, "-c", GET, *arguments), capture_output=True, text=True, timeout=PATIENCE).stdout

    def operate(self):
        """Starts a server on one machine, and on another a node that joins it."""
        server, node, *_ = self.pages["docs/operating.md"]
        self.type(self.head, server)
        self.head.run(f"{ADMIN} admin join-token --node n0 --out n0.token")
        self.carry("n0.token", self.head, self.node)
        self.type(self.node, node)
        self.wait_for_node()

    def test_operating(self):
        self.operate()
        self.head.run(f"install -d -o {USER} /srv/checkpoints")
        (self.head.home / "job.yaml").write_text(JOB)
        self.head.run(f"{ADMIN} submit --wait -f job.yaml")
        trained = self.folder / "shared/checkpoints/step-00000020"
        self.assertEqual(trained.stat().st_uid, USER, "ranks are --job-user's")
        for address, metric in (("head:7471", "lynx_jobs"), ("10.0.0.10:7473", "lynx_"), ("10.0.0.10:7474", "lynx_")):
            self.assertRegex(self.get(self.laptop, f"http://{address}/metrics"), rf"^200 [\s\S]*\n{metric}", address)

    def installed(self, machine):
        """Installs the files of lynx-common except the programs, and the files that packages of other projects have there."""
        folder = self.folder / "installed"
        done = subprocess.run(["cmake", "--install", str(BIN.parent), "--component", "common", "--prefix", "/usr"], env=dict(os.environ, DESTDIR=str(folder)),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout)
        machine.run(f"cp -r {folder}/usr/share/lynx /usr/share/ && install -d /etc/prometheus /etc/grafana/provisioning/datasources /etc/default")
        return folder / "usr/share/lynx"

    @staticmethod
    def without_services(text):
        """A block without the commands that fetch packages and start their services."""
        return "\n".join(line for line in text.splitlines() if not line.startswith(("apt-get ", "systemctl ")))

    def asked(self, path):
        """Prometheus' answer to a request from the laptop; None while it does not answer."""
        status, _, body = self.get(self.laptop, f"{PROMETHEUS}/{path}").partition(" ")
        return json.loads(body)["data"] if status == "200" else None

    def targets(self):
        found = self.asked("targets")
        return sorted((target["labels"]["job"], target["health"]) for target in found["activeTargets"]) if found else None

    @unittest.skipIf(shutil.which("prometheus") is None, "prometheus is not installed: see scripts/packages.txt")
    def test_monitoring(self):
        self.operate()
        _, _, prometheus, grafana = self.pages["docs/operating.md"]
        share = self.installed(self.head)
        said = self.head.run(self.without_services(prometheus))
        self.assertIn("SUCCESS", said)
        self.assertNotIn("WARNING", said)
        self.start(self.head, "prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=metrics")
        expected = [(f"lynx-{daemon}", "up") for daemon in ("agent", "server", "worker")]
        self.wait(lambda: self.targets() == expected, f"Prometheus to scrape {expected}")
        alerts = [rule for group in self.asked("rules")["groups"] for rule in group["rules"] if rule["type"] == "alerting"]
        self.assertIn("LynxServerDown", [alert["name"] for alert in alerts])
        for alert in alerts:
            path, _, anchor = alert["annotations"]["runbook"].partition("#")
            self.assertIn(anchor, anchors_of((share / path).read_text()), alert["name"])
        self.head.run(self.without_services(grafana))
        variables = set(re.findall(r"\$(\w+)", self.head.run("cat /etc/grafana/provisioning/*/lynx.yml")))
        given = dict(line.split("=", 1) for line in self.head.run("cat /etc/default/grafana-server").splitlines() if line)
        self.assertEqual(variables - set(given), set())
        self.assertIn("lynx-cluster.json", self.head.run(f"ls {given['LYNX_DASHBOARDS']}"))
        self.assertEqual(given["LYNX_PROMETHEUS_URL"].replace("localhost", "head") + "/api/v1", PROMETHEUS)

    def test_security(self):
        server, node, person, there, ending = self.pages["docs/security.md"]
        self.type(self.head, server)
        self.carry("n0.token", self.head, self.node)
        self.type(self.node, node, SERVER="head")
        self.wait_for_node()
        self.type(self.head, person)
        self.carry("alice.json", self.head, self.laptop)
        self.assertIn("n0 ", self.type(self.laptop, there))
        self.assertIn("alice", self.laptop.tried("lynxctl admin audit").stdout)
        users = json.loads(self.head.run("lynxctl admin user list -o json"))
        token, = [token["id"] for user in users["users"] if user["name"] == "alice" for token in user["tokens"]]
        revoke_token, revoke_user, revoke_node, revoke_tokens = lines_of(ending)
        self.type(self.head, revoke_token, ID=token)
        self.assertNotEqual(self.laptop.tried("lynxctl nodes").returncode, 0)
        self.head.run("lynxctl admin token add alice --context-file again.json && lynxctl --context again.json nodes")
        self.type(self.head, revoke_user)
        self.assertNotEqual(self.head.tried("lynxctl --context again.json nodes").returncode, 0)
        self.head.run("lynxctl admin join-token --out n1.token")
        self.type(self.head, revoke_node)
        self.wait(lambda: not self.nodes()["n0"].get("agentAttached"), "its streams to end")
        self.type(self.head, revoke_tokens)
        self.carry("n1.token", self.head, self.node)
        said = self.node.tried("lynx-agent --node n1 --server head:7470 --address 10.0.0.10 --data-dir other --identity-dir other "
                               "--join-token-file n1.token")
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("token", said.stdout)

    @unittest.skipIf(shutil.which("sshd", path="/usr/sbin:/sbin") is None, "sshd is not installed: see scripts/packages-tests.txt")
    def test_live_page(self):
        server, tunnel = lines_of(self.pages["docs/live-page.md"][0])
        self.type(self.head, server)
        self.head.run(f"{ADMIN} admin user add eve --role viewer --context-file eve.json")
        token = json.loads((self.head.home / "eve.json").read_text())["token"]
        for name in ("host_key", "key"):
            self.head.run(f"ssh-keygen -q -t ed25519 -N '' -f {self.folder}/{name}")
        (self.folder / "sshd_config").write_text(SSHD.format(folder=self.folder))
        self.start(self.head, f"/usr/sbin/sshd -D -e -f {self.folder}/sshd_config")
        self.wait(lambda: "Server listening" in self.head.logs(), "sshd")
        self.laptop.run(f"mkdir -p /etc/ssh && cat >/etc/ssh/ssh_config <<'END'\n{SSH.format(folder=self.folder)}\nEND")
        ssh = self.start(self.laptop, tunnel.replace("SERVER", "head"))
        self.wait(lambda: self.get(self.laptop, "http://localhost:7472/") or ssh.poll() is not None, "the tunnel")
        self.assertEqual(self.get(self.laptop, "http://localhost:7472/"), "401\n", self.laptop.logs() + self.head.logs())
        self.assertRegex(self.get(self.laptop, "http://localhost:7472/", token), "^200 <!DOCTYPE html>")
        self.assertEqual(self.get(self.laptop, "http://head:7472/", token), "", "on the server's loopback address alone")


if __name__ == "__main__":
    run_tests()
