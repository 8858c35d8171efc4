"""The options that throughput_bench passes to pytorch_train.py. They are in a file of their own, so that they can be
imported where PyTorch is not installed."""

import argparse


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    for name in ("layers", "hidden", "heads", "seq", "vocab", "batch", "steps", "warmup"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--cores", required=True, help="such as 0,1: pinned to these, as many threads")
    parser.add_argument("--data", required=True, help="a text file; each byte is a token")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                        help="bfloat16: autocast; weights and optimizer stay float32")
    return parser.parse_args()
