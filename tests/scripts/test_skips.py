"""Tests that scripts/test.sh reports every skipped test with its reason. It runs here on small tests that skip in every
possible way."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import skips

PRESETS = """{"version": 6,
 "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}"""
# With this path CMake need not look for Python.
BUILD = f"#!/bin/sh\ncmake --preset release -DPython3_EXECUTABLE={sys.executable} >build.log 2>&1 || {{ cat build.log; exit 1; }}\n"
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(tiny NONE)
enable_testing()
include(tests/python_test.cmake)
"""
# The output of GoogleTest 1.12, and what gtest_discover_tests() tells CTest about it.
GOOGLE_TEST = """add_test(NAME Wires.Loopback COMMAND cat ${CMAKE_SOURCE_DIR}/google.txt)
set_tests_properties(Wires.Loopback PROPERTIES SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]")
"""
GOOGLE_SAID = """[ RUN      ] Wires.Loopback
/a/wires_test.cc:384: Skipped
this machine has no IPv6 loopback:
not there
[  SKIPPED ] Wires.Loopback (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Wires.Loopback
"""
PARTS = '''import unittest

class Parts(unittest.TestCase):
    def test_runs(self):
        print("much " * 10000)

    @unittest.skipIf(True, "no promtool is installed")
    def test_with_a_text(self):
        """It has a text of its own."""

    def test_half(self):
        with self.subTest(half=1):
            self.skipTest("half of it\\nis missing")

class Prepared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("nothing to prepare")

    def test_runs(self):
        pass
'''
PARTS_TOLD = ["parts: test_parts.Parts.test_half (half=1): half of it is missing", "parts: test_parts.Parts.test_with_a_text: no promtool is installed",
              "parts: setUpClass (test_parts.Prepared): nothing to prepare"]
WHOLE = '''import unittest

@unittest.skipIf(True, "this is not root")
class Whole(unittest.TestCase):
    def test_first(self):
        pass
'''
SCRIPT = '''import pathlib, sys, unittest
sys.path.append(str(pathlib.Path(__file__).resolve().parent / "tests"))
import program

class Alone(unittest.TestCase):
    def test_alone(self):
        self.skipTest("it is alone")

program.main()
'''


KILLED = '''import os, signal, unittest

class Killed(unittest.TestCase):
    def test_1_fails(self):
        self.assertEqual(1, 2, "the first has failed")

    def test_2_errs(self):
        raise ValueError("the second is wrong")

    def test_3_fails_and_errs_in_parts(self):
        with self.subTest(part=1):
            self.assertEqual(3, 4, "a part has failed")
        with self.subTest(part=2):
            raise ValueError("a part is wrong")

    def test_4_is_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)
'''


class SkipsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="lynx-skips-")
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        for name in ("scripts/test.sh", "scripts/skips.py", "scripts/skips_allowed.txt", "tests/program.py", "tests/python_test.cmake"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self.write("scripts/install.sh", "#!/bin/sh\n")
        self.write("scripts/build.sh", BUILD)
        self.write("CMakePresets.json", PRESETS)
        self.write("google.txt", GOOGLE_SAID)
        self.write("test_parts.py", PARTS)
        self.write("test_whole.py", WHOLE)
        self.write("alone.py", SCRIPT)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run_tests(self, cmake, *arguments, **environment):
        """Runs scripts/test.sh in a tree whose CMakeLists.txt ends with the text `cmake`, which adds the tests."""
        self.write("CMakeLists.txt", CMAKE + cmake)
        env = {name: value for name, value in os.environ.items() if name != "LYNX_REQUIRE_ALL"}
        return subprocess.run([str(self.folder / "scripts/test.sh"), *arguments], env=dict(env, **environment), capture_output=True, text=True,
                              timeout=300, stdin=subprocess.DEVNULL)

    def run_program(self, *names):
        return subprocess.run([sys.executable, ROOT / "tests/program.py", *names], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, stdin=subprocess.DEVNULL)

    def test_each_failure_is_told_once_even_if_the_program_is_killed_later(self):
        self.write("test_killed.py", KILLED)
        failing = ("test_1_fails", "test_2_errs", "test_3_fails_and_errs_in_parts")
        for names, code in ((["test_killed"], -signal.SIGKILL), ([f"test_killed.Killed.{name}" for name in failing], 1)):
            done = self.run_program(*names)
            self.assertEqual(done.returncode, code, done.stderr)
            for words in ("1 != 2 : the first has failed", "ValueError: the second is wrong", "3 != 4 : a part has failed",
                          "ValueError: a part is wrong"):
                self.assertEqual(done.stderr.count(words), 1, f"{words}\n{done.stderr}")

    def told(self, done):
        summary, _, rest = done.stdout.partition("\nskipped here, and why:\n")
        self.assertIn("% tests passed", summary, done.stdout + done.stderr)
        return [line.removeprefix("  ") for line in rest.splitlines()]

    def test_every_way_to_skip_is_told_with_its_reason(self):
        done = self.run_tests(GOOGLE_TEST + """
lynx_python_test(parts MODULE test_parts)
lynx_python_test(whole MODULE test_whole)
lynx_python_test(script SCRIPT alone.py)
add_test(NAME says COMMAND sh -c "echo skipped: there is no device; exit 77")
add_test(NAME silent COMMAND sh -c "exit 77")
set_tests_properties(says silent PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME off COMMAND true)
set_tests_properties(off PROPERTIES DISABLED TRUE)
add_test(NAME passes COMMAND echo "nothing is skipped: all is well")
""")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.told(done), [
            "Wires.Loopback: this machine has no IPv6 loopback: not there", *PARTS_TOLD,
            "whole: test_whole.Whole.test_first: this is not root", "script: Alone.test_alone: it is alone",
            "says: there is no device", "silent: no reason is given", "off: it is disabled"])
        # CTest counts a test as skipped only if every part of it was skipped. So "parts" is not in this list.
        self.assertEqual(sorted(re.findall(r"- (\S+) \(Skipped\)", done.stdout)), ["Wires.Loopback", "says", "script", "silent", "whole"])

    def test_ctest_decides_how_it_ends(self):
        failing = 'lynx_python_test(parts MODULE test_parts)\nadd_test(NAME fails COMMAND false)\n'
        for environment in ({}, {"LYNX_REQUIRE_ALL": "1"}):
            done = self.run_tests(failing, **environment)
            self.assertEqual((done.returncode, self.told(done)), (8, PARTS_TOLD), done.stdout + done.stderr)
        done = self.run_tests(failing, "-R", "parts")
        self.assertEqual((done.returncode, self.told(done)), (0, PARTS_TOLD), "arguments are CTest's")
        (self.folder / "bin").mkdir()
        self.write("bin/ctest", "#!/bin/sh\nexit 3\n")
        done = self.run_tests(failing, PATH=f"{self.folder}/bin:{os.environ['PATH']}")
        self.assertEqual((done.returncode, done.stdout + done.stderr), (3, ""), "nothing of an earlier run")
        done = self.run_tests("add_test(NAME passes COMMAND true)\n", LYNX_REQUIRE_ALL="1")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "nothing was skipped"), done.stderr)

    def test_all_can_be_asked_for(self):
        self.write("scripts/skips_allowed.txt", "# a device\nsays: there is no d*\n")
        allowed = 'add_test(NAME says COMMAND sh -c "echo skipped: there is no device; exit 77")\nset_tests_properties(says PROPERTIES SKIP_RETURN_CODE 77)\n'
        done = self.run_tests(allowed, LYNX_REQUIRE_ALL="1")
        self.assertEqual((done.returncode, self.told(done)), (0, ["says: there is no device"]), done.stderr)
        done = self.run_tests(allowed + "lynx_python_test(parts MODULE test_parts)\n", LYNX_REQUIRE_ALL="1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("% tests passed", done.stdout)
        self.assertEqual([line.strip() for line in done.stderr.splitlines()[1:]], PARTS_TOLD, done.stderr)

    def test_a_program_that_fails_or_has_no_tests_is_not_skipped(self):
        self.write("test_fails.py", PARTS + "\n    def test_fails(self):\n        self.fail()\n".replace("    def", "class Fails(unittest.TestCase):\n    def"))
        self.write("test_none.py", "")
        done = self.run_tests("lynx_python_test(fails MODULE test_fails)\nlynx_python_test(none MODULE test_none)\n")
        self.assertEqual(done.returncode, 8, done.stdout)
        self.assertEqual(re.findall(r"- (\S+) \(Failed\)", done.stdout), ["fails", "none"])

    def test_no_test_in_python_is_made_otherwise(self):
        found = 0
        for path in (ROOT / "tests").rglob("CMakeLists.txt"):
            text = path.read_text()
            self.assertNotIn("-m unittest", text, path)
            for script in re.findall(r"lynx_python_test\(\S+ SCRIPT (\S+)", text):
                found += 1
                self.assertRegex((path.parent / script).read_text(), r"\n    (run_tests|checks\.main|main)\(\)\n$", f"{script} tells of skips by program.py")
        self.assertGreater(found, 5)

    def test_what_is_allowed_says_which_test(self):
        self.assertGreater(len(skips.allowed()), 0)
        for line in skips.allowed():
            self.assertRegex(line, r"^[\w.*]+: .{10}", "a name, and a reason, or all its skips would be allowed")


if __name__ == "__main__":
    unittest.main()
