"""Tests `lynxctl plan --framework`, which says what memory a run of another framework would need and how long its step would
take."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
NAMES = ["megatron", "megatron-deepspeed", "deepspeed", "torchtitan", "fsdp", "nanotron", "nemo", "internevo"]


def plan(*arguments, job="gpt-22b", cluster="a100-80gb-nvlink"):
    return subprocess.run([str(BIN / "lynxctl"), "plan", "-f", str(ROOT / "examples" / f"{job}.yaml"), "--cluster",
                           str(ROOT / "examples" / "clusters" / f"{cluster}.yaml"), *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


class FrameworkTest(unittest.TestCase):
    def test_shows_layout_time_and_memory(self):
        result = plan("--framework", "megatron")
        self.assertEqual(result.returncode, 0, result)
        for part in ["megatron: tp8 ", "predicted: step ", "memory: at most ", "part of the step", "pipeline rank"]:
            self.assertIn(part, result.stdout)

    def test_json_agrees_with_the_table(self):
        result = plan("--framework", "nemo", "-o", "json")
        self.assertEqual(result.returncode, 0, result)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["framework"], "nemo")
        parts = ["pipeline", "dataReduction", "tiedEmbedding", "optimizer"]
        self.assertEqual(answer["step"], sum(answer[part] for part in parts))
        for rank in answer["memory"]:
            self.assertEqual(rank["total"], sum(bytes_ for what, bytes_ in rank.items() if what != "total"))
        self.assertTrue(answer["fits"])

    def test_every_framework_plans_a_job_that_leaves_its_layout_open(self):
        free = ["--set", "parallel.tp=auto", "--set", "train.microBatch=auto", "--nodes", "4", "--set", "resources.ranks=32", "--set",
                "train.globalBatch=64"]
        for name in NAMES:
            result = plan("--framework", name, "-o", "json", *free)
            self.assertEqual(result.returncode, 0, (name, result.stderr))
            self.assertEqual(json.loads(result.stdout)["framework"], name)

    def test_our_engine_is_the_default(self):
        self.assertEqual(plan("--framework", "lynx").stdout, plan().stdout)

    def test_a_job_that_does_not_fit_is_shown_and_fails(self):
        result = plan("--framework", "megatron", "--set", "model.layers=960", "--set", "model.hidden=12288")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("memory: does not fit; the fullest device needs ", result.stdout)

    def test_unknown_names_are_answered_with_the_known_ones(self):
        result = plan("--framework", "jax")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--framework jax: expected one of lynx, megatron, ", result.stderr)

    def test_options_of_our_engine_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for option in [("--actions", 0), ("--for", "any"), ("--html", f"{folder}/plan.html"), ("--trace", f"{folder}/plan.json")]:
                result = plan("--framework", "megatron", *option)
                self.assertEqual(result.returncode, 2, option)
                self.assertIn(f"{option[0]} goes with plans for Lynx's own engine", result.stderr)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
