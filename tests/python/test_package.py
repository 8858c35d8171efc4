"""Tests the package as people get it: its type stubs, the wheel, and the page docs/python.md."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import lynx
from lynx import _lynx

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
MAKE = ROOT / "python" / "make_wheel.py"
BUILD = pathlib.Path(os.environ.get("LYNX_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "docs")]

from pages import commands_of
from reference import with_reference


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class StubsTest(unittest.TestCase):
    def test_the_stub_has_what_the_extension_has(self):
        stub = ast.parse((ROOT / "python/lynx/_lynx.pyi").read_text())
        named = {node.name: {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                 | {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
                 for node in stub.body if isinstance(node, ast.ClassDef)}
        for name, members in named.items():
            have = {member for member in vars(getattr(_lynx, name)) if not member.startswith("_")}
            self.assertEqual(members - {"__init__"}, have, name)
        functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
        self.assertEqual(functions | set(named) | {"version"}, {name for name in dir(_lynx) if not name.startswith("_")})

    def test_types_are_consistent(self):
        try:
            run("/usr/bin/mypy", "--version")
        except FileNotFoundError:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as cache:
            run("/usr/bin/mypy", "--strict", "--cache-dir", cache, "lynx", cwd=ROOT / "python")
            user = pathlib.Path(cache) / "user.py"
            user.write_text("import lynx\nplan: lynx.Plan = lynx.plan('job.yaml', 'h100')\n"
                            "for update in lynx.Client().watch('x'):\n    name: str = update.job.name\n")
            run("/usr/bin/mypy", "--strict", "--cache-dir", cache, user, env=dict(os.environ, MYPYPATH=str(ROOT / "python")))

    def test_everything_public_is_explained(self):
        for name in lynx.__all__:
            thing = getattr(lynx, name)
            self.assertTrue(inspect.getdoc(thing), name)
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        self.assertTrue(inspect.getdoc(value), f"{name}.{member}")


class WheelTest(unittest.TestCase):
    def test_a_wheel_installs_and_plans(self):
        with tempfile.TemporaryDirectory() as folder:
            made = [pathlib.Path(run("/usr/bin/python3", MAKE, BUILD, "--out", f"{folder}/{i}").strip()) for i in range(2)]
            self.assertEqual(made[0].read_bytes(), made[1].read_bytes())
            target = pathlib.Path(folder) / "site"
            try:
                run("/usr/bin/python3", "-m", "pip", "--version")
                run("/usr/bin/python3", "-m", "pip", "install", "--no-index", "--no-deps", "--target", target, made[0])
            except AssertionError as error:
                if "No module named pip" not in str(error):
                    raise
                with zipfile.ZipFile(made[0]) as wheel:  # unpacks the wheel, which is all that pip does with it
                    wheel.extractall(target)
                (target / "lynx" / "lynx-opt").chmod(0o755)
            code = ("import lynx; print(lynx.__file__); print(lynx.plan(lynx.Job(model='gpt-22b', batch=64), 'h100'));"
                    f"print(lynx.plan(lynx.Job('{ROOT}/examples/gpt-bytes.yaml', recompute='opt')).layout)")
            said = run("/usr/bin/python3", "-c", code, cwd=folder, env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"})
            self.assertTrue(said.startswith(str(target)), said)
            self.assertIn("predicted: step", said)

    def test_a_build_without_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["/usr/bin/python3", str(MAKE), folder], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("python_package", done.stderr)


class PageTest(unittest.TestCase):
    def test_the_reference_is_that_of_the_docstrings(self):
        page = PAGE.read_text()
        self.assertEqual(page, with_reference(page),
                         "PYTHONPATH=build/python /usr/bin/python3 python/reference.py docs/python.md")

    def test_the_commands_run_as_they_stand(self):
        if BUILD != ROOT / "build":
            self.skipTest(f"the commands are about {ROOT / 'build'}, and this build is {BUILD}")
        for commands in commands_of("python.package")["docs/python.md"]:
            said = run("bash", "-euo", "pipefail", "-c", commands, cwd=ROOT, env=dict(os.environ, PATH="/usr/bin:/bin:/usr/sbin:/sbin"))
            if "python_wheel" in commands:
                self.assertEqual(len(list((BUILD / "packages").glob("lynx_planner-*.whl"))), 1, said)
            else:
                self.assertIn("predicted: step", said)

    def test_the_guide_runs_as_it_stands(self):
        guide = PAGE.read_text().partition("<!-- reference")[0]
        blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 3)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "examples").symlink_to(ROOT / "examples")
            code = "\n".join(block for block in blocks if "Client" not in block)  # test_client.py runs those
            run("/usr/bin/python3", "-c", code, cwd=folder)


if __name__ == "__main__":
    unittest.main()
