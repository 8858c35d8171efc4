"""Tests that dashboards, rules and runbooks agree with each other and with docs/metrics.md."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "dashboards"
RULES = DASHBOARDS / "prometheus"
sys.path.insert(0, str(DASHBOARDS))

import description  # noqa: E402
import generate  # noqa: E402

METRIC = re.compile(r"\b((?:lynx[_:]|DCGM_)[\w:]+)")
SELECTOR = re.compile(r"\b((?:lynx[_:]|DCGM_)[\w:]+|up)\b(\{[^}]*\})?")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^ |]+) \|", re.M)
VARIABLE = re.compile(r"\$\{?(?!__)(\w+)")
STRING = re.compile(r'"[^"]*"')
# Unit in docs/metrics.md -> units that Grafana may show: UNITS for values, A_SECOND for values per second. Seconds per
# second are a number of devices, or the share of the time of one device.
UNITS = {"s": {"s"}, "B": {"bytes"}, "MiB": {"mbytes"}, "C": {"celsius"}, "W": {"watt"}, "%": {"percent"}, "ratio": {"percentunit"}, "nats": {"short"},
         "1": {"short", "sci"}}
A_SECOND = {"s": {"short", "percentunit"}, "B": {"Bps"}, "flops": {"flops"}, "1": {"short"}}


def load(path):
    return json.loads(path.read_text())


def rules(name):
    return [rule for group in yaml.safe_load((RULES / name).read_text())["groups"] for rule in group["rules"]]


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], cwd=RULES, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


def metrics():
    """Series -> (which program has it, its unit), from docs/metrics.md and from the recording rules."""
    found = {rule["record"]: ("rules", "1") for rule in rules("lynx_rules.yml")}
    for section in (ROOT / "docs" / "metrics.md").read_text().split("\n## ")[1:]:
        for name, kind, unit in ROW.findall(section):
            for end in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                found[name + end] = (section.splitlines()[0], unit)
    return found


def dimension(part):
    """(unit, True if per second) of a part of a query. The first metric in the part decides the unit."""
    name = METRIC.search(part).group(1)
    unit = "ratio" if re.search("[_:]ratio", name) else "flops" if "_flops" in name else "1" if name.endswith("_count") else metrics()[name][1]
    return unit, "histogram_quantile(" not in part and ("rate(" in part or ":rate" in name)


def units_for(query):
    """The units of Grafana that a panel with this query may have."""
    if METRIC.search(query) is None or query.startswith("count ") or "== bool" in query:
        return {"short"}
    above, _, below = query.partition(" / ")
    unit, a_second = dimension(above)
    if not below:
        return (A_SECOND if a_second else UNITS)[unit]
    return UNITS["ratio"] if dimension(below) == (unit, a_second) else UNITS[unit]


class DashboardsTest(unittest.TestCase):
    def boards(self):
        return [load(path) for path in sorted((DASHBOARDS / "grafana").glob("*.json"))]

    def known(self):
        """The names that a query may use."""
        return set(metrics())

    def queries(self):
        """(dashboard, panel, query) of every query."""
        return [(board, panel, target["expr"]) for board in self.boards() for panel in board["panels"] for target in panel.get("targets", [])]

    def test_units_are_those_of_the_metrics(self):
        for board, panel, query in self.queries():
            with self.subTest(f"{board['title']}: {panel['title']}", query=query):
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], units_for(query))

    def test_who_chooses_a_server_sees_no_other(self):
        """Series of servers and of recording rules have the server's instance as a label. Nodes do not say which server
        they belong to."""
        known, of_servers = metrics(), 0
        for board, panel, query in self.queries():
            self.assertIn("server", {one["name"] for one in board["templating"]["list"]})
            for name, labels in SELECTOR.findall(query):
                if name == "up" or known[name][0] in ("lynx-server", "rules"):
                    of_servers += 1
                    self.assertIn('instance=~"$server"', labels, f"{board['title']}: {panel['title']}: {query}")
        self.assertGreater(of_servers, 100)

    def test_every_recorded_series_is_asked_for(self):
        asked = {name for _, _, query in self.queries() for name in METRIC.findall(query)}
        asked |= {name for rule in rules("lynx_alerts.yml") for name in METRIC.findall(rule["expr"])}
        self.assertEqual({rule["record"] for rule in rules("lynx_rules.yml")} - asked, set())

    def test_the_alert_and_the_pages_forgive_the_xids_that_the_agent_forgives(self):
        source = (ROOT / "agent" / "gpu_health.cc").read_text()
        forgiven = re.findall(r"\d+", re.search(r"kXidsOfPrograms = \{([\d, ]+)\};", source).group(1))
        self.assertGreater(len(forgiven), 3)
        alert, = (rule["expr"] for rule in rules("lynx_alerts.yml") if rule["alert"] == "LynxGpuFault")
        self.assertEqual(re.findall(r" != (\d+)", alert), forgiven)
        listed = f"{', '.join(forgiven[:-1])} and {forgiven[-1]}"
        self.assertIn(listed, (ROOT / "docs" / "runbooks.md").read_text().partition("## LynxGpuFault")[2])
        self.assertIn(f"({', '.join(forgiven)})", (ROOT / "docs" / "gpu.md").read_text())

    def test_files_are_what_the_description_says(self):
        made = generate.files()
        self.assertEqual(sorted(made), sorted((DASHBOARDS / "grafana").glob("*.json")))
        for path, text in made.items():
            self.assertEqual(path.read_text(), text, f"{path.name}: run dashboards/generate.py")

    def test_the_check_finds_a_file_that_was_changed(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory) / "dashboards"
            shutil.copytree(DASHBOARDS, copy)
            check = [sys.executable, "-B", copy / "generate.py", "--check"]
            self.assertEqual(subprocess.run(check, timeout=60).returncode, 0)
            (copy / "grafana" / "lynx-job.json").write_text("{}")
            found = subprocess.run(check, capture_output=True, text=True, timeout=60)
        self.assertEqual(found.returncode, 1)
        self.assertIn("lynx-job.json", found.stderr)

    def test_queries_ask_for_what_is_served(self):
        known = self.known()
        asked = [(f"{board['title']}: {panel['title']}", target["expr"])
                 for board in self.boards() for panel in board["panels"] for target in panel.get("targets", [])]
        asked += [(rule.get("record", rule.get("alert")), rule["expr"]) for name in ("lynx_rules.yml", "lynx_alerts.yml") for rule in rules(name)]
        self.assertGreater(len(asked), 100)
        for where, query in asked:
            names = METRIC.findall(STRING.sub("", query)) or re.findall(r"\bup\b", query)
            self.assertTrue(names, f"{where}: {query}")
            self.assertEqual([name for name in names if name != "up" and name not in known], [], where)

    def test_panels_stand_beside_each_other_and_have_what_grafana_wants(self):
        uids = set()
        for board in self.boards():
            self.assertNotIn(board["uid"], uids)
            uids.add(board["uid"])
            taken, numbers = {}, set()
            for panel in board["panels"]:
                self.assertIn(panel["type"], ("row", "stat", "timeseries", "table"))
                self.assertNotIn(panel["id"], numbers, board["title"])
                numbers.add(panel["id"])
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24)
                for x in range(at["x"], at["x"] + at["w"]):
                    for y in range(at["y"], at["y"] + at["h"]):
                        self.assertIsNone(taken.get((x, y)), f"{board['title']}: {panel['title']} covers {taken.get((x, y))}")
                        taken[x, y] = panel["title"]
                if panel["type"] != "row":
                    references = [target["refId"] for target in panel["targets"]]
                    self.assertTrue(references)
                    self.assertEqual(len(set(references)), len(references))
                    self.assertIn("unit", panel["fieldConfig"]["defaults"])

    def test_variables_and_links_lead_somewhere(self):
        boards = self.boards()
        variables = {board["uid"]: {one["name"] for one in board["templating"]["list"]} for board in boards}
        for board in boards:
            text = json.dumps(board["panels"]) + "".join(one.get("definition", "") for one in board["templating"]["list"])
            self.assertEqual(set(VARIABLE.findall(text)) - variables[board["uid"]], set(), board["title"])
            self.assertEqual([link["tags"] for link in board["links"]], [board["tags"]])
            for uid, names in re.findall(r"/d/([\w-]+)\?([^\"]*)", text):
                self.assertIn(uid, variables)
                self.assertEqual(set(re.findall(r"var-(\w+)=", names)) - variables[uid], set())
        linked = [panel for board in boards for panel in board["panels"] if panel.get("fieldConfig", {}).get("defaults", {}).get("links")]
        self.assertGreaterEqual(len(linked), 1)

    def test_every_alert_has_a_runbook_and_a_test(self):
        runbooks = (ROOT / "docs" / "runbooks.md").read_text()
        tests = (RULES / "lynx_rules_test.yml").read_text()
        alerts = [rule["alert"] for rule in rules("lynx_alerts.yml")]
        self.assertEqual(re.findall(r"^## (\w+)$", runbooks, re.M), alerts, "in the same order, each once")
        for rule in rules("lynx_alerts.yml"):
            self.assertEqual(rule["annotations"]["runbook"], f"docs/runbooks.md#{rule['alert'].lower()}")
            self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))
            self.assertIn(rule["alert"], tests)
        for rule in rules("lynx_rules.yml"):
            self.assertIn(rule["record"], tests)

    @unittest.skipIf(shutil.which("promtool") is None, "promtool is not installed: see scripts/packages.txt")
    def test_prometheus_takes_its_files(self):
        for arguments in (("check", "config", "prometheus.yml"), ("test", "rules", "lynx_rules_test.yml")):
            result = promtool(*arguments)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_dashboard_is_described_once(self):
        self.assertEqual(sorted(board["uid"] for board in self.boards()), sorted(one["uid"] for one in description.DASHBOARDS))


if __name__ == "__main__":
    unittest.main()
