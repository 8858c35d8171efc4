"""The options that throughput_bench and gpu_step_bench pass to pytorch_train.py. They are in a file of their own, so that they can be
imported where PyTorch is not installed."""

import argparse


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--family", choices=("gpt", "llama"), required=True)
    for name in ("layers", "hidden", "heads", "kv-heads", "ffn", "seq", "vocab", "batch", "microbatches", "steps", "warmup"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--tied", action="store_true", help="the output projection has the weights of the token embedding")
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--cores", required=True, help="such as 0,1: pinned to these, as many threads")
    parser.add_argument("--data", required=True, help="a text file; each byte is a token")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                        help="bfloat16: autocast; weights and optimizer stay float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    return parser.parse_args()
