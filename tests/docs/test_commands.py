"""Runs every command of the pages with real programs, in order, with a new folder for each page. Commands that another
test runs, or that cannot be run here, are only checked: their program exists and has the verb and the options. pages.py
says how a page marks them.

A page's folder has the source tree's examples, docs, scripts and the like, and the programs as build/bin and on the
PATH. Its cluster is this test's local cluster of two nodes with two CPU ranks each, or one that the page starts itself
with 'lynxctl local up'. examples/gpt-bytes.yaml is smaller there than the original, which trains for minutes.
$LYNX_DOCS_PAGE names a single page to run."""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from cluster import BIN, kill, processes
from pages import ROOT, blocks_of, difference, lines_of, name_of, page_files, prose_of

PATIENCE = 600  # seconds for a page
COPIED = ("examples", "docs", "scripts", "tests/validation", "dashboards", "deploy")
SMALLER = {"layers: 8": "layers: 4", "hidden: 256": "hidden: 32", "heads: 8": "heads: 4", "seq: 128": "seq: 32", "steps: 100": "steps: 12"}
# Texts that a reader must fill in, and commands that take too long: page -> text -> what the test types instead.
INSTEAD = {
    "docs/promises.md": {"lynx_sim 1 100000": "lynx_sim 1 300"},
    # The page clones and builds Lynx. The test builds in ROOT instead, where everything is built already. If LYNX_BIN names
    # other programs, it builds nothing.
    "docs/quickstart.md": {"git clone URL lynx && cd lynx": f"git clone -q {shlex.quote(str(ROOT))} lynx && test -x lynx/scripts/build.sh && pushd {shlex.quote(str(ROOT))}",
                           "lynx-worker lynx-rank": "lynx-worker lynx-rank; popd"} | ({} if BIN == ROOT / "build/bin" else {"scripts/build.sh lynxctl": ": lynxctl"}),
}
# Command that keeps running -> what it prints when it is ready. The test then stops it.
STAY = {"../scripts/dashboards.py": "Prometheus has the cluster's metrics", "lynx-agent --network-domain row2/rack7": "attached to the server",
        "lynxctl studio": "the studio is at", "lynxctl studio -f examples/gpt-22b.yaml --cluster examples/clusters/h100.yaml": "the studio is at"}
STAYS = """stays() {
  said=$1; shift
  "$@" >stays.log 2>&1 & stays=$!
  until grep -q "$said" stays.log; do kill -0 $stays || { cat stays.log; return 1; }; sleep 0.1; done
  kill $stays; wait $stays || true
}"""
STAND_INS = ROOT / "tests/docs/stand_ins"
# Arguments that the test adds to lynx-agent: its server and its folder.
AGENT = "--server $(cat $LYNX_HOME/local/server/server.address) --node by-hand --data-dir by-hand"
# Programs of other projects, whose options are not checked.
FOREIGN = {"cd", "export", "echo", "cat", "rm", "cp", "chmod", "chown", "cut", "tar", "kubectl", "cmake", "ctest", "ninja", "python3", "setsid",
           "bash", "kill", "sleep", "apt-get", "systemctl", "journalctl", "sbatch", "scancel", "git", "sudo", "install", "df", "sqlite3",
           "tensorboard", "ssh", "docker", "podman", "dpkg", "useradd", "grep", "umask", "promtool", "nvcc", "createuser", "createdb",
           "pg_dump", "pg_restore", "pg_basebackup", "psql"}
KEYWORDS = {"in", "do", "done", "then", "fi", "if", "while", "until", "!"}


def pages():
    """name -> blocks of commands, for each page that has any."""
    found = {}
    for path in page_files():
        commands = [block for block in blocks_of(name_of(path), path.read_text())[0] if block.language == "sh"]
        if commands:
            found[name_of(path)] = commands
    return found


def simple_commands(text):
    """The words of each command in a shell text. Leaves out assignments before it, comments, here-documents, and words
    that only join commands."""
    text = re.sub(r"<<'?(\w+)'?([^\n]*)\n.*?\n\1$", r"\2", text, flags=re.MULTILINE | re.DOTALL)
    words = shlex.shlex(text.replace("\\\n", " ").replace("\n", "\n; "), posix=True, punctuation_chars=";|&()<>")
    words.whitespace_split, words.commenters = True, "#"
    command, commands, passed, loop = [], [], False, False
    for word in [*words, ";"]:
        if re.fullmatch(r"[;|&()]+", word):
            commands.append(command)
            command, loop = [], False
        elif re.fullmatch(r"[<>&]+", word):
            passed = True
        elif passed:
            passed = False
        elif loop or word == "for" and not command:
            loop = True  # the loop's variable and its values are not commands
        elif command or not (re.match(r"\w+=", word) or word in KEYWORDS):
            command.append(word)
    return [command for command in commands if command]


def typed(page, text):
    """The text of a block as the test runs it: with the texts of INSTEAD, and with `stays` before commands that keep running."""
    for shown, instead in INSTEAD.get(page, {}).items():
        text = text.replace(shown, instead)
    for line in lines_of(text):
        if line in STAY:
            command = f"{line} {AGENT}" if line.startswith("lynx-agent") else line
            text = text.replace(line, f"stays {shlex.quote(STAY[line])} {command}")
    return text


def bring_tokens(folder):
    """Writes a vocabulary of bytes and one word, in the form of GPT-2's files, and a text into the folder."""
    spec = importlib.util.spec_from_file_location("stand_in", STAND_INS / "tokenizers.py")
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    merges = ["t h", "th e"]
    tokens = [*stand_in.symbols_of_bytes().values(), *(merge.replace(" ", "") for merge in merges)]
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    (folder / "corpus.txt").write_text("the cat\nthe hat\n")


# Files that a page expects its reader to have: page -> the function that puts them into the page's folder.
BROUGHT = {"docs/data.md": bring_tokens}


class Surface:
    """What programs accept, according to their own output and the sources."""

    def __init__(self):
        reference = subprocess.run([str(BIN / "lynxctl"), "reference"], capture_output=True, text=True, check=True).stdout
        sections = re.split(r"^## ", reference, flags=re.MULTILINE)
        self.common = self.options(sections[1])
        self.verbs = {}
        for section in sections[2:]:
            title, _, body = section.partition("\n")
            self.verbs[tuple(title.split()[1:])] = self.options(body)
        self.targets = "\n".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt")])

    @staticmethod
    def options(text):
        return set(re.findall(r"(?<![\w-])(-{1,2}[a-zA-Z][\w-]*)", "\n".join(line for line in text.splitlines() if line.startswith("| `-"))))

    def objection(self, command):
        """Why this command cannot be correct, or None."""
        program, arguments = command[0], command[1:]
        name = re.sub(r"^(\.\./)?(build(-tsan)?/bin/)?", "", program)
        name = re.sub(r"^build-bundle/", "scripts/", name)  # scripts/gpu_bundle.sh copies scripts there
        if name == "lynxctl":
            return self.objection_to_verb(arguments)
        if name.startswith("lynx-") and (BIN / name).exists():
            said = subprocess.run([str(BIN / name), "--help"], capture_output=True, text=True).stdout
            return self.unknown(name, arguments, set(re.findall(r"^  (--[\w-]+)", said, re.MULTILINE)) | {"--help", "--version"})
        if re.match(r"(scripts|bench|tests)/", name) or (ROOT / name).is_file():
            if not (ROOT / name).is_file():
                return f"there is no {name}"
            return self.unknown(name, arguments, set(re.findall(r"--[a-z][\w-]*", (ROOT / name).read_text())))
        if name in FOREIGN or name == "NAME":
            return None
        if re.search(rf"\b{re.escape(name)}\b", self.targets):
            return None
        return f"'{program}' is neither a program of this project nor one that this test knows"

    def objection_to_verb(self, arguments):
        words = [word for word in arguments if not word.startswith("-")]
        if not words:
            return self.unknown("lynxctl", arguments, self.common)
        # An option's value may come before the verb: lynxctl --context FILE context add.
        for start in range(len(words)):
            for length in (3, 2, 1):
                verb = tuple(words[start:start + length])
                if len(verb) == length and verb in self.verbs:
                    return self.unknown("lynxctl " + " ".join(verb), arguments, self.verbs[verb] | self.common)
        return f"lynxctl has no verb in '{' '.join(arguments)}'"

    @staticmethod
    def unknown(name, arguments, known):
        options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)]
        return next((f"{name} has no option {option}" for option in options if option not in known), None)


class LookedAtTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.surface = Surface()

    def test_programs_and_options_exist(self):
        bad, looked_at = [], 0
        for blocks in pages().values():
            for block in blocks:
                for command in simple_commands(block.text) if block.norun or block.by else []:
                    looked_at += 1
                    if objection := self.surface.objection(command):
                        bad.append(f"{block.where}: {objection}")
        self.assertEqual(bad, [], "\n" + "\n".join(bad))
        print(f"{looked_at} commands are looked at and not run here")

    def test_commands_between_words_exist(self):
        bad, found = [], 0
        for path in page_files():
            # Records and decisions describe the past.
            if path.parent.name in ("measurements", "decisions"):
                continue
            for text in re.findall(r"`((?:lynxctl|lynx-server|lynx-agent|lynx-worker) [^`]+)`", prose_of(path.read_text())):
                # Alternatives, as in 'context add|use', are not pipes, and a text that a reader must fill in is not a
                # word of the shell.
                for command in simple_commands(re.sub(r"\|\w+|[()<>']|\.\.\.", "", text.replace("\n", " "))):
                    found += 1
                    if objection := self.surface.objection(command):
                        bad.append(f"{name_of(path)}: `{text}`: {objection}")
        self.assertEqual(bad, [], "\n" + "\n".join(bad))
        self.assertGreater(found, 80)

    def test_what_does_not_exist_is_found(self):
        for text, expected in (("lynxctl dance", "no verb"), ("lynxctl submit --fast", "no option --fast"), ("lynx-server --fast", "no option --fast"),
                               ("scripts/none.sh", "there is no"), ("scripts/demo.sh --fast", "no option --fast"), ("frobnicate", "neither"),
                               ("build/bin/lynx_none 1", "neither"), ("true | lynxctl list --fast", "no option --fast")):
            objections = [self.surface.objection(command) for command in simple_commands(text) if command != ["true"]]
            self.assertEqual(len(objections), 1, text)
            self.assertIn(expected, objections[0] or "")
        for text in ("LYNX_HOME=x lynxctl --context a.json context add NAME  # `lynxctl --no",
                     "cat >a.yaml <<END\nname: a\nEND\nlynxctl list", "lynxctl submit -f a.yaml -o json > --fast",
                     "build/bin/lynxctl checkpoint export a --format hf \\\n  --out b", "build/bin/scale_bench --nodes 3", "../scripts/dashboards.py --home x"):
            for command in simple_commands(text):
                self.assertIsNone(self.surface.objection(command), text)

    def test_what_is_not_run_says_why(self):
        blocks = [block for all_blocks in pages().values() for block in all_blocks if not block.hidden]
        not_run = [block for block in blocks if block.norun is not None]
        print(f"{len(blocks) - len(not_run)} blocks are run, {len(not_run)} are not: {', '.join(block.where for block in not_run)}")
        self.assertEqual([block.where for block in not_run if len(block.norun.split()) < 3], [], "norun says why, in some words")

    def test_other_tests_run_theirs(self):
        said = {block.by for blocks in pages().values() for block in blocks if block.by}
        tests = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
        taken = {test for text in tests.values() for test in re.findall(r'commands_of\("([\w.]+)"\)', text)}
        self.assertEqual(said, taken)
        made = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("CMakeLists.txt"))
        for test in said:
            group, _, name = test.partition(".")
            self.assertTrue(f"lynx_python_test({test} " in made or
                            re.search(rf"foreach\(name [^)]*\b{name}\b[^)]*\)\s+lynx_python_test\({group}\.\${{name}} ", made), f"{test} is no test")

    def test_what_is_typed_instead_is_of_the_page(self):
        for page, texts in INSTEAD.items():
            for text in texts:
                self.assertTrue(any(text in block.text for block in pages()[page]), f"{page}: {text}")
        lines = {line for blocks in pages().values() for block in blocks for line in lines_of(block.text)}
        self.assertLessEqual(set(STAY), lines)


class PicturesTest(unittest.TestCase):
    def test_they_show_what_the_planner_says(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, str(ROOT / "scripts/concept_pictures.py"), str(BIN / "lynxctl"), folder], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout)
            drawn = {path.name: path.read_text() for path in pathlib.Path(folder).glob("*.svg")}
        self.assertGreaterEqual(len(drawn), 3)
        for name, text in drawn.items():
            self.assertTrue(text == (ROOT / "docs/images" / name).read_text(),
                            f"{name} is of another plan: if that is meant, scripts/concept_pictures.py build/bin/lynxctl docs/images")


class RunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.mkdtemp(prefix="lynx-e2e-docs-")
        cls.addClassCleanup(shutil.rmtree, cls.home, True)
        cls.addClassCleanup(cls.stop, cls.home)
        cls.lynxctl("local", "up", "--nodes", "2", "--devices", "2")

    @classmethod
    def lynxctl(cls, *arguments):
        done = subprocess.run([str(BIN / "lynxctl"), *arguments], env=cls.environment(cls.home), capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise AssertionError(f"lynxctl {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    @staticmethod
    def environment(home):
        env = {name: value for name, value in os.environ.items() if not name.startswith("LYNX_") or name == "LYNX_BIN"}
        if importlib.util.find_spec("tokenizers") is None:
            env["PYTHONPATH"] = str(STAND_INS)
        # A context that is in use on this machine must not be found.
        return dict(env, LYNX_HOME=str(home), XDG_CONFIG_HOME=f"{home}/config", PATH=f"{BIN}:{env['PATH']}")

    @classmethod
    def stop(cls, home):
        try:
            subprocess.run([str(BIN / "lynxctl"), "local", "down"], env=cls.environment(home), capture_output=True, timeout=120)
        finally:
            kill(processes(str(home)))

    @staticmethod
    def fill(folder):
        """Adds the files that a page's commands name."""
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name)
        (folder / "build").mkdir()
        (folder / "build" / "bin").symlink_to(BIN)
        job = folder / "examples/gpt-bytes.yaml"
        text = job.read_text()
        for large, small in SMALLER.items():
            assert large in text, large
            text = text.replace(large, small)
        job.write_text(text)

    def run_page(self, page, blocks):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-e2e-page-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.fill(folder)
        BROUGHT.get(page, lambda _: None)(folder)
        own_cluster = any("lynxctl local up" in block.text for block in blocks)
        home = folder / "home" if own_cluster else pathlib.Path(self.home)
        script = ["set -euo pipefail", STAYS, "trap 'echo \"in the block of $block: $BASH_COMMAND\" >&2' ERR"]
        for number, block in enumerate(blocks):
            text = typed(page, block.text)
            if block.prints:
                # The commands are in braces, so that they run in the page's own shell and its variables remain.
                text = f"{{\n{text}\n}} >{shlex.quote(str(folder))}/printed.{number}"
            script += [f"block={shlex.quote(block.where)}", text]
        try:
            done = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=folder, env=self.environment(home), text=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                said, _ = done.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(done.pid, signal.SIGKILL)
                said, _ = done.communicate()
                self.fail(f"{page}: not done within {PATIENCE} s\n{said}")
            logs = [path for root in (folder, pathlib.Path(self.home)) for path in sorted(root.rglob("local/logs/*.log"))] if done.returncode else []
            logs += sorted(folder.glob("printed.*"))
            self.assertEqual(done.returncode, 0, "\n".join([page, said, *(f"=== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)]))
            self.compare(folder, blocks)
        finally:
            if own_cluster:
                self.stop(folder)
        if own_cluster:
            self.assertEqual(processes(str(folder)), {}, page)

    def compare(self, folder, blocks):
        """Compares the page's exact blocks with the output."""
        for number, block in enumerate(blocks):
            if block.prints:
                printed = (folder / f"printed.{number}").read_text()
                wrong = difference(block.prints.text, printed)
                self.assertIsNone(wrong, f"{block.prints.where}: {wrong}. The commands print\n{printed}")

    def test_the_commands_of_each_page_work_in_order(self):
        ran = 0
        for page, blocks in pages().items():
            run = [block for block in blocks if block.norun is None and block.by is None]
            if run and os.environ.get("LYNX_DOCS_PAGE", "") in page:
                with self.subTest(page):
                    self.run_page(page, run)
                    print(f"{page}: {len(run)} blocks")
                    ran += 1
        self.assertGreater(ran, 0, "LYNX_DOCS_PAGE names no page with commands")
        subprocess.run([str(BIN / "lynxctl"), "cancel", "--all"], env=self.environment(self.home), capture_output=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
