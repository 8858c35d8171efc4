"""Evaluates queries of panels on invented series, with Prometheus' own evaluation. test_dashboards.py checks the contents of the files."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dashboards"))

import description  # noqa: E402
import generate  # noqa: E402

VARIABLES = {"$server": "s", "$job_id": ".*", "$job_name": ".*", "$__rate_interval": "5m"}
MINUTES = 30  # after the beginning of the series, which have one value per minute
A, B = 'instance="s",job_id="a",job_name="one"', 'instance="s",job_id="b",job_name="two"'


def queries(board, kind, title):
    """The queries of a panel, with its variables filled in."""
    dashboard, = (one for one in description.DASHBOARDS if one["uid"] == board)
    panel, = (panel for _, panel in generate.panels_of(dashboard) if panel[:2] == (kind, title))
    found = []
    for query, _ in panel[3]:
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        found.append(query)
    return found


@unittest.skipIf(shutil.which("promtool") is None, "promtool is not installed: see scripts/packages.txt")
class PanelsTest(unittest.TestCase):
    def check(self, query, series, expected):
        """`series`: name with labels -> values, as promtool writes them. `expected`: labels -> value, to the thousandth."""
        test = {"rule_files": [str(ROOT / "dashboards/prometheus/lynx_rules.yml")], "evaluation_interval": "1m", "tests": [{
            "interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": f"round({query}, 0.001)", "eval_time": f"{MINUTES}m",
                                  "exp_samples": [{"labels": f"{{{labels}}}", "value": value} for labels, value in expected.items()]}]}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test.yml"
            path.write_text(json.dumps(test))
            done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{query}\n{done.stdout}{done.stderr}")

    def test_steps_are_as_long_as_they_are(self):
        """All steps take 1.05 s. The panel must show this mean, and not a bound of a histogram bucket."""
        series = {f"lynx_job_step_seconds_sum{{{A}}}": "0+63x60", f"lynx_job_step_seconds_count{{{A}}}": "0+60x60"}
        self.check(queries("lynx-job", "graph", "Step")[0], series, {"": 1.05})
        self.check(queries("lynx-planner", "graph", "Step")[1], series, {'job_name="one"': 1.05})
        none = {name: "7x60" for name in series}
        self.check(queries("lynx-job", "graph", "Step")[0], none, {})

    def test_the_share_of_dropped_rows_is_that_of_all_routed(self):
        series = {f"lynx_job_expert_rows_routed_total{{{A}}}": "0+1000x60", f"lynx_job_expert_rows_dropped_total{{{A}}}": "0+25x60"}
        query, = queries("lynx-job", "graph", "Share of the rows of experts that are dropped")
        self.check(query, series, {"": 0.025})
        self.check(query, {}, {})

    def test_rows_in_rounds_are_a_share_of_all_routed_and_rounds_are_counted_by_second(self):
        series = {f"lynx_job_expert_rows_routed_total{{{A}}}": "0+1000x60", f"lynx_job_expert_rows_in_rounds_total{{{A}}}": "0+50x60",
                  f"lynx_job_expert_rounds_total{{{A}}}": "0+30x60"}
        query, = queries("lynx-job", "graph", "Share of the rows of experts that go through rounds")
        self.check(query, series, {"": 0.05})
        rounds, = queries("lynx-job", "graph", "Rounds of experts per second")
        self.check(rounds, series, {"": 0.5})

    def test_what_is_measured_of_stages_stands_beside_what_is_predicted(self):
        """The panel shows the time of one rank in one step. The series add up all ranks, and half of job a's steps are repeated steps."""
        series = {f'lynx_job_predicted_phase_seconds{{{job},stage="{stage}",phase="{phase}"}}': "1x60"
                  for job, stages in ((A, 2), (B, 1)) for stage in range(stages) for phase in ("forward", "stall")}
        series |= {f"lynx_job_ranks{{{A}}}": "4x60", f"lynx_job_ranks{{{B}}}": "3x60",
                   f"lynx_job_step_seconds_count{{{A}}}": "0+10x60", f"lynx_job_step_seconds_count{{{B}}}": "0+20x60",
                   f"lynx_job_steps_total{{{A}}}": "0+5x60", f"lynx_job_steps_total{{{B}}}": "0+20x60",
                   # Each rank's forward time in a step. Job a has two ranks per stage and ten steps a minute: 0.5 s on stage 0,
                   # 0.25 s on stage 1. Job b has three ranks on one stage and twenty steps a minute: 0.1 s.
                   f'lynx_job_phase_seconds_total{{{A},stage="0",phase="forward"}}': "0+10x60",
                   f'lynx_job_phase_seconds_total{{{A},stage="1",phase="forward"}}': "0+5x60",
                   f'lynx_job_phase_seconds_total{{{B},stage="0",phase="forward"}}': "0+6x60"}
        query, = queries("lynx-planner", "graph", "Measured of a rank, by stage and phase")
        self.check(query, series, {'instance="s",job_id="a",phase="forward",stage="0"': 0.5, 'instance="s",job_id="a",phase="forward",stage="1"': 0.25,
                                   'instance="s",job_id="b",phase="forward",stage="0"': 0.1})
        ended = series | {f"lynx_job_ranks{{{A}}}": "0x60", f"lynx_job_ranks{{{B}}}": "0x60"}
        self.check(query, ended, {})

    def test_memory_that_was_not_needed(self):
        query, = queries("lynx-planner", "graph", "Share of the planned activation peak that was not needed")
        self.check(query, {f'lynx_job_memory_prediction_error_ratio{{{A},stage="0"}}': "-0.25x60",
                           f'lynx_job_memory_prediction_error_ratio{{{A},stage="1"}}': "0x60"}, {f'{A},stage="0"': 0.25, f'{A},stage="1"': 0})

    def test_jobs_without_devices_are_neither_running_nor_at_risk(self):
        series = {f"lynx_job_ranks{{{A}}}": "2x60", f"lynx_job_ranks{{{B}}}": "0x60"}
        labels = 'queue="default",layout="tp1 pp2 dp1",device="cpu"'
        info = {f"lynx_job_info{{{job},{labels}}}": "1x60" for job in (A, B)}
        self.check(queries("lynx-cluster", "table", "Running jobs")[0], series | info, {f'job_id="a",job_name="one",{labels}': 1})
        checkpoints = {f"lynx_job_checkpoint_timestamp_seconds{{{job}}}": f"{time}x60" for job, time in ((A, 1200), (B, 60))}
        self.check(queries("lynx-resilience", "stat", "Age of the oldest checkpoint")[0], series | checkpoints, {"": MINUTES * 60 - 1200})
        self.check(queries("lynx-resilience", "graph", "Age of checkpoints")[0], series | checkpoints, {A: MINUTES * 60 - 1200})

    def test_what_rules_record_is_of_the_chosen_server(self):
        others = {f"{name}{{{labels}}}": values for instance in ("s", "t") for name, labels, values in (
            ("lynx_devices", f'instance="{instance}",kind="cpu"', "8x60"), ("lynx_devices_used", f'instance="{instance}",kind="cpu"', "6x60"),
            ("lynx_job_tokens_total", f'instance="{instance}",job_id="a",job_name="one"', "0+6000x60"))}
        self.check(queries("lynx-cluster", "stat", "Devices in use")[0], others, {'instance="s",kind="cpu"': 0.75})
        self.check(queries("lynx-cluster", "graph", "Tokens per second")[0], others, {A: 100})

    def test_shares_of_a_job(self):
        series = {f'lynx_job_phase_seconds_total{{{A},stage="0",phase="{phase}"}}': f"0+{seconds}x60" for phase, seconds in (
            ("forward", 26), ("recompute_hidden", 3), ("recompute_exposed", 1), ("stall", 12), ("tensor_wait", 5), ("norm_wait", 1))}
        for query, share in zip(queries("lynx-job", "graph", "Shares, of five minutes"), (0.75, 0.25, 0.125)):
            self.check(query, series, {A: share})


if __name__ == "__main__":
    unittest.main()
