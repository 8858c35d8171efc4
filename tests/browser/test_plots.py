"""The view of a plan as a component, and the chart of step times over memory, in a real browser, with the mouse and with keys alone.

Runs where a Chromium is installed; elsewhere it says so and ends with status 77.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import browser
import checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))
FILES = ROOT / "planner/report/page"
SCRIPTS = ("shared", "data", "timeline", "interaction", "memory", "view", "chart")

GIB = 1 << 30
CHART = {
    "points": [{"name": "none", "stepNs": 1.0e9, "peakBytes": 90 * GIB, "fits": False, "chosen": False, "note": "12.0 GiB are missing"},
               {"name": "auto", "stepNs": 1.1e9, "peakBytes": 70 * GIB, "fits": True, "chosen": True, "note": ""},
               {"name": "<b>full</b>", "stepNs": 1.4e9, "peakBytes": 30 * GIB, "fits": True, "chosen": False, "note": "everything"},
               {"name": "opt", "stepNs": None, "peakBytes": None, "fits": False, "chosen": False, "note": "too large"}],
    "frontier": [{"stepNs": 1.35e9, "peakBytes": 32 * GIB, "note": ""}, {"stepNs": 1.2e9, "peakBytes": 50 * GIB, "note": ""}],
    "limitBytes": 78 * GIB,
}


class PlotsTest(checks.PageChecks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.plans = [cls.plan_of("first", "auto"), cls.plan_of("second", "full")]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def plan_of(cls, name, policy):
        """The data and some parts of a plan's page, as a program would get them from PlanPageParts."""
        page = pathlib.Path(cls.folder.name) / f"{name}.html"
        subprocess.run([str(BIN / "lynxctl"), "plan", "-f", str(ROOT / "examples/gpt-bytes.yaml"), "--set", f"recompute={policy}",
                        "--html", str(page)], check=True, capture_output=True, timeout=browser.PATIENCE)
        text = page.read_text()
        return {"data": re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL).group(1),
                "figures": re.search(r'data-part="figures">(.*?)</section>', text, re.DOTALL).group(1)}

    def opened(self, body, **options):
        page = pathlib.Path(self.folder.name) / "page.html"
        scripts = "".join(f'<script src="{(FILES / name).as_uri()}.js"></script>' for name in SCRIPTS)
        page.write_text(f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>plots</title>
            <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src file:; script-src file:; img-src data:">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <link rel="icon" href="data:,"><link rel="stylesheet" href="{(FILES / "page.css").as_uri()}"></head><body><h1>Plots</h1>
            <template id="plan-view">{(FILES / "view.html").read_text()}</template>{body}{scripts}</body></html>""")
        window = browser.Browser(**options)
        self.addCleanup(window.close)
        window.open(page)
        return window

    def mounted(self, **options):
        window = self.opened('<main id="a"></main>', **options)
        window.run("""window.view = mountPlan(byId("a"));
            view.show(JSON.parse(arguments[0].data), { figures: arguments[0].figures })""", self.plans[0])
        window.settle()
        return window

    def test_a_view_shows_one_plan_after_another(self):
        window = self.mounted()
        self.assert_no_complaints(window)
        self.assert_named(window)
        pixels = "return document.querySelector('canvas.lanes').toDataURL()"
        shown = "return document.querySelector('[data-part=figures]').textContent"
        lanes, figures = window.run(pixels), window.run(shown)
        window.run("document.querySelector('canvas.lanes').focus()")
        window.keys("ArrowRight")
        self.assertRegex(window.run("return document.querySelector('.under .inspector').textContent"), r"^\d[A-Z]+")
        self.assertIn("Throughput", figures)
        window.run("view.show(JSON.parse(arguments[0].data), { figures: arguments[0].figures })", self.plans[1])
        window.settle()
        self.assertNotEqual(window.run(pixels), lanes)
        self.assertNotEqual(window.run(shown), figures)
        self.assertIn("Hover over the timeline", window.run("return document.querySelector('.under .inspector').textContent"))

    def test_the_pointer_may_come_before_a_plan_is_drawn(self):
        window = self.opened('<main id="a"></main>')
        window.run("""mountPlan(byId("a")).show(JSON.parse(arguments[0]));
            const lanes = document.querySelector("canvas.lanes"), { left, top } = lanes.getBoundingClientRect();
            const at = { clientX: left + 300, clientY: top + 20, bubbles: true, cancelable: true };
            lanes.dispatchEvent(new PointerEvent("pointermove", at));
            lanes.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -120, ctrlKey: true }));
            lanes.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: 120, shiftKey: true }));""", self.plans[0]["data"])
        window.settle()
        self.assert_no_complaints(window)

    def test_another_plan_keeps_zoom_and_stage(self):
        window = self.mounted()
        axis = "return document.querySelector('#axis').toDataURL()"
        window.run("document.querySelector('canvas.lanes').focus()")
        window.keys("+", "+")
        zoomed = window.run(axis)
        window.run("const s = document.querySelector('#a select'); s.value = '0'; s.dispatchEvent(new Event('change'))")
        window.run("view.show(JSON.parse(arguments[0]))", self.plans[1]["data"])
        window.settle()
        self.assertNotEqual(window.run(axis), zoomed, "the step of the other plan is longer")
        self.assertEqual(window.run("return document.querySelector('#a select').value"), "0")
        self.assertIn("stage 0 at its peak", window.run("return document.querySelector('#a').textContent"))
        window.run("view.show(JSON.parse(arguments[0]))", self.plans[0]["data"])
        window.settle()
        self.assertEqual(window.run(axis), zoomed)
        window.run("themeChanged()")
        window.settle()
        self.assert_no_complaints(window)

    def charted(self, content=None, **options):
        window = self.opened('<main><section class="panel" aria-labelledby="t"><h2 id="t">Policies</h2><div id="chart"></div></section></main>', **options)
        window.run("drawFrontier(byId('chart'), arguments[0])", content or CHART)
        window.settle()
        return window

    def test_chart_tells_and_can_be_reached_with_keys(self):
        window = self.charted()
        labels = window.run("return [...document.querySelectorAll('#chart .mark')].map((e) => e.getAttribute('aria-label'))")
        self.assertEqual(labels, ["<b>full</b>: 1.40 s a step with 30.0 GiB, fits; everything",
                                  "frontier: 1.35 s a step with 32.0 GiB, fits", "frontier: 1.20 s a step with 50.0 GiB, fits",
                                  "auto: 1.10 s a step with 70.0 GiB, fits, chosen",
                                  "none: 1.00 s a step with 90.0 GiB, does not fit; 12.0 GiB are missing"])
        self.assertEqual(window.run("return document.querySelectorAll('#chart .mark[tabindex=\"0\"]').length"), 1)
        window.run("document.querySelector('#chart .mark').focus()")
        window.keys("ArrowRight", "ArrowRight", "ArrowRight")
        told = "return [document.querySelector('#chart output').textContent, document.querySelector('#chart .tip').hidden]"
        self.assertEqual(window.run(told), [labels[3], False])
        # The plot is drawn again, as after each move of a slider. Then the same mark must have the focus.
        window.run("drawFrontier(byId('chart'), arguments[0])", CHART)
        self.assertEqual(window.run("return document.activeElement.getAttribute('aria-label')"), labels[3])
        window.keys("End", "ArrowRight")
        self.assertEqual(window.run(told)[0], labels[4])
        window.keys("Escape")
        self.assertEqual(window.run(told), ["", True])
        rows = window.run("document.querySelector('#chart details').open = true; "
                          "return [...document.querySelectorAll('#chart tbody tr')].map((e) => e.innerText)")
        self.assertIn("opt\t–\t–\tno\ttoo large", rows)
        self.assertEqual(len(rows), 6)
        self.assertEqual(window.run("return document.querySelectorAll('#chart b').length"), 0, "names are put in as text")
        self.assert_no_complaints(window)

    def test_chart_stands_where_its_numbers_say(self):
        window = self.charted()
        places = window.run("""return Object.fromEntries([...document.querySelectorAll('#chart .mark')].map((e) => {
            const b = e.getBoundingClientRect(); return [e.getAttribute('aria-label').split(':')[0], [b.x + b.width / 2, b.y + b.height / 2]]; }))""")
        full, auto, none = places["<b>full</b>"], places["auto"], places["none"]
        self.assertAlmostEqual((auto[0] - full[0]) / (none[0] - full[0]), (70 - 30) / (90 - 30), 2)
        self.assertAlmostEqual((auto[1] - full[1]) / (none[1] - full[1]), (1.4 - 1.1) / (1.4 - 1.0), 2)
        limit = window.run("const b = document.querySelector('#chart .limit').getBoundingClientRect(); return b.x + b.width / 2")
        self.assertAlmostEqual((limit - full[0]) / (none[0] - full[0]), (78 - 30) / (90 - 30), 2)
        window.mouse("mouseMoved", *auto)
        self.assertIn("1.10 s a step, 70.0 GiB", window.run("return document.querySelector('#chart .tip').textContent"))

    def test_durations_are_written_as_programs_write_them(self):
        lines = [line.split("\t") for line in (ROOT / "tests/golden/durations.txt").read_text().splitlines()]
        self.assertGreater(len(lines), 300)
        window = self.opened("")
        written = window.run("return arguments[0].map((ns) => duration(Number(ns)))", [ns for ns, _ in lines])
        for (ns, text), found in zip(lines, written, strict=True):
            self.assertEqual(found, text.replace(" us", " µs"), f"{ns} ns")

    def test_the_chart_tells_steps_of_minutes_apart(self):
        points = [{**CHART["points"][1], "name": name, "stepNs": step, "chosen": False} for name, step in (("a", 63.2e9), ("b", 63.9e9))]
        window = self.charted({"points": points, "frontier": [], "limitBytes": 0})
        labels = window.run("return [...document.querySelectorAll('#chart text.end')].map((e) => e.textContent).filter((text) => / s$/.test(text))")
        self.assertGreater(len(labels), 2)
        self.assertEqual(len(set(labels)), len(labels), labels)
        self.assertIn("a: 1m03s a step with 70.0 GiB, fits", window.run("return [...document.querySelectorAll('#chart .mark')].map((e) => e.getAttribute('aria-label'))"))

    def test_chart_without_marks_or_limit(self):
        window = self.charted({"points": [], "frontier": [], "limitBytes": 0})
        self.assertEqual(window.run("return document.querySelectorAll('#chart .mark, #chart .limit').length"), 0)
        window.run("drawFrontier(byId('chart'), { points: [arguments[0]], frontier: [], limitBytes: 0 })", CHART["points"][1])
        self.assertEqual(window.run("return document.querySelectorAll('#chart .mark').length"), 1)
        self.assert_no_complaints(window)

    def test_both_can_be_read_in_both_colours_and_on_a_phone(self):
        for dark in (False, True):
            for window in (self.mounted(dark=dark), self.charted(dark=dark)):
                where = "dark" if dark else "light"
                window.run("for (const d of document.querySelectorAll('details')) d.open = true")
                self.assert_readable(window, where)
                self.assert_named(window)
                for width in (1440, 360):
                    window.resize(width)
                    self.assert_fits(window, f"{where}, {width}")
                self.assert_no_complaints(window)


if __name__ == "__main__":
    checks.main()
