"""Runs bench/slow_link.py once, in which a link between two nodes becomes slow. Checks what it prints, but not its times."""

import os
import pathlib
import subprocess
import sys
import unittest

from cluster import BIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

from pages import commands_of

NO_NAMESPACES = 77


class SlowLinkTest(unittest.TestCase):
    def test_it_is_named_and_planned_around(self):
        command, = commands_of("e2e.slow_link")["docs/measurements/elastic.md"]
        self.assertIn("--runs 3", command)
        result = subprocess.run([sys.executable, *command.replace("--runs 3", "--runs 1").split()], cwd=ROOT, env=dict(os.environ, LYNX_BIN=str(BIN)), capture_output=True,
                                text=True, timeout=500, stdin=subprocess.DEVNULL)
        print(result.stdout)
        if result.returncode == NO_NAMESPACES:
            self.skipTest(result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        # Both directions are slow; the text first names the slower one.
        self.assertRegex(result.stdout, r"the link between nodes node([01]) and node([01]) is slower than before \(node\1 to node\2: ")
        self.assertRegex(result.stdout, r"which takes [0-9.]+ m?s by what is known now", "what it has is looked at as things are")
