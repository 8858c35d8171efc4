"""What the planner answers: plans, comparisons, explanations, what-if, sweeps."""

from __future__ import annotations

import html
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Union, overload

from . import _lynx
from ._cluster import Cluster, ClusterLike, cluster_of
from ._errors import Error, Infeasible
from ._fields import field_path
from ._job import Job, JobLike, job_of, read_text
from ._records import Record, Table, as_records, in_seconds

ProfileLike = Union[str, "os.PathLike[str]", Mapping[str, Any]]

_FRAME_HEIGHT = 900  # pixels of a plan's page in a notebook
_MIN_OPT_SECONDS, _MAX_OPT_SECONDS = 0.01, 86400
_MAX_AT_ONCE = 8  # plans of a sweep that are made at the same time; each may hold the programs of thousands of devices
_CLUSTER_KEYS = ("nodes", "devices_per_node", "device_memory", "host_memory")


def _solver() -> str:
    """The path of the exact solver, which is a program of its own; where it is expected if it is not there."""
    package = pathlib.Path(__file__).parent
    places = [os.environ.get("LYNX_OPT", ""), str(package / "lynx-opt"), str(package.parents[1] / "bin" / "lynx-opt"),
              shutil.which("lynx-opt") or "", "/usr/lib/lynx/lynx-opt"]
    return next((place for place in places if place and os.access(place, os.X_OK)), places[-1])


def _profile_texts(profile: ProfileLike | None) -> dict[str, Any]:
    if profile is None:
        return {}
    if isinstance(profile, Mapping):
        return {"profile": json.dumps(profile), "profile_name": "profile"}
    return {"profile": read_text(profile, "profile"), "profile_name": os.fspath(profile)}


def _check_seconds(opt_seconds: float) -> None:
    if not _MIN_OPT_SECONDS <= opt_seconds <= _MAX_OPT_SECONDS:
        raise Error(f"opt_seconds {opt_seconds}: expected seconds from {_MIN_OPT_SECONDS} to {_MAX_OPT_SECONDS}",
                    field="opt_seconds")


def _request(job: Job, cluster: Cluster, *, profile: ProfileLike | None = None, opt: bool = False, opt_seconds: float = 10,
             keep_node_order: bool = False, any_framework: bool = False) -> _lynx.Request:
    _check_seconds(opt_seconds)
    return _lynx.Request(**job._texts(ranks=cluster.devices or 1), **cluster._texts(), **_profile_texts(profile), exact=opt,
                         exact_seconds=opt_seconds, solver=_solver(), keep_node_order=keep_node_order,
                         any_framework=any_framework)


class Plan:
    """A plan: when and where every activation is stored or recomputed, and what a step then takes.

    It prints as `lynxctl plan` does. In a notebook it shows its page, with the timeline of the step.

    Its attributes: `step_seconds`, `tokens_per_step`, `tokens_per_second`, `layout` (such as "tp8 pp2 dp1"), `ranks`, `tp`,
    `pp`, `dp`, `cp`, `ep`, `micro_batch`, `microbatches`, `samples`, `recompute`, `recompute_hidden_seconds`,
    `recompute_exposed_seconds`, `stall_seconds`, `measured_profile`, `digest`; `stages`, a table with the layers, times and
    bytes of each pipeline stage; `policies`, a table of what each run of layers stores and recomputes."""

    def __init__(self, made: _lynx.MadePlan, request: _lynx.Request | None = None) -> None:
        self._made, self._request = made, request
        values = in_seconds(json.loads(made.attributes()))
        self.stages = Table(in_seconds(stage) for stage in values.pop("stages"))
        self.policies = Table(values.pop("policies"))
        self._values = values

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"a plan has no attribute '{name}'; it has {', '.join(values)}, stages, policies and memory")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    @property
    def memory(self) -> Table:
        """The bytes of a rank of each stage when its memory is fullest, by kind: weights, gradients, optimizer states, stored
        and recomputed activations, gradients of activations, workspace, packing; `total_bytes`, and `limit_bytes` (0 = no
        known limit).

        Error: a server has made the plan, and the machine is not known."""
        table = Table()
        for stage, kinds in zip(self.stages, json.loads(self._made.memory())):
            row = Record(stage=stage.stage, layers=stage.layers, ranks=stage.ranks)
            row.update({f"{kind.replace(' ', '_')}_bytes": count for kind, count in kinds.items()})
            row["total_bytes"], row["limit_bytes"] = sum(kinds.values()), stage.get("limit_bytes", 0)
            table.append(row)
        table.columns = list(table[0]) if table else []
        return table

    def json(self) -> str:
        """What `lynxctl plan -o json` prints: the whole plan, with its programs."""
        return self._made.json()

    def html(self) -> str:
        """The page that `lynxctl plan --html` writes. It needs no network."""
        return self._made.html()

    def trace(self) -> str:
        """The predicted step as a Chrome trace (for Perfetto), as `lynxctl plan --trace` writes it."""
        return self._made.trace()

    def actions(self, rank: int) -> str:
        """The program of a rank, one action a line, as `lynxctl plan --actions RANK` prints it."""
        return self._made.actions(rank)

    def export(self, format: str, version: str = "") -> Export:
        """The plan for another framework ("megatron", "deepspeed" or "torchtitan"), as `lynxctl export` writes it. If the
        framework does not have this plan's policies or schedule, the job is planned again with what it has. `version`: of the
        framework; "" is the newest that is known.

        Error: the framework cannot run the job, or the version is not known. Infeasible: it cannot fit."""
        if self._request is None:
            raise Error("export() needs the job and the machine: plan the same job with lynx.plan(job, cluster)",
                        code="failed_precondition")
        return Export(_lynx.export(self._request, format, version))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file: the page for .html, else the plan as JSON."""
        text = self.html() if os.fspath(path).endswith((".html", ".htm")) else self.json()
        pathlib.Path(path).write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self._made.table()

    def __repr__(self) -> str:
        return (f"<lynx.Plan {self.layout}, micro-batch {self.micro_batch}, recompute {self.recompute}: "
                f"step {self.step_seconds:.4g} s, {self.tokens_per_second} tokens/s>")

    def _repr_html_(self) -> str:
        if self._request is None:
            return f"<pre>{html.escape(str(self))}</pre>"
        return (f'<iframe title="Plan {html.escape(self.layout)}" style="width:100%;height:{_FRAME_HEIGHT}px;border:0" '
                f'srcdoc="{html.escape(self.html())}"></iframe>')


class Export(Record):
    """A plan for another framework: `format`, `targetVersion`, `files` (each with name and text), and `notExpressed`,
    sentences about what the framework cannot express. It prints the files' texts, as `lynxctl export` does."""

    def __init__(self, texts: _lynx.ExportTexts) -> None:
        super().__init__(as_records(json.loads(texts.json)))
        self._texts = texts

    def json(self) -> str:
        """What `lynxctl export -o json` prints."""
        return self._texts.json

    @property
    def missing(self) -> str:
        """What the framework cannot express, as a text."""
        return self._texts.missing

    def save(self, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Writes the files, and not_expressed.txt, into the folder, which is made if it is not there. Returns their paths."""
        place = pathlib.Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, text in [*((file.name, file.text) for file in self["files"]), ("not_expressed.txt", self.missing)]:
            (place / name).write_text(text, encoding="utf-8")
            paths.append(place / name)
        return paths

    def __str__(self) -> str:
        return "".join(file.text for file in self["files"])


class FrameworkPlan(Record):
    """The fastest plan that another framework can run, by estimates; it prints as `lynxctl plan --framework` does.

    Its values are those of `lynxctl plan --framework NAME -o json`; `fits` says whether it fits the devices.
    """

    def __init__(self, answer: _lynx.FrameworkAnswer) -> None:
        super().__init__(as_records(json.loads(answer.json)))
        self._answer = answer

    def json(self) -> str:
        """What `lynxctl plan --framework NAME -o json` prints."""
        return self._answer.json

    @property
    def step_seconds(self) -> float:
        """The predicted time of a step."""
        return float(self["step"]) / 1e9

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all devices in a second."""
        return float(self["tokensPerSecond"])

    def __str__(self) -> str:
        return self._answer.table

    def __repr__(self) -> str:
        return self._answer.table


class Answer(Table):
    """Plans beside each other, one a row: kind, name, fits, layout, step_seconds, tokens_per_second, mfu, peak_bytes,
    throughput (as a multiple of the plan with which it is compared), note. It prints as lynxctl does."""

    def __init__(self, texts: _lynx.AnswerTexts) -> None:
        rows = []
        for plan in json.loads(texts.json)["plans"]:
            rows.append(Record({_snake(name): value for name, value in in_seconds(
                {name.replace("Ns", "_ns"): value for name, value in plan.items()}).items()}))
        super().__init__(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))
        self._texts = texts

    def json(self) -> str:
        """What lynxctl prints with -o json."""
        return self._texts.json

    def csv(self) -> str:
        """What lynxctl prints with -o csv."""
        return self._texts.csv

    def __str__(self) -> str:
        return self._texts.table

    def __repr__(self) -> str:
        return self._texts.table


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


@overload
def plan(job: JobLike, cluster: ClusterLike | None = None, *, framework: Literal["lynx"] = "lynx",
         profile: ProfileLike | None = None, opt_seconds: float = 10, any_framework: bool = False,
         keep_node_order: bool = False) -> Plan: ...
@overload
def plan(job: JobLike, cluster: ClusterLike | None = None, *, framework: str, profile: ProfileLike | None = None,
         opt_seconds: float = 10, any_framework: bool = False,
         keep_node_order: bool = False) -> Plan | FrameworkPlan: ...
def plan(job: JobLike, cluster: ClusterLike | None = None, *, framework: str = "lynx", profile: ProfileLike | None = None,
         opt_seconds: float = 10, any_framework: bool = False,
         keep_node_order: bool = False) -> Plan | FrameworkPlan:
    """The fastest plan that the planner finds for the job on the machine, as `lynxctl plan`.

    `job` and `cluster` are a Job and a Cluster, or what these take; without a cluster, as many stated CPU cores as the job
    has ranks. `profile`: a measured profile, as `lynxctl nodes -o json` prints it (a file, or its values). `opt_seconds`: with
    recompute "opt", about how long the exact solver may take for a stage, at each of at most three tries. `any_framework`:
    allow what Lynx's own engine cannot run. `keep_node_order`: ranks fill the nodes of a mixed machine in the file's order.
    `framework`: estimate the fastest plan of "megatron", "deepspeed" or another framework instead; the result is then a
    FrameworkPlan.

    Infeasible: the job cannot fit. Error: the job or the machine is wrong. Other threads go on while it plans. Ctrl-C ends
    the call at once; the search itself goes on to its end, unheard."""
    asked = _request(job_of(job), cluster_of(cluster), profile=profile, opt_seconds=opt_seconds,
                     keep_node_order=keep_node_order, any_framework=any_framework or framework != "lynx")
    if framework != "lynx":
        return FrameworkPlan(_lynx.plan_of_framework(asked, framework))
    return Plan(_lynx.plan(asked), asked)


def compare(job: JobLike, cluster: ClusterLike | None = None, *, opt: bool = False, **options: Any) -> Answer:
    """All recomputation policies in the layout of the job's own plan, as `lynxctl compare`. `opt`: also the exact choice, with
    what is proven of it; this takes time. `options` are those of plan, without framework. Raises what plan raises."""
    return _compared(_lynx.compare, _request(job_of(job), cluster_of(cluster), opt=opt, **options))


def explain(job: JobLike, cluster: ClusterLike | None = None, **options: Any) -> Answer:
    """Why the plan is as it is: layouts that were rejected, and what more of each resource would bring, as `lynxctl explain`.
    `options` and errors are those of compare."""
    return _compared(_lynx.explain, _request(job_of(job), cluster_of(cluster), **options))


def _compared(question: Callable[[_lynx.Request], _lynx.AnswerTexts], asked: _lynx.Request) -> Answer:
    try:
        return Answer(question(asked))
    except Error as error:
        if error.code == "failed_precondition":
            _lynx.plan(asked)  # if the job cannot fit, raises Infeasible, which has more details
        raise


def whatif(job: JobLike, cluster: ClusterLike | None = None, *, set: Mapping[str, Any] | None = None, nodes: int | str = "",
           with_cluster: ClusterLike | None = None, **options: Any) -> Answer:
    """The plan beside the plan after a change, as `lynxctl whatif`.

    `set`: fields of the job and their new values ({"seq": 8192}). `nodes`: another number of nodes, or "+2" for two more.
    `with_cluster`: another machine. `options` are those of plan, without framework. A plan that does not fit is a row whose
    `fits` is False. Error: the job, the machine or a change is wrong."""
    base, machine = job_of(job), cluster_of(cluster)
    other = machine if with_cluster is None else cluster_of(with_cluster)
    ranks = machine.devices or 1
    now = _request(base, machine, **options)
    changed = base.replace(set)
    if base._text is None and with_cluster is not None:
        ranks = other.devices or ranks
    texts = {**changed._texts(ranks=ranks), **other._texts()}
    after = _lynx.Request(**texts, **_profile_texts(options.get("profile")),
                          exact_seconds=options.get("opt_seconds", 10), solver=_solver(),
                          keep_node_order=options.get("keep_node_order", False),
                          any_framework=options.get("any_framework", False))
    return Answer(_lynx.what_if(now, after, str(nodes)))


def sweep(job: JobLike, cluster: ClusterLike | None, values: Mapping[str, Sequence[Any]], *,
          progress: Callable[[int, int], None] | None = None, **options: Any) -> Table:
    """Plans the job with every combination of the values, and returns a table with one row for each.

    `values`: lists by field: fields of the job ("model.seq", or short: "seq"), `nodes`, `devices_per_node`, `device_memory`
    and `host_memory` of the machine, and "cluster" for other machines. A row has the values, `fits`, `step_seconds`,
    `tokens_per_second`, `layout`, `micro_batch`, `recompute`, `peak_bytes` (of the fullest rank, with the model's states) and
    `note`: why there is no plan. Several plans are made at once. `progress(done, of)` is called after each. `options` are
    those of plan, without framework.

    Error: a name is no field, or has no values. A combination that is wrong or cannot fit is a row whose `fits` is False."""
    if not values:
        raise Error("sweep needs values: {\"seq\": [2048, 4096], \"nodes\": [1, 2]}")
    lists = {name: [items] if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__") else list(items)
             for name, items in values.items()}
    for name, items in lists.items():
        if not items:
            raise Error(f"{name}: the list of its values is empty", field=name)
        if name not in _CLUSTER_KEYS and name != "cluster":
            field_path(name)
    base, machine = job_of(job), cluster_of(cluster)
    rows = [Record(zip(lists, combination)) for combination in itertools.product(*lists.values())]
    pool = ThreadPoolExecutor(max_workers=max(1, min(_MAX_AT_ONCE, os.cpu_count() or 1, len(rows))))
    try:
        tasks = [pool.submit(_sweep_row, base, machine, row, options) for row in rows]
        for done, task in enumerate(tasks, start=1):
            task.result()
            if progress is not None:
                progress(done, len(tasks))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    results = ("fits", "step_seconds", "tokens_per_second", "layout", "micro_batch", "recompute", "peak_bytes", "note")
    return Table(rows, columns=[*lists, *results])


def _sweep_row(job: Job, cluster: Cluster, row: Record, options: Mapping[str, Any]) -> None:
    """Plans one combination, and adds the result to its row."""
    given = dict(row)
    try:
        machine = cluster_of(given.pop("cluster")) if "cluster" in given else cluster
        changes = {name: given.pop(name) for name in _CLUSTER_KEYS if name in given}
        machine = Cluster(machine, **changes) if changes else machine
        asked = _request(job.replace(given), machine, **options)
        made = Plan(_lynx.plan(asked), asked)
    except Infeasible as error:
        row.update(fits=False, note=f"does not fit: {error.reason}; the smallest change that fits: {error.suggestion}")
        return
    except Error as error:
        row.update(fits=False, note=str(error))
        return
    peak = max(stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes + stage.arena_bytes for stage in made.stages)
    row.update(fits=True, step_seconds=made.step_seconds, tokens_per_second=made.tokens_per_second, layout=made.layout,
               micro_batch=made.micro_batch, recompute=made.recompute, peak_bytes=peak, note="")
