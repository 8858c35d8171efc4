"""Plans activation recomputation for training, and talks to clusters that run the plans.

    import lynx
    plan = lynx.plan(lynx.Job(model="gpt-22b", batch=64), lynx.Cluster("h100", nodes=2))
    print(plan)

Everything gives the same results as lynxctl, because both use the same C++ code. See docs/python.md.
"""

from __future__ import annotations

from . import _lynx, memory
from ._client import Client, JobRecord, Update, Watch
from ._cluster import Cluster, machines
from ._errors import Error, Infeasible, Unavailable
from ._job import Job, models
from ._planning import Answer, Export, FrameworkPlan, Plan, compare, explain, plan, sweep, whatif
from ._records import Record, Table

__version__: str = _lynx.version

__all__ = ["Answer", "Client", "Cluster", "Error", "Export", "FrameworkPlan", "Infeasible", "Job", "JobRecord", "Plan",
           "Record", "Table", "Unavailable", "Update", "Watch", "compare", "explain", "machines", "memory", "models", "plan",
           "sweep", "whatif"]
