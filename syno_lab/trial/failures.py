"""A search whose operators all fail for one reason ends with that reason, and does not try the others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from syno_lab.errors import SearchError

#: Different operators that fail alike before a search ends, while none has been trained.
ENOUGH = 5
#: The end of a reason that says where in the user's own files an exception was raised.
_PLACE = re.compile(r"\((?:[^()]+, )?line \d+\)$")
_NAME = re.compile(r"\b[A-Za-z_]\w*(?=: )")


def check_failures(ended: Iterable[tuple[int, str, str]], least: int = ENOUGH) -> None:
    """End a search in which so many different operators have failed for one reason, and none was trained.

    Trainings that ran out of time or memory, or diverged, say nothing about the user's code, and do not count.

    Args:
        ended: the number, the state and the reason of each training of an operator that has ended.
        least: so many.

    Raises SearchError with the reason of the last of them.
    """
    alike: defaultdict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for number, state, reason in ended:
        if state in ("finished", "pruned"):
            return
        if state == "failed":
            alike[_kind(reason)][number] = reason
    most = max(alike.values(), key=len, default={})
    if len(most) >= least:
        who = f"{len(most)} operators failed alike" if len(most) > 1 else "one operator failed"
        raise SearchError(f"{who}, and none was trained: {list(most.values())[-1]}")


def _kind(reason: str) -> tuple[str, ...]:
    """The exception's names and its line, where the reason has a line; else all of it but its numbers."""
    place = _PLACE.search(reason)
    return (*_NAME.findall(reason), place[0]) if place else (re.sub(r"\d+", "0", reason),)
