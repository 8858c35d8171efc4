"""Runs the commands of the records about the server in a tiny form: its decisions, thousands of nodes, a comparison with Slurm."""

import unittest

from smoke import BIN, Tiny, rows, run_tiny_forms

from pages import commands_of

DECISIONS = [rf"^{kind} +[1-9]\d* +[\d.]+ +[\d.]+ +[\d.]+$" for kind in
             ("agent attaches", "worker attaches", "small job is placed", "gang is submitted", "gang's devices are reserved", "gang is placed",
              "2,000 waiting jobs are looked at")]
HELD = ("submissions a second, four clients, three times, by clients that stay, through the library",) if (BIN / "submit_slurm").exists() else ()
FORMS = {
    "docs/measurements/scale.md": [
        Tiny({"--nodes 10000 --devices 1 --seconds 15 --gangs 5": "--nodes 64 --gang 64 --devices 1 --settle 1 --seconds 5 --load 2 --storm 2 --rate 20 --gangs 1"},
             [*rows("all attached after", "from a report to its answer", "server's cores in use", "server's memory", "all of them done after",
                    "submission of a job to its acknowledgement, 20 a second for 2 s", "submission to all ranks running, of the newest 1,000",
                    "a job of 64 ranks: from submission to its plan", "from its plan until all ranks' nodes are told", "from its plan until all ranks run",
                    "server's memory, most"),
              r"^\| submission of a job .* \(40\) \|$", r"^\| acknowledged jobs that are there, lost \| \d+, 0 \|$", r"^\| the job that trained meanwhile \| goes on, "],
             never=["refused"]),
        Tiny({"controller_bench 10000 1": "controller_bench 1100 1"}, DECISIONS),
        Tiny({"--jobs 4 --seconds 12": "--jobs 1 --seconds 1 --held 20"},
             rows("submission to start, ms", "submission itself, ms", "submissions a second, four clients, three times, by a command each", *HELD))],
    "docs/measurements/scheduling.md": [Tiny({"controller_bench 10000 8": "controller_bench 600 2"}, DECISIONS)],
}


class ServerTest(unittest.TestCase):
    def test_records_can_be_repeated(self):
        run_tiny_forms(self, commands_of("bench.smoke.server"), FORMS)

    @unittest.skipUnless(HELD, "submit_slurm is not built: libslurm-dev is not installed, see scripts/packages-tests.txt")
    def test_clients_of_slurm_stayed(self):
        self.assertTrue((BIN / "submit_lynx").exists())


if __name__ == "__main__":
    unittest.main()
