"""Canonicalization rules: which of several ways to write a function is the one to keep (Syno, section 6).

Each rule is a row: a name, what it rewrites, a one-sentence reason, the paper's section, and a match on a state and a
proposed step. *Exact* rules drop a step only where another way gives the very same function; *approximate* rules where
it gives nearly the same; *space* rows are restrictions of choice, neither. A new rule is one row in :data:`RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.digits import are_adjacent

TOLERANCE = 1 / 8  # an approximate rule applies where at most this share of the elements differs


@dataclass(frozen=True)
class Rule:
    """One row: ``before -> after`` because of ``reason``."""

    name: str
    before: str
    after: str
    reason: str
    section: str
    kind: Literal["exact", "approximate", "space"]
    match: Callable[[State, Step], bool]


# -- what rules ask of a state ---------------------------------------------------------------------------------------


def sharers(state: State, coordinate: Coordinate) -> frozenset[int]:
    """The weights a coordinate is SHAREd with."""
    return frozenset(i for i, weight in enumerate(state.weights) if coordinate in weight.shared)


def is_raw_reduction(state: State, coordinate: Coordinate) -> bool:
    """Whether it is a reduction's iterator that no weight shares."""
    return coordinate.is_reduction and not sharers(state, coordinate)


def _operand_from(step: Step, primitive: str, position: int = 0) -> bool:
    return step.operands[position].node.primitive == primitive


# -- the matches -----------------------------------------------------------------------------------------------------


def _reduce_late(state: State, step: Step) -> bool:
    return step.primitive == "REDUCE" and any(s.primitive != "REDUCE" for s in state.steps)


def _view_of_raw_reduction(state: State, step: Step) -> bool:
    if step.primitive not in ("MERGE", "SHIFT", "SPLIT"):
        return False
    return all(is_raw_reduction(state, c) for c in step.operands)


def _view_of_shared(state: State, step: Step) -> bool:
    if not PRIMITIVES[step.primitive].is_one_to_one:
        return False
    shared = {sharers(state, c) for c in step.operands}
    return len(shared) == 1 and bool(next(iter(shared)))


def _merge_above_split(state: State, step: Step) -> bool:
    if step.primitive != "MERGE" or not _operand_from(step, "SPLIT"):
        return False
    assert step.parameter is not None
    offset = step.operands[0].node.operands[1].size
    ratio = step.parameter / offset
    return ratio.is_one or state.spec.is_legal(ratio) or state.spec.is_legal(offset / step.parameter)


def _merge_of_low_digit(state: State, step: Step) -> bool:
    return step.primitive == "MERGE" and _operand_from(step, "MERGE") and step.operands[0].index == 1


def _split_undoes_merge(state: State, step: Step) -> bool:
    if step.primitive != "SPLIT" or not are_adjacent(*step.operands):
        return False
    return sharers(state, step.operands[0]) == sharers(state, step.operands[1])


def _expand_of_reduction(state: State, step: Step) -> bool:
    return step.primitive == "EXPAND" and all(leaf.is_reduction for leaf in step.operands[0].leaves())


def _expand_of_view(state: State, step: Step) -> bool:
    if step.primitive != "EXPAND":
        return False
    node = step.operands[0].node
    if node.primitive in ("SPLIT", "SHIFT", "STRIDE"):
        return True
    siblings = [c for c in state.expanded if c.node == node]
    return node.primitive == "MERGE" and bool(siblings)


def _expand_of_unfold(state: State, step: Step) -> bool:
    return step.primitive == "EXPAND" and _operand_from(step, "UNFOLD")


def _expand_of_shared(state: State, step: Step) -> bool:
    return step.primitive == "EXPAND" and bool(sharers(state, step.operands[0]))


def _unfold_of_two_reductions(state: State, step: Step) -> bool:
    return step.primitive == "UNFOLD" and all(is_raw_reduction(state, c) for c in step.operands)


def _unfold_above_shift(state: State, step: Step) -> bool:
    return step.primitive == "UNFOLD" and _operand_from(step, "SHIFT")


def _merge_above_unfold(state: State, step: Step) -> bool:
    if step.primitive != "MERGE" or not _operand_from(step, "UNFOLD"):
        return False
    return merge_above_unfold_difference(state.spec, step) <= TOLERANCE


def _reduction_in_one_weight(state: State, step: Step) -> bool:
    """A reduction leaves the data, and of the weights left after absorption only one has it."""
    if step.primitive == "EXPAND":
        leaving, new = step.operands, set()
    else:
        leaving, new = step.given, set(step.operands + step.given)
    if step.primitive not in ("EXPAND", "SHARE"):
        return False
    for coordinate in leaving:
        if coordinate.is_reduction:
            holders = sum(not set(state.weights[i].coordinates) <= new for i in sharers(state, coordinate))
            if holders + (step.primitive == "SHARE") == 1:
                return True
    return False


def _give_view(state: State, step: Step) -> bool:
    if step.primitive != "SHARE":
        return False
    for coordinate in step.given:
        node = coordinate.node
        if node.primitive in ("SPLIT", "SHIFT") and not sharers(state, coordinate):
            return True
        if node.primitive == "MERGE" and coordinate.index == 0:
            low = Coordinate(node, 1, node.parameter) if node.parameter is not None else None
            if low in step.given and sharers(state, coordinate) == sharers(state, low):
                return True
    return False


def _absorbed_weight(state: State, step: Step) -> bool:
    if step.primitive != "SHARE":
        return False
    new = set(step.operands + step.given)
    return any(new <= set(w.coordinates) or set(w.coordinates) <= new for w in state.weights)


def _share_strided_or_fixed(state: State, step: Step) -> bool:
    return step.primitive == "STRIDE" and step.operands[0].is_output


def _window_too_large(state: State, step: Step) -> bool:
    if step.primitive != "UNFOLD":
        return False
    main, window = step.operands[0].size, step.operands[1].size
    if window.has_primary:
        return True
    if not main.has_primary and main == window:
        return True
    return any(window.at(b) >= main.at(b) for b in state.spec.binding_maps)


def _stride_main(state: State, step: Step) -> bool:
    return step.primitive == "UNFOLD" and _operand_from(step, "STRIDE")


def merge_above_unfold_difference(spec: Spec, step: Step) -> float:
    """The share of (i, j) where MERGE above UNFOLD and UNFOLD of the low digit read different elements."""
    if not spec.binding_maps:
        return 1.0
    main, window = (c.size for c in step.operands[0].node.operands)
    assert step.parameter is not None
    binding = spec.binding_maps[0]
    return _block_crossings(main.at(binding), window.at(binding), step.parameter.at(binding))


@lru_cache(maxsize=4096)
def _block_crossings(main: int, window: int, block: int) -> float:
    """Positions inside a block repeat, so one block stands for all: crossing windows read another block or nothing."""
    crossing = sum(not 0 <= i + j - window // 2 < block for i in range(block) for j in range(window))
    return crossing / (block * window)


RULES: tuple[Rule, ...] = (
    Rule(
        "reduce-first",
        "REDUCE after other steps",
        "REDUCE before them",
        "REDUCEs commute with everything before them, so they come first.",
        "appendix A",
        "exact",
        _reduce_late,
    ),
    Rule(
        "view-of-reduction",
        "sum_r X[r/B, r%B]",
        "sum_a sum_b X[a, b]",
        "A reshape or roll of reductions that no weight shares only renames what is summed.",
        "6, between views and contractions",
        "exact",
        _view_of_raw_reduction,
    ),
    Rule(
        "view-above-share",
        "X[i/B, i%B] * W[i]",
        "X[a, b] * W[a, b] with [a, b] = [i/B, i%B]",
        "Weights can be reshaped offline, so 1-to-1 views stand below contractions.",
        "6, between views and contractions, Figure 3(b)",
        "exact",
        _view_of_shared,
    ),
    Rule(
        "merge-above-split",
        "[(C*i + j) / (B*C), (C*i + j) % (B*C)]",
        "[i/B, C*(i%B) + j]",
        "The block sizes divide one another, so a parenthesis can be removed: MERGE goes below SPLIT.",
        "6, between two views, Figure 3(a)",
        "exact",
        _merge_above_split,
    ),
    Rule(
        "merge-of-low-digit",
        "[i/B, (i%B)/C, (i%B)%C]",
        "[(i/C)/(B/C), (i/C)%(B/C), i%C]",
        "Three digits come from merging the high one again, never the low one.",
        "6, between two views",
        "exact",
        _merge_of_low_digit,
    ),
    Rule(
        "split-undoes-merge",
        "B*(i/B) + i%B",
        "i",
        "Joining two neighbouring digits undoes the MERGE, or is another MERGE, unless exactly one is shared.",
        "6, between two views",
        "exact",
        _split_undoes_merge,
    ),
    Rule(
        "reduction-in-one-weight",
        "sum_r W[r]",
        "W[]",
        "A reduction in one weight alone sums weight elements, which is again a weight by algebra.",
        "6, contractions",
        "space",
        _reduction_in_one_weight,
    ),
    Rule(
        "expand-of-reduction",
        "sum_r X[]",
        "N * X[]",
        "EXPAND of a REDUCE only changes a multiplier of the result.",
        "6, between views and contractions",
        "exact",
        _expand_of_reduction,
    ),
    Rule(
        "expand-of-view",
        "EXPAND of SPLIT, SHIFT, STRIDE or of both digits of a MERGE",
        "EXPAND of the coordinates below",
        "A dropped coordinate needs no view before it is dropped.",
        "6, between two views",
        "exact",
        _expand_of_view,
    ),
    Rule(
        "give-view",
        "W[B*i + j]",
        "W[i, j]",
        "Weights need no views: give the coordinates below instead.",
        "6, contractions",
        "exact",
        _give_view,
    ),
    Rule(
        "expand-of-shared",
        "SHARE and then EXPAND",
        "give it to the weight",
        "A coordinate of the weight that the data drop is given to the weight.",
        "6, contractions",
        "exact",
        _expand_of_shared,
    ),
    Rule(
        "absorbed-weight",
        "W1[i] * W2[i, j]",
        "W2[i, j]",
        "A weight whose coordinates all lie in another's can be multiplied into it offline.",
        "6, contractions",
        "exact",
        _absorbed_weight,
    ),
    Rule(
        "unfold-of-reductions",
        "sum_i sum_j X[i + j - K/2]",
        "K * sum_i X[i]",
        "At most one coordinate of an UNFOLD may be REDUCEd; with both it is a multiple except at the border.",
        "6, between views and contractions",
        "approximate",
        _unfold_of_two_reductions,
    ),
    Rule(
        "unfold-above-shift",
        "(i + 1) % N + j - K/2",
        "(i + j - K/2 + 1) % N",
        "UNFOLD and SHIFT commute except at the border, so SHIFT stands above.",
        "6, between two views",
        "approximate",
        _unfold_above_shift,
    ),
    Rule(
        "merge-above-unfold",
        "[(i + j - K/2) / B, (i + j - K/2) % B]",
        "[i/B, i%B + j - K/2]",
        "The block is much larger than the window, so both agree at almost every point.",
        "6, between two views, Figure 3(c)",
        "approximate",
        _merge_above_unfold,
    ),
    Rule(
        "expand-of-unfold",
        "EXPAND of i + j - K/2",
        "EXPAND of i and of j",
        "A dropped window is a multiple except at the border.",
        "6, between two views",
        "approximate",
        _expand_of_unfold,
    ),
    Rule(
        "window-size",
        "UNFOLD with a window of a primary size or as large as the main coordinate",
        "a smaller window",
        "In the space windows are made of coefficients and smaller than what they slide along.",
        "5.3",
        "space",
        _window_too_large,
    ),
    Rule(
        "stride-window",
        "STRIDE as an UNFOLD's main coordinate",
        "STRIDE as its window",
        "In the space STRIDE stands directly under an UNFOLD's window.",
        "5.2 and appendix A",
        "space",
        _stride_main,
    ),
    Rule(
        "stride-of-output",
        "STRIDE of an output coordinate",
        "STRIDE of a window",
        "In the space only windows are strided.",
        "5.2 and appendix A",
        "space",
        _share_strided_or_fixed,
    ),
)


def rejecting_rule(state: State, step: Step, rules: tuple[Rule, ...] = RULES) -> Rule | None:
    """The first rule that rejects ``step`` on ``state``, or None where the step is canonical."""
    for rule in rules:
        if rule.match(state, step):
            return rule
    return None
