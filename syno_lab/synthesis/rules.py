"""The table of canonicalization rules, which choose one of several ways to write a function (Syno, section 6).

The rules are functions of :mod:`syno_lab.synthesis.matches` and :mod:`syno_lab.synthesis.matches_weights`, each with a
row above it (:mod:`syno_lab.synthesis.rule`). To add a built-in rule, add a function there and its name in the table; a
notebook can add a row to the ``rules`` of a sampler.
"""

from __future__ import annotations

from functools import lru_cache

from syno_lab.ir.primitives import PRIMITIVES, is_own
from syno_lab.ir.state import State, Step
from syno_lab.synthesis import matches, matches_weights  # noqa: F401 - the imports make the rows
from syno_lab.synthesis.rule import ROWS
from syno_lab.synthesis.rule import Rule as Rule

#: The ``section`` of a row that was made from a user's function.
OWN = "your own rule"
#: Rows that hold for all 1-to-1 views.
OF_VIEWS = ("view-of-reduction", "view-above-share")

Rules = tuple[Rule, ...]
_ORDER = """
reduce-first view-of-reduction view-above-share
merge-above-split merge-across-blocks merge-of-low-digit merge-of-reduction
split-of-reductions split-of-split split-undoes-merge dilated-window shift-by-a-block
shift-above-reduction shift-above-rejoined shifts-of-a-block shifts-all-around
reduction-in-one-weight two-inner-reductions share-above-shift
expand-of-reduction expand-of-view expand-above-shift give-above-shift give-view expand-of-shared
absorbed-weight absorbed-through-views absorbed-but-for-border contraction-order
window-size window-and-offset window-rejoins-blocks
unfold-of-reductions unfold-above-shift unfold-one-sided unfold-windows
merge-above-unfold merge-above-shift-above-split expand-of-unfold stride-window stride-of-output
"""
#: The table in the order of the checks: if several rules reject a step, the first is named.
RULES: Rules = tuple(ROWS[name] for name in _ORDER.split())


def rejecting_rule(state: State, step: Step, rules: tuple[Rule, ...] = RULES) -> Rule | None:
    """Return the first rule that rejects ``step`` on ``state``, or None if the step is canonical."""
    for rule in rules_for(step.primitive, rules):
        if rule.match(state, step):
            return rule
    return None


@lru_cache(maxsize=256)
def rules_for(primitive: str, rules: tuple[Rule, ...] = RULES) -> tuple[Rule, ...]:
    """Return the rows of a table for one primitive.

    The rows for every 1-to-1 view also apply to a user's primitive that is a 1-to-1 view.
    """
    is_view = is_own(primitive) and PRIMITIVES[primitive].is_one_to_one
    return tuple(
        rule
        for rule in rules
        if not rule.primitives or primitive in rule.primitives or (is_view and rule.name in OF_VIEWS)
    )
