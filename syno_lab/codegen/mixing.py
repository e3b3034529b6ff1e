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
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from syno_lab.codegen.mixing_rules import REMEMBERED, Column, column_by_rules
from syno_lab.codegen.nest import generic_binding
from syno_lab.codegen.receptive_field import Part, bounds, part_of, points
from syno_lab.common.pairing import Pairing
from syno_lab.common.wants import Letter, Wish, wants_text
from syno_lab.errors import SpecError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

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
    """Columns as so many rows."""
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
