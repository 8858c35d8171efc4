"""Tests the plans of `lynxctl plan` in cases where a search easily goes wrong: slow networks, mixed clusters, more memory, very
many microbatches."""

import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
PCIE = (ROOT / "examples" / "clusters" / "a100-40gb-pcie.yaml").read_text()
LLAMA_405B = ("{family: llama, layers: 126, hidden: 16384, heads: 128, kvHeads: 8, ffn: 53248, seq: 8192, vocab: 128256, "
              "dtype: bfloat16, attention: fused, dropout: 0}")
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6}
# Steps are printed with four digits, so two equal steps may differ by this factor.
ROUNDED = 1.001


def device(name, memory, flops, bandwidth):
    return f"""
  - name: {name}
    memory: {{value: {memory}GiB, source: test}}
    peak:
      float32: {{value: {flops / 4}TFLOP/s, source: test}}
      bfloat16: {{value: {flops}TFLOP/s, source: test}}
    memoryBandwidth: {{value: {bandwidth}GB/s, source: test}}"""


def group(name, nodes, devices, node, network):
    links = "".join(f"\n      {link}: {{latency: {{value: {latency}us, source: test}}, bandwidth: {{value: {rate}GB/s, source: test}}}}"
                    for link, (latency, rate) in {"node": node, "network": network}.items())
    return f"""
  - name: {name}
    nodes: {nodes}
    devicesPerNode: {devices}
    device: {name}
    links:{links}"""


def cluster(devices, groups):
    return f"apiVersion: lynx/v1\nkind: Cluster\nname: test\ndevices:{''.join(devices)}\nnodeGroups:{''.join(groups)}\n"


def seconds(text):
    """The seconds of "18m32s", "1h05m" or "3.65 s"."""
    if match := re.fullmatch(r"([0-9.]+) (s|ms|us)", text):
        return float(match[1]) * UNITS[match[2]]
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?", text)
    return int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + float(match[3] or 0)


class SearchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, model, batch, ranks, cluster_text):
        (self.folder / "job.yaml").write_text(
            f"apiVersion: lynx/v1\nkind: TrainingJob\nname: job\nmodel: {model}\ndata: {{kind: megatron, path: corpus}}\n"
            f"train: {{steps: 10, globalBatch: {batch}}}\nresources: {{ranks: {ranks}}}\n")
        (self.folder / "cluster.yaml").write_text(cluster_text)

    def lynxctl(self, command, *options, limit=None):
        def within_limit():
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return subprocess.run([str(BIN / "lynxctl"), command, "-f", str(self.folder / "job.yaml"), "--cluster",
                               str(self.folder / "cluster.yaml"), *options],
                              capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, preexec_fn=within_limit)

    def plan(self, *options, limit=None):
        result = self.lynxctl("plan", *options, limit=limit)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def step_in(self, table):
        return seconds(re.search("predicted: step ([^,]+),", table)[1])

    def step(self, *changes, limit=None):
        return self.step_in(self.plan(*(word for change in changes for word in ("--set", change)), limit=limit))

    def test_a_slow_network_does_not_mislead_the_search(self):
        for rate, most in ((0.5, 13.2), (0.31, 18.1), (0.2, 23.9)):
            with self.subTest(rate):
                text = PCIE.replace("value: 3.1GB/s", f"value: {rate}GB/s").replace("nodes: 4", "nodes: 8")
                self.assertEqual(text.count(f"value: {rate}GB/s"), 1)
                self.write("{preset: llama-7b}", 384, 64, text)
                auto = self.step()
                self.assertLessEqual(auto, most)
                self.assertLessEqual(auto, 1.01 * self.step("parallel.schedule=1f1b"))

    def test_gradients_stay_inside_the_nodes_where_that_is_faster(self):
        self.write("{preset: llama-7b}", 384, 64, PCIE.replace("nodes: 4", "nodes: 8"))
        best = self.plan()
        self.assertIn(" order-tp-dp-pp ", best.splitlines()[0])
        self.assertLess(self.step_in(best), 0.9 * self.step("parallel.rankOrder=tp-pp-dp"))

    def test_many_microbatches_do_not_use_up_the_budget(self):
        nodes = cluster([device("d", 40, 66, 1555)], [group("d", 8, 4, (5, 30), (300, 1.5))])
        self.write("{layers: 32, hidden: 2560, heads: 32, seq: 2048, vocab: 512, dtype: bfloat16}", 2048, 32, nodes)
        auto = self.step()
        for pinned in ("parallel.pp=4", "recompute=none"):
            self.assertLessEqual(auto, ROUNDED * self.step(pinned), pinned)

    def test_pipelines_do_not_use_up_the_guesses(self):
        text = (ROOT / "examples" / "clusters" / "h100.yaml").read_text().replace("nodes: 4", "nodes: 2")
        self.write("{family: llama, layers: 16, hidden: 2048, heads: 16, ffn: 4096, seq: 4096, vocab: 32000, dtype: bfloat16, "
                   "attention: fused, dropout: 0, moe: {experts: 64, topK: 4, ffn: 768}}", 64, 16, text)
        auto = self.step()
        for pinned in ("parallel.pp=1", "parallel.virtualStages=1"):
            self.assertLessEqual(auto, ROUNDED * self.step(pinned), pinned)

    def test_more_memory_is_not_slower(self):
        text = PCIE.replace("nodes: 4", "nodes: 64")
        self.write("{preset: llama-70b}", 2048, 512, text)
        less = self.step()
        self.write("{preset: llama-70b}", 2048, 512, text.replace("value: 40GiB", "value: 50GiB"))
        self.assertLessEqual(self.step(), ROUNDED * less)
        self.assertLessEqual(self.step(), ROUNDED * self.step("parallel.schedule=1f1b"))

    def test_kinds_of_nodes_alternate_where_that_is_faster(self):
        kinds = [device("a100", 38, 312, 1555), device("v100", 30, 125, 900)]
        nodes = [group("a100", 2, 8, (5, 240), (10, 12)), group("v100", 2, 8, (5, 120), (10, 12))]
        self.write("{layers: 32, hidden: 2560, heads: 32, seq: 2048, vocab: 51200, dtype: bfloat16}", 512, 32, cluster(kinds, nodes))
        stages_first = ("--set", "parallel.rankOrder=tp-pp-dp")
        best, given = self.plan(*stages_first), self.plan("--keep-node-order", *stages_first)
        self.assertIn("nodes, in the order of the ranks: a100 x 1, v100 x 1, a100 x 1, v100 x 1\n", best)
        self.assertIn("nodes, in the order of the ranks: a100 x 2, v100 x 2\n", given)
        self.assertLess(self.step_in(best), 0.95 * self.step_in(given))
        alternating, best = best, self.plan()
        self.assertIn(" order-tp-dp-pp ", best.splitlines()[0])
        self.assertLess(self.step_in(best), 0.97 * self.step_in(alternating))
        # With a range of ranks, the step must not be longer than with the ends of the range.
        with_range = self.step("resources.ranks=16..32")
        self.assertLessEqual(with_range, ROUNDED * self.step_in(best))
        self.assertLessEqual(with_range, ROUNDED * self.step("resources.ranks=16"))

    def test_replicas_need_not_divide_the_batch(self):
        self.write("{preset: llama-7b}", 2048, 80, re.sub("nodes: [0-9]+", "nodes: 10", PCIE, count=1))
        best = self.plan()
        self.assertIn(" dp20 ", best.splitlines()[0])
        self.assertIn("\n32 of the 2080 places of the microbatches are empty: the batch has 2048 samples\n", best)
        self.assertLess(self.step_in(best), 0.95 * self.step("parallel.dp=16"))
        # Other frameworks refuse such a batch.
        exported = self.lynxctl("export", "--format", "megatron")
        self.assertIn("--global-batch-size 2048\n", exported.stdout)
        self.assertIn(" dp16 ", exported.stdout)
        refused = self.lynxctl("export", "--format", "megatron", "--set", "parallel.dp=20")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("train.globalBatch is 2048, which is not a multiple of parallel.dp = 20", refused.stderr)

    def test_a_note_says_what_float32_costs_on_tensor_cores(self):
        h100 = (ROOT / "examples" / "clusters" / "h100.yaml").read_text()
        self.write("{layers: 24, hidden: 2048, heads: 16, seq: 2048, vocab: 51200}", 64, 8, h100)
        table = self.plan()
        note = re.search(r"^note: with model.dtype: bfloat16, model.attention: fused a step would take (.*), ([0-9.]+) times as fast$",
                         table, re.MULTILINE)
        self.assertIsNotNone(note, table)
        changed = self.plan("--set", "model.dtype=bfloat16", "--set", "model.attention=fused")
        self.assertEqual(seconds(note[1]), self.step_in(changed))
        self.assertAlmostEqual(float(note[2]), self.step_in(table) / self.step_in(changed), delta=0.1)
        self.assertNotIn("note:", changed)

    def test_very_many_microbatches_take_little_memory(self):
        h100 = (ROOT / "examples" / "clusters" / "h100.yaml").read_text()
        for model, batch, ranks, pinned in (("{preset: gpt-1.3b}", 1 << 20, 8, ("parallel.pp=8", "train.microBatch=1")),
                                            ("{preset: gpt-175b}", 16384, 64, ()), (LLAMA_405B, 16384, 512, ())):
            with self.subTest(model):
                self.write(model, batch, ranks, re.sub("nodes: [0-9]+", f"nodes: {ranks // 8}", h100, count=1))
                self.assertGreater(self.step(*pinned, limit=(1 << 30) + (1 << 28)), 100)


if __name__ == "__main__":
    unittest.main()
