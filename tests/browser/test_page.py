"""The plan's page in a real browser: what it draws, what mouse and keys do, and that it loads nothing from other servers.

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
import pictures

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt-bytes.yaml"

PIXELS = "return document.getElementById(arguments[0]).toDataURL()"


class PageTest(checks.PageChecks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = pathlib.Path(cls.folder.name) / "plan.html"
        # These settings fix what the planner could choose differently. The plan has two stages of four layers, and a rank runs
        # one pass at a time.
        command = [str(BIN / "lynxctl"), "plan", "-f", str(EXAMPLE), "--set", "parallel.schedule=1f1b",
                   "--set", "parallel.sequenceParallel=off", "--set", "parallel.weave=off"]
        subprocess.run([*command, "--html", str(cls.page)], check=True, capture_output=True, timeout=browser.PATIENCE)
        table = subprocess.run(command, check=True, capture_output=True, text=True, timeout=browser.PATIENCE).stdout
        cls.step_ms = re.search(r"predicted: step (\d+)[.\d]* ms", table).group(1)
        cls.actions = []
        for rank in (0, 2):  # one rank of each stage
            out = subprocess.run([*command, "--actions", str(rank)], check=True, capture_output=True, text=True,
                                 timeout=browser.PATIENCE)
            cls.actions.append(out.stdout.split())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def opened(self, **options):
        window = browser.Browser(**options)
        self.addCleanup(window.close)
        window.open(self.page)
        return window

    def test_no_errors_and_nothing_from_outside(self):
        window = self.opened()
        self.assertEqual(window.complaints(), [])
        outside = [url for url in window.requested() if not url.startswith(("file:", "data:", "chrome:", "about:"))]
        self.assertEqual(outside, [])

    def test_keyboard_walks_through_every_action_of_a_stage(self):
        window = self.opened()
        window.run("document.getElementById('lanes').focus()")
        shown = set()
        window.keys("ArrowRight")
        for _ in range(2 * len(self.actions[0])):
            text = window.run("return document.querySelector('#inspector code').textContent")
            shown.add(text)
            window.keys("ArrowRight")
            if window.run("return document.querySelector('#inspector code').textContent") == text and text == "0OPT":
                break
        starts = {action for action in self.actions[0] if "+" in action}
        self.assertEqual(set(self.actions[0]) - starts - shown, set(), "compute actions and waits that the keys do not reach")
        window.keys("Escape", "ArrowRight", "ArrowDown")
        self.assertIn("communication", window.run("return document.getElementById('inspector').textContent"))
        self.assertIn("+", window.run("return document.querySelector('#inspector code').textContent"))

    def test_zoom_pan_and_back(self):
        window = self.opened()
        whole = window.run(PIXELS, "lanes")
        self.assertNotEqual(window.run(PIXELS, "memory-time"), "")
        memory = window.run(PIXELS, "memory-time")
        window.run("document.getElementById('lanes').focus()")
        window.keys("+", "+")
        zoomed = window.run(PIXELS, "lanes")
        self.assertNotEqual(zoomed, whole)
        self.assertNotEqual(window.run(PIXELS, "memory-time"), memory, "memory over time follows the timeline")
        window.keys("d")
        self.assertNotEqual(window.run(PIXELS, "lanes"), zoomed)
        window.keys("0")
        self.assertEqual(window.run(PIXELS, "lanes"), whole)
        window.run("document.querySelector('[data-view=steady]').click()")
        window.settle()
        self.assertNotEqual(window.run(PIXELS, "lanes"), whole)
        window.run("document.querySelector('[data-view=fit]').click()")
        window.settle()
        self.assertEqual(window.run(PIXELS, "lanes"), whole)

    def test_pointer_shows_drags_and_wheels(self):
        window = self.opened()
        left, top, width = window.run("const b = document.getElementById('lanes').getBoundingClientRect(); return [b.left, b.top, b.width]")
        window.mouse("mouseMoved", left + width / 2, top + 20)
        tip = window.run("const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent")
        self.assertRegex(tip, r"stage 0|^0[A-Z]+")
        self.assertRegex(tip, r"\d (s|ms|µs|ns)")
        whole = window.run(PIXELS, "axis")
        window.mouse("mouseWheel", left + width / 2, top + 20, deltaX=0, deltaY=-120, modifiers=2)  # with Ctrl
        zoomed = window.run(PIXELS, "axis")
        self.assertNotEqual(zoomed, whole)
        window.mouse("mousePressed", left + width / 2, top + 20, button="left", buttons=1, clickCount=1)
        window.mouse("mouseMoved", left + width / 2 + 80, top + 20, button="left", buttons=1)
        window.mouse("mouseReleased", left + width / 2 + 80, top + 20, button="left", clickCount=1)
        self.assertNotEqual(window.run(PIXELS, "axis"), zoomed)

    def test_two_fingers_zoom(self):
        window = self.opened()
        whole = window.run(PIXELS, "axis")
        window.run("""const lanes = document.getElementById("lanes"), box = lanes.getBoundingClientRect();
            const send = (type, pointerId, x) => lanes.dispatchEvent(new PointerEvent(type, {
                pointerId, pointerType: "touch", bubbles: true, clientX: box.left + x, clientY: box.top + 20 }));
            send("pointerdown", 1, 300); send("pointerdown", 2, 400); send("pointermove", 2, 600);
            send("pointerup", 1, 300); send("pointerup", 2, 600);""")
        window.settle()
        self.assertNotEqual(window.run(PIXELS, "axis"), whole)
        self.assertEqual(window.complaints(), [])

    def test_passes_side_by_side_have_a_row_each(self):
        woven = pathlib.Path(self.folder.name) / "woven.html"
        subprocess.run([str(BIN / "lynxctl"), "plan", "-f", str(EXAMPLE), "--set", "parallel.weave=pairs", "--html", str(woven)], check=True,
                       capture_output=True, timeout=browser.PATIENCE)
        window = browser.Browser()
        self.addCleanup(window.close)
        window.open(woven)
        window.run("document.getElementById('lanes').focus()")
        window.keys(*"++++")
        # The first stage's compute lane is 30 pixels high, from the eleventh on. Above it, the canvas is empty.
        painted = window.run("""const canvas = document.getElementById('lanes'), scale = canvas.width / canvas.getBoundingClientRect().width;
            const at = (x, y) => [...canvas.getContext('2d').getImageData(x, Math.round(y * scale), 1, 1).data].join();
            const columns = [];
            for (let x = Math.round(200 * scale); x < canvas.width - 20 * scale; ++x) columns.push([at(x, 18) !== at(x, 1), at(x, 33) !== at(x, 1)]);
            return columns""")
        self.assertIn([True, False], painted, "a pass of the first microbatch alone")
        self.assertIn([False, True], painted, "a pass of the second microbatch alone")
        self.assertIn("each has a row of its own", window.run("return document.body.textContent"))
        self.assertNotIn("row of its own", self.page.read_text())

    def test_choosing_a_stage_shows_its_memory(self):
        window = self.opened()
        texts = []
        for stage in ("0", "1"):
            window.run("const s = document.getElementById('stage-select'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", stage)
            texts.append(window.run("return document.getElementById('stage-detail').textContent"))
            self.assertIn(f"stage {stage} at its peak", texts[-1])
            self.assertIn("stored activations", texts[-1])
        self.assertNotEqual(texts[0].replace("stage 0", ""), texts[1].replace("stage 1", ""))

    def test_text_can_be_read_in_both_colours(self):
        for dark in (False, True):
            window = self.opened(dark=dark)
            background = window.run("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(background, "rgb(11, 14, 19)" if dark else "rgb(245, 246, 248)")
            window.run("for (const d of document.querySelectorAll('details')) d.open = true")
            self.assert_readable(window, "dark" if dark else "light")

    def test_the_button_changes_colours(self):
        window = self.opened()
        before = window.run(PIXELS, "lanes")
        window.run("const b = document.getElementById('theme'); b.click(); b.click()")
        window.settle()
        self.assertEqual(window.run("return getComputedStyle(document.body).backgroundColor"), "rgb(11, 14, 19)")
        self.assertNotEqual(window.run(PIXELS, "lanes"), before)
        self.assertEqual(window.run("return document.getElementById('theme').getAttribute('aria-label')"), "Colours: dark")

    def test_fits_a_phone(self):
        window = self.opened(width=390, height=844, scale=2)
        self.assertEqual(window.run("return document.documentElement.scrollWidth"), 390)
        small = window.run("return [...document.querySelectorAll('button, select')].filter((e) => e.checkVisibility() && "
                           "e.getBoundingClientRect().height < 28).map((e) => e.textContent)")
        self.assertEqual(small, [])

    def test_reads_without_a_script(self):
        window = self.opened(script=False)
        state = window.command("DOM.getDocument", {"depth": -1})["root"]
        text = []

        def walk(node):
            if node["nodeName"] in ("SCRIPT", "STYLE"):
                return
            if node["nodeType"] == 3:
                text.append(node["nodeValue"])
            for child in node.get("children", ()):
                walk(child)

        walk(state)
        whole = " ".join(text)
        self.assertIn("which this browser does not run", whole)
        self.assertIn(self.step_ms, whole)
        for words in ("embed 0-3", "4-7 head", "stored activations", "critical: ln1"):
            self.assertIn(words, whole)

    def test_the_readme_s_picture_can_be_taken(self):
        folder = pathlib.Path(self.folder.name)
        pictures.take_plan(folder)
        taken, kept = ((place / "plan.png").read_bytes() for place in (folder, pictures.ROOT / "docs/images"))
        self.assertEqual(taken[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(taken[16:24], kept[16:24], "width and height")


if __name__ == "__main__":
    checks.main()
