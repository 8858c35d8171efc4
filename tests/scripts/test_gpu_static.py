"""Tests the table of what the compiler says about GPU kernels: with a stand-in for nvcc, and with nvcc where there is one."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/gpu_static.sh"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")

# What nvcc 13.0 keeps and says of two kernels. The second one spills.
PTX = """//
.version 9.0
.target sm_80
.visible .entry _ZN4lynx6worker4cuda12_GLOBAL__N_15SmallIfLi64EEEvPfi(
\t.param .u64 .ptr .align 1 first,
\t.param .u32 second
)
.maxntid 128
{
\t.reg .b32 \t%r<7>;

\tld.param.b64 \t%rd1, [first];
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2};
\tret;

}
.visible .entry _Z5Spillv()
{
\tret;
}
"""
SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5Spillv' for 'sm_80'
ptxas info    : Function properties for _Z5Spillv
    48 bytes stack frame, 32 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size
ptxas info    : Compiling entry function '_ZN4lynx6worker4cuda12_GLOBAL__N_15SmallIfLi64EEEvPfi' for 'sm_80'
ptxas info    : Function properties for _ZN4lynx6worker4cuda12_GLOBAL__N_15SmallIfLi64EEEvPfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 27648 bytes smem, 400 bytes cmem[0]
"""
STAND_IN = """#!/bin/sh
for argument; do
  [ "$before" != --keep-dir ] || cp FOLDER/kernels.ptx "$argument/"
  before=$argument
done
cat FOLDER/said >&2
"""
HEAD = ["| kernel | arch | registers | spills (bytes) | shared memory (bytes) | PTX instructions |", "| --- | --- | ---: | ---: | ---: | ---: |"]


def run(*arguments, **environment):
    return subprocess.run([str(SCRIPT), *map(str, arguments)], env=dict(os.environ, **environment), capture_output=True, text=True, timeout=240)


class GpuStaticTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lynx-static-")))

    def stand_in(self, text):
        path = self.folder / "nvcc"
        path.write_text(text.replace("FOLDER", str(self.folder)))
        path.chmod(0o755)
        return str(path)

    def test_the_table_has_what_the_compiler_says(self):
        (self.folder / "kernels.ptx").write_text(PTX)
        (self.folder / "said").write_text(SAID)
        (self.folder / "some.cu").write_text("")
        done = run(self.folder / "some.cu", NVCC=self.stand_in(STAND_IN), LYNX_ARCHITECTURES="80")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [*HEAD, "| Small<float, 64> | sm_80 | 40 | 0 | 27648 | 4 |", "| Spill | sm_80 | 255 | 72 | 0 | 1 |"])

    def test_an_error_of_the_compiler_is_shown(self):
        done = run(ROOT / "worker/backend/cuda/loss.cu", NVCC=self.stand_in("#!/bin/sh\necho 'loss.cu: no such thing'\nexit 2\n"))
        self.assertEqual((done.returncode, done.stderr), (1, "loss.cu: no such thing\n"))

    def test_usage(self):
        self.assertIn("usage: scripts/gpu_static.sh [FILE.cu...]", run("--help").stdout)
        self.assertEqual(run("--colour").returncode, 2)
        missing = run("nothing.cu")
        self.assertEqual((missing.returncode, missing.stderr), (2, "gpu_static.sh: there is no file nothing.cu\n"))
        self.assertEqual(run(NVCC="/nowhere/nvcc").returncode, 77)

    @unittest.skipUnless(NVCC, "there is no nvcc on this machine")
    def test_with_the_compiler(self):
        done = run(ROOT / "worker/backend/cuda/conversion.cu", NVCC=NVCC, LYNX_ARCHITECTURES="80")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, rows = done.stdout.splitlines()[:2], done.stdout.splitlines()[2:]
        self.assertEqual(head, HEAD)
        self.assertGreater(len(rows), 0)
        for row in rows:
            self.assertRegex(row, r"^\| [\w<][^|]* \| sm_80 \| [1-9]\d* \| \d+ \| \d+ \| [1-9]\d* \|$")


if __name__ == "__main__":
    unittest.main()
