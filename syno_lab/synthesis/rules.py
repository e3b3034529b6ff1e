"""Canonicalization rules: which of several ways to write a function is the one to keep (Syno, section 6).

Each rule is a row: a name, what it rewrites, a one-sentence reason, the paper's section, and a match on a state and a
proposed step. *Exact* rules drop a step only where another way gives the very same function; *approximate* rules where
it gives nearly the same; *space* rows are restrictions of choice, neither. A new rule is one row in :data:`RULES`, or
in a notebook one more row in the ``rules`` of a sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from syno_lab.ir.primitives import PRIMITIVES, is_own
from syno_lab.ir.state import State, Step
from syno_lab.synthesis import matches, matches_weights


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
    """

    name: str
    before: str
    after: str
    reason: str
    section: str
    kind: Literal["exact", "approximate", "space", "budget", "wish"]
    match: Callable[[State, Step], bool]
    primitives: tuple[str, ...] = ()
    is_deep: bool = True
    is_of_given: bool = False


_exact = partial(Rule, kind="exact", is_deep=False)
_approximate = partial(Rule, kind="approximate", is_deep=False)
_space = partial(Rule, kind="space", is_deep=False)

#: The ``section`` of a row that was made of a function of the user's own.
OWN = "your own rule"
#: Rows that hold for all 1-to-1 views.
OF_VIEWS = ("view-of-reduction", "view-above-share")

Rules = tuple[Rule, ...]
RULES: Rules = (
    _exact(
        "reduce-first",
        "REDUCE after other steps",
        "REDUCE before them",
        "REDUCEs commute with everything before them, so they come first.",
        "appendix A",
        match=matches.reduce_late,
        primitives=("REDUCE",),
    ),
    _exact(
        "view-of-reduction",
        "sum_r X[r/B, r%B]",
        "sum_a sum_b X[a, b]",
        "A reshape or roll of reductions, or of their digits, that no weight shares only renames what is summed.",
        "6, between views and contractions",
        match=matches.view_of_raw_reduction,
        primitives=("MERGE", "SHIFT", "SPLIT"),
    ),
    _exact(
        "view-above-share",
        "X[i/B, i%B] * W[i]",
        "X[a, b] * W[a, b] with [a, b] = [i/B, i%B]",
        "Weights can be reshaped offline, so 1-to-1 views stand below contractions.",
        "6, between views and contractions, Figure 3(b)",
        match=matches.view_of_shared,
        primitives=("MERGE", "SHIFT", "SPLIT"),
    ),
    _exact(
        "merge-above-split",
        "[(C*i + j) / (B*C), (C*i + j) % (B*C)]",
        "[i/B, C*(i%B) + j]",
        "The sizes of blocks (or blocks of blocks) divide one another: a parenthesis goes, and MERGE is below SPLIT.",
        "6, between two views, Figure 3(a)",
        match=matches.merge_above_split,
        primitives=("MERGE",),
    ),
    _space(
        "merge-across-blocks",
        "[(D*i + j) / B, (D*i + j) % B]",
        "blocks of which one divides the other",
        "In the space such blocks divide one another; else what is read hangs on which numbers have a common divisor.",
        "6, between two views, Figure 3(a)",
        match=matches.merge_across_blocks,
        primitives=("MERGE",),
    ),
    _exact(
        "merge-of-low-digit",
        "[i/B, (i%B)/C, (i%B)%C]",
        "[(i/C)/(B/C), (i/C)%(B/C), i%C]",
        "Three digits come from merging the high one again, never the low one.",
        "6, between two views",
        match=matches.merge_of_low_digit,
        primitives=("MERGE",),
    ),
    _exact(
        "merge-of-reduction",
        "sum_r X[r/B, r%B]",
        "sum_r X[r%(N/B), r/(N/B)]",
        "The digits of a reduction are summed each by itself, so they may change places: the least is the lowest.",
        "6, between views and contractions",
        match=matches.merge_of_reduction,
        primitives=("MERGE",),
    ),
    _exact(
        "split-of-reductions",
        "sum_r sum_q X[B*r + q]",
        "sum_q sum_r X[C*q + r]",
        "Reductions side by side in a SPLIT are summed over all they are together: the larger comes first.",
        "6, between views and contractions",
        match=matches.split_of_reductions,
        primitives=("SPLIT",),
    ),
    _exact(
        "split-of-split",
        "B*C*i + (C*j + k)",
        "C*(B*i + j) + k",
        "A parenthesis is removed: blocks of blocks are put together from the left, though weights share the offset.",
        "6, between two views",
        match=matches.split_of_split,
        primitives=("SPLIT",),
    ),
    _exact(
        "split-undoes-merge",
        "B*(i/B) + i%B",
        "i",
        "Joining two neighbouring digits (of a reduction in any order) is another MERGE or none, unless one is shared.",
        "6, between two views",
        match=matches.split_undoes_merge,
        primitives=("SPLIT",),
    ),
    _exact(
        "dilated-window",
        "B*(i/B + j - K/2) + i%B",
        "i + B*j - B*K/2",
        "An even window along the high digit is a STRIDEd window along the whole.",
        "6, between two views",
        match=matches.dilated_window,
        primitives=("SPLIT",),
    ),
    _space(
        "shift-by-a-block",
        "B*((i/B + 1) % (N/B)) + i%B",
        "(i + B) % N",
        "Rolling the high digit rolls the whole by a block; where that is small, SHIFTs say so with fewer steps.",
        "6, between two views",
        match=matches.shift_by_a_block,
        primitives=("SPLIT",),
    ),
    _exact(
        "shift-above-reduction",
        "sum_r X[(B*r + i + 1) % (B*N)]",
        "sum_r X[B*r + (i + 1) % B]",
        "The carry of the SHIFT only renames the blocks that are summed.",
        "6, between views and contractions",
        match=matches.shift_above_reduction,
        primitives=("SHIFT",),
    ),
    _exact(
        "shift-above-rejoined",
        "(B*(i/B) + i%B + 1) % N",
        "B*(j/B) + j%B with j = (i + 1) % N",
        "Two neighbouring digits that are put together again are the whole, which is SHIFTed before the MERGE.",
        "6, between two views",
        match=matches.shift_above_rejoined,
        primitives=("SHIFT",),
    ),
    _exact(
        "shifts-of-a-block",
        "(B*i + j + B) % (B*N)",
        "B*((i + 1) % N) + j",
        "As many SHIFTs as a block has elements are one SHIFT of the block's number.",
        "6, between two views",
        match=matches.shifts_of_a_block,
        primitives=("SHIFT",),
    ),
    _exact(
        "shifts-all-around",
        "(i + N) % N",
        "i",
        "As many SHIFTs as there are elements are none.",
        "6, between two views",
        match=matches.shifts_all_around,
        primitives=("SHIFT",),
    ),
    _space(
        "reduction-in-one-weight",
        "sum_r W[r]",
        "W[]",
        "A reduction, or a digit of one, in one weight alone sums weight elements: again a weight by algebra.",
        "6, contractions",
        match=matches_weights.reduction_in_one_weight,
        primitives=("SHARE", "EXPAND"),
        is_of_given=True,
    ),
    _space(
        "two-inner-reductions",
        "sum_r sum_q W1[r, q] * W2[r, q]",
        "sum_p W1[p] * W2[p]",
        "Two reductions, or digits, that live in the same weights alone are one, of the size of both.",
        "6, contractions",
        match=matches_weights.two_inner_reductions,
        primitives=("SHARE",),
        is_of_given=True,
    ),
    _exact(
        "share-above-shift",
        "W[(B*i + j + 1) % B]",
        "W[j]",
        "The low digit of a SHIFTed SPLIT only renames the elements of a weight: share the SPLIT's offset.",
        "6, between views and contractions",
        match=matches_weights.share_above_shift,
        primitives=("SHARE",),
        is_deep=True,
    ),
    _exact(
        "expand-of-reduction",
        "sum_r X[]",
        "N * X[]",
        "EXPAND of a REDUCE only changes a multiplier of the result.",
        "6, between views and contractions",
        match=matches.expand_of_reduction,
        primitives=("EXPAND",),
    ),
    _exact(
        "expand-of-view",
        "EXPAND of SPLIT, SHIFT, STRIDE or of both digits of a MERGE",
        "EXPAND of the coordinates below",
        "A dropped coordinate needs no view before it is dropped.",
        "6, between two views",
        match=matches.expand_of_view,
        primitives=("EXPAND",),
    ),
    _exact(
        "expand-above-shift",
        "[((i + 1) % N) % B], ((i + 1) % N) / B dropped",
        "[(i%B + 1) % B], i/B dropped",
        "Where the high digit is dropped nobody sees the carry: the SHIFT stays inside the block.",
        "6, between two views",
        match=matches.expand_above_shift,
        primitives=("EXPAND",),
    ),
    _exact(
        "give-above-shift",
        "W[((i + 1) % N) / B, (i + 1) % B]",
        "W[i/B, (i%B + 1) % B]",
        "A weight that has both digits of a SHIFT has its elements in another order: the SHIFT stays inside the block.",
        "6, between views and contractions",
        match=matches_weights.give_above_shift,
        primitives=("SHARE",),
        is_deep=True,
    ),
    _exact(
        "give-view",
        "W[B*i + j]",
        "W[i, j]",
        "Weights need no views: give the coordinates below instead.",
        "6, contractions",
        match=matches_weights.give_view,
        primitives=("SHARE",),
        is_of_given=True,
    ),
    _space(
        "expand-of-shared",
        "SHARE and then EXPAND",
        "give it to the weight",
        "In the space what a weight shares, itself or below 1-to-1 views, is not dropped: it is given to a weight.",
        "6, contractions",
        match=matches.expand_of_shared,
        primitives=("EXPAND",),
    ),
    _exact(
        "absorbed-weight",
        "W1[i] * W2[i, j]",
        "W2[i, j]",
        "A weight whose coordinates all lie in another's can be multiplied into it offline.",
        "6, contractions",
        match=matches_weights.absorbed_weight,
        primitives=("SHARE",),
    ),
    _exact(
        "absorbed-through-views",
        "W1[i, j] * W2[B*i + j]",
        "W1[i, j]",
        "A weight whose element another's element fixes can be multiplied into it offline.",
        "6, contractions",
        match=matches_weights.absorbed_through_views,
        primitives=("SHARE",),
        is_deep=True,
    ),
    _space(
        "absorbed-but-for-border",
        "W1[i, j] * W2[i + j - K/2]",
        "W1[i, j], zero where i + j - K/2 is out of bounds",
        "A weight that another fixes, but for the zeros of an UNFOLD, is an EXPAND of it, which the space leaves out.",
        "6, contractions",
        match=matches_weights.absorbed_but_for_border,
        primitives=("SHARE",),
        is_deep=True,
    ),
    _exact(
        "contraction-order",
        "W2[j] * W1[i]",
        "W1[i] * W2[j]",
        "Contractions that do not depend on one another are taken in one order.",
        "6, contractions",
        match=matches_weights.contraction_order,
        primitives=("SHARE",),
        is_deep=True,
    ),
    _space(
        "window-size",
        "UNFOLD with a window of a primary size or as large as the main coordinate",
        "a smaller window",
        "In the space windows are made of coefficients and smaller than what they slide along.",
        "5.3",
        match=matches.window_too_large,
        primitives=("UNFOLD",),
    ),
    _exact(
        "window-and-offset",
        "B*i + k + j - B/2 from SPLIT(i, k) and window j",
        "the same from SPLIT(i, j) and window k",
        "A SPLIT's offset and a window of the same size are added and may swap: the lesser one is the offset.",
        "6, between two views",
        match=matches.window_and_offset,
        primitives=("UNFOLD",),
    ),
    _exact(
        "window-rejoins-blocks",
        "B*(n/B) + k + n%B - B/2 from SPLIT(n/B, k) and window n%B",
        "n + k - B/2",
        "A window that is the digit below a SPLIT's blocks makes the whole with them, and the offset is the window.",
        "6, between two views",
        match=matches.window_rejoins_blocks,
        primitives=("UNFOLD",),
        is_deep=True,
    ),
    _approximate(
        "unfold-of-reductions",
        "sum_i sum_j X[i + j - K/2]",
        "K * sum_i X[i]",
        "At most one coordinate of an UNFOLD may be REDUCEd; with both it is a multiple except at the border.",
        "6, between views and contractions",
        match=matches.unfold_of_two_reductions,
        primitives=("UNFOLD",),
    ),
    _approximate(
        "unfold-above-shift",
        "(i + 1) % N + j - K/2",
        "(i + j - K/2 + 1) % N",
        "UNFOLD and SHIFT commute except at the border, so SHIFT stands above.",
        "6, between two views",
        match=matches.unfold_above_shift,
        primitives=("UNFOLD",),
    ),
    _exact(
        "unfold-one-sided",
        "(i + k - 1) + j - 1",
        "(i + j - 1) + k - 1",
        "Two windows along one coordinate that reach beyond the same end alone commute: the lesser comes first.",
        "6, between two views",
        match=matches.unfold_one_sided,
        primitives=("UNFOLD",),
    ),
    _approximate(
        "unfold-windows",
        "(i + k - L/2) + j - K/2",
        "(i + j - K/2) + k - L/2",
        "Two windows along one coordinate commute except at the border: the lesser comes first.",
        "6, between two views",
        match=matches.unfold_windows,
        primitives=("UNFOLD",),
    ),
    _approximate(
        "merge-above-unfold",
        "[(i + j - K/2) / B, (i + j - K/2) % B]",
        "[i/B, i%B + j - K/2]",
        "The block is much larger than the window, so both agree at almost every point.",
        "6, between two views, Figure 3(c)",
        match=matches.merge_above_unfold,
        primitives=("MERGE",),
    ),
    _approximate(
        "merge-above-shift-above-split",
        "[((B*i + j + 1) % (B*N)) / B, (B*i + j + 1) % B]",
        "[i, (j + 1) % B]",
        "Only the last element of a block is carried to the next, so the SHIFT may stand below.",
        "6, between two views",
        match=matches.merge_above_shift_above_split,
        primitives=("MERGE",),
    ),
    _space(
        "expand-of-unfold",
        "EXPAND of i + j - K/2",
        "EXPAND of i and of j",
        "In the space EXPAND drops output coordinates and digits; a dropped window only weakens the border.",
        "6, between two views",
        match=matches.expand_of_unfold,
        primitives=("EXPAND",),
    ),
    _space(
        "stride-window",
        "STRIDE as an UNFOLD's main coordinate",
        "STRIDE as its window",
        "In the space STRIDE stands directly under an UNFOLD's window.",
        "5.2 and appendix A",
        match=matches.stride_main,
        primitives=("UNFOLD",),
    ),
    _space(
        "stride-of-output",
        "STRIDE of an output coordinate",
        "STRIDE of a window",
        "In the space only windows are strided.",
        "5.2 and appendix A",
        match=matches.stride_of_output,
        primitives=("STRIDE",),
    ),
)


def rejecting_rule(state: State, step: Step, rules: tuple[Rule, ...] = RULES) -> Rule | None:
    """The first rule that rejects ``step`` on ``state``, or None where the step is canonical."""
    for rule in rules_for(step.primitive, rules):
        if rule.match(state, step):
            return rule
    return None


@lru_cache(maxsize=256)
def rules_for(primitive: str, rules: tuple[Rule, ...] = RULES) -> tuple[Rule, ...]:
    """The rows of a table that are asked for one primitive.

    What holds for every 1-to-1 view holds for a primitive of the user's own that is one.
    """
    is_view = is_own(primitive) and PRIMITIVES[primitive].is_one_to_one
    return tuple(
        rule
        for rule in rules
        if not rule.primitives or primitive in rule.primitives or (is_view and rule.name in OF_VIEWS)
    )
