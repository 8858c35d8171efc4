#!/usr/bin/python3
"""Trains the benchmark's model with PyTorch on CPU cores or on the first visible GPU, as one would write it: the other side of
throughput_bench and gpu_step_bench.

Prints the milliseconds of each step after the warm-up, one a line; on a GPU also `peak_bytes N`, the memory that PyTorch had
allocated at most.
"""
import math
import os
import sys
import time

from pytorch_options import arguments

args = arguments(__doc__)
cores = [int(core) for core in args.cores.split(",")]
os.sched_setaffinity(0, cores)
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[library + "_NUM_THREADS"] = str(len(cores))

import torch  # noqa: E402  (its thread pools read the environment)
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

if args.compile and not hasattr(torch, "compile"):
    sys.exit(f"PyTorch {torch.__version__} has no torch.compile")
GPU = args.device == "cuda"
LLAMA = args.family == "llama"
HEAD = args.hidden // args.heads
torch.set_num_threads(len(cores))
torch.set_flush_denormal(True)
torch.manual_seed(1)


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(args.hidden))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (args.hidden,), self.weight.to(x.dtype), 1e-5)
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def norm():
    return RmsNorm() if LLAMA else nn.LayerNorm(args.hidden)


def rotated(x, cos, sin):
    """Rotary positions of x (b, heads, n, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        h, bias = args.hidden, not LLAMA
        self.widths = [h, args.kv_heads * HEAD, args.kv_heads * HEAD]
        self.ln1, self.ln2 = norm(), norm()
        self.qkv, self.proj = nn.Linear(h, sum(self.widths), bias=bias), nn.Linear(h, h, bias=bias)
        self.fc1, self.fc2 = nn.Linear(h, args.ffn * (2 if LLAMA else 1), bias=bias), nn.Linear(args.ffn, h, bias=bias)

    def attention(self, x, rotary):
        b, n, h = x.shape
        q, k, v = (part.view(b, n, -1, HEAD).transpose(1, 2) for part in self.qkv(x).split(self.widths, dim=-1))
        if LLAMA:
            q, k = (rotated(part, *rotary).to(v.dtype) for part in (q, k))
        if args.kv_heads != args.heads:
            k, v = (part.repeat_interleave(args.heads // args.kv_heads, dim=1) for part in (k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            context = F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(k.shape[-1]))
            probs = scores.masked_fill(~CAUSAL[:n, :n], -math.inf).softmax(-1)
            context = F.dropout(probs, args.dropout) @ v
        return self.proj(context.transpose(1, 2).reshape(b, n, h))

    def mlp(self, x):
        if LLAMA:
            gate, up = self.fc1(x).chunk(2, dim=-1)
            return self.fc2(F.silu(gate) * up)
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))

    def forward(self, x, rotary):
        x = x + F.dropout(self.attention(self.ln1(x), rotary), args.dropout)
        return x + F.dropout(self.mlp(self.ln2(x)), args.dropout)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(args.vocab, args.hidden)
        self.pos = None if LLAMA else nn.Embedding(args.seq, args.hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.ln = norm()
        self.out = nn.Linear(args.hidden, args.vocab, bias=False)
        if args.tied:
            self.out.weight = self.tok.weight
        angles = torch.outer(torch.arange(args.seq).float(), 10000 ** (-torch.arange(0, HEAD, 2).float() / HEAD)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = self.tok(tokens)
        x = F.dropout(x if LLAMA else x + self.pos.weight, args.dropout)
        for layer in self.layers:
            x = layer(x, (self.cos, self.sin))
        return F.cross_entropy(self.out(self.ln(x)).flatten(0, 1), targets.flatten())


CAUSAL = torch.ones(args.seq, args.seq, dtype=torch.bool, device=args.device).tril()
with open(args.data, "rb") as file:
    DATA = torch.tensor(list(file.read()), dtype=torch.long)
model = Model().to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **({"fused": True} if GPU else {}))
loss_of = torch.compile(model) if args.compile else model
for step in range(args.warmup + args.steps):
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    for _ in range(args.microbatches):
        at = torch.randint(len(DATA) - args.seq - 1, (args.batch,)).tolist()
        batch = torch.stack([DATA[i : i + args.seq + 1] for i in at]).to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = loss_of(batch[:, :-1], batch[:, 1:]) / args.microbatches
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss.item()  # waits for the GPU
    if step >= args.warmup:
        print(f"{1000 * (time.perf_counter() - begin):.3f}", flush=True)
if GPU:
    print(f"peak_bytes {torch.cuda.max_memory_allocated()}", flush=True)
