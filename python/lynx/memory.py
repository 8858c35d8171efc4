"""lynx.memory: how much memory a training job needs, rank by rank, and why."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from . import _lynx
from ._cluster import ClusterLike, cluster_of
from ._errors import Infeasible
from ._job import Job, JobLike
from ._planning import FrameworkPlan, Plan, _request, plan
from ._records import Record, Table, size_text


# The kinds of Plan.memory.
_KINDS = ("weights", "weight_gradients", "optimizer_states", "stored_activations", "recomputed_activations",
          "activation_gradients", "workspace", "packing")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The memory of each rank, by kind. It prints as a table with its reasons.

    `ranks`: a table with a row for each pipeline stage, whose ranks all need the same: `weights_bytes`, `gradients_bytes`,
    `optimizer_bytes`, `stored_bytes` and `recomputed_bytes` (activations), `workspace_bytes` (gradients of activations, what
    single ops use, and gaps), `total_bytes`, `limit_bytes` (0 = no known limit). `fits`: None if no limit is known. `layout`,
    `micro_batch` and `recompute` are those of the plan. `suggestion`: the smallest change that makes the job fit, "" if it
    fits. `why`: sentences."""

    title: str
    ranks: Table
    fits: bool | None
    layout: str
    micro_batch: int
    recompute: str
    suggestion: str
    why: list[str]

    @property
    def total_bytes(self) -> int:
        """What the fullest rank needs."""
        return max(int(row.total_bytes) for row in self.ranks)

    def __str__(self) -> str:
        return "\n".join([self.title, "", str(self.ranks), "", *self.why]) + "\n"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        import html
        reasons = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.why)
        return f"<p>{html.escape(self.title)}</p>{self.ranks._repr_html_()}<ul>{reasons}</ul>"


def estimate(model: str | os.PathLike[str] | Mapping[str, Any] | Job, cluster: ClusterLike | None = None, *,
             framework: str = "lynx", batch: int | None = None, **fields: Any) -> Estimate:
    """The memory that training needs on each rank, by kind, and whether it fits.

    `model` is a Hugging Face config.json or its folder, the name of a preset, the fields of the job's section `model`, or a
    whole Job. `cluster` is the machine, all of whose devices are used (without one: a single rank, without a limit). `fields`
    are fields of the job, as for Job: `seq`, `tp`, `recompute`, `micro_batch` and so on; what is left open the planner
    chooses, for the shortest step. `batch`: samples of a step; by default one for each device. `framework`: estimate what
    another framework needs.

        print(lynx.memory.estimate("config.json", "h100", seq=8192, batch=64))

    If the job does not fit, the bytes are those of its fastest plan with everything recomputed, as if devices had room, and
    `suggestion` says what would make it fit. Error: the model, the machine or a field is wrong."""
    machine = cluster_of(cluster)
    if isinstance(model, Job):
        job = model.replace({**fields, **({"batch": batch} if batch is not None else {})})
    else:
        job = Job(model=model, batch=batch or max(1, machine.devices), **fields)
    name = _title(model)
    if framework != "lynx":
        answer = plan(job, machine, framework=framework)
        assert isinstance(answer, FrameworkPlan)
        return _framework_estimate(name, answer)
    asked = _request(job, machine)
    try:
        return _estimate(name, Plan(_lynx.plan(asked), asked), None)
    except Infeasible as error:
        # Layers and modules are of the job's own policy alone.
        full = {"recompute": "full", "recomputeOptions.modules": "", "recomputeOptions.layers": 0}
        open_choice = _request(job.replace(full), machine).without_memory_limit()
        return _estimate(name, Plan(_lynx.plan(open_choice), open_choice), error, _limit(machine))


def _title(model: Any) -> str:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    return "the model" if isinstance(model, Mapping) else "the job"


def _limit(machine: Any) -> int:
    """The memory of the smallest device; 0 = not known."""
    return min((int(group.memory_bytes) for group in machine.groups), default=0)


def _estimate(name: str, made: Plan, error: Infeasible | None, limit: int = 0) -> Estimate:
    rows = []
    for row in made.memory:
        kinds = {kind: row[f"{kind}_bytes"] for kind in _KINDS}
        rows.append(Record(stage=row.stage, layers=row.layers, ranks=len(row.ranks), weights_bytes=kinds["weights"],
                           gradients_bytes=kinds["weight_gradients"], optimizer_bytes=kinds["optimizer_states"],
                           stored_bytes=kinds["stored_activations"], recomputed_bytes=kinds["recomputed_activations"],
                           workspace_bytes=kinds["activation_gradients"] + kinds["workspace"] + kinds["packing"],
                           total_bytes=row.total_bytes, limit_bytes=row.limit_bytes or limit))
    table = Table(rows)
    fits = False if error is not None else None if not any(row.limit_bytes for row in rows) else True
    fullest = max(rows, key=lambda row: int(row.total_bytes))
    why = _reasons(made, fullest)
    suggestion = ""
    if error is not None:
        suggestion = error.suggestion
        why.append(f"It does not fit: {error.reason}.")
        if suggestion:
            why.append(f"The smallest change that fits: {suggestion}.")
    return Estimate(_headline(name, made.layout, made.micro_batch, fits, fullest), table, fits, made.layout, made.micro_batch,
                    made.recompute, suggestion, why)


def _headline(name: str, layout: str, micro_batch: int, fits: bool | None, fullest: Record) -> str:
    limit = int(fullest.limit_bytes)
    verdict = {True: "fits", False: "does not fit", None: "no limit is known"}[fits]
    of = f" of {size_text(limit)}" if limit else ""
    return f"{name}, {layout}, micro-batch {micro_batch}: {size_text(fullest.total_bytes)}{of} on the fullest rank, {verdict}"


def _reasons(made: Plan, row: Record) -> list[str]:
    """Sentences about the fullest rank's bytes."""
    states = row.weights_bytes + row.gradients_bytes + row.optimizer_bytes
    degrees = (("tensor parallelism", made.tp), ("pipeline", made.pp))
    sharing = [f"{degree} ranks ({name})" for name, degree in degrees if degree > 1]
    split = f", of the model's weights divided over {' and '.join(sharing)}" if sharing else ""
    zero = next((word for word in made.layout.split() if word.startswith("zero-")), "")
    shared = (f" The {made.dp * made.cp} data-parallel ranks share out the {zero.removeprefix('zero-').split('-')[0]} (ZeRO)."
              if zero else "")
    return [
        f"Stage {row.stage} (layers {row.layers}) is the fullest: {size_text(states)} of states and "
        f"{size_text(row.total_bytes - states)} of activations and workspace.",
        f"Weights take {size_text(row.weights_bytes)}{split}, their gradients {size_text(row.gradients_bytes)}, "
        f"and the optimizer {size_text(row.optimizer_bytes)} (two moments of AdamW in 32 bits; for 16-bit "
        f"weights also a 32-bit copy).{shared}",
        f"Activations: {size_text(row.stored_bytes)} are stored for the backward passes of the microbatches in flight, and "
        f"{size_text(row.recomputed_bytes)} of recomputed ones are there at the peak (recompute {made.recompute}).",
        f"Workspace: {size_text(row.workspace_bytes)} are gradients of activations, what single operations use while they run, "
        "and gaps between buffers.",
    ]


def _framework_estimate(name: str, answer: FrameworkPlan) -> Estimate:
    limit = int(answer["deviceMemory"])
    rows = []
    for stage, rank in enumerate(answer["memory"]):
        total = sum(rank[kind] for kind in ("weights", "gradients", "optimizer", "activations", "transient", "workspace"))
        rows.append(Record(stage=stage, weights_bytes=rank["weights"], gradients_bytes=rank["gradients"],
                           optimizer_bytes=rank["optimizer"], stored_bytes=rank["activations"],
                           recomputed_bytes=rank["transient"], workspace_bytes=rank["workspace"], total_bytes=total,
                           limit_bytes=limit))
    fullest = max(rows, key=lambda row: int(row.total_bytes))
    fits = bool(answer["fits"]) if limit else None
    modules = f" ({answer['recomputeModules']})" if "recomputeModules" in answer else ""
    why = [f"An estimate for {answer['framework']}, recompute {answer['recompute']}{modules}: recomputed_bytes are tensors that "
           "live only while a layer or the loss runs."]
    return Estimate(_headline(name, answer["layout"], answer["microBatch"], fits, fullest), Table(rows), fits, answer["layout"],
                    answer["microBatch"], answer["recompute"], "", why)
