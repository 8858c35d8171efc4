"""A studio for tests and pictures: starts `lynxctl studio`, and knows what its page looks like when it rests."""

import base64
import json
import os
import pathlib
import re
import signal
import subprocess

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))

# A state that is planned in a moment, and that recomputes.
STATE = {"model": {"preset": "gpt-6.7b"}, "machine": {"name": "a100-40gb-pcie"}, "nodes": 1,
         "job": {"train.globalBatch": 64, "train.microBatch": 4, "parallel.tp": 4, "parallel.pp": 2, "parallel.schedule": "1f1b",
                 "parallel.weave": "off"}}
# The page shows a plan. What it begins with takes seconds of a core for the plan, and many more for policies and limits.
PLANNED = "return document.querySelector('#view .figures .value')"
# The page shows a plan, and waits for nothing.
RESTS = """return document.querySelector('#view .figures .value') && document.getElementById('progress').hidden &&
           !document.body.matches('.waiting') && !document.querySelector('#more.old')"""
SET = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; for (const n of ['input', 'change']) e.dispatchEvent(new Event(n, {bubbles: true}))"


def fragment(state):
    whole = {"model": {}, "machine": {}, "job": {}, "nodes": 0, "memoryBytes": 0, "linkScale": 1, **state}
    return "#s=" + base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=")


class Studio:
    """A studio that runs. Close it."""

    def __init__(self, *options):
        command = [str(BIN / "lynxctl"), "studio", *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        self.told = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", self.told)
        if found is None:
            self.close()
            raise RuntimeError(f"the studio names no address: {self.told}")
        self.address = found.group()

    def close(self):
        """Ends it as Ctrl-C does; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=browser.PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode
