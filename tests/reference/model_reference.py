#!/usr/bin/python3
"""The reference models: each model family that the engine trains, written in PyTorch. They train from the same weights and on
the same samples as the engine.

Writes tests/golden/reference/MODEL_reference_losses.txt, which engine_test compares with our own losses. The tests need
no PyTorch; only this script does (Debian: python3-torch). To make a golden file again:

    ninja -C build export_reference
    build/bin/export_reference gpt /tmp/reference
    /usr/bin/python3 tests/reference/model_reference.py /tmp/reference > tests/golden/reference/gpt_reference_losses.txt

With --logits it writes tests/golden/reference/MODEL_reference_logits.txt instead, which test_hugging_face.py compares with
the logits that its own reader of the exported weights computes. They are the logits at the last token of the first sample,
with the initial weights.

Everything is in double precision, so that the file is the same on every machine to more digits than the test asks for.
"""
import glob
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F


def read_settings(directory):
    with open(os.path.join(directory, "settings.txt")) as file:
        pairs = [line.split() for line in file]

    def parse(name, value):
        if name in ("family", "rope_scaling", "scores"):
            return value
        return float(value) if any(c in value for c in ".e") else int(value)

    return {name: parse(name, value) for name, value in pairs}


def read_weights(directory):
    """The tensors of a safetensors file: 8 bytes of header length, a JSON header, the data."""
    (path,) = glob.glob(os.path.join(directory, "step-00000000", "*.safetensors"))
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        data = file.read()
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.endswith((".exp_avg", ".exp_avg_sq")):
            continue
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        weights[name] = flat.reshape(entry["shape"]).double().requires_grad_()
    return weights


def read_tokens(directory, s):
    with open(os.path.join(directory, "tokens.i32"), "rb") as file:
        flat = torch.frombuffer(bytearray(file.read()), dtype=torch.int32).long()
    return flat.reshape(s["steps"], s["global_batch"], 2, s["seq"])


def linear(x, w, name):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def frequencies_of(s):
    """(frequency of each pair, factor of the cosines and sines), as the papers and model cards define them."""
    size, theta, factor, original = s["rope_dims"], float(s["rope_theta"]), float(s["rope_factor"]), s["rope_original_seq"]
    kind = s["rope_scaling"]
    if kind == "dynamic":
        longest = max(s["seq"], original)
        theta *= (factor * longest / original - (factor - 1)) ** (size / (size - 2))
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if kind == "linear":
        return frequencies / factor, 1.0
    if kind == "llama3":
        low, high = s["rope_low_freq_factor"], s["rope_high_freq_factor"]
        rotations = original * frequencies / (2 * math.pi)
        mix = ((rotations - low) / (high - low)).clamp(0, 1)
        return frequencies / factor * (1 - mix) + frequencies * mix, 1.0
    if kind == "yarn":
        def pair(rotations):
            return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
        low = max(0, math.floor(pair(s["rope_beta_fast"])))
        high = min(size - 1, math.ceil(pair(s["rope_beta_slow"])))
        ramp = ((torch.arange(size // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        return frequencies / factor * ramp + frequencies * (1 - ramp), s.get("rope_attention_factor", 0) or 0.1 * math.log(factor) + 1
    return frequencies, 1.0


def rotate(x, s):
    """Applies rotary positions to x (b, heads, n, head size). Only the first rope_dims elements of a head turn: elements i and
    i + rope_dims / 2 form a complex number, which is multiplied by the rotation of its position."""
    n = x.shape[2]
    frequencies, scale = frequencies_of(s)
    size = s["rope_dims"]
    turn = torch.polar(torch.full((n, size // 2), scale, dtype=torch.float64),
                       torch.arange(n, dtype=torch.float64)[:, None] * frequencies)
    turned = torch.complex(x[..., : size // 2], x[..., size // 2 : size]) * turn
    return torch.cat([turned.real, turned.imag, x[..., size:]], dim=-1)


LATENT_NORM_EPSILON = 1e-6  # DeepSeek's classes do not give the norms of latents the model's epsilon


def rms_norm(x, weight, s, epsilon=None):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + (epsilon or s["norm_epsilon"])) * weight


def latent_heads(x, w, prefix, s):
    """Queries, keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), each (b, heads, n, size). The
    rotated elements of a head are its first ones; those of the keys are the same for all heads."""
    b, n, _ = x.shape
    heads, size, values = s["heads"], s["head_size"], s["value_dim"]
    parts = [s["query_rank"], s["kv_rank"], s["rope_dims"]]
    of_queries, of_keys, rotated = linear(x, w, prefix + "latent").split(parts, dim=-1)
    norm_of_queries, norm_of_keys = w[prefix + "latent_norm.weight"].split(parts[:2])
    queries = linear(rms_norm(of_queries, norm_of_queries, s, LATENT_NORM_EPSILON) if parts[0] > 0 else x, w, prefix + "query")
    made = heads * (size - parts[2])
    keys, v = linear(rms_norm(of_keys, norm_of_keys, s, LATENT_NORM_EPSILON), w, prefix + "key_value").split([made, heads * values], dim=-1)
    q, k, v = (part.reshape(b, n, heads, -1).transpose(1, 2) for part in (queries, keys, v))
    return q, torch.cat([rotated[:, None].expand(b, heads, n, parts[2]), k], dim=-1), v


def attention(x, w, prefix, s):
    b, n, h = x.shape
    heads, key_heads, size = s["heads"], s["key_heads"], s["head_size"]
    if s.get("kv_rank", 0) > 0:
        q, k, v = latent_heads(x, w, prefix, s)
        scale = 0.1 * s["mscale_all_dim"] * math.log(s["rope_factor"]) + 1
        return attend(rotate(q, s) * scale * scale, rotate(k, s), v, w, prefix)
    qkv = linear(x, w, prefix + "qkv").split([heads * size, key_heads * size, key_heads * size], dim=-1)
    norms = [w.get(prefix + name) for name in ("q_norm.weight", "k_norm.weight")]
    if s["qk_norm_whole"]:
        qkv = [rms_norm(part, norm, s) for part, norm in zip(qkv, norms)] + [qkv[2]]
    q, k, v = (part.reshape(b, n, -1, size).transpose(1, 2) for part in qkv)  # each has the shape (b, heads, n, head size)
    if norms[0] is not None and not s["qk_norm_whole"]:
        q, k = rms_norm(q, norms[0], s), rms_norm(k, norms[1], s)
    if s["family"] == "llama":
        q, k = rotate(q, s), rotate(k, s)
    k, v = (part.repeat_interleave(heads // key_heads, dim=1) for part in (k, v))
    return attend(q, k, v, w, prefix)


def attend(q, k, v, w, prefix):
    n = q.shape[2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    probs = scores.masked_fill(~causal, -math.inf).softmax(-1)
    context = (probs @ v).transpose(1, 2).flatten(2)
    return linear(context, w, prefix + "proj")


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def activation(fc1, s):
    if s["family"] == "gpt":
        return gelu_tanh(fc1)
    gate, up = fc1.chunk(2, dim=-1)
    return F.silu(gate) * up


def router_losses(scores, probs, chosen, s):
    """The losses of a router, as means over the microbatches: the factor aux_loss times equation 4 of Fedus et al. 2022, and
    z_loss times equation 5 of Zoph et al. 2022. Rows are tokens, in the order of samples."""
    tokens, experts = s["micro_batch"] * s["seq"], s["experts"]
    losses = []
    for score, prob, choice in zip(scores.split(tokens), probs.split(tokens), chosen.split(tokens)):
        share = torch.bincount(choice.flatten(), minlength=experts) / choice.numel()
        balance = experts * (share * prob.mean(0)).sum()
        losses.append(s["aux_loss"] * balance + s["z_loss"] * (score.logsumexp(-1) ** 2).mean())
    return sum(losses) / len(losses)


def mixture(x, w, prefix, s):
    """A block of experts: the sum of the top_k best experts' outputs, by the softmax over all experts, as in Mixtral, or by the
    sigmoid of each expert's score and a bias, as in GLM-4.5. Returns also the losses of the router, and adds the choices of each
    expert to `loads` of the bias. No row is ever dropped, so the job must have room for all."""
    assert s["capacity"] * s["top_k"] >= s["experts"], "rows could be dropped"
    tokens = x.flatten(0, 1)
    scores = tokens @ w[prefix + "router.weight"].T
    probs = scores.sigmoid() if s["scores"] == "sigmoid" else scores.softmax(-1)
    bias = w.get(prefix + "router.bias")
    chosen = (probs if bias is None else probs + bias.detach()).topk(s["top_k"]).indices
    weights = probs.gather(-1, chosen)
    if s["normalized"]:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * s["weight_scale"]
    if bias is not None:
        loads = torch.bincount(chosen.flatten(), minlength=s["experts"]).double()
        bias.loads = loads + getattr(bias, "loads", 0)
    fc1 = w[prefix + "experts.fc1.weight"].unflatten(0, (s["experts"], -1))  # (E, 2w, h)
    fc2 = w[prefix + "experts.fc2.weight"].unflatten(0, (s["experts"], -1))  # (E, h, w)
    out = torch.zeros_like(tokens)
    for expert in range(s["experts"]):
        token, choice = (chosen == expert).nonzero(as_tuple=True)
        rows = activation(tokens[token] @ fc1[expert].T, s) @ fc2[expert].T
        out = out.index_add(0, token, rows * weights[token, choice, None])
    if prefix + "shared.fc1.weight" in w:
        shared = linear(activation(linear(tokens, w, prefix + "shared.fc1"), s), w, prefix + "shared.fc2")
        gate = w.get(prefix + "shared.gate.weight")
        out = out + (shared if gate is None else (tokens @ gate).sigmoid()[:, None] * shared)
    return out.reshape(x.shape), router_losses(scores, probs / probs.sum(-1, keepdim=True), chosen, s)


def outputs_of(inputs, w, s):
    """The logits, and the losses of all routers."""
    def norm(x, name):
        if s["family"] == "llama":
            return rms_norm(x, w[name + ".weight"], s)
        return F.layer_norm(x, (s["hidden"],), w[name + ".weight"], w[name + ".bias"], eps=s["norm_epsilon"])

    x, of_routers = w["embed.tok"][inputs], 0
    if s["family"] == "gpt":
        x = x + w["embed.pos"]
    for layer in range(s["layers"]):
        prefix = f"layers.{layer}."
        x = x + attention(norm(x, prefix + "ln1"), w, prefix, s)
        normed = norm(x, prefix + "ln2")
        if prefix + "router.weight" in w:
            out, losses = mixture(normed, w, prefix, s)
            x, of_routers = x + out, of_routers + losses
        else:
            x = x + linear(activation(linear(normed, w, prefix + "fc1"), s), w, prefix + "fc2")
    return F.linear(norm(x, "head.ln"), w["embed.tok" if s["tied"] else "head.out.weight"]), of_routers


def losses_of(inputs, targets, w, s):
    """The cross-entropy, which is reported, and the sum of all losses, which is minimized."""
    logits, of_routers = outputs_of(inputs, w, s)
    loss = F.cross_entropy(logits.reshape(-1, s["vocab"]), targets.reshape(-1))
    return loss, loss + of_routers


def learning_rate(step, s):
    if step < s["warmup_steps"]:
        return s["lr"] * (step + 1) / s["warmup_steps"]
    done = (step - s["warmup_steps"]) / (s["steps"] - 1 - s["warmup_steps"])
    return s["min_lr"] + (s["lr"] - s["min_lr"]) * 0.5 * (1 + math.cos(math.pi * done))


def main(directory, only_logits):
    s = read_settings(directory)
    w = read_weights(directory)
    tokens = read_tokens(directory, s)
    if only_logits:
        print("# Made by tests/reference/model_reference.py --logits with PyTorch, in double precision: the logits at the last")
        print("# token of the first sample, from the initial weights of the reference job.")
        for logit in outputs_of(tokens[0, :1, 0], w, s)[0][0, -1]:
            print(f"{logit.item():.10f}")
        return
    biases = [p for name, p in w.items() if name.endswith("router.bias")]
    trained = [p for name, p in w.items() if not name.endswith("router.bias")]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.dim() == 2], "weight_decay": s["weight_decay"]},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},
        ],
        betas=(s["beta1"], s["beta2"]),
        eps=s["eps"],
    )
    print("# Made by tests/reference/model_reference.py with PyTorch, in double precision: the loss of each step of")
    print("# the reference job (nats per token) and its gradient norm before clipping.")
    print("# " + " ".join(f"{name}={value}" for name, value in s.items()))
    for step in range(s["steps"]):
        optimizer.zero_grad()
        loss, all_losses = losses_of(tokens[step, :, 0], tokens[step, :, 1], w, s)
        all_losses.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, s["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, s)
        optimizer.step()
        with torch.no_grad():
            for bias in biases:
                bias += s["bias_rate"] * (bias.loads.mean() - bias.loads).sign()
                bias.loads = 0
        print(f"{loss.item():.10f} {norm.item():.10f}")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--logits"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    main(arguments[0], "--logits" in sys.argv)
