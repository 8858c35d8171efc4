"""A studio for tests and pictures: starts `lynxctl studio`, knows what its page looks like when it rests, and changes what the
form says."""

import base64
import json
import os
import pathlib
import re
import signal
import subprocess

import browser
import checks

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
STEP = "return document.querySelector('#view .figures .value').textContent.replace(/\\s+/g, ' ').trim()"
BESIDE = """const e = document.querySelector(`#form [data-field="${arguments[0]}"] .error`);
return e && !e.hidden && e.textContent"""
DROP = """const transfer = new DataTransfer();
transfer.items.add(new File([arguments[1]], arguments[0]));
const options = {bubbles: true, cancelable: true, dataTransfer: transfer};
document.getElementById('form').dispatchEvent(new DragEvent('drop', options))"""
# This script runs before the page's scripts. It counts the requests that are under way to each address, and keeps the largest
# count in window.most.
COUNTED = """window.most = {}; { const under = {}, real = window.fetch;
window.fetch = async (path, options) => {
  let flies = true;
  const ended = () => { if (flies) --under[path]; flies = false; };
  under[path] = (under[path] ?? 0) + 1;
  options?.signal?.addEventListener('abort', ended, {once: true});
  window.most[path] = Math.max(window.most[path] ?? 0, under[path]);
  try { return await real(path, options); } finally { ended(); }
}; }"""


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


class StudioCase(checks.PageChecks):
    """A base class for test cases: one studio for all tests of the class."""

    @classmethod
    def setUpClass(cls):
        cls.studio = Studio()

    @classmethod
    def tearDownClass(cls):
        cls.studio.close()

    def opened(self, state=STATE, **options):
        window = browser.Browser(**options)
        self.addCleanup(window.close)
        window.command("Page.addScriptToEvaluateOnNewDocument", {"source": COUNTED})
        window.open(self.studio.address + (fragment(state) if state else ""))
        window.until("return document.querySelector('#view .figures .value') || !document.getElementById('trouble').hidden")
        return window

    def rested(self, window):
        window.until(RESTS)
        return window

    def choose(self, window, field, value):
        window.run(SET, field, value)

    def state(self, window):
        text = window.run("return location.hash").removeprefix("#s=")
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def changed(self, window, before):
        """Waits until the page rests and shows another step time than `before`, and returns it."""
        return window.until(f"const now = (() => {{ {STEP} }})(), rests = (() => {{ {RESTS} }})(); "
                            "return rests && now !== arguments[0] && now", before)
