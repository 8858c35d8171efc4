"""Upgrades two servers on one PostgreSQL, and their agents and worker daemons, to the next minor version while a job trains and
people submit. The processes are upgraded one by one, in any order that operating.md allows. Servers of both versions lead in
turn. LYNX_PREVIOUS_BIN names the programs of the previous minor version; the seed of the order is printed, and LYNX_SEED sets
it."""

import os
import pathlib
import random
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import postgres  # noqa: E402
from cluster import BIN  # noqa: E402
from test_failover import ServersTest  # noqa: E402

PREVIOUS = pathlib.Path(os.environ.get("LYNX_PREVIOUS_BIN", BIN.parent / "previous" / "bin"))


def version_of(programs):
    return subprocess.run([str(programs / "lynx-worker"), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


@unittest.skipIf(postgres.binaries() is None, postgres.MISSING)
class ServersUpgradeTest(ServersTest):
    def setUp(self):
        self.versions = {programs: version_of(programs) for programs in (PREVIOUS, BIN)}
        self.assertNotEqual(*self.versions.values())
        database = postgres.Postgres()
        database.make_database()
        self.start(database, 2, PREVIOUS)

    def assert_goes_on(self, what):
        """Submissions are acknowledged, all nodes are attached, and the job trains on with the ranks that began."""
        before = len(self.submitter.acknowledged)
        self.servers.until(lambda: len(self.submitter.acknowledged) >= before + 2, f"submissions {what}")
        self.servers.await_attached()
        self.await_steps(self.job, self.steps(self.job) + 5)
        self.assertEqual(self.servers.rank_pids(), self.ranks, f"{what}\n{self.servers.logs()}")
        leader = self.servers.leader()
        listed = {server["address"]: server for server in self.servers.json("admin", "servers")["servers"]}
        self.assertEqual(listed[leader.address]["version"], self.versions[leader.programs])
        print(f"{what}: {self.versions[leader.programs]} leads, the job goes on", flush=True)

    def lose(self, server, programs=None):
        """Kills a server. Another one leads then, if it was the leader. Starts it again, with these programs if they are given."""
        led = server.leads()
        server.kill()
        if led:
            self.assertIsNot(self.servers.leader(), server)
        server.programs = programs or server.programs
        self.servers.mend(server)

    def version(self, node, kind):
        """What the server that leads knows of the daemon; empty: it is not attached."""
        found = {one["name"]: one for one in (self.servers.json("nodes") or {"nodes": []})["nodes"]}.get(node, {})
        return found.get(f"{kind}Version") if found.get(f"{kind}Attached") else ""

    def test_in_any_order(self):
        seed = int(os.environ.get("LYNX_SEED", random.randrange(2**32)))
        print(f"LYNX_SEED={seed}", flush=True)
        order = random.Random(seed)
        self.job, self.ranks = self.begin()
        first = self.servers.leader()
        second = next(server for server in self.servers.all if server is not first)
        if order.random() < 0.5:  # the standby is upgraded first, as the page says
            self.lose(second, BIN)
            self.assert_goes_on("a new server stands by")
            self.lose(first)
            self.assert_goes_on("a new server leads, an old one stands by")
        else:
            self.lose(first, BIN)
            self.assert_goes_on("a new server stands by, an old one leads after it was lost")
            self.lose(second)
            self.assert_goes_on("a new server leads, an old one stands by")
        new, old = (second, first) if second.programs == BIN else (first, second)

        # If an old server leads again, it refuses nodes of the new version. This has no other effect.
        self.lose(new)
        self.assert_goes_on("an old server leads after a new one")
        self.assertIs(self.servers.leader(), old)
        for kind in ("agent", "worker"):
            self.servers.start_daemon("n2", kind, BIN)
            log = self.folder / f"n2.{kind}.log"
            self.servers.until(lambda: "upgrade" in log.read_text(errors="replace"), f"a refusal in the log of the {kind} of n2")
        self.assert_goes_on("an old server leads, and has refused a new node")
        self.assertEqual(self.version("n2", "worker"), "")
        self.lose(old, BIN)
        self.servers.nodes.append("n2")
        self.assert_goes_on("both servers are new, and the new node is there")

        daemons = [(node, kind) for node in ("n0", "n1") for kind in ("agent", "worker")]
        order.shuffle(daemons)
        for node, kind in daemons:
            self.servers.start_daemon(node, kind, BIN)
            self.servers.until(lambda: self.version(node, kind) == self.versions[BIN], f"the new {kind} of {node}")
            self.assert_goes_on(f"the {kind} of {node} is new")
            if order.random() < 0.5:
                self.lose(self.servers.leader())
                self.assert_goes_on("and another server leads")
        self.assert_nothing_lost(self.job, self.ranks)
        self.assertEqual(self.servers.ctl("cancel", self.job).code, 0)


if __name__ == "__main__":
    unittest.main()
