"""Tests that the chaos demo waits for a job that makes progress, however slowly, but not for a job that does nothing."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

os.environ.setdefault("LYNX_BIN", "/nonexistent")
os.environ.setdefault("LYNX_HOME", "/nonexistent")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import demo_chaos


class SlowJob(demo_chaos.Job):
    """A fake job. Each step takes 90% of demo_chaos.PATIENCE. After `steps` steps nothing happens any more."""

    def __init__(self, steps):
        self.clock, self.steps, self.step_time = 0.0, steps, demo_chaos.PATIENCE * 0.9

    def page(self):
        done = min(int(self.clock / self.step_time), self.steps)
        return {"state": "JOB_STATE_RUNNING", "generation": "1", "progress": {"stepsDone": str(done)}}

    def pass_time(self, seconds):
        self.clock += seconds * 100

    def wait_for(self, steps):
        with mock.patch.object(demo_chaos.time, "monotonic", lambda: self.clock), mock.patch.object(demo_chaos.time, "sleep", self.pass_time):
            return self.wait(lambda page: int(page["progress"]["stepsDone"]) >= steps, "the last step")


class PatienceTest(unittest.TestCase):
    def test_waits_for_a_job_that_goes_on_slowly(self):
        self.assertEqual(SlowJob(10).wait_for(10)["progress"]["stepsDone"], "10")

    def test_gives_up_on_one_that_does_nothing(self):
        with self.assertRaises(SystemExit) as ended:
            SlowJob(4).wait_for(5)
        self.assertIn("the last step: nothing has moved for 300 s", str(ended.exception))


class ClusterTest(unittest.TestCase):
    def test_calls_the_local_cluster_whatever_context_is_in_use(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(demo_chaos, "HOME", pathlib.Path(folder)):
            with self.assertRaisesRegex(SystemExit, "cluster.json does not name the server .* start a cluster with 'lynxctl local up'"):
                demo_chaos.environment()
            (pathlib.Path(folder) / "cluster.json").write_text('{"serverAddress": "127.0.0.1:5", "daemons": []}')
            elsewhere = dict.fromkeys(("LYNX_SERVER", "LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE"), "elsewhere")
            with mock.patch.dict(os.environ, elsewhere):
                self.assertEqual({name: value for name, value in demo_chaos.environment().items() if name in elsewhere}, {"LYNX_SERVER": "127.0.0.1:5"})


if __name__ == "__main__":
    unittest.main()
