"""The report of a job that has trained, in a real browser: what it shows, that it can be read and that it loads nothing from other servers.

Runs where a Chromium is installed; elsewhere it says so and ends with status 77.
"""

import pathlib
import sys

import browser
import checks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import cluster  # noqa: E402


class ReportTest(checks.PageChecks, cluster.ClusterTest):
    """One job for all checks: it recomputes, writes checkpoints, and loses a rank while it trains."""

    def report(self):
        job = self.submit(self.job_file(steps=2000, memory="400KiB", every=50))
        self.await_steps(job, 20)
        ranks = self.rank_pids()
        self.assertNotEqual(ranks, [], "the job is over before a rank could be killed")
        cluster.kill(ranks[:1])
        self.await_state(job, "SUCCEEDED", timeout=300)
        page = self.directory / "report.html"
        result = self.ctl("report", job, "--out", page)
        self.assertEqual(result.code, 0, result)
        return page

    def test_report(self):
        page = self.report()
        for dark in (False, True):
            with browser.Browser(dark=dark) as window:
                window.open(page)
                where = "dark" if dark else "light"
                self.assertEqual(window.run("return getComputedStyle(document.body).backgroundColor"),
                                 "rgb(11, 14, 19)" if dark else "rgb(245, 246, 248)")
                sections = window.run("return [...document.querySelectorAll('main > section[id]')].map((e) => e.id)")
                self.assertEqual(sections, ["run", "recoveries", "step", "recomputation", "memory", "loss", "plan", "events"])
                window.run("for (const d of document.querySelectorAll('details')) d.open = true")
                self.assert_no_complaints(window)
                self.assert_readable(window, where)
                self.assert_named(window)
                # Every plot has at least one rectangle or path that is visible: its width is above 0.
                drawn = window.run("return [...document.querySelectorAll('svg.plot')].map((svg) => "
                                   "[...svg.querySelectorAll('rect, path')].filter((e) => e.getBoundingClientRect().width > 0).length)")
                self.assertEqual(len(drawn), 4)
                for marks in drawn:
                    self.assertGreater(marks, 0, drawn)
                outside = [url for url in window.requested() if not url.startswith(("file:", "data:", "about:"))]
                self.assertEqual(outside, [])
                for width in (1440, 900, 390, 360):
                    window.resize(width)
                    self.assert_fits(window, f"{where}, {width}")
                # On a phone the letters of a plot are large enough to be read.
                letters = window.run("const t = document.querySelector('svg.plot text'); return t.getBoundingClientRect().height")
                self.assertGreater(letters, 10)


if __name__ == "__main__":
    checks.main()
