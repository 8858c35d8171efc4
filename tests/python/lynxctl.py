"""Runs lynxctl beside the package, for tests that compare the two."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
EXAMPLES = ROOT / "examples"
CLUSTERS = EXAMPLES / "clusters"


def lynxctl(*arguments, code=0):
    """What lynxctl prints, as bytes decoded; its exit code must be `code`."""
    done = subprocess.run([str(BIN / "lynxctl"), *map(str, arguments)], capture_output=True, timeout=300,
                          stdin=subprocess.DEVNULL)
    if done.returncode != code:
        raise AssertionError(f"lynxctl {arguments} ended with {done.returncode}, not {code}: {done.stderr.decode()}")
    return done.stdout.decode() if code == 0 else done.stderr.decode()
