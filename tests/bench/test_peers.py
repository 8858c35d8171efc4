"""Checks that bench/peers.py uses every file of bench/peers/, and that every problem is planned with the peer's plan pinned."""

import sys
import unittest

from smoke import BIN, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import peers  # noqa: E402


class PeersTest(unittest.TestCase):
    def test_every_file_belongs_to_a_problem(self):
        used = {name for problem in peers.PROBLEMS for name in (f"{problem.job}.yaml", f"{problem.cluster}-cluster.yaml")}
        self.assertEqual({path.name for path in peers.FOLDER.iterdir()}, used)

    def test_the_peers_plans_are_planned(self):
        peers.CTL = BIN / "lynxctl"
        for problem in peers.PROBLEMS:
            with self.subTest(problem.name):
                plan = peers.pinned(problem)
                self.assertGreater(peers.seconds(plan), 0)
                sizes = [plan["layout"][name] for name in ("tp", "pp", "dp")] + [plan["microBatch"]]
                self.assertEqual(sizes, [problem.plan[name] for name in ("parallel.tp", "parallel.pp", "parallel.dp", "train.microBatch")])

    def test_what_cannot_be_planned_is_an_error(self):
        peers.CTL = BIN / "lynxctl"
        with self.assertRaisesRegex(RuntimeError, "metis-gpt is not planned: .*model.layers is 4000"):
            peers.planned(next(problem for problem in peers.PROBLEMS if problem.name == "metis-gpt"), "lynx", {"model.layers": 4000})


if __name__ == "__main__":
    unittest.main()
