"""lynx.Cluster: the machine to plan for, as a cluster file says it."""

from __future__ import annotations

import json
import operator
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Union

from . import _lynx
from ._errors import Error
from ._fields import file_text, flattened, nested
from ._job import read_text
from ._records import Record, as_records, size_text

ClusterLike = Union["Cluster", str, "os.PathLike[str]", Mapping[str, Any]]

_MAX_COUNT = 1 << 20  # devices of a machine
_MACHINES = pathlib.Path(__file__).parent / "clusters"


def machines() -> list[str]:
    """The names of the ready-made machines: `lynx.Cluster("h100")`."""
    return sorted(path.stem for path in _MACHINES.glob("*.yaml"))


class Cluster:
    """The machine to plan for.

    `source` is the name of a ready-made machine (lynx.machines()), the path of a cluster file, the text of one (with a line
    end in it), or a dict of its fields:

        lynx.Cluster("h100", nodes=8)
        lynx.Cluster("my-cluster.yaml")

    Without a source, the nodes are alike, with the stated figures of a CPU core or those of the measured `profile` of
    lynx.plan: `devices_per_node`, `device_memory` and `host_memory` ("80GiB") describe them. `nodes` replaces the number of
    nodes; a machine with several groups of nodes has its counts in its file.

    Error: the source cannot be read, is no machine, or is not valid."""

    def __init__(self, source: ClusterLike | None = None, /, *, nodes: int = 0, devices_per_node: int = 0,
                 device_memory: str = "", host_memory: str = "", **fields: Any) -> None:
        nodes, devices_per_node = _count("nodes", nodes), _count("devices_per_node", devices_per_node)
        for name, size in (("device_memory", device_memory), ("host_memory", host_memory)):
            if not isinstance(size, str):
                raise Error(f"{name} {size!r}: expected a text with a unit, such as '80GiB'", field=name)
        self._text, self._name = None, "<cluster>"
        self._uniform: dict[str, Any] = {"devices_per_node": devices_per_node, "device_memory": device_memory,
                                         "host_memory": host_memory}
        self._nodes = nodes
        if isinstance(source, Cluster):
            self._text, self._name, self._nodes = source._text, source._name, nodes or source._nodes
            self._uniform = {name: value or source._uniform[name] for name, value in self._uniform.items()}
        elif isinstance(source, Mapping) or (source is None and fields):
            values = {**flattened(source or {}), **flattened(fields)}
            self._text = file_text("Cluster", {name: value for name, value in nested(values).items()
                                               if name not in ("apiVersion", "kind")})
            fields = {}
        elif isinstance(source, str) and "\n" in source:
            self._text, self._name = source, "cluster"
        elif isinstance(source, (str, os.PathLike)):
            self._text, self._name = _named_text(source)
        elif source is not None:
            raise TypeError(f"a cluster is made of a name, a path, a text, a dict or a Cluster, not of {type(source).__name__}")
        if fields:
            raise Error(f"{next(iter(fields))}: a machine with a file takes nodes alone; change the other fields in the file",
                        field=next(iter(fields)))
        if self._text and any(self._uniform.values()):
            name = next(name for name, value in self._uniform.items() if value)
            raise Error(f"{name}: this is for nodes that no file describes; change the machine's file instead", field=name)
        self._description = as_records(json.loads(_lynx.describe_cluster(self._text, self._name))) if self._text is not None else Record()

    @property
    def name(self) -> str:
        """The machine's name in its file; "" for nodes that no file describes."""
        return str(self._description.get("name", ""))

    @property
    def groups(self) -> list[Record]:
        """The groups of nodes: name, device, nodes, devices_per_node and memory_bytes of a device. Empty if no file describes
        them."""
        groups: list[Record] = [Record(group) for group in self._description.get("groups", [])]
        if self._nodes and len(groups) == 1:
            groups[0]["nodes"] = self._nodes
        return groups

    @property
    def devices(self) -> int:
        """The number of devices; 0 if nothing says it."""
        if self._text:
            return sum(group.nodes * group.devices_per_node for group in self.groups)
        return int(self._nodes * self._uniform["devices_per_node"])

    def _texts(self) -> dict[str, Any]:
        """The machine's part of a request."""
        return {"cluster": self._text, "cluster_name": self._name, "nodes": self._nodes, **self._uniform}

    def __repr__(self) -> str:
        if not self._text:
            given = {"nodes": self._nodes, **self._uniform}
            return f"lynx.Cluster({', '.join(f'{name}={value!r}' for name, value in given.items() if value)})"
        groups = ", ".join(f"{group.nodes} x {group.devices_per_node} {group.device} with {size_text(group.memory_bytes)}"
                           for group in self.groups)
        return f"<lynx.Cluster {self.name}: {groups}>"


def _count(name: str, value: Any) -> int:
    """The number that an argument gives; 0 = it is not given."""
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if count < 0 or count > _MAX_COUNT:
        raise Error(f"{name} {value!r}: expected a whole number from 1 to {_MAX_COUNT}", field=name)
    return count


def _named_text(source: str | os.PathLike[str]) -> tuple[str, str]:
    """The text and the name of a ready-made machine or a file."""
    ready = _MACHINES / f"{os.fspath(source)}.yaml"
    if isinstance(source, str) and "/" not in source and ready.is_file() and not os.path.exists(source):
        return ready.read_text(encoding="utf-8"), source
    try:
        return read_text(source, "cluster file"), os.fspath(source)
    except Error as error:
        raise Error(f"{error}; it is no ready-made machine either: {', '.join(machines())}", code=error.code,
                    file=error.file) from error


def cluster_of(cluster: ClusterLike | None) -> Cluster:
    """The cluster itself, or a Cluster made of it."""
    return cluster if isinstance(cluster, Cluster) else Cluster(cluster)
