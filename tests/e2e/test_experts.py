"""The example with experts trains in a cluster, and is exported for an independent reader."""

import csv
import json
import pathlib
import re
import sys

from cluster import ClusterTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reference"))

from test_hugging_face import load, loss

# Relative tolerance for losses of the same fp32 weights, one of them computed in double precision.
SAME_WEIGHTS = 1e-5


class ExpertsTest(ClusterTest):
    devices = 1

    def samples(self, text, seq):
        """(inputs, targets) of all samples of a text."""
        return [(list(text[i:i + seq]), list(text[i + 1:i + seq + 1])) for i in range(0, len(text) - seq, seq)]

    def assert_near(self, actual, expected, tolerance, what):
        self.assertAlmostEqual(actual, expected, delta=tolerance * expected, msg=what)


class ExampleTest(ExpertsTest):
    def assert_load_is_measured(self, page):
        # Two ranks with four of the eight experts each: the fuller one has between the even share and all rows.
        skew = page["progress"]["expertSkew"]
        self.assertTrue(1 <= skew <= 2, page["progress"])
        series = dict(re.findall(r'^(lynx_job_expert_\w+)\{[^}]*job_name="qwen3-moe-bytes"[^}]*\} (\S+)$', self.metrics("server"), re.M))
        rows = 2 * 20 * 16 * 128 * 4  # two experts, steps, samples, tokens, layers
        self.assertEqual(float(series["lynx_job_expert_rows_routed_total"]), rows)
        self.assertEqual(float(series["lynx_job_expert_rows_dropped_total"]), 0)
        self.assertEqual(float(series["lynx_job_expert_load_skew"]), skew)
        self.assertEqual(float(series["lynx_job_expert_load_skew_planned"]), 1)
        self.assertGreaterEqual(float(series["lynx_job_expert_load_fullest"]), 0.25)
        self.assertIn("rows of the fullest rank", self.ctl("get", page["id"]).out)

    def test_it_trains_and_an_independent_reader_computes_its_validation_loss(self):
        text = (ROOT / "examples/qwen3-moe-bytes.yaml").read_text()
        path, runs, held_out = self.directory / "experts.yaml", self.directory / "runs", self.directory / "held-out.txt"
        # Each of the four samples occurs as often as the others in a global batch of 16. With this capacity no row is dropped; the
        # reader drops none.
        held_out.write_text(self.corpus.read_text()[-(4 * 128 + 1):])
        for old, new in (("/usr/share/common-licenses/GPL-3", f"{self.corpus}\n  validationPath: {held_out}"), ("capacity: 2", "capacity: 4"),
                         ("everySteps: 50", f"directory: {runs}"), ("steps: 100", "steps: 20\n  evalEvery: 20\n  evalBatches: 1")):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        path.write_text(text)
        result = self.ctl("submit", "-f", path, "--wait", timeout=300)
        self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
        page = self.get("qwen3-moe-bytes")
        self.assertEqual(page["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(page["progress"]["loss"], page["progress"]["firstLoss"])
        self.assertEqual(page["plan"]["layout"]["ep"], 2)
        self.assertTrue(page["plan"]["measuredProfile"], "the agents measured the op times of layers with experts")
        for stage, measured in zip(page["plan"]["stages"], page["measured"]):
            self.assertEqual(stage["arenaBytes"], measured["arenaPeakBytes"], "measured peak is the planned peak")
            states = sum(int(stage[what + "Bytes"]) for what in ("weight", "gradient", "optimizer"))
            self.assertEqual(states, int(measured["stateBytes"]), "and so are the states")
        self.assert_load_is_measured(page)

        folder = self.directory / "qwen3-moe"
        result = self.ctl("checkpoint", "export", runs, "--out", folder)
        self.assertEqual(result.code, 0, str(result))
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual((config["model_type"], config["num_experts"], config["num_experts_per_tok"]), ("qwen3_moe", 8, 2))
        with open(runs / f"metrics-{page['id']}" / "metrics.csv", newline="") as file:
            row = list(csv.DictReader(file))[-1]
        self.assertEqual(row["step"], "20")
        model = load(folder)
        samples = self.samples(held_out.read_bytes(), 128)
        self.assertEqual(len(samples), 4)
        expected = sum(loss(model, *sample) for sample in samples) / 4
        self.assert_near(float(row["validation_loss"]), expected, SAME_WEIGHTS, "of the exported weights")
