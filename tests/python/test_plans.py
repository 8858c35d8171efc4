"""Tests lynx.Job, lynx.Cluster and lynx.plan with their errors, tables, sweeps, memory estimates, notebooks, and interruption
by Ctrl-C."""

import html.parser
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import lynx
from lynxctl import CLUSTERS, EXAMPLES

SMALL = EXAMPLES / "gpt-bytes.yaml"
TINY = {"layers": 4, "hidden": 64, "heads": 4, "seq": 64}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1376,
          "num_attention_heads": 8, "num_hidden_layers": 8, "num_key_value_heads": 8, "vocab_size": 4096,
          "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
          "torch_dtype": "bfloat16"}


class JobTest(unittest.TestCase):
    def test_all_ways_to_say_a_job_give_the_same_plan(self):
        text = SMALL.read_text()
        fields = {"name": "j", "model": TINY, "data": {"path": "d"}, "train": {"steps": 1, "globalBatch": 8},
                  "resources": {"ranks": 2}}
        self.assertEqual(lynx.plan(lynx.Job(SMALL)).digest, lynx.plan(str(SMALL)).digest)
        self.assertEqual(lynx.plan(lynx.Job(SMALL)).digest, lynx.plan(lynx.Job(text)).digest)
        nested = lynx.plan(fields)
        for job in (lynx.Job(model=TINY, batch=8, ranks=2),
                    lynx.Job(model=TINY, **{"train.globalBatch": 8, "resources.ranks": 2}),
                    lynx.Job(model=TINY, train={"global_batch": 8}, resources={"ranks": 2}), lynx.Job(fields, seq=64)):
            self.assertEqual(nested.digest, lynx.plan(job).digest, job)

    def test_keywords_replace_what_a_source_says(self):
        self.assertNotEqual(lynx.plan(lynx.Job(SMALL, seq=256)).digest, lynx.plan(SMALL).digest)
        self.assertEqual(lynx.Job(lynx.Job(SMALL, seq=128), seq=64).check(), lynx.Job(SMALL, seq=64).check())
        self.assertIn("preset", repr(lynx.Job(model="gpt-22b", seq=4096)))
        job = lynx.Job(model="gpt-22b", batch=8)
        self.assertIn("seq: 8192", job.replace(seq=8192).check())
        self.assertIn("seq: 8192", job.replace({"model.seq": 8192}).check())
        self.assertIn("seq: 2048", job.check())

    def test_a_model_may_be_a_preset_or_a_configuration(self):
        self.assertIn("gpt-22b", lynx.models())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(CONFIG))
            for model in (path, str(path), folder):
                self.assertIn("layers: 8", lynx.Job(model=model, batch=2).check())

    def test_a_job_without_ranks_uses_the_machine(self):
        plan = lynx.plan(lynx.Job(model="gpt-22b", batch=32), lynx.Cluster("h100", nodes=2))
        self.assertEqual(plan.ranks, 16)

    def test_values_of_other_libraries(self):
        class Number(int):
            pass
        self.assertIn("seq: 128", lynx.Job(SMALL, seq=Number(128)).check())
        self.assertIn("stageLayers: [3, 1]", lynx.Job(model=TINY, batch=8, ranks=2, pp=2, stage_layers=[3, 1]).check())
        self.assertIn("tiedEmbeddings: true", lynx.Job(SMALL, tied_embeddings=True).check())


class ErrorTest(unittest.TestCase):
    def raises(self, call, error=lynx.Error):
        with self.assertRaises(error) as raised:
            call()
        self.assertIsInstance(raised.exception, ValueError)
        return raised.exception

    def test_a_file_has_lines_and_columns(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bad.yaml"
            path.write_text(SMALL.read_text().replace("globalBatch", "globalBatsh"))
            error = self.raises(lambda: lynx.plan(path))
            line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "globalBatsh" in text)
            self.assertEqual((error.file, error.line, error.field), (str(path), line, "train.globalBatsh"))
            self.assertGreater(error.column, 0)
            self.assertIn("globalBatch", str(error))
        text = CLUSTERS.joinpath("h100.yaml").read_text().replace("memoryBandwidth", "memoryBandwith")
        error = self.raises(lambda: lynx.Cluster(text))
        self.assertEqual((error.file, error.code), ("cluster", "invalid_argument"))
        self.assertGreater(error.line, 1)

    def test_a_job_made_in_python_has_fields(self):
        error = self.raises(lambda: lynx.plan(lynx.Job(model={**TINY, "heads": 5}, batch=8)))
        self.assertEqual((error.file, error.line, error.column), (None, None, None))
        self.assertTrue(error.field.startswith("model."), error.field)
        self.assertNotIn("<job>", str(error))
        self.assertEqual(self.raises(lambda: lynx.plan(lynx.Job(model="gpt-22c", batch=8))).field, "model.preset")
        self.assertEqual(self.raises(lambda: lynx.plan(lynx.Job(SMALL, seq="many"))).field, "model.seq")
        self.assertEqual(self.raises(lambda: lynx.plan(lynx.Job(SMALL, sequence=3))).field, "sequence")

    def test_short_names_of_several_fields(self):
        error = self.raises(lambda: lynx.Job(path="d", kind="text", layers=3))
        self.assertIn("model.layers", str(error))
        self.assertIn("recomputeOptions.layers", str(error))

    def test_files_that_cannot_be_read(self):
        error = self.raises(lambda: lynx.Job("/nowhere/job.yaml"))
        self.assertEqual((error.code, error.file), ("not_found", "/nowhere/job.yaml"))
        self.assertIn("h100", str(self.raises(lambda: lynx.Cluster("h101"))))
        self.raises(lambda: lynx.plan(SMALL, profile="/nowhere/profile.json"))
        self.assertEqual(self.raises(lambda: lynx.plan(SMALL, profile={"deviceKind": 3})).code, "invalid_argument")

    def test_what_cannot_be(self):
        for call in (lambda: lynx.Job(3), lambda: lynx.Cluster(3)):
            with self.assertRaises(TypeError):
                call()
        self.raises(lambda: lynx.Cluster("h100", device_memory="80GiB"))
        self.raises(lambda: lynx.Cluster("h100", colour="red"))
        self.raises(lambda: lynx.plan(SMALL, lynx.Cluster(nodes=1, device_memory="much")))
        for count in (-1, 1.5, "two", 1 << 21):
            self.assertEqual(self.raises(lambda: lynx.Cluster("h100", nodes=count)).field, "nodes")
            self.assertEqual(self.raises(lambda: lynx.Cluster(devices_per_node=count)).field, "devices_per_node")
        self.assertIn("80GiB", str(self.raises(lambda: lynx.Cluster(nodes=1, device_memory=80))))
        self.assertEqual(self.raises(lambda: lynx.plan(SMALL, opt_seconds=0)).field, "opt_seconds")
        self.raises(lambda: lynx.plan(SMALL, framework="jax"))
        self.raises(lambda: lynx.plan(SMALL).export("jax"))
        self.assertIn("version", str(self.raises(lambda: lynx.plan(SMALL).export("megatron", "0.0.1"))))
        self.raises(lambda: lynx.plan(SMALL).actions(99))
        self.raises(lambda: lynx.whatif(SMALL, nodes="-3"))

    def test_a_job_that_cannot_fit(self):
        job = lynx.Job(model="gpt-22b", batch=8)
        for call in (lynx.plan, lynx.compare, lynx.explain):
            error = self.raises(lambda: call(job, lynx.Cluster("l4", nodes=1)), lynx.Infeasible)
            self.assertTrue(error.reason)
            self.assertIn(error.reason, str(error))
            self.assertEqual(error.code, "infeasible")
        small = self.raises(lambda: lynx.plan(lynx.Job(SMALL, activation_memory_per_rank="1KiB")), lynx.Infeasible)
        self.assertIn("activationMemoryPerRank", small.suggestion)
        self.assertGreater(small.needed_bytes, small.limit_bytes)
        rows = lynx.whatif(SMALL, set={"activation_memory_per_rank": "1KiB"})
        self.assertEqual([row.fits for row in rows], [True, False])


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = lynx.plan(SMALL, lynx.Cluster(nodes=1, devices_per_node=4, device_memory="256MiB"))

    def test_attributes_agree_with_the_message(self):
        message = json.loads(self.plan.json())
        self.assertEqual(round(self.plan.step_seconds * 1e9), int(message["stepNs"]))
        self.assertEqual(self.plan.digest, message["digest"])
        self.assertEqual(len(self.plan.stages), self.plan.pp)
        self.assertEqual(sorted(rank for stage in self.plan.stages for rank in stage.ranks), list(range(self.plan.ranks)))
        self.assertIn(self.plan.layout, str(self.plan))
        self.assertIn(self.plan.layout, repr(self.plan))
        self.assertTrue(self.plan.policies)
        with self.assertRaisesRegex(AttributeError, "step_seconds"):
            self.plan.step_secs

    def test_memory_is_the_allocated_size(self):
        for row, stage in zip(self.plan.memory, self.plan.stages):
            kinds = [value for name, value in row.items()
                     if name.endswith("_bytes") and name not in ("total_bytes", "limit_bytes")]
            self.assertEqual(sum(kinds), row.total_bytes)
            states = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
            self.assertEqual(row.total_bytes, states + stage.arena_bytes)
            self.assertLessEqual(row.total_bytes, row.limit_bytes)

    def test_notebooks_show_the_page(self):
        class Frame(html.parser.HTMLParser):
            source = ""

            def handle_starttag(self, tag, attributes):
                if tag == "iframe":
                    self.source = dict(attributes)["srcdoc"]
        frame = Frame()
        frame.feed(self.plan._repr_html_())
        self.assertEqual(frame.source, self.plan.html())
        self.assertIn("<td>", lynx.compare(SMALL)._repr_html_())

    def test_tables(self):
        table = lynx.Table([{"a": 1, "b_bytes": 1 << 30}, {"a": None, "b_bytes": 0, "c": "<x>"}])
        self.assertEqual(str(table), "a  b_bytes  c\n1  1.0 GiB  -\n-  0 B      <x>")
        self.assertIn("&lt;x&gt;", table._repr_html_())
        self.assertEqual(table.column("c"), [None, "<x>"])
        with self.assertRaisesRegex(KeyError, "a, b_bytes, c"):
            table.column("d")
        frame = table.to_pandas()
        self.assertEqual(list(frame.columns), ["a", "b_bytes", "c"])
        self.assertEqual(len(frame), 2)
        with self.assertRaisesRegex(AttributeError, "a, b_bytes"):
            table[0].d

    def test_tables_without_pandas(self):
        code = "import sys; sys.modules['pandas'] = None\nimport lynx\nlynx.Table([]).to_pandas()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertIn("python3-pandas", done.stderr)


class SweepTest(unittest.TestCase):
    def test_every_combination_is_planned(self):
        told = []
        job = lynx.Job(model="gpt-22b", batch=32, recompute="full")
        table = lynx.sweep(job, "h100", {"seq": [2048, 4096], "nodes": [1, 2]},
                           progress=lambda done, of: told.append((done, of)))
        self.assertEqual([(row.seq, row.nodes) for row in table], [(2048, 1), (2048, 2), (4096, 1), (4096, 2)])
        self.assertEqual(told, [(i, 4) for i in range(1, 5)])
        for row in table:
            plan = lynx.plan(job.replace(seq=row.seq), lynx.Cluster("h100", nodes=row.nodes))
            self.assertEqual((row.step_seconds, row.layout), (plan.step_seconds, plan.layout))
        self.assertIn("step_seconds", str(table))

    def test_rows_say_why_there_is_no_plan(self):
        table = lynx.sweep(SMALL, None, {"activationMemoryPerRank": ["1KiB", "auto"], "model.heads": [4, 7]})
        self.assertEqual([row.fits for row in table], [False, False, True, False])
        self.assertIn("does not fit", table[0].note)
        self.assertIn("heads", table[3].note)

    def test_machines(self):
        table = lynx.sweep(lynx.Job(model="gpt-22b", batch=32), None, {"cluster": ["h100", "h200"]})
        self.assertEqual([row.fits for row in table], [True, True])

    def test_mistakes(self):
        for values in ({}, {"seq": []}, {"layers": [1]}):
            with self.assertRaises(lynx.Error):
                lynx.sweep(lynx.Job(SMALL), None, values)


class MemoryTest(unittest.TestCase):
    def test_a_configuration_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(CONFIG))
            estimate = lynx.memory.estimate(path, "h100", seq=512, batch=32)
            self.assertTrue(estimate.fits)
            plan = lynx.plan(lynx.Job(model=path, seq=512, batch=32), "h100")
            self.assertEqual(estimate.total_bytes, max(row.total_bytes for row in plan.memory))
            row = estimate.ranks[0]
            self.assertEqual(row.total_bytes, sum(row[f"{kind}_bytes"] for kind in
                                                  ("weights", "gradients", "optimizer", "stored", "recomputed", "workspace")))
            for word in ("config.json", "fits", "weights_bytes", "AdamW", estimate.layout):
                self.assertIn(word, str(estimate))
            self.assertIn("<table>", estimate._repr_html_())
            alone = lynx.memory.estimate(path)
            self.assertIsNone(alone.fits)
            # 16-bit weights, 32-bit gradients, two moments and a 32-bit copy: 2, 4 and 12 bytes for each parameter.
            row = alone.ranks[0]
            self.assertAlmostEqual(row.gradients_bytes / row.weights_bytes, 2, places=2)
            self.assertAlmostEqual(row.optimizer_bytes / row.weights_bytes, 6, places=2)

    def test_what_does_not_fit(self):
        estimate = lynx.memory.estimate("gpt-22b", lynx.Cluster("l4", nodes=1), batch=8)
        self.assertIs(estimate.fits, False)
        self.assertGreater(estimate.total_bytes, estimate.ranks[0].limit_bytes)
        self.assertIn("does not fit", str(estimate))
        small = lynx.memory.estimate(lynx.Job(SMALL, activation_memory_per_rank="1KiB"))
        self.assertIn("activationMemoryPerRank", small.suggestion)
        self.assertIn(small.suggestion, str(small))
        for policy, options in (("selective", {"modules": "mlp"}), ("block", {"layers": 1})):
            job = lynx.Job(SMALL, activation_memory_per_rank="1KiB", recompute=policy,
                           **{f"recomputeOptions.{name}": value for name, value in options.items()})
            self.assertIs(lynx.memory.estimate(job).fits, False)

    def test_other_frameworks(self):
        estimate = lynx.memory.estimate("gpt-22b", "h100", framework="megatron", batch=8)
        plan = lynx.plan(lynx.Job(model="gpt-22b", batch=8), "h100", framework="megatron")
        self.assertEqual(estimate.total_bytes, max(rank.total for rank in plan.memory))
        fields = {"recompute": "selective", "recomputeOptions.modules": "mlp"}
        by_module = lynx.memory.estimate("gpt-22b", "h100", framework="megatron", batch=8, **fields)
        self.assertIn("recompute selective (mlp): ", str(by_module))


LONG = """
import lynx, sys
print("begin", flush=True)
try:
    lynx.explain(lynx.Job(model="gpt-1t", batch=3072), lynx.Cluster("a100-80gb-nvlink", nodes=384))
    print("ended")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class InterruptTest(unittest.TestCase):
    def test_others_run_while_it_plans(self):
        counted, ended = [0], threading.Event()

        def count():
            while not ended.is_set():
                counted[0] += 1
                time.sleep(0.0005)
        thread = threading.Thread(target=count)
        thread.start()
        try:
            before = counted[0]
            lynx.explain(lynx.Job(model="gpt-22b", batch=64), lynx.Cluster("h100", nodes=2))
            self.assertGreater(counted[0], before + 1)
        finally:
            ended.set()
            thread.join()

    def test_ctrl_c_ends_a_plan(self):
        process = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "begin\n")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "interrupted\n")
        # At its end the interpreter waits for the search, unless it is interrupted again.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        process.communicate()

    def test_several_threads_plan(self):
        digests = []
        threads = [threading.Thread(target=lambda: digests.append(lynx.plan(SMALL).digest)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(digests)), 1)
        self.assertEqual(len(digests), 4)


if __name__ == "__main__":
    unittest.main()
