"""Writes the API reference from the docstrings into docs/python.md: reference.py PAGE. Run it with the built package in
PYTHONPATH."""

import inspect
import pathlib
import re
import sys

if __name__ == "__main__":
    sys.path.pop(0)  # removes this folder from the path: its package lynx has no extension

import lynx

BEGIN, END = "<!-- reference: python/reference.py writes what follows -->", "<!-- end of the reference -->"
CLASSES = ("Job", "Cluster", "Plan", "FrameworkPlan", "Answer", "Export", "Table", "Record", "Client", "JobRecord", "Watch",
           "Update", "Error", "Infeasible", "Unavailable")
NOT_MADE = ("Plan", "Answer", "Watch")  # classes that calls return, and of which callers never make objects
FUNCTIONS = ("plan", "compare", "explain", "whatif", "sweep", "models", "machines")


def text_of(thing):
    """The docstring as Markdown: indented code becomes a block."""
    lines, code = [], False
    for line in inspect.getdoc(thing).splitlines():
        if line.startswith("    ") and not code:
            lines.append("```python")
            code = True
        if code and line and not line.startswith("    "):
            while not lines[-1]:
                lines.pop()
            lines += ["```", ""]
            code = False
        lines.append(line.removeprefix("    ") if code else line)
    return "\n".join(lines + ["```"] if code else lines)


def signature_of(thing):
    """The parameters without their types, which the stubs have."""
    parameters = []
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name != "self":
            parameters.append(parameter.replace(annotation=inspect.Parameter.empty))
    return re.sub(r"<[^>]*>", "...", str(inspect.Signature(parameters)))


def class_text(name):
    kind = getattr(lynx, name)
    made = "" if issubclass(kind, dict) or name in NOT_MADE else signature_of(kind)
    parts = [f"### `lynx.{name}{made}`", text_of(kind)]
    for member, value in vars(kind).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            parts.append(f"- `.{member}`: {' '.join(inspect.getdoc(value).split())}")
        elif inspect.isfunction(value):
            parts.append(f"- `.{member}{signature_of(value)}`: {' '.join(inspect.getdoc(value).split())}")
    head, items = [part for part in parts if not part.startswith("- ")], [part for part in parts if part.startswith("- ")]
    return "\n\n".join(head + (["\n".join(items)] if items else []))


def function_text(name, function):
    return f"### `{name}{signature_of(function)}`\n\n{text_of(function)}"


def reference():
    parts = [function_text(f"lynx.{name}", getattr(lynx, name)) for name in FUNCTIONS]
    parts += [function_text("lynx.memory.estimate", lynx.memory.estimate),
              f"### `lynx.memory.Estimate`\n\n{text_of(lynx.memory.Estimate)}"]
    return "\n\n".join(parts + [class_text(name) for name in CLASSES])


def with_reference(page):
    """The page with the reference of the imported package in its place."""
    head, found, rest = page.partition(BEGIN)
    if not found or END not in rest:
        raise SystemExit(f"error: the page has no place for the reference, between '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n\n{reference()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: reference.py PAGE")
    place = pathlib.Path(sys.argv[1])
    place.write_text(with_reference(place.read_text(encoding="utf-8")), encoding="utf-8")
