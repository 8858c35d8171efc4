"""Runs examples/python: each as a script, as a notebook would run its cells."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from lynxctl import EXAMPLES

# Examples that need a cluster; test_client.py runs them.
WITH_CLUSTER = {"watch_a_job.py"}


class ExamplesTest(unittest.TestCase):
    def test_every_example(self):
        examples = sorted((EXAMPLES / "python").glob("*.py"))
        self.assertGreater(len(examples), 2)
        for path in examples:
            with self.subTest(path=path.name):
                self.assertRegex(path.read_text(), r"^# %% \[markdown\]\n# # .+", "the first cell says what it shows")
                self.assertGreater(len(re.findall(r"^# %%", path.read_text(), re.MULTILINE)), 3)
                if path.name in WITH_CLUSTER:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=600, cwd=folder,
                                          env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout)


if __name__ == "__main__":
    unittest.main()
