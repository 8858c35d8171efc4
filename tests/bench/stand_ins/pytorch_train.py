"""In place of bench/throughput/pytorch_train.py where PyTorch is not installed: takes the same options, trains nothing, and prints as many
times, all of them one millisecond."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "throughput"))

from pytorch_options import arguments

for _ in range(arguments(__doc__).steps):
    print("1.000")
