"""The mixing property of αNAS (section 3.1) for any operator: which dimensions are paired, and how locally.

With the preimage of a set of output elements (Definition 3.2; :mod:`syno_lab.codegen.receptive_field`):

* input dimension l is **paired** with output dimension k (Definition 3.4) when there *is* a slice of the output along k
  whose preimage has an element at every position along l;
* a pairing is **all-to-one** (Definition 3.5) when there *is* an output element whose preimage has an element at every
  position along l, else **many-to-one** when there is one with more than one position, else **one-to-one**. The
  paper says that a pairing is exactly one of the three, but different elements can satisfy different ones (at the edge
  of an image a window may hold one pixel, in the middle several): they are asked in the paper's order, so the most that
  any element reads counts. Locality depends on l alone. An axis of length 1 is all of itself, and all-to-one.

For a binding this is decided by looking at every slice and every element, not only at the centre as the paper's own
inference does. The axes that share no iterator are looked at apart, which changes nothing: their preimages multiply.

Without a binding the matrices are those of generic sizes, primaries large and different, coefficients at their
defaults: by rules on the coordinate expressions where these settle it for all such sizes (:attr:`Mixing.proved`), else
by looking at every slice and element of two generic bindings of different scale, each input axis by itself.

Generic means: every size is more than 1, and a size with a primary is more than any without. For an input coordinate, a
rule says what positions it takes while some iterators run and the others stay where they are, at the best place for
that: ``all``, ``some`` (more than one, but not all), ``one``; or None where the numbers would have to be known, such as
how many blocks a window touches. Only coordinates that share no iterator with the bound of another have rules, so that
a place can be chosen for each alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from syno_lab.codegen.nest import generic_binding
from syno_lab.codegen.receptive_field import Part, bounds, part_of, points, reach
from syno_lab.codegen.receptive_field import leaves_of as _leaves
from syno_lab.common.pairing import Pairing
from syno_lab.common.wants import RANK, Letter, Wish, wants_text
from syno_lab.errors import SpecError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding

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


MAX_ELEMENTS = 1 << 27
_SCALES = (1, 2, 3, 5)


@dataclass(frozen=True)
class Mixing(Pairing):
    """The pairing of an operator, with a row for each output axis and a column for each input axis.

    Attributes:
        binding: the sizes it holds for; None: generic ones.
        proved: which entries rules on the coordinate expressions settle for all generic sizes.
        settled: whether two generic bindings of different scale gave the same; always so for a binding.
    """

    binding: tuple[tuple[str, int], ...] | None
    proved: tuple[tuple[bool, ...], ...]
    settled: bool = True

    @property
    def locality(self) -> tuple[tuple[Letter, ...], ...]:
        """The marks: ``x`` not paired, ``o`` one-to-one, ``m`` many-to-one, ``a`` all-to-one."""
        return self.marks

    @property
    def pairing(self) -> tuple[tuple[bool, ...], ...]:
        """Whether the output axis (row) is paired with the input axis (column)."""
        return tuple(tuple(mark != "x" for mark in row) for row in self.marks)


def mixing(operator: Operator, binding: Binding | None = None) -> Mixing:
    """The method :meth:`.Operator.mixing` (see Definition 3.1)."""
    rows, columns = (tuple(str(c.size) for c in cs) for cs in (operator.output, operator.inputs))
    axes = range(len(columns))
    if binding is not None:
        bound = operator.complete_binding(binding)
        marks = _turned([_look(operator, axis, bound).marks for axis in axes], len(rows))
        return Mixing(rows, columns, marks, tuple(bound.items()), ((False,) * len(columns),) * len(rows))
    found, settled = zip(*(_generic(operator, axis) for axis in axes), strict=True) if columns else ((), ())
    proved = _turned([[m is not None for m in column_by_rules(operator, axis).marks] for axis in axes], len(rows))
    return Mixing(rows, columns, _turned([column.marks for column in found], len(rows)), None, proved, all(settled))


def meets(operator: Operator, wants: Iterable[Wish] | None = None) -> bool:
    """The method :meth:`.Operator.meets`; too large is an operator above :data:`MAX_ELEMENTS`."""
    return all(_meets(operator, wish) for wish in (operator.spec.wants if wants is None else wants))


def wish_verdict(operator: Operator) -> str:
    """Whether the operator meets the wishes of its spec, after the word *it*; empty without wishes."""
    wants = operator.spec.wants
    if not wants:
        return ""
    try:
        return mixing(operator).verdict(wants)
    except SpecError as error:
        return f"may miss the wish {wants_text(wants, operator.spec.input_shape, operator.spec.output_shape)}: {error}"


def _meets(operator: Operator, wish: Wish) -> bool:
    found = column_by_rules(operator, wish.axis)
    answer = found.meets(wish)
    if answer is None:
        try:
            found, _ = _generic(operator, wish.axis)
        except SpecError:
            return False
        answer = found.meets(wish)
    return bool(answer)


def _turned(columns: Sequence[Sequence[Any]], number: int) -> Any:
    return tuple(tuple(column[row] for column in columns) for row in range(number))


def _generic(operator: Operator, axis: int) -> tuple[Column, bool]:
    """A column at generic sizes, and whether it is settled: by rules where they can, else by looking at elements."""
    rules = column_by_rules(operator, axis)
    if None not in rules.marks:
        return rules, True
    found, settled = _look(operator, axis, generic_binding(operator)), False
    for scale in _SCALES[1:]:
        try:
            before, found = found, _look(operator, axis, generic_binding(operator, scale))
        except SpecError:  # too large to look at: what the smaller sizes gave stands, unsettled
            break
        if found == before:
            settled = True
            break
    return rules.completed(found), settled


def _look(operator: Operator, axis: int, binding: dict[str, int]) -> Column:
    """A column for one binding, from every term."""
    nothing = Column("o", (False,) * len(operator.output))
    # Where some bound holds nowhere no output element reads anything.
    if not all(_seen(operator, bound, None, binding) for bound in bounds(operator)):
        return nothing
    coordinate = operator.inputs[axis]
    return _seen(operator, coordinate, coordinate, binding) or nothing


def _seen(
    operator: Operator, coordinate: Coordinate, read: Coordinate | None, binding: dict[str, int]
) -> Column | None:
    """The column of what is ``read`` in the part of a coordinate; None where there is no term."""
    part = part_of(operator, coordinate)
    shape = (*(leaf.size.at(binding) for leaf in part.outputs), 1 if read is None else read.size.at(binding))
    if prod(shape) > MAX_ELEMENTS:
        raise SpecError(
            f"mixing: expected at most {MAX_ELEMENTS} pairs of an output element and a position, found {prod(shape)}: "
            "give a binding of smaller sizes"
        )
    return _column(part, read, shape, len(operator.output), tuple(binding.items()))


@lru_cache(maxsize=REMEMBERED)
def _column(
    part: Part, read: Coordinate | None, shape: tuple[int, ...], number: int, binding: tuple[tuple[str, int], ...]
) -> Column | None:
    """As :func:`_seen`; operators that differ elsewhere have parts in common, so it is remembered."""
    reached = np.zeros(shape, dtype=bool)
    for some in points(part, [] if read is None else [read], dict(binding), {}):
        at = [some[leaf] for leaf in part.outputs]
        at += [np.zeros(len(some[part.leaves[0]]), dtype=np.int64) if read is None else some[read]]
        reached[tuple(at)] = True
    most = int(reached.sum(axis=-1).max(initial=0))
    if not most:
        return None
    paired = []
    for axis in range(number):
        # An output axis on which nothing here depends adds nothing to an element's own preimage.
        here = [place for place, leaf in enumerate(part.outputs) if leaf.node.tag == axis]
        slices = reached.any(axis=here[0]) if here else reached
        paired.append(bool(slices.all(axis=-1).any()))
    return Column("a" if most == shape[-1] else "m" if most > 1 else "o", tuple(paired))
