"""Tests the bundles for machines that have a GPU but not the libraries that Lynx needs. A bundle must be small enough to
copy. The one of sources must have everything that its build needs, and the one of programs what they load."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

from pages import commands_of, lines_of

MOST_BYTES = 60 << 20


BUILT = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build/bin"))


def run(*command, cwd=None, **environment):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=dict(os.environ, **environment), capture_output=True,
                          text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


class GpuBundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lynx-bundle-")))

    def succeed(self, *command, cwd=None, **environment):
        code, text = run(*command, cwd=cwd, **environment)
        self.assertEqual(code, 0, text[-4000:])
        return text

    def test_the_sources_are_small_and_build_without_this_machines_libraries(self):
        _, pack = lines_of(commands_of("scripts.gpu_bundle")["docs/gpu.md"][0])
        bundle = self.folder / "bundle.tar.gz"
        self.assertIn("MiB, of commit ", self.succeed(*(ROOT / pack).as_posix().split(), cwd=self.folder))
        self.assertLess(bundle.stat().st_size, MOST_BYTES)
        self.succeed("tar", "-C", self.folder, "-xzf", bundle)
        tree = self.folder / "lynx-gpu-check"
        prefix = tree / "prefix"
        libraries, = prefix.glob("lib/*-linux-*")
        # If a library needs another library, the bundle must have that one under the needed name. Only the C and C++
        # libraries come from the system.
        for library in libraries.glob("*.so*"):
            for needed in re.findall(r"NEEDED +(\S+)", self.succeed("objdump", "-p", library)):
                if not re.match(r"lib(c|m|stdc\+\+|gcc_s)\.so|ld-linux", needed):
                    self.assertTrue((libraries / needed).exists(), f"{library.name} needs {needed}")
        # CMake looks only into the bundle. The build of lynx_common shows that the bundle has the headers that
        # lynx_common includes.
        build = self.folder / "build"
        self.succeed("cmake", "-S", tree, "-B", build, "-DLYNX_ENGINE_ONLY=ON", "-DLYNX_DEVICE_CHECK=ON", "-DLYNX_CUDA=OFF",
                     f"-DCMAKE_PREFIX_PATH={prefix}", f"-DOPENSSL_ROOT_DIR={prefix}",
                     "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
                     f"-DCMAKE_CXX_COMPILER={shutil.which('c++')}", f"-DCMAKE_MAKE_PROGRAM={shutil.which('make')}",
                     "-DCMAKE_BUILD_TYPE=Debug")
        cache = (build / "CMakeCache.txt").read_text()
        for name in ("absl_DIR", "GTest_DIR", "OpenBLAS_DIR", "nlohmann_json_DIR", "ONEDNN_LIBRARY", "OPENSSL_INCLUDE_DIR",
                     "OPENSSL_CRYPTO_LIBRARY"):
            self.assertRegex(cache, rf"\n{name}:\w+={re.escape(str(prefix))}/", name)
        self.succeed("cmake", "--build", build, "--target", "lynx_common", "-j", "2")

    def test_the_programs_start_up_to_the_driver(self):
        """Packs this build's programs, not those of a build for one kind of GPU, which would take minutes."""
        if not (BUILT / "cuda_engine_device_test").exists():
            self.skipTest("this build has no CUDA")
        pages = commands_of("scripts.gpu_bundle")
        pack, _ = lines_of(pages["docs/gpu.md"][0])
        self.assertEqual(lines_of(pages["docs/measurements/build.md"][0]), [f"time {pack}"])
        self.assertRegex(self.succeed(*(ROOT / pack).as_posix().split(), cwd=self.folder, LYNX_BUILD_DIR=str(BUILT.parent), LYNX_SKIP_BUILD="1"),
                         r"/build-bundle: \d+ MiB, of commit ")
        bundle = self.folder / "build-bundle"
        here = dict(TMPDIR=str(self.folder))
        # Only the C and C++ libraries and NVIDIA's libraries are outside the folder.
        for program in ("cuda_device_test", "cuda_engine_device_test", "lynx-rank-cuda"):
            for line in self.succeed(bundle / "gpu_run.sh", "--find", program, **here).splitlines():
                self.assertRegex(line, r"^lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cublasLt|nccl)\.so\.")
        for kind, programs in (("check", ("rank", "ops", "engine")), ("measure", ("measure", "links"))):
            out = self.folder / kind
            code, text = run(bundle / "gpu_check.sh", kind, out, **here)
            if code == 0:
                continue  # on a GPU
            self.assertEqual(code, 77, text)
            steps = dict(line.split(": ", 1) for line in text.splitlines())
            for step in programs:
                self.assertRegex(steps[step], r"^skipped: .*this machine has no (CUDA device|GPU) \(.", step)

    def test_usage(self):
        code, text = run(ROOT / "scripts/gpu_bundle.sh")
        self.assertEqual(code, 2)
        self.assertIn("usage: scripts/gpu_bundle.sh DIR", text)
