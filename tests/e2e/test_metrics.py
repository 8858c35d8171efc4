"""What the daemons' /metrics pages show of a cluster that trains."""

import pathlib
import re

from cluster import ClusterTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| `(\w+)` \| (counter|gauge|histogram) \| [^|]* \| ([^|]*)\|")
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def documented():
    """name -> (type, labels), as docs/metrics.md has them."""
    rows = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if match := ROW.match(line):
            rows[match.group(1)] = (match.group(2), set(re.findall(r"`(\w+)`", match.group(3))))
    return rows


def samples(page):
    """(metric, type, label -> value, value) of every line of a page; the metric is that of its TYPE line."""
    metric = kind = None
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            metric, kind = line.split()[2:4]
        if line.startswith("#") or not line:
            continue
        name, labels, value = SAMPLE.match(line).groups()
        assert name == metric or (kind == "histogram" and name in (f"{metric}_bucket", f"{metric}_sum", f"{metric}_count")), line
        yield metric, kind, dict(LABEL.findall(labels or "")), float(value)


class MetricsTest(ClusterTest):
    def daemons(self):
        return ["server", *(f"node{node}.{daemon}" for node in range(self.nodes) for daemon in ("agent", "worker"))]

    def test_pages_show_what_is_documented_and_no_more(self):
        job = self.submit(self.job_file(steps=100_000, every=20))
        self.await_steps(job, 60)
        rows = documented()
        self.assertGreater(len(rows), 30)
        for daemon in self.daemons():
            seen = set()
            for metric, kind, labels, _ in samples(self.metrics(daemon)):
                seen.add(metric)
                self.assertIn(metric, rows, f"{daemon} serves {metric}, which is not in docs/metrics.md")
                self.assertEqual(kind, rows[metric][0], metric)
                self.assertEqual(set(labels) - {"le"}, rows[metric][1], f"labels of {metric}")
            self.assertIn("lynx_build_info", seen)
            if daemon.endswith("worker"):
                self.assertEqual([name for name in seen if name.startswith("lynx_rank_")], [], "series of ranks are opt-in")
