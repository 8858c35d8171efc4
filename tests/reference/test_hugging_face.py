"""Tests `lynxctl checkpoint export --format hf` and `import`. An independent reader computes the model from the exported files,
by the names, shapes and configurations of Hugging Face's GPT-2, GPTBigCode, Llama, Mistral, Qwen2, Qwen3, Phi-3, Mixtral,
Qwen3-MoE, Qwen2-MoE, GLM-4.5, OLMoE, DeepSeek-V2 and DeepSeek-V3. Its logits must be those of the PyTorch reference. The reader is
plain Python in double precision and knows nothing of Lynx's names."""

import array
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

from hugging_face_readers import READERS, read_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
# Tolerance for logits and losses from the same fp32 weights: both sides compute in double precision.
EXACT = 1e-8
# Relative tolerance for losses after training in fp32; the same as in reference_test.cc.
TRAINED = 1e-4


# Each family with the transformers class that it is exported as.
FAMILIES = {"gpt": "GPT2LMHeadModel", "multi-query-gpt": "GPTBigCodeForCausalLM", "llama": "LlamaForCausalLM",
            "llama3": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
            "phi3": "Phi3ForCausalLM", "mixtral": "MixtralForCausalLM", "qwen3-moe": "Qwen3MoeForCausalLM",
            "qwen2-moe": "Qwen2MoeForCausalLM", "glm4-moe": "Glm4MoeForCausalLM", "olmoe": "OlmoeForCausalLM",
            "deepseek-v2": "DeepseekV2ForCausalLM", "deepseek-v3": "DeepseekV3ForCausalLM"}
# Families with experts. Their ranks share the experts, and have no tensor parallelism: tensor parallelism would change the
# tokens over which a router's loss is computed.
EXPERTS = ("mixtral", "qwen3-moe", "qwen2-moe", "glm4-moe", "olmoe", "deepseek-v2", "deepseek-v3")
# Classes without a loss of routers.
NO_ROUTER_LOSS = ("glm4-moe", "deepseek-v2", "deepseek-v3")


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    reader = READERS[config["architectures"][0]]
    return reader(config, read_safetensors(folder / "model.safetensors"))


def loss(model, inputs, targets):
    total = 0
    for logits, target in zip(model.logits(inputs), targets):
        largest = max(logits)
        total += largest + math.log(sum(math.exp(v - largest) for v in logits)) - logits[target]
    return total / len(targets)


def golden(name):
    lines = (ROOT / "tests" / "golden" / "reference" / name).read_text().splitlines()
    return [float(line.split()[0]) for line in lines if not line.startswith("#")]


class HuggingFaceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ctl(self, *arguments, code=0):
        result = subprocess.run([str(BIN / "lynxctl"), "checkpoint", *map(str, arguments)], capture_output=True, text=True,
                                timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, code, result)
        return result

    def train(self, model, steps, tp, pp):
        run = self.folder / f"{model}-{steps}-{tp}-{pp}"
        layout = (1, pp, 2) if model in EXPERTS else (1 if model == "multi-query-gpt" else tp, pp)
        subprocess.run([str(BIN / "export_reference"), model, str(run), str(steps), *map(str, layout)], check=True, timeout=120)
        return run

    def batch(self, run, step, samples):
        """(inputs, targets) of the first samples of a step."""
        s = dict(line.split() for line in (run / "settings.txt").read_text().splitlines())
        seq, global_batch = int(s["seq"]), int(s["global_batch"])
        tokens = array.array("i", (run / "tokens.i32").read_bytes())
        first = step * global_batch
        return [(tokens[i:i + seq].tolist(), tokens[i + seq:i + 2 * seq].tolist())
                for i in range(2 * seq * first, 2 * seq * (first + samples), 2 * seq)]

    def export(self, run):
        out = run / "hf"
        self.ctl("export", run, "--format", "hf", "--out", out)
        return out

    def test_logits_of_an_independent_reader_are_those_of_pytorch(self):
        for family, model_class in FAMILIES.items():
            run = self.train(family, 0, 2, 3)
            model = load(self.export(run))
            self.assertEqual(model.config["architectures"], [model_class])
            (inputs, _), = self.batch(run, 0, 1)
            expected = golden(f"{family}_reference_logits.txt")
            logits = model.logits(inputs)[-1]
            self.assertEqual(len(logits), len(expected))
            for a, b in zip(logits, expected):
                self.assertAlmostEqual(a, b, delta=EXACT, msg=family)
            losses = [loss(model, *sample) for sample in self.batch(run, 0, 8)]
            self.assertAlmostEqual(sum(losses) / 8, golden(f"{family}_reference_losses.txt")[0], delta=EXACT)

    def test_trained_weights_have_the_loss_of_the_next_step(self):
        for family in FAMILIES:
            run = self.train(family, 10, 2, 1)
            model = load(self.export(run))
            losses = [loss(model, *sample) for sample in self.batch(run, 10, 8)]
            expected = golden(f"{family}_reference_losses.txt")[10]
            self.assertAlmostEqual(sum(losses) / 8, expected, delta=TRAINED * expected)

    def test_export_and_import_change_no_bit(self):
        for model in [*FAMILIES, "gpt-tied", "llama-tied"]:
            run = self.train(model, 2, 2, 3)
            first = self.export(run)
            shown = self.ctl("import", first, "--format", "hf", "--out", run / "again")
            self.assertEqual(shown.stdout.strip(), str(run / "again" / "step-00000000"))
            self.ctl("verify", run / "again")
            if model == "qwen3":  # dynamic scaling: config.json has the positions before scaling; the job may use more
                longer = self.ctl("import", first, "--out", run / "longer", "--seq", 8)
                self.assertIn("seq 8", self.ctl("inspect", longer.stdout.strip()).stdout)
                self.assertIn("at most 8 tokens", self.ctl("import", first, "--out", run / "x", "--seq", 9, code=2).stderr)
            self.ctl("export", run / "again", "--format", "hf", "--out", run / "second")
            if model in EXPERTS and model not in NO_ROUTER_LOSS:  # without output_router_logits, the factor of the router's loss is not imported
                factors = [json.loads((folder / "config.json").read_text())["router_aux_loss_coef"] for folder in (first, run / "second")]
                self.assertEqual(factors, [0.05 * 3 / (3 if model in ("qwen3-moe", "olmoe") else 2), 0])
                self.change_config(first, router_aux_loss_coef=0.0)
                self.change_config(run / "second")
            for file in ("config.json", "model.safetensors"):
                self.assertEqual((first / file).read_bytes(), (run / "second" / file).read_bytes(), (model, file))

    def test_import_takes_other_types_files_and_names(self):
        run = self.train("gpt", 0, 1, 1)
        exported = self.export(run)
        tensors = read_safetensors(exported / "model.safetensors")
        other = run / "other"
        other.mkdir()
        shutil.copy(exported / "config.json", other)
        # Writes the tensors as two files: without the first part of their names, in 16 bits, and with an attention mask as one more tensor.
        names = sorted(tensors)
        for i, part in enumerate((names[::2], names[1::2])):
            header, data = {}, b""
            for name in part + (["transformer.h.0.attn.bias"] if i == 0 else []):
                shape, values = tensors.get(name, ([1, 1, 2, 2], None))
                kind = "BOOL" if values is None else "F16" if i == 0 else "BF16"
                if kind == "BOOL":
                    packed = bytes([1, 0, 1, 1])
                elif kind == "F16":
                    packed = struct.pack(f"<{len(values)}e", *values)
                else:
                    packed = b"".join(struct.pack("<f", value)[2:] for value in values)
                header[name.removeprefix("transformer.")] = {
                    "dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
                data += packed
            text = json.dumps(header).encode()
            (other / f"model-{i}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        self.ctl("import", other, "--out", run / "again", "--seq", 8)
        self.ctl("export", run / "again", "--out", run / "second")
        again = read_safetensors(run / "second" / "model.safetensors")
        self.assertEqual(again["transformer.wpe.weight"][0], [8, 32])
        for i, part in enumerate((names[::2], names[1::2])):
            for name in part:
                values = tensors[name][1][:len(again[name][1])]
                if i == 0:
                    expected = list(struct.unpack(f"<{len(values)}e", struct.pack(f"<{len(values)}e", *values)))
                else:
                    expected = [struct.unpack("<f", b"\0\0" + struct.pack("<f", value)[2:])[0] for value in values]
                self.assertEqual(again[name][1], expected, name)

    def test_import_says_what_it_does_not_take(self):
        run = self.train("llama", 0, 1, 1)
        exported = self.export(run)
        (exported / "zz-old.safetensors").write_bytes(b"damaged")
        (exported / "pytorch_model.bin").write_bytes(b"")
        shown = self.ctl("import", exported, "--out", run / "again")
        self.assertEqual(shown.stdout.strip(), str(run / "again" / "step-00000000"))
        self.assertEqual(shown.stderr,
                         "lynxctl: note: not taken: zz-old.safetensors; the weights are those of model.safetensors\n"
                         "lynxctl: note: not taken: pytorch_model.bin; it is PyTorch's pickled format\n")

    def test_import_refuses_a_folder_that_may_mean_something_else(self):
        run = self.train("llama", 0, 1, 1)
        exported = self.export(run)
        index = exported / "model.safetensors.index.json"
        weights = exported / "model.safetensors"

        def refused(code):
            message = self.ctl("import", exported, "--out", run / "again", code=code).stderr
            self.assertEqual(list((run / "again").glob("*")), [])
            return message

        index.write_text("{}")
        self.assertIn("model.safetensors.index.json: there is no weight_map", refused(2))
        index.write_text(json.dumps({"weight_map": {"model.norm.weight": "../model.safetensors"}}))
        self.assertIn("is \"../model.safetensors\", not the name of", refused(2))
        index.write_text(json.dumps({"weight_map": {name: "model-1.safetensors" for name in read_safetensors(weights)}}))
        weights.rename(exported / "kept")
        self.assertIn("names model-1.safetensors (with lm_head.weight, ", refused(4))
        index.unlink()
        (exported / "model.gguf").write_bytes(b"")
        self.assertIn("there is only model.gguf, which is llama.cpp's format", refused(4))
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.assertIn("model.safetensors is a git-lfs pointer", refused(2))
        weights.unlink()
        (exported / "kept").rename(weights)
        config = (exported / "config.json").read_text()
        (exported / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.assertIn("config.json is a git-lfs pointer", refused(2))
        (exported / "config.json").write_text(config)
        # Makes the last value in the file NaN.
        weights.write_bytes(weights.read_bytes()[:-4] + struct.pack("<f", math.nan))
        message = refused(2)
        self.assertRegex(message, r"has 1 value that is NaN or infinity, the first at \[\d+(, \d+)?\]; --allow-non-finite")
        shown = self.ctl("import", exported, "--out", run / "again", "--allow-non-finite")
        self.assertEqual(shown.stdout.strip(), str(run / "again" / "step-00000000"))
        self.assertRegex(shown.stderr, r"lynxctl: note: .* has 1 value that is NaN or infinity, .*; taken as they are\n")

    def change_config(self, folder, **changes):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def test_import_refuses_what_would_compute_something_else(self):
        run = self.train("llama", 0, 1, 1)
        exported = self.export(run)
        original = (exported / "config.json").read_text()
        for changes, part in (({"rope_scaling": {"type": "longrope"}}, "other-rope-scaling"),
                              ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: missing"),
                              ({"hidden_act": "gelu"}, "gated-gelu (a feed-forward gate that passes through GELU)"),
                              ({"attention_bias": True}, "linear-biases"),
                              ({"model_type": "gemma2"}, "soft-capping"),
                              ({"hidden_size": 64}, "has shape (67, 32), not the (67, 64)"),
                              ({"num_hidden_layers": 4}, "has no tensor model.layers.3."),
                              ({"num_hidden_layers": 2}, "tensor model.layers.2.input_layernorm.weight is not a part")):
            (exported / "config.json").write_text(original)
            self.change_config(exported, **changes)
            self.assertIn(part, self.ctl("import", exported, "--out", run / "again", code=2).stderr)
            self.assertFalse((run / "again" / "step-00000000").exists())
        (exported / "config.json").write_text(original)
        self.assertIn("--seq 17", self.ctl("import", exported, "--out", run / "again", "--seq", 17, code=2).stderr)
        self.ctl("import", exported, "--out", run / "again")
        self.assertIn("is there already", self.ctl("import", exported, "--out", run / "again", code=5).stderr)
        self.assertIn("is there already", self.ctl("export", run, "--out", exported, code=5).stderr)
        self.assertIn("no model.safetensors", self.refused_without_weights(exported, run))
        self.assertIn("expected hf", self.ctl("export", run, "--out", run / "x", "--format", "npz", code=2).stderr)

    def refused_without_weights(self, exported, run):
        (exported / "model.safetensors").unlink()
        return self.ctl("import", exported, "--out", run / "none", code=4).stderr

    def test_gelu_must_be_the_approximation(self):
        run = self.train("gpt", 0, 1, 1)
        exported = self.export(run)
        self.change_config(exported, activation_function="gelu")
        self.assertIn("exact-gelu", self.ctl("import", exported, "--out", run / "again", code=2).stderr)

    def test_what_weights_were_trained_with_is_kept(self):
        """Fields that change the meaning of weights are read, kept in the checkpoint, and written again."""
        run = self.train("llama", 0, 1, 1)
        exported = self.export(run)
        fields = {"rms_norm_eps": 1e-6, "rope_theta": 500000.0, "max_position_embeddings": 131072,
                  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192}}
        self.change_config(exported, **fields)
        self.ctl("import", exported, "--out", run / "again")
        self.assertIn("rope theta 500000, llama3 scaling by 8, norm epsilon 1e-06", self.ctl("inspect", run / "again" / "step-00000000").stdout)
        self.ctl("export", run / "again", "--out", run / "second")
        again = json.loads((run / "second" / "config.json").read_text())
        self.assertEqual({name: again[name] for name in fields}, fields)

    def test_experts_that_do_not_fit_are_refused_by_name(self):
        run = self.train("qwen3-moe", 0, 1, 1)
        exported = self.export(run)
        original = (exported / "config.json").read_text()
        for changes, part in (({"num_experts": 7}, "has no tensor model.layers.0.mlp.experts.6.down_proj.weight"),
                              ({"num_experts": 5}, "model.safetensors: model.layers.0.mlp.gate.weight has shape (6, 32), not the (5, 32) of config.json"),
                              ({"moe_intermediate_size": 25}, "has shape (24, 32), not the (25, 32) of config.json"),
                              ({"model_type": "mixtral", "intermediate_size": 24}, "has no tensor model.layers.0.block_sparse_moe."),
                              ({"decoder_sparse_step": 2}, "layers without experts between those that have them")):
            (exported / "config.json").write_text(original)
            self.change_config(exported, **changes)
            self.assertIn(part, self.ctl("import", exported, "--out", run / "again", code=2).stderr)
            self.assertFalse((run / "again" / "step-00000000").exists())

    def test_grouped_queries_of_gpt_have_no_class_to_export_to(self):
        run = self.train("grouped-gpt", 0, 1, 1)
        error = self.ctl("export", run, "--out", run / "hf", code=2).stderr
        self.assertIn("model.kvHeads 2 of 4 heads in model.family gpt cannot be written as a Hugging Face folder", error)
        self.assertFalse((run / "hf").exists())

    def test_inspect_says_what_it_is(self):
        run = self.train("llama", 3, 2, 3)
        page = self.ctl("inspect", run / "step-00000003").stdout
        for part in ("job         reference, generation 1", "step        3", "layout      tp2 pp3 dp1", "in 6 files",
                     "llama, 3 layers, hidden 32, 4 heads (2 of keys and values)"):
            self.assertIn(part, page)
        self.assertRegex(page, r"layers\.1\.qkv\.weight +\(64, 32\) +2\n")
        self.assertRegex(page, r"head\.ln\.weight\.exp_avg_sq +\(32\) +2\n")
        self.assertIn("step-00000003  reference  tp2 pp3 dp1  6", self.ctl("inspect", run).stdout)
        read = json.loads(self.ctl("inspect", run / "step-00000003", "-o", "json").stdout)
        self.assertEqual(read["checkpoints"][0]["step"], 3)
        self.assertEqual(len(read["checkpoints"][0]["files"]), 6)
        self.assertIn({"name": "embed.tok", "shape": [67, 32], "shards": 2}, read["checkpoints"][0]["tensors"])
        self.assertNotIn("tensors", json.loads(self.ctl("inspect", run, "-o", "json").stdout)["checkpoints"][0])
        self.ctl("inspect", self.folder / "absent", code=4)
        self.ctl("inspect", self.folder, code=4)

    def test_verify_says_what_is_wrong(self):
        run = self.train("gpt", 1, 1, 2)
        self.assertIn("step-00000001  whole", self.ctl("verify", run).stdout)
        step = run / "step-00000001"
        shards = sorted(step.glob("*.safetensors"))
        content = shards[0].read_bytes()
        shards[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        shards[1].unlink()
        result = self.ctl("verify", run, code=5)
        self.assertIn("step-00000001  damaged", result.stdout)
        self.assertIn("shard-0000-0000.safetensors is damaged: its SHA-256", result.stderr)
        self.assertIn("shard-0001-0000.safetensors is missing", result.stderr)
        read = json.loads(self.ctl("verify", step, "-o", "json", code=5).stdout)
        self.assertEqual((read["checkpoints"][0]["whole"], len(read["checkpoints"][0]["wrong"])), (False, 2))
        self.assertIn("damaged", self.ctl("export", run, "--out", run / "hf", code=5).stderr)
        self.assertFalse((run / "hf" / "model.safetensors").exists())
        (step / "index.json").write_text("{}")
        self.assertIn("index.json", self.ctl("verify", run, code=5).stderr)
        self.assertIn("index.json", self.ctl("inspect", step, code=5).stderr)


if __name__ == "__main__":
    unittest.main()
