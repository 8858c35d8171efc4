#!/usr/bin/env python3
"""Draws the pictures of docs/concepts.md from real plans: concept_pictures.py LYNXCTL OUT_DIR. They show what the planner
predicts for examples/gpt-6.7b.yaml on A100s over PCIe, under 1F1B without sequence parallelism, so that a layer has four
windows. Only one picture shows passes side by side. The same planner draws the same bytes; a test compares them with those in docs/images."""

import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
JOB = ("-f", ROOT / "examples/gpt-6.7b.yaml", "--cluster", ROOT / "examples/clusters/a100-40gb-pcie.yaml",
       "--set", "parallel.schedule=1f1b", "--set", "parallel.sequenceParallel=off")
ONE_BY_ONE = ("--set", "parallel.weave=off")
PAIRS = ("--set", "parallel.weave=pairs", "--set", "train.microBatch=1")  # a pair has the samples of one microbatch of the job
STAGE, MICROBATCH, LAYER = 1, 3, 12  # the pass to draw; any pass in the middle of the step looks the same
# The tensors that the backward pass of a layer reads, in the order in which the forward pass makes them.
TENSORS = ("ln1", "qkv", "probs", "probs_dropped", "context", "mask1", "x1", "ln2", "fc1", "gelu", "mask2")
WIDTH, LEFT = 860, 96
STALL_MS = 4  # a gap longer than this is a stall; waits for collectives are shorter

STYLE = """<style>
  svg { --page: #ffffff; --ink: #1f2328; --faint: #59636e; --line: #d8dee4; --on: #ffffff;
        --forward: #0969da; --backward: #1a7f37; --weight: #57ab5a; --hidden: #bc4c00; --exposed: #cf222e; --transfer: #6e7781; --stored: #0969da; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --ink: #e6edf3; --faint: #9198a1; --line: #2d333b; --on: #0d1117;
          --forward: #58a6ff; --backward: #56d364; --weight: #3fb950; --hidden: #f0883e; --exposed: #ff7b72; --transfer: #9198a1; --stored: #58a6ff; }
  }
  text { font: 11px system-ui, sans-serif; fill: var(--ink); }
  .faint { fill: var(--faint); font-size: 10px; } .title { font-weight: 600; font-size: 12px; } .on { fill: var(--on); font-size: 10px; }
  .page { fill: var(--page); } .idle { fill: none; stroke: var(--line); }
  .forward { fill: var(--forward); } .backward { fill: var(--backward); } .weight { fill: var(--weight); } .hidden { fill: var(--hidden); }
  .exposed { fill: var(--exposed); } .transfer { fill: var(--transfer); } .stored { fill: var(--stored); }
</style>"""


class Svg:
    def __init__(self, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
                      f"<title>{html.escape(title)}</title>", STYLE, f'<rect class="page" width="{WIDTH}" height="{height}"/>']

    def rect(self, kind, x, y, width, height, said=""):
        self.parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.6):.1f}" height="{height}"'
                          + (f"><title>{html.escape(said)}</title></rect>" if said else "/>"))

    def text(self, x, y, said, kind="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(said)}</text>')

    def legend(self, y, entries):
        x = LEFT
        for kind, said in entries:
            self.rect(kind, x, y - 9, 10, 10)
            self.text(x + 14, y, said, "faint")
            x += 30 + 5.6 * len(said)

    def write(self, path):
        path.write_text("\n".join([*self.parts, "</svg>", ""]))


class Plan:
    """The plan of one policy: its page, and the spans of its simulated step, by stage."""

    def __init__(self, lynxctl, policy, passes=ONE_BY_ONE):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.json"
            done = subprocess.run([lynxctl, "plan", *JOB, *passes, "--set", f"recompute={policy}", "--trace", trace], check=True, capture_output=True, text=True)
            self.text = done.stdout
            self.spans = [event for event in json.loads(trace.read_text())["traceEvents"]
                          if event["ph"] == "X" and not event["name"].endswith("recomputation")]

    def stage(self, stage):
        return [span for span in self.spans if span["pid"] == stage + 1]

    def step_ms(self):
        return max(span["ts"] + span["dur"] for span in self.spans) / 1000


KINDS = {"forward": "forward", "backward": "backward", "weight": "weight", "hidden": "hidden", "exposed": "exposed"}


def layer_pass(plan, kind, before, microbatches):
    """Returns the part of the step in which layer LAYER runs these microbatches: begin, end and spans. `kind`: F or B.
    `before`: the layer that runs just before LAYER."""
    spans = plan.stage(STAGE)
    begin, end = (max(span["ts"] + span["dur"] for span in spans if re.match(rf"{STAGE}{kind}({'|'.join(map(str, microbatches))}):{layer}\.", span["name"]))
                  for layer in (before, LAYER))
    return begin, end, [s for s in spans if s["ts"] + s["dur"] > begin + 1 and s["ts"] < end - 1]


def draw_spans(svg, y, lanes, excerpt, scale):
    """Draws an excerpt of a step: a row for each compute lane, and a row for the transfers of the tensor-parallel ranks."""
    begin, end, spans = excerpt
    for lane in range(lanes):
        svg.text(LEFT - 8, y + 32 * lane + 18, "computes" if lanes == 1 else f"strand {lane + 1}", "faint", "end")
        svg.rect("idle", LEFT, y + 32 * lane, (end - begin) * scale, 28)
    transfers = y + 32 * lanes
    svg.text(LEFT - 8, transfers + 14, "transfers", "faint", "end")
    svg.text(LEFT + (end - begin) * scale + 6, y + 18, f"{(end - begin) / 1000:.1f} ms")
    for span in spans:
        first, last = max(span["ts"], begin), min(span["ts"] + span["dur"], end)
        x, width = LEFT + (first - begin) * scale, (last - first) * scale
        lane = span["tid"] % 100
        if lane < lanes and span["cat"] in KINDS:
            svg.rect(KINDS[span["cat"]], x, y + 32 * lane, width, 28, span["name"])
            label = re.sub(r"^.*?:\d+\.", "", span["name"]).split("(")[0]
            if width > 5.6 * len(label) + 6:
                svg.text(x + width / 2, y + 32 * lane + 18, label, "on", "middle")
        elif lane >= lanes and span["cat"] == "tensor":
            svg.rect("transfer", x, transfers, width, 20, span["name"])
            if width > 60:
                svg.text(x + width / 2, transfers + 14, "all-reduce", "on", "middle")


def draw_overlap(plans, path):
    """Draws one layer's backward pass under both policies, on one scale: compute above, communication below."""
    svg = Svg(232, "The backward pass of one layer, with full recomputation and as Lynx plans it")
    excerpts = [(said, layer_pass(plan, "B", LAYER + 1, [MICROBATCH])) for said, plan in plans]
    scale = (WIDTH - LEFT - 70) / max(end - begin for _, (begin, end, _) in excerpts)
    for row, (said, excerpt) in enumerate(excerpts):
        svg.text(LEFT, 24 + 96 * row, said, "title")
        draw_spans(svg, 34 + 96 * row, 1, excerpt, scale)
    svg.legend(222, [("backward", "backward: input gradients"), ("weight", "weight gradients"), ("exposed", "recomputation that takes time"),
                     ("hidden", "recomputation behind a transfer"), ("idle", "waits")])
    svg.write(path)


def draw_weaving(lynx, woven, path):
    """Draws one layer's forward passes of the same samples: as one microbatch, and as two that run side by side."""
    svg = Svg(264, "The forward passes of one layer, one pass at a time and two side by side")
    one = layer_pass(lynx, "F", LAYER - 1, [MICROBATCH])
    two = layer_pass(woven, "F", LAYER - 1, [2 * MICROBATCH, 2 * MICROBATCH + 1])
    scale = (WIDTH - LEFT - 70) / max(end - begin for begin, end, _ in (one, two))
    svg.text(LEFT, 24, "one pass at a time", "title")
    draw_spans(svg, 34, 1, one, scale)
    svg.text(LEFT, 120, "two side by side, each with half of the samples", "title")
    draw_spans(svg, 130, 2, two, scale)
    svg.legend(254, [("forward", "forward"), ("hidden", "recomputation of an earlier microbatch, behind a transfer"), ("idle", "waits")])
    svg.write(path)


def draw_pipeline(plans, path):
    """Draws for the whole step which microbatch each stage works on, under both policies on one scale."""
    svg = Svg(286, "One step of four pipeline stages, with full recomputation and as Lynx plans it")
    scale = (WIDTH - LEFT - 60) / max(plan.step_ms() for _, plan in plans)
    for row, (said, plan) in enumerate(plans):
        top = 34 + 124 * row
        svg.text(LEFT, top - 10, said, "title")
        svg.text(LEFT + plan.step_ms() * scale + 6, top + 48, f"{plan.step_ms() / 1000:.2f} s")
        for stage in range(4):
            y = top + 24 * stage
            svg.text(LEFT - 8, y + 14, f"stage {stage}", "faint", "end")
            svg.rect("idle", LEFT, y, plan.step_ms() * scale, 20)
            slots = {}
            for span in plan.stage(stage):
                match = re.match(rf"{stage}([FBWR])(\d+):", span["name"])
                if match and span["cat"] in KINDS and span["cat"] != "hidden":
                    start, end = span["ts"] / 1000, (span["ts"] + span["dur"]) / 1000
                    parts = slots.setdefault(("forward" if match.group(1) == "F" else "backward", match.group(2)), [[start, end]])
                    # The rectangle of a pass includes its waits for collectives. A stall splits the rectangle into two.
                    if start - parts[-1][1] > STALL_MS:
                        parts.append([start, end])
                    parts[-1][1] = max(parts[-1][1], end)
            for (kind, microbatch), parts in slots.items():
                for start, end in parts:
                    x, width = LEFT + start * scale, (end - start) * scale
                    svg.rect(kind, x, y, width - 0.8, 20, f"{kind} of microbatch {microbatch}: {end - start:.1f} ms")
                    if width > 8:
                        svg.text(x + width / 2, y + 14, microbatch, "on", "middle")
    svg.legend(278, [("forward", "forward of a microbatch"), ("backward", "backward, with what it recomputes on the way"), ("idle", "stalls: waits for a neighbour stage")])
    svg.write(path)


def placements(plan):
    """Returns the policy of layer LAYER: tensor -> "stored", "critical", or the name of a window such as "b2"."""
    for first, last, said in re.findall(r"^stage \d+, layers? (\d+)(?:-(\d+))?: (.*)$", plan.text, re.MULTILINE):
        if int(first) <= LAYER <= int(last or first):
            found = {}
            for part in said.split("; "):
                names = part.removesuffix(" stored").split() if part.endswith(" stored") else part.partition(": ")[2].split()
                found.update({name: "stored" if part.endswith(" stored") else part.partition(":")[0] for name in names})
            return {"full": dict.fromkeys(TENSORS, "critical"), "none": dict.fromkeys(TENSORS, "stored")}.get(said, found)
    sys.exit(f"error: the plan has no layer {LAYER}")


def draw_tensors(plans, path):
    """Draws what happens to each tensor of a layer."""
    svg = Svg(172, "What is stored and what is recomputed of one layer")
    width = (WIDTH - LEFT - 10) / len(TENSORS)
    for place, name in enumerate(TENSORS):
        svg.text(LEFT + width * (place + 0.5), 20, name.replace("_", " "), "faint", "middle")
    for row, (said, plan) in enumerate(plans):
        y = 30 + 38 * row
        svg.text(LEFT - 8, y + 18, said, "", "end")
        where = placements(plan) if plan else dict.fromkeys(TENSORS, "stored")
        if set(where) != set(TENSORS):
            sys.exit(f"error: the plan speaks of {sorted(where)}, not of {sorted(TENSORS)}")
        for place, name in enumerate(TENSORS):
            kind = {"stored": "stored", "critical": "exposed"}.get(where[name], "hidden")
            svg.rect(kind, LEFT + width * place + 1, y, width - 2, 28)
            svg.text(LEFT + width * (place + 0.5), y + 18, {"stored": "stored", "critical": "again"}.get(where[name], where[name]), "on", "middle")
    svg.legend(162, [("stored", "kept until the backward pass"), ("exposed", "made again, on the critical path"),
                     ("hidden", "made again in a window of a forward (f1) or backward pass (b2, o1)")])
    svg.write(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    lynxctl, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    full, lynx = Plan(lynxctl, "full"), Plan(lynxctl, "auto")
    draw_tensors([("store all", None), ("full", full), ("Lynx", lynx)], folder / "tensors.svg")
    draw_overlap([("full recomputation", full), ("Lynx", lynx)], folder / "overlap.svg")
    draw_weaving(lynx, Plan(lynxctl, "auto", PAIRS), folder / "weaving.svg")
    draw_pipeline([("full recomputation", full), ("Lynx", lynx)], folder / "pipeline.svg")


if __name__ == "__main__":
    main()
