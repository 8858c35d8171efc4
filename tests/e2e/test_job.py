"""Tests a job from its submission to the trained model, and every verb that shows the job."""

import json
import pathlib
import re
import signal
import subprocess
import time

from cluster import BIN, ClusterTest, run


# Values for `pp` in job files, with more fields after it. They fix what the planner would otherwise choose.
ONE_F_ONE_B = "2, schedule: 1f1b, sequenceParallel: 'off'"  # two pipeline stages, and fields after pp
ONE_BY_ONE = "2, weave: 'off'"  # without weaving, a plan with too little memory to store everything must recompute


def state_bytes(stage):
    return sum(int(stage[what + "Bytes"]) for what in ("weight", "gradient", "optimizer"))


class JobTest(ClusterTest):
    def assert_as_planned(self, stage, measured):
        self.assertEqual(stage["arenaBytes"], measured["arenaPeakBytes"], "measured peak is the planned peak")
        self.assertEqual(state_bytes(stage), int(measured["stateBytes"]), "and so are the states")

    def test_submit_to_trained_model(self):
        # First find how much storing everything takes, then set a limit well below it, so that the planner must
        # recompute.
        plan = run("plan", "-f", self.job_file(pp=ONE_BY_ONE, recompute="none"), "--devices-per-node", 2, "-o", "json")
        self.assertEqual(plan.code, 0, plan)
        peak = max(int(stage["arenaBytes"]) for stage in json.loads(plan.out)["stages"])
        path = self.job_file(steps=30, every=10, memory=int(peak * 0.75), pp=ONE_BY_ONE)
        result = self.ctl("submit", "-f", path, "--wait", timeout=300)
        self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
        for expected in ("SUCCEEDED", "PREDICTED", "MEASURED", "step 30/30", "100%", "checkpoint /", "equal"):
            self.assertIn(expected, result.out)

        page = self.get("tiny")  # by name
        for kind, names in (("jobs", [page["id"]]), ("nodes", ["node0", "node1"]), ("queues", ["default"])):
            self.assertEqual(self.ctl("__complete", kind).out.split(), names, "what shells complete")
        self.assertEqual(page["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(page["progress"]["loss"], page["progress"]["firstLoss"])
        self.assertEqual((page["plan"]["layout"]["tp"], page["plan"]["layout"]["pp"]), (2, 2))
        self.assertTrue(page["plan"]["measuredProfile"], "the agents measured the op times")
        recomputed = sum(int(m["recomputeHiddenNs"]) + int(m["recomputeExposedNs"]) for m in page["measured"])
        self.assertGreater(recomputed, 0)
        for stage, measured in zip(page["plan"]["stages"], page["measured"]):
            self.assert_as_planned(stage, measured)
            self.assertLessEqual(int(stage["arenaBytes"]), int(peak * 0.75))
        states = [event["state"] for event in page["events"]]
        self.assertEqual(list(dict.fromkeys(states)), ["JOB_STATE_" + s for s in
                         ("QUEUED", "PLANNING", "STARTING", "RUNNING", "SUCCEEDED")])
        self.assertTrue(all(event["reason"] and int(event["timeUnixNs"]) > 0 for event in page["events"]))

        checkpoint = pathlib.Path(page["checkpointPath"])
        self.assertEqual(checkpoint.name, "step-00000030")
        names = sorted(p.name for p in checkpoint.iterdir() if p.suffix in (".json", ".safetensors"))
        self.assertEqual(names, ["index.json"] + [f"shard-000{s}-000{t}.safetensors" for s in (0, 1) for t in (0, 1)])

        self.assertIn("SUCCEEDED", self.ctl("list").out)
        self.assertIn("ready", self.ctl("nodes").out)
        self.assertEqual(self.ctl("watch", page["id"]).code, 0)
        self.assertEqual(self.ctl("logs", page["id"]).code, 0)
        self.assertEqual(self.rank_pids(), [], "ranks of an ended job are gone")

    def test_a_measured_step_stands_beside_its_prediction(self):
        early = self.ctl("trace", self.submit(self.job_file("early", ranks=64, tp=4, pp=4)))
        self.assertEqual(early.code, 5, early)
        self.assertIn("has been traced yet", early.err)
        job = self.submit(self.job_file("traced", steps=5))
        self.ctl("cancel", "early")
        self.await_state(job, "SUCCEEDED")
        path = self.directory / "step.json"
        result = self.ctl("trace", job, "--out", path)
        self.assertEqual(result.code, 0, result)
        self.assertIn("step 4 took", result.out)  # the newest of the traced steps 1, 2 and 4
        self.assertEqual([line.split()[:2] for line in result.out.splitlines()[3:]],
                         [[s, w] for s in "01" for w in ("measured", "predicted")])
        events = json.loads(path.read_text())["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual([n.split(" (")[0] for n in names.values()],
                         [f"{w} stage {s}" for s in (0, 1) for w in ("measured", "predicted")])
        slices = [sum(e["ph"] == "X" and e["pid"] == pid for e in events) for pid in names]
        self.assertTrue(all(count > 50 for count in slices), slices)
        # The trace's times are microseconds from the beginning of the step. So every measured event ends within 60 s.
        ends = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and names[e["pid"]].startswith("measured"))
        self.assertLess(ends, 60e6)
        self.kill_daemon("server")
        self.up()
        self.assertEqual(self.ctl("trace", job, "-o", "json").code, 0, "it outlives the server")

    def test_the_llama_example_runs_to_the_end(self):
        text = (pathlib.Path(__file__).parents[2] / "examples/llama-bytes.yaml").read_text()
        path = self.directory / "llama.yaml"
        path.write_text(text.replace("/usr/share/common-licenses/GPL-3", str(self.corpus)).replace("steps: 100", "steps: 20"))
        result = self.ctl("submit", "-f", path, "--wait", timeout=300)
        self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
        page = self.get("llama-bytes")
        self.assertEqual(page["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(page["progress"]["loss"], page["progress"]["firstLoss"])
        self.assertTrue(page["plan"]["measuredProfile"], "the agents measured the op times")
        self.assertGreater(sum(int(m["recomputeHiddenNs"]) + int(m["recomputeExposedNs"]) for m in page["measured"]), 0)
        for stage, measured in zip(page["plan"]["stages"], page["measured"]):
            self.assert_as_planned(stage, measured)

    def test_offloading_takes_less_memory_and_changes_no_bit(self):
        pages = []
        for name, share in (("stored", 0), ("offloaded", 1)):
            path = self.job_file(name, steps=5, pp=ONE_F_ONE_B,
                                 recompute=f"none\nrecomputeOptions: {{offloadShare: {share}}}")
            result = self.ctl("submit", "-f", path, "--wait", timeout=300)
            self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
            pages.append(self.get(name))
        stored, offloaded = pages
        self.assertEqual(stored["progress"]["loss"], offloaded["progress"]["loss"])
        first = [page["plan"]["stages"][0] for page in pages]  # the stage with two microbatches in flight
        self.assertLess(int(first[1]["arenaBytes"]), int(first[0]["arenaBytes"]))
        self.assertGreater(int(first[1]["hostBytes"]), 0)
        for stage, measured in zip(offloaded["plan"]["stages"], offloaded["measured"]):
            self.assert_as_planned(stage, measured)

    def test_bfloat16_takes_half_the_activations_and_learns_the_same(self):
        pages = []
        for dtype in ("float32", "bfloat16"):
            path = self.job_file(dtype, steps=5, pp=ONE_F_ONE_B, recompute="full", dtype=dtype)
            result = self.ctl("submit", "-f", path, "--wait", timeout=300)
            self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
            pages.append(self.get(dtype))
        wide, narrow = pages
        self.assertNotEqual(wide["progress"]["loss"], narrow["progress"]["loss"])
        self.assertAlmostEqual(wide["progress"]["loss"], narrow["progress"]["loss"], delta=0.02 * wide["progress"]["loss"])
        self.assertTrue(narrow["plan"]["measuredProfile"], "the agents measured the op times of this type")
        for before, stage, measured in zip(wide["plan"]["stages"], narrow["plan"]["stages"], narrow["measured"]):
            self.assertLess(int(stage["arenaBytes"]), 0.8 * int(before["arenaBytes"]))
            self.assert_as_planned(stage, measured)

    def test_replicas_that_share_out_states_take_less_memory_and_change_no_bit(self):
        pages = []
        for zero in ("none", "optimizer"):
            path = self.job_file(zero, steps=4, every=2, tp=1, pp=ONE_F_ONE_B + f", dp: 2, zero: {zero}", recompute="full",
                                 dtype="bfloat16")
            result = self.ctl("submit", "-f", path, "--wait", timeout=300)
            self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
            pages.append(self.get(zero))
        whole, shared = pages
        self.assertEqual(whole["progress"]["loss"], shared["progress"]["loss"])
        for before, stage, measured in zip(whole["plan"]["stages"], shared["plan"]["stages"], shared["measured"]):
            # A parameter takes 6 bytes for weight and gradient, and 12 bytes for the optimizer, of which each replica has half.
            self.assertLess(state_bytes(stage), 0.7 * state_bytes(before))
            self.assert_as_planned(stage, measured)
        names = sorted(p.name for p in pathlib.Path(shared["checkpointPath"]).glob("*.safetensors"))
        self.assertEqual(names, [f"shard-000{s}-0000-000{d}.safetensors" for s in (0, 1) for d in (0, 1)])

    def test_passes_side_by_side_change_no_bit(self):
        pages = []
        for weave in ("off", "pairs"):
            path = self.job_file(weave, steps=5, pp=ONE_F_ONE_B + f", weave: '{weave}'", recompute="heu")
            result = self.ctl("submit", "-f", path, "--wait", timeout=300)
            self.assertEqual(result.code, 0, f"{result}\n{self.daemon_logs()}")
            pages.append(self.get(weave))
        one_by_one, woven = pages
        self.assertNotEqual(one_by_one["plan"]["digest"], woven["plan"]["digest"])
        self.assertEqual(one_by_one["progress"]["loss"], woven["progress"]["loss"])
        for stage, measured in zip(woven["plan"]["stages"], woven["measured"]):
            self.assert_as_planned(stage, measured)

    def test_the_server_plans_with_the_exact_solver(self):
        plan = run("plan", "-f", self.job_file(pp=ONE_BY_ONE, recompute="none"), "--devices-per-node", 2, "-o", "json")
        peak = max(int(stage["arenaBytes"]) for stage in json.loads(plan.out)["stages"])
        job = self.submit(self.job_file(steps=3, memory=int(peak * 0.75), pp=ONE_BY_ONE, recompute="opt"))
        page = self.await_state(job, "SUCCEEDED")
        self.assertEqual(page["plan"]["mode"], "RECOMPUTE_MODE_OPT")
        for stage in page["plan"]["stages"]:
            self.assertLessEqual(int(stage["proof"]["boundNs"]), int(stage["proof"]["exposedNs"]))

    def test_metrics_of_all_daemons(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 10)
        # The daemons update their metrics pages only at intervals, so the test reads the pages until they show the training.
        deadline = time.monotonic() + 30
        while True:
            server, worker, agent = (self.metrics(name) for name in ("server", "node0.worker", "node0.agent"))
            trains = re.search(r"^lynx_worker_steps_total [1-9]", worker, re.M)
            ready = 'lynx_jobs{state="running"} 1' in server and 'phase="stall"' in server and trains
            if ready or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        self.assertIn('lynx_jobs{state="running"} 1', server)
        for phase in ("forward", "backward", "recompute_hidden", "recompute_exposed", "stall"):
            self.assertIn(f'phase="{phase}"', server)
        self.assertTrue(trains, worker)
        self.assertIn("lynx_worker_ranks_running 2", worker)
        self.assertIn("lynx_", agent)
        self.ctl("cancel", job)

    def test_cancel_stops_every_rank(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 3)
        self.assertEqual(len(self.rank_pids()), 4)
        result = self.ctl("cancel", job, "--reason", "enough")
        self.assertEqual(result.code, 0, result)
        page = self.await_state(job, "CANCELLED")
        self.assertIn("enough", json.dumps(page["events"]))
        self.assertEqual(self.rank_pids(), [])
        again = self.ctl("cancel", job)
        self.assertEqual((again.code, "CANCELLED" in again.out), (0, True), again)

    def test_cancel_all(self):
        running = self.submit(self.job_file("running", steps=100000))
        self.await_steps(running, 1)
        waiting = self.submit(self.job_file("waiting", steps=100000))
        result = self.ctl("cancel", "--all", "--reason", "enough")
        self.assertEqual(result.code, 0, result)
        self.assertIn(f"job {running} is being cancelled", result.out)
        self.assertIn(f"job {waiting} is CANCELLED", result.out)
        for job in (running, waiting):
            self.assertIn("enough", self.await_state(job, "CANCELLED")["reason"])
        again = self.ctl("cancel", "--all")
        self.assertEqual((again.code, again.out), (0, ""), again)
        for neither_or_both in ([], ["--all", running]):
            self.assertEqual(self.ctl("cancel", *neither_or_both).code, 2)

    def test_jobs_wait_their_turn(self):
        first = self.submit(self.job_file("first", steps=100000))
        self.await_steps(first, 1)
        second = self.submit(self.job_file("second", steps=5))
        page = self.await_state(second, "QUEUED")
        self.assertIn("4", page["reason"])
        self.ctl("cancel", first)
        self.await_state(second, "SUCCEEDED")

    def test_idempotency_key(self):
        path = self.job_file(steps=3)
        one = self.submit(path, "--idempotency-key", "k1")
        self.assertEqual(self.submit(path, "--idempotency-key", "k1"), one)
        other = self.ctl("submit", "-f", self.job_file(steps=4), "--idempotency-key", "k1")
        self.assertEqual(other.code, 5, other)
        self.assertIn("k1", other.err)
        self.await_state(one, "SUCCEEDED")

    def test_several_files_at_once(self):
        paths = [self.job_file(name, steps=3) for name in ("one", "two", "three")]
        files = [word for path in paths for word in ("-f", path)]
        held = ("--set", "scheduling.hold=true")
        first = self.ctl("submit", *files, *held, "--idempotency-key", "sweep")
        self.assertEqual(first.code, 0, first)
        ids = [line.split()[1] for line in first.out.splitlines()]
        self.assertEqual([self.get(job)["spec"]["name"] for job in ids], ["one", "two", "three"])
        # The files are submitted again with the same key. The second file has changed, so the server refuses it: its
        # key belongs to a different job. For the other two files, the server returns the jobs that exist.
        paths[1].write_text(paths[1].read_text().replace("steps: 3", "steps: 4"))
        again = self.ctl("submit", *files, *held, "--idempotency-key", "sweep")
        self.assertEqual(again.code, 5, again)
        self.assertIn("two.yaml: ", again.err)
        self.assertEqual([line.split()[1] for line in again.out.splitlines()], [ids[0], ids[2]])
        # If one file cannot be read, nothing is submitted.
        paths[2].write_text("nonsense")
        before = self.ctl("list").out
        broken = self.ctl("submit", *files)
        self.assertEqual(broken.code, 2, broken)
        self.assertIn("three.yaml", broken.err)
        self.assertEqual(self.ctl("list").out.count("\n"), before.count("\n"))
        wait = self.ctl("submit", *files, "--wait")
        self.assertEqual(wait.code, 2, wait)
        self.assertIn("--wait and --follow are for one job", wait.err)

    def test_watch_ends_on_interrupt_and_the_job_goes_on(self):
        job = self.submit(self.job_file(steps=100000))
        self.await_steps(job, 1)
        watch = subprocess.Popen([str(BIN / "lynxctl"), "watch", job], env=self.env, stdout=subprocess.PIPE)
        time.sleep(0.5)
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=10)
        watch.stdout.close()
        before = int(self.get(job)["progress"]["stepsDone"])
        self.await_steps(job, before + 2)
