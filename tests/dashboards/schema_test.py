#!/usr/bin/env python3
"""Checks the dashboards against Grafana's own schema: the types of its Foundation SDK, which npm fetches. Exit code 77
and a reason if npm cannot fetch them."""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/packages"))

from debian_tree import run_tests  # noqa: E402

from libraries import fetch

TYPES = pathlib.Path(__file__).resolve().parent / "schema"
FETCHED = 240  # seconds in which npm must fetch the types
COMPILER = ("--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--skipLibCheck")


def constants(board):
    """(type, value) of all parts of a dashboard: panels' queries, options and fields, and the dashboard without the queries."""
    board = copy.deepcopy(board)
    for outer in board["panels"]:
        for panel in [outer, *outer.get("panels", [])]:
            yield from (("Query", query) for query in panel.pop("targets", []))
            if panel["type"] == "row":
                continue
            yield f'Options["{panel["type"]}"]', panel.get("options", {})
            custom = panel["fieldConfig"]["defaults"].get("custom")
            if custom is not None:
                yield f'Fields["{panel["type"]}"]', custom
    yield "Board", board


class SchemaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="lynx-schema-")
        cls.addClassCleanup(directory.cleanup)
        cls.folder = pathlib.Path(directory.name)
        fetch(TYPES, cls.folder, FETCHED)
        cls.boards = {path.name: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards/grafana").glob("*.json"))}

    def wrong(self, boards):
        """The errors that the TypeScript compiler reports for these dashboards."""
        lines = ['import type { Board, Fields, Options, Query } from "./loose";']
        for name, board in boards.items():
            for kind, value in constants(board):
                lines.append(f"export const c{len(lines)}: {kind} = {json.dumps(value)}; // {name}")
        (self.folder / "boards.ts").write_text("\n".join(lines))
        done = subprocess.run(["node", "node_modules/typescript/bin/tsc", *COMPILER, "boards.ts"], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, stdin=subprocess.DEVNULL, env=dict(os.environ, NO_COLOR="1"))
        return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]

    def test_all_are_as_grafana_has_them(self):
        self.assertEqual(len(self.boards), 5)
        self.assertEqual(self.wrong(self.boards), [])

    def test_what_grafana_does_not_know_is_found(self):
        def first(board, kind):
            return next(panel for outer in board["panels"] for panel in [outer, *outer.get("panels", [])] if panel["type"] == kind)

        for change in (lambda board: first(board, "stat")["options"].update(colorMode="values"),
                       lambda board: first(board, "stat")["gridPos"].update(width=3),
                       lambda board: first(board, "stat")["targets"][0].update(exp="up"),
                       lambda board: first(board, "timeseries")["fieldConfig"]["defaults"]["custom"].update(lineWidht=3),
                       lambda board: first(board, "timeseries")["options"].update(legend={"displayMode": "lists"}),
                       lambda board: board.update(graphTooltip=7),
                       lambda board: board["templating"]["list"][0].update(hide="no")):
            board = copy.deepcopy(self.boards["lynx-cluster.json"])
            change(board)
            self.assertEqual(len([line for line in self.wrong({"changed": board}) if ": error TS" in line]), 1)


if __name__ == "__main__":
    run_tests()
