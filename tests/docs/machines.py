"""Simulates several machines on this one with namespaces, to run commands that pages give for several machines. Each
simulated machine has its own network, mounts, host name and processes. They share a file system in /srv. Nothing is left
when the test ends, even if the test is killed."""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "packages"))

from debian_tree import Unavailable, check_namespaces, end_with_parent, run_tests

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
PATIENCE = 120  # seconds for anything that must happen
USER = 64001
# $1: the name of the machine. $2: its folder. $3: the shared file system. $4: the programs. Files written below /etc, /var/lib
# and /usr/share go to the folder.
SETUP = """set -e
mount --make-rprivate /
for place in etc var/lib usr/share; do
  mkdir -p "$2/upper/$place" "$2/work/$place"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$2/upper/$place,workdir=$2/work/$place" "/$place"
done
cat "$2/hosts" >>/etc/hosts
echo "lynx:x:%(user)d:%(user)d::/nonexistent:/usr/sbin/nologin" >>/etc/passwd
echo "lynx:x:%(user)d:" >>/etc/group
sed -i 's/^root:[^:]*/root:*/' /etc/shadow  # sshd lets nobody in whose password is locked
hostname "$1"
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=0755 tmpfs /opt
mkdir -p /run/sshd /opt/lynx
mount --bind "$4" /opt/lynx
mount --bind "$3" /srv
ip link set lo up
exec sleep infinity
""" % {"user": USER}


def outside(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def check_machine(folder):
    """Checks that this machine can simulate others: raises Unavailable if not. `folder`: where their files will be."""
    check_namespaces(("unshare", "nsenter", "ip", "hostname"))
    places = [folder / "tried" / name for name in ("upper", "work")]
    for place in places:
        place.mkdir(parents=True)
    overlay = f"lowerdir=/etc,upperdir={places[0]},workdir={places[1]}"
    tried = subprocess.run(["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", overlay, "/etc"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Unavailable(f"no overlay can be mounted here: {tried.stderr.strip()}")


class Namespaces:
    """Namespaces that one process keeps alive."""

    def __init__(self, *kinds, script, arguments=()):
        self.held = subprocess.Popen(["unshare", *kinds, "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *map(str, arguments)],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=end_with_parent)
        deadline = time.monotonic() + PATIENCE
        while (leader := self.sleeping()) is None:
            if self.held.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{kinds}: {self.end()}")
            time.sleep(0.02)
        self.leader = leader

    def sleeping(self):
        """The pid, on this machine, of process 1 in the namespaces, once the script has come to its last command, `sleep`. Before: None."""
        try:
            child, = pathlib.Path(f"/proc/{self.held.pid}/task/{self.held.pid}/children").read_text().split()
            return child if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "sleep" else None
        except (OSError, ValueError):
            return None

    def end(self):
        """Ends the namespaces. Returns the output of the script."""
        self.held.kill()
        return self.held.communicate()[0].decode()


class Machine:
    def __init__(self, name, address, folder, shared, switch, hosts):
        self.name, self.folder = name, folder / name
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        (self.folder / "hosts").write_text(hosts)
        self.exports = []
        self.namespaces = Namespaces("--net", "--mount", "--uts", "--mount-proc", script=SETUP, arguments=(name, self.folder, shared, BIN))
        try:
            self.connect(address, switch)
        except BaseException:
            self.namespaces.end()
            raise

    def connect(self, address, switch):
        leader = self.namespaces.leader
        port = f"p{address.rpartition('.')[2]}"
        outside("nsenter", f"--target={switch.leader}", "--net", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", leader)
        outside("nsenter", f"--target={switch.leader}", "--net", "ip", "link", "set", port, "master", "switch", "up")
        outside("nsenter", f"--target={leader}", "--net", "ip", "address", "add", f"{address}/24", "dev", "eth0")
        outside("nsenter", f"--target={leader}", "--net", "ip", "link", "set", "eth0", "up")

    def within(self, *command):
        return ["nsenter", f"--target={self.namespaces.leader}", "--net", "--mount", "--uts", "--pid", f"--wd={self.home}", "env", "-i",
                "PATH=/opt/lynx:/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={self.home}", "LC_ALL=C.UTF-8", "NO_COLOR=1", *map(str, command)]

    def shell(self, text):
        return self.within("bash", "-euo", "pipefail", "-c", "\n".join([*self.exports, text]))

    def tried(self, text):
        return subprocess.run(self.shell(text), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=PATIENCE)

    def run(self, text):
        """Runs a command and returns its output. AssertionError with the output if it fails."""
        done = self.tried(text)
        if done.returncode != 0:
            raise AssertionError(f"on {self.name}: {text}: exit {done.returncode}\n{done.stdout}\n{self.logs()}")
        return done.stdout

    def start(self, text):
        """Starts a command that keeps running. Its output goes to its log."""
        with open(self.home / f"{text.split()[0].rpartition('/')[2]}.log", "ab") as log:
            return subprocess.Popen(self.shell(f"exec {text}"), stdin=subprocess.PIPE, stdout=log, stderr=log, preexec_fn=end_with_parent)

    def logs(self):
        return "\n".join(f"=== {self.name}: {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(self.home.glob("*.log")))


class Machines:
    """Simulated machines on one switch. `addresses`: name -> address. `folder`: for the files that the machines write."""

    def __init__(self, folder, addresses):
        check_machine(folder)
        shared = folder / "shared"
        shared.mkdir(parents=True)
        folder.chmod(0o755)
        hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
        self.switch = Namespaces("--net", script="ip link add switch type bridge && ip link set switch up && exec sleep infinity")
        self.all = {}
        try:
            for name, address in addresses.items():
                self.all[name] = Machine(name, address, folder, shared, self.switch, hosts)
        except BaseException:
            self.end()
            raise

    def __getitem__(self, name):
        return self.all[name]

    def end(self):
        for machine in self.all.values():
            machine.namespaces.end()
        self.switch.end()
