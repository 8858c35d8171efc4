#!/usr/bin/env python3
"""The life of the Debian packages in a clean tree under systemd: clean_tree_test.py BUILD_FOLDER. They are installed
and a cluster runs; it trains while its daemons are restarted and upgraded; then they are removed and purged. Exit code
77 and a reason if this machine cannot do it."""

import concurrent.futures
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))

from debian_tree import NEEDED, PATIENCE, Tree, build_folder, check_machine, make_packages, run, run_tests
from pages import commands_of, lines_of

SERVICES = ("lynx-server", "lynx-agent", "lynx-worker")
PACKAGES = ("lynx-common", "lynx-rank", *SERVICES, "lynxctl", "python3-lynx")
JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {{layers: 2, hidden: 32, heads: 4, seq: 32, vocab: 256}}
data: {{kind: text, path: /srv/corpus.txt}}
train: {{steps: {steps}, globalBatch: 4, microBatch: 2, optimizer: {{lr: 1e-3}}}}
resources: {{ranks: 2}}
"""
ENDLESS = 100_000_000
ROOT = pathlib.Path(__file__).resolve().parents[2]
# docs/install.md has the score that systemd gives to each service: how much more the service may do than it needs, from 0 to
# 10. The measured score may be higher by at most MORE.
SCORES = r"`systemd-analyze security` gives ([\d.]+) to the server, ([\d.]+) to the agent\s+and ([\d.]+) to the worker"
EXPOSED = dict(zip(SERVICES, map(float, re.search(SCORES, (ROOT / "docs/install.md").read_text()).groups())))
MORE = 0.1
# Shell -> the file where it looks for completions of lynxctl.
COMPLETIONS = {"bash": "/usr/share/bash-completion/completions/lynxctl", "zsh": "/usr/share/zsh/vendor-completions/_lynxctl",
               "fish": "/usr/share/fish/vendor_completions.d/lynxctl.fish"}
(MAKE, INSTALL, UPGRADE, REMOVE), (BACKUP,) = (commands_of("packages.clean_tree")[page] for page in ("docs/install.md", "docs/operating.md"))
BUILD = build_folder()


def packages_of_this_build(folder):
    """Makes the packages with the page's command, if this is the build that the command uses."""
    if BUILD != ROOT / "build":
        return make_packages(BUILD, folder)
    run("bash", "-c", MAKE, cwd=ROOT, timeout=900)
    shutil.copytree(BUILD / "packages", folder)
    return sorted(folder.glob("*.deb"))


def with_version(package, version, folder):
    """Makes a copy of `package` with another version."""
    raw = folder / package.stem
    run("dpkg-deb", "--raw-extract", package, raw)
    control = raw / "DEBIAN" / "control"
    old = re.search(r"^Version: (.*)$", control.read_text(), re.MULTILINE).group(1)
    control.write_text(control.read_text().replace(f"Version: {old}\n", f"Version: {version}\n").replace(f"(= {old})", f"(= {version})"))
    made = folder / f"{package.name.partition('_')[0]}_{version}_later.deb"
    run("dpkg-deb", "--build", "-Zgzip", "-z1", raw, made)
    shutil.rmtree(raw)
    return made


class CleanTreeTest(unittest.TestCase):
    def setUp(self):
        check_machine([*NEEDED, "man"])
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-packages-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tree = Tree(self.folder)
        self.addCleanup(self.tree.end)
        later = self.folder / "later"
        later.mkdir()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            made = pool.submit(self.tree.make)
            self.packages = packages_of_this_build(self.folder / "packages")
            self.later = [with_version(package, "99.0", later) for package in self.packages]
            made.result()
        self.assertEqual(sorted(package.name.partition("_")[0] for package in self.packages), sorted(PACKAGES))
        self.tree.fetch([*self.packages])
        self.tree.path("/srv/corpus.txt").write_text("".join(f"Line {i}: {i * 7 % 13} lazy dogs.\n" for i in range(2000)))
        for files, place in ((self.packages, "/root/build/packages"), (self.later, "/root/later")):
            self.tree.path(place).mkdir(parents=True)
            for package in files:
                shutil.copy(package, self.tree.path(place))
        # apt must not ask questions, because nobody is there to answer.
        self.tree.path("/etc/apt/apt.conf.d/90test").write_text('APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n')
        self.tree.boot()

    def said(self):
        return self.tree.run("journalctl", "--no-pager", "--lines=60", "--output=cat", *(f"--unit={service}" for service in SERVICES))

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            if time.monotonic() > deadline:
                self.fail(f"waited {PATIENCE} s for {what}\n{self.said()}")
            time.sleep(0.2)
        return value

    def type(self, text, folder="/root"):
        """Types the commands of a page."""
        return self.tree.run("bash", "-euo", "pipefail", "-c", f"cd {folder}\n{text}")

    def pid_of(self, service):
        return self.tree.run("systemctl", "show", "--property=MainPID", "--value", service).strip()

    def ranks(self):
        """The pids, on this machine, of the rank processes in the tree."""
        namespace = pathlib.Path(f"/proc/{self.tree.leader}/ns/pid").readlink()
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
                if words[0].endswith(b"/lynx-rank") and b"--config" in words and (entry / "ns/pid").readlink() == namespace:
                    found.add(entry.name)
            except OSError:
                continue
        return found

    def submit(self, name, steps):
        self.tree.path(f"/srv/{name}.yaml").write_text(JOB.format(name=name, steps=steps))
        # If the server listens on loopback, everybody on the machine may submit.
        self.tree.run("runuser", "-u", "nobody", "--", "lynxctl", "submit", "-f", f"/srv/{name}.yaml")

    def job(self, name):
        return json.loads(self.tree.run("lynxctl", "get", name, "-o", "json"))

    def steps(self, name):
        page = self.job(name)
        self.assertNotIn(page["state"], ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"), page["reason"])
        self.assertEqual(page["restarts"], 0)
        self.assertIn(page["generation"], ("0", "1"))
        return int(page["progress"]["stepsDone"])

    def assert_trains_on(self, ranks, after):
        done = self.steps("long")
        self.wait(lambda: self.steps("long") >= done + 5, f"5 more steps after {after}")
        self.assertEqual(self.ranks(), ranks, f"after {after}")

    def test_the_life_of_the_packages(self):
        self.installed()
        self.units_are_sound()
        self.has_pages_completions_and_shared_files()
        self.imports_the_python_package()
        ranks = self.trains_while_daemons_restart()
        self.trains_while_the_server_is_backed_up(ranks)
        self.trains_while_it_is_upgraded(ranks)
        self.is_removed_and_purged()

    def installed(self):
        """Installs the server first, so that it has its ports before the other daemons start. A directory of checkpoints
        exists already; the installation must not change its owner."""
        jobs = self.tree.path("/var/lib/lynx/server/jobs")
        (jobs / "earlier").mkdir(parents=True)
        self.tree.run("chown", "-R", "daemon:daemon", "/var/lib/lynx/server/jobs")
        alone = [package for package in self.packages if package.name.startswith(("lynx-common", "lynx-server", "lynxctl"))]
        self.tree.run("apt-get", "install", *(f"/packages/{file.name}" for file in alone))
        self.wait(lambda: self.tree.succeeds("lynxctl", "nodes"), "the server to answer")
        self.assertEqual(self.tree.run("stat", "--format=%U", "/var/lib/lynx/server", *(f"/var/lib/lynx/server/{name}" for name in ("jobs", "jobs/earlier"))),
                         "lynx\ndaemon\ndaemon\n")
        self.tree.run("rmdir", "/var/lib/lynx/server/jobs/earlier")
        self.tree.run("sh", "-c", "chown lynx-node:lynx /var/lib/lynx/server/jobs && chmod 2750 /var/lib/lynx/server/jobs")
        self.assertIn("gpt-bytes", self.type(INSTALL) + self.tree.run("lynxctl", "list"))
        for service in SERVICES:
            self.wait(lambda: self.tree.succeeds("systemctl", "is-active", service), f"{service} to be active")
            self.assertTrue(self.tree.succeeds("systemctl", "is-enabled", service))
        users = {service: self.tree.run("systemctl", "show", "--property=User", "--value", service).strip() for service in SERVICES}
        self.assertEqual(users, {"lynx-server": "lynx", "lynx-agent": "lynx-node", "lynx-worker": "lynx-node"})
        for attached in ('"agentAttached": true', '"workerAttached": true'):
            self.wait(lambda: attached in self.tree.run("lynxctl", "nodes", "-o", "json"), f"{attached}, with no configuration")
        self.wait(lambda: self.steps("gpt-bytes") >= 1, "the example to train")
        self.tree.run("lynxctl", "cancel", "gpt-bytes")
        self.wait(lambda: self.job("gpt-bytes")["state"] == "JOB_STATE_CANCELLED", "the example to end")

    def units_are_sound(self):
        said = self.tree.run("systemd-analyze", "verify", "--man=no", *(f"/lib/systemd/system/{service}.service" for service in SERVICES))
        self.assertEqual(said, "")
        for service, documented in EXPOSED.items():
            said = self.tree.run("systemd-analyze", "security", "--no-pager", service)
            score = float(re.search(r"Overall exposure level for .*: ([0-9.]+)", said).group(1))
            print(f"{service}: systemd-analyze security {score}")
            self.assertLessEqual(score, round(documented + MORE, 1), f"docs/install.md has {documented}\n{said}")

    def has_pages_completions_and_shared_files(self):
        """Files that no program needs but that people would miss."""
        self.tree.run("lynxctl", "man", "--out", "/root/man")
        names = sorted(path.stem for path in self.tree.path("/root/man").glob("*.1"))
        self.assertGreater(len(names), 40)
        pages = self.tree.path("/usr/share/man")
        for name in [*SERVICES, *names]:
            # Calls this machine's man, which looks only into the tree.
            self.assertEqual(run("man", "-M", pages, "-w", name).strip(), str(pages / "man1" / f"{name}.1.gz"))
            self.assertRegex(run("man", "-M", pages, name, env=dict(os.environ, MANWIDTH="200", LC_ALL="C.UTF-8")),
                             rf"(?ms)^NAME\n +{name} - .*^SYNOPSIS\n +{re.match('lynxctl|.*', name).group()}[ \n]")
        for shell, place in COMPLETIONS.items():
            self.assertEqual(self.tree.path(place).read_text(), self.tree.run("lynxctl", "completion", shell), place)
        self.assertEqual(self.tree.path("/usr/share/lynx/job-schema.json").read_text(), self.tree.run("lynxctl", "defaults", "--schema"))
        shared = {"grafana", "prometheus", "provisioning"}
        wanted = {path.relative_to(ROOT / "dashboards"): path.read_text() for name in shared for path in (ROOT / "dashboards" / name).rglob("*")
                  if path.is_file() and path.name != "lynx_rules_test.yml"}
        self.assertGreater(len(wanted), 8)
        self.assertEqual(self.files_below("/usr/share/lynx", shared), wanted)
        self.assertEqual(self.tree.path("/usr/share/lynx/docs/runbooks.md").read_text(), (ROOT / "docs/runbooks.md").read_text())
        self.assertEqual(self.files_below("/usr/share/doc/lynxctl/examples"), {path.relative_to(ROOT / "examples"): path.read_text()
                                                                             for path in (ROOT / "examples").rglob("*") if path.is_file()})

    def imports_the_python_package(self):
        """The package finds the exact solver and the ready-made machines, and plans and calls as lynxctl does."""
        python = [package for package in self.packages if package.name.startswith("python3-lynx")]
        self.tree.run("apt-get", "install", *(f"/packages/{file.name}" for file in python))
        said = self.tree.run("python3", "-c", "import lynx; print(lynx.plan(lynx.Job(model='gpt-22b', batch=64), lynx.Cluster('h100')))\n"
                             "print(lynx.plan(lynx.Job('/usr/share/doc/lynxctl/examples/gpt-bytes.yaml', recompute='opt')).stages)\nprint(lynx.Client().nodes())")
        self.assertIn("predicted: step", said)
        self.assertIn(self.tree.run("lynxctl", "nodes", "-o", "name").split()[0], said)
        self.assertTrue(self.tree.path("/usr/lib/python3/dist-packages/lynx/__pycache__").is_dir(), "postinst compiles the modules")
        self.tree.run("apt-get", "remove", "python3-lynx")
        self.assertFalse(self.tree.path("/usr/lib/python3/dist-packages/lynx").exists(), "prerm removes what was compiled")

    def files_below(self, folder, names=("",)):
        """Path -> text of the files in these subfolders."""
        root = self.tree.path(folder)
        return {path.relative_to(root): path.read_text() for name in names for path in (root / name).rglob("*") if path.is_file()}

    def trains_while_daemons_restart(self):
        options = self.tree.path("/etc/default/lynx-agent")
        options.write_text(options.read_text().replace('7473"', '7473 --devices 2 --memory 256MiB"'))
        self.tree.run("systemctl", "restart", "lynx-agent")
        self.submit("long", ENDLESS)
        self.wait(lambda: self.steps("long") >= 5, "the first steps")
        ranks = self.ranks()
        self.assertEqual(len(ranks), 2)
        for service in reversed(SERVICES):
            before = self.pid_of(service)
            self.tree.run("systemctl", "restart", service)
            self.assertNotEqual(self.pid_of(service), before)
            self.wait(lambda: self.tree.succeeds("lynxctl", "get", "long"), "the server to answer")
            self.assert_trains_on(ranks, f"{service} was restarted")
        return ranks

    def trains_while_the_server_is_backed_up(self, ranks):
        self.tree.path("/backup").mkdir()
        self.type(BACKUP)
        self.wait(lambda: self.tree.succeeds("lynxctl", "get", "long"), "the server to answer")
        self.assert_trains_on(ranks, "the backup")
        kept = self.tree.run("tar", "-tzf", "/backup/lynx-server.tar.gz").split()
        self.assertIn("server/lynx.db", kept)
        self.assertEqual(self.tree.path("/backup/lynx-server.tar.gz").stat().st_mode & 0o777, 0o600, "the cluster's keys are in it")
        self.assertEqual([path for path in kept if path.startswith("server/jobs")], [])

    def trains_while_it_is_upgraded(self, ranks):
        before = {service: self.pid_of(service) for service in SERVICES}
        options = self.tree.path("/etc/default/lynx-agent").read_text()
        self.type(UPGRADE, "/root/later")
        for package in PACKAGES:
            if package == "python3-lynx":  # this package was removed before
                continue
            self.assertEqual(self.tree.run("dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", package), "99.0 installed")
        for service in SERVICES:
            self.assertNotIn(self.pid_of(service), (before[service], "0"), service)
        self.assertEqual(self.tree.path("/etc/default/lynx-agent").read_text(), options)
        self.wait(lambda: self.tree.succeeds("lynxctl", "get", "long"), "the server to answer")
        self.assert_trains_on(ranks, "the upgrade")
        self.tree.run("lynxctl", "cancel", "long", "--checkpoint")
        self.wait(lambda: self.job("long")["state"] == "JOB_STATE_CANCELLED", "the job to write a checkpoint and leave")
        page = self.job("long")
        self.assertGreater(int(page["checkpointStep"]), 0)
        self.assertTrue(page["checkpointPath"].startswith("/var/lib/lynx/server/jobs/"), page["checkpointPath"])
        self.checkpoint = self.tree.path(page["checkpointPath"])
        self.assertTrue(self.checkpoint.is_dir())
        # Members of the group lynx can read the checkpoint, other users cannot.
        self.assertTrue(self.tree.succeeds("runuser", "-u", "lynx", "--", "lynxctl", "checkpoint", "verify", page["checkpointPath"]))
        self.assertFalse(self.tree.succeeds("runuser", "-u", "nobody", "--", "ls", "/var/lib/lynx/server/jobs"))
        # Ranks cannot read the server's files.
        self.assertTrue(self.tree.succeeds("runuser", "-u", "lynx", "--", "cat", "/var/lib/lynx/server/lynx.db"))
        self.assertFalse(self.tree.succeeds("runuser", "-u", "lynx-node", "--", "cat", "/var/lib/lynx/server/lynx.db"))
        self.submit("short", 3)
        self.wait(lambda: self.steps("short") >= 0 and self.job("short")["state"] == "JOB_STATE_SUCCEEDED", "a job of the new programs")

    def is_removed_and_purged(self):
        self.submit("last", ENDLESS)
        self.wait(lambda: self.steps("last") >= 1, "steps of a job whose worker is removed")
        self.assertEqual(len(self.ranks()), 2)
        drain, remove, purge = lines_of(REMOVE)
        self.type(drain)
        self.wait(lambda: not self.ranks(), "the ranks to leave")
        self.type(drain.replace(" drain ", " uncordon "))
        self.wait(lambda: len(self.ranks()) == 2, "ranks that are left")
        self.type(remove)
        self.assertEqual(self.ranks(), set(), "nobody looks after ranks without a worker daemon")
        said = self.type(purge)
        # All packages depend on the purged package, so they were removed too. The configuration of packages that were only
        # removed is left.
        states = dict(line.split() for line in self.tree.run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", "lynx*").splitlines())
        left = [package for package, state in states.items() if state != "not-installed"]
        self.assertEqual({states[package] for package in left}, {"config-files"}, states)
        self.assertTrue(self.tree.path("/etc/default/lynx-agent").exists())
        said += self.tree.run("apt-get", "purge", *left)
        self.assertIn("checkpoints are left in /var/lib/lynx/server/jobs", said)
        self.assertTrue(self.checkpoint.is_dir(), "checkpoints are people's work")
        left = {str(path.relative_to(self.tree.path("/var/lib/lynx"))) for path in self.tree.path("/var/lib/lynx").glob("*/*")}
        self.assertEqual(left, {"server/jobs"})
        etc = [str(path) for path in self.tree.path("/etc").rglob("*lynx*")]
        self.assertEqual(etc, [])
        for place in ("/usr/lib/lynx", "/usr/share/lynx", *COMPLETIONS.values()):
            self.assertFalse(self.tree.path(place).exists(), place)
        self.assertEqual([str(path) for path in self.tree.path("/usr/share/man").rglob("lynx*")], [])
        self.assertEqual([str(path) for path in self.tree.path("/usr/bin").glob("lynx*")], [])
        self.assertEqual(self.tree.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "lynx*"), "")


if __name__ == "__main__":
    run_tests()
