"""The kinds of jobs: the function ``run(params, context) -> result`` of each, and the resources that a job takes.

Only what is registered here or by whoever starts the process can be run: a store that came from elsewhere names kinds,
never functions. ``SYNO_LAB_KINDS="name=module:function;…"`` registers more, for tests and for one's own.
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
#: What a job of a kind occupies of a worker unless told otherwise. A slot is a share of the machine's cores; drivers,
#: which submit jobs and wait for them, occupy none, so that they cannot stand in the way of what they wait for.
RESOURCES: dict[str, dict[str, float]] = {"search": {}}
ONE_SLOT: dict[str, float] = {"slot": 1}
#: Kinds that work in the lab's store itself, and so run on a machine that sees its folder; drivers do as well.
AT_HOME = ("rungs", "search")
VARIABLE = "SYNO_LAB_KINDS"


def is_at_home(kind: str, resources: Mapping[str, float]) -> bool:
    """Whether a job runs only where the lab's folder is."""
    return kind in AT_HOME or not resources


def kinds() -> dict[str, str]:
    """Every kind that this process knows, with the place of its function.

    Raises JobError where the variable is not of the form above.
    """
    found = dict(KINDS)
    for entry in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(";"))):
        name, equals, target = entry.partition("=")
        if not (name and equals and target.count(":") == 1):
            raise JobError(f"{VARIABLE}: expected name=module:function;…, found {quoted(entry)}")
        found[name] = target
    return found


def check(kind: str) -> None:
    """Refuse a kind that nobody registered. Raises JobError with the kinds that there are."""
    if kind not in kinds():
        raise JobError(f"no job of kind {quoted(kind)}: expected one of {', '.join(sorted(kinds()))}")
