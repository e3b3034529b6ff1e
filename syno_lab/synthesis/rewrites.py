"""The rewrites of rules in a state: the proposed expression and the canonical expression.

Rules decide; rewrites explain, and are computed only on request. Without an entry in :data:`REWRITES`, the texts of a
rule's row are shown. This module has the rewrites of contractions, sums and dropped coordinates; each side is a whole
function (Syno, section 6, "Contractions" and "Between views and contractions", and appendix A).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis import rewrites_views as views
from syno_lab.synthesis.features import below, digit, first_digit, sharers
from syno_lab.synthesis.matches_weights import (
    absorbing_weight,
    fixes,
    high_of_fixed_shift,
    later_weight,
    low_of_shifted_split,
    neighbouring_digits,
)
from syno_lab.synthesis.rewrites_parts import Rewrite, arrow, parts
from syno_lab.synthesis.rewrites_views import behind, blocks_before, joined_digit, split_undoes_merge


def reduce_first(state: State, step: Step) -> Rewrite | None:
    """Show a REDUCE and the last step before it that is no REDUCE, in both orders."""
    assert step.parameter is not None
    last = next(s for s in reversed(state.steps) if s.primitive != "REDUCE")
    before, after = parts(state, last.operands + last.given)
    left = (*before.taken(last), before.reduce(step.parameter))
    new = after.reduce(step.parameter)
    return arrow(before, left, after, (*after.taken(last), new), in_steps=True)


def view_of_reduction(state: State, step: Step) -> Rewrite | None:
    """Show a sum over a view's results as one sum for each result; blocks may be in front of a SPLIT's operands."""
    if step.primitive == "SPLIT":
        return split_undoes_merge(state, step)
    before, after = parts(state)
    before.sums(*step.operands)
    left = before.taken(step)
    return arrow(before, left, after, [after.reduce(c.size) for c in left])


def split_of_reductions(state: State, step: Step) -> Rewrite | None:
    """Show two sums side by side in a SPLIT, in both orders."""
    blocks, high = blocks_before(state, step.operands[0])
    low = step.operands[1]
    before, after = parts(state, blocks)
    before.sums(high, low)
    joined = behind(after, blocks, after.reduce(low.size))
    return arrow(before, before.taken(step), after, [after.split(joined, after.reduce(high.size))])


def shift_above_reduction(state: State, step: Step) -> Rewrite | None:
    """Show a SHIFT across blocks whose number is summed, and a SHIFT inside the blocks."""
    (rest,), digits = step.operands, []
    first = first_digit(state, rest)
    while rest != first:
        rest, offset = rest.node.operands
        digits.append(offset)
    before, after = parts(state, digits[::-1])
    before.sums(first)
    inside = after.split(*after.bottoms)
    return arrow(before, before.taken(step), after, [after.split(after.reduce(first.size), after.shift(inside))])


def view_above_share(state: State, step: Step) -> Rewrite | None:
    """Show weights indexed by the view's operands, and weights indexed by its results."""
    before, after = parts(state, step.operands)
    times = len(sharers(state, step.operands[0]))
    before.share(before.bottoms, times=times)
    right = after.taken(step)
    after.share(right, times=times)
    return arrow(before, before.taken(step), after, right)


def expand_of_reduction(state: State, step: Step) -> Rewrite | None:
    """Show a sum over a dropped coordinate as a multiple."""
    before, after = parts(state)
    before.sums(*step.operands)
    return arrow(before, before.taken(step), after, (), factor=step.operands[0].size)


def expand_of_shared(state: State, step: Step) -> Rewrite | None:
    """Show a coordinate shared with weights and then dropped, and the coordinate given to the last weight."""
    before, after = parts(state, step.operands)
    more = max(0, len(sharers(state, step.operands[0])) - 1)
    before.share(before.bottoms, times=more + 1)
    after.share(after.bottoms, times=more)
    after.share((), after.bottoms)
    return arrow(before, before.taken(step), after, ())


def expand_above_shift(state: State, step: Step) -> Rewrite | None:
    """Show a SHIFT whose high digit is dropped, and its operand with the high digit dropped and the low SHIFTed."""
    node = step.operands[0].node
    (shifted,) = node.operands
    before, after = parts(state, shifted.node.operands)
    _, left = before.merge(*before.built(shifted), block=node.parameter)
    before.taken(step)
    high, low = after.merge(*after.bottoms, block=node.parameter)
    right = after.shift(low)
    after.expand(high)
    return arrow(before, [left], after, [right])


def give_above_shift(state: State, step: Step) -> Rewrite | None:
    """Show weights that have the high digit of a SHIFT and fix the low digit, and these weights without the carry."""
    high = high_of_fixed_shift(state, step)
    assert high is not None
    node = high.node
    assert node.parameter is not None
    full = node.operands[0].node.operands[0]
    old = [state.weights[i] for i in sorted(sharers(state, high))]
    coordinates = (*(c for weight in old for c in weight.coordinates), *step.operands, *step.given)
    before, after = parts(state, tuple(dict.fromkeys((full, *(e for c in coordinates for e in _leaves(c, full))))))
    after.here[high], low = after.merge(after.here[full], block=node.parameter)
    after.here[Coordinate(node, 1, node.parameter)] = after.shift(low)
    for part in (before, after):
        for weight in old:
            part.share(part.built(*weight.coordinates))
    return arrow(before, before.taken(step), after, after.taken(step))


def _leaves(coordinate: Coordinate, stop: Coordinate) -> Iterator[Coordinate]:
    """Yield the coordinates that a coordinate is built from, down to iterators and to ``stop``."""
    if coordinate == stop or coordinate.is_leaf:
        yield coordinate
    else:
        for operand in coordinate.node.operands:
            yield from _leaves(operand, stop)


def give_view(state: State, step: Step) -> Rewrite | None:
    """Show a weight indexed by a view's results, and by the operands, with all weights that share the results."""
    view = next((c for c in step.given if c.node.primitive in ("SPLIT", "SHIFT")), None)
    digits = None if view is not None else next(neighbouring_digits(state, step), None)
    views = (view,) if view is not None else digits
    if views is None:
        return None
    instead = view.node.operands if view is not None else (digit(views[0]).root,)
    rest = tuple(c for c in step.given if c not in views)
    bottoms = (*step.operands, *rest, *instead)
    if len(set(bottoms)) < len(bottoms):
        return None
    before, after = parts(state, bottoms)
    given = after.built(*instead) if digits is None else (joined_digit(after, *digits),)
    times = len(sharers(state, views[0]))
    before.share(before.built(*views), times=times)
    before.share(before.built(*step.operands), before.built(*rest, *views))
    after.share(given, times=times)
    after.share(after.built(*step.operands), (*after.built(*rest), *given))
    return arrow(before, before.built(*step.operands), after, after.built(*step.operands))


def share_above_shift(state: State, step: Step) -> Rewrite | None:
    """Show the low digit of a SHIFTed SPLIT shared, and the SPLIT's offset shared."""
    pair = low_of_shifted_split(step)
    assert pair is not None
    low, (block, offset) = pair
    rest = tuple(c for c in step.operands if c != low)
    before, after = parts(state, (block, offset, *rest, *step.given))
    for part, shared in ((before, low), (after, offset)):
        part.share(part.built(shared, *rest), part.built(*step.given))
    return arrow(before, before.built(low, *rest), after, after.built(low, *rest))


def absorbed_weight(state: State, step: Step) -> Rewrite | None:
    """Show two weights, one with all coordinates of the other, and one weight for their product."""
    old = absorbing_weight(state, step)
    assert old is not None
    bottoms, shared, given = _both(old, step)
    before, after = parts(state, bottoms)
    before.share(before.built(*old.shared), before.built(*old.given))
    before.taken(step)
    after.share(after.built(*shared), after.built(*given))
    return arrow(before, before.built(*shared), after, after.built(*shared))


def _both(old: Weight, step: Step) -> tuple[tuple[Coordinate, ...], ...]:
    """Return the coordinates of an old and a new weight: all, those that stay, and those given to either weight."""
    bottoms = tuple(dict.fromkeys(old.coordinates + step.operands + step.given))
    given = tuple(c for c in bottoms if c in old.given or c in step.given)
    return bottoms, tuple(c for c in bottoms if c not in given), given


def absorbed_through_views(state: State, step: Step) -> Rewrite | None:
    """Show two weights, one fixed by the other through views, and one weight for their product."""
    new = step.operands + step.given
    pairs = [pair for old in state.weights for pair in ((old.coordinates, new), (new, old.coordinates))]
    absorbing, absorbed = next(pair for pair in pairs if fixes(*pair))
    old = absorbed if absorbing is new else absorbing
    before, after = parts(state, tuple(dict.fromkeys(leaf for c in (*old, *new) for leaf in c.leaves())))
    before.share(before.built(*old))
    before.share(before.built(*new))
    after.share(after.built(*absorbing))
    # Keep the bounds of an UNFOLD that indexes only the absorbed weight.
    seen = below((*absorbing, *step.operands))
    bounds = [c for c in absorbed if c not in seen and any(part.node.primitive == "UNFOLD" for part in below([c]))]
    after.expand(*after.built(*bounds))
    return arrow(before, before.built(*step.operands), after, after.built(*step.operands))


def contraction_order(state: State, step: Step) -> Rewrite | None:
    """Show a contraction and an earlier independent contraction, in both orders."""
    old = later_weight(state, step)
    assert old is not None
    new = step.operands + step.given
    bottoms, shared, given = _both(old, step)
    before, after = parts(state, bottoms)
    before.share(before.built(*old.shared), before.built(*old.given))
    before.taken(step)
    # The later weight is given the coordinates that the two weights have in common.
    first = [c for c in new if c in step.operands or c in old.shared]
    after.share(after.built(*first), after.built(*(c for c in step.given if c not in old.shared)))
    last = [c for c in old.shared if c not in step.given]
    after.share(after.built(*last), after.built(*(c for c in old.coordinates if c in given)))
    return arrow(before, before.built(*shared), after, after.built(*shared), in_steps=True)


def unfold_of_reductions(state: State, step: Step) -> Rewrite | None:
    """Show a sum over windows as a multiple of the sum, except for what windows at the border leave out."""
    main, window = step.operands
    before, after = parts(state)
    before.sums(main, window)
    return arrow(before, before.taken(step), after, [after.reduce(main.size)], factor=window.size)


Rewriter = Callable[[State, Step], Rewrite | None]

# The functions that make rewrites, by rule name. Rules of kind "space" leave functions out; most have no rewrite.
REWRITES: dict[str, Rewriter] = {
    "absorbed-but-for-border": absorbed_through_views,
    "absorbed-through-views": absorbed_through_views,
    "absorbed-weight": absorbed_weight,
    "contraction-order": contraction_order,
    "dilated-window": views.dilated_window,
    "expand-above-shift": expand_above_shift,
    "expand-of-reduction": expand_of_reduction,
    "expand-of-shared": expand_of_shared,
    "expand-of-unfold": views.expand_of_view,
    "expand-of-view": views.expand_of_view,
    "give-above-shift": give_above_shift,
    "give-view": give_view,
    "merge-above-shift-above-split": views.merge_above_shift_above_split,
    "merge-above-split": views.merge_above_split,
    "merge-above-unfold": views.merge_above_unfold,
    "merge-of-low-digit": views.merge_of_low_digit,
    "merge-of-reduction": views.merge_of_reduction,
    "reduce-first": reduce_first,
    "share-above-shift": share_above_shift,
    "shift-above-reduction": shift_above_reduction,
    "shift-above-rejoined": views.shift_above_rejoined,
    "shifts-all-around": views.shifts_all_around,
    "shifts-of-a-block": views.shifts_of_a_block,
    "split-of-reductions": split_of_reductions,
    "split-of-split": views.split_of_split,
    "split-undoes-merge": views.split_undoes_merge,
    "unfold-above-shift": views.unfold_above_shift,
    "unfold-of-reductions": unfold_of_reductions,
    "unfold-one-sided": views.swapped_windows,
    "unfold-windows": views.swapped_windows,
    "view-above-share": view_above_share,
    "view-of-reduction": view_of_reduction,
    "window-and-offset": views.swapped_windows,
    "window-rejoins-blocks": views.window_rejoins_blocks,
}


def rewrite(rule: str, state: State, step: Step) -> Rewrite | None:
    """Return the rule's rewrite of ``step`` on ``state``; None if the rule has no formula."""
    rewriter = REWRITES.get(rule)
    return None if rewriter is None else rewriter(state, step)
