"""The project's pages as text: their fenced blocks, hidden commands, headings and links.

The first word of a fenced block says what it is: `sh` (commands), `yaml`, `mermaid`, or `text` (output of programs, and
drawings), or `python`, which tests/python runs. test_commands.py runs the commands, page by page and in order. If another test runs a block, the block begins
with ```sh by="TEST", and that test gets its text from commands_of. If a block cannot be run, it begins with ```sh norun="why".
The blocks in docs/measurements are records: their commands were typed once, and are too large to be run unchanged. Each
block names a test that runs it in a tiny form (tests/bench), or says why there is none. Commands that a page needs first,
but that readers need not see, are in a comment: <!-- run: COMMANDS -->. A block ```text exact is the whole output of the
commands before it. It is the same on every machine; a line of three dots stands for lines that may differ (difference)."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = ("sh", "yaml", "text", "mermaid", "python")
# The output of `lynxctl reference`, which test_surface.py checks. Its indented lines are synopses.
GENERATED = ("docs/cli.md",)
RECORDS = "docs/measurements/"
FENCE = re.compile(r'^(\s*)```(.*)$')
INFO = re.compile(r'^(\w+)(?: (norun|by)="([^"]+)"| (exact))?$')
LEFT_OUT = "..."
HIDDEN = re.compile(r"^<!-- run:\s(.*?) ?-->$", re.MULTILINE | re.DOTALL)


class Block:
    """Commands or other text between fences, or hidden commands. `line`: the number of the first line. `norun`: why
    the commands are not run. `by`: the test that runs the commands, if not test_commands.py. `prints`: the exact block
    with the commands' output, or None."""

    def __init__(self, page, line, language, text, norun=None, by=None, exact=False, hidden=False):
        self.page, self.line, self.language, self.text, self.norun, self.by = page, line, language, text, norun, by
        self.exact, self.hidden, self.prints = exact, hidden, None

    @property
    def where(self):
        return f"{self.page}:{self.line}"


def page_files():
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "dashboards/**/*.md", "examples/**/*.md"):
        yield from sorted(ROOT.glob(pattern))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def blocks_of(page, text):
    """All blocks of a page in order, and the mistakes in it, as texts that name the line."""
    blocks, wrong, lines = [], [], text.splitlines()
    for match in HIDDEN.finditer(text):
        blocks.append(Block(page, text.count("\n", 0, match.start(1)) + 1, "sh", match.group(1), hidden=True))
    start = fence = None
    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if match and start is None:
            start, fence = number, match
        elif match:
            info = INFO.match(fence.group(2))
            if match.group(2) or match.group(1) != fence.group(1):
                wrong.append(f"{page}:{number}: the block of line {start} does not end like it begins")
            elif not info or info.group(1) not in LANGUAGES:
                wrong.append(f"{page}:{start}: a block is one of {', '.join(LANGUAGES)}, sh norun=\"why\" or sh by=\"TEST\", not '{fence.group(2)}'")
            elif info.group(2) and info.group(1) != "sh":
                wrong.append(f"{page}:{start}: only commands have {info.group(2)}")
            elif info.group(4) and info.group(1) != "text":
                wrong.append(f"{page}:{start}: only text is exact")
            elif info.group(1) == "sh" and not info.group(2) and page.startswith(RECORDS):
                wrong.append(f"{page}:{start}: a record names the test that runs its commands in a tiny form, sh by=\"TEST\", or says norun=\"why\"")
            else:
                indent = len(fence.group(1))
                how = {info.group(2): info.group(3)} if info.group(2) else {}
                how.update(exact=bool(info.group(4)))
                blocks.append(Block(page, start + 1, info.group(1), "\n".join(l[indent:] for l in lines[start:number - 1]), **how))
            start = fence = None
        elif start is None and line.startswith("    ") and not lines[number - 2].strip() and page not in GENERATED:
            wrong.append(f"{page}:{number}: an indented block: put it between fences, ```sh where it has commands, else ```text or ```yaml")
    if start:
        wrong.append(f"{page}:{start}: this block has no end")
    blocks.sort(key=lambda block: block.line)
    return blocks, wrong + pair(blocks)


def pair(blocks):
    """Sets `prints` of each block of commands that an exact block follows. Returns messages about exact blocks without commands."""
    wrong, commands = [], None
    for block in blocks:
        if block.language == "sh":
            commands = block
        elif block.exact and (commands is None or commands.prints or commands.norun or commands.by):
            wrong.append(f"{block.where}: no commands that test_commands.py runs stand before this exact block")
        elif block.exact:
            commands.prints = block
    return wrong


def difference(expected, said):
    """How an exact block differs from what the commands printed, or None. The block must have all printed lines in their
    order, except that a line of three dots stands for one or more printed lines."""
    lines = [line.rstrip() for line in expected.splitlines()]
    printed = "".join(f"{line.rstrip()}\n" for line in said.splitlines())

    def like(some):
        return "".join("(?:.*\n)+" if line == LEFT_OUT else re.escape(line) + "\n" for line in some)

    if re.fullmatch(like(lines), printed):
        return None
    same = next(count for count in range(len(lines), -1, -1) if re.match(like(lines[:count]), printed))
    return f"'{lines[same]}' is not what is printed there" if same < len(lines) else "more is printed after the last line"


def commands_of(test):
    """Page -> the texts of its blocks that this test runs, in their order."""
    found = {}
    for path in page_files():
        for block in blocks_of(name_of(path), path.read_text())[0]:
            if block.by == test:
                found.setdefault(block.page, []).append(block.text)
    return found


def lines_of(text):
    """The command lines of a block, without their comments."""
    lines = (re.sub(r"\s+#.*", "", line).strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def prose_of(text):
    """The page without its blocks; headings and links in blocks do not count."""
    prose, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            prose.append(line)
    return "\n".join(prose)


def anchors_of(text):
    """The anchors that GitHub makes from headings."""
    found = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", prose_of(text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if not n else f"{slug}-{n}" for slug, most in found.items() for n in range(most + 1)}


def links_of(text):
    """Targets of the page's links and pictures, without those that lead out of the project."""
    prose = re.sub(r"`[^`\n]*`", "", prose_of(text))
    targets = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|srcset|href)="([^"]+)"', prose)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]
