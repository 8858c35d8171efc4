"""Tests the exact solver, which lynxctl starts as a separate process."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt-bytes.yaml"


def command(verb, *arguments, binary=BIN / "lynxctl"):
    return [str(binary), verb, "-f", str(EXAMPLE), *map(str, arguments)]


def run(verb, *arguments, **options):
    return subprocess.run(command(verb, *arguments, **options), capture_output=True, text=True, timeout=200,
                          stdin=subprocess.DEVNULL)


def alive(pid):
    """True if the process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class OptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def lynxctl_with_solver(self, script=None):
        """A copy of lynxctl with its verbs. Beside it is a shell script in place of the solver, or no solver."""
        for program in ("lynxctl", "lynx-verbs"):
            shutil.copy(BIN / program, self.folder)
        if script is not None:
            solver = self.folder / "lynx-opt"
            solver.write_text(f"#!/bin/sh\n{script}\n")
            solver.chmod(0o755)
        return self.folder / "lynxctl"

    def test_plan_shows_what_is_proven_of_each_stage(self):
        for target in ("lynx", "any"):
            result = run("plan", "--set", "recompute=opt", "--for", target)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("recompute opt", result.stdout)
            self.assertRegex(result.stdout, r"stage +exposed +bound +gap +proof\n")
            self.assertRegex(result.stdout, r"\n +0 +[\d.]+ [mun]?s +[\d.]+ [mun]?s +[\d.]+% +(optimal|time limit|model only)\n")
        plan = json.loads(run("plan", "--set", "recompute=opt", "-o", "json").stdout)
        for stage in plan["stages"]:
            self.assertLessEqual(int(stage["proof"]["boundNs"]), int(stage["proof"]["exposedNs"]))

    def test_compare_has_the_row_when_asked(self):
        self.assertNotIn("\nopt ", run("compare").stdout)
        result = run("compare", "--opt")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\nopt .*optimal on ")

    def test_what_stands_without_the_solver(self):
        lynxctl = self.lynxctl_with_solver()
        result = run("plan", "--set", "recompute=opt", binary=lynxctl)
        self.assertEqual(result.returncode, 4, result)
        self.assertIn(f"{self.folder}/lynx-opt is not there", result.stderr)
        self.assertIn("recompute heu", result.stderr)
        self.assertEqual(run("plan", binary=lynxctl).returncode, 0)
        (self.folder / "lynx-opt").write_text("")
        refused = run("plan", "--set", "recompute=opt", binary=lynxctl)
        self.assertIn("may not be executed", refused.stderr)

    def test_a_solver_that_fails_or_lies_is_an_error(self):
        lynxctl = self.lynxctl_with_solver("echo broken >&2; exit 3")
        result = run("plan", "--set", "recompute=opt", binary=lynxctl)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("lynx-opt ended with exit code 3: broken", result.stderr)
        for answer in ("nonsense", "answer proven 1 bound 0\\nlayer store\\nend"):
            self.lynxctl_with_solver(f"printf '{answer}\\n'")
            result = run("plan", "--set", "recompute=opt", binary=lynxctl)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("lynx-opt: answer: line", result.stderr)

    def test_lynxctl_has_one_thread_while_it_solves(self):
        lynxctl = self.lynxctl_with_solver(f"sleep 0.3; exec {BIN}/lynx-opt --seconds 5")
        threads, solvers = set(), set()
        with subprocess.Popen(command("plan", "--set", "recompute=opt", binary=lynxctl), stdout=subprocess.DEVNULL) as plan:
            while plan.poll() is None:
                try:
                    threads.add(len(os.listdir(f"/proc/{plan.pid}/task")))
                except OSError:
                    break
                solvers.update(children(plan.pid))
                time.sleep(0.002)
        self.assertEqual(plan.returncode, 0)
        self.assertTrue(solvers, "no solver was seen")
        self.assertEqual(threads - {0}, {1})

    def test_the_solver_ends_with_lynxctl(self):
        ready = self.folder / "ready"
        # A problem that never ends: the solver reads it from a pipe that nobody writes to.
        os.mkfifo(self.folder / "never")
        lynxctl = self.lynxctl_with_solver(f"shift 2; : > {ready}; exec {BIN}/lynx-opt \"$@\" <> {self.folder}/never")
        with subprocess.Popen(command("plan", "--set", "recompute=opt", binary=lynxctl), stdout=subprocess.DEVNULL) as plan:
            deadline = time.monotonic() + 60
            solver = []
            while not (solver and ready.exists() and "lynx-opt" in os.path.basename(os.readlink(f"/proc/{solver[0]}/exe"))):
                self.assertLess(time.monotonic(), deadline, "the solver did not start")
                solver = children(plan.pid)
                time.sleep(0.01)
            time.sleep(0.2)  # long enough for the solver's first steps
            plan.send_signal(signal.SIGKILL)
            plan.wait()
        while alive(solver[0]):
            self.assertLess(time.monotonic(), deadline, "the solver goes on")
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
