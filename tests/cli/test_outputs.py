"""Tests the option -o of every verb: the verb prints the requested format, or does nothing and names the formats that it prints."""

import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
JOB = ROOT / "examples" / "gpt-bytes.yaml"

PLANS = ("table", "wide", "json", "yaml", "csv")
DOCUMENT = ("table", "wide", "json", "yaml")
PLAIN = ("table", "wide")
ALL = ("table", "wide", "json", "yaml", "csv", "name")

# Verbs that do not call the server -> the formats that they print.
OFFLINE = {
    ("plan", "-f", JOB): DOCUMENT,
    ("plan", "-f", JOB, "--actions", "0"): PLAIN,
    ("compare", "-f", JOB): PLANS,
    ("explain", "-f", JOB): PLANS,
    ("whatif", "-f", JOB, "--with", "train.microBatch=1"): PLANS,
    ("export", "-f", JOB, "--format", "torchtitan"): DOCUMENT,
    ("models",): ALL,
    ("defaults",): DOCUMENT,
    ("defaults", "-f", JOB): DOCUMENT,
    ("defaults", "--reference"): PLAIN,
    ("defaults", "--schema"): (*PLAIN, "json"),
    ("submit", "-f", JOB, "--dry-run"): DOCUMENT,
    ("reference",): PLAIN,
    ("completion", "bash"): PLAIN,
    ("man", "submit"): PLAIN,
    ("context", "list"): ALL,
    ("context", "use", "--none"): PLAIN,
}
# Verbs that call the server. No server is running, so each of them is refused before the call, or ends with exit code 3.
ONLINE = {
    ("submit", "-f", JOB, "--follow"): PLAIN,
    ("report", "j"): PLAIN,
    ("top",): PLAIN,
    ("logs", "j", "--follow"): PLAIN,
    ("admin", "whoami"): DOCUMENT,
    ("admin", "join-token"): DOCUMENT,
    ("admin", "join-token", "--out", "/nonexistent/token"): PLAIN,
    ("admin", "user", "add", "u", "--role", "viewer"): DOCUMENT,
    ("admin", "user", "revoke", "u"): DOCUMENT,
    ("admin", "token", "add", "u", "--context-file", "/nonexistent/context"): PLAIN,
    ("admin", "token", "revoke", "t"): DOCUMENT,
    ("admin", "revoke-node", "n"): DOCUMENT,
    ("local", "up", "--dir", "/nonexistent/local"): PLAIN,
    ("local", "down", "--dir", "/nonexistent/local"): PLAIN,
}


class Outputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.env = dict(os.environ, HOME=folder.name, XDG_CONFIG_HOME=folder.name, LYNX_HOME=folder.name, LYNX_SERVER="127.0.0.1:1")

    def run_verb(self, *words):
        return subprocess.run([str(BIN / "lynxctl"), *map(str, words)], env=self.env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

    def refused(self, result, words, form):
        self.assertEqual((result.returncode, result.stdout), (2, ""), f"{words} -o {form}: {result.stderr}")
        self.assertIn(f"-o {form}: this verb prints table, wide", result.stderr)

    def read(self, form, text):
        if form == "json":
            self.assertIsInstance(json.loads(text), (dict, list))
        elif form == "yaml":
            self.assertIsInstance(yaml.safe_load(text), (dict, list))
        elif form == "csv":
            rows = list(csv.reader(io.StringIO(text)))
            self.assertEqual({len(row) for row in rows}, {len(rows[0])})

    def test_what_verbs_print_that_ask_no_server(self):
        for words, known in OFFLINE.items():
            for form in ALL:
                with self.subTest(verb=words[:2], form=form):
                    result = self.run_verb(*words, "-o", form)
                    if form in known:
                        self.assertEqual(result.returncode, 0, result.stderr)
                        self.read(form, result.stdout)
                    elif "csv" in known and form == "name":
                        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                    else:
                        self.refused(result, words, form)

    def test_nothing_is_asked_of_a_server_for_what_cannot_be_printed(self):
        for words, known in ONLINE.items():
            for form in ALL:
                if form in known:
                    continue
                with self.subTest(verb=words[:3], form=form):
                    self.refused(self.run_verb(*words, "-o", form), words, form)

    def test_what_is_no_number_is_no_time(self):
        for value in ("nan", "-nan", "NaN", "nan(1)", "inf", "-1"):
            for words in (("list", f"--timeout={value}"), ("top", "--once", f"--interval={value}"), ("plan", "-f", JOB, f"--opt-seconds={value}")):
                with self.subTest(words=words):
                    result = self.run_verb(*words)
                    self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                    self.assertIn(value, result.stderr)

    def test_plans_beside_each_other_are_for_programs_too(self):
        plans = json.loads(self.run_verb("compare", "-f", JOB, "-o", "json").stdout)["plans"]
        policies = {plan["name"]: plan for plan in plans if plan["kind"] == "policy"}
        self.assertGreater(policies["full"]["stepNs"], policies["unlimited memory"]["stepNs"])
        self.assertEqual(policies["unlimited memory"]["throughput"], 1)
        self.assertLess(policies["full"]["throughput"], 1)
        self.assertTrue(any(plan["kind"] == "partition" for plan in plans))
        rows = list(csv.DictReader(io.StringIO(self.run_verb("compare", "-f", JOB, "-o", "csv").stdout)))
        self.assertEqual([row["name"] for row in rows], [plan["name"] for plan in plans])
        full = next(row for row in rows if row["name"] == "full")
        self.assertAlmostEqual(float(full["step_seconds"]) * 1e9, policies["full"]["stepNs"], delta=1)
        self.assertEqual(int(full["peak_bytes"]), policies["full"]["peakBytes"])

    def test_what_cannot_fit_ends_with_1(self):
        small = ("-f", JOB, "--set", "resources.activationMemoryPerRank=1KiB")
        for words in (("plan", *small), ("compare", *small), ("explain", *small),
                      ("whatif", "-f", JOB, "--with", "resources.activationMemoryPerRank=1KiB")):
            with self.subTest(verb=words[0]):
                result = self.run_verb(*words)
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertIn("the smallest change that fits", result.stdout + result.stderr)
        fits = self.run_verb("whatif", *small, "--with", "resources.activationMemoryPerRank=1GiB")
        self.assertEqual(fits.returncode, 0, "the change makes it fit: " + fits.stdout)


if __name__ == "__main__":
    unittest.main()
