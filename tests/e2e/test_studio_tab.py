"""Tests the studio as a tab of the live page: the running cluster is its first machine, and it makes the same plans as
lynxctl."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

import cluster

STATE = {"model": {}, "machine": {"name": "this cluster"}, "nodes": 0, "memoryBytes": 0, "linkScale": 1,
         "job": {"model.layers": 4, "model.hidden": 64, "model.heads": 4, "model.seq": 32, "model.vocab": 256,
                 "train.globalBatch": 8, "resources.ranks": 4}}


def send(address, method, path, body=None, **headers):
    """Status and body of the reply."""
    connection = http.client.HTTPConnection(address, timeout=200)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def ask(address, what, **question):
    status, body = send(address, "POST", f"/studio/api/{what}", json.dumps(question), Content_Type="application/json",
                        Origin=f"http://{address}", Sec_Fetch_Site="same-origin")
    if status != 200:
        raise AssertionError(f"{status}: {body}")
    return json.loads(body)


class StudioTabTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self.address = (self.home / "server" / "page.address").read_text().strip()

    def test_plans_for_the_cluster_as_lynxctl_does(self):
        status, page = send(self.address, "GET", "/studio/")
        self.assertEqual(status, 200)
        self.assertIn("Lynx studio", page)
        def look():
            return json.loads(send(self.address, "GET", "/studio/api/choices")[1])
        self.await_on_disk(lambda: [m["nodes"] for m in look()["machines"] if m["name"] == "this cluster"] == [2],
                           "two nodes that have been measured")
        choices = look()
        self.assertEqual(choices["cluster"], {"machine": "this cluster", "note": ""})
        machine = choices["machines"][0]
        self.assertEqual([machine["name"], machine["nodes"], machine["devicesPerNode"]], ["this cluster", 2, 2])
        self.assertGreater(machine["memoryBytes"], 0)
        self.assertEqual(choices["state"]["machine"], {"name": "this cluster"})
        node = json.loads(self.ctl("nodes", "node0", "-o", "json").out)
        profile = (node[0] if isinstance(node, list) else node.get("nodes", [node])[0])["profile"]
        self.assertEqual(machine["device"], profile["deviceKind"])

        got = ask(self.address, "plan", state=STATE, client="c", sequence=1)
        self.assertIn("summary", got, str(got)[:500])
        files = ask(self.address, "export", state=STATE, format="job")["files"]
        for file in files:
            (self.directory / file["name"]).write_text(file["text"])
        job, machine_file = (next(f["name"] for f in files if word in f["name"]) for word in ("job", "cluster"))
        self.assertIn(machine["text"], (self.directory / machine_file).read_text())
        plan = self.ctl("plan", "-f", self.directory / job, "--cluster", self.directory / machine_file, "-o", "json")
        self.assertEqual(plan.code, 0, plan)
        self.assertEqual(int(json.loads(plan.out)["stepNs"]), got["summary"]["stepNs"])

    def test_two_questions_at_a_time_with_the_lowest_priority(self):
        server = self.daemon("server")["pid"]
        large = dict(STATE, model={"preset": "gpt-20.2b"}, machine={"name": "h100"}, job={"train.globalBatch": 64})
        answers, at_once, priorities = [], 0, set()
        askers = [threading.Thread(target=lambda name=f"c{i}": answers.append(
            ask(self.address, "plan", state=large, client=name, sequence=1, layout="any"))) for i in range(4)]
        for asker in askers:
            asker.start()
        while any(asker.is_alive() for asker in askers):
            children = [pid for pid, command in cluster.processes("lynx-studio").items() if f"--parent {server} " in command]
            at_once = max(at_once, len(children))
            with contextlib.suppress(ProcessLookupError):
                priorities.update(os.getpriority(os.PRIO_PROCESS, pid) for pid in children)
        for asker in askers:
            asker.join()
        self.assertEqual([len(answers), ["summary" in answer for answer in answers]], [4, [True] * 4])
        self.assertIn(at_once, (1, 2), "of four questions")
        self.assertIn(19, priorities)

    def test_without_its_program_the_tab_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder) / "bin"
            programs.mkdir()
            for name in ("lynx-server", "lynx-opt"):
                shutil.copy2(cluster.BIN / name, programs / name)
            server = subprocess.Popen([programs / "lynx-server", "--listen=127.0.0.1:0", "--data-dir", f"{folder}/data",
                                       "--page-address=127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            named = pathlib.Path(folder) / "data" / "page.address"
            self.await_on_disk(lambda: named.exists() and named.read_text().strip(), "the live page's address")
            address = named.read_text().strip()
            self.assertEqual(send(address, "GET", "/")[0], 200)
            self.assertEqual(send(address, "GET", "/studio/")[0], 200)
            for told in (json.loads(send(address, "GET", "/studio/api/choices")[1]),
                         ask(address, "plan", state={}, client="c", sequence=1)):
                self.assertIn("lynx-studio is not there", told["error"]["text"])
            shutil.copy2(cluster.BIN / "lynx-studio", programs / "lynx-studio")
            found = json.loads(send(address, "GET", "/studio/api/choices")[1])
            self.assertIn("No node of this cluster", found["cluster"]["note"])
            self.assertNotEqual(found["state"]["machine"], {"name": "this cluster"})


if __name__ == "__main__":
    unittest.main()
