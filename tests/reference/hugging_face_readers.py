"""An independent reader of models in the files of Hugging Face's transformers, by its names, shapes and configurations. It is plain
Python in double precision and knows nothing of Lynx's names."""

import array
import json
import math
import pathlib
import struct


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

    def norm(self, name, x, epsilon=None):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + (epsilon or self.config["rms_norm_eps"]))
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

    def attention(self, prefix, normed):
        """The output of attention for each token, before o_proj."""
        c = self.config
        heads, key_heads = c["num_attention_heads"], c["num_key_value_heads"]
        window = c.get("sliding_window") if c.get("use_sliding_window", True) else None
        assert not window or len(normed) <= window, "this reader attends to all positions"
        queries, keys, values = zip(*(self.projections(prefix, x) for x in normed))
        queries = [self.norm_heads(prefix + "q_norm", q, heads) for q in queries]
        keys = [self.norm_heads(prefix + "k_norm", k, key_heads) for k in keys]
        queries = [self.rotate(q, heads, i, len(normed)) for i, q in enumerate(queries)]
        keys = [self.rotate(k, key_heads, i, len(normed)) for i, k in enumerate(keys)]
        return attend(queries, keys, values, heads, key_heads)

    def logits(self, tokens):
        c = self.config
        embed = matrix(self.t["model.embed_tokens.weight"])
        xs = [embed[token] for token in tokens]
        for layer in range(c["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = [self.norm(prefix + "input_layernorm", x) for x in xs]
            context = self.attention(prefix + "self_attn.", normed)
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
        weights, preference, factor = self.weigh(block, scores)
        chosen = sorted(range(count), key=lambda expert: -preference[expert])[:self.config["num_experts_per_tok"]]
        total = (sum(weights[expert] for expert in chosen) if normalized else 1) / factor
        out = [0] * len(x)
        for expert in chosen:
            name = f"{block}experts.{expert}."
            gate, up = self.linear(name + self.GATE, x), self.linear(name + self.UP, x)
            assert len(gate) == width
            y = self.linear(name + self.DOWN, [silu(g) * u for g, u in zip(gate, up)])
            out = add(out, [weights[expert] / total * v for v in y])
        return out

    def weigh(self, block, scores):
        """The weight of each expert, the numbers by which they are chosen, and a factor of the weights of those that were."""
        parts = [math.exp(score - max(scores)) for score in scores]
        weights = [part / sum(parts) for part in parts]
        return weights, weights, 1


class Qwen3Moe(Mixtral):
    BLOCK, GATE, UP, DOWN = "mlp.", "gate_proj", "up_proj", "down_proj"

    def experts(self):
        c = self.config
        assert (c["decoder_sparse_step"], c["mlp_only_layers"]) == (1, []), "every layer has experts"
        return c["num_experts"], c["moe_intermediate_size"], c["norm_topk_prob"]


class Olmoe(Mixtral):
    """A norm goes over all queries of a token, and one over all its keys. Experts are as wide as `intermediate_size`."""

    BLOCK, GATE, UP, DOWN = "mlp.", "gate_proj", "up_proj", "down_proj"

    def experts(self):
        c = self.config
        assert c["clip_qkv"] is None and "head_dim" not in c
        return c["num_experts"], c["intermediate_size"], c["norm_topk_prob"]

    def norm_heads(self, name, x, heads):
        return self.norm(name, x)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Qwen2Moe(Qwen3Moe):
    """Each token also passes one more block, whose output is multiplied by a gate."""

    def feed_forward(self, prefix, x):
        block = prefix + "mlp.shared_expert."
        gate, up = self.gate_and_up(block, x)
        assert len(gate) == self.config["shared_expert_intermediate_size"]
        assert self.t[prefix + "mlp.shared_expert_gate.weight"][0] == [1, len(x)]
        (opened,) = map(sigmoid, self.linear(prefix + "mlp.shared_expert_gate", x))
        shared = self.linear(block + "down_proj", [silu(g) * u for g, u in zip(gate, up)])
        return add(super().feed_forward(prefix, x), [opened * v for v in shared])


class Glm4Moe(Mixtral):
    """The first layers have no experts. Experts are chosen by the sigmoid of their score plus a bias, and weighted by the
    sigmoid. Each token also passes one more block."""

    BLOCK, GATE, UP, DOWN = "mlp.", "gate_proj", "up_proj", "down_proj"

    def experts(self):
        c = self.config
        assert (c["n_group"], c["topk_group"]) == (1, 1), "this reader chooses among all experts"
        return c["n_routed_experts"], c["moe_intermediate_size"], c["norm_topk_prob"]

    def weigh(self, block, scores):
        shape, bias = self.t[block + "gate.e_score_correction_bias"]
        assert shape == [len(scores)]
        weights = [sigmoid(score) for score in scores]
        return weights, add(weights, bias), self.config["routed_scaling_factor"]

    def norm_heads(self, name, x, heads):
        assert self.config["use_qk_norm"] == (name + ".weight" in self.t)
        return super().norm_heads(name, x, heads)

    def feed_forward(self, prefix, x):
        layer = int(prefix.split(".")[2])
        if layer < self.config["first_k_dense_replace"]:
            assert prefix + "mlp.gate.weight" not in self.t
            return Llama.feed_forward(self, prefix, x)
        block = prefix + "mlp.shared_experts."
        gate, up = self.gate_and_up(block, x)
        assert len(gate) == self.config["n_shared_experts"] * self.config["moe_intermediate_size"]
        shared = self.linear(block + "down_proj", [silu(g) * u for g, u in zip(gate, up)])
        return add(super().feed_forward(prefix, x), shared)


class Deepseek(Glm4Moe):
    """Queries, keys and values are made from a few numbers of each token, whose norms have an epsilon of their own. Rotated
    elements of a head come after the others; its pairs are neighbours; those of the keys are the same for all heads."""

    LATENT_EPSILON = 1e-6  # the default of the norm's class: the model's epsilon is not given to it

    def norm_latent(self, name, x):
        return self.norm(name, x, self.LATENT_EPSILON)

    def weigh(self, block, scores):
        if self.config["scoring_func"] == "softmax":
            assert self.config["topk_method"] == "greedy" and self.config["routed_scaling_factor"] == 1
            return Mixtral.weigh(self, block, scores)
        assert self.config["topk_method"] == "noaux_tc"
        return super().weigh(block, scores)

    def head_size(self):
        return self.config["qk_rope_head_dim"]

    def frequencies(self, length):
        frequencies, _ = super().frequencies(length)
        scaling = self.config["rope_scaling"]
        assert scaling is None or (scaling["mscale"] == scaling["mscale_all_dim"] and "attention_factor" not in scaling)
        return frequencies, 1  # the quotient of the factors for mscale and mscale_all_dim

    def score_factor(self):
        scaling = self.config["rope_scaling"]
        return 1 if scaling is None else (0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1) ** 2

    def turn(self, x, position, length):
        """Rotates the neighbouring elements of x."""
        out = []
        for (a, b), frequency in zip(zip(x[::2], x[1::2]), self.frequencies(length)[0]):
            cosine, sine = math.cos(position * frequency), math.sin(position * frequency)
            out += [a * cosine - b * sine, a * sine + b * cosine]
        return out

    def attention(self, prefix, normed):
        """The output of attention for each token, before o_proj."""
        c = self.config
        heads, nope, values, length = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"], len(normed)
        scale = self.score_factor() / math.sqrt(nope + c["qk_rope_head_dim"])
        parts = []
        for position, x in enumerate(normed):
            if c["q_lora_rank"] is None:
                query = self.linear(prefix + "q_proj", x)
            else:
                normed_latent = self.norm_latent(prefix + "q_a_layernorm", self.linear(prefix + "q_a_proj", x))
                query = self.linear(prefix + "q_b_proj", normed_latent)
            compressed = self.linear(prefix + "kv_a_proj_with_mqa", x)
            latent, rotated = compressed[:c["kv_lora_rank"]], self.turn(compressed[c["kv_lora_rank"]:], position, length)
            made = self.linear(prefix + "kv_b_proj", self.norm_latent(prefix + "kv_a_layernorm", latent))
            size, width = len(query) // heads, len(made) // heads
            assert (size, width) == (nope + c["qk_rope_head_dim"], nope + values)
            parts.append([(query[h * size:h * size + nope] + self.turn(query[h * size + nope:(h + 1) * size], position, length),
                           made[h * width:h * width + nope] + rotated, made[h * width + nope:(h + 1) * width]) for h in range(heads)])
        out = []
        for position in range(length):
            row = []
            for head in range(heads):
                scores = [scale * sum(map(float.__mul__, parts[position][head][0], parts[u][head][1])) for u in range(position + 1)]
                weights = [math.exp(score - max(scores)) for score in scores]
                row += [sum(w * parts[u][head][2][i] for u, w in enumerate(weights)) / sum(weights) for i in range(values)]
            out.append(row)
        return out


READERS = {"GPT2LMHeadModel": Gpt2, "GPTBigCodeForCausalLM": GptBigCode, "LlamaForCausalLM": Llama, "MistralForCausalLM": Llama,
           "Qwen2ForCausalLM": Llama, "Qwen3ForCausalLM": Llama, "Phi3ForCausalLM": Phi3,
           "MixtralForCausalLM": Mixtral, "Qwen3MoeForCausalLM": Qwen3Moe,
           "Qwen2MoeForCausalLM": Qwen2Moe, "Glm4MoeForCausalLM": Glm4Moe,
           "OlmoeForCausalLM": Olmoe, "DeepseekV2ForCausalLM": Deepseek, "DeepseekV3ForCausalLM": Deepseek}
