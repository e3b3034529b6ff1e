"""A canonicalization rule as a row, and how a function becomes one: by ``exact``, ``approximate`` or ``space``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from syno_lab.ir.state import State, Step

Match = Callable[[State, Step], bool]
Kind = Literal["exact", "approximate", "space", "budget", "wish"]


@dataclass(frozen=True)
class Rule:
    """One row: ``before -> after`` because of ``reason``.

    Attributes:
        name: what messages call it.
        before: the expression that it rejects.
        after: the canonical expression.
        reason: why, in one sentence.
        section: where the paper says so.
        kind: ``exact``, ``approximate``, ``space`` for a restriction of choice; or, in the verdict on a step alone and
            in no row of a table, ``budget`` where some budget cannot be met after it, ``wish`` where a wish cannot.
        match: whether it rejects a step on a state.
        primitives: the primitives it is asked for; empty for all.
        is_deep: whether ``match`` looks at more than :mod:`syno_lab.synthesis.features` lists. Such a rule is asked for
            every operator that search has found, others once for all states that look alike. A row of your own is deep
            unless you say otherwise.
        is_of_given: whether it asks of a SHARE only what is given away.
    """

    name: str
    before: str
    after: str
    reason: str
    section: str
    kind: Kind
    match: Match
    primitives: tuple[str, ...] = ()
    is_deep: bool = True
    is_of_given: bool = False


#: Where the paper's section 6 says most of it.
VIEWS, MIXED, CONTRACTIONS = "6, between two views", "6, between views and contractions", "6, contractions"
#: The rows of all functions that were made rules, by name.
ROWS: dict[str, Rule] = {}


def _row(
    kind: Kind,
    before: str,
    after: str,
    section: str,
    *primitives: str,
    is_deep: bool = False,
    is_of_given: bool = False,
) -> Callable[[Match], Match]:
    """Make a row of a function: its name, and as the reason the first line of its docstring."""

    def noted(match: Match) -> Match:
        name, (reason, *_) = match.__name__.replace("_", "-"), (match.__doc__ or "").splitlines() or [""]
        ROWS[name] = Rule(name, before, after, reason, section, kind, match, primitives, is_deep, is_of_given)
        return match

    return noted


#: A rule that drops a step only where another way gives the very same function; where it gives nearly the same; and a
#: restriction of choice, which is neither.
exact, approximate, space = partial(_row, "exact"), partial(_row, "approximate"), partial(_row, "space")
