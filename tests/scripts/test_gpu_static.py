"""Tests the tables of what the compiler says about GPU kernels, and of the instructions of their loops: with a stand-in for nvcc and a cubin
made here, and with nvcc where there is one."""

import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/gpu_static.sh"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")

# The output of nvcc 13.0 for two kernels: the code and the messages. The second kernel spills registers.
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

LOOPS_HEAD = ["| kernel | products | instructions | per product | with dropout | per product |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
ALWAYS = 7
# A kernel that nvcc compiles to a loop with three products.
THREE_PRODUCTS = """__global__ void Three(float* sums, unsigned* words, int count) {
  float c[4] = {};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(words[6 * i + 2 * k]), "r"(words[6 * i + 2 * k + 1]));
    }
  }
  sums[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}
"""


def instruction(kind, high=0):
    return kind | ALWAYS << 12 | high << 32


def branch(at, target, predicate):
    words = 4 * (target - at - 1)
    return 0x947 | predicate << 12 | (words & 0xFF) << 16 | (words >> 8 & (1 << 48) - 1) << 34 | ALWAYS << 87


def cubin(name, code, arch=90):
    """Returns an ELF file with one kernel."""
    names = b"\0.text." + name.encode() + b"\0"
    text = b"".join(word.to_bytes(16, "little") for word in code)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64 + len(names) + len(text), 0x6000005 | arch << 8, 64, 0, 0, 64, 2, 0)
    sections = [(0, 3, 0, 0, 64, len(names)), (1, 1, 0, 0, 64 + len(names), len(text))]
    return head + names + text + b"".join(struct.pack("<IIQQQQIIQQ", *section, 0, 0, 1, 0) for section in sections)


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


class GpuLoopsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lynx-loops-")))

    def run_on(self, contents):
        path = self.folder / "kernels.cubin"
        path.write_bytes(contents)
        return subprocess.run([str(ROOT / "scripts/gpu_loops.py"), str(path)], capture_output=True, text=True, timeout=60)

    def test_counts_the_path_with_most_products_and_fewest_instructions(self):
        done = self.run_on(cubin("_Z5LoopsILi64EEvv", [
            instruction(0x824),  # before the loop
            instruction(0x23C),  # a product
            branch(2, 5, 0), instruction(0x824), instruction(0x824),  # scores are hidden
            branch(5, 8, 1), instruction(0xF89), instruction(0x825, 0xD2511F53),  # dropout
            branch(8, 10, 2), instruction(0x308),  # MUFU computes a power of two here, and every path through the loop has one
            branch(10, 1, 3), instruction(0x94D)]))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [*LOOPS_HEAD, "| Loops<64> | 1 | 6 | 6.0 | 8 | 8.0 |"])

    def test_only_sm_90_is_known(self):
        for contents in (cubin("_Z5Loopsv", [instruction(0x94D)], arch=80), b"text" * 20):
            done = self.run_on(contents)
            self.assertEqual((done.returncode, done.stdout), (1, "\n".join(LOOPS_HEAD) + "\n"))
            self.assertIn("kernels.cubin is not a cubin for sm_90", done.stderr)

    @unittest.skipUnless(NVCC, "there is no nvcc on this machine")
    def test_with_the_compiler(self):
        source = self.folder / "three.cu"
        source.write_text(THREE_PRODUCTS)
        compiled = self.folder / "three.cubin"
        subprocess.run([NVCC, "-arch=sm_90", "-cubin", "-o", str(compiled), str(source)], check=True, timeout=240)
        done = self.run_on(compiled.read_bytes())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.splitlines()[2], r"^\| Three \| 3 \| [1-9]\d* \|")


if __name__ == "__main__":
    unittest.main()
