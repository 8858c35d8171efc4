"""`lynxctl checkpoint export --format hf` and `import`. An independent reader computes the model from the exported
files, by the names, shapes and configurations of Hugging Face's GPT-2, GPTBigCode, Llama, Mistral, Qwen2, Qwen3,
Phi-3, Mixtral and Qwen3-MoE. Its logits must be those of the PyTorch reference. The reader is plain Python in double precision and knows
nothing of Lynx's names."""

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
# Tolerance for logits and losses from the same fp32 weights: both sides compute in double precision.
EXACT = 1e-8
# Relative tolerance for losses after training in fp32; the same as in reference_test.cc.
TRAINED = 1e-4


def read_safetensors(path):
    """Reads a safetensors file: name -> (shape, values as a list of floats)."""
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
    """The product of the matrix m (out, in), a list of rows, and the vector x, plus `bias`."""
    y = [sum(map(float.__mul__, row, x)) for row in m]
    return y if bias is None else [a + b for a, b in zip(y, bias)]


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def attend(queries, keys, values, heads, key_heads):
    """Causal attention. `queries`, `keys` and `values` have one row per token."""
    size = len(queries[0]) // heads
    assert heads % key_heads == 0 and len(keys[0]) == key_heads * size
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


def silu(v):
    return v / (1 + math.exp(-v))


class Gpt2:
    def __init__(self, config, tensors):
        self.config = config
        self.t = tensors

    def vector(self, name):
        return self.t[name][1]

    def linear(self, name, x):
        """A linear layer. GPT-2 stores its weights as (in, out), so they are transposed."""
        if name not in self.cache:
            self.cache[name] = transpose(matrix(self.t[name + ".weight"]))
        return times(self.cache[name], x, self.vector(name + ".bias"))

    def key_heads(self):
        return self.config["n_head"]

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
            qkv = [self.linear(prefix + "attn.c_attn", self.norm(prefix + "ln_1", x)) for x in xs]
            h, k = c["n_embd"], self.key_heads() * c["n_embd"] // c["n_head"]
            context = attend([row[:h] for row in qkv], [row[h:h + k] for row in qkv], [row[h + k:] for row in qkv],
                             c["n_head"], self.key_heads())
            xs = [add(x, self.linear(prefix + "attn.c_proj", y)) for x, y in zip(xs, context)]
            for i, x in enumerate(xs):
                inner = self.linear(prefix + "mlp.c_fc", self.norm(prefix + "ln_2", x))
                inner = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in inner]
                xs[i] = add(x, self.linear(prefix + "mlp.c_proj", inner))
        head = embed if c["tie_word_embeddings"] else matrix(self.t["lm_head.weight"])
        return [times(head, self.norm("transformer.ln_f", x)) for x in xs]


class GptBigCode(Gpt2):
    """GPTBigCode stores weights as (out, in), and all its heads share one key head and one value head."""

    def linear(self, name, x):
        if name not in self.cache:
            self.cache[name] = matrix(self.t[name + ".weight"])
        return times(self.cache[name], x, self.vector(name + ".bias"))

    def key_heads(self):
        assert self.config["multi_query"] and self.config["activation_function"] == "gelu_pytorch_tanh"
        return 1


class Llama:
    def __init__(self, config, tensors):
        self.config = config
        self.t = tensors
        self.cache = {}

    def linear(self, name, x):
        if name not in self.cache:
            self.cache[name] = matrix(self.t[name + ".weight"])
        return times(self.cache[name], x, self.t[name + ".bias"][1] if name + ".bias" in self.t else None)

    def norm(self, name, x):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.config["rms_norm_eps"])
        return [v * scale * g for v, g in zip(x, self.t[name + ".weight"][1])]

    def head_size(self):
        return self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"]

    def frequencies(self, length):
        """(frequency of each pair, factor of cosines and sines) for sequences of this length."""
        scaling = self.config["rope_scaling"] or {"rope_type": "default"}
        theta, kind, factor = self.config["rope_theta"], scaling["rope_type"], scaling.get("factor")
        size = int(self.head_size() * self.config.get("partial_rotary_factor", 1))
        original = scaling.get("original_max_position_embeddings", self.config["max_position_embeddings"])
        if kind == "dynamic":
            theta *= (factor * max(length, original) / original - (factor - 1)) ** (size / (size - 2))
        plain = [theta ** (-2 * i / size) for i in range(size // 2)]
        if kind == "linear":
            return [f / factor for f in plain], 1
        if kind == "llama3":
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            def stretched(f):
                wavelength = 2 * math.pi / f
                if wavelength < original / high:
                    return f
                if wavelength > original / low:
                    return f / factor
                smooth = (original / wavelength - low) / (high - low)
                return (1 - smooth) * f / factor + smooth * f
            return [stretched(f) for f in plain], 1
        if kind == "yarn":
            def dimension(rotations):
                return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
            low = max(math.floor(dimension(scaling["beta_fast"])), 0)
            high = min(math.ceil(dimension(scaling["beta_slow"])), size - 1)
            ramp = [min(1, max(0, (i - low) / (high - low))) for i in range(size // 2)]
            return ([f / factor * r + f * (1 - r) for f, r in zip(plain, ramp)],
                    scaling.get("attention_factor", 0.1 * math.log(factor) + 1))
        assert kind in ("default", "dynamic")
        return plain, 1

    def rotate(self, x, heads, position, length):
        size = self.head_size()
        frequencies, factor = self.frequencies(length)
        half = len(frequencies)
        out = list(x)
        for head in range(heads):
            for i in range(half):
                angle = position * frequencies[i]
                a, b = head * size + i, head * size + half + i
                out[a] = factor * (x[a] * math.cos(angle) - x[b] * math.sin(angle))
                out[b] = factor * (x[b] * math.cos(angle) + x[a] * math.sin(angle))
        return out

    def norm_heads(self, name, x, heads):
        if name + ".weight" not in self.t:
            return x
        size = len(x) // heads
        return sum((self.norm(name, x[i * size:(i + 1) * size]) for i in range(heads)), [])

    def projections(self, prefix, x):
        return [self.linear(prefix + name, x) for name in ("q_proj", "k_proj", "v_proj")]

    def gate_and_up(self, prefix, x):
        return [self.linear(prefix + name, x) for name in ("gate_proj", "up_proj")]

    def feed_forward(self, prefix, x):
        gate, up = self.gate_and_up(prefix + "mlp.", x)
        return self.linear(prefix + "mlp.down_proj", [silu(g) * u for g, u in zip(gate, up)])

    def logits(self, tokens):
        c = self.config
        heads, key_heads = c["num_attention_heads"], c["num_key_value_heads"]
        embed = matrix(self.t["model.embed_tokens.weight"])
        xs = [embed[token] for token in tokens]
        for layer in range(c["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = [self.norm(prefix + "input_layernorm", x) for x in xs]
            window = c.get("sliding_window") if c.get("use_sliding_window", True) else None
            assert not window or len(xs) <= window, "this reader attends to all positions"
            queries, keys, values = zip(*(self.projections(prefix + "self_attn.", x) for x in normed))
            queries = [self.norm_heads(prefix + "self_attn.q_norm", q, heads) for q in queries]
            keys = [self.norm_heads(prefix + "self_attn.k_norm", k, key_heads) for k in keys]
            queries = [self.rotate(q, heads, i, len(xs)) for i, q in enumerate(queries)]
            keys = [self.rotate(k, key_heads, i, len(xs)) for i, k in enumerate(keys)]
            context = attend(queries, keys, values, heads, key_heads)
            xs = [add(x, self.linear(prefix + "self_attn.o_proj", y)) for x, y in zip(xs, context)]
            for i, x in enumerate(xs):
                y = self.norm(prefix + "post_attention_layernorm", x)
                xs[i] = add(x, self.feed_forward(prefix, y))
        head = embed if c["tie_word_embeddings"] else matrix(self.t["lm_head.weight"])
        return [times(head, self.norm("model.norm", x)) for x in xs]


class Phi3(Llama):
    """Phi-3 has the query, key and value weights in one matrix, and the gate and up weights in another."""

    def projections(self, prefix, x):
        size, heads = self.head_size(), self.config["num_attention_heads"]
        keys = self.config["num_key_value_heads"] * size
        row = self.linear(prefix + "qkv_proj", x)
        return row[:heads * size], row[heads * size:heads * size + keys], row[heads * size + keys:]

    def gate_and_up(self, prefix, x):
        row = self.linear(prefix + "gate_up_proj", x)
        return row[:len(row) // 2], row[len(row) // 2:]


class Mixtral(Llama):
    """Each layer has a router and experts. A token passes the experts with its highest scores; the weights of their
    outputs are the softmax of all scores, divided by the sum of those that were chosen."""

    BLOCK, GATE, UP, DOWN = "block_sparse_moe.", "w1", "w3", "w2"

    def experts(self):
        return self.config["num_local_experts"], self.config["intermediate_size"], True

    def feed_forward(self, prefix, x):
        (count, width, normalized), block = self.experts(), prefix + self.BLOCK
        assert not any(name.startswith(f"{block}experts.{count}.") for name in self.t)
        scores = self.linear(block + "gate", x)
        assert len(scores) == count
        parts = [math.exp(score - max(scores)) for score in scores]
        weights = [part / sum(parts) for part in parts]
        chosen = sorted(range(count), key=lambda expert: -weights[expert])[:self.config["num_experts_per_tok"]]
        total = sum(weights[expert] for expert in chosen) if normalized else 1
        out = [0] * len(x)
        for expert in chosen:
            name = f"{block}experts.{expert}."
            gate, up = self.linear(name + self.GATE, x), self.linear(name + self.UP, x)
            assert len(gate) == width
            y = self.linear(name + self.DOWN, [silu(g) * u for g, u in zip(gate, up)])
            out = add(out, [weights[expert] / total * v for v in y])
        return out


class Qwen3Moe(Mixtral):
    BLOCK, GATE, UP, DOWN = "mlp.", "gate_proj", "up_proj", "down_proj"

    def experts(self):
        c = self.config
        assert (c["decoder_sparse_step"], c["mlp_only_layers"]) == (1, []), "every layer has experts"
        return c["num_experts"], c["moe_intermediate_size"], c["norm_topk_prob"]


READERS = {"GPT2LMHeadModel": Gpt2, "GPTBigCodeForCausalLM": GptBigCode, "LlamaForCausalLM": Llama, "MistralForCausalLM": Llama,
           "Qwen2ForCausalLM": Llama, "Qwen3ForCausalLM": Llama, "Phi3ForCausalLM": Phi3,
           "MixtralForCausalLM": Mixtral, "Qwen3MoeForCausalLM": Qwen3Moe}
# Each family with the transformers class that it is exported as.
FAMILIES = {"gpt": "GPT2LMHeadModel", "multi-query-gpt": "GPTBigCodeForCausalLM", "llama": "LlamaForCausalLM",
            "llama3": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
            "phi3": "Phi3ForCausalLM", "mixtral": "MixtralForCausalLM", "qwen3-moe": "Qwen3MoeForCausalLM"}
# Families with experts. Their ranks share the experts, and have no tensor parallelism: it changes which tokens a router's loss is of.
EXPERTS = ("mixtral", "qwen3-moe")


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
            if model in EXPERTS:  # without output_router_logits, the factor of the router's loss is not imported
                factors = [json.loads((folder / "config.json").read_text())["router_aux_loss_coef"] for folder in (first, run / "second")]
                self.assertEqual(factors, [0.05 * 3 / (2 if model == "mixtral" else 3), 0])
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
