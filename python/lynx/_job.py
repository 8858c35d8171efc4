"""lynx.Job: what to train, as a job file says it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, Union

from . import _lynx
from ._errors import Error
from ._fields import field_path, file_text, flattened, nested, override_text

JobLike = Union["Job", str, "os.PathLike[str]", Mapping[str, Any]]

# Fields that a job's text needs, but on which no plan depends. They are filled in for plans of jobs made in Python. A submitted
# job must have them.
_FOR_PLANS: dict[str, Any] = {"name": "job", "data.path": "data", "train.steps": 1}


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file. Error: it cannot be read."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Error(f"{what}: cannot read '{os.fspath(path)}': {reason}", code="not_found", file=os.fspath(path)) from error


def _model_fields(model: Any) -> dict[str, Any]:
    """The fields for `model=`: a preset's name, a config.json or its folder, or the section's fields."""
    if isinstance(model, Mapping):
        return flattened(model, "model.")
    text = os.fspath(model)
    path = pathlib.Path(text)
    if path.is_dir():
        path = path / "config.json"
    if isinstance(model, os.PathLike) or path.suffix == ".json" or (path.is_file() and text not in _lynx.preset_names()):
        return {"model.config": str(path.absolute())}
    return {"model.preset": text}


class Job:
    """What to train.

    `source` is the path of a job file, the text of one (with a line end in it), a dict of its sections, another Job, or left
    out. Fields by keyword replace what the source says, or make a job of their own:

        lynx.Job("job.yaml", seq=8192)
        lynx.Job(model="gpt-22b", seq=4096, batch=64, parallel={"tp": 8}, recompute="full")
        lynx.Job(model="path/to/config.json", batch=64, **{"model.dtype": "bfloat16"})

    A keyword is a section with a dict, a path with dots, or the last part of a path if only one field ends with it: `seq` is
    model.seq, `tp` is parallel.tp, `global_batch` (or `batch`) is train.globalBatch. `model` is also the name of a preset
    (lynx.models()), or a Hugging Face config.json or its folder.

    For plans, a job that was made in Python may leave out name, data.path and train.steps; if it leaves out resources.ranks,
    it uses all devices of the machine. A job file must have what lynxctl asks for.

    Error: the source cannot be read, or several fields end with a keyword. Wrong fields and values are found when the job is
    planned or `check` is called."""

    def __init__(self, source: JobLike | None = None, /, *, model: Any = None, **fields: Any) -> None:
        self._text: str | None = None  # the text of a file; None: the job is made of _fields
        self._name = "<job>"
        self._folder = os.getcwd()
        self._fields: dict[str, Any] = {}
        self._overrides: dict[str, Any] = {}
        if isinstance(source, Job):
            self._text, self._name, self._folder = source._text, source._name, source._folder
            self._fields, self._overrides = dict(source._fields), dict(source._overrides)
        elif isinstance(source, Mapping):
            self._fields = {path: value for path, value in flattened(source).items() if path not in ("apiVersion", "kind")}
        elif isinstance(source, str) and "\n" in source:
            self._text, self._name = source, "job"
        elif isinstance(source, (str, os.PathLike)):
            self._text, self._name = read_text(source, "job file"), os.fspath(source)
            self._folder = str(pathlib.Path(source).absolute().parent)
        elif source is not None:
            raise TypeError(f"a job is made of a path, a text, a dict or a Job, not of {type(source).__name__}")
        changes: dict[str, Any] = _model_fields(model) if model is not None else {}
        for name, value in fields.items():
            path = field_path(name)
            changes.update(flattened({path: value}))
        self._change(changes)

    def _change(self, changes: Mapping[str, Any]) -> None:
        target = self._fields if self._text is None else self._overrides
        for path, value in changes.items():
            if value is None:
                continue
            for other in ("model.preset", "model.config"):  # a preset replaces a config, and a config replaces a preset
                if path in ("model.preset", "model.config") and other != path:
                    target.pop(other, None)
            target.pop(path, None)  # removed first, so that the field that is given last is also the last in the dict
            target[path] = value

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Job:
        """The same job with other values: `job.replace(seq=8192)` or `job.replace({"model.seq": 8192})`."""
        return Job(self, **{**(dict(changes) if changes else {}), **fields})

    def check(self) -> str:
        """The whole job with all defaults filled in, as the text of a job file. Error: the job is not valid."""
        texts = self._texts(ranks=1)
        return _lynx.complete_job(texts["job"], texts["job_name"], texts["folder"], texts["overrides"])

    def _texts(self, ranks: int | None = None) -> dict[str, Any]:
        """The job's part of a request. `ranks`: for a job that leaves its number of ranks open; None: nothing is filled in."""
        text = self._text
        if text is None:
            fields = dict(self._fields)
            if ranks is not None:
                for path, value in {**_FOR_PLANS, "resources.ranks": ranks}.items():
                    fields.setdefault(path, value)
            text = file_text("TrainingJob", nested(fields))
        overrides = [override_text(path, value) for path, value in self._overrides.items()]
        return {"job": text, "job_name": self._name, "folder": self._folder, "overrides": overrides}

    def __repr__(self) -> str:
        given = self._fields if self._text is None else self._overrides
        parts = [] if self._text is None else [repr(self._name)]
        parts += [f"{path}={value!r}" for path, value in given.items()]
        return f"lynx.Job({', '.join(parts)})"


def job_of(job: JobLike) -> Job:
    """The job itself, or a Job made of it."""
    return job if isinstance(job, Job) else Job(job)


def models() -> list[str]:
    """The names of the models that a job can name with `model=`."""
    return _lynx.preset_names()
