#!/usr/bin/env python3
"""Writes the Grafana dashboards in grafana/ from description.py. Usage: generate.py [--check]. With --check, it writes nothing,
and the exit code is 1 if a file differs from what would be written."""

import itertools
import json
import pathlib
import sys

from description import DASHBOARDS

HERE = pathlib.Path(__file__).resolve().parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
HEIGHT = {"stat": 4, "graph": 8, "table": 8}
MOST = {"stat": 8, "graph": 3, "table": 1}  # largest number of panels side by side
# The smallest upper end of an axis, by unit. Without it, the axis of these units would reach 100 if all values are 0.
LEAST_TOP = {"short": 1, "percentunit": 0.1}
COLUMNS = {"job_id": "Job", "job_name": "Name", "queue": "Queue", "layout": "Layout", "device": "Device"}  # label: title
VARIABLES = {
    "server": ("Server", "label_values(lynx_jobs, instance)"),
    "job_name": ("Job", 'label_values(lynx_job_target_steps{instance=~"$server"}, job_name)'),
    "job_id": ("Id", 'label_values(lynx_job_target_steps{instance=~"$server",job_name=~"$job_name"}, job_id)'),
}


def panels_of(dashboard):
    """All panels of a dashboard in order, as pairs (title of the row, panel)."""
    return [(title, panel) for title, panels in dashboard["rows"] for panel in panels]


def target(number, query, legend, kind):
    made = {"datasource": DATASOURCE, "expr": query, "legendFormat": legend or "__auto", "refId": chr(ord("A") + number),
            "editorMode": "code", "range": kind == "graph", "instant": kind != "graph"}
    return dict(made, format="table") if kind == "table" else made


def axis(unit, options):
    """An axis begins at 0. Exceptions: a `free` axis has no bounds, because only the shape of the curve matters. A `signed`
    axis has 0 in its middle."""
    if options.get("free"):
        return {}, {}
    top = {"axisSoftMax": LEAST_TOP[unit]} if unit in LEAST_TOP else {}
    return ({}, {**top, "axisSoftMin": -LEAST_TOP[unit]}) if options.get("signed") else ({"min": 0}, top)


def field_config(kind, unit, options):
    defaults = {"unit": unit, "color": {"mode": "palette-classic"}}
    if kind == "graph":
        bounds, soft = axis(unit, options)
        defaults.update(bounds)
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "showPoints": "never", "spanNulls": False,
                              "fillOpacity": 30 if options.get("stack") else 5,
                              "stacking": {"mode": "normal" if options.get("stack") else "none", "group": "A"}, **soft}
    if "none" in options:
        defaults["noValue"] = options["none"]
    if "words" in options:
        defaults["mappings"] = [{"type": "value", "options": {
            str(value): {"text": text, "color": color, "index": i} for i, (value, text, color) in enumerate(options["words"])}}]
    if "red_above" in options:
        defaults["color"] = {"mode": "thresholds"}
        defaults["thresholds"] = {"mode": "absolute", "steps": [{"color": "green", "value": None},
                                                                {"color": "red", "value": options["red_above"]}]}
    if "link" in options:
        defaults["links"] = [{"title": "The job", "url": f"/d/{options['link']}?var-job_name=${{__data.fields.job_name}}"
                                                         "&var-job_id=${__data.fields.job_id}&${__url_time_range}"}]
    return {"defaults": defaults, "overrides": []}


def panel_json(number, panel, place):
    kind, title, unit, queries, options = panel
    made = {"id": number, "type": {"graph": "timeseries"}.get(kind, kind), "title": title, "datasource": DATASOURCE, "gridPos": place,
            # A query without its own legend gets the title of the panel as its legend. In a table it gets no legend.
            "targets": [target(i, query, legend or ("" if kind == "table" else title), kind) for i, (query, legend) in enumerate(queries)],
            "fieldConfig": field_config(kind, unit, options)}
    if kind == "graph":
        named = any(legend for _, legend in queries)
        made["options"] = {"legend": {"displayMode": "list", "placement": "right" if options.get("many") else "bottom", "showLegend": named},
                           "tooltip": {"mode": "multi", "sort": "desc"}}
    elif kind == "stat":
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                           "graphMode": "none", "textMode": "name" if options.get("name") else "auto"}
    else:
        made["transformations"] = [{"id": "organize", "options": {
            "excludeByName": {"Time": True, "Value": True}, "indexByName": {name: i for i, name in enumerate(COLUMNS)},
            "renameByName": COLUMNS}}]
    return made


def lines(row):
    """Splits the panels of a row into lines. The panels of a line are of one kind, and there are as few lines as possible."""
    for kind, same in itertools.groupby(row, key=lambda panel: panel[0]):
        same = list(same)
        count = -(-len(same) // MOST[kind])
        ends = [round(len(same) * i / count) for i in range(count + 1)]
        yield from (same[begin:end] for begin, end in zip(ends, ends[1:]))


def layout(dashboard):
    panels, y, number = [], 0, 0
    for title, row in dashboard["rows"]:
        number += 1
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        y += 1
        for line in lines(row):
            height = HEIGHT[line[0][0]]
            for i, panel in enumerate(line):
                begin, end = WIDTH * i // len(line), WIDTH * (i + 1) // len(line)
                number += 1
                panels.append(panel_json(number, panel, {"x": begin, "y": y, "w": end - begin, "h": height}))
            y += height
    return panels


def variable(name):
    label, query = VARIABLES[name]
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": "StandardVariableQuery"}, "refresh": 2, "sort": 1, "includeAll": name != "job_name",
            "multi": False, "allValue": ".*", "current": {}, "options": [], "hide": 0}


def dashboard_json(dashboard):
    datasource = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {},
                  "options": [], "refresh": 1, "hide": 0, "includeAll": False, "multi": False}
    return {"uid": dashboard["uid"], "title": dashboard["title"], "description": dashboard["about"], "tags": ["lynx"],
            "schemaVersion": 38, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "10s", "timezone": "",
            "time": {"from": "now-1h", "to": "now"}, "annotations": {"list": []},
            "links": [{"title": "Lynx", "type": "dashboards", "tags": ["lynx"], "asDropdown": False, "includeVars": True,
                       "keepTime": True, "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}],
            "templating": {"list": [datasource, *(variable(name) for name in dashboard["variables"])]},
            "panels": layout(dashboard)}


def files():
    """The text of every dashboard file. The key is the path."""
    return {HERE / "grafana" / f"{dashboard['uid']}.json": json.dumps(dashboard_json(dashboard), indent=1) + "\n"
            for dashboard in DASHBOARDS}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: generate.py [--check]")
    wrong = []
    for path, text in files().items():
        if sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                wrong.append(path.name)
        else:
            path.write_text(text)
    if wrong:
        sys.exit(f"not what description.py says, run dashboards/generate.py: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
