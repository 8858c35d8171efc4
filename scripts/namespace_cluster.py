"""A cluster on this machine whose nodes have networks of their own, if the machine allows namespaces. scripts/chaos.py
breaks it, and bench/slow_link.py slows it down."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[1] / "build" / "bin"))
NODES = 4
INSIDE = "LYNX_CHAOS_NAMESPACES"  # an environment variable: this process runs in namespaces of its own


def enter_namespaces():
    """Starts this program again in namespaces of its own: network, mounts and process ids. So everything that the program
    starts ends with it. Returns True in the program that was started again; False if the machine does not allow namespaces."""
    if os.environ.get(INSIDE) is not None:
        return os.environ[INSIDE] == "1"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.getuid() != 0:
        command.append("--map-root-user")
    needed = ("mount -t tmpfs none /run && ip netns add a && ip link add name cable type veth peer name end netns a && "
              "nsenter --net=/run/netns/a tc qdisc add dev end root tbf rate 4mbit burst 32kb latency 400ms && "
              "ip link add name bridge0 type bridge")
    try:
        usable = subprocess.run([*command, "sh", "-c", needed], capture_output=True).returncode == 0
    except OSError:
        usable = False
    os.environ[INSIDE] = "1" if usable else ""
    if usable:
        os.execvp(command[0], [*command, sys.executable, *sys.argv])
    return False


def shell(*command):
    subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


class Network:
    """A bridge with the server on it, and for each node a network namespace with one cable. Without namespaces,
    everything uses the loopback interface."""

    def __init__(self, real):
        self.real = real
        self.server = "10.77.0.1" if real else "127.0.0.1"
        if not real:
            return
        shell("mount", "-t", "tmpfs", "none", "/run")
        shell("ip", "link", "set", "lo", "up")
        shell("ip", "link", "add", "bridge0", "type", "bridge")
        shell("ip", "address", "add", "10.77.0.1/24", "dev", "bridge0")
        shell("ip", "link", "set", "bridge0", "up")
        for n in range(NODES):
            shell("ip", "netns", "add", f"n{n}")
            shell("ip", "link", "add", f"cable{n}", "type", "veth", "peer", "name", "eth0", "netns", f"n{n}")
            shell("ip", "link", "set", f"cable{n}", "master", "bridge0", "up")
            self._inside(n, "ip", "address", "add", f"{self.address(n)}/24", "dev", "eth0")
            self._inside(n, "ip", "link", "set", "eth0", "up")
            self._inside(n, "ip", "link", "set", "lo", "up")

    def _inside(self, node, *command):
        shell(*self.command(node), *command)

    def address(self, node):
        return f"10.77.0.{10 + node}" if self.real else "127.0.0.1"

    def command(self, node):
        """Returns the words that must stand before a command so that it runs in the node's network."""
        return ["nsenter", f"--net=/run/netns/n{node}"] if self.real else []

    def cut(self, node, off):
        shell("ip", "link", "set", f"cable{node}", "down" if off else "up")

    def limit(self, node, rate):
        """Limits the rate at which the node sends; None: removes the limit."""
        shape = ["root", "tbf", "rate", rate or "", "burst", "32kb", "latency", "400ms"]
        self._inside(node, "tc", "qdisc", *(["add", "dev", "eth0", *shape] if rate else ["del", "dev", "eth0", "root"]))


class Disk:
    """A folder with a file system of its own, which can be filled up. Without namespaces, it is an ordinary folder."""

    def __init__(self, path, megabytes, real):
        self.path = path
        self.real = real
        path.mkdir(parents=True)
        if real:
            shell("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", path)

    def unmount(self):
        if self.real:
            shell("umount", "--lazy", self.path)

    def fill(self, full):
        ballast = self.path / ".ballast"
        if not full:
            ballast.unlink(missing_ok=True)
            return
        with open(ballast, "wb", buffering=0) as out:
            size = 1 << 20
            while size >= 512:
                try:
                    out.write(bytes(size))
                except OSError:
                    size //= 2


def ranks_of_machine(home):
    """Returns (pid, node, job, generation, rank) of every live rank process of this cluster."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        match = re.search(re.escape(str(home)) + r"/node(\d+)/worker/ranks/([^/]+)\.g(\d+)\.r(\d+)/config\.json", command)
        if match and state not in "ZX":
            found.append((int(entry.name), int(match[1]), match[2], int(match[3]), int(match[4])))
    return found


class Cluster:
    """A server, and on each node an agent and a worker daemon. The constructor starts nothing."""

    def __init__(self, home, network):
        self.home = home
        self.network = network
        real = network.real
        self.disks = {"server": Disk(home / "server", 64, real), "checkpoints": Disk(home / "checkpoints", 256, real)}
        self.disks.update({f"node{n}": Disk(home / f"node{n}", 64, real) for n in range(NODES)})
        self.lock = threading.RLock()
        self.processes = {}  # name -> Popen
        self.held = set()    # names of daemons that must stay down
        (home / "logs").mkdir()

    def arguments(self, name):
        server = f"{self.network.server}:7470"
        if name == "server":
            return [BIN / "lynx-server", "--insecure", f"--listen={server}", f"--data-dir={self.home}/server/data",
                    "--metrics-address=", "--node-timeout=8s"]
        node = int(name.split(".")[0][4:])
        common = [f"--node=node{node}", f"--server={server}", f"--address={self.network.address(node)}"]
        if name.endswith("agent"):
            cores = sorted(os.sched_getaffinity(0))
            return [*self.network.command(node), BIN / "lynx-agent", *common, f"--data-dir={self.home}/node{node}/agent",
                    "--devices=cpu:1", "--memory=1GiB", f"--cores={cores[node % len(cores)]}"]
        return [*self.network.command(node), BIN / "lynx-worker", *common, f"--data-dir={self.home}/node{node}/worker",
                f"--copies-dir={self.home}/node{node}/copies"]

    def names(self):
        return ["server"] + [f"node{n}.{kind}" for n in range(NODES) for kind in ("agent", "worker")]

    def start(self, name):
        with self.lock, open(self.home / "logs" / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(a) for a in self.arguments(name)], stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log, start_new_session=True)

    def watch_over(self):
        """Does what systemd does: restarts daemons that have ended and that are not held down."""
        with self.lock:
            for name in self.names():
                if name not in self.held and (name not in self.processes or self.processes[name].poll() is not None):
                    self.start(name)

    def signal(self, name, number):
        with self.lock:
            if self.processes[name].poll() is None:
                self.processes[name].send_signal(number)

    def ctl(self, *arguments, timeout=15):
        """Runs lynxctl with these arguments. Returns its parsed output; None: it failed, or the server does not answer."""
        try:
            result = subprocess.run([str(BIN / "lynxctl"), "--server", f"{self.network.server}:7470", "--timeout", "5",
                                     *map(str, arguments), "-o", "json"], capture_output=True, text=True, timeout=timeout,
                                    stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return None
        return json.loads(result.stdout) if result.returncode == 0 else None

    def jobs(self):
        page = self.ctl("list", "--limit", 1000)
        return None if page is None else {job["id"]: job for job in page.get("jobs", [])}


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop_everything(cluster):
    """Ends the daemons and the ranks of this cluster, and no other process."""
    with cluster.lock:
        for process in cluster.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    for pid, *_ in ranks_of_machine(cluster.home):
        send(pid, signal.SIGKILL)
