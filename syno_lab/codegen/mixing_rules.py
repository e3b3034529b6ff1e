"""Rules that settle entries of the mixing matrices from the coordinate expressions alone, for all generic sizes.

Generic means: every size is more than 1, and a size with a primary is more than any without. For an input coordinate, a
rule says what positions it takes while some iterators run and the others stay where they are, at the best place for
that: ``all``, ``some`` (more than one, but not all), ``one``; or None where the numbers would have to be known, such as
how many blocks a window touches. Only coordinates that share no iterator with the bound of another have rules, so that
a place can be chosen for each alone.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from syno_lab.codegen.receptive_field import bounds, part_of
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator

Taken = Literal["all", "some", "one"]
_LOCALITY: dict[Taken, Literal["a", "m", "o"]] = {"all": "a", "some": "m", "one": "o"}


def axis_locality(operator: Operator, axis: int) -> Literal["a", "m", "o"] | None:
    """The locality of every pairing along an input axis, or None where no rule settles it."""
    found = _taken_alone(operator, axis, frozenset(operator.reductions))
    return None if found is None else _LOCALITY[found]


def pair_is_paired(operator: Operator, out: int, axis: int) -> bool | None:
    """Whether an input axis is paired with an output axis, or None where no rule settles it."""
    found = _taken_alone(operator, axis, frozenset((*operator.reductions, operator.output[out])))
    return None if found is None else found == "all"


def _taken_alone(operator: Operator, axis: int, running: Set[Coordinate]) -> Taken | None:
    coordinate = operator.inputs[axis]
    own = set(_below(coordinate))
    near = set(part_of(operator, coordinate).bounded)
    if not near <= own:
        return None  # bounds of other coordinates restrict this one
    if not all(_can_hold(c) for c in bounds(operator) if c not in near):
        return None  # it might be that nothing is read at all
    if any(c.size.is_one for c in own):
        return None  # one position is all of them
    return taken(coordinate, running)


def _below(coordinate: Coordinate) -> list[Coordinate]:
    """A coordinate and all that it is made of."""
    return [coordinate, *(c for operand in coordinate.node.operands for c in _below(operand))]


def _can_hold(coordinate: Coordinate) -> bool:
    """Whether a bound holds somewhere: it does for windows on windows, everything else is left to the numbers."""
    return all(c.is_leaf or c.node.primitive == "UNFOLD" for c in _below(coordinate))


def taken(coordinate: Coordinate, running: Set[Coordinate]) -> Taken | None:
    """The positions that a coordinate takes while ``running`` iterators run, by the rules of its primitive."""
    if coordinate.is_leaf:
        return "all" if coordinate in running else "one"
    if not running & set(coordinate.leaves()) and _is_chosen_freely(coordinate):
        return "one"
    node = coordinate.node
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
        case "UNFOLD":
            return _unfolded(node.operands[0], node.operands[1], found[0], found[1])
    return None


def _is_chosen_freely(coordinate: Coordinate) -> bool:
    return all(c.is_leaf or c.node.primitive != "STRIDE" for c in _below(coordinate))


def _unfolded(main: Coordinate, window: Coordinate, of_main: Taken | None, of_window: Taken | None) -> Taken | None:
    if of_main == "one" and of_window == "one":
        return "one"
    if of_main == "all" and (of_window == "all" or (of_window == "one" and window.is_leaf)):
        return "all"  # at the window's middle nothing is moved
    if of_main == "one" and of_window == "all" and main.size.has_primary and not window.size.has_primary:
        return "some"
    return None
