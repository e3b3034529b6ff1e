"""What a job can be: names of functions ``run(params, context) -> result``, and what they occupy.

Only what is registered here or by whoever starts the process can be run: a store that came from elsewhere names kinds,
never functions. ``SYNO_LAB_KINDS="name=module:function;…"`` registers more, for tests and for one's own.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs.context import JobContext

Function = Callable[[dict[str, Any], "JobContext"], dict[str, Any]]

KINDS: dict[str, str] = {
    "search": "syno_lab.evaluate.searching.job:run",
    "train": "syno_lab.evaluate.trial.job:run",
    "tune": "syno_lab.evaluate.tuning.job:run",
}
#: What a job of a kind occupies of a worker unless told otherwise. A slot is a share of the machine's cores; drivers,
#: which submit jobs and wait for them, occupy none, so that they cannot stand in the way of what they wait for.
RESOURCES: dict[str, dict[str, float]] = {"search": {}}
ONE_SLOT: dict[str, float] = {"slot": 1}
VARIABLE = "SYNO_LAB_KINDS"
#: Kinds whose processes are forked by one that has imported what they need (see :mod:`.warm`): none, unless the
#: variable names some, with commas between them. A tuning must not have torch, and a search is one process.
WARM: tuple[str, ...] = ()
WARM_VARIABLE = "SYNO_LAB_WARM"
#: What a kind needs in the end and its module does not import: an optimiser's first step imports ``torch._dynamo``.
WARM_IMPORTS: dict[str, tuple[str, ...]] = {"train": ("torch._dynamo", "syno_lab.api", "threadpoolctl")}


def kinds() -> dict[str, str]:
    """Every kind that this process knows, with the place of its function.

    Raises:
        JobError: the variable is not of the form above.
    """
    found = dict(KINDS)
    for entry in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(";"))):
        name, equals, target = entry.partition("=")
        if not (name and equals and target.count(":") == 1):
            raise JobError(f"{VARIABLE}: expected name=module:function;…, found {entry!r}")
        found[name] = target
    return found


def warm_kinds() -> frozenset[str]:
    """The kinds whose processes are forked."""
    named = os.environ.get(WARM_VARIABLE)
    return frozenset(WARM if named is None else filter(None, (name.strip() for name in named.split(","))))


def check(kind: str) -> None:
    """Refuse a kind that nobody registered.

    Raises:
        JobError: with the kinds that there are.
    """
    if kind not in kinds():
        raise JobError(f"no job of kind {kind!r}: expected one of {', '.join(sorted(kinds()))}")


def function(kind: str) -> Function:
    """Import the function of a kind.

    Raises:
        JobError: it is not registered, or not where it should be.
    """
    check(kind)
    module, _, name = kinds()[kind].partition(":")
    try:
        found: Function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise JobError(f"the function of jobs of kind {kind!r} cannot be loaded ({error})") from error
    return found
