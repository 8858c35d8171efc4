"""Runs the commands of the pages of docs/measurements about the simulation, the store and malformed input in a smaller form
(fewer seeds, kills or seconds). Checks that the changed settings take effect, and that the output has the expected form. The
full test programs run elsewhere."""

import unittest

from smoke import Tiny, run_tiny_forms

from pages import commands_of


def fuzz(target, seed):
    """Fuzzes one target for one second."""
    return Tiny({"LYNX_FUZZ_SECONDS=120": "LYNX_FUZZ_SECONDS=1", "fuzz_mutation_test": f"fuzz_mutation_test --gtest_filter='*NoInputIsTakenInAWrongWay/{target}'"},
                [rf"^seed {seed}$", r"^[1-9]\d* inputs$", r"PASSED  \] 1 test"])


FORMS = {
    "docs/measurements/fuzzing.md": [fuzz("program", 7)],
    "docs/measurements/planner.md": [fuzz("config", 20261122)],
    "docs/measurements/simulation.md": [
        Tiny({"lynx_sim 1 100000": "lynx_sim 1 200"},
             [r"^200 seeds in [\d.]+ s: [1-9]\d* faults, [1-9]\d* generations trained, .* 0 seeds with violations$"])],
    "docs/measurements/store.md": [
        Tiny({"lynx_server_kills 200 1": "lynx_server_kills 4 1"},
             [r"^kills 4 \(\d+ of a server that was starting\), seed 1$", r"^acknowledged: [1-9]\d* jobs, \d+ cancellations$", "median [1-9]", "^violations: 0$"]),
        Tiny({"'*StoreFaults*:*FullDisk*'": "'*StoreFaults*/ErrorOnce:*FullDisk*'"}, [r"^[1-9]\d* operations, [1-9]\d* of them failed$", "OK .*FullDisk"]),
        Tiny({"LYNX_CORRUPTIONS=10000": "LYNX_CORRUPTIONS=100"}, [r"PASSED  \] 3 tests", (r"^refused \d+, began with all \d+, began with a difference .* \d+$", 3)])],
}


class DamageTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.damage"), FORMS)


if __name__ == "__main__":
    unittest.main()
