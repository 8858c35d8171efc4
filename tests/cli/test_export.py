"""Tests where `lynxctl export` writes its files, and what it prints if a framework cannot express a part of the plan."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt-bytes.yaml"
FILES = {"megatron": "megatron_args.sh", "deepspeed": "ds_config.json", "torchtitan": "torchtitan_config.py"}
NEWEST = {"megatron": "0.19", "deepspeed": "0.19", "torchtitan": "main-2026-08-21"}
# With less memory no policy of another framework fits.
ROOM = ("--set", "resources.activationMemoryPerRank=64MiB")


def export(*arguments):
    return subprocess.run([str(BIN / "lynxctl"), "export", "-f", str(EXAMPLE), *ROOM, *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL)


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_files_on_standard_output_and_the_list_beside_them(self):
        for name in FILES:
            result = export("--format", name)
            self.assertEqual(result.returncode, 0, result)
            self.assertNotIn("cannot express", result.stdout)
            self.assertIn(f"what {name} cannot express of this plan:\n  - ", result.stderr)

    def test_files_in_a_folder_that_is_made(self):
        for name, file in FILES.items():
            folder = self.folder / "deep" / name
            result = export("--format", name, "--out", folder)
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(sorted(p.name for p in folder.iterdir()), sorted([file, "not_expressed.txt"]))
            self.assertEqual((folder / file).read_text(), export("--format", name).stdout)
            self.assertEqual((folder / "not_expressed.txt").read_text(), export("--format", name).stderr)
            self.assertIn(str(folder / file), result.stdout)

    def test_megatron_arguments_are_a_bash_array(self):
        path = self.folder / "args.sh"
        path.write_text(export("--format", "megatron").stdout)
        shown = subprocess.run(["bash", "-euc", f"source {path}; printf '%s\\n' \"${{MEGATRON_ARGS[@]}}\""],
                               capture_output=True, text=True, timeout=30, env={"CHECKPOINTS": "/tmp/x", "PATH": os.environ["PATH"]})
        self.assertEqual(shown.returncode, 0, shown)
        words = shown.stdout.split("\n")
        self.assertEqual(words[words.index("--tensor-model-parallel-size") + 1], "2")
        self.assertEqual(words[words.index("--save") + 1], "/tmp/x")
        self.assertNotIn("", words[:-1])

    def test_json(self):
        for name, file in FILES.items():
            result = export("--format", name, "-o", "json")
            self.assertEqual(result.returncode, 0, result)
            answer = json.loads(result.stdout)
            self.assertEqual(answer["format"], name)
            self.assertEqual(answer["targetVersion"], NEWEST[name])
            self.assertEqual([f["name"] for f in answer["files"]], [file])
            self.assertEqual(answer["files"][0]["text"], export("--format", name).stdout)
            self.assertTrue(answer["notExpressed"])
        json.loads(export("--format", "deepspeed").stdout)

    def test_torchtitan_files_read_back(self):
        compile(export("--format", "torchtitan").stdout, "torchtitan_config.py", "exec")
        answer = json.loads(export("--format", "torchtitan", "--target-version", "0.2.2", "-o", "json").stdout)
        self.assertEqual([f["name"] for f in answer["files"]], ["torchtitan.toml", "lynx_torchtitan_model.py"])
        compile(answer["files"][1]["text"], "lynx_torchtitan_model.py", "exec")
        try:
            import tomllib
        except ImportError:
            self.skipTest("this Python has no tomllib")
        config = tomllib.loads(answer["files"][0]["text"])
        self.assertEqual(config["parallelism"]["pipeline_parallel_degree"], 2)
        self.assertEqual(config["parallelism"]["module_fqns_per_model_part"][0][0], "tok_embeddings")
        self.assertEqual(config["parallelism"]["module_fqns_per_model_part"][-1][-1], "output")

    def test_versions(self):
        def vocabulary(*arguments):
            words = export("--format", "megatron", *arguments).stdout.split()
            return int(words[words.index("--vocab-size") + 1])

        self.assertEqual(vocabulary(), vocabulary("--target-version", "0.19"))
        self.assertEqual(vocabulary("--target-version", "0.17"), vocabulary() - 1)
        self.refused(2, ["--format", "deepspeed", "--target-version", "9"], "--target-version", "exports for DeepSpeed 9",
                     "known versions: 0.16, 0.17, 0.18, 0.19")

    def refused(self, code, arguments, *words):
        result = export(*arguments)
        self.assertEqual(result.returncode, code, result)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_what_is_refused(self):
        self.refused(2, ["--format", "jax"], "--format jax: expected megatron, deepspeed or torchtitan")
        self.refused(2, [], "--format is required")
        file = self.folder / "file"
        file.write_text("x")
        self.refused(2, ["--format", "megatron", "--out", file / "x"], "--out", str(file), "a folder that you may write to")
        self.refused(2, ["--format", "megatron", "--out", ""], "needs a name")
        (self.folder / "ds_config.json").mkdir()
        self.refused(2, ["--format", "deepspeed", "--out", self.folder], "that is a folder")
        self.refused(1, ["--format", "megatron", "--set", "resources.activationMemoryPerRank=64KiB"], "cannot fit")


if __name__ == "__main__":
    unittest.main()
