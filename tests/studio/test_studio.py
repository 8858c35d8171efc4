"""Tests `lynxctl studio` as people start it: its answers over HTTP equal those of `lynxctl plan`, and none of its processes
outlives it."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
DEADLINE = 200  # seconds; no test takes so long unless something hangs


class Studio:
    """A studio that runs. Use it with `with`."""

    def __init__(self, *arguments, folder=BIN):
        self.process = subprocess.Popen([str(folder / "lynxctl"), "studio", *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self.line)
        if found is None:
            raise AssertionError(self.line + self.process.stderr.read())
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self, how=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout=DEADLINE)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def send(self, method, path, body=None, **headers):
        """Status, headers and body of the reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read().decode()
        finally:
            connection.close()

    def ask(self, what, **question):
        status, _, body = self.send("POST", f"/api/{what}", json.dumps(question), Content_Type="application/json",
                                    Origin=f"http://127.0.0.1:{self.port}", Sec_Fetch_Site="same-origin")
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)

    def children(self):
        try:
            pids = [pid for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
                    for pid in (task / "children").read_text().split()]
        except OSError:
            return []
        return [int(pid) for pid in pids]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited too long: {what}")
        time.sleep(0.02)


def state(**changes):
    return {"model": {"preset": "gpt-1.3b"}, "machine": {"name": "a100-40gb-nvlink"}, "nodes": 1,
            "job": {"train.globalBatch": 64, "parallel.pp": 2}} | changes


# Planning it takes minutes: it is stopped before.
LONG = state(model={"preset": "gpt-1t"}, nodes=512, job={"train.globalBatch": 4096})


class StudioTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.studio = Studio()

    @classmethod
    def tearDownClass(cls):
        cls.studio.end()

    def test_its_plan_is_that_of_lynxctl_plan(self):
        """The page's job file and cluster file, given to lynxctl plan, give the same plan."""
        exported = self.studio.ask("export", state=state(), format="job")
        with tempfile.TemporaryDirectory() as folder:
            for file in exported["files"]:
                (pathlib.Path(folder) / file["name"]).write_text(file["text"])
            planned = subprocess.run([str(BIN / "lynxctl"), "plan", "-f", f"{folder}/job.yaml", "--cluster",
                                      f"{folder}/cluster.yaml", "--nodes", "1", "-o", "json"], capture_output=True, text=True,
                                     timeout=DEADLINE, check=True)
            table = subprocess.run([str(BIN / "lynxctl"), "plan", "-f", f"{folder}/job.yaml", "--cluster",
                                    f"{folder}/cluster.yaml", "--nodes", "1"], capture_output=True, text=True,
                                   timeout=DEADLINE, check=True)
        plan = json.loads(planned.stdout)
        answer = self.studio.ask("plan", state=state(), client="plan", sequence=0)
        summary = answer["summary"]
        self.assertEqual(summary["stepNs"], int(plan["stepNs"]))
        self.assertEqual(summary["microBatch"], plan["microBatch"])
        self.assertTrue(table.stdout.startswith(summary["layout"] + " ("), table.stdout)
        self.assertIn(plan["digest"], answer["parts"]["footer"])

    def test_the_same_layout_is_kept_when_asked_for(self):
        first = self.studio.ask("plan", state=state(), client="same", sequence=1)
        longer = state(job={"train.globalBatch": 64, "parallel.pp": 2, "model.seq": 1024})
        second = self.studio.ask("plan", state=longer, client="same", sequence=2, layout="same")
        self.assertTrue(second["summary"]["layoutKept"])
        self.assertEqual(second["summary"]["layout"], first["summary"]["layout"])
        self.assertEqual(second["state"]["job"], longer["job"])
        other = self.studio.ask("plan", state=longer, client="another", sequence=2, layout="same")
        self.assertFalse(other["summary"]["layoutKept"])

    def test_the_newest_question_wins(self):
        answers = {}

        def ask(sequence):
            answers[sequence] = self.studio.ask("plan", state=LONG, client="newest", sequence=sequence)

        first = threading.Thread(target=ask, args=(1,))
        first.start()
        wait_for(self.studio.children, "the planner begins")
        planner = self.studio.children()
        newest = self.studio.ask("plan", state=state(), client="newest", sequence=2)
        first.join(DEADLINE)
        self.assertEqual(answers, {1: {"sequence": 1, "stale": True}})
        self.assertIn("summary", newest)
        wait_for(lambda: not any(map(alive, planner)), "the planner of the first question ends")
        self.assertEqual(self.studio.ask("plan", state=state(), client="newest", sequence=1), {"sequence": 1, "stale": True})

    def test_a_question_ends_when_its_connection_is_closed(self):
        for what in ("plan", "more", "export"):
            question = {"state": LONG, "client": "gone", "sequence": 0} | ({"format": "megatron"} if what == "export" else {})
            connection = http.client.HTTPConnection("127.0.0.1", self.studio.port, timeout=DEADLINE)
            connection.request("POST", f"/api/{what}", json.dumps(question), {"Content-Type": "application/json"})
            wait_for(lambda: any(map(alive, self.studio.children())), "the planner begins")
            planner = self.studio.children()
            connection.close()
            wait_for(lambda: not any(map(alive, planner)), f"the planner ends with the connection of /api/{what}")
        self.assertIn("summary", self.studio.ask("plan", state=state(), client="gone", sequence=1))

    def test_errors_are_answers(self):
        cases = (
            (state(machine={"text": "apiVersion: lynx/v1\nkind: Cluster\nname: [\n"}), ("machine", 3)),
            (state(model={"config": "{]"}), ("model.config", 0)),
            (state(model={"preset": "gpt-1.4b"}), ("model.preset", 0)),
            (state(nodes=-1), ("nodes", 0)),
            (state(job={"model.sequence": 3}), ("job", 0)),
        )
        for number, (wrong, wanted) in enumerate(cases):
            error = self.studio.ask("plan", state=wrong, client="errors", sequence=number)["error"]
            self.assertEqual((error["field"], error["line"]), wanted, error)
            self.assertTrue(error["text"])

    def test_what_no_page_sends_is_refused(self):
        good = json.dumps({"state": state(), "client": "c", "sequence": 0})
        json_type = {"Content_Type": "application/json"}
        cases = (
            (421, "GET", "/api/choices", None, {"Host": "evil.example"}),
            (421, "POST", "/api/plan", good, {"Host": f"evil.example:{self.studio.port}", **json_type}),
            (403, "POST", "/api/plan", good, {"Origin": "http://evil.example", **json_type}),
            (403, "POST", "/api/plan", good, {"Sec_Fetch_Site": "cross-site", **json_type}),
            (415, "POST", "/api/plan", good, {"Content_Type": "text/plain"}),
            (400, "POST", "/api/plan", "{", json_type),
            (405, "GET", "/api/plan", None, {}),
            (404, "GET", "/api/nothing", None, {}),
            (413, "POST", "/api/plan", " " * (1 << 20) + good, json_type),
        )
        for wanted, method, path, body, headers in cases:
            status, _, text = self.studio.send(method, path, body, **headers)
            self.assertEqual(status, wanted, (method, path, headers, text))

    def test_it_listens_on_loopback_only(self):
        inode = [line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
                 if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == self.studio.port]
        self.assertEqual(inode, [f"0100007F:{self.studio.port:04X}"])


class StartTest(unittest.TestCase):
    def fails(self, *arguments):
        result = subprocess.run([str(BIN / "lynxctl"), "studio", *map(str, arguments)], capture_output=True, text=True,
                                timeout=DEADLINE, stdin=subprocess.DEVNULL)
        self.assertEqual(result.stdout, "")
        return result.returncode, result.stderr

    def test_begins_with_the_files_that_it_is_given(self):
        with Studio("-f", EXAMPLES / "gpt-22b.yaml", "--cluster", EXAMPLES / "clusters" / "h200.yaml") as studio:
            begin = json.loads(studio.send("GET", "/api/choices")[2])["state"]
            self.assertEqual(begin["model"], {"preset": "gpt-22b"})
            self.assertEqual(begin["machine"], {"name": "h200"})
            self.assertEqual(begin["job"]["parallel.tp"], 8)
            answer = studio.ask("plan", state=begin, client="c", sequence=0)
            self.assertIn("summary", answer, answer)

    def test_wrong_files_and_ports_are_told_at_once(self):
        code, text = self.fails("-f", "/no/such.yaml")
        self.assertEqual(code, 4)
        self.assertIn("/no/such.yaml", text)
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.yaml"
            wrong.write_text("apiVersion: lynx/v1\nkind: TrainingJob\nname: a\nmodels: {}\n")
            code, text = self.fails("-f", wrong)
            self.assertEqual(code, 2)
            self.assertIn(f"{wrong}:4:1", text)
        with Studio() as studio:
            code, text = self.fails("--port", studio.port)
            self.assertEqual(code, 5)
            self.assertIn(f"--port {studio.port}", text)
            with Studio() as second:
                self.assertNotEqual(second.port, studio.port)

    def test_a_missing_planner_is_told_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for program in ("lynxctl", "lynx-verbs"):
                shutil.copy(BIN / program, folder)
            result = subprocess.run([f"{folder}/lynxctl", "studio"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(result.returncode, 4)
        self.assertIn("lynx-studio is not there", result.stderr)

    def test_it_ends_with_its_questions(self):
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            studio = Studio()
            thread = threading.Thread(target=self.ask_in_vain, args=(studio,))
            thread.start()
            wait_for(studio.children, "the planner begins")
            planner = studio.children()
            self.assertEqual(studio.end(how), -how if how == signal.SIGKILL else 0)
            wait_for(lambda: not any(map(alive, planner)), "the planner ends with the studio")
            thread.join(DEADLINE)

    @staticmethod
    def ask_in_vain(studio):
        try:
            studio.ask("plan", state=LONG, client="vain", sequence=0)
        except (OSError, http.client.HTTPException):
            pass


if __name__ == "__main__":
    unittest.main()
