"""Tests that the check before a restart finds a node that computes wrong results, and that the job goes on without this
node."""

import os
import shutil
import signal

from cluster import BIN, PROGRAMS, ClusterTest, processes

# Replaces lynx-rank: on one node the second matrix product of a run is wrong.
FAULTY_RANK = """#!/bin/sh
config=
for argument; do
  case "$last" in
    --config) config=$argument ;;
    --listen-fd) socket=$argument ;;
    --report-file) reports=$argument ;;
  esac
  last=$argument
done
case "$config" in
  */{bad}/*) exec {faulty} --config "$config" --listen-fd "$socket" --report-file "$reports" {fault} 0 ;;
  *) exec {rank} "$@" ;;
esac
"""


class CheckTest(ClusterTest):
    nodes = 3
    devices = 1
    bad = "node1"
    fault = "wrong-product"

    def up(self):
        self.binaries = self.directory / "bin"
        self.binaries.mkdir()
        for name in PROGRAMS:
            shutil.copy2(BIN / name, self.binaries)
        rank = self.binaries / "lynx-rank"
        rank.write_text(FAULTY_RANK.format(bad=self.bad, faulty=BIN / "faulty_rank", fault=self.fault, rank=BIN / "lynx-rank"))
        os.chmod(rank, 0o755)
        super().up()

    def reasons(self, page, kind):
        return [event["reason"] for event in page["events"] if event["kind"] == kind]

    def rank_on(self, node):
        """pid of the rank process that runs on the node."""
        found = [pid for pid, command in processes(self.home / node).items() if "--report-file" in command]
        self.assertEqual(len(found), 1, f"ranks on {node}")
        return found[0]

    def nodes_of(self, page):
        return sorted({rank["node"] for rank in page["placement"]})

    def test_a_node_that_computes_wrongly(self):
        job = self.submit(self.job_file(steps=800, ranks=2, tp=1, pp=2, every=20, max_restarts=1))
        page = self.await_steps(job, 25)
        self.assertIn(self.bad, self.nodes_of(page))
        self.assertEqual(self.reasons(page, "node-check"), [], "nothing has failed")
        os.kill(self.rank_on(next(node for node in self.nodes_of(page) if node != self.bad)), signal.SIGKILL)
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertNotIn(self.bad, self.nodes_of(page))
        self.assertEqual(page["excludedNodes"], [self.bad])
        self.assertRegex(self.reasons(page, "rank-lost")[-1],
                         rf"^rank \d on node {self.bad}: node check: the device computes wrongly: element \(0, 7\) of the product of "
                         r"matrices of 256 x 256 is \d+, not \d+, in product 2")
        self.assertRegex(self.reasons(page, "fault")[-1],
                         rf"^the failure of rank \d is attributed to node {self.bad}: the check of a device there has failed")
        self.assertEqual(self.reasons(page, "node-excluded"),
                         [f"node {self.bad} is not used for this job any more: the check of a device there has failed"])
        self.assertRegex(self.reasons(page, "node-check")[-1], r"^the check passed in .*s: 2 devices, 1 link, the slowest .*/s$")
        self.assertEqual(page["restarts"], 2, "of which one was paid for")
        print("\n" + self.reasons(page, "node-check")[-1])

    def test_the_last_node_is_kept(self):
        for node in ("node0", "node2"):
            self.assertEqual(self.ctl("node", "cordon", node).code, 0)
        job = self.submit(self.job_file(steps=100_000, ranks=1, tp=1, pp=1, every=20, max_restarts=2))
        self.await_steps(job, 25)
        os.kill(self.rank_on(self.bad), signal.SIGKILL)
        page = self.await_state(job, "FAILED", timeout=300)
        self.assertRegex(self.reasons(page, "node-kept")[0],
                         rf"^node {self.bad} is used further, though the check of a device there has failed: there is no other that the job "
                         r"could run on$")
        self.assertRegex(page["reason"], r"node check: the device computes wrongly: .* the budget, max_restarts 2, is spent")
        self.assertNotIn("excludedNodes", {key for key, value in page.items() if value})
