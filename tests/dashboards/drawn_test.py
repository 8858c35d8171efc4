#!/usr/bin/env python3
"""Draws the dashboards with Grafana's own components in a browser, with the data that a real Prometheus has
scraped from a training cluster. Grafana itself is not used: drawn/ imitates the parts of it that are in no library. Exit code 77
and a reason if something is missing.

LYNX_DRAWN is the folder that drawn_libraries.py made. Pictures go into the folder LYNX_PICTURES, if it is set."""

import copy
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/packages", "tests/browser", "tests/e2e"):
    sys.path.insert(0, str(ROOT / folder))

import browser  # noqa: E402
import test_metrics  # noqa: E402
from debian_tree import Unavailable, run_tests  # noqa: E402

SITE = pathlib.Path(os.environ["LYNX_DRAWN"]) / "site"
PICTURES = os.environ.get("LYNX_PICTURES")
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards/grafana").glob("*.json"))}
VERSION = re.search(r"^project\(lynx VERSION ([\d.]+) ", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
INTERVAL = 1  # seconds between Prometheus' scrapes
DRAWN = """
    if (!window.drawn) return null;
    const made = window.drawn();
    if (made.panels.some((panel) => !["Done", "Error"].includes(panel.state))) return null;
    return made;
"""


class Page(http.server.SimpleHTTPRequestHandler):
    """Serves the page, the dashboards as the server has them, and Prometheus' address."""

    def do_GET(self):
        path = self.path.partition("?")[0].lstrip("/")
        found = self.server.settings if path == "settings.json" else self.server.boards.get(path.removeprefix("boards/").removesuffix(".json"))
        if found is None:
            return super().do_GET()
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def excused(board):
    """Titles of panels whose queries have no data here."""
    without = test_metrics.without_data()
    return {panel["title"] for panel in panels(board)
            if all(f"{board['title']}: {panel['title']}: {query['refId']}" in without for query in panel["targets"])}


def spoiled():
    """A copy of a dashboard in which one panel has an invalid query and one has a query without data."""
    board = copy.deepcopy(BOARDS["lynx-control"])
    graphs = [panel for panel in panels(board) if panel["type"] == "timeseries"]
    graphs[0]["targets"][0]["expr"] = "sum(("
    graphs[1]["targets"] = [dict(graphs[1]["targets"][0], expr="lynx_nothing")]
    return dict(board, uid="spoiled"), graphs[0]["title"], graphs[1]["title"]


class DrawnTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = browser.missing() or ("" if shutil.which("prometheus") else "prometheus is not installed")
        missing = missing or ("" if SITE.exists() else "the page is not made: see the test dashboards.libraries")
        if missing:
            raise Unavailable(missing)
        cls.cluster = test_metrics.PrometheusTest("train")
        cls.addClassCleanup(cls.cluster.doCleanups)
        cls.cluster.setUp()
        cls.cluster.start_prometheus()
        cls.cluster.await_scraped()
        cls.began = time.time()
        cls.cluster.train()
        cls.cluster.await_steps(cls.cluster.job, 200)
        cls.spoiled = spoiled()
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Page, directory=str(SITE)))
        cls.server.boards = dict(BOARDS, spoiled=cls.spoiled[0])
        cls.server.settings = {"name": "Lynx", "uid": "lynx", "type": "prometheus", "url": cls.cluster.url,
                               "jsonData": {"timeInterval": f"{INTERVAL}s"}}
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def draw(self, window, name):
        """What the page says about a dashboard that is drawn completely."""
        now = int(time.time() * 1000)
        window.open(f"http://127.0.0.1:{self.server.server_port}/page.html?board={name}&from={int(self.began * 1000)}&to={now}&refresh=")
        window.until("return document.readyState == 'complete' && (Boolean(window.drawn) || document.body.textContent.startsWith('error:'))")
        self.assertTrue(window.run("return Boolean(window.drawn)"), window.run("return document.body.textContent"))
        window.until(DRAWN)
        # The window is as high as the page, because panels out of sight are not drawn.
        window.resize(1600, window.run("return document.documentElement.scrollHeight"))
        window.until(DRAWN)
        window.settle()
        made = window.run(DRAWN)
        for panel in made["panels"]:
            panel["title"] = next(one["title"] for one in panels(self.server.boards[name]) if f"panel-{one['id']}" == panel["key"])
        return made

    def without_data(self, window):
        """Titles of panels that say that they have no data."""
        return set(window.run("return [...document.querySelectorAll('[data-nothing]')].map("
                              "(one) => one.closest('section').querySelector('h2').textContent)"))

    def look(self, name):
        """Draws the dashboard again and again until only the excused panels are empty: some panels have data only after several scrapes."""
        with browser.Browser(width=1600, height=1000, dark=True) as window:
            for _ in range(30):
                made = self.draw(window, name)
                empty = self.without_data(window) | {panel["title"] for panel in made["panels"] if not panel["frames"] and not panel["errors"]}
                if empty == excused(BOARDS[name]):
                    break
                self.cluster.ctl("nodes")  # a call, because a panel that counts calls is empty without one
                time.sleep(2)
            if PICTURES:
                pathlib.Path(PICTURES).mkdir(parents=True, exist_ok=True)
                window.screenshot(str(pathlib.Path(PICTURES) / f"{name}.png"))
            return made, empty, window.run("return document.body.innerText"), window.run(
                "return [...document.querySelectorAll('a')].map((one) => one.href)")

    def test_every_dashboard_is_drawn_with_data(self):
        self.assertEqual(len(BOARDS), 5)
        for name, board in BOARDS.items():
            with self.subTest(name):
                made, empty, text, links = self.look(name)
                self.assertEqual([panel for panel in made["panels"] if panel["errors"] or panel["state"] != "Done"], [])
                self.assertEqual(empty, excused(board))
                self.assertEqual([one for one in made["variables"] if one.get("error") or one["loading"] or not one["value"]], [])
                self.assertEqual(sorted(panel["title"] for panel in made["panels"]), sorted(panel["title"] for panel in panels(board)))
                lines = text.splitlines()
                self.assertEqual([panel["title"] for panel in panels(board) if panel["title"] not in lines], [])
                # A line without a name would show its query.
                self.assertEqual([line for line in lines if re.search(r"[{(]\w*[=~(]|lynx_\w+", line)], [])
                if name == "lynx-cluster":
                    self.assertLess({"Job", "Name", "Queue", "Layout", "Device", self.cluster.job, "long"}, set(lines))
                    self.assertTrue([link for link in links if f"/d/lynx-job?var-job_name=long&var-job_id={self.cluster.job}&" in link], links)
                if name == "lynx-control":
                    self.assertLess({VERSION, "up"}, set(lines))

    def test_what_cannot_be_drawn_is_found(self):
        board, wrong, nothing = self.spoiled
        with browser.Browser(width=1600, height=1000) as window:
            made = self.draw(window, board["uid"])
            by_title = {panel["title"]: panel for panel in made["panels"]}
            self.assertEqual(by_title[wrong]["state"], "Error")
            self.assertIn("parse error", by_title[wrong]["errors"][0])
            self.assertEqual((by_title[nothing]["frames"], by_title[nothing]["errors"]), (0, []))
            self.assertIn(nothing, self.without_data(window))


if __name__ == "__main__":
    run_tests()
