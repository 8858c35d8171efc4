"""Tests `lynxctl import`, which makes a job file from the arguments of another framework's run, and lists the arguments for
which a job file has no counterpart. Also tests `lynxctl audit`."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
SCRIPT = """#!/bin/bash
TP=${TP:-2}
ARGS=(--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256
      --micro-batch-size 2 --global-batch-size 16 --train-iters 10 --vocab-size 1000 --bf16 --exp-avg-dtype bf16 --odd-flag 3)
torchrun --nproc_per_node 4 pretrain_gpt.py ${ARGS[@]} --tensor-model-parallel-size $TP --log-interval 1
touch $0.was_run
"""


class ImportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "train.sh"
        self.script.write_text(SCRIPT)

    def ctl(self, *arguments, code=0, input=None):
        result = subprocess.run([str(BIN / "lynxctl"), *map(str, arguments)], capture_output=True, text=True, timeout=120, input=input or "")
        self.assertEqual(result.returncode, code, result)
        return result

    def test_a_job_file_that_can_be_planned(self):
        result = self.ctl("import", "--from", "megatron", self.script)
        self.assertIn("without a counterpart in a job:\n  - --exp-avg-dtype bf16: ", result.stderr)
        self.assertIn("unknown to Lynx, and left out:\n  - --odd-flag 3\n", result.stderr)
        self.assertIn("#   - --odd-flag 3\n", result.stdout)
        job = self.folder / "job.yaml"
        self.assertEqual(self.ctl("import", "--from", "megatron", self.script, "--out", job).stdout, "")
        self.assertEqual(job.read_text(), result.stdout)
        self.assertIn("tp2 pp1 dp2", self.ctl("plan", "-f", job, "--for", "any").stdout)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["job.yaml", "train.sh"], "the script was not run")

    def test_variables_fields_and_devices(self):
        shown = self.ctl("import", "--from", "megatron", self.script, "--set", "TP=1", "--set", "model.vocab=500", "--devices", "8").stdout
        for line in ("  tp: 1\n", "  dp: 8\n", "  vocab: 500\n", "  ranks: 8\n"):
            self.assertIn(line, shown)

    def test_json(self):
        answer = json.loads(self.ctl("import", "--from", "megatron", self.script, "-o", "json").stdout)
        self.assertEqual((answer["framework"], answer["devices"], answer["unknown"]), ("megatron", 4, ["--odd-flag 3"]))
        self.assertIn("kind: TrainingJob", answer["job"])

    def test_errors(self):
        self.assertIn("--from gpt-neox: expected ", self.ctl("import", "--from", "gpt-neox", self.script, code=2).stderr)
        self.assertIn("--set TP: expected NAME=VALUE", self.ctl("import", "--from", "megatron", self.script, "--set", "TP", code=2).stderr)
        self.assertIn("--set XY: ", self.ctl("import", "--from", "megatron", self.script, "--set", "XY=1", code=2).stderr)
        self.assertIn("no such file", self.ctl("import", "--from", "megatron", self.folder / "none.sh", code=4).stderr)
        self.assertIn("model.nothing", self.ctl("import", "--from", "megatron", self.script, "--set", "model.nothing=1", code=2).stderr)

    def audit(self, *arguments, code=0):
        return self.ctl("audit", "--from", "megatron", ROOT / "examples" / "megatron-8b.sh", "--cluster",
                        ROOT / "examples" / "clusters" / "h100.yaml", *arguments, code=code)

    def test_an_audit_beside_a_log(self):
        log = ROOT / "examples" / "megatron-8b.log"
        shown = self.audit("--log", log).stdout
        for text in ("run: megatron, 32 devices, tp4 pp2 dp4 ", "; fits, ", "measured: step 5.70 s, the median of 6 from 3 to 8",
                     "best of megatron", "lynx: the job file of 'lynxctl import', with\n  --set parallel."):
            self.assertIn(text, shown)
        answer = json.loads(self.audit("--log", log, "-o", "json").stdout)
        self.assertEqual(answer["measured"]["steps"], 6)
        self.assertEqual(sum(answer["step"][part] for part in answer["step"] if part != "stepNs") // 1000, answer["step"]["stepNs"] // 1000)
        self.assertLess(answer["best"]["stepNs"], answer["run"]["stepNs"])

    def test_an_audit_of_a_run_that_does_not_fit(self):
        shown = self.audit("--set", "TP=1", "--set", "PP=1", code=1).stdout
        self.assertIn("does not fit: ", shown)

    def test_errors_of_audits(self):
        self.assertIn("found no line of megatron with the time of a step", self.audit("--log", self.script, code=2).stderr)
        self.assertIn("--log: ", self.audit("--log", self.folder / "none", code=4).stderr)
        self.assertIn("clusters", self.ctl("audit", "--from", "megatron", self.script, "--cluster", ROOT / "examples/clusters/no.yaml", code=4).stderr)


if __name__ == "__main__":
    unittest.main()
