"""Tests `lynxctl audit` with public runs of Megatron-LM. It gets the arguments of a run, and a log in the format of Megatron-LM
with the measured figures.

The runs are rows of tests/validation/reference: cases of Megatron-LM's continuous integration, which states the arguments
and the memory of the last rank, and runs on B200 that SimuMax published with their steps and memory."""

import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
REFERENCE = ROOT / "tests" / "validation" / "reference"
INTEGRATION = ["golden:47", "golden:50", "golden:85", "golden:112", "golden:157", "golden:161", "golden:163", "golden:167",
               "golden:175", "golden:188", "golden:297", "golden:441", "golden:443", "golden:451"]
B200 = ["runs:2363", "runs:2364", "runs:2365", "runs:2387", "runs:2388", "runs:2389"]
MIB = 1 << 20


def rows(name):
    with open(REFERENCE / f"{name}.csv", newline="", encoding="utf-8") as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def integration_case(row):
    """Arguments as the recipe has them; what is empty is Megatron-LM's default."""
    words = ["--num-layers", row["layers"], "--hidden-size", row["hidden"], "--num-attention-heads", row["heads"],
             "--seq-length", row["seq"], "--max-position-embeddings", row["seq"], "--micro-batch-size", row["mbs"],
             "--global-batch-size", row["gbs"], "--tensor-model-parallel-size", row["tp"], "--pipeline-model-parallel-size",
             row["pp"], "--vocab-size", "50257", "--tokenizer-type", "NullTokenizer", "--bf16", "--attention-backend",
             row["flash"], "--train-iters", "100", "--mock-data"]
    flags = {"sp": "--sequence-parallel", "dist_opt": "--use-distributed-optimizer",
             "untied": "--untie-embeddings-and-output-weights"}
    words += [flag for column, flag in flags.items() if row[column] == "True"]
    if row["vpp_layers"]:
        words += ["--num-layers-per-virtual-pipeline-stage", row["vpp_layers"]]
    if row["rec_gran"] == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    return words


def b200_case(row):
    """Llama 3 with the layers that the row has."""
    words = ["--num-layers", row["layers"], "--hidden-size", row["hidden"], "--ffn-hidden-size", row["ffn"],
             "--num-attention-heads", row["heads"], "--group-query-attention", "--num-query-groups", row["kv_heads"],
             "--seq-length", row["seq"], "--max-position-embeddings", row["seq"], "--swiglu", "--normalization", "RMSNorm",
             "--position-embedding-type", "rope", "--disable-bias-linear", "--untie-embeddings-and-output-weights",
             "--attention-dropout", "0", "--hidden-dropout", "0", "--micro-batch-size", row["micro_batch"],
             "--global-batch-size", row["global_batch"], "--tensor-model-parallel-size", row["tp"],
             "--pipeline-model-parallel-size", row["pp"], "--vocab-size", row["vocab"], "--tokenizer-type", "NullTokenizer",
             "--bf16", "--attention-backend", "flash", "--use-distributed-optimizer", "--overlap-grad-reduce",
             "--overlap-param-gather", "--train-iters", "100", "--mock-data"]
    return words + (["--sequence-parallel"] if int(row["tp"]) > 1 else [])


def log(step_ms, peak_mib):
    lines = [f" [2026-11-01 10:00:0{i}] iteration {i:8d}/     100 | consumed samples: {i} | elapsed time per iteration (ms): "
             f"{step_ms:.1f} | learning rate: 1.0E-04 | lm loss: 9.0E+00 | grad norm: 1.0 |" for i in range(1, 8)]
    lines.insert(2, f"[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: {peak_mib:.2f} | "
                    f"reserved: {peak_mib:.2f} | max reserved: {peak_mib:.2f}")
    return "\n".join(lines) + "\n"


class AuditCasesTest(unittest.TestCase):
    def audit(self, words, cluster, step_ms, peak_bytes):
        with tempfile.TemporaryDirectory() as folder:
            script, printed = pathlib.Path(folder) / "train.sh", pathlib.Path(folder) / "train.log"
            script.write_text("ARGS=(\n  " + "\n  ".join(words) + "\n)\ntorchrun --nproc-per-node 8 --nnodes 1 "
                              "pretrain_gpt.py \"${ARGS[@]}\"\n", encoding="utf-8")
            printed.write_text(log(step_ms, peak_bytes / MIB), encoding="utf-8")
            result = subprocess.run([str(BIN / "lynxctl"), "audit", str(script), "--from", "megatron", "--cluster",
                                     str(ROOT / "examples" / "clusters" / f"{cluster}.yaml"), "--log", str(printed), "-o", "json"],
                                    capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["unknown"], [])
        self.assertEqual(answer["notTaken"], [])
        self.assertEqual(answer["devices"], 8)
        self.assertAlmostEqual(answer["measured"]["stepNs"], step_ms * 1e6, delta=1e5)
        self.assertAlmostEqual(answer["measured"]["allocatedBytes"], peak_bytes, delta=MIB)
        return answer

    def check_layout(self, answer, row, micro_batch):
        layout = answer["run"]["layout"].split()
        self.assertEqual(layout[:2], [f"tp{row['tp']}", f"pp{row['pp']}"])
        self.assertEqual(answer["run"]["microBatch"], int(micro_batch))

    def test_memory_of_continuous_integration(self):
        known = rows("framework_ci_memory")
        for name in INTEGRATION:
            row = known[name]
            with self.subTest(name, case=row["case"]):
                measured = float(row["mem_peak_bytes"])
                answer = self.audit(integration_case(row), "a100-80gb-nvlink", float(row["iter_ms"]), measured)
                self.check_layout(answer, row, row["mbs"])
                self.assertEqual(answer["run"]["recompute"], row["rec_gran"] or "none")
                predicted = answer["memory"]["stages"][-1]["total"]
                self.assertAlmostEqual(predicted / measured, 1, delta=0.04)

    def test_steps_and_memory_on_b200(self):
        known = rows("published_runs")
        for name in B200:
            row = known[name]
            with self.subTest(name, model=row["model"]):
                measured = float(row["mem_gb"]) * 1e9
                answer = self.audit(b200_case(row), "b200", float(row["step_s"]) * 1000, measured)
                self.check_layout(answer, row, row["micro_batch"])
                self.assertAlmostEqual(answer["memory"]["peakBytes"] / measured, 1, delta=0.07)
                self.assertAlmostEqual(answer["step"]["stepNs"] / 1e9 / float(row["step_s"]), 1, delta=0.15)
                self.assertLessEqual(answer["best"]["stepNs"], answer["run"]["stepNs"])

    def test_there_are_twenty_cases(self):
        self.assertEqual(len(set(INTEGRATION + B200)), 20)


if __name__ == "__main__":
    unittest.main()
