"""Checks for every page of this project: its text has enough contrast, it is not too wide, its elements have names for screen
readers, and it causes no errors."""

import functools
import pathlib
import sys
import unittest

import browser

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import program  # noqa: E402

# Computes the contrast of every element that has a text, by WCAG 2.1, for opaque backgrounds. The colour of an SVG text is its
# fill.
CONTRAST = """
const light = (rgb) => { const [r, g, b] = rgb.match(/[\\d.]+/g).slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                         return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const found = [];
for (const element of document.querySelectorAll("body *")) {
  if (![...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  if (!element.checkVisibility() || element.closest("script,style,noscript,title,desc")) continue;
  let behind = element;
  while (behind && /rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const own = getComputedStyle(element);
  const a = light(element instanceof SVGElement ? own.fill : own.color), b = light(behind ? getComputedStyle(behind).backgroundColor : "rgb(255,255,255)");
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.tagName + " " + element.getAttribute("class") + ": " + element.textContent.trim().slice(0, 40)]);
}
return found;
"""
# Elements that extend beyond the page on the right and are not in an element that scrolls.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
const scrolls = (e) => e && e !== document.body && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > width + 0.5 && !scrolls(e.parentElement) && !scrolls(e))
    .map((e) => e.tagName + " " + e.id + " " + e.textContent.trim().slice(0, 40)).concat(
    document.documentElement.scrollWidth > width ? ["the page itself is " + document.documentElement.scrollWidth + " wide"] : []);
"""


def described(test):
    """The test, whose failures also say what its open windows show and what their pages complained about."""
    @functools.wraps(test)
    def run(self):
        try:
            test(self)
        except unittest.SkipTest:
            raise
        except Exception as error:
            for number, window in enumerate(browser.Browser.opened, 1):
                error.add_note(f"--- window {number} of {len(browser.Browser.opened)}\n{window.described()}")
            raise
    return run


class PageChecks:
    """A base class for test cases. `window` is a browser.Browser."""

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, described(test))

    def assert_no_complaints(self, window):
        self.assertEqual(window.complaints(), [])

    def assert_readable(self, window, where):
        texts = window.run(CONTRAST)
        self.assertGreater(len(texts), 10, where)
        for contrast, what in texts:
            self.assertGreaterEqual(contrast, 4.5, f"{where}: {what}")

    def assert_fits(self, window, where):
        self.assertEqual(window.run(TOO_WIDE), [], where)

    def assert_named(self, window):
        """Images, buttons, links, fields and regions have names for screen readers; headings skip no level; ids are unique."""
        nodes = window.command("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        unnamed = [node for node in shown if node["role"]["value"] in ("image", "img", "button", "link", "textbox", "combobox", "region")
                   and not node.get("name", {}).get("value", "").strip()]
        self.assertEqual([(node["role"]["value"], node.get("properties")) for node in unnamed], [])
        levels = window.run("return [...document.querySelectorAll('h1, h2, h3, h4')].filter((e) => e.checkVisibility()).map((e) => Number(e.tagName[1]))")
        self.assertEqual(levels.count(1), 1)
        for before, after in zip(levels, levels[1:]):
            self.assertLessEqual(after, before + 1)
        ids = window.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
        self.assertEqual(len(ids), len(set(ids)), ids)


def main():
    """Runs the tests of the calling file. If they cannot run here, says why and exits with status 77."""
    reason = browser.missing()
    if reason:
        program.tell(reason)
        sys.exit(program.SKIPPED)
    program.main()
