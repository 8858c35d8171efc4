"""Tests that the package's results equal those of lynxctl to the byte."""

import pathlib
import tempfile
import unittest

import lynx
from lynxctl import CLUSTERS, EXAMPLES, lynxctl

# The options of lynxctl, and the same as arguments of Python: the job, the machine, and options of lynx.plan.
SMALL = str(EXAMPLES / "gpt-bytes.yaml")
LARGE = str(EXAMPLES / "gpt-22b.yaml")
EXPERTS = str(EXAMPLES / "qwen3-moe-bytes.yaml")
H100 = str(CLUSTERS / "h100.yaml")
H200 = str(CLUSTERS / "h200.yaml")
A100 = str(CLUSTERS / "a100-40gb-pcie.yaml")
CASES = [
    (["-f", SMALL], lambda: (SMALL, None), {}),
    (["-f", SMALL, "--nodes", "2", "--devices-per-node", "2", "--device-memory", "64MiB"],
     lambda: (SMALL, lynx.Cluster(nodes=2, devices_per_node=2, device_memory="64MiB")), {}),
    (["-f", SMALL, "--for", "any", "--set", "parallel.tp=1"], lambda: (lynx.Job(SMALL, tp=1), None), {"any_framework": True}),
    (["-f", LARGE, "--cluster", H100], lambda: (LARGE, H100), {}),
    (["-f", LARGE, "--cluster", A100, "--set", "recompute=full", "--nodes", "2", "--set", "resources.ranks=16",
      "--set", "parallel.tp=auto"],
     lambda: (lynx.Job(LARGE, recompute="full", ranks=16, tp="auto"), lynx.Cluster(A100, nodes=2)), {}),
    (["-f", EXPERTS, "--set", "model.moe.skew=1.5"], lambda: (lynx.Job(EXPERTS, skew=1.5), None), {}),
]


class EqualityTest(unittest.TestCase):
    def setUp(self):
        self.maxDiff = 4000

    def each(self):
        for options, make, more in CASES:
            with self.subTest(options=options):
                job, cluster = make()
                yield options, job, cluster, more

    def test_plan(self):
        for options, job, cluster, more in self.each():
            plan = lynx.plan(job, cluster, **more)
            self.assertEqual(str(plan), lynxctl("plan", *options))
            self.assertEqual(plan.json(), lynxctl("plan", *options, "-o", "json"))

    def test_pages_traces_and_programs(self):
        options, make, more = CASES[0]
        job, cluster = make()
        plan = lynx.plan(job, cluster, **more)
        with tempfile.TemporaryDirectory() as folder:
            page, trace = pathlib.Path(folder) / "plan.html", pathlib.Path(folder) / "trace.json"
            lynxctl("plan", *options, "--html", page, "--trace", trace)
            self.assertEqual(plan.html(), page.read_text())
            self.assertEqual(plan.trace(), trace.read_text())
            plan.save(pathlib.Path(folder) / "saved.html")
            self.assertEqual((pathlib.Path(folder) / "saved.html").read_text(), page.read_text())
        self.assertEqual(plan.actions(1), lynxctl("plan", *options, "--actions", 1))

    def test_exact_plans(self):
        job = lynx.Job(SMALL, recompute="opt")
        options = ["-f", SMALL, "--set", "recompute=opt", "--opt-seconds", "60"]
        self.assertEqual(lynx.plan(job, opt_seconds=60).json(), lynxctl("plan", *options, "-o", "json"))
        options = ["-f", SMALL, "--opt", "--opt-seconds", "60"]
        self.assertEqual(lynx.compare(SMALL, opt=True, opt_seconds=60).json(), lynxctl("compare", *options, "-o", "json"))

    def test_other_frameworks(self):
        for framework in ("megatron", "deepspeed"):
            plan = lynx.plan(LARGE, H100, framework=framework)
            options = ["plan", "-f", LARGE, "--cluster", H100, "--framework", framework]
            self.assertEqual(plan.json(), lynxctl(*options, "-o", "json"))
            self.assertEqual(str(plan), lynxctl(*options))

    def test_compare_and_explain(self):
        for options, job, cluster, more in self.each():
            for verb, function in (("compare", lynx.compare), ("explain", lynx.explain)):
                answer = function(job, cluster, **more)
                self.assertEqual(str(answer), lynxctl(verb, *options), verb)
                self.assertEqual(answer.json(), lynxctl(verb, *options, "-o", "json"), verb)
                self.assertEqual(answer.csv(), lynxctl(verb, *options, "-o", "csv"), verb)

    def test_whatif(self):
        answer = lynx.whatif(LARGE, H100, set={"seq": 4096, "recompute": "full"})
        options = ["whatif", "-f", LARGE, "--cluster", H100, "--with", "model.seq=4096", "--with", "recompute=full"]
        self.assertEqual(str(answer), lynxctl(*options))
        self.assertEqual(answer.json(), lynxctl(*options, "-o", "json"))
        self.assertEqual(str(lynx.whatif(LARGE, H100, nodes="+1")),
                         lynxctl("whatif", "-f", LARGE, "--cluster", H100, "--with-nodes", "+1"))
        self.assertEqual(str(lynx.whatif(LARGE, H100, with_cluster=H200)),
                         lynxctl("whatif", "-f", LARGE, "--cluster", H100, "--with-cluster", H200))

    def test_export(self):
        plan = lynx.plan(LARGE, H100)
        for format in ("megatron", "deepspeed", "torchtitan"):
            options = ["export", "-f", LARGE, "--cluster", H100, "--format", format]
            exported = plan.export(format)
            self.assertEqual(exported.json(), lynxctl(*options, "-o", "json"))
            self.assertEqual(str(exported), lynxctl(*options))
        with tempfile.TemporaryDirectory() as folder:
            lynxctl(*options, "--out", f"{folder}/cli")
            made = exported.save(f"{folder}/python")
            self.assertEqual({path.name: path.read_text() for path in made},
                             {path.name: path.read_text() for path in pathlib.Path(f"{folder}/cli").iterdir()})

    def test_ready_made_machines(self):
        self.assertEqual(lynx.machines(), sorted(path.stem for path in CLUSTERS.glob("*.yaml")))
        self.assertEqual(lynx.plan(LARGE, "h100").json(), lynx.plan(LARGE, H100).json())

    def test_errors(self):
        cases = [(["plan", "-f", SMALL, "--set", "model.seq=abc"], lambda: lynx.plan(lynx.Job(SMALL, seq="abc"))),
                 (["plan", "-f", SMALL, "--set", "resources.ranks=64", "--nodes", "2", "--devices-per-node", "2"],
                  lambda: lynx.plan(lynx.Job(SMALL, ranks=64), lynx.Cluster(nodes=2, devices_per_node=2))),
                 (["plan", "-f", SMALL, "--set", "resources.activationMemoryPerRank=1KiB"],
                  lambda: lynx.plan(lynx.Job(SMALL, activation_memory_per_rank="1KiB")))]
        for options, call in cases:
            with self.subTest(options=options), self.assertRaises(lynx.Error) as raised:
                call()
            code = 1 if isinstance(raised.exception, lynx.Infeasible) else 2
            self.assertEqual(f"lynxctl: {raised.exception}\n", lynxctl(*options, code=code))


if __name__ == "__main__":
    unittest.main()
