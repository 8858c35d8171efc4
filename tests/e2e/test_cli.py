"""Tests what lynxctl prints about a cluster: every output format, events, logs, the history, the overview of the cluster, a
job's report."""

import csv
import html.parser
import io
import json
import os
import signal
import subprocess

import yaml

from cluster import BIN, ClusterTest, processes


class Page(html.parser.HTMLParser):
    """Checks that a page closes its tags in order, and collects what the page contains and where."""

    VOID = {"meta", "link", "br", "rect", "line", "path", "circle"}

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.rects, self.references, self.titles = [], set(), {}, [], 0
        self.feed(text)
        self.close()
        if self.open:
            raise AssertionError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        self.references += [values[name] for name in ("src", "href") if name in values]
        if tag == "rect":
            section = next((i for t, i in reversed(self.open) if t == "section"), None)
            self.rects.setdefault(section, []).append(values)
        self.titles += tag == "title"
        if tag not in self.VOID or (tag in ("rect", "line", "path", "circle") and not self.get_starttag_text().endswith("/>")):
            self.open.append((tag, values.get("id")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            raise AssertionError(f"</{tag}> closes {self.open[-3:]}")
        self.open.pop()


class CliTest(ClusterTest):
    def ok(self, *arguments, timeout=120):
        result = self.ctl(*arguments, timeout=timeout)
        self.assertEqual(result.code, 0, f"{arguments}: {result}\n{self.daemon_logs()}")
        return result.out

    def rows(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.ok(*arguments, "-o", "csv"))))

    def test_forms_of_output(self):
        dry = self.ctl("submit", "-f", self.job_file(), "--dry-run", "--set", "train.steps=7")
        self.assertEqual(dry.code, 0, dry)
        self.assertEqual(yaml.safe_load(dry.out)["train"]["steps"], 7)
        self.assertIn("nothing was submitted", dry.err)
        self.assertEqual(json.loads(self.ok("submit", "-f", self.job_file(), "--dry-run", "-o", "json"))["name"], "tiny")
        refused = self.ctl("submit", "-f", self.job_file(), "--dry-run", "--wait")
        self.assertEqual((refused.code, "nothing to wait for" in refused.err), (2, True), refused)
        self.assertEqual(self.ok("list"), "no jobs\n")

        job = self.ok("submit", "-f", self.job_file(steps=8, every=4, max_restarts=0), "-o", "name").strip()
        self.await_state(job, "SUCCEEDED")
        failed = self.ok("submit", "-f", self.job_file("doomed", data="/nowhere", max_restarts=0), "-o", "name").strip()
        self.await_state(failed, "FAILED")
        held = self.ok("submit", "-f", self.job_file("held"), "--set", "scheduling.hold=true", "-o", "name").strip()

        for verb, names in (("list", {job, failed, held}), ("history", {job, failed}), ("nodes", {"node0", "node1"}), ("node list", {"node0", "node1"}),
                            ("queue list", {"default"})):
            with self.subTest(verb=verb):
                words = verb.split()
                self.assertEqual(set(self.ok(*words, "-o", "name").split()), names)
                as_json = json.loads(self.ok(*words, "-o", "json"))
                as_yaml = yaml.safe_load(self.ok(*words, "-o", "yaml"))
                key = next(key for key, value in as_json.items() if isinstance(value, list))
                self.assertEqual(as_yaml.keys(), as_json.keys())
                self.assertEqual([sorted(item) for item in as_yaml[key]], [sorted(item) for item in as_json[key]])
                self.assertEqual({row[next(iter(row))] for row in self.rows(*words)}, names)
                table, wide = (self.ok(*words, "-o", form).splitlines()[0].split() for form in ("table", "wide"))
                self.assertLessEqual(set(table), set(wide))
        self.assertEqual(self.ok("list", "--state", "queued", "-o", "name").split(), [held])
        self.assertEqual(self.ok("history", "--state", "failed", "-o", "name").split(), [failed])
        ended = {row["id"]: row for row in self.rows("history")}
        self.assertGreater(float(ended[job]["took_seconds"]), 0)
        self.assertEqual((ended[job]["steps_done"], ended[job]["attempts"], ended[failed]["state"]), ("8", "1", "FAILED"))
        unknown = self.ctl("history", "--state", "running")
        self.assertEqual((unknown.code, "expected succeeded, failed, cancelled" in unknown.err), (2, True), unknown)

        self.assertIn("SUCCEEDED", self.ok("get", job, "-o", "csv"))
        self.assertEqual(yaml.safe_load(self.ok("get", job, "-o", "yaml"))["id"], job)
        self.assertEqual(self.ok("get", "tiny", "-o", "name"), job + "\n")
        nameless = self.ctl("events", job, "-o", "name")
        self.assertEqual((nameless.code, "these have no names" in nameless.err), (2, True), nameless)
        pages = self.ctl("defaults", "-o", "csv")
        self.assertEqual((pages.code, "this verb prints table, wide, yaml, json" in pages.err), (2, True), pages)
        self.assertIn("llama-70b", {model["name"] for model in yaml.safe_load(self.ok("models", "-o", "yaml"))})

        kinds = [row["event"] for row in self.rows("events", job)]
        self.assertEqual([kinds[0], kinds[-1], kinds.count("checkpoint")], ["submitted", "succeeded", 2])
        self.assertEqual([row["event"] for row in self.rows("events", job, "--kind", "placed", "--kind", "running")], ["placed", "running"])
        followed = [json.loads(line)["kind"] for line in self.ok("events", job, "--follow", "-o", "json").splitlines()]
        self.assertEqual(followed, kinds)
        refused = self.ctl("events", job, "--follow", "-o", "csv")
        self.assertEqual((refused.code, "--follow: -o csv" in refused.err), (2, True), refused)
        self.assertEqual(self.ctl("events", "nobody").code, 4)

    def test_several_files_are_one_document_or_a_row_of_documents(self):
        both = ("-f", self.job_file("one"), "-f", self.job_file("two"), "--set", "scheduling.hold=true")
        self.assertEqual([one["name"] for one in yaml.safe_load_all(self.ok("submit", *both, "--dry-run"))], ["one", "two"])
        self.assertEqual(self.ok("list"), "no jobs\n")
        rows = list(csv.DictReader(self.ok("submit", *both, "-o", "csv", "--idempotency-key", "pair").splitlines()))
        self.assertEqual([row["name"] for row in rows], ["one", "two"], "one head, whatever the number of files")
        documents = list(yaml.safe_load_all(self.ok("submit", *both, "-o", "yaml", "--idempotency-key", "pair")))
        self.assertEqual([document["id"] for document in documents], [row["id"] for row in rows])

    def pid_of_rank(self, rank):
        commands = processes(self.directory)
        pid, = [pid for pid in self.rank_pids() if f".r{rank}/" in commands[pid]]  # the path of JOB.gGENERATION.rRANK/config.json
        return pid

    def say(self, job, rank, text):
        """Adds a line to the output of a rank, which normally prints nothing, and waits until the server has it."""
        with open(f"/proc/{self.pid_of_rank(rank)}/fd/2", "a") as out:
            out.write(f"{text}\n")
        self.await_on_disk(lambda: text in self.ok("logs", job), f"a line of rank {rank}")

    def test_logs_begin_with_the_rank_that_failed_first(self):
        job = self.submit(self.job_file(steps=100000, every=5))
        for wrong, code, words in ((("--rank", 0, "--stage", 0), 2, "give one of them"), (("--stage", 9), 2, "the plan has stages 0 to 1"),
                                   (("-f", "-o", "json"), 2, "--follow: -o json")):
            self.await_steps(job, 1)
            result = self.ctl("logs", job, *wrong)
            self.assertEqual(result.code, code, result)
            self.assertIn(words, result.err)
        waiting = self.submit(self.job_file("waiting", ranks=64, tp=4, pp=4))
        early = self.ctl("logs", waiting, "--stage", 0)
        self.assertEqual((early.code, "has no plan yet" in early.err), (5, True), early)
        self.ctl("cancel", waiting)
        follower = subprocess.Popen([str(BIN / "lynxctl"), "logs", job, "--follow"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(follower.kill)
        events = subprocess.Popen([str(BIN / "lynxctl"), "events", job, "-f"], env=self.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(events.kill)
        self.await_job(job, lambda page: page["checkpointPath"], "a checkpoint")
        for rank in (0, 2, 3):  # in this order, rank 2's line comes first only if the server knows that this rank failed first
            self.say(job, rank, f"here is rank {rank}")
        os.kill(self.pid_of_rank(2), signal.SIGKILL)
        self.await_job(job, lambda page: page["restarts"] == 1 and page["state"] == "JOB_STATE_RUNNING", "a restart")
        told = json.loads(self.ok("logs", job, "-o", "json"))
        self.assertEqual((told["firstFailure"]["rank"], told["firstFailure"]["generation"]), (2, "1"))
        ranks = [(line["rank"], line["generation"]) for line in told["lines"]]
        first = [entry for entry in ranks if entry == (2, "1")]
        self.assertEqual(ranks[:len(first)], first)
        self.assertEqual(told["lines"][0]["text"], "here is rank 2")
        self.assertNotEqual(min(told["lines"], key=lambda line: int(line["sequence"]))["rank"], 2, "the first that was written is another's")
        self.assertIn("here is rank 0", [line["text"] for line in told["lines"][len(first):]])
        shown = self.ctl("logs", job)
        self.assertIn("rank 2 failed first, in attempt 1", shown.err)
        for row in self.rows("logs", job, "--stage", 1, "--attempt", 1):
            self.assertIn((row["rank"], row["attempt"]), (("2", "1"), ("3", "1")))

        self.assertRegex(self.ok("top"), rf"(?m)^{job} +tiny +RUNNING ")
        self.assertEqual(self.ok("top", "--once").splitlines()[1].split(";")[0], "2 nodes, 4 of 4 devices used")
        refused = self.ctl("top", "-o", "json")
        self.assertEqual((refused.code, "top is for people" in refused.err), (2, True), refused)

        leaving = self.ok("cancel", job, "--checkpoint", "--grace", "5min", "--reason", "enough")
        self.assertEqual(leaving, f"job {job} writes a checkpoint and ends\n")
        page = self.await_state(job, "CANCELLED")
        self.assertRegex(page["reason"], r"cancelled: enough; its newest checkpoint, of step \d+, is /")
        self.assertEqual(page["checkpointStep"], page["progress"]["stepsDone"], "of the very step that it was in")
        out, err = follower.communicate(timeout=60)
        self.assertEqual((follower.returncode, err), (0, ""))
        everything = self.rows("logs", job, "-n", 1000)
        self.assertEqual(sorted(out.splitlines()), sorted(f"[rank {row['rank']} g{row['attempt']}] {row['text']}" for row in everything))
        lines, _ = events.communicate(timeout=60)
        self.assertEqual(events.returncode, 0)
        for kind in ("submitted", "rank-lost", "restarting", "leaving", "cancelled"):
            self.assertRegex(lines, rf"\d\d:\d\d:\d\d  [A-Z]+ +{kind} ")
        self.check_report(job)
        alone = self.ctl("cancel", job, "--grace", "5min")
        self.assertEqual((alone.code, "--checkpoint" in alone.err), (2, True), alone)
        bad = self.ctl("cancel", job, "--checkpoint", "--grace", "soon")
        self.assertEqual((bad.code, "--grace" in bad.err), (2, True), bad)


    def test_the_machine_and_clusters_by_name(self):
        looked = self.ctl("doctor", "--dir", self.directory, "-o", "json")
        found = json.loads(looked.out)["findings"]
        worst = max(("ok", "hint", "warning", "problem").index(finding["verdict"]) for finding in found)
        self.assertEqual(looked.code, (0, 0, 1, 5)[worst], looked)
        verdicts = {finding["what"]: finding["verdict"] for finding in found}
        self.assertEqual((verdicts["server"], "versions" in verdicts, "node" in verdicts), ("ok", False, False), looked)
        self.assertTrue(all(finding["mend"] for finding in found if finding["verdict"] != "ok"), found)
        self.assertEqual([path.name for path in self.directory.glob(".lynx-doctor*")], [])
        alone = self.rows("admin", "servers")
        self.assertEqual([(row["role"], row["epoch"], row["encrypt_ranks"]) for row in alone], [("leads", "", "off")], "it has no lease")
        self.assertEqual(self.ok("admin", "servers", "-o", "name"), alone[0]["server"] + "\n")
        self.kill_daemon("server")
        away = self.ctl("admin", "servers")
        self.assertEqual((away.code, "cannot reach lynx-server" in away.err), (3, True), away)
        alone = self.ctl("doctor", "--dir", "/proc", "--no-server")
        self.assertEqual(alone.code, 5, alone)
        self.assertRegex(alone.out, r"(?m)^problem +disk +cannot make a file in /proc.* give another folder with --dir")
        away = self.ctl("doctor", "--dir", self.directory, "--timeout", 2)
        self.assertEqual(away.code, 5, away)
        self.assertRegex(away.out, r"(?m)^problem +server +cannot reach lynx-server .* lynxctl doctor --no-server$")
        self.up()

        self.env["XDG_CONFIG_HOME"] = str(self.directory / "config")
        self.assertIn("no contexts;", self.ok("context", "list"))
        self.assertIn("use it with: lynxctl context use here", self.ok("context", "add", "here"))
        self.ok("--server", "127.0.0.1:1", "context", "add", "there")
        self.ok("context", "use", "there")
        self.assertEqual([(row["in_use"], row["name"]) for row in self.rows("context", "list")], [("no", "here"), ("yes", "there")])
        gone = self.ctl("list")
        self.assertEqual((gone.code, "127.0.0.1:1 (from " in gone.err), (3, True), gone)
        self.assertEqual(self.ok("--context", "here", "list"), "no jobs\n")
        self.assertEqual(self.ok("__complete", "contexts").split(), ["here", "there"])
        self.ok("context", "use", "--none")
        self.assertEqual(self.ok("list"), "no jobs\n", "the local cluster")
        self.ok("context", "remove", "there")
        self.assertEqual(self.ok("context", "list", "-o", "name"), "here\n")
        for words, code in ((("use", "there"), 4), (("remove", "there"), 4), (("add", "here"), 5), (("add", "a/b"), 2), (("use",), 2)):
            result = self.ctl("context", *words)
            self.assertEqual(result.code, code, result)

    def check_report(self, job):
        path = self.directory / "job.html"
        self.assertEqual(self.ok("report", job, "--out", path), f"{path}\n")
        page = Page(path.read_text())
        self.assertLessEqual({"run", "recoveries", "step", "recomputation", "memory", "loss", "plan", "events"}, page.ids)
        self.assertEqual([r for r in page.references if not r.startswith(("#", "data:"))], [], "nothing from elsewhere")
        kinds = {rect["class"] for rect in page.rects["step"]}
        self.assertLessEqual({"k-forward", "k-backward"}, kinds)
        for name in ("was killed by signal 9", "store everything", "leaving", "predicted"):
            self.assertIn(name, path.read_text())
        self.assertLess(path.stat().st_size, 1 << 20)
        waiting = self.submit(self.job_file("later", ranks=64, tp=4, pp=4))
        self.ok("report", waiting, "--out", path)
        self.assertNotIn("memory", Page(path.read_text()).ids)
        for where, code, words in ((self.directory / "absent" / "x", 2, "a folder that exists"), ("", 2, "needs a name")):
            result = self.ctl("report", waiting, "--out", where)
            self.assertEqual((result.code, words in result.err), (code, True), result)
        self.assertEqual(self.ctl("report", "nobody", "--out", path).code, 4)


if __name__ == "__main__":
    import unittest

    unittest.main()
