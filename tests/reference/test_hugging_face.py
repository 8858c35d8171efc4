"""`lynxctl checkpoint export --format hf` and `import`: an independent reader computes the model from the exported files, by
the names and shapes of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM, and its logits are those of the PyTorch
reference. The reader is plain Python in double precision; it knows nothing of Lynx's names."""

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

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
# Of logits and losses from the same fp32 weights: both sides compute in double precision.
EXACT = 1e-8
# Relative, of losses after training in fp32; as in reference_test.cc.
TRAINED = 1e-4


def read_safetensors(path):
    """Name -> (shape, values as a list of floats)."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert header.pop("__metadata__", {}).get("format") == "pt"
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", name
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = array.array("f", data[begin:end])
        assert math.prod(entry["shape"]) == len(values), name
        tensors[name] = (entry["shape"], values.tolist())
    return tensors


def matrix(tensor):
    (rows, columns), values = tensor
    return [values[i * columns:(i + 1) * columns] for i in range(rows)]


def transpose(m):
    return [list(column) for column in zip(*m)]


def times(m, x, bias=None):
    """m x, m as rows (out, in)."""
    y = [sum(map(float.__mul__, row, x)) for row in m]
    return y if bias is None else [a + b for a, b in zip(y, bias)]


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def attend(queries, keys, values, heads, key_heads):
    """Causal attention; each argument a row per token."""
    size = len(queries[0]) // heads
    out = []
    for t, query in enumerate(queries):
        row = []
        for head in range(heads):
            q = query[head * size:(head + 1) * size]
            begin = head // (heads // key_heads) * size
            scores = [sum(map(float.__mul__, q, keys[u][begin:begin + size])) / math.sqrt(size) for u in range(t + 1)]
            largest = max(scores)
            weights = [math.exp(score - largest) for score in scores]
            total = sum(weights)
            for i in range(begin, begin + size):
                row.append(sum(w * values[u][i] for u, w in enumerate(weights)) / total)
        out.append(row)
    return out


class Gpt2:
    def __init__(self, config, tensors):
        self.config = config
        self.t = tensors

    def vector(self, name):
        return self.t[name][1]

    def conv1d(self, name, x):
        """Weights are (in, out)."""
        if name not in self.cache:
            self.cache[name] = transpose(matrix(self.t[name + ".weight"]))
        return times(self.cache[name], x, self.vector(name + ".bias"))

    def norm(self, name, x):
        mean = sum(x) / len(x)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + self.config["layer_norm_epsilon"])
        return [(v - mean) * scale * g + b
                for v, g, b in zip(x, self.vector(name + ".weight"), self.vector(name + ".bias"))]

    def logits(self, tokens):
        c = self.config
        self.cache = {}
        embed, positions = matrix(self.t["transformer.wte.weight"]), matrix(self.t["transformer.wpe.weight"])
        xs = [add(embed[token], positions[i]) for i, token in enumerate(tokens)]
        for layer in range(c["n_layer"]):
            prefix = f"transformer.h.{layer}."
            qkv = [self.conv1d(prefix + "attn.c_attn", self.norm(prefix + "ln_1", x)) for x in xs]
            h = c["n_embd"]
            context = attend([row[:h] for row in qkv], [row[h:2 * h] for row in qkv], [row[2 * h:] for row in qkv],
                             c["n_head"], c["n_head"])
            xs = [add(x, self.conv1d(prefix + "attn.c_proj", y)) for x, y in zip(xs, context)]
            for i, x in enumerate(xs):
                inner = self.conv1d(prefix + "mlp.c_fc", self.norm(prefix + "ln_2", x))
                inner = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in inner]
                xs[i] = add(x, self.conv1d(prefix + "mlp.c_proj", inner))
        head = embed if c["tie_word_embeddings"] else matrix(self.t["lm_head.weight"])
        return [times(head, self.norm("transformer.ln_f", x)) for x in xs]


class Llama:
    def __init__(self, config, tensors):
        self.config = config
        self.t = tensors
        self.cache = {}

    def linear(self, name, x):
        if name not in self.cache:
            self.cache[name] = matrix(self.t[name + ".weight"])
        return times(self.cache[name], x)

    def norm(self, name, x):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.config["rms_norm_eps"])
        return [v * scale * g for v, g in zip(x, self.t[name + ".weight"][1])]

    def rotate(self, x, heads, position):
        size = len(x) // heads
        half = size // 2
        out = list(x)
        for head in range(heads):
            for i in range(half):
                angle = position * self.config["rope_theta"] ** (-2 * i / size)
                a, b = head * size + i, head * size + half + i
                out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
                out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
        return out

    def logits(self, tokens):
        c = self.config
        heads, key_heads = c["num_attention_heads"], c["num_key_value_heads"]
        embed = matrix(self.t["model.embed_tokens.weight"])
        xs = [embed[token] for token in tokens]
        for layer in range(c["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = [self.norm(prefix + "input_layernorm", x) for x in xs]
            project = lambda name: [self.linear(prefix + "self_attn." + name, x) for x in normed]
            queries = [self.rotate(q, heads, i) for i, q in enumerate(project("q_proj"))]
            keys = [self.rotate(k, key_heads, i) for i, k in enumerate(project("k_proj"))]
            context = attend(queries, keys, project("v_proj"), heads, key_heads)
            xs = [add(x, self.linear(prefix + "self_attn.o_proj", y)) for x, y in zip(xs, context)]
            for i, x in enumerate(xs):
                y = self.norm(prefix + "post_attention_layernorm", x)
                gate, up = self.linear(prefix + "mlp.gate_proj", y), self.linear(prefix + "mlp.up_proj", y)
                xs[i] = add(x, self.linear(prefix + "mlp.down_proj",
                                           [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))
        head = embed if c["tie_word_embeddings"] else matrix(self.t["lm_head.weight"])
        return [times(head, self.norm("model.norm", x)) for x in xs]


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    reader = {"GPT2LMHeadModel": Gpt2, "LlamaForCausalLM": Llama}[config["architectures"][0]]
    return reader(config, read_safetensors(folder / "model.safetensors"))


def loss(model, inputs, targets):
    total = 0
    for logits, target in zip(model.logits(inputs), targets):
        largest = max(logits)
        total += largest + math.log(sum(math.exp(v - largest) for v in logits)) - logits[target]
    return total / len(targets)


def golden(name):
    lines = (ROOT / "tests" / "golden" / name).read_text().splitlines()
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
        subprocess.run([str(BIN / "export_reference"), model, str(run), str(steps), str(tp), str(pp)], check=True, timeout=120)
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
        for family, tp, pp in (("gpt", 2, 3), ("llama", 2, 3)):
            run = self.train(family, 0, tp, pp)
            model = load(self.export(run))
            (inputs, _), = self.batch(run, 0, 1)
            expected = golden(f"{family}_reference_logits.txt")
            logits = model.logits(inputs)[-1]
            self.assertEqual(len(logits), len(expected))
            for a, b in zip(logits, expected):
                self.assertAlmostEqual(a, b, delta=EXACT)
            losses = [loss(model, *sample) for sample in self.batch(run, 0, 8)]
            self.assertAlmostEqual(sum(losses) / 8, golden(f"{family}_reference_losses.txt")[0], delta=EXACT)

    def test_trained_weights_have_the_loss_of_the_next_step(self):
        for family in ("gpt", "llama"):
            run = self.train(family, 10, 2, 1)
            model = load(self.export(run))
            losses = [loss(model, *sample) for sample in self.batch(run, 10, 8)]
            expected = golden(f"{family}_reference_losses.txt")[10]
            self.assertAlmostEqual(sum(losses) / 8, expected, delta=TRAINED * expected)

    def test_export_and_import_change_no_bit(self):
        for model in ("gpt", "llama", "tied-gpt", "tied-llama"):
            run = self.train(model, 2, 2, 3)
            first = self.export(run)
            shown = self.ctl("import", first, "--format", "hf", "--out", run / "again")
            self.assertEqual(shown.stdout.strip(), str(run / "again" / "step-00000000"))
            self.ctl("verify", run / "again")
            self.ctl("export", run / "again", "--format", "hf", "--out", run / "second")
            for file in ("config.json", "model.safetensors"):
                self.assertEqual((first / file).read_bytes(), (run / "second" / file).read_bytes(), (model, file))

    def test_import_takes_other_types_files_and_names(self):
        run = self.train("gpt", 0, 1, 1)
        exported = self.export(run)
        tensors = read_safetensors(exported / "model.safetensors")
        other = run / "other"
        other.mkdir()
        shutil.copy(exported / "config.json", other)
        # In two files, without the first part of the names, in half the bytes, with a mask.
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
        # The last value of the file.
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
        for changes, part in (({"rms_norm_eps": 1e-6}, "rms_norm_eps is 1e-06: must be 1e-05"),
                              ({"rms_norm_eps": None}, "rms_norm_eps is missing, which means 1e-06"),
                              ({"rope_theta": 500000.0}, "rope_theta is 500000.0: must be 10000"),
                              ({"rope_scaling": {"factor": 8.0}}, "rope_scaling"),
                              ({"rope_parameters": {"rope_theta": 1e6}}, "rope_theta is 1000000.0"),
                              ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type is \"yarn\""),
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
        self.assertIn("gelu_new", self.ctl("import", exported, "--out", run / "again", code=2).stderr)

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
