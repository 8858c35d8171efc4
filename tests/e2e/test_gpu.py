"""Tests the way from the agent's GPUs to a trained model, on machines without a GPU: the agent uses the tests' NVML, and the
rank process computes with CUDA on the host. Everything else is the real product."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import cluster
from cluster import PROGRAMS, ClusterTest, processes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))

from pages import commands_of, lines_of

BUILT = cluster.BIN
ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE_NVML = BUILT.parent / "lib" / "fake_nvml"


def programs_with_stand_in(directory):
    """A folder of Lynx's programs in which lynx-rank has CUDA on the host. They are copies, because daemons find each
    other by their paths."""
    directory.mkdir()
    for name in PROGRAMS:
        shutil.copy(BUILT / name, directory / name)
    shutil.copy(BUILT / "stand_in_rank", directory / "lynx-rank")
    return directory


class GpuTest(ClusterTest):
    nodes = 1
    devices = "cuda"
    gpus = 2

    def up(self):
        self.driver = self.directory / "driver"
        self.tell_driver("")
        self.env.update(LD_LIBRARY_PATH=str(FAKE_NVML), LYNX_FAKE_NVML=str(self.driver))
        self.binaries = programs_with_stand_in(self.directory / "bin")
        super().up()

    def tell_driver(self, more):
        fresh = self.driver.with_suffix(".new")
        fresh.write_text(f"gpus {self.gpus}\n{more}")
        fresh.rename(self.driver)

    def test_a_job_trains_on_gpus_and_says_so(self):
        nodes = self.ctl("nodes")
        self.assertRegex(nodes.out, r"node0 +ready +cuda +2 ")
        job = self.submit(self.job_file(ranks=2, tp=2, pp=1, steps=3))
        page = self.await_state(job, "SUCCEEDED")
        self.assertEqual(page["deviceKind"], "DEVICE_KIND_CUDA")
        self.assertEqual(int(page["progress"]["stepsDone"]), 3)
        self.assertIn("plans for 2 GPUs on node0", str(page["events"]))
        self.assertIn("ranks on GPUs: 0=node0:0 1=node0:1", self.ctl("get", job).out)
        profile = self.ctl("nodes", "-o", "json").out
        self.assertIn("cuda:0: ", profile)
        metrics = self.metrics("node0.agent")
        self.assertRegex(metrics, r'DCGM_FI_DEV_XID_ERRORS\{[^}]*UUID="GPU-fake-1"[^}]*\} 0\n')

    def test_a_gpu_that_fails_is_withdrawn_and_its_job_waits_for_another(self):
        job = self.submit(self.job_file(ranks=2, tp=2, pp=1, steps=100000, every=1))
        self.await_steps(job, 1)
        self.tell_driver("xid 1 79\n")
        self.await_on_disk(lambda: "Xid 79" in self.ctl("nodes").out, "the Xid among the nodes' conditions")
        # The agent has reported the Xid. It attaches to the server again, and no longer reports that GPU.
        self.await_on_disk(lambda: re.search(r"node0 +ready +cuda +1 ", self.ctl("nodes").out), "one GPU is left")
        self.assertRegex(self.metrics("node0.agent"), r'DCGM_FI_DEV_XID_ERRORS\{[^}]*UUID="GPU-fake-1"[^}]*\} 79\n')
        os.kill(self.rank_pids()[0], 9)
        page = self.await_job(job, lambda page: "waits for 2 GPUs" in page["reason"], "its wait for GPUs")
        self.assertEqual(page["state"], "JOB_STATE_QUEUED")

    def test_a_job_may_ask_for_another_kind(self):
        path = self.job_file(ranks=1, tp=1, pp=1)
        result = self.ctl("submit", "-f", path, "-o", "json", "--set", "resources.device=cpu")
        self.assertEqual(result.code, 0, result)
        listed = self.ctl("list").out
        self.assertIn("waits for 1 device, but the attached nodes have 0", listed)

    def test_the_commands_of_the_page(self):
        """Runs the commands of docs/gpu.md. The agents get a server and folders of this test; the cluster is in this test's
        folder."""
        *agents, cluster_up = lines_of(commands_of("e2e.gpu")["docs/gpu.md"][0])
        self.assertEqual(len(agents), 2)
        server = next(self.home.rglob("server.address")).read_text().strip()
        for n, line in enumerate(agents):
            program, *words = line.split()
            with open(self.directory / f"by-hand{n}.log", "wb") as log:
                agent = subprocess.Popen([self.binaries / program, *words, "--node", f"by-hand{n}", "--server", server, "--data-dir",
                                          self.directory / f"by-hand{n}"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(agent.wait)
            self.addCleanup(agent.kill)
            self.await_on_disk(lambda: re.search(rf"by-hand{n} .* cuda +2 ", self.ctl("nodes").out), f"{line} to be attached", 60)
        self.assertEqual(self.ctl("local", "down").code, 0)
        up = self.ctl(*cluster_up.split()[1:], timeout=120)
        self.assertEqual(up.code, 0, up)
        self.assertRegex(self.ctl("nodes").out, r"node0 +ready +cuda +2 ")


class BadInputTest(unittest.TestCase):
    def test_a_local_cluster_offers_gpus_from_one_node(self):
        home = tempfile.mkdtemp(prefix="lynx-e2e-gpu-")
        self.addCleanup(shutil.rmtree, home, True)
        env = dict(os.environ, LYNX_HOME=home)
        for devices in ("cuda", "cuda:2", "auto"):
            up = cluster.run("local", "up", "--nodes", 2, "--devices", devices, env=env)
            self.assertEqual(up.code, 2, up)
            self.assertIn(f"--devices {devices} with --nodes 2: the nodes would share this machine's GPUs", up.err)
        for devices in ("0", "65", "tpu", "cuda:", "cuda:0", "2:2"):
            up = cluster.run("local", "up", "--devices", devices, env=env)
            self.assertEqual(up.code, 2, up)
            self.assertIn(f"'{devices}' is not 1..64, auto, cpu or cuda", up.err)
        self.assertEqual(processes(home), {})


class DemoTest(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-gpu-demo-"))
        self.addCleanup(shutil.rmtree, self.home, True)
        driver = self.home / "driver"
        driver.write_text("gpus 1\ngpu.0.name NVIDIA Stand-In\n")
        self.env = dict(os.environ, LYNX_HOME=str(self.home / "home"), LYNX_SKIP_BUILD="1",
                        LD_LIBRARY_PATH=str(FAKE_NVML), LYNX_FAKE_NVML=str(driver))

    def test_uses_the_gpu_of_a_machine_that_has_one(self):
        # The demo runs only until the job begins: CUDA on the host would need minutes for the example's first step.
        demo = subprocess.Popen([str(ROOT / "scripts/demo.sh"), "--steps", "1"], stdout=subprocess.PIPE, text=True,
                                env=dict(self.env, LYNX_BIN=str(programs_with_stand_in(self.home / "bin"))),
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(demo.stdout.close)
        shown = ""
        for line in demo.stdout:
            shown += line
            if "PLANNING" in line or "planning" in line:
                break
        os.killpg(demo.pid, signal.SIGINT)
        demo.stdout.read()
        self.assertNotEqual(demo.wait(timeout=60), 0)
        self.assertIn("training on 1 GPU of this machine: NVIDIA Stand-In\n", shown)
        self.assertRegex(shown, r"node0 +ready +cuda +1 ")
        self.assertEqual(processes(self.home), {})

    def test_says_why_it_does_not_use_a_gpu(self):
        # This machine's own rank process finds no driver that CUDA can use, or has no CUDA.
        demo = subprocess.run([str(ROOT / "scripts/demo.sh"), "--steps", "1"], env=dict(self.env, LYNX_BIN=str(BUILT)),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        self.assertEqual(demo.returncode, 0, demo.stdout + demo.stderr)
        self.assertIn("training on CPU ranks: GPU 0 (NVIDIA Stand-In) cannot be used: ", demo.stdout)
        self.assertIn("SUCCEEDED", demo.stdout)
