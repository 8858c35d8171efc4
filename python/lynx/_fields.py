"""Fields of jobs and machines: from nested dicts, dotted paths and short names to the text of a file."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from . import _lynx
from ._errors import Error

# Short names that people use -> the fields of a job that they mean.
_ALIASES = {"batch": "train.globalBatch"}


def _camel(name: str) -> str:
    """"global_batch" as the files write it: "globalBatch"."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


@functools.cache
def job_fields() -> dict[str, str]:
    """All fields of a job file by path, with their meanings."""
    return dict(_lynx.fields_of_jobs())


def field_path(name: str) -> str:
    """The path of the job's field with this path or short name: "model.seq" for "seq", "train.globalBatch" for
    "global_batch"."""
    if name in _ALIASES:
        return _ALIASES[name]
    path = ".".join(_camel(part) for part in name.split("."))
    paths = job_fields()
    if "." in path or path in paths or any(known.startswith(path + ".") for known in paths):
        return path
    found = [known for known in paths if known.endswith("." + path)]
    if len(found) > 1:
        raise Error(f"{name}: several fields have this name; give one of {', '.join(found)}, as **{{'{found[0]}': ...}}",
                    field=name)
    return found[0] if found else path


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested maps as one map with dotted paths. Values that are None are left out."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = prefix + ".".join(_camel(part) for part in str(name).split("."))
        if isinstance(value, Mapping):
            flat.update(flattened(value, path + "."))
        elif value is not None:
            flat[path] = value
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of flattened. A word for a whole section gives way to the section's fields."""
    root: dict[str, Any] = {}
    for path, value in flat.items():
        *sections, name = path.split(".")
        place = root
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[name] = value
    return root


def _plain(value: Any) -> Any:
    """A value of JSON's kinds: numbers of other libraries become Python's, and paths become texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.item() if hasattr(value, "item") else str(value)


def file_text(kind: str, values: Mapping[str, Any]) -> str:
    """The text of a file of this kind: JSON, which is YAML too."""
    return json.dumps({"apiVersion": "lynx/v1", "kind": kind, **_plain(values)}, ensure_ascii=False, indent=1)


def override_text(path: str, value: Any) -> str:
    """A change as `lynxctl --set` takes it: "train.steps=20"."""
    value = _plain(value)
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, list):
        value = " ".join(str(item) for item in value)
    return f"{path}={value}"
