"""lynx.Client: a cluster that runs Lynx, through its server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Union

from . import _lynx
from ._errors import Error, Unavailable
from ._job import JobLike, job_of
from ._planning import Plan
from ._records import Record, Table, as_records

_POLL_SECONDS = 0.3
_PATIENCE_SECONDS = 120  # how long a follower looks for a server that was lost
_MAX_LINES = 1000
FINAL_STATES = ("succeeded", "failed", "cancelled")


class JobRecord(Record):
    """A job as the server knows it, with the fields of the protocol's message Job: `id`, `spec`, `state` ("queued",
    "planning", "starting", "running", "succeeded", "failed" or "cancelled"), `reason`, `progress` (steps_done, loss,
    tokens_per_second ...), `plan`, `placement`, `checkpoint_path` and others. Times are nanoseconds since 1970, and messages
    that are not set are None."""

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self["spec"]["name"]) if self["spec"] else ""

    @property
    def ended(self) -> bool:
        """True if the job will not change any more."""
        return self["state"] in FINAL_STATES

    def __repr__(self) -> str:
        progress = self["progress"]
        steps = f", step {progress.steps_done} of {progress.steps_total}" if progress and progress.steps_total else ""
        return f"<lynx job {self['id']} {self.name}: {self['state']}{steps}>"

    def __str__(self) -> str:
        return repr(self)


JobName = Union[str, JobRecord]


def _id(job: JobName) -> str:
    return str(job["id"]) if isinstance(job, JobRecord) else job


def _record(values: dict[str, Any]) -> JobRecord:
    return JobRecord(as_records(values))


class Update(Record):
    """A change of a job: `job`, a JobRecord, and `events`, which are new since the update before."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(job=_record(values["job"]), events=as_records(values["events"]))


class Watch:
    """The changes of a job, first its present state. It ends when the job has ended.

        for update in client.watch(job):
            print(update.job)
        async for update in client.watch(job):
            ...

    If the server is lost, the watch looks for it, and for the servers beside it, for two minutes. Error: there is no such
    job. Unavailable: no server was found. `close` ends the watch early, as does `with client.watch(job) as watch`. A loop
    that is left early ends its watch when the watch is forgotten."""

    def __init__(self, watch: _lynx.JobWatch) -> None:
        self._watch = watch

    def close(self) -> None:
        """Ends the watch."""
        self._watch.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Update]:
        return self

    def __next__(self) -> Update:
        values = self._watch.next()
        if values is None:
            raise StopIteration
        return Update(values)

    def __aiter__(self) -> AsyncIterator[Update]:
        return self

    async def __anext__(self) -> Update:
        try:
            values = await asyncio.get_running_loop().run_in_executor(None, self._watch.next)
        except asyncio.CancelledError:
            self.close()  # otherwise the thread would wait for the next change
            raise
        if values is None:
            raise StopAsyncIteration
        return Update(values)


class Client:
    """A lynx-server, or several of which one leads.

    `server` is HOST:PORT, or several with commas or as a list: a call goes to the one that leads, and follows it if another
    takes over. `context` is the name of a context of lynxctl, or a context file; it has the server's address, its authority
    and a token. `ca_file` and `token_file` replace these two. What is left out is found as lynxctl finds it: in the environment
    (LYNX_SERVER, LYNX_CONTEXT, LYNX_CA_FILE, LYNX_TOKEN_FILE), the context in use, the local cluster on this machine, and last
    127.0.0.1:7470. `no_context` ignores all contexts, and LYNX_CONTEXT, LYNX_CA_FILE and LYNX_TOKEN_FILE. `timeout` is the
    time for each call, in seconds.

    Nothing is called before the first method. A method takes a job as its id, a unique beginning of it, its name, or a
    JobRecord. Error: the call is wrong or refused (`code` says how: "not_found", "permission_denied" ...). Unavailable: no
    server that leads answers. Several threads may use a client; their calls take turns."""

    def __init__(self, server: str | Sequence[str] | None = None, context: str | os.PathLike[str] | None = None, *,
                 ca_file: str | os.PathLike[str] = "", token_file: str | os.PathLike[str] = "", no_context: bool = False,
                 timeout: float = 10) -> None:
        if timeout <= 0:
            raise Error(f"timeout {timeout}: expected seconds above 0", field="timeout")
        if no_context and context:
            raise Error(f"no_context: a context is named ({os.fspath(context)}): leave one of the two out", field="no_context")
        addresses = server if isinstance(server, str) else ",".join(server or ())
        self._service = _lynx.Service(addresses, os.fspath(context or ""), os.fspath(ca_file), os.fspath(token_file),
                                      no_context, timeout)

    @property
    def server(self) -> str:
        """The server's address, or several with commas."""
        return self._service.server

    def submit(self, job: JobLike, *, key: str = "", **fields: Any) -> JobRecord:
        """Submits a job; it survives any crash once the call returns. `fields` replace fields of the job. Submitting again
        with the same `key` gives the same job, so a call whose answer was lost can be repeated.

        Error: the job is not valid, or the server refuses it."""
        texts = job_of(job).replace(**fields)._texts()
        answer = self._service.submit(texts["job"], texts["job_name"], texts["folder"], texts["overrides"], key)
        return _record(answer["job"])

    def get(self, job: JobName) -> JobRecord:
        """The job's present state."""
        return _record(self._service.get(_id(job), False))

    def list(self, *, limit: int = 100, states: Sequence[str] = (), user: str = "") -> Table:
        """The newest jobs, the newest first: id, name, state, steps_done, steps_total, loss, tokens_per_second, owner, reason.
        `states`: only jobs in these states. `user`: only this user's jobs."""
        rows = []
        for values in self._service.list(limit, list(states), user)["jobs"]:
            job = _record(values)
            progress = job.progress or Record(steps_done=0, steps_total=0, loss=None, tokens_per_second=None)
            rows.append(Record(id=job.id, name=job.name, state=job.state, steps_done=progress.steps_done,
                               steps_total=progress.steps_total, loss=progress.loss,
                               tokens_per_second=progress.tokens_per_second, owner=job.owner, reason=job.reason))
        return Table(rows, columns=["id", "name", "state", "steps_done", "steps_total", "loss", "tokens_per_second", "owner",
                                    "reason"])

    def cancel(self, job: JobName, *, reason: str = "", checkpoint: bool = False, grace_seconds: float = 0) -> JobRecord:
        """Cancels a job. `checkpoint`: it first writes one, for at most `grace_seconds` (0: about as long as that should
        take). A job that has ended does not change."""
        return _record(self._service.cancel(_id(job), reason, checkpoint, grace_seconds))

    def hold(self, job: JobName, *, reason: str = "") -> JobRecord:
        """Holds a job: it waits, or writes a checkpoint and then waits, until it is released."""
        return _record(self._service.hold(_id(job), reason))

    def release(self, job: JobName) -> JobRecord:
        """Releases a job that is held."""
        return _record(self._service.release(_id(job)))

    def watch(self, job: JobName) -> Watch:
        """The job's changes, for `for` and `async for`."""
        return Watch(self._service.watch(_id(job)))

    def wait(self, job: JobName) -> JobRecord:
        """Waits until the job has ended, and returns it."""
        last = self.get(job)
        with self.watch(last) as updates:
            for update in updates:
                last = update.job
        return last

    def events(self, job: JobName, *, follow: bool = False) -> Iterator[Record]:
        """The job's events, the oldest first: sequence, time_unix_ns, state, kind, reason. `follow`: go on until the job has
        ended."""
        found = _record(self._service.get(_id(job), True))
        return self._events(found, follow)

    def _events(self, found: JobRecord, follow: bool) -> Iterator[Record]:
        last = 0
        for event in found["events"]:
            last = event.sequence
            yield event
        if not follow:
            return
        with self.watch(found) as updates:
            for update in updates:
                for event in update.events:
                    if event.sequence > last:
                        last = event.sequence
                        yield event

    def logs(self, job: JobName, *, rank: int = -1, lines: int = 100, attempt: int = 0,
             follow: bool = False) -> Iterator[Record]:
        """The last lines that the job's ranks wrote: rank, generation (the attempt), text, sequence. `rank`: only this
        rank's. `lines`: as many for each rank, at most 1000. `attempt`: only of this attempt. `follow`: go on, in the order
        in which the server received them, until the job has ended; a server that is lost meanwhile is looked for during two
        minutes."""
        ident = str(self.get(job).id)  # another job may take the name
        answer = self._service.logs(ident, rank, lines, attempt, 0)
        return self._logs(ident, rank, attempt, answer, follow)

    def _logs(self, ident: str, rank: int, attempt: int, answer: dict[str, Any], follow: bool) -> Iterator[Record]:
        if not follow:
            yield from as_records(answer["lines"])
            return
        after = 0
        lost_at = None
        while True:
            for line in sorted(as_records(answer["lines"]), key=lambda line: int(line.sequence)):
                after = max(after, line.sequence)
                yield line
            if not answer["lines"]:
                if answer["state"] in FINAL_STATES:
                    return
                time.sleep(_POLL_SECONDS)
            try:
                answer = self._service.logs(ident, rank, _MAX_LINES, attempt, after)
                lost_at = None
            except Unavailable:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > _PATIENCE_SECONDS:
                    raise
                answer = {"lines": [], "state": ""}

    def metrics(self, job: JobName) -> Table:
        """How the job's steps went, the oldest first, in at most 512 rows: generation, first_step, steps (of the row),
        time_unix_ns, loss, tokens_per_second, step_seconds, and for models with experts expert_skew, expert_dropped_ratio,
        expert_in_rounds_ratio. `validation_loss` is that of an evaluation within the row's steps, else None."""
        curves = as_records(self._service.curves(_id(job)))
        rows = []
        for point in curves.steps:
            row = Record(point)
            row["step_seconds"] = row.pop("step_ns") / 1e9
            row["validation_loss"] = next((evaluation.loss for evaluation in reversed(curves.evaluations) if
                                           point.first_step < evaluation.steps_done <= point.first_step + point.steps), None)
            rows.append(row)
        return Table(rows, columns=["generation", "first_step", "steps", "time_unix_ns", "loss", "tokens_per_second",
                                    "step_seconds", "expert_skew", "expert_dropped_ratio", "expert_in_rounds_ratio",
                                    "validation_loss"])

    def plan(self, job: JobName) -> Plan:
        """The job's plan. Its page, its memory and its programs need the machine for which it was made, which the server
        tells once it has traced a step. Error: the job has no plan yet."""
        return Plan(self._service.plan(_id(job)))

    def nodes(self) -> Table:
        """The cluster's nodes, with the fields of the protocol's message Node."""
        return Table(as_records(self._service.nodes()["nodes"]))

    def queues(self) -> Table:
        """The queues, with their weights, quotas and numbers of jobs."""
        return Table(as_records(self._service.queues()["queues"]))

    def whoami(self) -> Record:
        """Whom the server takes the caller for, and what it says of itself."""
        values = as_records(self._service.who_am_i())
        assert isinstance(values, Record)
        return values

    def __repr__(self) -> str:
        return f"<lynx.Client {self.server}>"
