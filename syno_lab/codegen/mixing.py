"""The mixing property of αNAS (section 3.1) for any pGraph: which dimensions are paired, and how locally.

The definitions use the preimage of a set of output elements (Definition 3.2; :mod:`syno_lab.codegen.receptive_field`):

* Input dimension l is **paired** with output dimension k (Definition 3.4) if *some* slice of the output along k reads
  an element at every position along l.
* A pairing is **all-to-one** (Definition 3.5) if the preimage of *some* output element has an element at every position
  along l. Any other pairing is **many-to-one** if some preimage has more than one position, else **one-to-one**. The
  paper says that a pairing has exactly one of the three kinds, but different elements can have different kinds. At the
  edge of an image a window may hold one pixel, in the middle several. The kinds are checked in the paper's order, so
  the widest preimage counts. A pairing's kind depends on l alone. An axis of length 1 is all-to-one.

For a binding, every slice and every element is checked, while the paper's own inference checks the centre alone. Axes
that share no iterator are checked separately: the joint preimage is the product of the axes' preimages.

Without a binding the sizes are generic: primary variables are large and different, coefficients have default values.
Rules on the coordinate expressions prove entries for all generic sizes where possible (:attr:`Mixing.proved`). Entries
without a proof come from all slices and elements of two generic bindings of different scale, one input axis at a time.

Sizes are generic if all are above 1, and if sizes with a primary variable are larger than sizes without a primary. A
rule gives the positions that an input coordinate takes while some iterators run. Other iterators are fixed, at the
values with the most positions. A rule returns ``all``, ``some`` (more than one, but not all), ``one``, or None if exact
sizes matter, such as the number of blocks that a window touches. A rule needs a coordinate that shares no iterator with
another coordinate's bound, so that its iterators can have these values.
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
#: The largest number of cached columns; operators with small differences share most of their columns.
REMEMBERED = 1 << 14


class Column(NamedTuple):
    """A column of the mixing matrix, for one input axis; None where an entry is unknown.

    Attributes:
        locality: the locality of every pairing along the axis.
        paired: for each output axis, whether the input axis is paired with it.
    """

    locality: Letter | None
    paired: tuple[bool | None, ...]

    @property
    def marks(self) -> tuple[Letter | None, ...]:
        """For each output axis the mark of the pairing; None where it is unknown."""
        return tuple("x" if paired is False else paired and self.locality for paired in self.paired)

    def completed(self, other: Column) -> Column:
        """Return this column with each None replaced by the entry of ``other``."""
        paired = tuple(b if a is None else a for a, b in zip(self.paired, other.paired, strict=True))
        return Column(self.locality or other.locality, paired)

    def meets(self, wish: Wish) -> bool | None:
        """Return whether the column meets the constraint of this axis; None if unknown entries decide it."""
        if self.locality is not None and RANK[self.locality] < RANK[wish.least]:
            return False
        paired = self.paired if wish.output is None else (self.paired[wish.output],)
        if True in paired:
            return None if self.locality is None else True
        return None if None in paired else False


def column_by_rules(operator: Operator, axis: int) -> Column:
    """Return the entries of an input axis's column that the rules prove; the others are None."""
    coordinate, number = operator.inputs[axis], len(operator.spec.output_shape)
    bounded = bounds(operator)
    if bounded:
        own, leaves = _made_of(coordinate), reach(_leaves(coordinate), bounded)
        for bound in bounded:
            # No rule applies if another coordinate's bound restricts this one, or if no element may satisfy the bound.
            if bound not in own and not (leaves.isdisjoint(_leaves(bound)) and _can_hold(bound)):
                return Column(None, (None,) * number)
    return _by_rules(coordinate, number)


@lru_cache(maxsize=REMEMBERED)
def _by_rules(coordinate: Coordinate, number: int) -> Column:
    if any(c.size.is_one for c in _made_of(coordinate)):
        return Column(None, (None,) * number)  # no rule is for size 1: a single position is ``one`` and ``all``
    leaves = _leaves(coordinate)
    reductions = frozenset(leaf for leaf in leaves if leaf.is_reduction)
    alone = taken(coordinate, reductions)
    outputs = {leaf.node.tag: taken(coordinate, reductions | {leaf}) for leaf in leaves if leaf.is_output}
    positions = [outputs.get(axis, alone) for axis in range(number)]
    return Column(
        None if alone is None else _LOCALITY[alone], tuple([None if t is None else t == "all" for t in positions])
    )


@lru_cache(maxsize=REMEMBERED)
def _made_of(coordinate: Coordinate) -> frozenset[Coordinate]:
    return frozenset((coordinate,)).union(*map(_made_of, coordinate.node.operands))


@lru_cache(maxsize=REMEMBERED)
def _can_hold(bound: Coordinate) -> bool:
    """Check whether some element satisfies an UNFOLD's bound and the other bounds; False means unknown.

    The coordinates of the data take their values independently. So the main coordinate can have a value that satisfies
    the bound for the window's middle, or for one value of a small window.
    """
    main, window = bound.node.operands
    return taken(main, _leaves(main)) == "all" and (
        taken(window, _leaves(window)) == "all" or _is_small(window, beside=main)
    )


def taken(coordinate: Coordinate, running: Set[Coordinate]) -> Taken | None:
    """Return how many positions a coordinate takes while the iterators ``running`` run, by its primitive's rules."""
    if coordinate.is_leaf:
        return "all" if coordinate in running else "one"
    if running.isdisjoint(_leaves(coordinate)) and _is_chosen_freely(coordinate):
        return "one"
    node = coordinate.node
    if node.primitive == "UNFOLD":
        main, window = node.operands
        return _unfolded(main, window, running)
    positions = [taken(c, running) for c in node.operands]
    if None in positions:
        return None
    match node.primitive:
        case "SHIFT":
            return positions[0]
        case "MERGE":  # the number of a digit's values is unknown for ``some`` positions
            return positions[0] if positions[0] != "some" else None
        case "SPLIT":
            return positions[0] if positions[0] == positions[1] else "some"
        case own if own in PRIMITIVES and PRIMITIVES[own].is_one_to_one:  # like SHIFT, a user's primitive
            return positions[0]
    return None


def _unfolded(main: Coordinate, window: Coordinate, running: Set[Coordinate]) -> Taken | None:
    of_main, of_window = taken(main, running), taken(window, running)
    if of_main == "one" and of_window == "one":
        return "one"
    if of_main == "all" and (of_window == "all" or (of_window == "one" and window.is_leaf)):
        return "all"  # the window's middle value shifts no position
    if not _is_small(window, beside=main):
        return None
    if of_main in ("all", "one") and _spans(window, running):
        # The window's first value reaches all positions but the last few. The last value reaches all but the first few.
        return "all" if of_main == "all" else "some"
    if of_main == "some" and main.node.primitive == "UNFOLD" and taken(main.node.operands[0], running) == "one":
        return "some"  # two nested small windows read fewer positions than their sizes' sum
    return None


def _spans(window: Coordinate, running: Set[Coordinate]) -> bool:
    """Check whether a window takes values on both sides of its middle; a STRIDE's window takes 0 and S*(K-1)."""
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
        binding: the sizes that the pairing holds for; None means generic sizes.
        proved: for each entry, whether rules on the coordinate expressions prove it for all generic sizes.
        settled: whether two generic bindings of different scale gave equal results; always True for a binding.
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
    """Implement :meth:`.Operator.mixing` (see Definition 3.1)."""
    rows, columns = (tuple(str(c.size) for c in cs) for cs in (operator.output, operator.inputs))
    axes = range(len(columns))
    if binding is not None:
        bound = operator.complete_binding(binding)
        marks = _turned([_look(operator, axis, bound).marks for axis in axes], len(rows))
        return Mixing(rows, columns, marks, tuple(bound.items()), ((False,) * len(columns),) * len(rows))
    at_sizes, settled = zip(*(_generic(operator, axis) for axis in axes), strict=True) if columns else ((), ())
    proved = _turned([[m is not None for m in column_by_rules(operator, axis).marks] for axis in axes], len(rows))
    return Mixing(rows, columns, _turned([column.marks for column in at_sizes], len(rows)), None, proved, all(settled))


def meets(operator: Operator, wants: Iterable[Wish] | None = None) -> bool:
    """Implement :meth:`.Operator.meets`. An operator above :data:`MAX_ELEMENTS` is too large to check."""
    return all(_meets(operator, wish) for wish in (operator.spec.wants if wants is None else wants))


def wish_verdict(operator: Operator) -> str:
    """Return whether the operator meets its spec's wishes, as text after the word *it*; empty without wishes."""
    wants = operator.spec.wants
    if not wants:
        return ""
    try:
        return mixing(operator).verdict(wants)
    except SpecError as error:
        return f"may miss the wish {wants_text(wants, operator.spec.input_shape, operator.spec.output_shape)}: {error}"


def _meets(operator: Operator, wish: Wish) -> bool:
    column = column_by_rules(operator, wish.axis)
    answer = column.meets(wish)
    if answer is None:
        try:
            column, _ = _generic(operator, wish.axis)
        except SpecError:
            return False
        answer = column.meets(wish)
    return bool(answer)


def _turned(columns: Sequence[Sequence[Any]], number: int) -> Any:
    return tuple(tuple(column[row] for column in columns) for row in range(number))


def _generic(operator: Operator, axis: int) -> tuple[Column, bool]:
    """Return a column at generic sizes, by rules where possible, else from all elements, and whether it is settled."""
    rules = column_by_rules(operator, axis)
    if None not in rules.marks:
        return rules, True
    column, settled = _look(operator, axis, generic_binding(operator)), False
    for scale in _SCALES[1:]:
        try:
            before, column = column, _look(operator, axis, generic_binding(operator, scale))
        except SpecError:  # too large to check, so the result of smaller sizes stays unsettled
            break
        if column == before:
            settled = True
            break
    return rules.completed(column), settled


def _look(operator: Operator, axis: int, binding: dict[str, int]) -> Column:
    """Compute an input axis's column for one binding from all terms of the loop nest."""
    nothing = Column("o", (False,) * len(operator.output))
    # If no element satisfies some bound, no output element reads anything.
    if not all(_seen(operator, bound, None, binding) for bound in bounds(operator)):
        return nothing
    coordinate = operator.inputs[axis]
    return _seen(operator, coordinate, coordinate, binding) or nothing


def _seen(
    operator: Operator, coordinate: Coordinate, read: Coordinate | None, binding: dict[str, int]
) -> Column | None:
    """Return the column of the input coordinate ``read``, from the terms of a part; None for a part without terms."""
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
    """Compute :func:`_seen`, cached, because operators with small differences share parts."""
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
        # Along an output axis that the part does not depend on, all slices read the same elements.
        here = [place for place, leaf in enumerate(part.outputs) if leaf.node.tag == axis]
        slices = reached.any(axis=here[0]) if here else reached
        paired.append(bool(slices.all(axis=-1).any()))
    return Column("a" if most == shape[-1] else "m" if most > 1 else "o", tuple(paired))
