"""Checks that every block of commands of a record has a tiny form, and that smoke.py reports a command that has no tiny form,
fails, or prints the wrong text. Runs no benchmark."""

import importlib
import re
import unittest

from smoke import ROOT, Tiny, run_tiny_forms, tiny_form

from pages import RECORDS, blocks_of, name_of

MODULES = [path.stem for path in (ROOT / "tests/bench").glob("test_*.py") if re.search("^FORMS = ", path.read_text(), re.MULTILINE)]


def result_of(commands, forms):
    """The result of a test that runs these commands and forms."""
    class Trial(unittest.TestCase):
        def runTest(self):
            run_tiny_forms(self, commands, forms)

    result = unittest.TestResult()
    Trial().run(result)
    return result


class TinyFormsTest(unittest.TestCase):
    def test_every_block_of_a_record_has_one(self):
        blocks = {}
        for path in (ROOT / RECORDS).glob("*.md"):
            for block in blocks_of(name_of(path), path.read_text())[0]:
                if block.by and block.by.startswith("bench.smoke."):
                    blocks.setdefault((block.by, block.page), []).append(block.text)
        forms = {(f"bench.smoke.{module.removeprefix('test_')}", page): tinies
                 for module in MODULES for page, tinies in importlib.import_module(module).FORMS.items()}
        self.assertEqual({key: len(texts) for key, texts in blocks.items()}, {key: len(tinies) for key, tinies in forms.items()})
        for key, texts in blocks.items():
            for text, tiny in zip(texts, forms[key]):
                self.assertNotEqual(tiny_form(text, tiny.smaller), "")

    def test_what_is_not_smaller_is_found(self):
        for text, smaller, wrong in (("build/bin/a 100", {}, "no tiny form of\nbuild/bin/a 100"), ("build/bin/a 100", {"a 200": "a 2"}, "no 'a 200'"),
                                     ("build/bin/a 100\nbench/b.py 7", {"a 100": "a 1"}, "no tiny form of\nbench/b.py 7")):
            with self.assertRaises(ValueError) as caught:
                tiny_form(text, smaller)
            self.assertIn(wrong, str(caught.exception))
        self.assertEqual(tiny_form("cmake --preset release && ninja -C build a b\nbuild/bin/a 9", {"a 9": "a 1"}), "(cd build/bin && ls a b)\nbuild/bin/a 1")

    def test_commands_that_fail_are_found(self):
        for text, tiny, wrong in (("false", Tiny({}, []), "1 != 0"), ("false | true", Tiny({}, []), "1 != 0"), ("echo 7", Tiny({}, ["^8$"]), "is not printed"),
                                  ("echo 7", Tiny({}, [("^7$", 2)]), "is not printed"), ("echo 7", Tiny({}, [], never=["7"]), "is printed"),
                                  ("nosuchprogram", Tiny({}, []), "nosuchprogram: command not found"), ("exit 77", Tiny({}, []), None),
                                  ("echo 7", Tiny({}, ["^7$"]), None)):
            result = result_of({"docs/x.md": [text]}, {"docs/x.md": [tiny]})
            self.assertEqual(len(result.failures), wrong is not None, text)
            self.assertEqual(len(result.skipped), text == "exit 77")
            self.assertIn(wrong or "", "".join(said for _, said in result.failures))

    def test_a_block_without_one_is_found(self):
        self.assertIn("tiny forms here", result_of({"docs/x.md": ["true", "true"]}, {"docs/x.md": [Tiny({}, [])]}).failures[0][1])


if __name__ == "__main__":
    unittest.main()
