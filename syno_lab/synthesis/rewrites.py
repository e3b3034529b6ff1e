"""For every rule what it rewrites in one state: the expression as proposed and the canonical one.

Rules decide; rewrites explain, and only when asked. A new rule's row in ``RULES`` works without one (its own text is
then shown); with one, it is an entry in :data:`REWRITES`.
"""

from __future__ import annotations

from collections.abc import Callable

from syno_lab.ir.state import State, Step
from syno_lab.synthesis import rewrites_sums as sums
from syno_lab.synthesis import rewrites_views as views
from syno_lab.synthesis.rewrites_parts import Rewrite

Rewriter = Callable[[State, Step], Rewrite | None]

# By the name of the rule. Rules of kind "space" leave functions out, so most of them rewrite nothing.
REWRITES: dict[str, Rewriter] = {
    "absorbed-but-for-border": sums.absorbed_through_views,
    "absorbed-through-views": sums.absorbed_through_views,
    "absorbed-weight": sums.absorbed_weight,
    "contraction-order": sums.contraction_order,
    "dilated-window": views.dilated_window,
    "expand-above-shift": sums.expand_above_shift,
    "expand-of-reduction": sums.expand_of_reduction,
    "expand-of-shared": sums.expand_of_shared,
    "expand-of-unfold": views.expand_of_view,
    "expand-of-view": views.expand_of_view,
    "give-above-shift": sums.give_above_shift,
    "give-view": sums.give_view,
    "merge-above-shift-above-split": views.merge_above_shift_above_split,
    "merge-above-split": views.merge_above_split,
    "merge-above-unfold": views.merge_above_unfold,
    "merge-of-low-digit": views.merge_of_low_digit,
    "merge-of-reduction": views.merge_of_reduction,
    "reduce-first": sums.reduce_first,
    "share-above-shift": sums.share_above_shift,
    "shift-above-reduction": sums.shift_above_reduction,
    "shift-above-rejoined": views.shift_above_rejoined,
    "shifts-all-around": views.shifts_all_around,
    "shifts-of-a-block": views.shifts_of_a_block,
    "split-of-reductions": sums.split_of_reductions,
    "split-of-split": views.split_of_split,
    "split-undoes-merge": views.split_undoes_merge,
    "unfold-above-shift": views.unfold_above_shift,
    "unfold-of-reductions": sums.unfold_of_reductions,
    "unfold-one-sided": views.swapped_windows,
    "unfold-windows": views.swapped_windows,
    "view-above-share": sums.view_above_share,
    "view-of-reduction": sums.view_of_reduction,
    "window-and-offset": views.swapped_windows,
    "window-rejoins-blocks": views.window_rejoins_blocks,
}


def rewrite(rule: str, state: State, step: Step) -> Rewrite | None:
    """What the rule of that name rewrites where it rejects ``step`` on ``state``; None where it has no formula."""
    rewriter = REWRITES.get(rule)
    return None if rewriter is None else rewriter(state, step)
