"""The rewrites of rules about contractions, sums and dropped coordinates: whole functions on both sides.

Syno, section 6, "Contractions" and "Between views and contractions", and appendix A.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.digits import are_adjacent, digit
from syno_lab.synthesis.matches import below_shifts, is_high_of_shift
from syno_lab.synthesis.matches_weights import weight_rank
from syno_lab.synthesis.rewrites_parts import Part, Rewrite, parts
from syno_lab.synthesis.rewrites_views import Rejoined, expand_of_view, joined_digit, shifts
from syno_lab.synthesis.rules import sharers


def play(part: Part, step: Step) -> tuple[Coordinate, ...]:
    """Apply ``step`` to the wildcards, which stand for its operands and then its given coordinates; what is left."""
    shared = part.bottoms[: len(step.operands)]
    if step.primitive == "SHARE":
        part.share(shared, part.bottoms[len(step.operands) :])
        return shared
    if step.primitive == "EXPAND":
        part.expand(*shared)
        return ()
    return part.view(step.primitive, *shared, parameter=step.parameter)


def reduce_first(state: State, step: Step) -> Rewrite | None:
    """A REDUCE and the last step before it that is none, in both orders."""
    assert step.parameter is not None
    last = next(s for s in reversed(state.steps) if s.primitive != "REDUCE")
    bottoms = last.operands + last.given
    before, after = parts(state, bottoms)
    left = before.side(*play(before, last), before.reduce(step.parameter))
    new = after.reduce(step.parameter)
    return Rewrite(bottoms, left, after.side(*play(after, last), new), in_steps=True)


def view_of_reduction(state: State, step: Step) -> Rewrite | None:
    """A sum over the results of a view, each summed over by itself; blocks may stand before those of a SPLIT."""
    if step.primitive == "SPLIT":
        blocks, high = _blocks_before(state, step)
        found = Rejoined(state, high, step.operands[1], blocks)
        return found.rewrite(found.before.view("SPLIT", *found.built(*step.operands)), [found.behind(blocks)])
    before, after = parts(state, ())
    tops = before.view(step.primitive, *(before.reduce(c.size) for c in step.operands), parameter=step.parameter)
    right = after.side(*(after.reduce(c.size) for c in tops))
    return Rewrite((), before.side(*tops), right, summed=step.operands)


def split_of_reductions(state: State, step: Step) -> Rewrite | None:
    """Two sums side by side in a SPLIT, in both orders."""
    blocks, high = _blocks_before(state, step)
    low = step.operands[1]
    before, after = parts(state, blocks)
    over = {
        **dict(zip(blocks, before.bottoms, strict=True)),
        high: before.reduce(high.size),
        low: before.reduce(low.size),
    }
    left = before.side(*before.view("SPLIT", *(before.rebuild(c, over) for c in step.operands)))
    joined = after.reduce(low.size)
    for block in reversed(after.bottoms):
        (joined,) = after.view("SPLIT", block, joined)
    right = after.side(*after.view("SPLIT", joined, after.reduce(high.size)))
    return Rewrite(tuple(blocks), left, right, summed=(high, low))


def _blocks_before(state: State, step: Step) -> tuple[list[Coordinate], Coordinate]:
    """The blocks that SPLITs have put before the last digit of a SPLIT's first operand, and this digit."""
    blocks, high = [], step.operands[0]
    while high.node.primitive == "SPLIT" and high not in state.sharing:
        block, high = high.node.operands
        blocks.append(block)
    return blocks, high


def shift_above_reduction(state: State, step: Step) -> Rewrite | None:
    """A SHIFT across blocks whose number is summed, and one inside the blocks."""
    digits, first = [], step.operands[0]
    while first.node.primitive == "SPLIT":
        first, offset = first.node.operands
        digits.append(offset)
    bottoms = tuple(reversed(digits))
    before, after = parts(state, bottoms)
    top = before.reduce(first.size)
    for offset in before.bottoms:
        (top,) = before.view("SPLIT", top, offset)
    rest = after.bottoms[0]
    for offset in after.bottoms[1:]:
        (rest,) = after.view("SPLIT", rest, offset)
    right = after.side(*after.view("SPLIT", after.reduce(first.size), shifts(after, rest, 1)))
    return Rewrite(bottoms, before.side(shifts(before, top, 1)), right, summed=(first,))


def view_above_share(state: State, step: Step) -> Rewrite | None:
    """The weights' elements told by the view's operands, or by its results."""
    before, after = parts(state, step.operands)
    number = len(sharers(state, step.operands[0]))
    for _ in range(number):
        before.share(before.bottoms)
    left = before.side(*before.view(step.primitive, *before.bottoms, parameter=step.parameter))
    tops = after.view(step.primitive, *after.bottoms, parameter=step.parameter)
    for _ in range(number):
        after.share(tops)
    return Rewrite(step.operands, left, after.side(*tops))


def expand_of_reduction(state: State, step: Step) -> Rewrite:
    """A sum over what is dropped is a multiple."""
    (dropped,) = step.operands
    before, after = parts(state, ())
    before.expand(before.reduce(dropped.size))
    return Rewrite((), before.side(), after.side(factor=dropped.size), summed=(dropped,))


def _nodes(coordinate: Coordinate) -> Iterator[Node]:
    """The primitives that a coordinate is made by."""
    yield coordinate.node
    for operand in coordinate.node.operands:
        yield from _nodes(operand)


def expand_of_shared(state: State, step: Step) -> Rewrite | None:
    """Shared with weights and then dropped, or given to the last of them."""
    before, after = parts(state, step.operands)
    number = len(sharers(state, step.operands[0]))
    for part in (before, after):
        for _ in range(number - 1):
            part.share(part.bottoms)
    before.share(before.bottoms)
    before.expand(*before.bottoms)
    after.share((), after.bottoms)
    return Rewrite(step.operands, before.side(), after.side())


def expand_of_unfold(state: State, step: Step) -> Rewrite | None:
    """A dropped window reads zero out of bounds; its two coordinates dropped do not."""
    return expand_of_view(state, step)


def _low_of_shift(part: Part, coordinate: Coordinate, block: Size) -> tuple[Coordinate, Coordinate]:
    """Both digits of a coordinate, the low one SHIFTed."""
    high, low = part.view("MERGE", coordinate, parameter=block)
    return high, shifts(part, low, 1)


def expand_above_shift(state: State, step: Step) -> Rewrite | None:
    """The high digit of a SHIFT dropped, or that of the whole, and the low one SHIFTed."""
    node = step.operands[0].node
    assert node.parameter is not None
    bottoms = node.operands[0].node.operands
    before, after = parts(state, bottoms)
    high, low = before.view("MERGE", shifts(before, before.bottoms[0], 1), parameter=node.parameter)
    before.expand(high)
    high, shifted = _low_of_shift(after, after.bottoms[0], node.parameter)
    after.expand(high)
    return Rewrite(bottoms, before.side(low), after.side(shifted))


def give_above_shift(state: State, step: Step) -> Rewrite | None:
    """Weights that have the high digit of a SHIFT and fix the low one, and what they have without the carry."""
    high = next(c for c in step.given if is_high_of_shift(c))
    node = high.node
    assert node.parameter is not None
    whole = node.operands[0].node.operands[0]
    old = [state.weights[i] for i in sorted(sharers(state, high))]
    coordinates = (*(c for weight in old for c in weight.coordinates), *step.operands, *step.given)
    bottoms = tuple(dict.fromkeys((whole, *(leaf for c in coordinates for leaf in _leaves(c, whole)))))
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    there = dict(zip(bottoms, after.bottoms, strict=True))
    there[high], there[Coordinate(node, 1, node.parameter)] = _low_of_shift(after, there[whole], node.parameter)
    for part, found in ((before, over), (after, there)):
        for weight in old:
            part.share([part.rebuild(c, found) for c in weight.coordinates])
        part.share(
            [part.rebuild(c, found) for c in step.operands],
            [part.rebuild(c, found) for c in step.given],
        )
    left = before.side(*(before.rebuild(c, over) for c in step.operands))
    return Rewrite(bottoms, left, after.side(*(after.rebuild(c, there) for c in step.operands)))


def _leaves(coordinate: Coordinate, stop: Coordinate) -> Iterator[Coordinate]:
    """What a coordinate is made of, down to iterators and to ``stop``."""
    if coordinate == stop or coordinate.is_leaf:
        yield coordinate
        return
    for operand in coordinate.node.operands:
        yield from _leaves(operand, stop)


def give_view(state: State, step: Step) -> Rewrite | None:
    """A weight that is indexed by a view's results, or by its operands; with the weights that share those results."""
    for coordinate in step.given:
        if coordinate.node.primitive in ("SPLIT", "SHIFT"):
            return _give_below(state, step, (coordinate,), coordinate.node.operands)
    for high, low in permutations(step.given, 2):
        if are_adjacent(high, low) and sharers(state, high) == sharers(state, low):
            return _give_below(state, step, (high, low), (digit(high).root,))
    return None


def _give_below(
    state: State, step: Step, views: tuple[Coordinate, ...], below: tuple[Coordinate, ...]
) -> Rewrite | None:
    """``views`` given, or what they are made of: the operands ``below`` or, for two digits, a digit of the root."""
    others = tuple(c for c in step.given if c not in views)
    bottoms = (*step.operands, *others, *below)
    if len(set(bottoms)) < len(bottoms):
        return None
    before, after = parts(state, bottoms)
    shared, rest = len(step.operands), len(step.operands) + len(others)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    results = [before.rebuild(c, over) for c in views]
    instead = after.bottoms[rest:] if len(views) == 1 else (joined_digit(after, after.bottoms[rest], *views),)
    for _ in sharers(state, views[0]):
        before.share(results)
        after.share(instead)
    before.share(before.bottoms[:shared], (*before.bottoms[shared:rest], *results))
    after.share(after.bottoms[:shared], (*after.bottoms[shared:rest], *instead))
    return Rewrite(bottoms, before.side(*before.bottoms[:shared]), after.side(*after.bottoms[:shared]))


def share_above_shift(state: State, step: Step) -> Rewrite | None:
    """The low digit of a SHIFTed SPLIT shared, or the SPLIT's offset."""
    for coordinate in step.operands:
        node = coordinate.node
        if node.primitive != "MERGE" or coordinate.index == 0:
            continue
        joined, count = below_shifts(node.operands[0])
        if not count or joined.node.primitive != "SPLIT" or joined.node.operands[1].size != coordinate.size:
            continue
        given = step.given
        others = tuple(c for c in step.operands if c != coordinate)
        bottoms = (*joined.node.operands, *others, *given)
        before, after = parts(state, bottoms)
        over = dict(zip(bottoms, before.bottoms, strict=True))
        low = before.rebuild(coordinate, over)
        gives = before.bottoms[len(bottoms) - len(given) :]
        rest = before.bottoms[2 : len(bottoms) - len(given)]
        before.share((low, *rest), gives)
        left = before.side(low, *rest)
        after.share((after.bottoms[1], *rest), gives)  # wildcards are the same on both sides
        return Rewrite(bottoms, left, after.side(after.rebuild(coordinate, over), *rest))
    return None


def absorbed_weight(state: State, step: Step) -> Rewrite | None:
    """Two weights, the coordinates of one among the other's, or their product in one."""
    new = step.operands + step.given
    old = next(w for w in state.weights if set(new) <= set(w.coordinates) or set(w.coordinates) <= set(new))
    bottoms = tuple(dict.fromkeys(old.coordinates + new))
    given = set(old.given) | set(step.given)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))
    before.share([over[c] for c in old.shared], [over[c] for c in old.given])
    before.share([over[c] for c in step.operands], [over[c] for c in step.given])
    tops = [over[c] for c in bottoms if c not in given]
    after.share(tops, [over[c] for c in bottoms if c in given])
    return Rewrite(bottoms, before.side(*tops), after.side(*tops))


def absorbed_through_views(state: State, step: Step) -> Rewrite | None:
    """Two weights, the element of one fixed by the other's through views, or their product in one."""
    new = step.operands + step.given
    for old in state.weights:
        for kept, absorbed in ((old.coordinates, new), (new, old.coordinates)):
            if determines(kept, absorbed):
                leaves = tuple(dict.fromkeys(leaf for c in (*old.coordinates, *new) for leaf in c.leaves()))
                before, after = parts(state, leaves)
                over = dict(zip(leaves, before.bottoms, strict=True))
                for coordinates in (old.coordinates, new):
                    before.share([before.rebuild(c, over) for c in coordinates])
                left = before.side(*(before.rebuild(c, over) for c in step.operands))
                after.share([after.rebuild(c, over) for c in kept])
                # The bounds of an UNFOLD that only the absorbed weight was indexed by stay.
                seen = {*kept, *step.operands, *_inside((*kept, *step.operands))}
                bounds = [c for c in absorbed if c not in seen and any(n.primitive == "UNFOLD" for n in _nodes(c))]
                after.expand(*(after.rebuild(c, over) for c in bounds))
                return Rewrite(leaves, left, after.side(*(after.rebuild(c, over) for c in step.operands)))
    return None


def determines(known: Iterable[Coordinate], wanted: Iterable[Coordinate]) -> bool:
    """Whether the values of ``known`` leave no choice for those of ``wanted``, by the primitives between them."""
    known, wanted = set(known), set(wanted)
    nodes = {node for c in known | wanted for node in _nodes(c)}
    results = {node: {c for c in known | wanted | set(_inside(known | wanted)) if c.node == node} for node in nodes}
    while True:
        before = len(known)
        for node in nodes:
            operands = set(node.operands)
            if operands and operands <= known:
                known |= results[node]
            elif _undone(node, results[node] & known, known):
                known |= operands
        if len(known) == before:
            return wanted <= known


def _undone(node: Node, values: set[Coordinate], known: set[Coordinate]) -> bool:
    """Whether these results of a view, and the operands known, tell its operands."""
    if node.primitive == "MERGE":
        return len(values) == 2
    if node.primitive == "UNFOLD":
        return bool(values) and bool(known & set(node.operands))
    return bool(values) and bool(node.operands)


def _inside(coordinates: Iterable[Coordinate]) -> Iterator[Coordinate]:
    for coordinate in coordinates:
        yield from coordinate.node.operands
        yield from _inside(coordinate.node.operands)


def contraction_order(state: State, step: Step) -> Rewrite | None:
    """A contraction and an earlier one that it does not depend on, in both orders."""
    new = step.operands + step.given
    made_from = set(_inside(new))
    late = weight_rank(new)
    old = next(
        (
            w
            for w in state.weights
            if not made_from & set(w.coordinates)  # neither is made from what the other holds
            and not set(w.shared) <= set(step.given)  # which would leave it nothing to share
            and late < weight_rank(w.coordinates)
        ),
        None,
    )
    if old is None:
        return None
    bottoms = tuple(dict.fromkeys(old.coordinates + new))
    given = set(old.given) | set(step.given)
    before, after = parts(state, bottoms)
    over = dict(zip(bottoms, before.bottoms, strict=True))

    def contract(part: Part, shared: Iterable[Coordinate], gives: Iterable[Coordinate]) -> None:
        part.share([over[c] for c in shared], [over[c] for c in gives])

    contract(before, old.shared, old.given)
    contract(before, step.operands, step.given)
    # Whoever comes last is given what both have.
    contract(
        after, [c for c in new if c in step.operands or c in old.shared], [c for c in step.given if c not in old.shared]
    )
    contract(after, [c for c in old.shared if c not in step.given], [c for c in old.coordinates if c in given])
    tops = [over[c] for c in bottoms if c not in given]
    return Rewrite(bottoms, before.side(*tops), after.side(*tops), in_steps=True)


def unfold_of_reductions(state: State, step: Step) -> Rewrite | None:
    """A sum over windows is a multiple of the sum, but for what the windows at the border leave out."""
    main, window = (c.size for c in step.operands)
    before, after = parts(state, ())
    tops = before.view("UNFOLD", before.reduce(main), before.reduce(window))
    right = after.side(after.reduce(main), factor=window)
    return Rewrite((), before.side(*tops), right, summed=step.operands)
