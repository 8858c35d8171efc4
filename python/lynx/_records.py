"""Values that print well: a record, and a table of records."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


class Record(dict[str, Any]):
    """A dict whose values are also attributes: `stage["layers"]` and `stage.layers` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no value is called '{name}'; there are {', '.join(self)}") from None


def as_records(value: Any) -> Any:
    """The value with each dict in it as a Record."""
    if isinstance(value, dict):
        return Record({key: as_records(item) for key, item in value.items()})
    if isinstance(value, list):
        return [as_records(item) for item in value]
    return value


def in_seconds(values: dict[str, Any]) -> Record:
    """The record with durations in seconds: "step_ns" becomes "step_seconds"."""
    return Record({name.removesuffix("_ns") + "_seconds" if name.endswith("_ns") else name:
                   value / 1e9 if name.endswith("_ns") else value for name, value in values.items()})


def size_text(count: int) -> str:
    """A number of bytes for people: "1.5 GiB"."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _cell(value: Any, column: str) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


class Table(list[Record]):
    """A list of records with the same columns. It prints as a table, in notebooks as one of the page.

    `columns` are the names of the columns, in their order.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), columns: Sequence[str] | None = None) -> None:
        super().__init__(Record(row) for row in rows)
        found = dict.fromkeys(key for row in self for key in row)
        self.columns: list[str] = list(columns) if columns is not None else list(found)

    def column(self, name: str) -> list[Any]:
        """The values of one column; None in a row that lacks it."""
        if name not in self.columns:
            raise KeyError(f"no column is called '{name}'; there are {', '.join(self.columns)}")
        return [row.get(name) for row in self]

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame. ImportError says so if pandas is not installed (Debian: python3-pandas)."""
        try:
            import pandas  # type: ignore[import]
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: apt-get install python3-pandas, or pip install pandas") from error
        return pandas.DataFrame([dict(row) for row in self], columns=self.columns)

    def _cells(self) -> list[list[str]]:
        return [[_cell(row.get(column), column) for column in self.columns] for row in self]

    def __str__(self) -> str:
        lines = [self.columns, *self._cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells in self._cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
