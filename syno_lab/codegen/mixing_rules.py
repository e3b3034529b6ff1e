"""Rules that settle entries of the mixing matrices from the coordinate expressions alone, for all generic sizes.

Generic means: every size is more than 1, and a size with a primary is more than any without. For an input coordinate, a
rule says what positions it takes while some iterators run and the others stay where they are, at the best place for
that: ``all``, ``some`` (more than one, but not all), ``one``; or None where the numbers would have to be known, such as
how many blocks a window touches. Only coordinates that share no iterator with the bound of another have rules, so that
a place can be chosen for each alone.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from typing import Literal, NamedTuple

from syno_lab.codegen.receptive_field import bounds, reach
from syno_lab.codegen.receptive_field import leaves_of as _leaves
from syno_lab.common.wants import RANK, Letter, Wish
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES

Taken = Literal["all", "some", "one"]
_LOCALITY: dict[Taken, Letter] = {"all": "a", "some": "m", "one": "o"}
#: Columns that are remembered: operators that differ elsewhere have them in common.
REMEMBERED = 1 << 14


class Column(NamedTuple):
    """What is known of one input axis: None where it is not settled.

    Attributes:
        locality: of every pairing along the axis.
        paired: for each output axis, whether the input axis is paired with it.
    """

    locality: Letter | None
    paired: tuple[bool | None, ...]

    @property
    def marks(self) -> tuple[Letter | None, ...]:
        """The entry of each output axis."""
        return tuple("x" if paired is False else paired and self.locality for paired in self.paired)

    def completed(self, other: Column) -> Column:
        """With what another one knows where this one does not."""
        paired = tuple(b if a is None else a for a, b in zip(self.paired, other.paired, strict=True))
        return Column(self.locality or other.locality, paired)

    def meets(self, wish: Wish) -> bool | None:
        """Whether a wish for this axis is met; None where that is not settled."""
        if self.locality is not None and RANK[self.locality] < RANK[wish.least]:
            return False
        paired = self.paired if wish.output is None else (self.paired[wish.output],)
        if True in paired:
            return None if self.locality is None else True
        return None if None in paired else False


def column_by_rules(operator: Operator, axis: int) -> Column:
    """What rules settle of the column of an input axis."""
    coordinate, number = operator.inputs[axis], len(operator.spec.output_shape)
    bounded = bounds(operator)
    if bounded:
        own, leaves = _made_of(coordinate), reach(_leaves(coordinate), bounded)
        for bound in bounded:
            # Where the bound of another coordinate restricts this one, or it might be that nothing is read at all.
            if bound not in own and not (leaves.isdisjoint(_leaves(bound)) and _can_hold(bound)):
                return Column(None, (None,) * number)
    return _by_rules(coordinate, number)


@lru_cache(maxsize=REMEMBERED)
def _by_rules(coordinate: Coordinate, number: int) -> Column:
    if any(c.size.is_one for c in _made_of(coordinate)):
        return Column(None, (None,) * number)  # one position is all of them
    leaves = _leaves(coordinate)
    reductions = frozenset(leaf for leaf in leaves if leaf.is_reduction)
    alone = taken(coordinate, reductions)
    outputs = {leaf.node.tag: taken(coordinate, reductions | {leaf}) for leaf in leaves if leaf.is_output}
    found = [outputs.get(axis, alone) for axis in range(number)]
    return Column(
        None if alone is None else _LOCALITY[alone], tuple([None if t is None else t == "all" for t in found])
    )


@lru_cache(maxsize=REMEMBERED)
def _made_of(coordinate: Coordinate) -> frozenset[Coordinate]:
    """A coordinate and all that it is made of."""
    return frozenset((coordinate,)).union(*map(_made_of, coordinate.node.operands))


@lru_cache(maxsize=REMEMBERED)
def _can_hold(bound: Coordinate) -> bool:
    """Whether an UNFOLD's bound holds somewhere, and the others with it; False leaves it to the numbers.

    Coordinates of the data take their values apart from one another. So the main coordinate can be where the window's
    middle, or any one value of a small window, keeps it inside.
    """
    main, window = bound.node.operands
    return taken(main, _leaves(main)) == "all" and (
        taken(window, _leaves(window)) == "all" or _is_small(window, beside=main)
    )


def taken(coordinate: Coordinate, running: Set[Coordinate]) -> Taken | None:
    """The positions that a coordinate takes while ``running`` iterators run, by the rules of its primitive."""
    if coordinate.is_leaf:
        return "all" if coordinate in running else "one"
    if running.isdisjoint(_leaves(coordinate)) and _is_chosen_freely(coordinate):
        return "one"
    node = coordinate.node
    if node.primitive == "UNFOLD":
        main, window = node.operands
        return _unfolded(main, window, running)
    found = [taken(c, running) for c in node.operands]
    if None in found:
        return None
    match node.primitive:
        case "SHIFT":
            return found[0]
        case "MERGE":  # a digit of all is all; of some, it depends on how many there are
            return found[0] if found[0] != "some" else None
        case "SPLIT":
            return found[0] if found[0] == found[1] else "some"
        case own if own in PRIMITIVES and PRIMITIVES[own].is_one_to_one:  # one of the user's own, as SHIFT
            return found[0]
    return None


def _unfolded(main: Coordinate, window: Coordinate, running: Set[Coordinate]) -> Taken | None:
    of_main, of_window = taken(main, running), taken(window, running)
    if of_main == "one" and of_window == "one":
        return "one"
    if of_main == "all" and (of_window == "all" or (of_window == "one" and window.is_leaf)):
        return "all"  # at the window's middle nothing is moved
    if not _is_small(window, beside=main):
        return None
    if of_main in ("all", "one") and _spans(window, running):
        # With all of it: the window's first value reaches all positions but the last few, its last all but the first.
        return "all" if of_main == "all" else "some"
    if of_main == "some" and main.node.primitive == "UNFOLD" and taken(main.node.operands[0], running) == "one":
        return "some"  # a window on a window: fewer positions than both together
    return None


def _spans(window: Coordinate, running: Set[Coordinate]) -> bool:
    """Whether a window takes values on both sides of its middle: of a STRIDE, 0 and S*(K-1) are such."""
    if not window.is_leaf and window.node.primitive == "STRIDE":
        return _spans(window.node.operands[0], running)
    return taken(window, running) == "all"


def _is_small(window: Coordinate, *, beside: Coordinate) -> bool:
    return beside.size.has_primary and not window.size.has_primary


@lru_cache(maxsize=REMEMBERED)
def _is_chosen_freely(coordinate: Coordinate) -> bool:
    return all(c.is_leaf or c.node.primitive != "STRIDE" for c in _made_of(coordinate))
