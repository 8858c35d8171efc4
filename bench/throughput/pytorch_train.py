#!/usr/bin/python3
"""Trains the benchmark's GPT with PyTorch on CPU cores, as one would write it: throughput_bench's other side.

Prints the milliseconds of each step after the warm-up, one a line.
"""
import math
import os
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

torch.set_num_threads(len(cores))
torch.set_flush_denormal(True)
torch.manual_seed(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        h = args.hidden
        self.ln1, self.ln2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.proj = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.fc1, self.fc2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def attention(self, x):
        b, n, h = x.shape
        q, k, v = (part.view(b, n, args.heads, -1).transpose(1, 2) for part in self.qkv(x).split(h, dim=-1))
        if hasattr(F, "scaled_dot_product_attention"):
            context = F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(k.shape[-1]))
            probs = scores.masked_fill(~CAUSAL[:n, :n], -math.inf).softmax(-1)
            context = F.dropout(probs, args.dropout) @ v
        return self.proj(context.transpose(1, 2).reshape(b, n, h))

    def forward(self, x):
        x = x + F.dropout(self.attention(self.ln1(x)), args.dropout)
        return x + F.dropout(self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh")), args.dropout)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(args.vocab, args.hidden), nn.Embedding(args.seq, args.hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.ln = nn.LayerNorm(args.hidden)
        self.out = nn.Linear(args.hidden, args.vocab, bias=False)

    def forward(self, tokens, targets):
        x = F.dropout(self.tok(tokens) + self.pos.weight, args.dropout)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.out(self.ln(x)).flatten(0, 1), targets.flatten())


CAUSAL = torch.ones(args.seq, args.seq, dtype=torch.bool).tril()
with open(args.data, "rb") as file:
    DATA = torch.tensor(list(file.read()), dtype=torch.long)
model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(args.warmup + args.steps):
    begin = time.perf_counter()
    at = torch.randint(len(DATA) - args.seq - 1, (args.batch,)).tolist()
    batch = torch.stack([DATA[i : i + args.seq + 1] for i in at])
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bfloat16"):
        loss = model(batch[:, :-1], batch[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss.item()
    if step >= args.warmup:
        print(f"{1000 * (time.perf_counter() - begin):.3f}", flush=True)
