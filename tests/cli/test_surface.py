"""Tests what lynxctl prints about itself: docs/cli.md has the printed reference, and completions and manual pages work in real
shells and in man."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import jsonschema
import yaml

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class Yaml12(yaml.SafeLoader):
    """Scalars as editors read them: 1e-3 is a number, off is a text."""


Yaml12.yaml_implicit_resolvers = {}
for tag, pattern, first in (("bool", r"true|false", "tf"), ("int", r"-?[0-9]+", "-0123456789"),
                            ("float", r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", "-0123456789"), ("null", r"null|~|", "n~")):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))

# No server has this address, so completion must work without one.
ENV = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}", LYNX_SERVER="127.0.0.1:1", HOME="/nonexistent", LC_ALL="C.UTF-8", MANPAGER="cat")

BASH = """
source <(lynxctl completion bash) || exit 1
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lynxctl; printf '%s\\n' "${COMPREPLY[@]}"
"""
# Replacements for those functions of the completion system that need a terminal.
ZSH = """
compdef() { :; }
_describe() { [[ $1 == -o ]] && shift; local -a all; all=("${(@P)2}"); print -l -- "${all[@]%%:*}"; }
_files() { print -l -- @files; }
compadd() { shift; print -l -- "$@"; }
source <(lynxctl completion zsh) || exit 1
words=("$@"); CURRENT=$#; _lynxctl
"""


def run(*command, env=ENV, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, timeout=60, stdin=subprocess.DEVNULL, **options)


def complete_bash(*words, **options):
    return run("bash", "-c", BASH, "bash", *words, **options)


def complete_zsh(*words, **options):
    return run("zsh", "-f", "-c", ZSH, "zsh", *words, **options)


def complete_fish(*words, **options):
    line = " ".join(words)
    result = run("fish", "--no-config", "-c", f"lynxctl completion fish | source; complete -C '{line}'", **options)
    result.stdout = "\n".join(row.split("\t")[0] for row in result.stdout.splitlines())
    return result


class Completion(unittest.TestCase):
    def check(self, words, wanted, unwanted=()):
        for complete in (complete_bash, complete_zsh, complete_fish):
            with self.subTest(shell=complete.__name__, words=words):
                result = complete(*words)
                self.assertEqual(result.stderr, "")
                # zsh itself removes words that do not begin with the typed one.
                got = [row for row in result.stdout.split() if row.startswith(words[-1])]
                self.assertLessEqual(set(wanted), set(got), result.stdout)
                self.assertFalse(set(unwanted) & set(got), result.stdout)

    def test_verbs(self):
        self.check(["lynxctl", ""], ["submit", "queue", "completion"], ["__complete", "set", "--file"])
        self.check(["lynxctl", "su"], ["submit"], ["queue"])

    def test_verbs_of_verbs(self):
        self.check(["lynxctl", "queue", ""], ["list", "set"], ["submit"])
        self.check(["lynxctl", "admin", "user", ""], ["add", "list", "revoke"], ["token"])

    def test_options(self):
        self.check(["lynxctl", "submit", "--"], ["--file", "--idempotency-key", "--server"], ["--weight"])
        self.check(["lynxctl", "queue", "set", "--"], ["--weight", "--quota", "--output"], ["--file"])

    def test_values_that_are_checked_for(self):
        self.check(["lynxctl", "plan", "--for", ""], ["lynx", "any"], ["submit"])
        self.check(["lynxctl", "list", "-o", ""], ["table", "wide", "json", "yaml", "csv", "name"], ["submit"])
        self.check(["lynxctl", "completion", ""], ["bash", "zsh", "fish"])

    def test_what_follows_an_option_is_no_verb(self):
        self.check(["lynxctl", "--server", "queue", "s"], ["submit"], ["set"])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a job.yaml"
            path.write_text("")
            result = complete_bash("lynxctl", "submit", "-f", f"{folder}/")
            self.assertEqual(result.stdout.splitlines(), [str(path)])
        self.assertEqual(complete_zsh("lynxctl", "submit", "-f", "").stdout.split(), ["@files"])
        self.assertIn("README.md", run("fish", "--no-config", "-c", "lynxctl completion fish | source; complete -C 'lynxctl submit -f '",
                                       cwd=DOCS.parent).stdout)

    def test_names_that_only_a_server_knows(self):
        for complete in (complete_bash, complete_zsh, complete_fish):
            result = complete("lynxctl", "get", "")
            self.assertEqual((result.stdout.split(), result.stderr), ([], ""), "no server, no names, no noise")

    def stand_in(self, folder, answer):
        """The environment with a lynxctl that answers requests for names with the output of the shell lines `answer`."""
        path = pathlib.Path(folder) / "lynxctl"
        path.write_text(f'#!/bin/sh\n[ "$1" = __complete ] || exec {BIN}/lynxctl "$@"\n{answer}\n')
        path.chmod(0o755)
        return dict(ENV, PATH=f"{folder}:{ENV['PATH']}")

    def test_what_names_say_is_not_done(self):
        with tempfile.TemporaryDirectory() as folder:
            done = pathlib.Path(folder) / "done"
            names = [f"$(touch {done})", f"`touch {done}`", f"a;touch {done}", "two words", "*"]
            answer = "\n".join(f"printf '%s\\n' '{name}'" for name in [*names, "plain"])
            env = self.stand_in(folder, answer)
            for complete in (complete_bash, complete_zsh, complete_fish):
                with self.subTest(shell=complete.__name__):
                    done.unlink(missing_ok=True)
                    result = complete("lynxctl", "get", "", env=env, cwd=folder)
                    self.assertEqual(result.stderr, "")
                    self.assertFalse(done.exists())
                    rows = result.stdout.splitlines()
                    self.assertEqual(len(rows), 6, rows)
                    self.assertIn("plain", rows)
                    if complete is complete_bash:  # bash inserts the words into the command line; when this line runs, the shell must not interpret them
                        said = run("bash", "-c", "printf '%s\n' " + " ".join(rows), cwd=folder).stdout.splitlines()
                        self.assertEqual(said, [*names, "plain"])
                        self.assertFalse(done.exists())

    def test_a_context_with_a_name_that_would_be_run(self):
        with tempfile.TemporaryDirectory() as folder:
            contexts = pathlib.Path(folder) / "lynx" / "contexts"
            contexts.mkdir(parents=True)
            for name in ("$(touch done)", "here"):
                (contexts / f"{name}.json").write_text('{"server": "127.0.0.1:1"}')
            for complete in (complete_bash, complete_zsh, complete_fish):
                with self.subTest(shell=complete.__name__):
                    done = pathlib.Path(folder) / "done"
                    done.unlink(missing_ok=True)
                    result = complete("lynxctl", "context", "use", "", env=dict(ENV, XDG_CONFIG_HOME=folder), cwd=folder)
                    self.assertIn("here", result.stdout.split(), result.stderr)
                    self.assertFalse(done.exists())

    def test_users(self):
        with tempfile.TemporaryDirectory() as folder:
            env = self.stand_in(folder, 'echo "of-$2"')
            for complete in (complete_bash, complete_zsh, complete_fish):
                for words in (("admin", "user", "revoke"), ("admin", "token", "add")):
                    with self.subTest(shell=complete.__name__, words=words):
                        self.assertEqual(complete("lynxctl", *words, "", env=env).stdout.split(), ["of-users"])
        asked = run(BIN / "lynxctl", "__complete", "users")
        self.assertEqual((asked.returncode, asked.stdout, asked.stderr), (0, "", ""), "no server, no names, no noise")

    def test_an_unknown_shell(self):
        result = run(BIN / "lynxctl", "completion", "tcsh")
        self.assertEqual(result.returncode, 2)
        self.assertIn("bash", result.stderr)


class Pages(unittest.TestCase):
    def test_the_reference_is_what_the_program_says(self):
        result = run(BIN / "lynxctl", "reference")
        self.assertEqual(result.stdout, (DOCS / "cli.md").read_text(),
                         "the surface has changed: if that is meant, write it with build/bin/lynxctl reference > docs/cli.md")

    def test_every_verb_has_a_page_that_man_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run(BIN / "lynxctl", "man", "--out", f"{folder}/man1")
            self.assertEqual(result.returncode, 0, result.stderr)
            pages = sorted(pathlib.Path(folder).glob("man1/*.1"))
            verbs = re.findall(r"^## (lynxctl .*)$", (DOCS / "cli.md").read_text(), re.MULTILINE)
            self.assertGreater(len(verbs), 30)
            self.assertLessEqual({verb.replace(" ", "-") + ".1" for verb in verbs}, {page.name for page in pages})
            for page in pages:
                shown = run("man", "--warnings=all", "-l", page)
                self.assertEqual((shown.returncode, shown.stderr), (0, ""), page)
                self.assertIn("EXIT STATUS", shown.stdout)
            self.assertRegex(run("man", "-l", f"{folder}/man1/lynxctl-submit.1").stdout, r"-f, --file FILE\n")

    def test_one_page(self):
        self.assertTrue(run(BIN / "lynxctl", "man", "queue-set").stdout.startswith('.TH "LYNXCTL'))
        missing = run(BIN / "lynxctl", "man", "dance")
        self.assertEqual(missing.returncode, 4)
        self.assertIn("no page of 'dance'", missing.stderr)

    def test_a_folder_that_cannot_be_written(self):
        result = run(BIN / "lynxctl", "man", "--out", "/proc/nowhere")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"--out /proc/nowhere/lynxctl.1: cannot create .*: No such file or directory")

    def test_help_says_what_a_value_is(self):
        self.assertRegex(run(BIN / "lynxctl", "submit", "--help").stdout, r"--file FILE")


class JobSchema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = run(BIN / "lynxctl", "defaults", "--schema").stdout
        cls.text, cls.schema = text, json.loads(text)

    def errors(self, text):
        validator = jsonschema.Draft7Validator(self.schema)
        return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(yaml.load(text, Yaml12))]

    def test_the_file_is_what_the_program_says(self):
        jsonschema.Draft7Validator.check_schema(self.schema)
        self.assertEqual((DOCS / "job-schema.json").read_text(), self.text,
                         "if the change is meant, write it with build/bin/lynxctl defaults --schema > docs/job-schema.json")

    def test_what_the_program_takes(self):
        jobs = [path for path in (DOCS.parent / "examples").glob("*.yaml") if "kind: TrainingJob" in path.read_text()]
        self.assertGreater(len(jobs), 3)
        for path in jobs:
            self.assertEqual(self.errors(path.read_text()), [], path)
            whole = run(BIN / "lynxctl", "defaults", "-f", path)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.assertEqual(self.errors(whole.stdout), [], path)
        job = (DOCS.parent / "examples" / "gpt-bytes.yaml").read_text()
        self.assertEqual(self.errors(re.sub(r"(?m)^parallel:\n(  .*\n)+", "parallel: auto\n", job)), [])

    def test_what_the_program_refuses(self):
        job = yaml.load((DOCS.parent / "examples" / "gpt-bytes.yaml").read_text(), Yaml12)
        for section, field, value in ((None, "kind", "Job"), (None, "colour", "red"), ("model", "layers", "many"), ("parallel", "tp", "all"),
                                      ("train", "stepz", 3), (None, "recompute", "sometimes"), ("checkpoint", "weightsOnly", "perhaps")):
            changed = json.loads(json.dumps(job))
            (changed if section is None else changed.setdefault(section, {}))[field] = value
            with self.subTest(field=field), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                self.assertNotEqual(self.errors(yaml.safe_dump(changed)), [])
                file.write(yaml.safe_dump(changed))
                file.flush()
                self.assertEqual(run(BIN / "lynxctl", "defaults", "-f", file.name).returncode, 2)
        for section, field in (("model", "layers"), ("train", "steps"), ("data", "path"), (None, "resources")):
            changed = json.loads(json.dumps(job))
            del (changed if section is None else changed[section])[field]
            with self.subTest(missing=field):
                self.assertNotEqual(self.errors(yaml.safe_dump(changed)), [])


if __name__ == "__main__":
    unittest.main()
