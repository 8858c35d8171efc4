#!/usr/bin/env python3
"""The problems that other planners ship, planned by Lynx: its own plans beside theirs.

    bench/peers.py [--pinned] [--only NAME]...

Each problem is a cluster file and a job file of bench/peers/. Lynx plans it three times: with the peer's plan pinned; among the plans that the
peer can express; and among everything. Exits with 1 if a plan of Lynx's is slower than the peer's by Lynx's prediction, or if a file
cannot be planned. The peers' own times come from running their code (docs/measurements/planner.md); this program does not need it.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "bench" / "peers"
CTL = pathlib.Path("build/bin/lynxctl")
# Values for `recompute: auto` to leave out. The peer stores everything, or recomputes attention or whole layers alike
# everywhere.
PARTS = "full-keep-collectives uniform block balanced no-overlap heu offload"
STORES = {"recompute": "none"}
PLAIN = {"parallel.zero": "none", "parallel.schedule": "1f1b", **STORES}


def pins(tp, pp, dp, micro_batch, **more):
    sizes = {"parallel.tp": tp, "parallel.pp": pp, "parallel.dp": dp, "train.microBatch": micro_batch}
    return {**sizes, "parallel.schedule": "1f1b", **{name.replace("__", "."): value for name, value in more.items()}}


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    job: str
    cluster: str
    plan: dict  # the peer's plan, as fields of a job
    seconds: float  # seconds that this plan takes, by the peer's own model
    space: dict  # with this value of --for, Lynx plans in this space
    engine: str = "lynx"  # the value of --for that means this peer's engine


PROBLEMS = (
    Problem("calculon-megatron-22b", "calculon-megatron-22b", "calculon-a100",
            pins(2, 2, 2, 1, recompute="selective", parallel__zero="optimizer", parallel__virtualStages=24, parallel__schedule="interleaved",
                 parallel__sequenceParallel="off"), 0.8484, {"recomputeOptions.forbid": PARTS}),
    Problem("calculon-gpt3-175b", "calculon-gpt3-175b", "calculon-a100",
            pins(4, 16, 1, 1, recompute="selective", parallel__virtualStages=6, parallel__schedule="interleaved", parallel__sequenceParallel="on"), 11.5848, {"recomputeOptions.forbid": PARTS}),
    Problem("galvatron-llama2-7b", "galvatron-llama2-7b", "galvatron-a100",
            pins(1, 1, 8, 2, recompute="block", recomputeOptions__layers=20, parallel__zero="weights"), 1.0860,
            {"recomputeOptions.forbid": PARTS.replace("block ", ""), "parallel.cp": 1}, "any"),
    Problem("metis-gpt", "metis-gpt", "metis-a100", pins(1, 1, 8, 4, recompute="none", parallel__zero="none"), 4.7079,
            {**PLAIN, "train.microBatch": 4}),
    Problem("sailor-opt-350m", "sailor-opt-350m", "sailor-a100",
            pins(4, 1, 8, 8, recompute="none", parallel__zero="none", parallel__sequenceParallel="off"), 8.0973,
            {**PLAIN, "parallel.sequenceParallel": "off"}),
    Problem("simumax-llama3-70b-a100", "simumax-llama3-70b-12-layers", "simumax-a100-pcie",
            pins(1, 2, 4, 1, recompute="none", parallel__zero="optimizer"), 7.8842, {**PLAIN, "parallel.zero": "optimizer"}),
    Problem("simumax-llama3-70b-b200", "simumax-llama3-70b-12-layers", "simumax-b200",
            pins(2, 1, 4, 2, recompute="none", parallel__zero="optimizer", parallel__sequenceParallel="on"), 1.3010, {**PLAIN, "parallel.zero": "optimizer"}),
)


def planned(problem, engine, fields):
    """The plan as lynxctl's JSON has it. RuntimeError: no plan."""
    command = [CTL, "plan", "-f", FOLDER / f"{problem.job}.yaml", "--cluster", FOLDER / f"{problem.cluster}-cluster.yaml", "--for", engine, "-o", "json"]
    for name, value in fields.items():
        command += ["--set", f"{name}={value}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"{problem.name} is not planned: {ran.stderr.strip()}")
    return json.loads(ran.stdout)


def seconds(plan):
    return int(plan["stepNs"]) / 1e9


def text_of(plan):
    """The plan in a few words, as `tp4 dp2 mb1 vp6 zero-optimizer`."""
    layout = plan["layout"]
    sizes = [f"{name}{layout[name]}" for name in ("tp", "pp", "dp", "cp") if int(layout.get(name, 1)) > 1] + [f"mb{plan['microBatch']}"]
    words = [f"vp{layout['virtualStages']}"] if int(layout.get("virtualStages", 1)) > 1 else []
    words += ["sp"] if layout.get("sequenceParallel") else []
    for field, usual in (("zero", "ZERO_STAGE_NONE"), ("weave", "WEAVE_MODE_OFF")):
        if layout.get(field, usual) != usual:
            words.append(layout[field].replace("_STAGE_", "-").replace("_MODE_", "-").lower())
    if layout["schedule"] not in ("SCHEDULE_KIND_ONE_FORWARD_ONE_BACKWARD", "SCHEDULE_KIND_INTERLEAVED"):
        words.append(layout["schedule"].removeprefix("SCHEDULE_KIND_").lower())
    if layout.get("rankOrder") == "RANK_ORDER_TP_DP_PP":
        words.append("order-tp-dp-pp")
    return " ".join([*sizes, *words, plan["mode"].removeprefix("RECOMPUTE_MODE_").lower()])


def pinned(problem):
    return planned(problem, "any", {**problem.plan, "parallel.weave": "off"})


def compare(problem):
    """The row of a problem, and whether Lynx is at least as fast as the peer by its own prediction."""
    theirs = pinned(problem)
    alike = planned(problem, problem.engine, {**problem.space, "parallel.weave": "off"})
    free = planned(problem, "any", {})
    row = [problem.name, text_of(theirs), f"{problem.seconds:.3f}", f"{seconds(theirs):.3f}"]
    for plan in (alike, free):
        row += [text_of(plan), f"{seconds(plan):.3f}", f"{seconds(theirs) / seconds(plan):.3f}"]
    return row, max(seconds(alike), seconds(free)) <= seconds(theirs)


def compare_all(problems):
    behind = []
    print("| problem | the peer's plan | by the peer (s) | by Lynx (s) | Lynx, of the peer's kind | (s) | ratio | Lynx | (s) | ratio |")
    print("|---|---|---:|---:|---|---:|---:|---|---:|---:|")
    for problem in problems:
        try:
            row, ahead = compare(problem)
        except RuntimeError as error:
            print(error)
            ahead = False
        else:
            print("| " + " | ".join(row) + " |", flush=True)
        if not ahead:
            behind.append(problem.name)
    if behind:
        print(f"slower than the peer's plan, or not planned: {', '.join(behind)}")
    return 1 if behind else 0


def main():
    names = [problem.name for problem in PROBLEMS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=names, help="this problem only; may be repeated")
    parser.add_argument("--pinned", action="store_true", help="plan the peers' plans only, which takes a second")
    arguments = parser.parse_args()
    problems = [problem for problem in PROBLEMS if not arguments.only or problem.name in arguments.only]
    if arguments.pinned:
        for problem in problems:
            print(f"{problem.name}: {problem.seconds:.3f} s by the peer, {seconds(pinned(problem)):.3f} s by Lynx", flush=True)
        return 0
    return compare_all(problems)


if __name__ == "__main__":
    sys.exit(main())
