"""Tests deploy/slurm with a real Slurm: when an allocation begins, its nodes join the cluster, and they are drained before it
ends."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import unittest

from cluster import BIN, ClusterTest, processes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))

from pages import commands_of, lines_of

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "slurm" / "lynx-nodes.sbatch"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
CONFIG = """ClusterName=lynxtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={dir}/munge.sock
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/logs/slurmctld.log
SlurmdLogFile={dir}/logs/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=60
NodeName=node[0-1] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def programs_missing():
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    """Finds consecutive free ports."""
    for first in range(21000, 31000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


@unittest.skipIf(os.geteuid() != 0, "Slurm's daemons are started as root here")
@unittest.skipIf(programs_missing(), f"Slurm is not installed: {programs_missing()}")
class SlurmTest(ClusterTest):
    measures_anew = True  # the scripts choose the nodes' folders, so setUp cannot put stored measurements there

    def up(self):
        """Starts a server, and a Slurm with two nodes, in the test's folder."""
        self.home.mkdir()
        (self.home / "logs").mkdir()
        ports = free_ports(4)
        self.env["LYNX_SERVER"] = f"127.0.0.1:{ports[3]}"
        self.env["SLURM_CONF"] = str(self.home / "slurm.conf")
        self.env["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        (self.home / "state").mkdir()
        (self.home / "slurm.conf").write_text(
            CONFIG.format(host=socket.gethostname().split(".")[0], ports=ports, dir=self.home))
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.start_daemon("munged", "munged", "--force", "--foreground", f"--key-file={key}", f"--socket={self.home}/munge.sock",
                          f"--pid-file={self.home}/munged.pid", f"--log-file={self.home}/logs/munged.log",
                          f"--seed-file={self.home}/munge.seed")
        self.await_on_disk((self.home / "munge.sock").exists, "munge listens", 30)
        self.start_daemon("slurmctld", "slurmctld", "-D")
        for node in ("node0", "node1"):
            self.start_daemon(node, "slurmd", "-D", "-N", node)
        self.start_daemon("server", str(BIN / "lynx-server"), "--listen", self.env["LYNX_SERVER"], "--data-dir",
                          str(self.home / "server"), "--metrics-address", "")
        self.await_output(["sinfo", "-h", "-o", "%D %t"], "2 idle")

    def start_daemon(self, name, *command):
        log = open(self.home / "logs" / f"{name}.out.log", "w")
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        log.close()

        def stop():
            process.kill()
            process.wait()
        self.addCleanup(stop)

    def slurm(self, *command):
        result = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}\n{result.stderr}\n{self.daemon_logs()}")
        return result.stdout.strip()

    def await_output(self, command, text, timeout=120):
        deadline = time.monotonic() + timeout
        while True:
            result = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            if text in result.stdout:
                return
            if time.monotonic() > deadline:
                self.fail(f"{command} does not say {text}:\n{result.stdout}{result.stderr}\n{self.daemon_logs()}")
            time.sleep(0.2)

    def lend(self):
        """Lends one node to the server; returns the Slurm job."""
        values = dict(LYNX_SERVER=self.env["LYNX_SERVER"], LYNX_BIN=BIN, LYNX_NODE_DIR=self.directory, LYNX_AGENT_FLAGS="--devices cpu:1")
        export = ",".join(["ALL", *(f"{name}={value}" for name, value in values.items())])
        return self.slurm("sbatch", "--parsable", "--nodes=1", f"--export={export}", f"--output={self.home}/logs/slurm-%j.log",
                          str(SCRIPT))

    def test_nodes_come_and_leave_with_their_allocations(self):
        first, second = self.lend(), self.lend()
        self.await_output([str(BIN / "lynxctl"), "nodes"], f"slurm-{first}-")
        self.await_output([str(BIN / "lynxctl"), "nodes"], f"slurm-{second}-")
        job = self.submit(self.job_file(steps=100_000, every=500, ranks=1, tp="auto", pp="auto"))
        page = self.await_steps(job, 20)
        node = page["placement"][0]["node"]
        lent = first if node.startswith(f"slurm-{first}-") else second
        # Sends the signal that Slurm sends before a time limit is reached.
        self.slurm("scancel", "--signal=USR1", "--batch", lent)
        page = self.await_job(job, lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) == 2, "it runs elsewhere")
        self.assertNotEqual(page["placement"][0]["node"], node)
        self.assertEqual(page["restarts"], 0)
        kinds = self.event_kinds(page)
        self.assertIn("draining", kinds)
        self.assertIn("moving", kinds)
        self.assertIn(f"Slurm job {lent} ends", next(e["reason"] for e in page["events"] if e["kind"] == "draining"))
        running = [e["reason"] for e in page["events"] if e["kind"] == "running"][-1]
        self.assertIn("from the checkpoint of step", running)
        self.await_output(["scontrol", "show", "job", lent], "JobState=COMPLETED")
        self.assertFalse([c for c in processes(self.directory).values() if f"--node {node} " in c], "it leaves nothing behind")
        # If an allocation is cancelled, its ranks end. Then no node is left, so the job waits and keeps its checkpoints.
        self.slurm("scancel", second if lent == first else first)
        self.await_state(job, "QUEUED")

    def test_the_commands_of_the_page(self):
        lend, nodes, take_back = lines_of(commands_of("e2e.slurm")["docs/from-slurm.md"][0])
        for words, own in (("--nodes=8", "--parsable --nodes=2"), ("head:7470", self.env["LYNX_SERVER"]),
                           ("/opt/lynx/bin", f"{BIN},LYNX_NODE_DIR={self.directory},LYNX_AGENT_FLAGS=--devices=cpu:1")):
            self.assertIn(words, lend)
            lend = lend.replace(words, own)
        self.env["PATH"] = f"{BIN}:{self.env['PATH']}"
        sbatch, *words = lend.replace("deploy/slurm/lynx-nodes.sbatch", str(SCRIPT)).split()
        job = self.slurm(sbatch, f"--output={self.home}/logs/slurm-%j.log", *words)
        self.await_output(nodes.split(), f"slurm-{job}-")
        self.slurm(*take_back.replace("JOB", job).split())
        self.await_output(["scontrol", "show", "job", job], "JobState=COMPLETED")

    def test_says_what_is_missing(self):
        for environment, text in [("NONE", "LYNX_SERVER is not set"), ("NONE,LYNX_SERVER=a:1,LYNX_BIN=/nowhere", "no lynx-agent in '/nowhere'")]:
            job = self.slurm("sbatch", "--parsable", f"--export={environment}", f"--output={self.home}/logs/slurm-%j.log", str(SCRIPT))
            self.await_output(["scontrol", "show", "job", job], "ExitCode=2:0")
            self.assertIn(text, (self.home / "logs" / f"slurm-{job}.log").read_text())
