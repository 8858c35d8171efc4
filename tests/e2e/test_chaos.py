"""Runs a few faults of scripts/chaos.py; many would take hours."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from cluster import BIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

from pages import commands_of, lines_of


class ChaosTest(unittest.TestCase):
    def test_a_few_faults_do_no_harm(self):
        typed = {line for blocks in commands_of("e2e.chaos").values() for text in blocks for line in lines_of(text)}
        self.assertGreater(len(typed), 3)
        for command in typed:  # the commands of the page about promises and of the records
            self.assertRegex(command, r"^scripts/chaos\.py --faults \d+( --seed \d+)?$")
        command = re.sub(r"--faults \d+ --seed \d+", "--faults 6 --seed 3 --steps 400", next(command for command in typed if "--seed" in command))
        result = subprocess.run(command.split(), cwd=ROOT,
                                env=dict(os.environ, LYNX_BIN=str(BIN)), capture_output=True, text=True, timeout=800,
                                stdin=subprocess.DEVNULL)
        print(result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("violations 0", result.stdout)
        self.assertIn("faults 6", result.stdout)
