#!/usr/bin/env python3
"""Takes the pictures of docs/images that show pages in a browser: pictures.py FOLDER [NAME...] takes all of them, or
the named ones. For those of the live page it starts its own cluster, which trains the quickstart's job; for those of the
studio, a studio. LYNX_BIN is the folder of the programs."""

import argparse
import pathlib
import re
import sys
import tempfile

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import cluster  # noqa: E402
import studio  # noqa: E402

WIDTH = 1200
HEIGHTS = {"live-cluster": 690, "live-job": 1490, "plan": 1025, "studio-plan": 760, "studio-more": 560, "studio-pinned": 620,
           "studio-does-not-fit": 560, "studio-copy": 620, "studio-phone": 780}
PHONE = 360  # width
# Numbers of steps. SHORT: a job that goes as planned. LONG: a job that loses a rank. ENDLESS: a job that still trains while
# the pictures are taken, from its step LOOKED_AT on.
SHORT, LONG, ENDLESS, LOOKED_AT = 100, 400, 3000, 800


class Cluster(cluster.ClusterTest):
    """The quickstart's cluster: two nodes with one CPU rank each."""

    devices = 1

    def runTest(self):
        pass

    def train(self, name, steps):
        page = (ROOT / "docs/quickstart.md").read_text()
        path = self.directory / f"{name}.yaml"
        path.write_text(re.search(r"cat > job.yaml <<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL).group(1))
        return self.submit(path, "--set", f"name={name}", "--set", f"train.steps={steps}", "--set", f"checkpoint.directory={self.directory}/{name}")

    def fill(self):
        """Runs two jobs to their end and kills a rank of the second one. Returns a third job, which still trains."""
        self.await_state(self.train("first", SHORT), "SUCCEEDED")
        second = self.train("second", LONG)
        self.await_steps(second, LONG // 4)
        cluster.kill([self.rank_pids()[0]])
        self.await_state(second, "SUCCEEDED")
        looked = self.train("looked", ENDLESS)
        self.await_steps(looked, LOOKED_AT)
        return looked


def take(window, folder, name):
    window.resize(WIDTH, HEIGHTS[name])
    window.screenshot(folder / f"{name}.png")


def take_live(folder, names):
    here = Cluster()
    try:
        here.setUp()
        job = here.fill()
        address = (here.home / "server/page.address").read_text().strip()
        with browser.Browser(WIDTH) as window:
            window.open(f"http://{address}/")
            window.until("return document.querySelector('tr[data-job] .state.running')")
            if "live-cluster" in names:
                take(window, folder, "live-cluster")
            if "live-job" in names:
                window.run("location.hash = 'job=' + arguments[0]", job)
                window.until("return [...document.querySelectorAll('#step svg text')].some((e) => e.textContent === 'measured')")
                take(window, folder, "live-job")
    finally:
        here.doCleanups()


def take_plan(folder):
    """Takes pictures of the plan in the README."""
    command = re.search(r"^build/bin/lynxctl (plan .*) --html plan\.html$", (ROOT / "README.md").read_text(), re.MULTILINE).group(1)
    with tempfile.TemporaryDirectory() as work:
        page = pathlib.Path(work) / "plan.html"
        made = cluster.run(*[ROOT / word if word.startswith("examples/") else word for word in command.split()], "--html", page)
        if made.code != 0:
            sys.exit(f"there is no plan: {made}")
        with browser.Browser(WIDTH) as window:
            window.open(page)
            take(window, folder, "plan")


def take_studio(folder, names):
    """The pictures of docs/studio.md, in its order."""
    running = studio.Studio()
    try:
        with browser.Browser(WIDTH) as window:
            window.open(running.address)
            window.until(studio.RESTS)
            take(window, folder, "studio-plan")
            if set(names) == {"studio-plan"}:
                return
            window.run("location.hash = arguments[0]", studio.fragment(studio.STATE))
            window.until("return document.title.includes('gpt-6.7b')")
            window.until(studio.RESTS)
            window.resize(WIDTH, HEIGHTS["studio-more"])
            window.run("document.getElementById('more').scrollIntoView(); scrollBy(0, -16)")
            take(window, folder, "studio-more")
            window.run("document.getElementById('pin').click()")
            window.run(studio.SET, "slide-memoryBytes-number", "24")
            window.until(studio.RESTS)
            window.run("document.getElementById('pin').click()")
            window.run(studio.SET, "recompute", "full")
            window.until(studio.RESTS)
            window.run("document.getElementById('toast').hidden = true; scrollTo(0, 0)")
            take(window, folder, "studio-pinned")
            window.run("document.getElementById('unpin-all').click()")
            window.run("location.hash = arguments[0]", studio.fragment({**studio.STATE, "model": {"preset": "gpt-20.2b"}, "job": {"train.globalBatch": 64}}))
            window.until("return document.getElementById('apply')")
            take(window, folder, "studio-does-not-fit")
            window.run("location.hash = arguments[0]", studio.fragment({**studio.STATE, "nodes": 2}))
            window.until("return !document.querySelector('.troubled')")
            window.until(studio.RESTS)
            window.command("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
            window.run("document.getElementById('copy').click(); document.querySelector('[data-format=megatron]').click()")
            window.until("return document.getElementById('export').open")
            take(window, folder, "studio-copy")
        with browser.Browser(PHONE, HEIGHTS["studio-phone"]) as window:
            window.open(running.address)
            window.until(studio.RESTS)
            window.screenshot(folder / "studio-phone.png")
    finally:
        running.close()


def main():
    parser = argparse.ArgumentParser(description="Takes the pictures of pages in a browser.")
    parser.add_argument("folder", type=pathlib.Path, help="where they go, such as docs/images")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(HEIGHTS)}; without any all of them")
    options = parser.parse_args()
    names = options.names or list(HEIGHTS)
    if unknown := [name for name in names if name not in HEIGHTS]:
        parser.error(f"there is no picture {unknown[0]}, only {', '.join(HEIGHTS)}")
    if browser.missing():
        sys.exit(f"error: {browser.missing()}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if set(names) & {"live-cluster", "live-job"}:
        take_live(options.folder, names)
    if "plan" in names:
        take_plan(options.folder)
    if any(name.startswith("studio") for name in names):
        take_studio(options.folder, names)


if __name__ == "__main__":
    main()
