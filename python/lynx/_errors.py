"""What can go wrong: exceptions with the place of a mistake."""

from __future__ import annotations

import re

# "FILE:LINE:COLUMN: FIELD: TEXT", "FILE: FIELD: TEXT" or "--set FIELD=VALUE: TEXT", as the readers of files write it.
_PLACE = re.compile(r"(?P<file>[^\n]+?):(?P<line>\d+):(?P<column>\d+): (?P<rest>.*)", re.DOTALL)
_MADE = re.compile(r"<(?:job|cluster)>(?::\d+:\d+)?: ")
_FIELD = re.compile(r"(?P<field>[A-Za-z][\w.\[\]]*): |(?P<stated>[A-Za-z]\w*\.[\w.\[\]]+) ")
_SET = re.compile(r"(?:--set )(?P<field>[\w.]+)=?")


class Error(ValueError):
    """A job, a machine or a call is wrong; the text says what, where, and what to do.

    `code` is a short word for the kind of error, such as "invalid_argument", "not_found" or "unavailable". `file`, `line` and
    `column` are the place in a file, counted from 1, and `field` is the field's path, such as "model.seq". Each of them is None
    where it is not known. A job that was made in Python has no lines, so its errors have a field alone.
    """

    code: str = "invalid_argument"
    file: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __init__(self, message: str, *, code: str = "invalid_argument", file: str | None = None, line: int | None = None,
                 column: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.code, self.file, self.line, self.column, self.field = code, file, line, column, field


class Infeasible(Error):
    """The job cannot fit the machine's memory.

    `reason` says what lacks, and `suggestion` is the smallest change that makes it fit, as a field of the job and its value
    ("" if none is known). `needed_bytes` is what a rank of pipeline stage `stage` needs for activations with everything
    recomputed, and `limit_bytes` what it has."""

    def __init__(self, reason: str, suggestion: str = "", stage: int = 0, needed_bytes: int = 0, limit_bytes: int = 0) -> None:
        text = f"this job cannot fit: {reason}"
        if suggestion:
            text += f"\nthe smallest change that fits: {suggestion}"
        super().__init__(text, code="infeasible")
        self.reason, self.suggestion = reason, suggestion
        self.stage, self.needed_bytes, self.limit_bytes = stage, needed_bytes, limit_bytes


class Unavailable(Error):
    """No server that leads can be reached, or it did not answer in time. The same call may succeed later."""


def error_of(code: str, message: str) -> Error:
    """The exception for a status of the C++ code. The extension calls it."""
    code = code.lower()
    kind = Unavailable if code in ("unavailable", "deadline_exceeded") else Error
    file = line = column = field = None
    rest, placed = message, False
    made = _MADE.match(message)
    if made:  # the text was made of a dict, so its line numbers have no meaning for the caller
        message = rest = message[made.end():]
        placed = True
    elif place := _PLACE.match(message):
        file, line, column, rest = place["file"], int(place["line"]), int(place["column"]), place["rest"]
        placed = True
    elif named := _SET.match(message):
        field = named["field"]
    if field is None and code == "invalid_argument":
        field = _field_in(rest, placed)
    return kind(message, code=code, file=file, line=line, column=column, field=field)


def _field_in(text: str, placed: bool) -> str | None:
    """The field at the beginning of an error's text. Without a place before it, only a known field counts: the text may begin
    with the name of something else, also of the file."""
    if placed:
        named = _FIELD.match(text)
        return (named["field"] or named["stated"]) if named else None
    from ._fields import job_fields  # imported here, because that module imports this one
    return next((word for word in text.split(": ")[:2] if word in job_fields()), None)


def infeasible_of(reason: str, suggestion: str, stage: int, needed: int, limit: int) -> Infeasible:
    """The exception for a job that cannot fit. The extension calls it."""
    return Infeasible(reason, suggestion, stage, needed, limit)
