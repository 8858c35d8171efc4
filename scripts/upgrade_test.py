#!/usr/bin/env python3
"""Upgrades a cluster while it trains: upgrade_test.py OLD_BIN_DIR NEW_BIN_DIR. Two nodes and a server of the old programs train a job; then the server,
the agents and the worker daemons are replaced, in this order, node by node. The job's ranks train on through all of it, jobs begin on old, mixed and new
nodes, and nothing is restarted. Everything is in a temporary folder; the exit code is 0 if all of it went so."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 240  # seconds for anything that must happen
NODES = ("n0", "n1")
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {{layers: 2, hidden: 32, heads: 4, seq: 32, vocab: 256}}
data: {{kind: text, path: {data}}}
train: {{steps: {steps}, globalBatch: 4, microBatch: 2, optimizer: {{lr: 1e-3}}}}
resources: {{ranks: {ranks}}}
parallel: {{tp: {tp}, pp: 2}}
"""
ENDLESS = 100_000_000


class Failed(Exception):
    pass


class Cluster:
    def __init__(self, folder, new):
        self.folder, self.lynxctl = folder, new / "lynxctl"
        self.daemons = {}
        self.address = None
        (folder / "corpus.txt").write_text("".join(f"Line {i}: {i * 7 % 13} lazy dogs.\n" for i in range(2000)))

    def log(self, name):
        return self.folder / f"{name}.log"

    def start(self, name, programs, *flags):
        program = programs / f"lynx-{name.rpartition('.')[2]}"
        with open(self.log(name), "ab") as out:
            self.daemons[name] = subprocess.Popen([program, *flags, "--data-dir", self.folder / name], stdin=subprocess.DEVNULL,
                                                  stdout=out, stderr=out)

    def start_server(self, programs):
        """Starts the server on the port that it had before, if any, because nodes look for it there."""
        listen = self.address or "127.0.0.1:0"
        told = self.folder / "server" / "server.address"
        self.start("server", programs, "--listen", listen, "--metrics-address", "")
        self.wait(lambda: told.exists() and told.read_text().strip(), "a server that listens")
        self.address = told.read_text().strip()

    def start_node(self, kind, node, programs):
        more = ("--devices", "3", "--memory", "256MiB") if kind == "agent" else ()
        self.start(f"{node}.{kind}", programs, "--node", node, "--server", self.address, *more)

    def stop(self, name):
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait(PATIENCE)

    def end(self):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        for pid in self.ranks():
            os.kill(pid, signal.SIGKILL)

    def ranks(self):
        """Returns the process ids of the ranks that work in this test's folder."""
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
            except OSError:
                continue
            if "lynx-rank" in command.partition("\0")[0] and str(self.folder) in command:
                found.add(int(entry.name))
        return found

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            dead = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise Failed(f"waited for {what}" + (f", but {', '.join(dead)} ended" if dead else f" {PATIENCE} s"))
            time.sleep(0.1)

    def ctl(self, *arguments):
        result = subprocess.run([self.lynxctl, "--server", self.address, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                env={**os.environ, "LYNX_HOME": str(self.folder)}, stdin=subprocess.DEVNULL)
        if result.returncode != 0:
            raise Failed(f"lynxctl {' '.join(map(str, arguments))}: {result.stderr or result.stdout}")
        return result.stdout

    def submit(self, name, steps, ranks):
        path = self.folder / f"{name}.yaml"
        path.write_text(JOB.format(name=name, data=self.folder / "corpus.txt", steps=steps, ranks=ranks, tp=ranks // 2))
        self.ctl("submit", "-f", path)

    def job(self, name):
        return json.loads(self.ctl("get", name, "-o", "json"))

    def steps(self, name):
        page = self.job(name)
        if page["restarts"] != 0 or page["generation"] not in ("0", "1"):
            raise Failed(f"job {name} was restarted: {json.dumps(page)[:2000]}")
        if page["state"] in ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"):
            raise Failed(f"job {name} ended: {page['state']}, {page.get('reason')}")
        return int(page.get("progress", {}).get("stepsDone", 0))

    def succeed(self, name):
        """Submits a job with a rank on each node, and waits until it has succeeded."""
        self.submit(name, 5, 2)
        self.wait(lambda: self.steps(name) >= 0 and self.job(name)["state"] == "JOB_STATE_SUCCEEDED", f"job {name} to succeed")
        used = {rank["node"] for rank in self.job(name)["placement"]}
        if used != set(NODES):
            raise Failed(f"job {name} ran on {used} alone")
        print(f"job {name} ran on both nodes")

    def nodes(self):
        return {node["name"]: node for node in json.loads(self.ctl("nodes", "-o", "json"))["nodes"]}


def version_of(programs, name):
    return subprocess.run([programs / name, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def upgrade(cluster, old, new):
    versions = {programs: version_of(programs, "lynx-worker") for programs in (old, new)}
    print(f"from {versions[old]} to {versions[new]}")
    cluster.start_server(old)
    for node in NODES:
        cluster.start_node("agent", node, old)
        cluster.start_node("worker", node, old)

    def attached(node, kind, version):
        """True if the daemon `kind` of `node` is attached with `version`. None: any version is right, because some
        old servers do not report it."""
        page = cluster.nodes().get(node, {})
        return page.get(f"{kind}Attached") and version in (None, page.get(f"{kind}Version"))

    for node in NODES:
        for kind in ("agent", "worker"):
            cluster.wait(lambda: attached(node, kind, None), f"the old {kind} of {node}")
    cluster.submit("long", ENDLESS, 4)
    cluster.wait(lambda: cluster.steps("long") >= 5, "the first steps")
    ranks = cluster.ranks()
    if len(ranks) != 4:
        raise Failed(f"the job has {len(ranks)} rank processes, not 4")
    cluster.succeed("old")

    def goes_on(what):
        done = cluster.steps("long")
        cluster.wait(lambda: cluster.steps("long") >= done + 5, f"5 more steps {what}")
        if not ranks <= cluster.ranks():
            raise Failed(f"{what}, not all rank processes are those that began")
        print(f"{what}: {cluster.steps('long')} steps")

    cluster.stop("server")
    cluster.start_server(new)
    goes_on("with the new server")
    cluster.succeed("old-nodes")
    for node in NODES:
        for kind in ("agent", "worker"):
            cluster.stop(f"{node}.{kind}")
            cluster.start_node(kind, node, new)
            cluster.wait(lambda: attached(node, kind, versions[new]), f"the new {kind} of {node}")
            goes_on(f"with the new {kind} of {node}")
        cluster.succeed(f"with-{node}-new")
    cluster.ctl("cancel", "long", "--checkpoint")
    cluster.wait(lambda: cluster.job("long")["state"] == "JOB_STATE_CANCELLED", "the job to write a checkpoint and leave")
    step = int(cluster.job("long")["checkpointStep"])
    if step < 1:
        raise Failed("the job left without a checkpoint")
    print(f"the job left with a checkpoint of step {step}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=pathlib.Path, metavar="OLD_BIN_DIR")
    parser.add_argument("new", type=pathlib.Path, metavar="NEW_BIN_DIR")
    arguments = parser.parse_args()
    old, new = arguments.old.absolute(), arguments.new.absolute()
    for programs in (old, new):
        for name in ("lynx-server", "lynx-agent", "lynx-worker", "lynx-rank"):
            if not (programs / name).exists():
                parser.error(f"there is no {name} in {programs}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-upgrade-"))
    cluster = Cluster(folder, new)
    try:
        upgrade(cluster, old, new)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        for log in sorted(folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
        sys.exit(f"error: {error}")
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)
    print("upgraded while it trained: no rank was restarted, no job was lost")


if __name__ == "__main__":
    main()
