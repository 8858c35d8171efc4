"""A few faults of scripts/chaos.py; many are a matter of hours."""

import os
import pathlib
import subprocess
import sys
import unittest

from cluster import BIN

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "chaos.py"


class ChaosTest(unittest.TestCase):
    def test_a_few_faults_do_no_harm(self):
        result = subprocess.run([sys.executable, str(SCRIPT), "--faults", "6", "--seed", "3", "--steps", "400"],
                                env=dict(os.environ, LYNX_BIN=str(BIN)), capture_output=True, text=True, timeout=800,
                                stdin=subprocess.DEVNULL)
        print(result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("violations 0", result.stdout)
        self.assertIn("faults 6", result.stdout)
