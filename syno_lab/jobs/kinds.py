"""The kinds of jobs: the function ``run(params, context) -> result`` of each, and the resources that a job takes.

Only registered kinds can run. A store from another person can only name registered kinds, and never a function. The
environment variable ``SYNO_LAB_KINDS="name=module:function;…"`` registers more kinds, for tests and for users.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from syno_lab.errors import JobError
from syno_lab.inputs import quoted

KINDS: dict[str, str] = {
    "rungs": "syno_lab.experiments.rung_worker:run",
    "search": "syno_lab.experiments.job:run",
    "train": "syno_lab.trial.job:run",
    "tune": "syno_lab.tuning.job:run",
}
#: The default resources of a kind's jobs. A slot is a share of the machine's cores. A driver submits jobs and waits for
#: them; it takes no slot, so that it cannot block the jobs that it waits for.
RESOURCES: dict[str, dict[str, float]] = {"search": {}}
ONE_SLOT: dict[str, float] = {"slot": 1}
#: The kinds of jobs that, like drivers, use the lab's store, and so run only where the lab's folder is.
AT_HOME = ("rungs", "search")
VARIABLE = "SYNO_LAB_KINDS"


def is_at_home(kind: str, resources: Mapping[str, float]) -> bool:
    """Whether a job must run on a machine that sees the lab's folder."""
    return kind in AT_HOME or not resources


def kinds() -> dict[str, str]:
    """Return every registered kind, with the module and the name of its function.

    Raises JobError where the environment variable is malformed.
    """
    registered = dict(KINDS)
    for entry in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(";"))):
        name, equals, target = entry.partition("=")
        if not (name and equals and target.count(":") == 1):
            raise JobError(f"{VARIABLE}: expected name=module:function;…, found {quoted(entry)}")
        registered[name] = target
    return registered


def check(kind: str) -> None:
    """Refuse a kind that is not registered. Raises JobError with the names of the registered kinds."""
    if kind not in kinds():
        raise JobError(f"no job of kind {quoted(kind)}: expected one of {', '.join(sorted(kinds()))}")
