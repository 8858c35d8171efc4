"""Tests what the daemons' /metrics pages show while a cluster trains, and what the dashboards' queries return from a real
Prometheus."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

import yaml

from cluster import ClusterTest, processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dashboards"))

import description  # noqa: E402
import generate  # noqa: E402

ROW = re.compile(r"\| `(\w+)` \| (counter|gauge|histogram) \| [^|]* \| ([^|]*)\|")
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
READ = re.compile(r"\b((?:lynx[_:][\w:]+|DCGM_\w+|up)\b(?:\{[^}]*\})?)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def documented():
    """name -> (type, labels) from docs/metrics.md."""
    rows = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if match := ROW.match(line):
            rows[match.group(1)] = (match.group(2), set(re.findall(r"`(\w+)`", match.group(3))))
    return rows


def samples(page):
    """(metric, type, label -> value, value) for every line of a page; the metric is named by the TYPE line."""
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
        shares = set()
        for daemon in self.daemons():
            seen = set()
            for metric, kind, labels, value in samples(self.metrics(daemon)):
                seen.add(metric)
                self.assertIn(metric, rows, f"{daemon} serves {metric}, which is not in docs/metrics.md")
                self.assertEqual(kind, rows[metric][0], metric)
                self.assertEqual(set(labels) - {"le"}, rows[metric][1], f"labels of {metric}")
                if metric.endswith("_ratio") and "prediction_error" not in metric:
                    self.assertTrue(0 <= value <= 1, f"{daemon}: {metric} of {labels} is {value}")
                    shares.add(metric)
            self.assertIn("lynx_build_info", seen)
            if daemon.endswith("worker"):
                self.assertEqual([name for name in seen if name.startswith("lynx_rank_")], [], "series of ranks are opt-in")
        self.assertLess({"lynx_job_goodput_ratio", "lynx_job_bubble_ratio", "lynx_job_communication_exposed_ratio"}, shares)


FAKE_GRAFANA = """#!{python}
import http.server, json, os
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()
with open("{env}", "w") as out:
    json.dump(dict(os.environ), out)
http.server.HTTPServer((os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])), Health).serve_forever()
"""


def queries():
    """(place, query) of every panel and rule. The query of an alert has data only while the alert fires. So for an
    alert, this gives the series that its query reads."""
    for board in description.DASHBOARDS:
        for _, (_, title, _, panel_queries, _) in generate.panels_of(board):
            for number, (query, _) in enumerate(panel_queries):
                yield f"{board['title']}: {title}: {chr(ord('A') + number)}", query
    for path in ("lynx_rules.yml", "lynx_alerts.yml"):
        for group in yaml.safe_load((ROOT / "dashboards" / "prometheus" / path).read_text())["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    yield rule["record"], rule["expr"]
                else:
                    for series in sorted(set(READ.findall(rule["expr"]))):
                        yield f"{rule['alert']}: {series}", series


def without_data():
    """place of a query -> why the query has no data here."""
    lines = (pathlib.Path(__file__).parent / "metrics_without_data.txt").read_text().splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


@unittest.skipIf(shutil.which("prometheus") is None, "prometheus is not installed: see scripts/packages.txt")
class PrometheusTest(ClusterTest):
    patience = 300

    def start_prometheus(self, env=None):
        command = [sys.executable, str(ROOT / "scripts" / "dashboards.py"), "--home", str(self.directory), "--interval", "1s"]
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=env)
        self.addCleanup(self.stop, watcher)
        line = watcher.stdout.readline()
        self.assertIn("Prometheus has the cluster's metrics at", line)
        self.url = re.search(r"http://[\d.:]+", line).group(0)
        return watcher

    def await_scraped(self):
        """Waits until Prometheus has scraped every daemon once. It does not count changes before the first scrape as an increase."""
        self.await_on_disk(lambda: [target["health"] for target in self.ask("targets")["activeTargets"]] == ["up"] * (1 + 2 * self.nodes),
                           "every daemon scraped")

    def stop(self, watcher):
        watcher.terminate()
        watcher.wait(timeout=60)
        watcher.stdout.close()

    def ask(self, path, **parameters):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as response:
            return json.loads(response.read())["data"]

    def has_data(self, query):
        for name, value in (("$job_name", self.name), ("$job_id", self.job), ("$server", ".*"), ("$__rate_interval", "30s")):
            query = query.replace(name, value)
        return bool(self.ask("query", query=query)["result"])

    def train(self):
        """Runs three jobs: one trains with held-out data, checkpoints and copies, and loses a rank; one has ended; one waits."""
        path = self.job_file("long", steps=1_000_000, every=50, recompute="full", extra=", copyEverySteps: 5")
        text = path.read_text().replace("data: {", f"data: {{validationPath: {self.corpus}, ").replace("train:\n", "train:\n  evalEvery: 20\n")
        path.write_text(text)
        self.name = "long"
        self.job = self.submit(path)
        self.await_steps(self.job, 60)
        os.kill(self.rank_pids()[1], signal.SIGKILL)
        self.await_job(self.job, lambda page: page["restarts"] == 1 and page["state"] == "JOB_STATE_RUNNING", "a restart")
        self.ctl("cancel", self.submit(self.job_file("waits")))
        self.submit(self.job_file("waits-on"))

    def test_every_query_has_data_or_a_reason(self):
        watcher = self.start_prometheus()
        self.await_scraped()
        self.train()
        missing = dict(queries())
        excused = without_data()
        self.assertEqual(set(excused) - set(missing), set(), "metrics_without_data.txt names queries that are not there")
        deadline = time.monotonic() + self.patience
        while not set(missing) <= set(excused):
            self.ctl("nodes")  # a call, because a panel that counts calls is empty without one
            missing = {where: query for where, query in missing.items() if not self.has_data(query)}
            if time.monotonic() > deadline:
                self.fail("no data for\n" + "\n".join(f"{where}\t{query}" for where, query in missing.items() if where not in excused))
            time.sleep(1)
        self.assertEqual(set(excused) - set(missing), set(), "these have data: they do not belong into metrics_without_data.txt")
        targets = self.ask("targets")["activeTargets"]
        self.assertEqual(sorted(t["labels"]["job"] for t in targets), ["lynx-agent"] * 2 + ["lynx-server"] + ["lynx-worker"] * 2)
        self.await_scraped()
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual([rule["name"] for rule in rules if rule["health"] != "ok"], [])
        self.assertIsNone(watcher.poll())
        self.stop(watcher)
        self.assertEqual([command for command in processes(self.directory).values() if "prometheus" in command], [])

    def test_grafana_is_started_where_it_is_installed(self):
        programs = self.directory / "programs"
        programs.mkdir()
        (programs / "grafana-server").write_text(FAKE_GRAFANA.format(python=sys.executable, env=self.directory / "env.json"))
        (programs / "grafana-server").chmod(0o755)
        watcher = self.start_prometheus(dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"))
        line = watcher.stdout.readline()
        self.assertRegex(line, r"Grafana shows the dashboards at http://127\.0\.0\.1:\d+/d/lynx-cluster")
        env = json.loads((self.directory / "env.json").read_text())
        self.assertEqual(env["LYNX_PROMETHEUS_URL"], self.url)
        self.assertTrue((pathlib.Path(env["LYNX_DASHBOARDS"]) / "lynx-cluster.json").exists())
        provisioning = pathlib.Path(env["GF_PATHS_PROVISIONING"])
        variables = set(re.findall(r"\$(\w+)", "".join(path.read_text() for path in provisioning.glob("*/*.yml"))))
        self.assertEqual(variables - set(env), set())
        self.stop(watcher)
        self.assertEqual([command for command in processes(self.directory).values() if "grafana" in command], [])

    def test_without_a_cluster_it_says_what_to_do(self):
        nowhere = self.directory / "nowhere"
        nowhere.mkdir()
        result = subprocess.run([sys.executable, str(ROOT / "scripts" / "dashboards.py"), "--home", str(nowhere)], capture_output=True,
                                text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 1)
        self.assertIn("start one with 'lynxctl local up'", result.stderr)
