"""Runs the commands of the records about jobs and faults in a tiny form. e2e.chaos, e2e.demo, e2e.replan and e2e.slow_link run the other commands."""

import unittest

from smoke import Tiny, run_tiny_forms

from pages import commands_of

SPREAD = r"median [\d.e+-]+{unit} \([\d.e+-]+ to [\d.e+-]+, [1-9]\d*\)"
SECONDS, NUMBER, MILLIS = (SPREAD.format(unit=unit) for unit in (" s", "", " ms"))
LOSS = Tiny({"--runs 5": "--runs 1"},
            [f"^lost {what}: to the next step {SECONDS}; steps done again {NUMBER}$" for what in ("rank", "node")])
FORMS = {
    "docs/measurements/elastic.md": [
        LOSS,
        Tiny({"--steps 240": "--steps 26 --hidden 32"},
             [rf"^rank {rank}: step without {MILLIS}; wait for a copy {MILLIS}; step with a copy / without {NUMBER}; quartiles .*; copies left out \d+$"
              for rank in (0, 1)]),
        LOSS,
        Tiny({"--runs 5": "--runs 1 --window 1 --steps 5 --loops 12"}, [r"^run 0: (step [\d.]+ ms, slow [\d.]+, planned around [\d.]+; noticed after [\d.]+ s; layers|no change: )"])],
    "docs/measurements/failover.md": [
        Tiny({"--failovers 200 --rate 100": "--failovers 2 --rate 4 --between 0.5 --threads 2"},
             [(r"^failover \d \((kill|stop)\): submission [\d.]+ s, nodes [\d.]+ s$", 2),
              (r"^(kill|stop): to the next submission median [\d.]+ s, worst [\d.]+ s \(1\); to all nodes median [\d.]+ s, worst [\d.]+ s \(1\)$", 2),
              r"^2 failovers in \d+ s; [1-9]\d* submissions acknowledged \([\d.]+ a second\), \d+ calls repeated; lost 0, double 0$"]),
        Tiny({"--failovers 20 --rate 50": "--failovers 1 --rate 4 --between 0.5 --threads 2 --servers 2"},
             [r"^failover 1 \(promote\): submission [\d.]+ s, nodes [\d.]+ s$",
              r"^promote: to the next submission median [\d.]+ s, worst [\d.]+ s \(1\); to all nodes median [\d.]+ s, worst [\d.]+ s \(1\)$",
              r"^1 failovers in \d+ s; [1-9]\d* submissions acknowledged \([\d.]+ a second\), \d+ calls repeated; lost 0, double 0$"])],
}


class FaultsTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.faults"), FORMS)


if __name__ == "__main__":
    unittest.main()
