"""Tests lynx.Client with a cluster on this machine, which is started as people start one."""

import asyncio
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import lynx
import postgres
import test_security
from cluster import ClusterTest
from servers import Servers


class ClientTest(ClusterTest):
    def setUp(self):
        super().setUp()
        for name in ("LYNX_HOME", "XDG_CONFIG_HOME"):
            earlier = os.environ.get(name)
            os.environ[name] = self.env[name]
            self.addCleanup(os.environ.__setitem__, name, earlier) if earlier else self.addCleanup(os.environ.pop, name)
        self.client = lynx.Client(timeout=30)

    def test_the_life_of_a_job(self):
        """One test with one cluster, because starting a cluster takes most of the time."""
        self.assertEqual(len(self.client.nodes()), 2)
        self.assertEqual(self.client.whoami().name, "local")
        self.submits_and_watches()
        self.reads_what_happened()
        self.cancels_holds_and_lists()
        self.refuses_mistakes()
        self.follows_while_it_runs()
        self.runs_the_example()
        self.outlives_the_server()

    def submits_and_watches(self):
        job = self.client.submit(self.job_file(steps=40), key="once")
        self.assertEqual(self.client.submit(self.job_file(steps=40), key="once").id, job.id)
        states = []
        kinds = []
        for update in self.client.watch(job):
            states.append(update.job.state)
            kinds += [event.kind for event in update.events]
        self.assertEqual(states[-1], "succeeded")
        self.assertIn("planned", kinds)
        self.done = self.client.wait("tiny")
        self.assertEqual((self.done.state, self.done.progress.steps_done, self.done.name), ("succeeded", 40, "tiny"))
        self.assertTrue(self.done.ended)
        self.assertIn("succeeded", repr(self.done))

        async def collect():
            return [update.job.state async for update in self.client.watch(job)]
        self.assertEqual(asyncio.run(collect())[-1], "succeeded")

    def reads_what_happened(self):
        page = self.get(self.done.id)
        events = list(self.client.events(self.done))
        self.assertEqual([event.kind for event in events], [event["kind"] for event in page["events"]])
        metrics = self.client.metrics(self.done)
        self.assertEqual(sum(row.steps for row in metrics), 40)
        self.assertAlmostEqual(metrics[-1].loss, self.done.progress.loss, delta=1.0)
        self.assertEqual(list(metrics.to_pandas()["loss"]), metrics.column("loss"))
        plan = self.client.plan(self.done)
        self.assertEqual(plan.digest, page["plan"]["digest"])
        self.assertEqual((plan.tp, plan.pp), (2, 2))
        self.assertIn("predicted", str(plan))
        self.assertIn("<html", plan.html())
        self.assertTrue(plan.memory)
        with self.assertRaisesRegex(lynx.Error, "lynx.plan"):
            plan.export("megatron")
        lines = list(self.client.logs(self.done, rank=0))
        self.assertTrue(all(line.rank == 0 for line in lines))
        followed = {line.text for line in self.client.logs(self.done, follow=True) if line.rank == 0}
        self.assertLessEqual({line.text for line in lines}, followed)

    def cancels_holds_and_lists(self):
        job = self.client.submit(self.job_file("long", steps=1_000_000), hold=True)
        self.assertTrue(self.client.get("long").held)
        self.client.release("long")
        self.assertFalse(self.client.get("long").held)
        self.client.hold(job, reason="a test")
        table = self.client.list(states=["succeeded"])
        self.assertEqual(table.column("name"), ["tiny"])
        self.assertEqual(self.client.list().column("name"), ["long", "tiny"])
        self.assertEqual(self.client.list(limit=1).column("name"), ["long"])
        self.client.cancel(job, reason="enough")
        self.assertEqual(self.client.wait(job).state, "cancelled")
        self.assertIn("default", self.client.queues().column("name"))

    def refuses_mistakes(self):
        for call, code in ((lambda: self.client.get("nobody"), "not_found"),
                           (lambda: list(self.client.watch("nobody")), "not_found"),
                           (lambda: self.client.events("nobody"), "not_found"),
                           (lambda: self.client.logs("nobody"), "not_found"),
                           (lambda: self.client.plan("nobody"), "not_found"),
                           (lambda: self.client.metrics("nobody"), "not_found"),
                           (lambda: self.client.list(states=["asleep"]), "invalid_argument"),
                           (lambda: self.client.submit(lynx.Job(model={"layers": 1})), "invalid_argument"),
                           (lambda: lynx.Client(timeout=0), "invalid_argument"),
                           (lambda: lynx.Client("no address"), "invalid_argument"),
                           (lambda: lynx.Client(context="/nowhere/context"), "not_found"),
                           (lambda: lynx.Client("127.0.0.1:1", timeout=1).list(), "unavailable")):
            with self.assertRaises(lynx.Error) as raised:
                call()
            self.assertEqual(raised.exception.code, code, raised.exception)
        with self.assertRaises(lynx.Unavailable):
            lynx.Client(["127.0.0.1:1", "127.0.0.1:2"], timeout=1).list()

    def follows_while_it_runs(self):
        """A watch ends when it is closed, also while nothing happens; a loop of asyncio goes on beside it."""
        job = self.client.submit(self.job_file("silent", steps=10), hold=True)
        watch = self.client.watch(job)
        self.assertEqual(next(watch).job.state, "queued")
        threading.Timer(0.3, watch.close).start()
        self.assertEqual(list(watch), [])

        async def cancelled():
            watch = self.client.watch(job)
            await watch.__anext__()
            task = asyncio.create_task(watch.__anext__())
            await asyncio.sleep(0.2)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
        self.assertEqual(asyncio.run(cancelled()), "cancelled")
        self.client.cancel(job)

    def runs_the_example(self):
        done = subprocess.run([sys.executable, str(ROOT / "examples/python/watch_a_job.py")], capture_output=True, text=True,
                              timeout=300, cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("succeeded", done.stdout)
        guide = (ROOT / "docs/python.md").read_text().partition("<!-- reference")[0]
        blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        blocks = [block for block in blocks if "Client" in block]
        self.assertTrue(blocks)
        for block in blocks:
            done = subprocess.run([sys.executable, "-c", "import lynx\n" + block], capture_output=True, text=True, timeout=300,
                                  cwd=self.directory)
            self.assertEqual(done.returncode, 0, done.stderr)

    def outlives_the_server(self):
        """A watch goes on after the server was killed and started again. The first of two addresses does not answer."""
        address = self.client.server
        client = lynx.Client(["127.0.0.1:1", address], timeout=30)
        job = client.submit(self.job_file("stubborn", steps=1_000_000))
        seen = []
        with client.watch(job) as watch:
            for update in watch:
                seen.append(update.job.state)
                if update.job.state == "running":
                    break
            self.kill_daemon("server")
            self.up()
            client.cancel(job)
            for update in watch:
                seen.append(update.job.state)
        self.assertEqual(seen[-1], "cancelled")


class ContextTest(test_security.SecureClusterTest):
    """The contexts, authorities and tokens that lynxctl makes."""

    def test_tls_and_tokens(self):
        viewer = self.user("vera", "viewer")
        client = lynx.Client(context=viewer)
        self.assertEqual((client.whoami().name, client.whoami().role), ("vera", "viewer"))
        with self.assertRaises(lynx.Error) as raised:
            client.submit(self.job_file())
        self.assertEqual(raised.exception.code, "permission_denied")
        job = lynx.Client(context=str(self.admin)).submit(self.job_file())
        self.assertEqual(client.get(job).state, "queued")
        context = json.loads(viewer.read_text())
        (self.directory / "ca.pem").write_text(context["authority"])
        (self.directory / "token").write_text(context["token"])
        (self.directory / "token").chmod(0o600)
        by_files = lynx.Client(self.address, ca_file=self.directory / "ca.pem", token_file=self.directory / "token")
        self.assertEqual(by_files.whoami().name, "vera")
        with self.assertRaisesRegex(lynx.Unavailable, "TLS"):
            lynx.Client(self.address, no_context=True, timeout=5).list()
        with self.assertRaisesRegex(lynx.Error, "token"):
            lynx.Client(self.address, token_file=self.directory / "token")
        alone = lynx.Client(self.address, ca_file=self.directory / "ca.pem", token_file=self.directory / "token", no_context=True)
        self.assertEqual(alone.whoami().name, "vera")
        with self.assertRaisesRegex(lynx.Error, "only sent over TLS"):
            lynx.Client(self.address, token_file=self.directory / "token", no_context=True)
        with self.assertRaisesRegex(lynx.Error, "no_context: a context is named"):
            lynx.Client(self.address, context=viewer, no_context=True)


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class LeaderTest(unittest.TestCase):
    """Several servers on one PostgreSQL: calls go to the one that leads, and a watch follows it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-python-leader-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.postgres = postgres.Postgres()
        self.addCleanup(self.postgres.clean_up)
        self.postgres.make_database()
        self.servers = Servers(self.folder, self.postgres, servers=2, nodes=0)
        self.addCleanup(self.servers.end)
        self.servers.start()
        self.servers.await_servers()

    def test_another_server_takes_over(self):
        client = lynx.Client([server.address for server in self.servers.all], no_context=True, timeout=60)
        model = {"layers": 2, "hidden": 32, "heads": 4, "seq": 32}
        job = client.submit(lynx.Job(name="waits", model=model, data={"path": "corpus.txt"}, steps=5, batch=4, ranks=2), hold=True)
        with client.watch(job) as watch:
            self.assertEqual(next(watch).job.state, "queued")
            self.servers.leader().kill()
            self.assertEqual(client.get(job).id, job.id)
            client.cancel(job)
            self.assertEqual([update.job.state for update in watch][-1], "cancelled")


if __name__ == "__main__":
    unittest.main()
