"""Tests that the glossary and the sources agree: its names exist, and the names that were given up do not come back."""

import pathlib
import re
import tempfile
import unittest

from pages import ROOT

GLOSSARY = "docs/GLOSSARY.md"
GIVEN_UP_HEADING = "## Words that were given up"
SOURCES = (".h", ".cc", ".cuh", ".cu")
# Decisions and records keep the words of their time.
RECORDS = ("docs/decisions", "docs/measurements")


def glossary_rows(text):
    """The cells of all rows of a page's tables, without the headings."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if not set("".join(row)) <= set("- ") and row[0] not in ("term", "given up")]


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def pattern_of(name):
    """A name of the list as text and regular expression: `Name()` is a function, `kName*` stands for all longer names."""
    plain = name.removesuffix("()").removesuffix("*")
    after = r" ?\(" if name.endswith("()") else r"[A-Z]\w*" if name.endswith("*") else r"(?!\w)"
    return plain, re.compile(r"(?<!\w)" + re.escape(plain) + after)


def files_of(root, suffixes):
    """(name, text) of the tree's files, without build trees and hidden folders."""
    for top in sorted(root.iterdir()):
        if top.name.startswith((".", "build")):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(root).as_posix(), path.read_text()


def missing_names(rows, files):
    """Messages about the names in the last cell of each row that no file has. The rows are (term, meaning, names) or (given up, now)."""
    texts, known = [], set()
    for path, text in files:
        texts.append(path)
        known.update(re.findall(r"\w+", text), re.findall(r"\w+", path))
    paths = "\n".join(texts)

    def exists(name):
        if "/" in name:
            return name in paths
        word = name.removesuffix("()")
        return any(k.startswith(word[:-1]) for k in known) if word.endswith("*") else word in known

    return [f"{row[0]}: no source has {name}" for row in rows for name in names_in(row[-1]) if not exists(name)]


def returned_names(given_up, files):
    """Messages about the places in the files where names that were given up occur."""
    patterns = list(map(pattern_of, given_up))
    bad = []
    for path, text in files:
        if path == GLOSSARY:
            text = text.partition(GIVEN_UP_HEADING)[0]
        if path.startswith(RECORDS):
            continue
        bad += [f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(0)} was given up: docs/GLOSSARY.md has the new name"
                for plain, pattern in patterns if plain in text for match in pattern.finditer(text)]
    return bad


class GlossaryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.terms, _, cls.given_up = (ROOT / GLOSSARY).read_text().partition(GIVEN_UP_HEADING)
        cls.files = list(files_of(ROOT, (*SOURCES, ".proto", ".md")))

    def assert_none(self, found):
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_terms_stand_once(self):
        terms = [row[0] for row in glossary_rows(self.terms)]
        self.assertGreater(len(terms), 80)
        self.assert_none([f"{term} stands {terms.count(term)} times" for term in sorted(set(terms)) if terms.count(term) > 1])

    def test_names_of_terms_exist(self):
        rows = glossary_rows(self.terms) + glossary_rows(self.given_up)
        self.assert_none([f"{row}: a row has 3 cells" for row in glossary_rows(self.terms) if len(row) != 3])
        self.assert_none(missing_names(rows, [file for file in self.files if not file[0].endswith(".md")]))

    def test_words_that_were_given_up_do_not_come_back(self):
        names = [name for row in glossary_rows(self.given_up) for name in names_in(row[0])]
        self.assertGreater(len(names), 30)
        self.assert_none(returned_names(names, [file for file in self.files if not file[0].endswith(".proto")]))


class ChecksTest(unittest.TestCase):
    """The checks above, with a tree that breaks a rule."""

    FILES = {"planner/oracle.h": "class Oracle;\nvoid Ask();\nint kMaxTries = 1;\n", "README.md": "The oracle answers.\n",
             GLOSSARY: f"| term | meaning | in the sources |\n| --- | --- | --- |\n| oracle | it answers | `Oracle`, `Ask` |\n\n{GIVEN_UP_HEADING}\n\n"
                       "| given up | now |\n| --- | --- |\n| `Sibyl`, `Inquire()` | `Oracle`, `Ask()` |\n| `kMost*` | `kMax*` |\n"}
    GIVEN_UP = ["Sibyl", "Inquire()", "kMost*", "planner/sibyl"]

    def tree(self, **changed):
        """The files of a made-up tree, read back from a folder; `changed`: name with _ for / and . -> text."""
        names = {re.sub(r"\W", "_", name): name for name in [*self.FILES, "build/x.h", ".git/x.h", "docs/decisions/1.md", "planner/use.cc"]}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**self.FILES, **{names[key]: text for key, text in changed.items()}}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(files_of(pathlib.Path(folder), (*SOURCES, ".md")))

    def test_a_tree_that_keeps_to_the_words_passes(self):
        self.assertEqual(returned_names(self.GIVEN_UP, self.tree()), [])
        self.assertEqual(missing_names(glossary_rows(self.FILES[GLOSSARY]), self.tree()), [])

    def test_a_name_that_comes_back_is_reported(self):
        for text in ("int a;\nSibyl sibyl;\n", "int a;\n// As Sibyl says.\n", "int a;\nInquire(a);\n", "int a;\nint kMostTries = 1;\n",
                     '\n#include "planner/sibyl.h"\n'):
            found = returned_names(self.GIVEN_UP, self.tree(planner_use_cc=text))
            self.assertEqual(len(found), 1, text)
            self.assertTrue(found[0].startswith("planner/use.cc:2: "), found)
        self.assertEqual(len(returned_names(self.GIVEN_UP, self.tree(README_md="A Sibyl answers.\n"))), 1)

    def test_other_words_are_not_taken_for_it(self):
        for text in ("SibylOf(a);\n", "MySibyl a;\n", "Inquire about it.\n", "int kMost = 1;\n", "other_planner/sibyl_a;\n"):
            self.assertEqual(returned_names(self.GIVEN_UP[:3], self.tree(planner_use_cc=text)), [], text)

    def test_records_and_what_is_built_may_have_it(self):
        for name in ("docs_decisions_1_md", "build_x_h", "_git_x_h"):
            self.assertEqual(returned_names(self.GIVEN_UP, self.tree(**{name: "Sibyl\n"})), [], name)

    def test_a_name_that_no_source_has_is_reported(self):
        rows = glossary_rows("| oracle | it answers | `Oracle`, `Pythia` |\n| `kMost*` | `kLeast*` |\n| `a/b` | `planner/pythia.h` |\n")
        self.assertEqual(missing_names(rows, self.tree()), ["oracle: no source has Pythia", "`kMost*`: no source has kLeast*",
                                                            "`a/b`: no source has planner/pythia.h"])


if __name__ == "__main__":
    unittest.main()
