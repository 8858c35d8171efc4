"""Runs the commands of docs/measurements in a tiny form, to test that every record can be made again: the programs that a
page names must exist, run to their end and print the figures of the record. The values of the figures do not matter here.

A block of commands in a record names the test that runs it: ```sh by="bench.smoke.NAME"; the test has a Tiny for each
of its blocks, in the same order. It is an error if a block has no Tiny, if a Tiny leaves a command as it is, or if the
page lacks a text that a Tiny replaces."""

import dataclasses
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / name) for name in ("docs", "e2e")]

from cluster import BIN, kill, processes
from pages import lines_of

PATIENCE = 240  # seconds for a block
NOT_HERE = 77  # the exit code of a program that the machine cannot run; the program says why
NAMED = ("bench", "scripts", "examples", "tests")  # folders whose files the commands name
PROGRAM = re.compile(r"(build/bin|bench|scripts)/")
# The command with which a page builds programs. For this test everything must be built already, or the test fails.
BUILDS = re.compile(r"^cmake --preset release && ninja -C build (.+)$", re.MULTILINE)


@dataclasses.dataclass
class Tiny:
    """The tiny form of a block of commands."""
    smaller: dict[str, str]  # text of the page -> smaller text that replaces it
    prints: typing.Sequence  # patterns that the output must contain; (pattern, n): at least n times
    never: typing.Sequence[str] = ()  # patterns that the output must not contain
    prepare: typing.Callable[[pathlib.Path], None] = lambda folder: None  # puts the files that the commands need into the folder
    after: str = ""  # if the record was made from a file: commands that print this file


def tiny_form(text, smaller):
    """The block in its tiny form. ValueError: the block and the Tiny do not fit together."""
    form = text
    for shown, instead in smaller.items():
        if shown not in form:
            raise ValueError(f"the commands have no '{shown}', which was to be smaller:\n{text}")
        form = form.replace(shown, instead)
    form = BUILDS.sub(r"(cd build/bin && ls \1)", form)
    left = [line for line in lines_of(text) if PROGRAM.search(line) and line in lines_of(form)]
    if left:
        raise ValueError("there is no tiny form of\n" + "\n".join(left))
    return form


def run_tiny_forms(test, commands, forms):
    """`test`: a unittest.TestCase. `commands`: page -> its blocks (commands_of). `forms`: page -> their Tinies."""
    test.assertEqual({page: len(blocks) for page, blocks in commands.items()}, {page: len(tinies) for page, tinies in forms.items()},
                     "blocks of commands that name this test, and their tiny forms here")
    ran = []
    for page, blocks in commands.items():
        for number, (block, tiny) in enumerate(zip(blocks, forms[page])):
            if (block, tiny) in ran:
                continue  # a page may mention the same commands again
            ran.append((block, tiny))
            with test.subTest(page, block=number):
                run_block(test, f"{page}, block {number}", block, tiny)


def run_block(test, name, block, tiny):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-bench-smoke-"))
    test.addCleanup(shutil.rmtree, folder, True)
    for folder_name in NAMED:
        (folder / folder_name).symlink_to(ROOT / folder_name)
    (folder / "build").mkdir()
    (folder / "build" / "bin").symlink_to(BIN)
    tiny.prepare(folder)
    text = "\n".join(["set -euo pipefail", tiny_form(block, tiny.smaller), tiny.after])
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    code, said = run(text, folder)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {time.monotonic() - begin:.1f} s, {cpu:.1f} s of processor time in processes that were waited for", flush=True)
    if code == NOT_HERE:
        test.skipTest(f"{name}: {said.strip()}")
    told = f"{name}:\n{text}\n--- exit {code}\n{said}"
    test.assertEqual(code, 0, told)
    wanted = [one if isinstance(one, tuple) else (one, 1) for one in tiny.prints]
    missing = [pattern for pattern, times in wanted if len(re.findall(pattern, said, re.MULTILINE)) < times]
    test.assertEqual(missing, [], f"is not printed by {told}")
    unwanted = [pattern for pattern in tiny.never if re.search(pattern, said, re.MULTILINE)]
    test.assertEqual(unwanted, [], f"is printed by {told}")


def run(text, folder):
    """The exit code and the whole output of the commands and of the processes that they leave running."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LYNX_") or name == "LYNX_BIN"}
    env.update(LYNX_BIN=str(BIN), LYNX_HOME=str(folder / "home"), XDG_CONFIG_HOME=str(folder / "config"), PATH=f"{BIN}:{env['PATH']}", NO_COLOR="1")
    shell = subprocess.Popen(["bash", "-c", text], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said, _ = shell.communicate(timeout=PATIENCE)
        return shell.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        said, _ = shell.communicate()
        return f"none: not done within {PATIENCE} s", said
    finally:
        if (folder / "home" / "local").exists():
            subprocess.run([str(BIN / "lynxctl"), "local", "down"], env=env, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        kill(processes(folder))


def rows(*names):
    """Patterns for rows of a Markdown table that begin with these names."""
    return tuple(rf"^\| {re.escape(name)} +\| *[^ |]" for name in names)
