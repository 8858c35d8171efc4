"""A clean Debian tree in a folder, with systemd as its process 1. mmdebstrap makes it from the machine's package
sources, and systemd-nspawn boots it with its own network. Unavailable is raised, with the reason, if this machine
cannot do something."""

import ctypes
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import program

PROGRAMS = os.environ["PATH"] + ":/usr/sbin:/sbin"
NEEDED = ("mmdebstrap", "systemd-nspawn", "nsenter", "dpkg-deb", "dpkg-shlibdeps", "cpack")
PATIENCE = 300  # seconds for anything that must happen
FETCHED = 900  # seconds for a command that fetches packages from a mirror
NO_NETWORK = ("Could not resolve", "Could not connect", "Unable to connect", "Temporary failure", "Failed to fetch", "Cannot initiate the connection")


def end_with_parent():
    """Called in a child process: the kernel sends it SIGTERM when the test ends, even if the test is killed. systemd-nspawn then shuts its tree down."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Unavailable(unittest.SkipTest):
    pass


def build_folder():
    """The only argument of the calling program."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} BUILD_FOLDER")
    return pathlib.Path(sys.argv[1]).absolute()


def run_tests():
    """Runs the calling program's tests. If all of them raise Unavailable, exits with 77, which CTest counts as a skip."""
    program.main()


def check_namespaces(needed):
    """Checks that this is root, that it may make namespaces, and that these programs exist."""
    if os.geteuid() != 0:
        raise Unavailable("systems of their own are made and entered by root")
    missing = [name for name in needed if shutil.which(name, path=PROGRAMS) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    tried = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Unavailable(f"no namespaces can be made here: {tried.stderr.strip()}")


def check_machine(needed=NEEDED):
    if codename() is None:
        raise Unavailable("this is not Debian")
    check_namespaces(needed)


def codename():
    facts = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return facts.get("VERSION_CODENAME") if facts.get("ID") == "debian" else None


def sources():
    """The machine's own files of package sources."""
    found = [pathlib.Path("/etc/apt/sources.list")] + sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))
    return [str(path) for path in found if path.suffix in (".list", ".sources") and path.is_file() and path.stat().st_size > 0]


def run(*command, **more):
    """Runs a command and returns its output. AssertionError, with the end of the output, if the command fails."""
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, **more)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))}: exit {result.returncode}\n{result.stdout[-6000:]}")
    return result.stdout


def from_mirror(*command):
    """Runs a command that fetches packages. Unavailable if there is no mirror, or if it is too slow."""
    try:
        return run(*command, timeout=FETCHED)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the mirror is too slow: {FETCHED} s were not enough for '{command[0]}'") from None
    except AssertionError as error:
        if any(text in str(error) for text in NO_NETWORK):
            raise Unavailable(f"no packages can be fetched here: {str(error)[-500:]}") from None
        raise


def acquire_options():
    """The settings with which this machine's apt reaches its sources, if there are any."""
    lines = run("apt-config", "dump").splitlines()
    return [f"--aptopt={line}" for line in lines
            if line.startswith(("Acquire::http::Proxy ", "Acquire::https::Proxy ", "Acquire::Check-Valid-Until ", "Acquire::Check-Date "))]


def make_packages(build, folder):
    """Makes the Debian packages from the programs in that build folder."""
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=build, timeout=900)
    return sorted(folder.glob("*.deb"))


class Tree:
    def __init__(self, folder):
        self.root = folder / "tree"
        self.log = folder / "boot.log"
        self.nspawn = None
        self.leader = None

    def make(self):
        from_mirror("mmdebstrap", "--mode=root", "--variant=minbase", "--include=systemd,systemd-sysv", "--dpkgopt=force-unsafe-io",
                    "--dpkgopt=path-exclude=/usr/share/locale/*", "--aptopt=Acquire::Languages \"none\"", "--skip=cleanup/apt/lists", *acquire_options(),
                    codename(), self.root, *sources())

    def fetch(self, packages):
        """Puts the package files into the tree, and their dependencies into apt's store, because nothing can be fetched after it is booted."""
        folder = self.root / "packages"
        folder.mkdir(exist_ok=True)
        for package in packages:
            shutil.copy(package, folder)
        from_mirror("chroot", self.root, "apt-get", "install", "--yes", "--no-install-recommends", "--download-only",
                    *(f"/packages/{package.name}" for package in packages))

    def boot(self):
        with open(self.log, "wb") as out:
            self.nspawn = subprocess.Popen(
                ["systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine=lynx-{os.getpid()}", "--register=no", "--keep-unit",
                 "--private-network", "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", "--boot"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=end_with_parent)
        deadline = time.monotonic() + PATIENCE
        state = ""
        while state not in ("running", "degraded"):
            if self.nspawn.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"systemd does not start in the tree here ({state}): {self.log.read_text(errors='replace')[-1500:]}")
            time.sleep(0.2)
            self.leader = self.find_leader()
            if self.leader is not None:
                state = subprocess.run(self.within("systemctl", "is-system-running"), capture_output=True, text=True).stdout.strip()

    def find_leader(self):
        """The pid, on this machine, of process 1 in the tree; None if there is none."""
        try:
            children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        except OSError:  # the process has just ended
            return None
        return children[0] if children else None

    def within(self, *command):
        return ["nsenter", f"--target={self.leader}", "--all", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", "NO_COLOR=1", *map(str, command)]

    def run(self, *command, **more):
        return run(*self.within(*command), timeout=PATIENCE, **more)

    def succeeds(self, *command):
        return subprocess.run(self.within(*command), capture_output=True, timeout=PATIENCE).returncode == 0

    def path(self, absolute):
        return self.root / absolute.lstrip("/")

    def end(self):
        if self.nspawn is None:
            return
        if self.nspawn.poll() is None and (leader := self.find_leader()) is not None:
            os.kill(int(leader), signal.SIGKILL)  # this ends all processes of the tree, and then systemd-nspawn; ending only systemd-nspawn would leave them behind
        else:
            self.nspawn.kill()
        self.nspawn.wait(PATIENCE)
