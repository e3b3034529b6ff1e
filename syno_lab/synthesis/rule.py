"""A canonicalization rule as a row; the decorators ``exact``, ``approximate`` and ``space`` make rows of functions."""

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
    """A row of the table of rules: ``before -> after`` because of ``reason``.

    Attributes:
        name: the rule's name in messages.
        before: the rejected expression.
        after: the canonical expression.
        reason: the reason in one sentence.
        section: the section of the paper with the rule.
        kind: ``exact``, ``approximate``, or ``space`` for a restriction of choice. A verdict, but no row of a table,
            may also have ``budget`` or ``wish`` (the step makes a budget or a wish impossible).
        match: a function that returns whether the rule rejects a step on a state.
        primitives: the primitives that the rule is checked for; empty for all.
        is_deep: whether ``match`` reads more than :mod:`syno_lab.synthesis.features` lists. A deep rule is checked for
            every operator that search finds; any other rule is checked once for all states with equal features. A row
            of your own is deep by default.
        is_of_given: whether the rule reads only the given coordinates of a SHARE.
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


#: The parts of the paper's section 6 with most of the rules.
VIEWS, MIXED, CONTRACTIONS = "6, between two views", "6, between views and contractions", "6, contractions"
#: The rows of all decorated functions, by name.
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
    """Make a row from a function: the row's name is the function's; the reason is the docstring's first line."""

    def noted(match: Match) -> Match:
        name, (reason, *_) = match.__name__.replace("_", "-"), (match.__doc__ or "").splitlines() or [""]
        ROWS[name] = Rule(name, before, after, reason, section, kind, match, primitives, is_deep, is_of_given)
        return match

    return noted


#: Decorators for rules. An `exact` rule rejects a step if other steps compute the same function. An `approximate` rule
#: rejects a step if other steps compute nearly the same function. A `space` rule only restricts the choice.
exact, approximate, space = partial(_row, "exact"), partial(_row, "approximate"), partial(_row, "space")
