"""A few faults of scripts/chaos.py; many are a matter of hours."""

import os
import pathlib
import subprocess
import sys
import unittest

from cluster import BIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

from pages import commands_of, lines_of


class ChaosTest(unittest.TestCase):
    def test_a_few_faults_do_no_harm(self):
        command, = lines_of(commands_of("e2e.chaos")["docs/promises.md"][0])
        self.assertIn("--faults 300", command)
        result = subprocess.run([*command.replace("300", "6").split(), "--seed", "3", "--steps", "400"], cwd=ROOT,
                                env=dict(os.environ, LYNX_BIN=str(BIN)), capture_output=True, text=True, timeout=800,
                                stdin=subprocess.DEVNULL)
        print(result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("violations 0", result.stdout)
        self.assertIn("faults 6", result.stdout)
