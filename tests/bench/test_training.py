"""Runs the commands of the records about training in a tiny form: policies over slow links, a comparison with PyTorch, checkpoints."""

import os
import pathlib
import re
import shlex
import subprocess
import unittest

from smoke import ROOT, Tiny, rows, run_tiny_forms

from pages import blocks_of, commands_of

POLICIES = ("store all, no limit", "full", "full, keep collectives", "selective", "no overlap", "Lynx (HEU)")
SMALL = "--layers 2 --hidden 32 --heads 2 --seq 32 --microbatches 2 --rounds 1 --steps 1"
STAND_IN = pathlib.Path(__file__).resolve().parent / "stand_ins" / "pytorch_train.py"
# True if the Python that throughput_bench starts has PyTorch.
PYTORCH = subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0
SIDE = "" if PYTORCH else f" --pytorch {shlex.quote(str(STAND_IN))}"
CORES = len(os.sched_getaffinity(0))
THREADS = min(2, CORES)
MODEL = "--layers 1 --hidden 32 --heads 2 --seq 32 --rounds 1 --steps 1" + SIDE
GPT2 = "--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50257 --batch 1"
SMALL_GPT2 = "--layers 1 --hidden 32 --heads 2 --seq 32 --vocab 512 --batch 1" + SIDE
RECORD = "docs/measurements/checkpoints.md"
SMALLER_JOB = {"layers: 4, hidden: 512, heads: 8, seq: 128, vocab: 8192": "layers: 1, hidden: 32, heads: 2, seq: 32, vocab: 256", "steps: 28": "steps: 6",
               "everySteps: 9": "everySteps: 2"}


def overlap(links, *more, policies=POLICIES):
    """What overlap_bench must print for each of `links` links: a row per policy with the planned peak, and equal losses."""
    lines = [rf"^\| {re.escape(name)} \| (?:yes|no) \| [\d.]+ \| equal \| [\d.]+ \(" for name in policies]
    lines += [r"same to the last bit\.$", r"^Predicted steps are off by [\d.]+% in the median"]
    return [*((line, links) for line in lines), *more]


def throughput(*threads):
    spread = r"[\d.]+ \([\d.]+ to [\d.]+\)"
    return [rf"^\| {count} \| {spread} \| {spread} \| {spread} \| \d+ \| \d+% \| \d+% \| [\d.]+ \|" for count in threads]


def job_of_the_record(folder):
    page = ROOT / RECORD
    text, = [block.text for block in blocks_of(RECORD, page.read_text())[0] if block.language == "yaml"]
    for large, small in SMALLER_JOB.items():
        assert large in text, large
        text = text.replace(large, small)
    (folder / "job.yaml").write_text(text)


FORMS = {
    "docs/measurements/overlap.md": [
        Tiny({"--hidden 512 --heads 8 --seq 256 --microbatches 2 --rounds 3 --steps 2": SMALL,
              "--hidden 512 --heads 8 --seq 128 --microbatches 6 --rounds 3 --steps 2": SMALL,
              "--hidden 256 --heads 8 --seq 128 --micro-batch 2 --microbatches 4 --rounds 3 --steps 2": SMALL},
             overlap(4, "Forward collectives take 1 of", "Forward collectives take 0.2 of", "A microbatch's transfer takes 0.1 of"), never=["NOT THE SAME"]),
        Tiny({"--hidden 512 --heads 8 --seq 256 --microbatches 2 --rounds 5 --steps 2 --slowness 1": SMALL},
             overlap(2, "^A Llama of .*with sequence parallelism", "^A GPT of .*bfloat16"), never=["NOT THE SAME"])],
    "docs/measurements/moe.md": [
        Tiny({"--layers 6 --hidden 256 --heads 4 --seq 256 --microbatches 2 --rounds 5 --steps 2": SMALL},
             overlap(1, "^A Llama of .*dp2 ep2 pp1, 8 experts, 2 for a token"), never=["NOT THE SAME"])],
    "docs/measurements/planner.md": [
        Tiny({"--hidden 256 --heads 8 --seq 128 --micro-batch 2 --microbatches 8 --rounds 5 --steps 3": SMALL},
             overlap(1, policies=[*POLICIES, "Lynx (HEU), offloading"]), never=["NOT THE SAME"])],
    "docs/measurements/throughput.md": [
        Tiny({"throughput_bench --rounds 3 --steps 4": f"throughput_bench {MODEL}" + ("" if CORES > 1 else " --threads 1"), GPT2: SMALL_GPT2,
              "--rounds 2 --steps 2": "--rounds 1 --steps 1", "--threads 2 ": f"--threads {THREADS} "},
             throughput(1, THREADS)),
        Tiny({"--dtype fp32 --rounds 2 --steps 2": f"--dtype fp32 --threads 1 {MODEL}", "--dtype bf16 --rounds 1 --steps 1": f"--dtype bf16 --threads 1 {MODEL}"},
             [*throughput(1), "float32, batches", "bfloat16, batches"]),
        Tiny({GPT2: SMALL_GPT2, "--threads N --dtype T": f"--threads {THREADS} --dtype bf16"}, throughput(THREADS))],
    RECORD: [
        Tiny({}, ["SUCCEEDED", r'"checkpoint_ns": ?"?[1-9]', r'"duration_ns": ?"?[1-9]'], prepare=job_of_the_record,
             after='cat "$LYNX_HOME"/local/node0/worker/ranks/*/report.jsonl')],
}


class TrainingTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.training"), FORMS)

    @unittest.skipUnless(PYTORCH, "PyTorch is not installed (python3-torch, 600 MB with what it needs): a stand-in printed its times")
    def test_pytorch_was_its_own_side(self):
        self.assertEqual(SIDE, "")

    @unittest.skipIf(CORES < 2, "two threads need two cores")
    def test_two_threads_were_two(self):
        self.assertEqual(THREADS, 2)


if __name__ == "__main__":
    unittest.main()
