"""The rewrites of rules between views: coordinate expressions on both sides (Syno, section 6, "Between two views")."""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.digits import are_adjacent, are_one, digit
from syno_lab.synthesis.matches import below_shifts
from syno_lab.synthesis.parameters import merge_blocks
from syno_lab.synthesis.rewrites_parts import Part, Rewrite, parts
from syno_lab.synthesis.rules import sharers


def merge_above_split(state: State, step: Step) -> Rewrite | None:
    """``[(C*#0 + #1)//B, (C*#0 + #1) % B]`` with C and B multiples of one another."""
    assert step.parameter is not None
    bottoms = step.operands[0].node.operands
    ratio = step.parameter / bottoms[1].size
    if not (ratio.is_one or state.spec.is_legal(ratio) or state.spec.is_legal(bottoms[1].size / step.parameter)):
        return _merge_above_splits(state, step)
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


def _merge_above_splits(state: State, step: Step) -> Rewrite | None:
    """``[(B*C*#0 + C*#1 + #2)//D, ...]`` with D a divisor of B*C, though not of C."""
    block = step.parameter
    assert block is not None
    rest, size = step.operands[0], state.spec.symbols.one
    joined: list[Coordinate] = []
    offsets: list[Coordinate] = []
    while rest.node.primitive == "SPLIT":
        joined.append(rest)
        rest, offset = rest.node.operands
        offsets.insert(0, offset)
        size = size * offset.size
        if block in merge_blocks(state.spec, size):
            break
    else:
        return None
    bottoms = (rest, *offsets)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    for depth, coordinate in enumerate(reversed(joined)):
        for _ in sharers(state, coordinate):
            before.share([before.rebuild(coordinate, over)])
            after.share(after.bottoms[: depth + 2])
    left = before.side(*before.view("MERGE", before.rebuild(step.operands[0], over), parameter=block))
    high, whole, *others = after.bottoms
    for offset in others:
        (whole,) = after.view("SPLIT", whole, offset)
    above, below = after.view("MERGE", whole, parameter=block)
    return Rewrite(bottoms, left, after.side(*after.view("SPLIT", high, above), below))


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


def merge_of_reduction(state: State, step: Step) -> Rewrite | None:
    """The digits of a reduction, and those of the same sizes in the order that is kept."""
    (operand,) = step.operands
    block = step.parameter
    assert block is not None
    if (operand.size / block).exponents < block.exponents:
        before, after = parts(state, ())
        left = before.side(*before.view("MERGE", before.reduce(operand.size), parameter=block))
        high, low = after.view("MERGE", after.reduce(operand.size), parameter=operand.size / block)
        return Rewrite((), left, after.side(low, high), (operand,))
    (whole,), inner = operand.node.operands, operand.node.parameter
    before, after = parts(state, ())
    rest, last = before.view("MERGE", before.reduce(whole.size), parameter=inner)
    left = before.side(*before.view("MERGE", rest, parameter=block), last)
    rest, middle = after.view("MERGE", after.reduce(whole.size), parameter=block)
    high, low = after.view("MERGE", rest, parameter=inner)
    return Rewrite((), left, after.side(high, middle, low), (whole,))


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


class Rejoined:
    """Both sides of a rewrite that puts two digits together again, over what they are digits of and ``others``.

    Digits of a reduction that are not in order are two sums on the left and one of both sizes on the right.
    """

    def __init__(self, state: State, high: Coordinate, low: Coordinate, others: Sequence[Coordinate]) -> None:
        in_order = are_adjacent(high, low)
        self.bottoms = (digit(high).root, *others) if in_order else tuple(others)
        self.summed = () if in_order else (high, low)
        self.before, self.after = parts(state, self.bottoms)
        self.over = dict(zip(self.bottoms, self.before.bottoms, strict=True))
        self.there = dict(zip(self.bottoms, self.after.bottoms, strict=True))
        if in_order:
            self.joined = joined_digit(self.after, self.after.bottoms[0], high, low)
        else:
            self.over.update({c: self.before.reduce(c.size) for c in (high, low)})
            self.joined = self.after.reduce(high.size * low.size)

    def built(self, *coordinates: Coordinate) -> tuple[Coordinate, ...]:
        """Coordinates of the state as they are proposed."""
        return tuple(self.before.rebuild(c, self.over) for c in coordinates)

    def behind(self, blocks: Sequence[Coordinate]) -> Coordinate:
        """What has been put together, behind blocks, the last of them next to it."""
        joined = self.joined
        for block in reversed(blocks):
            (joined,) = self.after.view("SPLIT", self.there[block], joined)
        return joined

    def rewrite(self, left: Sequence[Coordinate], right: Sequence[Coordinate]) -> Rewrite:
        """The rewrite with these coordinates on top."""
        return Rewrite(self.bottoms, self.before.side(*left), self.after.side(*right), self.summed)


def blocks_before(high: Coordinate, low: Coordinate) -> tuple[list[Coordinate], Coordinate]:
    """The blocks that SPLITs have put before the digit that is one with ``low``, and this digit."""
    blocks = []
    while not are_one(high, low):
        block, high = high.node.operands
        blocks.append(block)
    return blocks, high


def split_undoes_merge(state: State, step: Step) -> Rewrite | None:
    """Two neighbouring digits of ``#0`` joined, and the digit that they are together; blocks may stand before it."""
    blocks, high = blocks_before(*step.operands)
    found = Rejoined(state, high, step.operands[1], blocks)
    return found.rewrite(found.before.view("SPLIT", *found.built(*step.operands)), [found.behind(blocks)])


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
    found = Rejoined(state, high, low, (window,))
    left = found.before.view("SPLIT", *found.built(*step.operands))
    strided = found.after.view("STRIDE", found.there[window], parameter=low.size)
    return found.rewrite(left, found.after.view("UNFOLD", found.joined, *strided))


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


def shifts_all_around(state: State, step: Step) -> Rewrite | None:
    """SHIFTs by all elements, and none."""
    bottom, count = below_shifts(step.operands[0])
    before, after = parts(state, (bottom,))
    left = before.side(shifts(before, before.bottoms[0], count + 1))
    return Rewrite((bottom,), left, after.side(*after.bottoms))


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
    blocks, high = blocks_before(main.node.operands[0], low)
    offset = main.node.operands[1]
    found = Rejoined(state, high, low, (*blocks, offset))
    joined = found.behind(blocks)
    above = sharers(state, main)
    for _ in above:
        found.before.share(found.built(main, low))
        found.after.share([joined, found.there[offset]])
    for _ in sharers(state, high) - above:
        found.before.share(found.built(high, low))
        found.after.share([found.joined])
    left = found.before.view("UNFOLD", *found.built(main, low))
    return found.rewrite(left, found.after.view("UNFOLD", joined, found.there[offset]))


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
