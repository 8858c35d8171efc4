"""Checks that the pages are consistent: every link leads somewhere, every page is in the list of pages, every block is of a known kind."""

import json
import re
import unittest

import jsonschema
import yaml

from pages import LANGUAGES, ROOT, anchors_of, blocks_of, difference, links_of, name_of, page_files


# Figures that pages quote: the beginning and end of the text, and the record that has the figures.
QUOTED = (("README.md", "| measured, CPU ranks", "([record]", "docs/measurements/overlap.md"),
          ("docs/sizing.md", "| nodes |", "[Measured]", "docs/measurements/scale.md"),
          ("docs/from-slurm.md", "a trivial job begins", "The verbs in one go", "docs/measurements/scale.md"))
# Programs of bench/ that another program starts.
STARTED_BY = {"submit_lynx": "bench/beside_slurm.py", "submit_slurm": "bench/beside_slurm.py", "pytorch_train.py": "bench/throughput/main.cc"}
FILES = (".h", ".cc", ".csv", ".json", ".yaml", ".safetensors")
ELSEWHERE = ("docs/_pages/config-json.md", "checkpoint.enable_checkpoint", "checkpoint.enable")  # files and fields of other projects


def validator(schema):
    return jsonschema.validators.validator_for(schema)(schema)


class PagesTest(unittest.TestCase):
    def assert_none(self, found):
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_links_lead_somewhere(self):
        bad = []
        for path in page_files():
            for link in links_of(path.read_text()):
                target, _, anchor = link.partition("#")
                file = (path.parent / target).resolve() if target else path
                if not file.exists():
                    bad.append(f"{name_of(path)}: {link}: there is no {target}")
                elif not file.is_relative_to(ROOT):
                    bad.append(f"{name_of(path)}: {link} leads out of the project")
                elif anchor and anchor not in anchors_of(file.read_text()):
                    bad.append(f"{name_of(path)}: {link}: no heading of {file.name} makes #{anchor}")
        self.assert_none(bad)

    def test_files_that_are_named_exist(self):
        folders = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "build"))))
        bad, found = [], 0
        for path in page_files():
            # A decision or a record may mention files that no longer exist.
            if path.parent.name in ("decisions", "measurements"):
                continue
            for name in re.findall(rf"`((?:{folders})/[\w./*-]+\.\w+)`", path.read_text()):
                found += 1
                if "NAME" not in name and name not in ELSEWHERE and not list(ROOT.glob(name)):
                    bad.append(f"{name_of(path)}: there is no {name}")
        self.assert_none(bad)
        self.assertGreater(found, 50)

    def test_job_fields_that_are_named_exist(self):
        fields = set(re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/job-file.md").read_text(), re.MULTILINE))
        sections = {".".join(field.split(".")[:n]) for field in fields for n in range(1, field.count(".") + 1)}
        bad, found = [], 0
        for path in page_files():
            for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)(?=[`:=])", path.read_text()):
                if name.split(".")[0] in sections and not name.endswith(FILES) and name not in ELSEWHERE:
                    found += 1
                    bad += [f"{name_of(path)}: a job file has no {name}"] if name not in fields | sections else []
        self.assert_none(bad)
        self.assertGreater(found, 100)

    def test_figures_are_those_of_the_record(self):
        for page, begins, ends, record in QUOTED:
            text = (ROOT / page).read_text()
            start = text.index(begins)
            quoted = set(re.findall(r"\d[\d,.]*\d", text[start:text.index(ends, start)]))
            known = {figure.replace(",", "") for figure in re.findall(r"\d[\d,.]*\d", (ROOT / record).read_text())}
            self.assertGreater(len(quoted), 3, page)
            self.assert_none([f"{page}: {record} has no {figure}" for figure in sorted(quoted) if figure.replace(",", "") not in known])

    def test_every_page_is_in_the_list(self):
        index = ROOT / "docs/README.md"
        linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index.read_text())}
        pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/measurements/*.md")]
        self.assert_none([f"docs/README.md does not link {name_of(page)}" for page in pages if page not in linked and page != index])

    def test_blocks_are_of_a_known_kind(self):
        self.assert_none([wrong for path in page_files() for wrong in blocks_of(name_of(path), path.read_text())[1]])

    def test_job_files_are_ones(self):
        schema = json.loads((ROOT / "docs/job-schema.json").read_text())
        cluster_fields = (ROOT / "docs/cluster-file.md").read_text()
        bad, found = [], 0
        for path in page_files():
            for block in blocks_of(name_of(path), path.read_text())[0]:
                # Checks each section alone, because a page may show several variants of the same section.
                for section in re.split(r"^(?=\w)", block.text, flags=re.MULTILINE)[1:] if block.language == "yaml" else []:
                    # PyYAML reads 1e-3 as a text, but 1.0e-3 as a number.
                    (field, value), = yaml.safe_load(re.sub(r"\b(\d+)e-", r"\1.0e-", section)).items()
                    if field in schema["properties"]:
                        found += 1
                        bad += [f"{block.where}: {field}: {error.message}"
                                for error in validator(schema["properties"][field]).iter_errors(value)]
                    elif not re.search(rf"\b{field}`", cluster_fields):
                        bad.append(f"{block.where}: {field} is a field of neither the job file nor the cluster file")
        self.assert_none(bad)
        self.assertGreater(found, 5)

    def test_what_is_wrong_with_a_block_is_found(self):
        for text, expected in (("```console\n$ x\n```\n", "not 'console'"), ("```\nx\n```\n", "not ''"), ("```sh\nx\n", "no end"),
                               ("\n    lynxctl list\n", "indented"), ('```text norun="why"\nx\n```\n', "only commands"),
                               ('```sh norun=""\nx\n```\n', "is one of"), ("```sh exact\nx\n```\n", "only text is exact"),
                               ("```text exact\nx\n```\n", "no commands"), ('```sh by="a.b"\nx\n```\n```text exact\nx\n```\n', "no commands"),
                               ("```sh\nx\n```\n```text exact\nx\n```\n```text exact\nx\n```\n", "no commands")):
            wrong = blocks_of("docs/x.md", text)[1]
            self.assertEqual(len(wrong), 1, text)
            self.assertIn(expected, wrong[0])
        for language in LANGUAGES:
            self.assertEqual(blocks_of("docs/x.md", f"```{language}\nx\n```\n")[1], [])

    def test_commands_of_a_record_are_run_in_a_tiny_form(self):
        wrong = blocks_of("docs/measurements/x.md", "```sh\nx\n```\n")[1]
        self.assertEqual(len(wrong), 1)
        self.assertIn("names the test", wrong[0])
        for mark in ('by="bench.smoke.x"', 'norun="it takes days"'):
            self.assertEqual(blocks_of("docs/measurements/x.md", f"```sh {mark}\nx\n```\n")[1], [])

    def test_every_benchmark_is_in_a_record(self):
        """So every benchmark is tested, because the commands of records are run in a tiny form."""
        programs = re.findall(r"^ *lynx_binary\((\w+)", (ROOT / "bench/CMakeLists.txt").read_text(), re.MULTILINE)
        programs += [path.name for path in (ROOT / "bench").rglob("*.py") if path.read_text().startswith("#!")]
        typed = "\n".join(block.text for path in ROOT.glob("docs/measurements/*.md") for block in blocks_of(name_of(path), path.read_text())[0]
                          if block.language == "sh" and not block.norun)
        self.assertGreater(len(programs), 15)
        self.assert_none([f"{name}: no record of docs/measurements has it among its commands" for name in programs
                          if name not in STARTED_BY and not re.search(rf"\b(bin|bench)/{re.escape(name)}\b", typed)])
        self.assert_none([f"{name} is not started by {by}" for name, by in STARTED_BY.items() if f'{name}"' not in (ROOT / by).read_text()])

    def test_exact_blocks_belong_to_the_commands_before_them(self):
        commands, _, exact = blocks_of("docs/x.md", "```sh\nx\n```\n```text\na\n```\n```text exact\nb\n```\n")[0]
        self.assertIs(commands.prints, exact)

    def test_exact_blocks_are_compared_line_by_line(self):
        said = "a  b\n\nc\nd\ne\nd\n"
        for expected in (said, "a  b\n...\nc\nd\n...\n", "a  b\n...\nd", "...\ne\n...", "a  b \n...\nd\ne\nd\n"):
            self.assertIsNone(difference(expected, said), expected)
        for expected, wrong in (("a b\n...", "'a b' is not"), ("...\nc\ne\n...", "'e' is not"), ("...\ne\n...\nc\n...", "'c' is not"), ("a  b\n...\ne\n", "more is printed"),
                                ("c\n...", "'c' is not"), (said + "...\n", "'...' is not"), ("a  b\n...\n\nc\n...", "'' is not"), ("a.*b\n...", "'a.*b' is not")):
            self.assertIn(wrong, difference(expected, said) or "", expected)

    def test_anchors_are_those_of_github(self):
        text = "# Of *one*, two\n```sh\n# no heading\n```\n## `a` [b](c.md)\n## Same\n## Same\n"
        self.assertEqual(anchors_of(text), {"of-one-two", "a-b", "same", "same-1"})


if __name__ == "__main__":
    unittest.main()
