#!/usr/bin/env python3
"""How long the studio takes to answer while a slider moves, and to search all layouts when it rests.

    bench/studio.py [--moves 30] [--models llama-7b,gpt-22b,llama-65b] [--nodes 8] [--machine a100-80gb-nvlink]

Starts `lynxctl studio` and asks it over HTTP as its page does: first for the best plan, then once for each move of a slider (sequence
length, memory of a device, speed of links, in turn), in the layout of the answer before. Each time is from the question to the last
byte of the answer, with the timeline that the page draws. Printed are the median and the range of the moves, of them the median of
planning alone, and the time of the first, whole search.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import time
import urllib.request

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[1] / "build" / "bin"))
GIB = 1 << 30
MOVES = [lambda state, n: state["job"].update({"model.seq": 1024 + 128 * (n % 8)}),
         lambda state, n: state.update(memoryBytes=(76 - n % 8) * GIB),
         lambda state, n: state.update(linkScale=1 + (n % 8) / 8)]


class Studio:
    def __init__(self):
        self.process = subprocess.Popen([BIN / "lynxctl", "studio"], stdout=subprocess.PIPE, text=True)
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if found is None:
            raise SystemExit("lynxctl studio did not begin; it says why above")
        self.address = found.group()
        self.sequence = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def plan(self, client, state, layout):
        """The answer, and the seconds until it was there."""
        self.sequence += 1
        body = json.dumps({"state": state, "sequence": self.sequence, "client": client.replace(".", "-"), "layout": layout}).encode()
        request = urllib.request.Request(self.address + "api/plan", body, {"Content-Type": "application/json", "Origin": self.address.rstrip("/")})
        begin = time.monotonic()
        with urllib.request.urlopen(request) as reply:
            answer = json.loads(reply.read())
        seconds = time.monotonic() - begin
        if "summary" not in answer:
            raise SystemExit(f"{client}: no plan: {answer}")
        return answer, seconds


def measure(studio, model, options):
    state = {"model": {"preset": model}, "machine": {"name": options.machine}, "job": {"train.globalBatch": 256}, "nodes": options.nodes,
             "memoryBytes": 0, "linkScale": 1.0}
    answer, whole = studio.plan(model, state, "any")
    times, planning = [], []
    for n in range(options.moves):
        MOVES[n % len(MOVES)](state, n)
        moved, seconds = studio.plan(model, state, "same")
        times.append(1e3 * seconds)
        planning.append(moved["summary"]["planningNs"] / 1e6)
    print(f"{model}, {answer['summary']['layout']}: {statistics.median(times):.0f} ms a move ({min(times):.0f} to {max(times):.0f}), "
          f"of them {statistics.median(planning):.1f} ms of planning; whole search {whole:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=30)
    parser.add_argument("--models", default="llama-7b,gpt-22b,llama-65b")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--machine", default="a100-80gb-nvlink")
    options = parser.parse_args()
    with Studio() as studio:
        for model in options.models.split(","):
            measure(studio, model, options)


if __name__ == "__main__":
    main()
