"""Tests what scripts/gpu_check.sh and scripts/gpu_run.sh do on a machine with a GPU, with programs of the test's own: which
step passes, fails, is skipped or is stopped, and which libraries are found. The driver's program nvidia-smi is a stand-in."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONE_GPU = "GPU 0: NVIDIA H100 (UUID: GPU-one)\n"
MAX_RESULT_FILES = 8


class FolderTest(unittest.TestCase):
    """Has a folder as gpu_bundle.sh makes it, whose programs are scripts."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lynx-gpu-check-")))
        self.bundle = self.folder / "bundle"
        for name in ("bundle/bin", "bundle/lib", "bundle/lib-c++", "tools", "home", "tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in ("gpu_check.sh", "gpu_run.sh"):
            shutil.copy(ROOT / "scripts" / name, self.bundle / name)
        self.env = dict(os.environ, PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}", HOME=str(self.folder / "home"),
                        TMPDIR=str(self.folder / "tmp"))
        self.env.pop("LD_LIBRARY_PATH", None)

    def script(self, path, text):
        path = self.folder / path
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_it(self, *command, **environment):
        done = subprocess.run([str(part) for part in command], env=dict(self.env, **environment), capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stdout + done.stderr


class StepsTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.machine(ONE_GPU)
        for program in ("cuda_device_test", "cuda_engine_device_test", "lynx-rank-cuda"):
            self.script(f"bundle/bin/{program}", "echo works: $@")

    def machine(self, gpus):
        self.script("tools/nvidia-smi", f"[ \"$1\" != -L ] || cat <<'TEXT'\n{gpus}TEXT")

    def check(self, kind="check", script=None, **environment):
        """Returns the exit code, and what the summary says of each step."""
        out = self.folder / "out"
        shutil.rmtree(out, True)
        code, text = self.run_it(script or self.bundle / "gpu_check.sh", kind, out, **environment)
        summary = (out / "summary.txt").read_text()
        self.assertEqual(text, summary)
        self.assertLessEqual(len(list(out.iterdir())), MAX_RESULT_FILES)
        return code, dict(line.split(": ", 1) for line in summary.splitlines())

    def words_of(self, step):
        return (self.folder / "out" / f"{step}.txt").read_text()

    def test_all_steps_pass(self):
        code, steps = self.check()
        self.assertEqual(code, 0, steps)
        self.assertEqual(list(steps), ["programs", "rank", "ops", "engine"])
        for said in steps.values():
            self.assertRegex(said, "^passed")
        self.assertEqual(self.words_of("rank"), "works: --check-cuda GPU-one\n")
        self.assertIn("H100", self.words_of("machine"))

    def test_a_step_that_fails_stops_no_other(self):
        self.script("bundle/bin/lynx-rank-cuda", "echo no memory >&2; exit 3")
        self.script("bundle/bin/cuda_device_test", "[ \"$1\" = --gtest_filter=None ] || exec sleep 60")
        code, steps = self.check(LYNX_STEP_SECONDS="1")
        self.assertEqual(code, 1)
        self.assertRegex(steps["rank"], r"failed with exit code 3 after \d+ s; see rank.txt")
        self.assertEqual(self.words_of("rank"), "no memory\n")
        self.assertRegex(steps["ops"], r"timed out after \d+ s; see ops.txt")
        self.assertRegex(steps["engine"], "passed")

    def test_tests_that_find_no_device_on_a_machine_with_a_gpu_fail(self):
        self.script("bundle/bin/cuda_device_test", "echo 'skipped: this machine has no CUDA device (the driver is too old)'; exit 77")
        code, steps = self.check()
        self.assertEqual(code, 1)
        self.assertEqual(steps, {"programs": "failed: skipped: this machine has no CUDA device (the driver is too old); see programs.txt"})
        self.script("bundle/bin/cuda_device_test", "[ $1 = --gtest_filter=None ] || exit 77")
        code, steps = self.check()
        self.assertEqual(code, 1)
        self.assertIn("failed with exit code 77", steps["ops"])
        self.script("bundle/bin/cuda_device_test", "echo 'skipped: this machine has no CUDA device (the driver is too old)'; exit 77")
        self.machine("")
        code, steps = self.check()
        if pathlib.Path("/dev/nvidiactl").exists():
            return
        self.assertEqual(code, 77)
        self.assertEqual(steps["ops"], "skipped: this machine has no CUDA device (the driver is too old)")

    def test_the_parts_of_a_split_gpu_are_used(self):
        self.machine("GPU 0: NVIDIA H100 (UUID: GPU-a)\n  MIG 1g.10gb     Device  0: (UUID: MIG-b)\n"
                     "  MIG 1g.10gb     Device  1: (UUID: MIG-c)\nGPU 1: NVIDIA H100 (UUID: GPU-d)\n")
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.words_of("rank"), "".join(f"works: --check-cuda {uuid}\n" for uuid in ("MIG-b", "MIG-c", "GPU-d")))

    def test_measures_what_is_there(self):
        self.script("bundle/bin/lynx-rank-cuda", "cat $2")
        code, steps = self.check("measure")
        self.assertEqual(code, 0, steps)
        self.assertRegex(self.words_of("measure"), '"device_uuid": "GPU-one"')
        self.assertEqual(steps["links"], "skipped: this machine has one GPU")
        self.assertIn("skipped: there is no program gpu_step_bench", steps["step"])
        self.machine(ONE_GPU + "GPU 1: NVIDIA H100 (UUID: GPU-two)\n")
        self.script("bundle/bin/gpu_step_bench", "echo steps: $@")
        code, steps = self.check("measure")
        self.assertEqual(code, 0, steps)
        self.assertIn('"device_uuids": ["GPU-one","GPU-two"]', self.words_of("links"))
        words = self.words_of("step").split()
        self.assertEqual(words[:2], ["steps:", "--rank-binary"])
        self.assertEqual(pathlib.Path(words[2]), self.bundle / "bin/lynx-rank-cuda")
        self.assertEqual(words[3:], ["--device", "cuda", "--budget", "280", "--json", str(self.folder / "out/step.json")])

    def test_the_reason_of_a_skipped_step_is_its_last_line(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")
        self.machine("")
        self.script("bundle/bin/gpu_step_bench", "echo begins; echo no driver >&2; exit 77")
        self.assertEqual(self.check("measure")[1]["step"], "skipped: no driver")

    def test_without_nccl_another_rank_process_is_used(self):
        program = pathlib.Path(shutil.which("true")).read_bytes().replace(b"libc.so.6", b"libX.so.6")
        (self.bundle / "bin/lynx-rank-cuda").write_bytes(program)
        self.script("bundle/bin/lynx-rank-one-cuda", "echo alone: $@")
        self.machine(ONE_GPU + "GPU 1: NVIDIA H100 (UUID: GPU-two)\n")
        code, steps = self.check("measure")
        self.assertEqual(code, 0, steps)
        self.assertRegex(self.words_of("measure"), "^alone: --measure ")
        self.assertEqual(steps["links"], "skipped: there is no NCCL that can be loaded; see programs.txt")
        self.assertRegex(self.words_of("programs"), "lynx-rank-cuda cannot start on this machine:\nlibX.so.6 => not found")
        (self.bundle / "bin/lynx-rank-one-cuda").unlink()
        code, steps = self.check()
        self.assertEqual(code, 1)
        self.assertRegex(steps["rank"], "failed with exit code 127 ")
        self.assertRegex(steps["engine"], "passed")

    def test_sanitizers_start_the_tests(self):
        self.script("tools/compute-sanitizer", 'echo "checks $@"')
        code, steps = self.check("sanitizers")
        self.assertEqual(code, 0, steps)
        self.assertEqual(list(steps), ["programs", "memcheck", "racecheck", "engine"])
        self.assertRegex(self.words_of("racecheck"), "checks --tool racecheck --error-exitcode 1 .*/bin/cuda_device_test --gtest_filter=-")

    def test_says_which_program_cannot_start(self):
        (self.bundle / "bin" / "cuda_engine_device_test").unlink()
        code, steps = self.check()
        self.assertEqual(code, 1)
        self.assertIn("failed: error: the folder has no program cuda_engine_device_test", steps["programs"])

    def test_programs_that_cannot_start_are_built_from_sources(self):
        (self.bundle / "bin" / "cuda_engine_device_test").unlink()
        tree = self.folder / "lynx-gpu-check/scripts"
        tree.mkdir(parents=True)
        self.script("lynx-gpu-check/scripts/gpu_check.sh", 'echo "builds for $1" >"$2/summary.txt"')
        subprocess.run(["tar", "-C", self.folder, "-czf", self.bundle / "sources.tar.gz", tree.parent.name], check=True)
        self.script("tools/nvcc", "echo release 13.0")
        out = self.folder / "out"
        code, _ = self.run_it(self.bundle / "gpu_check.sh", "measure", out)
        self.assertEqual(code, 0)
        self.assertEqual((out / "summary.txt").read_text(), "builds for measure\n")
        self.assertIn("no program cuda_engine_device_test", self.words_of("bundle"))

    def test_builds_where_there_is_no_folder_of_programs(self):
        (self.folder / "tree/scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/gpu_check.sh", self.folder / "tree/scripts")
        shutil.move(self.bundle / "bin", self.folder / "tree/build-gpu/bin")
        self.script("tools/cmake", 'echo cmake "$@"')
        self.script("tools/compute-sanitizer", 'echo "checks $@"')
        script = self.folder / "tree/scripts/gpu_check.sh"
        code, steps = self.check(script=script)
        self.assertEqual(code, 0, steps)
        self.assertEqual(list(steps), ["programs", "rank", "ops", "engine"])
        self.assertRegex(self.words_of("programs"), "(?s)cmake -B build-gpu .*-DCMAKE_CUDA_ARCHITECTURES=native.*--target gpu_check_programs")
        code, steps = self.check("sanitizers", script=script)
        self.assertEqual(code, 0, steps)
        self.assertRegex(self.words_of("memcheck"), "checks --tool memcheck --error-exitcode 1 build-gpu/bin/cuda_device_test")
        self.script("tools/cmake", "echo there is no compiler; exit 1")
        code, steps = self.check(script=script)
        self.assertEqual(code, 1)
        self.assertEqual(list(steps), ["programs"])
        self.assertRegex(steps["programs"], "failed with exit code 1 ")

    def test_usage(self):
        for arguments in ((), ("check",), ("all", "out")):
            code, text = self.run_it(ROOT / "scripts/gpu_check.sh", *arguments)
            self.assertEqual(code, 2)
            self.assertIn("usage: gpu_check.sh check OUT_DIR", text)


class LibrariesTest(FolderTest):
    def setUp(self):
        super().setUp()
        compiler = shutil.which("cc") or self.skipTest("there is no C compiler on this machine")
        (self.folder / "library.c").write_text('const char* said(void) { return "found"; }\n')
        (self.folder / "program.c").write_text('#include <stdio.h>\nconst char* said(void);\nint main(void) { return puts(said()) < 0; }\n')
        self.library = self.folder / "liblynxmissing.so.7"
        subprocess.run([compiler, "-shared", "-fPIC", f"-Wl,-soname,{self.library.name}", "-o", self.library,
                        self.folder / "library.c"], check=True)
        subprocess.run([compiler, "-o", self.bundle / "bin" / "program", self.folder / "program.c", self.library], check=True)

    def start(self):
        return self.run_it(self.bundle / "gpu_run.sh", "program")

    def test_a_missing_library_is_named(self):
        code, text = self.start()
        self.assertEqual(code, 127)
        self.assertIn("error: program cannot start on this machine:\nliblynxmissing.so.7 => not found\nLooked in: ", text)
        self.assertRegex(text, "Looked in: .*/usr/lib/x86_64-linux-gnu")

    def test_libraries_are_found_in_packages_of_python(self):
        place = self.folder / "home/.local/lib/python3.9/site-packages/nvidia/missing/lib"
        place.mkdir(parents=True)
        self.library.rename(place / self.library.name)
        self.assertEqual(self.start(), (0, "found\n"))
        code, text = self.run_it(self.bundle / "gpu_run.sh", "--find", "program")
        self.assertEqual(code, 0)
        self.assertIn(f"liblynxmissing.so.7 => {place / self.library.name}\n", text)

    def test_programs_are_unpacked_once(self):
        self.library.rename(self.bundle / "lib" / self.library.name)
        subprocess.run(["tar", "-C", self.bundle, "-czf", self.bundle / "programs.tar.gz", "bin", "lib", "lib-c++"], check=True)
        shutil.rmtree(self.bundle / "bin")
        shutil.rmtree(self.bundle / "lib")
        self.assertEqual(self.start(), (0, "found\n"))
        unpacked, = self.folder.glob("tmp/*/bin/program")
        before = unpacked.stat().st_mtime_ns, unpacked.stat().st_ino
        self.assertEqual(self.start(), (0, "found\n"))
        self.assertEqual((unpacked.stat().st_mtime_ns, unpacked.stat().st_ino), before)

    def test_usage(self):
        code, text = self.run_it(ROOT / "scripts/gpu_run.sh")
        self.assertEqual(code, 2)
        self.assertIn("usage: gpu_run.sh PROGRAM", text)
