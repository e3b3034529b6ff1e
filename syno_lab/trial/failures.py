"""End a search whose operators all fail for the same reason, before it tries all operators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from syno_lab.errors import SearchError

#: The number of failures for the same reason that ends a search in which no operator was trained.
ENOUGH = 5
#: Matches the end of a reason, the line of the user's own file that raised an exception.
_PLACE = re.compile(r"\((?:[^()]+, )?line \d+\)$")
_NAME = re.compile(r"\b[A-Za-z_]\w*(?=: )")


def check_failures(ended: Iterable[tuple[int, str, str]], least: int = ENOUGH) -> None:
    """End a search if ``least`` different operators have failed for the same reason, and no operator was trained.

    Trainings that ran out of time or memory, or diverged, show nothing about the user's code, and do not count.

    Args:
        ended: the number, the state and the reason of each ended training of an operator.
        least: the number of failed operators that ends the search.

    Raises SearchError with the reason of the last failure.
    """
    alike: defaultdict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for number, state, reason in ended:
        if state in ("finished", "pruned"):
            return
        if state == "failed":
            alike[_kind(reason)][number] = reason
    most = max(alike.values(), key=len, default={})
    if len(most) >= least:
        count = f"{len(most)} operators failed alike" if len(most) > 1 else "one operator failed"
        raise SearchError(f"{count}, and none was trained: {list(most.values())[-1]}")


def _kind(reason: str) -> tuple[str, ...]:
    """Return a key of equal failures: the exceptions' names and code line, or the reason with 0 for all numbers."""
    line = _PLACE.search(reason)
    return (*_NAME.findall(reason), line[0]) if line else (re.sub(r"\d+", "0", reason),)
