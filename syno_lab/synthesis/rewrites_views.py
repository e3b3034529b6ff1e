"""The rewrites of rules between views: coordinate expressions on both sides (Syno, section 6, "Between two views")."""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.features import are_adjacent, below_shifts, digit, offset_sizes, sharers
from syno_lab.synthesis.rewrites_parts import Part, Rewrite, arrow, parts
from syno_lab.synthesis.space import merge_blocks


def merge_above_split(state: State, step: Step) -> Rewrite | None:
    """Show ``[(C*#0 + #1)//B, (C*#0 + #1) % B]`` where one of C and B is a multiple of the other."""
    assert step.parameter is not None
    bottoms = step.operands[0].node.operands
    ratio = step.parameter / bottoms[1].size
    if not (ratio.is_one or state.spec.is_legal(ratio) or state.spec.is_legal(bottoms[1].size / step.parameter)):
        return _merge_above_splits(state, step)
    before, after = parts(state, bottoms)
    right = block, offset = after.bottoms
    if state.spec.is_legal(ratio) and not ratio.is_one:
        high, low = after.merge(block, block=ratio)
        right = high, after.split(low, offset)
    elif not ratio.is_one:
        high, low = after.merge(offset, block=step.parameter)
        right = after.split(block, high), low
    return arrow(before, before.taken(step), after, right)


def _merge_above_splits(state: State, step: Step) -> Rewrite | None:
    """Show ``[(B*C*#0 + C*#1 + #2)//D, ...]`` where D divides B*C, but not C."""
    (rest,), block = step.operands, step.parameter
    joined: list[Coordinate] = []
    for size in offset_sizes(rest):
        joined.append(rest)
        rest = rest.node.operands[0]
        if block in merge_blocks(state.spec, size):
            break
    else:
        return None
    joined.reverse()
    before, after = parts(state, (rest, *(c.node.operands[1] for c in joined)))
    for depth, coordinate in enumerate(joined):
        times = len(sharers(state, coordinate))
        before.share(before.built(coordinate), times=times)
        after.share(after.bottoms[: depth + 2], times=times)
    left = before.taken(step)
    above, below = after.merge(after.split(*after.bottoms[1:]), block=block)
    return arrow(before, left, after, (after.split(after.bottoms[0], above), below))


def merge_of_low_digit(state: State, step: Step) -> Rewrite | None:
    """Show three digits, made from the low digit and made from the high digit."""
    inner, block = step.operands[0].node, step.parameter
    assert inner.parameter is not None
    assert block is not None
    before, after = parts(state, inner.operands)
    high, low = before.merge(*before.bottoms, block=inner.parameter)
    rest, last = after.merge(*after.bottoms, block=block)
    left = (high, *before.merge(low, block=block))
    return arrow(before, left, after, (*after.merge(rest, block=inner.parameter / block), last))


def merge_of_reduction(state: State, step: Step) -> Rewrite | None:
    """Show the digits of a reduction, and digits of the same sizes in the canonical order."""
    (operand,), block = step.operands, step.parameter
    assert block is not None
    before, after = parts(state)
    if (operand.size / block).exponents < block.exponents:
        left: tuple[Coordinate, ...] = before.merge(*before.sums(operand), block=block)
        high, low = after.merge(after.reduce(operand.size), block=operand.size / block)
        return arrow(before, left, after, (low, high))
    (full,), inner = operand.node.operands, operand.node.parameter
    rest, last = before.merge(*before.sums(full), block=inner)
    left = (*before.merge(rest, block=block), last)
    rest, middle = after.merge(after.reduce(full.size), block=block)
    high, low = after.merge(rest, block=inner)
    return arrow(before, left, after, (high, middle, low))


def split_of_split(state: State, step: Step) -> Rewrite | None:
    """Show blocks of blocks, joined from the right and from the left."""
    block, offset = step.operands
    before, after = parts(state, (block, *offset.node.operands))
    times = len(sharers(state, offset))
    before.share(before.built(offset), times=times)
    after.share(after.bottoms[1:], times=times)
    return arrow(before, before.taken(step), after, [after.split(*after.bottoms)])


def rejoined(
    state: State, high: Coordinate, low: Coordinate, others: Sequence[Coordinate] = ()
) -> tuple[Part, Part, Coordinate]:
    """Return the two sides over two digits' undivided coordinate and ``others``, and the second side's joint digit.

    Digits of a reduction in another order are two sums on the left, and one sum of the product size on the right.
    """
    if are_adjacent(high, low):
        before, after = parts(state, (digit(high).root, *others))
        return before, after, joined_digit(after, high, low)
    before, after = parts(state, others)
    before.sums(high, low)
    return before, after, after.reduce(high.size * low.size)


def joined_digit(part: Part, high: Coordinate, low: Coordinate) -> Coordinate:
    """Return in ``part`` the digit that two neighbouring digits of the state form together."""
    above, below = digit(high), digit(low)
    joined = part.here[above.root]
    if not below.low.is_one:
        joined, _ = part.merge(joined, block=below.low)
    if above.high != above.root.size:
        _, joined = part.merge(joined, block=above.high / below.low)
    return joined


def blocks_before(state: State, coordinate: Coordinate) -> tuple[list[Coordinate], Coordinate]:
    """Return the blocks that the coordinate's unshared SPLITs put in front of its last digit, and this digit."""
    blocks = []
    while coordinate.node.primitive == "SPLIT" and coordinate not in state.sharing:
        block, coordinate = coordinate.node.operands
        blocks.append(block)
    return blocks, coordinate


def behind(part: Part, blocks: Sequence[Coordinate], joined: Coordinate) -> Coordinate:
    """Put blocks of the state in front of a coordinate of ``part``, the last block next to it."""
    for block in reversed(blocks):
        joined = part.split(part.here[block], joined)
    return joined


def split_undoes_merge(state: State, step: Step) -> Rewrite | None:
    """Show two neighbouring digits of ``#0`` joined, and their common digit; blocks may be in front."""
    blocks, high = blocks_before(state, step.operands[0])
    before, after, joined = rejoined(state, high, step.operands[1], blocks)
    return arrow(before, before.taken(step), after, [behind(after, blocks, joined)])


def dilated_window(state: State, step: Step) -> Rewrite | None:
    """Show a window along the high digit, and a STRIDEd window along the two digits."""
    (high, window), low = step.operands[0].node.operands, step.operands[1]
    before, after, joined = rejoined(state, high, low, [window])
    (strided,) = after.view("STRIDE", after.here[window], parameter=low.size)
    return arrow(before, before.taken(step), after, [after.unfold(joined, strided)])


def shift_above_rejoined(state: State, step: Step) -> Rewrite | None:
    """Show two neighbouring digits (the low one shared or the high one SHIFTed), joined and then SHIFTed."""
    shifted, low = step.operands[0].node.operands
    high, count = below_shifts(shifted)
    times = len(sharers(state, low))
    before, after = parts(state, [digit(high).root])
    before.share(before.built(low), times=times)
    block, offset = after.merge(after.shift(joined_digit(after, high, low)), block=low.size)
    after.share([offset], times=times)
    return arrow(before, before.taken(step), after, [after.split(after.shift(block, count), offset)])


def shifts_all_around(state: State, step: Step) -> Rewrite | None:
    """Show SHIFTs by all elements, and no SHIFT."""
    before, after = parts(state, [below_shifts(step.operands[0])[0]])
    return arrow(before, before.taken(step), after, after.bottoms)


def shifts_of_a_block(state: State, step: Step) -> Rewrite | None:
    """Show SHIFTs of the whole coordinate, and one SHIFT of the block's number."""
    before, after = parts(state, below_shifts(step.operands[0])[0].node.operands)
    block, offset = after.bottoms
    return arrow(before, before.taken(step), after, [after.split(after.shift(block), offset)])


def merge_above_shift_above_split(state: State, step: Step) -> Rewrite | None:
    """Show a SHIFT that carries into the next block, and a SHIFT inside the block."""
    joined, count = below_shifts(step.operands[0])
    before, after = parts(state, joined.node.operands)
    block, offset = after.bottoms
    return arrow(before, before.taken(step), after, (block, after.shift(offset, count)))


def swapped_windows(state: State, step: Step) -> Rewrite | None:
    """Show an UNFOLD of a SPLIT or an UNFOLD; the window and the second operand of the inner view change places."""
    inner, window = step.operands
    before, after = parts(state, (*inner.node.operands, window))
    times = len(sharers(state, inner))
    before.share(before.built(inner), times=times)
    after.share(after.bottoms[:2], times=times)
    main, first, second = after.bottoms
    (joined,) = after.view(inner.node.primitive, main, second)
    return arrow(before, before.taken(step), after, [after.unfold(joined, first)])


def window_rejoins_blocks(state: State, step: Step) -> Rewrite | None:
    """Show a window that is the digit below a SPLIT's blocks, and the joint coordinate; more blocks may be in front."""
    main, low = step.operands
    start, offset = main.node.operands
    blocks, high = blocks_before(state, start)
    before, after, full = rejoined(state, high, low, (*blocks, offset))
    joined = behind(after, blocks, full)
    above = sharers(state, main)
    before.share(before.built(main, low), times=len(above))
    after.share([joined, after.here[offset]], times=len(above))
    alone = sharers(state, high) - above
    before.share(before.built(high, low), times=len(alone))
    after.share([full], times=len(alone))
    return arrow(before, before.taken(step), after, [after.unfold(joined, after.here[offset])])


def expand_of_view(state: State, step: Step) -> Rewrite | None:
    """Show the results of a view dropped, and its operands dropped."""
    node = step.operands[0].node
    before, after = parts(state, node.operands)
    before.expand(*before.view(node.primitive, *before.bottoms, parameter=node.parameter))
    after.expand(*after.bottoms)
    return arrow(before, (), after, ())


def unfold_above_shift(state: State, step: Step) -> Rewrite | None:
    """Show ``(#0 + 1) % N + #1 - K//2`` and ``(#0 + #1 - K//2 + 1) % N``."""
    shifted, window = step.operands
    before, after = parts(state, (*shifted.node.operands, window))
    return arrow(before, before.taken(step), after, [after.shift(after.unfold(*after.bottoms))])


def merge_above_unfold(state: State, step: Step) -> Rewrite | None:
    """Show the window along the whole coordinate, and the window inside a block."""
    before, after = parts(state, step.operands[0].node.operands)
    main, window = after.bottoms
    high, low = after.merge(main, block=step.parameter)
    return arrow(before, before.taken(step), after, (high, after.unfold(low, window)))
