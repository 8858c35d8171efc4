"""Podman with its own store and networks. Only commands run by `within` reach the containers, and all containers end with the test."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/packages"))

from debian_tree import PATIENCE, PROGRAMS, Unavailable, acquire_options, codename, end_with_parent, from_mirror, run, sources

NEEDED = ("podman", "runc", "docker-compose", "catatonit", "/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns", "prometheus", "mmdebstrap", "iptables", "ip",
          "nsenter", "unshare")
COMPOSE = """#!/bin/sh
# 'docker compose' is Debian's docker-compose here. What it would build (--build) is built already.
[ "$1" = compose ] || exit 64
shift
for word; do
  shift
  [ "$word" = --build ] || set -- "$@" "$word"
done
exec docker-compose "$@"
"""


class Engine:
    """The container engine of one test. It keeps everything in the test's folder."""

    def __init__(self, folder):
        self.folder = folder
        self.service = None
        self.env = dict(os.environ, CONTAINERS_CONF=str(folder / "containers.conf"), DOCKER_HOST=f"unix://{folder}/podman.sock",
                        PATH=f"{folder}/programs:{PROGRAMS}")
        # The limits of this process, because the engine's default is a million, which this machine may not allow.
        files, processes = (min(resource.getrlimit(which)[1] & 0xffffffff, 32768) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\nlog_driver = "k8s-file"\n'
            '[engine]\nruntime = "runc"\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\n')
        (folder / "programs").mkdir()
        (folder / "programs" / "docker").write_text(COMPOSE)
        (folder / "programs" / "docker").chmod(0o755)

    def command(self, *words):
        places = {"root": "store", "runroot": "runroot", "tmpdir": "tmpdir", "network-config-dir": "networks"}
        return ["podman", *(f"--{option}={self.folder / name}" for option, name in places.items()), *map(str, words)]

    def build(self, tag, context, *options):
        """Builds an image. Uses this machine's network, because it fetches packages."""
        from_mirror("env", f"CONTAINERS_CONF={self.env['CONTAINERS_CONF']}", *self.command("build", "--network=host", "--tag", tag, *options, context))

    def import_debian(self, *tags):
        """Imports a minimal Debian, made from the machine's package sources, under the names that registries use."""
        archive = self.folder / "debian.tar"
        from_mirror("mmdebstrap", "--mode=root", "--variant=minbase", "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/locale/*",
                    "--aptopt=Acquire::Languages \"none\"", "--skip=cleanup/apt/lists", *acquire_options(), codename(), archive, *sources())
        run(*self.command("import", archive, tags[0]), env=self.env)
        archive.unlink()
        for tag in tags[1:]:
            run(*self.command("tag", tags[0], tag), env=self.env)

    def start(self):
        log = open(self.folder / "service.log", "wb")
        # A new /run, so that the files that the engine and its networks write there disappear when the namespaces end.
        script = "mount -t tmpfs tmpfs /run && ip link set lo up && exec \"$@\""
        self.service = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh",
             *self.command("system", "service", "--time=0", self.env["DOCKER_HOST"])],
            env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        log.close()
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "podman.sock").exists():
            if self.service.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"podman does not start here: {self.said()}")
            time.sleep(0.1)

    def said(self):
        return (self.folder / "service.log").read_text(errors="replace")[-3000:]

    def leader(self):
        """The pid, on this machine, of process 1 in the engine's namespaces."""
        return pathlib.Path(f"/proc/{self.service.pid}/task/{self.service.pid}/children").read_text().split()[0]

    def within(self, *command):
        return ["nsenter", f"--target={self.leader()}", "--net", "--mount", "--pid", f"--wd={ROOT}", *map(str, command)]

    def run(self, *command):
        return run(*self.within(*command), env=self.env, timeout=PATIENCE)

    def json(self, *command):
        """The JSON that a command prints on standard output; warnings on standard error are ignored. AssertionError if it fails."""
        done = subprocess.run(self.within(*command), env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def podman(self, *words):
        return self.run(*self.command(*words))

    def containers(self):
        """Name -> whether it is running."""
        return {found["Names"][0]: found["State"] == "running" for found in self.json(*self.command("ps", "--all", "--format=json"))}

    def end(self):
        try:
            if self.service is not None and self.service.poll() is None:
                subprocess.run(self.within(*self.command("rm", "--all", "--force", "--time=0")), env=self.env, capture_output=True, timeout=PATIENCE)
        finally:
            if self.service is not None:
                self.service.kill()  # this ends everything in its namespaces too
                self.service.wait(PATIENCE)
            subprocess.run(["umount", "--recursive", self.folder / "store/overlay"], capture_output=True)
