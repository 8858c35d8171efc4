"""Replaces bench/throughput/pytorch_train.py where PyTorch is not installed. It takes the same options and trains nothing.
It prints the same number of step times, each of one millisecond."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "throughput"))

from pytorch_options import arguments

for _ in range(arguments(__doc__).steps):
    print("1.000")
