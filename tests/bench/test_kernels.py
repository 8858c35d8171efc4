"""Runs the commands of the records about ops and collectives in a tiny form."""

import re
import unittest

from smoke import ROOT, Tiny, rows, run_tiny_forms

from pages import commands_of

PAGE = (ROOT / "docs/measurements/backend_cpu.md").read_text()
# The names of all ops. They are read from the tables of PAGE that have a row for each op.
OPS = sorted(set(re.findall(r"^\| ([A-Z]\w+)", PAGE[PAGE.index("## All ops"):PAGE.index("## Choices")], re.MULTILINE)))
SIZES = ("4.0 KiB", "64.0 KiB", "16.0 MiB")
FORMS = {
    "docs/measurements/backend_cpu.md": [
        Tiny({"--benchmark_min_time=0.1 --benchmark_repetitions=5": "--benchmark_min_time=0.001 --benchmark_repetitions=2"},
             [rf"^{op}[</_]\S*median +[\d.e+-]+ [mun]s +[\d.e+-]+ [mun]s" for op in OPS], never=["ERROR"])],
    "docs/measurements/collectives_cpu.md": [
        Tiny({"for round in 1 2 3 4 5; do": "for round in 1; do", "for ranks in 2 4; do": "for ranks in 2; do", "$ranks 30": "$ranks 10"},
             [*((row, 2) for row in rows(*SIZES)), (r"^waiting \d+ ms for a late peer: [\d.]+ ms of CPU$", 2)]),
        Tiny({"for ranks in 2 4; do": "for ranks in 2; do", "$ranks 100": "$ranks 10"}, [rf"^\| {re.escape(size)} \|.*\| [\d.]+ \|$" for size in SIZES])],
}


class KernelsTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.kernels"), FORMS)


if __name__ == "__main__":
    unittest.main()
