"""Tests what `lynxctl plan` writes into files, what it says if it cannot write them, and what `explain` says about other
layouts."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt-bytes.yaml"


def plan(*arguments, verb="plan"):
    return subprocess.run([str(BIN / "lynxctl"), verb, "-f", str(EXAMPLE), *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL)


class ReportsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_page_and_trace_beside_the_table(self):
        page, trace = self.folder / "plan.html", self.folder / "step.json"
        result = plan("--html", page, "--trace", trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, plan().stdout, "the files change nothing of what is printed")
        self.assertIn(f"page: {page}", result.stderr)
        self.assertIn("ui.perfetto.dev", result.stderr)
        self.assertTrue(page.read_text().startswith("<!DOCTYPE html>"))
        self.assertIn("gpt-bytes", page.read_text())
        self.assertLess(page.stat().st_size, 1 << 20)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertGreater(len(events), 100)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["plan.html", "step.json"])

    def test_pipes_and_links_are_written_to_and_stay(self):
        pipe, link, page = self.folder / "pipe", self.folder / "link.html", self.folder / "plan.html"
        os.mkfifo(pipe)
        page.write_text("older")
        link.symlink_to(page)
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
        result = plan("--html", pipe)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(reader.communicate(timeout=60)[0].startswith("<!DOCTYPE html>"))
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(plan("--html", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertTrue(page.read_text().startswith("<!DOCTYPE html>"))
        later = self.folder / "later.html"
        link.unlink()
        link.symlink_to(later.name)
        self.assertEqual(plan("--html", link).returncode, 0)
        self.assertEqual((link.is_symlink(), later.read_text()), (True, page.read_text()), "a link to what is not there yet")
        # The standard output is a file that also gets other output. A new file in its place would lose that output.
        with open(self.folder / "all", "w") as out:
            printed = subprocess.run([str(BIN / "lynxctl"), "plan", "-f", str(EXAMPLE), "--html", "/dev/stdout"], stdout=out, stderr=subprocess.PIPE,
                                     text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual(sorted((self.folder / "all").read_text()), sorted(plan().stdout + page.read_text()))
        self.assertTrue(pathlib.Path("/dev/stdout").is_symlink())
        full = plan("--html", "/dev/full")
        self.assertEqual(full.returncode, 2, full.stderr)
        self.assertIn("--html /dev/full: it cannot be written whole", full.stderr)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())

    def test_actions_can_be_printed_too(self):
        page = self.folder / "plan.html"
        result = plan("--html", page, "--actions", 0)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("0"))
        self.assertTrue(page.exists())

    def test_explain_has_a_table_of_other_layouts_only_where_there_are_some(self):
        pinned, free = (plan(*changes, verb="explain") for changes in ((), ("--set", "parallel.tp=auto", "--set", "parallel.pp=auto")))
        for result, first in ((pinned, "NO OTHER LAYOUT: "), (free, "REJECTED LAYOUTS")):
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(result.stdout.startswith(first), result.stdout)
            self.assertRegex(result.stdout, r"No plan of this space takes less than .+ \(a bound\): this plan takes at most [\d.]+% more than the best\.")
            self.assertIn("WHAT MORE WOULD BRING", result.stdout)
        self.assertIn("\ntp ", free.stdout.split("WHAT MORE")[0])

    def test_explain_says_what_an_uneven_load_of_experts_costs(self):
        job = EXAMPLE.parent / "qwen3-moe-bytes.yaml"
        result = subprocess.run([str(BIN / "lynxctl"), "explain", "-f", str(job), "--set", "model.moe.skew=1.2"], capture_output=True, text=True,
                                timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout.split("WHAT AN UNEVEN LOAD OF EXPERTS COSTS (model.moe.skew), with the chosen plan\n")[1].splitlines()[:5]
        self.assertEqual([line.split()[0] for line in table], ["SKEW", "1", "1.2", "1.5", "2"])
        self.assertTrue(table[2].endswith("as planned"), table)
        self.assertNotIn("UNEVEN", plan(verb="explain").stdout, "a model without experts")

    def refused(self, option, path, *words):
        result = plan(option, path)
        self.assertEqual(result.returncode, 2, result)
        for word in (option, str(path), *words):
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_files_that_cannot_be_written(self):
        for option in ("--html", "--trace"):
            self.refused(option, self.folder / "absent" / "x", "No such file", "a folder that exists")
            self.refused(option, self.folder, "that is a folder; name a file in it")
            self.refused(option, "/proc/x", "that you may write to")
            self.refused(option, "", "needs a name")

    def test_a_failed_write_leaves_what_was_there(self):
        page = self.folder / "plan.html"
        page.write_text("before")
        (self.folder / "plan.html.new").mkdir()  # the new file would first be written here
        result = plan("--html", page)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(page.read_text(), "before")

    def test_an_infeasible_job_writes_nothing(self):
        page = self.folder / "plan.html"
        result = plan("--set", "resources.activationMemoryPerRank=64KiB", "--html", page)
        self.assertEqual(result.returncode, 1, result)
        self.assertFalse(page.exists())


if __name__ == "__main__":
    unittest.main()
