"""Tests models with experts: an independent reader checks the weights that the example exports, weights come from other
programs, and a rank is killed while another one waits for its rows."""

import csv
import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import sys
import time

from cluster import ClusterTest, processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reference"))

from test_hugging_face import load, loss

# Relative tolerance for losses that are computed from the same fp32 weights, once in fp32 and once in double precision.
SAME_WEIGHTS = 1e-5
# Relative tolerance for losses after training in fp32 in another layout; the same as in reference_test.cc.
TRAINED = 1e-4

JOB = """apiVersion: lynx/v1
kind: TrainingJob
name: {name}
model: {model}
data: {{kind: text, path: {data}}}
train:
  steps: {steps}
  globalBatch: 8
  microBatch: 1
  optimizer: {{lr: 3e-3}}
resources: {{ranks: {ranks}}}
parallel: {{tp: 1, pp: 1, dp: {ranks}, ep: {ranks}, schedule: 1f1b, weave: "off", zero: none}}
recompute: full
checkpoint: {{{checkpoint}}}
maxRestarts: 10
"""
SEQ = 16
ROWS = 2 * 20 * 16 * 128 * 4  # number of rows: two experts per token, 20 steps, 16 samples, 128 tokens, 4 layers


class ExpertsTest(ClusterTest):
    devices = 1

    def job_of(self, name, **values):
        path = self.directory / f"{name}.yaml"
        path.write_text(JOB.format(name=name, data=self.corpus, **values))
        return path

    def losses(self, directory, job):
        """The losses of all steps, in order."""
        with open(pathlib.Path(directory) / f"metrics-{job}" / "metrics.csv", newline="") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def reasons(self, page, kind):
        return [event["reason"] for event in page["events"] if event["kind"] == kind]

    def samples(self, text, seq):
        """(inputs, targets) of all samples of a text."""
        return [(list(text[i:i + seq]), list(text[i + 1:i + seq + 1])) for i in range(0, len(text) - seq, seq)]

    def assert_near(self, actual, expected, tolerance, what):
        self.assertAlmostEqual(actual, expected, delta=tolerance * expected, msg=what)


class ReadExampleTest(ExpertsTest):
    def train_and_read(self, name, capacity, example="qwen3-moe-bytes"):
        """Trains the example with this capacity, and computes its validation loss from the exported weights. Returns its page."""
        text = (ROOT / f"examples/{example}.yaml").read_text()
        path, runs, held_out = self.directory / f"{name}.yaml", self.directory / f"runs-{name}", self.directory / "held-out.txt"
        # Each of the four samples occurs as often as the others in a global batch of 16.
        held_out.write_text(self.corpus.read_text()[-(4 * 128 + 1):])
        for old, new in (("/usr/share/common-licenses/GPL-3", f"{self.corpus}\n  validationPath: {held_out}"), ("capacity: 2", capacity),
                         ("everySteps: 50", f"directory: {runs}"), (f"name: {example}", f"name: {name}"),
                         ("steps: 100", "steps: 20\n  evalEvery: 20\n  evalBatches: 1")):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        path.write_text(text)
        result = self.ctl("submit", "-f", path, "--wait", timeout=300)
        self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
        page = self.get(name)
        self.assertEqual(page["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(page["progress"]["loss"], page["progress"]["firstLoss"])
        self.assertEqual(page["plan"]["layout"]["ep"], 2)
        self.assertTrue(page["plan"]["measuredProfile"], "the agents measured the op times of layers with experts")
        for stage, measured in zip(page["plan"]["stages"], page["measured"]):
            self.assertEqual(stage["arenaBytes"], measured["arenaPeakBytes"], "measured peak is the planned peak")
            states = sum(int(stage[what + "Bytes"]) for what in ("weight", "gradient", "optimizer"))
            self.assertEqual(states, int(measured["stateBytes"]), "and so are the states")

        folder = self.directory / f"exported-{name}"
        result = self.ctl("checkpoint", "export", runs, "--out", folder)
        self.assertEqual(result.code, 0, str(result))
        config = json.loads((folder / "config.json").read_text())
        family, experts = ("deepseek_v3", "n_routed_experts") if example == "deepseek-bytes" else ("qwen3_moe", "num_experts")
        self.assertEqual((config["model_type"], config[experts], config["num_experts_per_tok"]), (family, 8, 2))
        with open(runs / f"metrics-{page['id']}" / "metrics.csv", newline="") as file:
            row = list(csv.DictReader(file))[-1]
        self.assertEqual(row["step"], "20")
        model = load(folder)
        samples = self.samples(held_out.read_bytes(), 128)
        self.assertEqual(len(samples), 4)
        expected = sum(loss(model, *sample) for sample in samples) / 4
        self.assert_near(float(row["validation_loss"]), expected, SAME_WEIGHTS, "of the exported weights")
        return page


class ExampleTest(ReadExampleTest):
    def series(self, name):
        """The values of the job's metrics of experts, by name."""
        lines = re.findall(rf'^lynx_job_expert_(\w+)\{{[^}}]*job_name="{name}"[^}}]*\}} (\S+)$', self.metrics("server"), re.M)
        return {metric: float(value) for metric, value in lines}

    def assert_load_is_measured(self, page):
        # Each of the two ranks has four of the eight experts. The fuller rank has at least the even share, and at most all
        # rows.
        skew = page["progress"]["expertSkew"]
        self.assertTrue(1 <= skew <= 2, page["progress"])
        series = self.series("qwen3-moe-bytes")
        self.assertEqual(series["rows_routed_total"], ROWS)
        self.assertEqual(series["rows_dropped_total"], 0)
        self.assertEqual(series["rounds_total"], 0)
        self.assertEqual(series["load_skew"], skew)
        self.assertEqual(series["load_skew_planned"], 1)
        self.assertGreaterEqual(series["load_fullest"], 0.5)
        self.assertIn("rows of the fullest rank", self.ctl("get", page["id"]).out)

    def test_it_trains_and_an_independent_reader_computes_its_validation_loss(self):
        # With this capacity no row is dropped, and the reader drops no row either.
        self.assert_load_is_measured(self.train_and_read("qwen3-moe-bytes", "capacity: 4"))

    def test_rows_without_room_go_through_rounds_and_the_reader_computes_the_same(self):
        page = self.train_and_read("with-rounds", "capacity: 0.5\n    dropless: true")
        series = self.series("with-rounds")
        self.assertEqual(series["rows_routed_total"], ROWS)
        self.assertEqual(series["rows_dropped_total"], 0)
        self.assertGreater(series["rounds_total"], 0)
        # The rooms have space for half of the rows.
        self.assertGreaterEqual(series["rows_in_rounds_total"], ROWS / 2)
        rounds = int(page["progress"]["expertRounds"])
        self.assertGreater(rounds, 0)
        share = 100 * page["progress"]["expertInRoundsRatio"]
        self.assertIn(f"of the even share; {share:.1f}% of all rows in {rounds} rounds", self.ctl("get", page["id"]).out)


class LatentTest(ReadExampleTest):
    nodes = 1
    devices = 2  # a tensor-parallel group is inside a node

    def test_latent_attention_trains_and_the_reader_computes_the_same(self):
        page = self.train_and_read("latents", "capacity: 4", example="deepseek-bytes")
        self.assertEqual(page["plan"]["layout"]["tp"], 2)


MIXTRAL = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "intermediate_size": 24, "num_local_experts": 4}
QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "intermediate_size": 64, "num_experts": 8,
             "moe_intermediate_size": 12, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "head_dim": 6,
             "use_sliding_window": False, "attention_bias": False}
COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2,
          "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
          "tie_word_embeddings": False, "hidden_act": "silu", "sliding_window": None, "torch_dtype": "float32"}


def shapes_of(config):
    """Name -> shape of all tensors of such a model, as transformers names them."""
    h, v, size = config["hidden_size"], config["vocab_size"], config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    mixtral = config["model_type"] == "mixtral"
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if mixtral else ("mlp", "gate_proj", "up_proj", "down_proj")
    experts = config["num_local_experts"] if mixtral else config["num_experts"]
    width = config["intermediate_size"] if mixtral else config["moe_intermediate_size"]
    shapes = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,), "lm_head.weight": (v, h)}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        shapes |= {p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,), p + "self_attn.q_proj.weight": (queries, h),
                   p + "self_attn.k_proj.weight": (keys, h), p + "self_attn.v_proj.weight": (keys, h),
                   p + "self_attn.o_proj.weight": (h, queries), f"{p}{block}.gate.weight": (experts, h)}
        if not mixtral:
            shapes |= {p + "self_attn.q_norm.weight": (size,), p + "self_attn.k_norm.weight": (size,)}
        for e in range(experts):
            shapes |= {f"{p}{block}.experts.{e}.{gate}.weight": (width, h), f"{p}{block}.experts.{e}.{up}.weight": (width, h),
                       f"{p}{block}.experts.{e}.{down}.weight": (h, width)}
    return shapes


def write_folder(folder, config):
    """Writes a Hugging Face folder with random weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    draw, header, data = random.Random(5), {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes_of(config).items():
        count, vector = math.prod(shape), len(shape) == 1
        values = [1 + draw.gauss(0, 0.1) if vector else draw.gauss(0, 0.2) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class ImportTest(ExpertsTest):
    def test_weights_of_other_programs_train_on_several_ranks_as_on_one(self):
        # There are eight samples, so the first global batch contains each of them once.
        self.corpus.write_text("The quick brown fox jumps over the lazy dog. " * 3)
        self.corpus.write_bytes(self.corpus.read_bytes()[:8 * SEQ + 1])
        samples = self.samples(self.corpus.read_bytes(), SEQ)
        self.assertEqual(len(samples), 8)
        for name, own in (("mixtral", MIXTRAL), ("qwen3-moe", QWEN3_MOE)):
            with self.subTest(name):
                folder, weights = self.directory / name, self.directory / f"{name}-weights"
                write_folder(folder, {**COMMON, **own})
                result = self.ctl("checkpoint", "import", folder, "--out", weights, "--seq", SEQ)
                self.assertEqual(result.code, 0, result)
                self.assertEqual(result.out.strip(), str(weights / "step-00000000"))
                capacity = own.get("num_local_experts", own.get("num_experts")) // 2  # so no row is dropped
                model = f"{{config: {folder}/config.json, seq: {SEQ}, dtype: float32, moe: {{capacity: {capacity}}}}}"
                runs = {}
                for ranks in (1, 2):
                    runs[ranks] = self.directory / f"{name}-{ranks}"
                    job = self.submit(self.job_of(f"{name}-{ranks}", model=model, steps=10, ranks=ranks,
                                                  checkpoint=f"from: {weights}, directory: {runs[ranks]}"))
                    page = self.await_state(job, "SUCCEEDED")
                    self.assertEqual(self.reasons(page, "running"), [f"all ranks run, from the weights in {weights}"])
                    self.assertEqual(page["plan"]["layout"]["ep"] or 1, ranks)
                    runs[ranks] = self.losses(runs[ranks], job)
                    self.assertEqual(len(runs[ranks]), 10)
                reader = load(folder)
                first = sum(loss(reader, *sample) for sample in samples) / 8
                self.assert_near(runs[1][0], first, SAME_WEIGHTS, "the imported weights are those of the folder")
                self.assert_near(runs[2][0], first, SAME_WEIGHTS, "each rank has its own experts")
                self.assertLess(runs[1][-1], 0.9 * first)
                for step, (one, two) in enumerate(zip(runs[1], runs[2])):
                    self.assert_near(two, one, TRAINED, f"step {step}")


MODEL = "{family: llama, layers: 4, hidden: 32, heads: 4, seq: 32, vocab: 256, ffn: 32, dropout: 0, moe: {experts: 4, topK: 2, capacity: 2}}"
STEPS = 2000
ATTEMPTS = 5  # nearly all transfers of the job are all-to-alls


class DispatchTest(ExpertsTest):
    """A rank is killed while the other one waits for its rows."""

    def submit_job(self, name):
        checkpoint = f"everySteps: 50, copyEverySteps: 0, directory: {self.directory / name}"
        return self.submit(self.job_of(name, model=MODEL, steps=STEPS, ranks=2, checkpoint=checkpoint))

    def pids_by_rank(self, generation):
        pids = {}
        for pid, command in processes(self.directory).items():
            program = command.split(" ")[0].endswith("lynx-rank") and "--config" in command
            found = re.search(rf"\.g{generation}\.r(\d+)/config\.json", command) if program else None
            if found:
                pids[int(found[1])] = pid
        self.assertEqual(sorted(pids), [0, 1])
        return pids

    def await_waiting(self, pid):
        """Waits until the process uses no processor time: it waits for its peer."""
        last = None
        while True:
            try:
                fields = (pathlib.Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                return  # the process has ended: it has stopped waiting for its peer
            used = int(fields[11]) + int(fields[12])
            if used == last:
                return
            last = used
            time.sleep(0.2)

    def kill_rank_1(self, job, generation):
        """Returns what the other rank says of its end."""
        page = self.await_job(job, lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) == generation, "running")
        self.await_steps(job, int(page["progress"]["stepsDone"]) + 60)
        pids = self.pids_by_rank(generation)
        os.kill(pids[1], signal.SIGSTOP)
        self.await_waiting(pids[0])
        os.kill(pids[1], signal.SIGKILL)
        self.await_job(job, lambda p: int(p["generation"]) == generation + 1, "another generation")
        return "".join(line for line in self.ctl("logs", job).out.splitlines() if line.startswith(f"[rank 0 g{generation}]"))

    def test_a_rank_killed_within_an_all_to_all(self):
        undisturbed = self.submit_job("undisturbed")
        self.await_state(undisturbed, "SUCCEEDED", timeout=300)
        job = self.submit_job("disturbed")
        for attempt in range(1, ATTEMPTS + 1):
            said = self.kill_rank_1(job, attempt)
            self.assertRegex(said, r": step \d+, action \S+: rank 1 \(stage 0, tp 0, dp 1, ep 1\) closed its connection during \S+ \d+ of the ")
            if "during all-to-all" in said:
                break
        self.assertIn("during all-to-all", said)
        page = self.await_state(job, "SUCCEEDED", timeout=300)
        self.assertEqual((int(page["generation"]), page["restarts"]), (attempt + 1, attempt))
        self.assertEqual(page["plan"]["layout"]["ep"], 2)
        lost = self.reasons(page, "rank-lost")
        self.assertEqual(len(lost), attempt, lost)
        for reason in lost:
            self.assertRegex(reason, r"^rank 1 on node \w+ was killed by signal 9$")
        for reason in self.reasons(page, "running")[1:]:
            self.assertRegex(reason, r"^all ranks run, from the checkpoint of step \d+$")
        self.assertEqual(self.losses(self.directory / "disturbed", job), self.losses(self.directory / "undisturbed", undisturbed),
                         "the same run to the bit")
