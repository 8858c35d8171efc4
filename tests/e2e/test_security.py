"""Tests a cluster with TLS and real processes: how nodes and people get access, and which nodes and people are refused."""

import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from cluster import BIN, JOB, kill, processes, run


class SecureClusterTest(unittest.TestCase):
    """A server with TLS in a temporary folder; a test decides which nodes join. Leaves nothing behind."""

    server_flags = ()

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-"))
        self.directory.chmod(0o755)
        self.daemons = {}
        self.addCleanup(self._clean_up)
        self.env = dict(os.environ, LYNX_HOME=str(self.directory), HOME=str(self.directory), NO_COLOR="1")
        for name in ("LYNX_SERVER", "LYNX_CONTEXT", "LYNX_TOKEN_FILE", "LYNX_CA_FILE", "LYNX_JOIN_TOKEN", "XDG_CONFIG_HOME"):
            self.env.pop(name, None)
        data = self.directory / "server"
        self.start("server", "lynx-server", "--listen", "127.0.0.1:0", "--tls", "--data-dir", data, "--metrics-address", "",
                   *self.server_flags)
        self.wait_for(lambda: (data / "server.address").exists(), "a server that listens")
        self.address = (data / "server.address").read_text().strip()
        self.admin = data / "admin.context"

    def _clean_up(self):
        for process in self.daemons.values():
            process.kill()
            process.wait()
        kill(processes(self.directory))
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name, binary, *arguments):
        with open(self.directory / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen([str(BIN / binary), *map(str, arguments)], stdout=log, stderr=log,
                                                  stdin=subprocess.DEVNULL, env=self.env)
        return self.daemons[name]

    def start_node(self, node, token):
        common = ("--node", node, "--server", self.address, "--identity-dir", self.directory / f"{node}.identity",
                  "--join-token-file", token)
        self.start(f"{node}.agent", "lynx-agent", *common, "--data-dir", self.directory / f"{node}.agent", "--devices", 2)
        self.start(f"{node}.worker", "lynx-worker", *common, *self.job_flags(), "--data-dir", self.directory / f"{node}.worker")

    def job_flags(self):
        """The flags of a worker daemon whose ranks run as user nobody and may read and write below two directories only."""
        checkpoints, data = self.directory / "server/jobs", self.directory / "data"
        for path in (checkpoints, data):
            path.mkdir(exist_ok=True)
        flags = ["--data-root", data, "--checkpoint-root", checkpoints]
        if os.geteuid() == 0:
            shutil.chown(checkpoints, "nobody")
            flags += ["--job-user", "nobody"]
        return flags

    def log(self, name):
        return (self.directory / f"{name}.log").read_text()

    def wait_for(self, condition, what, timeout=180):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"=== {name}\n{self.log(name)[-3000:]}" for name in self.daemons)
                self.fail(f"did not come to: {what}\n{logs}")
            time.sleep(0.1)

    def ctl(self, *arguments, context=None, timeout=60):
        return run("--context", context or self.admin, *arguments, timeout=timeout, env=self.env)

    def ok(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.code, 0, result)
        return result.out

    def join_token(self, *arguments):
        path = self.directory / f"token{len(list(self.directory.glob('token*')))}"
        self.ok("admin", "join-token", "--out", path, *arguments)
        return path

    def user(self, name, role):
        path = self.directory / f"{name}.context"
        self.ok("admin", "user", "add", name, "--role", role, "--context-file", path)
        return path

    def attached(self):
        nodes = json.loads(self.ok("nodes", "-o", "json"))["nodes"]
        return sorted(n["name"] for n in nodes if n["agentAttached"] and n["workerAttached"])

    def job_file(self, **changes):
        corpus = self.directory / "data/corpus.txt"
        corpus.parent.mkdir(exist_ok=True)
        corpus.write_text("The quick brown fox jumps over lazy dogs.\n" * 2000)
        values = dict(name="tiny", data=corpus, steps=10, ranks=4, memory="auto", tp=2, pp=2, recompute="auto", dtype="float32",
                      every=0, extra="", max_restarts=3)
        path = self.directory / "job.yaml"
        path.write_text(JOB.format(**dict(values, **changes)))
        return path


class MembersTest(SecureClusterTest):
    def test_nodes_join_a_job_trains_and_everybody_does_what_their_role_allows(self):
        tokens = [self.join_token(), self.join_token("--node", "n1")]
        for i, token in enumerate(tokens):
            self.start_node(f"n{i}", token)
        self.wait_for(lambda: self.attached() == ["n0", "n1"], "two nodes that have joined")

        # A token can be used only once, and only for the node that it names.
        again = subprocess.run([str(BIN / "lynx-worker"), "--node", "n2", "--server", self.address, "--identity-dir",
                                str(self.directory / "n2.identity"), "--join-token-file", str(tokens[0]), "--data-dir",
                                str(self.directory / "n2.worker"), *map(str, self.job_flags())], capture_output=True, text=True, env=self.env, timeout=120)
        self.assertEqual(again.returncode, 1)
        self.assertIn("the join token has been used", again.stderr)

        viewer, submitter = self.user("victor", "viewer"), self.user("susan", "submitter")
        job = self.job_file()
        refused = self.ctl("submit", "-f", job, context=viewer)
        self.assertEqual(refused.code, 5, refused)
        self.assertIn("victor is a viewer, and Jobs.SubmitJob needs a submitter", refused.err)
        trained = self.ctl("submit", "-f", job, "--wait", context=submitter, timeout=300)
        self.assertEqual(trained.code, 0, trained)
        self.assertIn("SUCCEEDED", self.ok("list", context=viewer))
        self.assertEqual(self.ctl("admin", "audit", context=submitter).code, 5)
        self.jobs_have_owners(submitter, viewer)

        # Completion offers names only to people who may see them.
        self.assertLessEqual({"victor", "susan"}, set(self.ok("__complete", "users").split()))
        self.assertEqual(self.ok("__complete", "users", context=viewer), "")

        # After a user is revoked, the server no longer knows the token of this user.
        self.ok("admin", "user", "revoke", "susan")
        gone = self.ctl("list", context=submitter)
        self.assertEqual(gone.code, 5, gone)
        self.assertIn("does not know this token", gone.err)
        self.ok("admin", "revoke-node", "n1")
        self.wait_for(lambda: self.attached() == ["n0"], "a node that is out")

        audit = json.loads(self.ok("admin", "audit", "-o", "json"))["records"]
        seen = {(r["who"], r["what"], r["outcome"]) for r in audit}
        for expected in (("victor", "Jobs.SubmitJob", "PERMISSION_DENIED"), ("susan", "Jobs.SubmitJob", "OK"),
                         ("", "Admin.Join", "OK"), ("", "Admin.Join", "UNAUTHENTICATED"), ("admin", "Admin.RevokeNode", "OK")):
            self.assertIn(expected, seen)
        self.assert_no_secrets(tokens, [viewer, submitter, self.admin])

    def jobs_have_owners(self, susan, viewer):
        """Whose jobs people see and may change. susan has a job that has ended."""
        tom = self.user("tom", "submitter")
        job = self.ok("submit", "-f", self.job_file(), "--set", "scheduling.hold=true", "--set", "scheduling.queue=research",
                      "-o", "name", context=tom).strip()
        # Without further options, a submitter sees only the submitter's own jobs, and any other user sees all jobs.
        names = lambda *arguments, **context: set(self.ok("list", "-o", "name", *arguments, **context).split())
        everybody = names()
        self.assertEqual(len(everybody), 2)
        self.assertEqual(names(context=viewer), everybody)
        self.assertEqual(names(context=tom), {job})
        self.assertEqual(names("--all-users", context=tom), everybody)
        self.assertEqual(names("-u", "susan", context=tom), everybody - {job})
        self.assertEqual(names("--user", "nobody"), set())
        self.assertIn("only jobs of tom; --all-users lists everybody's", self.ok("list", context=tom))
        listed = json.loads(self.ok("list", "-o", "json", context=tom))
        self.assertEqual((listed["owner"], [j["owner"] for j in listed["jobs"]]), ("tom", ["tom"]))
        self.assertRegex(self.ok("list"), r"USER +STATE")
        self.assertIn("by tom", self.ok("get", job, context=viewer))
        self.assertEqual(self.ctl("list", "--all-users", "--user", "tom").code, 2)

        # A user cannot change another user's job, unless an operator has made the user a manager of the job's queue.
        refused = self.ctl("cancel", job, context=susan)
        self.assertEqual(refused.code, 5, refused)
        self.assertIn("is a job of tom; tom and operators may change it, and susan is a submitter", refused.err)
        self.ok("cancel", "--all", context=susan)  # this cancels all jobs of susan, and so not this job
        self.ok("queue", "set", "research", "--manager", "susan")
        self.assertRegex(self.ok("queue", "list"), r"(?s)MANAGERS.*susan")
        self.ok("release", job, context=susan)
        self.ok("hold", job, context=susan)
        mistaken = self.ctl("queue", "set", "research", "--manager", "suzan")
        self.assertEqual(mistaken.code, 2, mistaken)
        self.assertIn("queue.managers[0] is suzan", mistaken.err)
        self.assertEqual(self.ctl("cancel", job, "--user", "tom").code, 2)
        self.ok("cancel", "--all", "-u", "tom")
        self.assertIn("CANCELLED", self.ok("list", context=tom))

    def assert_no_secrets(self, tokens, contexts):
        secrets = [token.read_text().strip().split(".")[1] for token in tokens]
        secrets += [json.loads(context.read_text())["token"] for context in contexts]
        places = {path: path.read_bytes() for path in self.directory.rglob("*.log")}
        places["command lines"] = "\n".join(processes(self.directory).values()).encode()
        for where, content in places.items():
            for secret in secrets:
                self.assertNotIn(secret.encode(), content, where)

    def test_plain_text_is_refused_with_what_to_do(self):
        plain = run("--server", self.address, "list", env=self.env)
        self.assertEqual(plain.code, 3, plain)
        self.assertIn("it speaks TLS, and this call was in plain text: give --context", plain.err)
        # A client refuses to talk to a server of another cluster.
        other = self.directory / "other"
        self.start("other", "lynx-server", "--listen", "127.0.0.1:0", "--tls", "--data-dir", other, "--metrics-address", "")
        self.wait_for(lambda: (other / "server.address").exists(), "a second server")
        address = (other / "server.address").read_text().strip()
        strange = self.ctl("--server", address, "list")
        self.assertEqual(strange.code, 3, strange)
        self.assertIn("its certificate is not of the authority", strange.err)
        worker = self.start("n0.worker", "lynx-worker", "--node", "n0", "--server", address, "--identity-dir",
                            self.directory / "n0.identity", "--join-token-file", self.join_token(), "--data-dir",
                            self.directory / "n0.worker", *self.job_flags())
        self.assertEqual(worker.wait(timeout=120), 1)
        self.assertIn("not of the cluster that the join token is for", self.log("n0.worker"))

    def test_a_join_token_may_come_in_the_environment_and_ranks_do_not_get_it(self):
        self.env["LYNX_JOIN_TOKEN"] = self.ok("admin", "join-token").strip()
        common = ("--node", "n0", "--server", self.address, "--identity-dir", self.directory / "n0.identity")
        self.start("n0.worker", "lynx-worker", *common, *self.job_flags(), "--data-dir", self.directory / "n0.worker")
        self.start("n0.agent", "lynx-agent", *common, "--data-dir", self.directory / "n0.agent", "--devices", 2)
        self.wait_for(lambda: self.attached() == ["n0"], "a node that has joined")
        job = json.loads(self.ok("submit", "-f", self.job_file(steps=100000, ranks=2, pp=1), "-o", "json"))["id"]
        ranks = lambda: [pid for pid, line in processes(self.directory).items() if "lynx-rank" in line and "--config" in line]
        self.wait_for(lambda: len(ranks()) == 2, "ranks that run")
        for pid in ranks():
            self.assertNotIn(b"LYNX_JOIN_TOKEN", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        self.ok("cancel", job)


class JobRightsTest(SecureClusterTest):
    def test_ranks_are_an_unprivileged_users_and_stay_below_the_roots(self):
        self.start_node("n0", self.join_token())
        self.wait_for(lambda: self.attached() == ["n0"], "a node that has joined")
        job = json.loads(self.ok("submit", "-f", self.job_file(steps=100000, ranks=2, pp=1), "-o", "json"))["id"]
        running = lambda: json.loads(self.ok("get", job, "-o", "json"))["state"] == "JOB_STATE_RUNNING"
        self.wait_for(running, "a job that trains")
        ranks = [pid for pid, line in processes(self.directory).items() if "lynx-rank" in line and "--config" in line]
        self.assertEqual(len(ranks), 2)
        for pid in ranks:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            self.assertNotIn("Uid:\t0\t", status)
            if os.geteuid() == 0:
                self.assertIn("NoNewPrivs:\t1", status)
                self.assertIn("CapEff:\t0000000000000000", status)
        self.ok("cancel", job)

        (self.directory / "data/link").symlink_to("/etc/hostname")
        for path, why in (("/etc/hostname", "data.path /etc/hostname is not allowed on this node"),
                          (self.directory / "data/link", "it leads to /etc/hostname"),
                          (self.directory / "data/../server.log", "it leads to")):
            bad = self.ctl("submit", "-f", self.job_file(name="bad", data=path, ranks=2, pp=1), "--wait", timeout=180)
            self.assertEqual(bad.code, 1, bad)
            self.assertIn(why, bad.out + bad.err)
            page = json.loads(self.ok("get", bad.out.split()[1], "-o", "json", "--events"))
            self.assertEqual(int(page.get("restarts", 0)), 0)
            self.assertIn("on node n0: data.path", page["reason"])
            self.assertIn("(lynx-worker --data-root, --checkpoint-root)", page["reason"])
            faults = [event["reason"] for event in page["events"] if event["kind"] == "fault"]
            self.assertEqual(len(faults), 1)
            self.assertIn("is attributed to the job", faults[0])

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_a_node_does_not_run_peoples_jobs_as_root_unless_told_so(self):
        flags = ["--node", "n0", "--server", self.address, "--identity-dir", self.directory / "n0.identity", "--data-dir",
                 self.directory / "n0.worker", "--join-token-file", self.join_token()]
        self.assertEqual(self.start("n0.worker", "lynx-worker", *flags).wait(timeout=120), 1)
        self.assertIn("would run as root on this node: name an unprivileged user with --job-user", self.log("n0.worker"))
        self.start("n0.worker", "lynx-worker", *flags, "--root-ranks")
        self.wait_for(lambda: "attached to the server" in self.log("n0.worker"), "a daemon that was told so")


def listening_ports(pids):
    """The TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                pass
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(f[1].split(":")[1], 16) for f in lines if f[3] == "0A" and f[9] in inodes}


class StrangersTest(SecureClusterTest):
    def job_flags(self):
        """Ranks run as the daemon's user, so that there are copies in memory, whose ports are open while a job trains."""
        return ["--root-ranks"] if os.geteuid() == 0 else []

    def ranks(self):
        return [pid for pid, line in processes(self.directory).items() if "lynx-rank" in line and "--config" in line]

    def molest(self, stop, counts):
        """Connects to every port of every rank and sends nothing, noise, or what a rank of an older release would send."""
        held, words = [], (b"", b"GET / HTTP/1.1\r\n\r\n", b"LXLO\x04" + bytes(187), b"LXLO\x05" + bytes(219), b"LXCO\x02" + bytes(51), b"LXCQ" + bytes(124))
        while not stop.is_set():
            for port in listening_ports(self.ranks()):
                for word in words:
                    try:
                        stranger = socket.create_connection(("127.0.0.1", port), timeout=5)
                        stranger.sendall(word)
                    except OSError:
                        continue
                    held.append(stranger)
                    counts[port] = counts.get(port, 0) + 1
            while len(held) > 100:
                held.pop(0).close()
            time.sleep(0.05)
        for stranger in held:
            stranger.close()

    def test_strangers_at_the_ports_of_ranks_are_turned_away_and_training_goes_on(self):
        for node in ("n0", "n1"):
            self.start_node(node, self.join_token())
        self.wait_for(lambda: self.attached() == ["n0", "n1"], "two nodes that have joined")
        stop, counts = threading.Event(), {}
        strangers = threading.Thread(target=self.molest, args=(stop, counts))
        strangers.start()
        self.addCleanup(stop.set)
        job = json.loads(self.ok("submit", "-f", self.job_file(steps=100000, extra=", copyEverySteps: 1"), "-o", "json"))["id"]
        get = lambda: json.loads(self.ok("get", job, "-o", "json"))
        turned_away = lambda: "turned away a connection for copies from 127.0.0.1:" in self.ok("logs", job)
        self.wait_for(lambda: int(get()["progress"].get("stepsDone", 0)) > 0 and turned_away(), "a job that trains among strangers")
        at = int(get()["progress"]["stepsDone"])
        self.wait_for(lambda: int(get()["progress"]["stepsDone"]) > at + 20, "twenty more steps")
        self.assertEqual(int(get().get("restarts", 0)), 0)
        self.assertTrue(counts)

        # The secret is in the ranks' configurations, and in no other place that other users can read.
        configs = list(self.directory.glob("*.worker/ranks/*/config.json"))
        self.assertEqual(len(configs), 4)
        secrets = {json.loads(config.read_text())["connection_secret"] for config in configs}
        self.assertEqual(len(secrets), 1)
        secret = secrets.pop()
        self.assertEqual({config.stat().st_mode & 0o777 for config in configs}, {0o600})
        told = [self.ok("logs", job), self.ok("get", job, "--events", "-o", "json"), self.ok("admin", "audit")]
        told += [log.read_text() for log in self.directory.rglob("*log*") if log.is_file()]
        for pid, line in processes(self.directory).items():
            told += [line, pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")]
        self.assertNotIn(secret, "".join(told))
        self.assertNotIn(secret.encode(), b"".join(path.read_bytes() for path in (self.directory / "server").rglob("*") if path.is_file()))
        stop.set()
        strangers.join()
        self.ok("cancel", job)


class RotationTest(SecureClusterTest):
    server_flags = ("--certificate-life", "30s")

    def test_certificates_are_renewed_while_everything_goes_on(self):
        token = self.join_token()
        self.start_node("n0", token)
        token_is_spent = lambda: (self.directory / "n0.identity/current/cert.pem").exists()
        self.wait_for(token_is_spent, "a node that has joined")
        link = self.directory / "n0.identity/current"
        host, port = self.address.split(":")
        first = (os.readlink(link), ssl.get_server_certificate((host, int(port))))
        self.wait_for(lambda: os.readlink(link) != first[0], "a new certificate of the node")
        self.wait_for(lambda: ssl.get_server_certificate((host, int(port))) != first[1], "a new certificate of the server")
        # When the first certificate has expired, the node's streams are closed, and it comes back with another
        # certificate.
        ended = lambda: all("with which node n0 has dialled has ended" in self.log(f"n0.{part}") for part in ("agent", "worker"))
        self.wait_for(ended, "the first one's end")
        self.wait_for(lambda: self.attached() == ["n0"], "a node that is attached with its new certificate")


if __name__ == "__main__":
    unittest.main()
