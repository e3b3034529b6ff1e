"""The rewrites of rules between views: coordinate expressions on both sides (Syno, section 6, "Between two views")."""

from __future__ import annotations

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.digits import are_adjacent, digit
from syno_lab.synthesis.rewrites_parts import Part, Rewrite, parts
from syno_lab.synthesis.rules import sharers


def merge_above_split(state: State, step: Step) -> Rewrite | None:
    """``[(C*#0 + #1)//B, (C*#0 + #1) % B]`` with C and B multiples of one another."""
    assert step.parameter is not None
    bottoms = step.operands[0].node.operands
    ratio = step.parameter / bottoms[1].size
    before, after = parts(state, bottoms)
    (joined,) = before.view("SPLIT", *before.bottoms)
    left = before.side(*before.view("MERGE", joined, parameter=step.parameter))
    block, offset = after.bottoms
    if ratio.is_one:
        return Rewrite(bottoms, left, after.side(block, offset))
    if state.spec.is_legal(ratio):
        high, low = after.view("MERGE", block, parameter=ratio)
        (joined,) = after.view("SPLIT", low, offset)
        return Rewrite(bottoms, left, after.side(high, joined))
    high, low = after.view("MERGE", offset, parameter=step.parameter)
    (joined,) = after.view("SPLIT", block, high)
    return Rewrite(bottoms, left, after.side(joined, low))


def merge_of_low_digit(state: State, step: Step) -> Rewrite | None:
    """Three digits, the low one taken apart or the high one."""
    assert step.parameter is not None
    inner = step.operands[0].node
    assert inner.parameter is not None
    bottoms = inner.operands
    before, after = parts(state, bottoms)
    high, low = before.view("MERGE", *before.bottoms, parameter=inner.parameter)
    left = before.side(high, *before.view("MERGE", low, parameter=step.parameter))
    high, low = after.view("MERGE", *after.bottoms, parameter=step.parameter)
    right = after.side(*after.view("MERGE", high, parameter=inner.parameter / step.parameter), low)
    return Rewrite(bottoms, left, right)


def split_of_split(state: State, step: Step) -> Rewrite | None:
    """Blocks of blocks, put together from the right or from the left."""
    bottoms = (step.operands[0], *step.operands[1].node.operands)
    before, after = parts(state, bottoms)
    first, second, third = before.bottoms
    (offset,) = before.view("SPLIT", second, third)
    for _ in sharers(state, step.operands[1]):
        before.share([offset])
        after.share(after.bottoms[1:])
    left = before.side(*before.view("SPLIT", first, offset))
    first, second, third = after.bottoms
    return Rewrite(bottoms, left, after.side(*after.view("SPLIT", *after.view("SPLIT", first, second), third)))


def split_undoes_merge(state: State, step: Step) -> Rewrite | None:
    """Two neighbouring digits of ``#0`` joined, and the digit that they are together; blocks may stand before it."""
    blocks, high = [], step.operands[0]
    while not are_adjacent(high, step.operands[1]):
        block, high = high.node.operands
        blocks.append(block)
    root, low = digit(high).root, step.operands[1]
    bottoms = (root, *blocks)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    left = before.side(*before.view("SPLIT", *(before.rebuild(c, over) for c in step.operands)))
    joined = joined_digit(after, after.bottoms[0], high, low)
    for block in reversed(after.bottoms[1:]):
        (joined,) = after.view("SPLIT", block, joined)
    return Rewrite(bottoms, left, after.side(joined))


def joined_digit(part: Part, root: Coordinate, high: Coordinate, low: Coordinate) -> Coordinate:
    """The digit of ``root``, a coordinate of ``part``, that two neighbouring digits of another state are together."""
    above, below = digit(high), digit(low)
    joined = root
    if not below.low.is_one:
        joined, _ = part.view("MERGE", joined, parameter=below.low)
    if above.high != above.root.size:
        _, joined = part.view("MERGE", joined, parameter=above.high / below.low)
    return joined


def dilated_window(state: State, step: Step) -> Rewrite | None:
    """A window along the high digit, and a STRIDEd one along both."""
    (high, window), low = step.operands[0].node.operands, step.operands[1]
    bottoms = (digit(high).root, window)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    left = before.side(*before.view("SPLIT", *(before.rebuild(c, over) for c in step.operands)))
    strided = after.view("STRIDE", after.bottoms[1], parameter=low.size)
    return Rewrite(
        bottoms, left, after.side(*after.view("UNFOLD", joined_digit(after, after.bottoms[0], high, low), *strided))
    )


def shift_above_rejoined(state: State, step: Step) -> Rewrite | None:
    """Two neighbouring digits, the low one shared or the high one SHIFTed, joined and SHIFTed."""
    shifted, low = step.operands[0].node.operands
    high, count = below_shifts(shifted)
    root, number = digit(high).root, len(sharers(state, low))
    before, after = parts(state, (root,))
    over = {root: before.bottoms[0]}
    tops = [before.rebuild(c, over) for c in (high, low)]
    for _ in range(number):
        before.share(tops[1:])
    top = shifts(before, tops[0], count)
    left = before.side(*before.view("SHIFT", *before.view("SPLIT", top, tops[1])))
    block, offset = after.view(
        "MERGE", *after.view("SHIFT", joined_digit(after, after.bottoms[0], high, low)), parameter=low.size
    )
    for _ in range(number):
        after.share([offset])
    return Rewrite((root,), left, after.side(*after.view("SPLIT", shifts(after, block, count), offset)))


def shifts_of_a_block(state: State, step: Step) -> Rewrite | None:
    """SHIFTs of the whole, and one SHIFT of the number of the block."""
    joined, count = below_shifts(step.operands[0])
    bottoms = joined.node.operands
    before, after = parts(state, bottoms)
    (top,) = before.view("SPLIT", *before.bottoms)
    left = before.side(shifts(before, top, count + 1))
    block, offset = after.bottoms
    return Rewrite(bottoms, left, after.side(*after.view("SPLIT", shifts(after, block, 1), offset)))


def merge_above_shift_above_split(state: State, step: Step) -> Rewrite | None:
    """A SHIFT that carries into the next block, or stays inside its own."""
    joined, count = below_shifts(step.operands[0])
    bottoms = joined.node.operands
    before, after = parts(state, bottoms)
    (top,) = before.view("SPLIT", *before.bottoms)
    left = before.side(*before.view("MERGE", shifts(before, top, count), parameter=step.parameter))
    block, offset = after.bottoms
    return Rewrite(bottoms, left, after.side(block, shifts(after, offset, count)))


def below_shifts(coordinate: Coordinate) -> tuple[Coordinate, int]:
    """The coordinate under the SHIFTs right below this one, and how many they are."""
    count = 0
    while coordinate.node.primitive == "SHIFT":
        coordinate, count = coordinate.node.operands[0], count + 1
    return coordinate, count


def shifts(part: Part, coordinate: Coordinate, count: int) -> Coordinate:
    """``coordinate`` SHIFTed ``count`` times."""
    for _ in range(count):
        (coordinate,) = part.view("SHIFT", coordinate)
    return coordinate


def window_and_offset(state: State, step: Step) -> Rewrite | None:
    """A SPLIT's offset and a window of the same size, swapped."""
    return _swapped(state, step, "SPLIT")


def unfold_windows(state: State, step: Step) -> Rewrite | None:
    """Two windows along one coordinate, swapped."""
    return _swapped(state, step, "UNFOLD")


def _swapped(state: State, step: Step, inner: str) -> Rewrite:
    """An UNFOLD of the view ``inner``: its window and the second operand of that view change places."""
    bottoms = (*step.operands[0].node.operands, step.operands[1])
    before, after = parts(state, bottoms)
    main, first, second = before.bottoms
    (joined,) = before.view(inner, main, first)
    for _ in sharers(state, step.operands[0]):
        before.share([joined])
        after.share(after.bottoms[:2])
    left = before.side(*before.view("UNFOLD", joined, second))
    main, first, second = after.bottoms
    return Rewrite(bottoms, left, after.side(*after.view("UNFOLD", *after.view(inner, main, second), first)))


def window_rejoins_blocks(state: State, step: Step) -> Rewrite | None:
    """A window that is the digit below a SPLIT's blocks, and the whole that they are; more blocks may stand before."""
    main, low = step.operands
    high, offset = main.node.operands
    blocks = []
    while not are_adjacent(high, low):
        block, high = high.node.operands
        blocks.append(block)
    root = digit(high).root
    bottoms = (root, *blocks, offset)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    joined = whole = joined_digit(after, after.bottoms[0], high, low)
    for block in reversed(after.bottoms[1:-1]):
        (joined,) = after.view("SPLIT", block, joined)
    above = sharers(state, main)
    for _ in above:
        before.share([before.rebuild(c, over) for c in step.operands])
        after.share([joined, after.bottoms[-1]])
    for _ in sharers(state, high) - above:
        before.share([before.rebuild(c, over) for c in (high, low)])
        after.share([whole])
    left = before.side(*before.view("UNFOLD", *(before.rebuild(c, over) for c in step.operands)))
    return Rewrite(bottoms, left, after.side(*after.view("UNFOLD", joined, after.bottoms[-1])))


def expand_of_view(state: State, step: Step) -> Rewrite | None:
    """Dropping what a view makes, or what it is made of."""
    node = step.operands[0].node
    before, after = parts(state, node.operands)
    before.expand(*before.view(node.primitive, *before.bottoms, parameter=node.parameter))
    after.expand(*after.bottoms)
    return Rewrite(node.operands, before.side(), after.side())


def unfold_above_shift(state: State, step: Step) -> Rewrite | None:
    """``(#0 + 1) % N + #1 - K//2`` and ``(#0 + #1 - K//2 + 1) % N``."""
    bottoms = (step.operands[0].node.operands[0], step.operands[1])
    before, after = parts(state, bottoms)
    (shifted,) = before.view("SHIFT", before.bottoms[0])
    left = before.side(*before.view("UNFOLD", shifted, before.bottoms[1]))
    (window,) = after.view("UNFOLD", *after.bottoms)
    return Rewrite(bottoms, left, after.side(*after.view("SHIFT", window)))


def merge_above_unfold(state: State, step: Step) -> Rewrite | None:
    """The window slides over the whole, or inside a block."""
    bottoms = step.operands[0].node.operands
    before, after = parts(state, bottoms)
    (window,) = before.view("UNFOLD", *before.bottoms)
    left = before.side(*before.view("MERGE", window, parameter=step.parameter))
    high, low = after.view("MERGE", after.bottoms[0], parameter=step.parameter)
    return Rewrite(bottoms, left, after.side(high, *after.view("UNFOLD", low, after.bottoms[1])))
