"""Runs gpu_step_bench in a tiny form: the command of the record, on a CPU core, and with a rank that computes with CUDA on the host
in place of a GPU; and everything that may go wrong."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import time
import unittest

from smoke import BIN, NOT_HERE, ROOT, Tiny, rows, run_tiny_forms

from cluster import processes
from pages import commands_of

FAKE_NVML = BIN.parent / "lib" / "fake_nvml"
STAND_IN = ROOT / "tests/bench/stand_ins/pytorch_train.py"
SMALL = ("--layers 3 --hidden 16 --heads 1 --seq 16 --vocab 256 --micro-batch 1 --microbatches 1 --rounds 1 --steps 1 --warmup 1 "
         f"--pytorch {shlex.quote(str(STAND_IN))}")
POLICIES = ("recomputes nothing", "full", "Lynx (HEU), 110%")
SAME = r"left out: its plan is that of '[\w ]+'"
PYTORCH = ("PyTorch, eager", "PyTorch, compiled")
STEP = r"\| 1 \| [\d.]+ \([\d.]+ to [\d.]+\) \| "
FORMS = {
    "docs/measurements/throughput.md": [
        Tiny({" lynx-gpu-ranks": "", "--device cuda --rounds 3": f"--device cpu --peak-tflops 1 --measure-seconds 60 {SMALL}", "> gpu_step.md": "| tee gpu_step.md"},
             [*((rf"^\| {re.escape(name)} {STEP}[\d.]+ \| [+-][\d.]+% \| \d+ \| [\d.]+% \| [\d.]+% \| [\d.]+ \|$", 3) for name in POLICIES),
              *((rf"^\| {name} {STEP}", 3) for name in PYTORCH), *((row, 3) for row in rows("qkv", "logits")), (r"^\| sum \|.* [\d.]+ \|$", 3),
              (rf"^\| selective \| 0 \| {SAME} \|", 3), (r"^\| full \| [\d.]+ \| equal \| equal \| [\d.]+ \| equal \| [\d.]+ \|$", 3), ("same to the last bit", 3),
              r'"step_flops_causal"'],
             never=["NOT THE SAME", "FAILED", "left out: (?!its plan is that)"], after="cat gpu_step.json")],
}


class GpuStepTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lynx-gpu-step-test-")))

    def bench(self, *options, rank=BIN / "lynx-rank", **env):
        """The exit code, what was printed, the error and the numbers of a run with one small model."""
        numbers = self.folder / "gpu_step.json"
        ran = subprocess.run(self.command(numbers, rank, options), env=dict(os.environ, **env), capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, timeout=240, cwd=ROOT)
        return ran.returncode, ran.stdout, ran.stderr, json.loads(numbers.read_text()) if numbers.exists() else None

    def command(self, numbers, rank, options):
        asked = shlex.split(f"--models gpt2-124m {SMALL} --measure-seconds 0.1")
        asked = dict(zip(asked[::2], asked[1::2])) | dict(zip(options[::2], options[1::2]))
        return [BIN / "gpu_step_bench", "--rank-binary", rank, "--json", numbers, *(word for pair in asked.items() for word in pair)]

    def rank_that(self, script, before_measuring=":"):
        """A rank process that measures a CPU core, whatever the device is, and does all else with this shell
        script. `before_measuring`: shell commands."""
        path = self.folder / "rank"
        path.write_text('#!/bin/sh\nif [ "$1" = --measure ]; then '
                        f'{before_measuring}; sed -i \'s/"cuda"/"cpu"/; s/"GPU-[^"]*"/""/\' "$2"; '
                        f'exec {shlex.quote(str(BIN / "lynx-rank"))} "$@"; fi\n{script}\n')
        path.chmod(0o755)
        return path

    def cases(self, numbers):
        return {case["name"]: case for case in numbers["models"][0]["cases"]}

    def test_record_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.gpu_step"), FORMS)

    def test_on_a_gpu(self):
        driver = self.folder / "driver"
        driver.write_text("gpus 1\ngpu.0.name NVIDIA H100 80GB HBM3\ngpu.0.used 1048576\n")
        gpu = {"LD_LIBRARY_PATH": str(FAKE_NVML), "LYNX_FAKE_NVML": str(driver)}
        # Measuring the rates of CUDA on the host takes ten seconds. The test e2e.gpu measures them, so this test does not.
        rank = self.rank_that(f'exec {shlex.quote(str(BIN / "stand_in_rank"))} "$@"')
        code, page, error, numbers = self.bench("--device", "cuda:0", rank=rank, **gpu)
        self.assertEqual(code, 0, error)
        self.assertIn("\nNVIDIA H100 80GB HBM3, driver ", page)
        self.assertIn("The stated peak is 989 TFLOP/s (NVIDIA H100 data sheet, SXM)", page)
        self.assertIn("same to the last bit", page)
        for name in POLICIES:
            case = self.cases(numbers)[name]
            self.assertEqual(len(case["round_ms"]), 1)
            self.assertEqual(case["device_peak_bytes"], 0)  # the driver of this test always reports the same memory
            self.assertEqual(case["arena_bytes"], case["predicted"]["arena_bytes"])
            self.assertEqual(case["states_bytes"], case["predicted"]["states_bytes"])
        code, page, error, _ = self.bench("--device", "cuda:1", rank=rank, **gpu)
        self.assertEqual((code, page), (NOT_HERE, ""))
        self.assertIn("--device cuda:1: this machine's NVIDIA driver has 1 GPU", error)

    def test_wrong_arguments(self):
        for options, code, said in ((("--models", "gpt-9"), 1, "there is no model 'gpt-9'; there are gpt2-124m, gpt-1.3b, llama-1.1b"),
                                    (("--device", "tpu"), 1, "--device 'tpu' is not cpu, cuda or cuda:N"),
                                    (("--heads", "3"), 1, "--heads 3 does not divide --hidden 16"),
                                    (("--device", "cuda"), NOT_HERE, "")):
            ran = self.bench(*options, LD_LIBRARY_PATH=str(BIN.parent / "lib" / "old_nvml"))
            self.assertEqual((ran[0], ran[1], ran[3]), (code, "", None), ran)
            self.assertIn(said, ran[2])

    def test_too_little_memory(self):
        # The planner reports that the states do not fit. The rank reports an error for a plan of which the planner thought that
        # it fits.
        code, page, error, _ = self.bench("--device", "cpu", "--memory-mib", "1", "--vocab", "65536")
        self.assertEqual(code, 0, error)
        for name in POLICIES:
            self.assertRegex(page, rf"\| {re.escape(name)} \| 0 \| left out: .*(MiB|memory|full recomputation, which has no plan)")
        report = '{"type":"failure","reason":"the device is full","peer_lost":false,"cause":"memory","peers":[]}'
        code, page, error, numbers = self.bench("--device", "cpu", rank=self.rank_that(f"echo '{report}' > \"$6\"; exit 1"))
        self.assertEqual(code, 0, error)
        for name in POLICIES:
            self.assertRegex(page, rf"\| {re.escape(name)} \| 0 \| left out: .*exit code 1: the device is full \|")
        self.assertEqual(self.cases(numbers)[PYTORCH[0]]["round_ms"], [1])

    def test_a_case_that_fails_does_not_end_the_others(self):
        code, page, error, numbers = self.bench("--device", "cpu", rank=self.rank_that("echo it is broken >&2; exit 1"))
        self.assertEqual(code, 1, error)
        cases = self.cases(numbers)
        for name in POLICIES:
            self.assertRegex(page, rf"\| {re.escape(name)} \| 0 \| FAILED: .*exit code 1.*: it is broken \|")
            self.assertEqual((cases[name]["round_ms"], cases[name]["left_out"]), ([], False))
        for name in PYTORCH:
            self.assertEqual(cases[name]["round_ms"], [1])

    def test_ops_that_cannot_be_measured(self):
        rank = self.rank_that(f'exec {shlex.quote(str(BIN / "lynx-rank"))} "$@"', 'grep -q micro_batch "$2" && { echo no such kernel >&2; exit 1; }')
        code, page, error, numbers = self.bench("--device", "cpu", rank=rank)
        self.assertEqual(code, 0, error)
        self.assertIn("The ops were not measured: measuring device 0: ", page)
        self.assertIn("exit code 1: no such kernel", numbers["models"][0]["ops_error"])
        for name in POLICIES:
            self.assertRegex(page, rf"\| {re.escape(name)} {STEP}")

    def test_without_pytorch(self):
        broken = self.folder / "pytorch_train.py"
        broken.write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
        code, page, error, _ = self.bench("--device", "cpu", "--pytorch", broken, "--data", "README.md")
        self.assertEqual(code, 0, error)
        self.assertRegex(page, rf"\| full {STEP}")
        self.assertIn("| PyTorch, eager | 0 | left out: PyTorch is missing: python3 cannot import torch |", page)

    def test_time_that_is_used_up(self):
        code, page, error, numbers = self.bench("--device", "cpu", "--budget", "4", rank=self.rank_that("exec sleep 60"))
        self.assertEqual(code, 0, error)
        self.assertRegex(page, r"\| recomputes nothing \| 0 \| left out: .*not done in time \|")
        for name in (*POLICIES[1:], *PYTORCH):
            self.assertIn(f"| {name} | 0 | left out: the budget was used up before |", page)
        self.assertLess(numbers["seconds"], 60, "it has waited for the rank, which sleeps as long")

    def test_a_signal_ends_also_the_rank(self):
        # The first step alone takes longer than this test waits.
        options = ("--device", "cpu", "--hidden", "512", "--seq", "8192", "--measure-seconds", "0.1", "--memory-mib", "65536")
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            command = self.command(self.folder / "gpu_step.json", self.rank_that(f'exec {shlex.quote(str(BIN / "lynx-rank"))} "$@"'), options)
            bench = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(bench.kill)
            folder = self.await_rank(bench.pid)
            bench.send_signal(signal_)
            self.assertEqual(bench.wait(timeout=60), 128 + signal_)
            self.assertFalse(folder.exists())
            while processes(folder):  # a killed process needs some time to end; the test's own limit is the end of patience
                time.sleep(0.1)

    def await_rank(self, bench):
        """Waits until the benchmark has started a rank that trains. Returns the benchmark's folder."""
        for _ in range(600):
            for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    words = (stat.parent / "cmdline").read_text().split("\0")
                    if int(stat.read_text().rpartition(")")[2].split()[1]) == bench and "--config" in words:
                        return pathlib.Path(words[words.index("--config") + 1]).parent
            time.sleep(0.1)
        self.fail("the benchmark started no rank")


if __name__ == "__main__":
    unittest.main()
