"""Several servers on one PostgreSQL, with nodes that know them all, for tests and for bench/failover.py. All processes run on this
machine; all of their files are in one folder."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from cluster import BIN, is_alive, kill, run

PATIENCE = 120  # seconds for anything that must happen


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Server:
    def __init__(self, folder, name, store, port, page, programs):
        self.programs = programs  # the folder whose programs the server is started from
        self.name, self.address, self.page = name, f"127.0.0.1:{port}", f"127.0.0.1:{page}"
        self.data, self.log_file = folder / name, folder / f"{name}.log"
        self.flags = ["--listen", self.address, "--data-dir", str(self.data), "--store", store, "--metrics-address", self.page,
                      "--page-address", ""]
        self.process = None
        self.stopped = False

    def start(self):
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen([str(self.programs / "lynx-server"), *self.flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.stopped = False

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.stopped = False

    def stop(self):
        """Stops the process, as if its machine hung. Its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def get(self, path):
        """The page's status and text; None if the server does not answer."""
        if self.stopped or not self.runs():
            return None
        try:
            with urllib.request.urlopen(f"http://{self.page}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError:
            return None

    def leads(self):
        page = self.get("/metrics")
        return page is not None and re.search(r"(?m)^lynx_server_leading(\{[^}]*\})? 1(\.0*)?$", page[1]) is not None

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


class Servers:
    """Servers and nodes. `postgres`: a Postgres or a PrimaryAndStandby, with the database lynx."""

    def __init__(self, folder, postgres, servers=3, nodes=2, devices=2, programs=BIN):
        self.folder = pathlib.Path(folder)
        ports = free_ports(2 * servers)
        self.all = [Server(self.folder, f"server{i}", postgres.url(), ports[2 * i], ports[2 * i + 1], programs) for i in range(servers)]
        self.addresses = ",".join(server.address for server in self.all)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LYNX_")}
        self.env.update(LYNX_SERVER=self.addresses, LYNX_HOME=str(self.folder / "home"), XDG_CONFIG_HOME=str(self.folder / "config"), NO_COLOR="1")
        self.nodes, self.devices = [f"n{i}" for i in range(nodes)], devices
        self.programs = programs
        self.daemons = {}  # the key is a name such as "n0.agent"

    def start(self):
        for server in self.all:
            server.start()
        for node in self.nodes:
            for kind in ("agent", "worker"):
                self.start_daemon(node, kind, self.programs)

    def start_daemon(self, node, kind, programs):
        """Starts the agent or the worker daemon of a node; ends the one that there is, as an upgrade does."""
        name = f"{node}.{kind}"
        if name in self.daemons:
            self.daemons[name].terminate()
            self.daemons[name].wait(timeout=PATIENCE)
        flags = ["--node", node, "--server", self.addresses, "--address", "127.0.0.1", "--data-dir", self.folder / name]
        flags += ["--devices", f"cpu:{self.devices}", "--memory", "1GiB"] if kind == "agent" else ["--copies-dir", self.folder / f"{node}.copies"]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen([str(programs / f"lynx-{kind}"), *map(str, flags)], stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, start_new_session=True)

    def ctl(self, *arguments, timeout=60):
        return run(*arguments, timeout=timeout, env=self.env)

    def json(self, *arguments):
        """The answer of a verb as JSON; None if it failed."""
        result = self.ctl(*arguments, "-o", "json")
        return json.loads(result.out) if result.code == 0 else None

    def until(self, condition, what, timeout=PATIENCE, pause=0.05):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not within {timeout} s: {what}\n{self.logs()}")
            time.sleep(pause)

    def mend(self, server):
        """Lets a server that was stopped go on, and starts one that has ended, as a service manager does. A server that finds that
        another one leads ends, so this waits a while for its end."""
        if server.stopped:
            server.go_on()
            end = time.monotonic() + 15
            while server.runs() and time.monotonic() < end:
                time.sleep(0.05)
        if not server.runs():
            server.start()
        self.until(lambda: (server.get("/readyz") or (0,))[0] == 503 and (server.get("/healthz") or (0,))[0] == 200, f"{server.name} stands by")

    def await_servers(self):
        """Waits until each server leads or stands by."""
        def is_there(server):
            if not server.runs():
                raise AssertionError(f"{server.name} has ended\n{server.log()}")
            return (server.get("/healthz") or (0,))[0] == 200
        for server in self.all:
            self.until(lambda: is_there(server), f"{server.name}, which leads or stands by", pause=0.2)

    def leader(self):
        """The server that leads; waits until one does."""
        return self.until(lambda: next((server for server in self.all if server.leads()), None), "a server that leads")

    def attached(self):
        """The names of the nodes both of whose daemons are attached to the server that leads."""
        found = self.json("nodes") or {"nodes": []}
        return sorted(node["name"] for node in found.get("nodes", []) if node.get("agentAttached") and node.get("workerAttached"))

    def await_attached(self):
        self.until(lambda: self.attached() == self.nodes, "all nodes attached")

    def logs(self):
        return "\n".join(f"=== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def end(self):
        for server in self.all:
            if server.runs():
                server.go_on()
                server.kill()
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        ranks = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and self.rank_of(int(entry.name)):
                ranks.append(int(entry.name))
        kill([pid for pid in ranks if is_alive(pid)])

    def rank_of(self, pid, folder=""):
        """True if the process is a rank of these nodes, or measures for an agent. `folder`: a part of an argument."""
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return False
        return words[0].endswith("lynx-rank") and any(str(self.folder) in word and folder in word for word in words)

    def rank_pids(self):
        """The processes of jobs' ranks."""
        return sorted(int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and self.rank_of(int(entry.name), ".worker/"))
