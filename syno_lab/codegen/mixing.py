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
by looking at every slice and element of two generic bindings of different scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from syno_lab.codegen.mixing_rules import axis_locality, pair_is_paired
from syno_lab.codegen.nest import generic_binding
from syno_lab.codegen.receptive_field import Part, bounds, part_of, points
from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

Locality = Literal["x", "o", "m", "a"]
_ORDER = {mark: i for i, mark in enumerate(get_args(Locality))}
WORDS = {"x": "not paired", "o": "one-to-one", "m": "many-to-one", "a": "all-to-one"}
MAX_ELEMENTS = 1 << 27
_SCALES = (1, 2, 3, 5)


@dataclass(frozen=True)
class Mixing:
    """The two matrices, with a row for each output axis and a column for each input axis.

    Attributes:
        rows: the output axes' sizes, in symbols.
        columns: the input axes' sizes.
        locality: ``x`` not paired, ``o`` one-to-one, ``m`` many-to-one, ``a`` all-to-one.
        binding: the sizes they hold for; None: generic ones.
        proved: which entries rules on the coordinate expressions settle for all generic sizes.
        settled: whether two generic bindings of different scale gave the same; always so for a binding.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    locality: tuple[tuple[Locality, ...], ...]
    binding: tuple[tuple[str, int], ...] | None
    proved: tuple[tuple[bool, ...], ...]
    settled: bool = True

    @property
    def pairing(self) -> tuple[tuple[bool, ...], ...]:
        """Whether the output axis (row) is paired with the input axis (column)."""
        return tuple(tuple(mark != "x" for mark in row) for row in self.locality)

    def __le__(self, other: Mixing) -> bool:
        """The paper's partial order, x < o < m < a in every entry: ``self`` is no more expressive than ``other``.

        Raises:
            SpecError: when they have different numbers of dimensions, which the paper does not compare.
        """
        if (len(self.rows), len(self.columns)) != (len(other.rows), len(other.columns)):
            raise SpecError(
                f"mixing: expected {len(self.rows)} output and {len(self.columns)} input axes to compare with, "
                f"found {len(other.rows)} and {len(other.columns)}"
            )
        pairs = zip(self._marks(), other._marks(), strict=True)
        return all(_ORDER[mine] <= _ORDER[theirs] for mine, theirs in pairs)

    def _marks(self) -> Iterator[Locality]:
        for row in self.locality:
            yield from row

    def __str__(self) -> str:
        """Both matrices, side by side in one: a letter for the locality, ``x`` where there is no pairing."""
        lines = [
            ["out \\ in", *self.columns],
            *([name, *row] for name, row in zip(self.rows, self.locality, strict=True)),
        ]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*body, "", ", ".join(f"{mark} {word}" for mark, word in WORDS.items())])

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in ("out \\ in", *self.columns))
        body = ""
        for name, row in zip(self.rows, self.locality, strict=True):
            cells = "".join(f'<td title="{WORDS[mark]}">{mark}</td>' for mark in row)
            body += f"<tr><th>{escape(name)}</th>{cells}</tr>"
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def mixing(operator: Operator, binding: Binding | None = None) -> Mixing:
    """The pairing and locality matrices of ``operator``.

    Args:
        operator: any; its weights count as free, so that nothing cancels (see Definition 3.1).
        binding: the sizes; None takes generic ones.

    Raises:
        SpecError: for a binding that does not fit or is too large to look at every element.
    """
    rows, columns = (tuple(str(c.size) for c in cs) for cs in (operator.output, operator.inputs))
    outs, ins = range(len(rows)), range(len(columns))
    if binding is not None:
        bound = operator.complete_binding(binding)
        none = ((False,) * len(columns),) * len(rows)
        return Mixing(rows, columns, _look(operator, bound), tuple(bound.items()), none)
    rules = [[_by_rule(operator, out, axis) for axis in ins] for out in outs]
    proved = tuple(tuple(mark is not None for mark in row) for row in rules)
    if all(map(all, proved)):
        return Mixing(rows, columns, tuple(tuple(mark or "x" for mark in row) for row in rules), None, proved)
    found, settled = _look(operator, generic_binding(operator)), False
    for scale in _SCALES[1:]:
        try:
            before, found = found, _look(operator, generic_binding(operator, scale))
        except SpecError:  # too large to look at: what the smaller sizes gave stands, unsettled
            break
        if found == before:
            settled = True
            break
    locality = tuple(tuple(rules[out][axis] or found[out][axis] for axis in ins) for out in outs)
    return Mixing(rows, columns, locality, None, proved, settled)


def _by_rule(operator: Operator, out: int, axis: int) -> Locality | None:
    is_paired = pair_is_paired(operator, out, axis)
    return axis_locality(operator, axis) if is_paired else None if is_paired is None else "x"


def _look(operator: Operator, binding: dict[str, int]) -> tuple[tuple[Locality, ...], ...]:
    """The matrix for one binding, from every term."""
    none: Locality = "x"
    # Where some bound holds nowhere no output element reads anything.
    if not all(_reached(operator, part_of(operator, c), binding).any() for c in bounds(operator)):
        return ((none,) * len(operator.inputs),) * len(operator.output)
    columns = []
    for coordinate in operator.inputs:
        part = part_of(operator, coordinate)
        columns.append(_column(operator, part, _reached(operator, part, binding)))
    return tuple(
        tuple(local if paired[out] else none for local, paired in columns) for out in range(len(operator.output))
    )


def _reached(operator: Operator, part: Part, binding: dict[str, int]) -> Any:
    """Over the part's output iterators and the positions of its input axis, if it has one: whether a term is there."""
    shape = tuple(c.size.at(binding) for c in part.outputs)
    shape += tuple(operator.inputs[axis].size.at(binding) for axis in part.axes) or (1,)
    if prod(shape) > MAX_ELEMENTS:
        raise SpecError(
            f"mixing: expected at most {MAX_ELEMENTS} pairs of an output element and a position, found {prod(shape)}: "
            "give a binding of smaller sizes"
        )
    found = np.zeros(shape, dtype=bool)
    for some in points(operator, part, binding, {}):
        number = len(some[part.leaves[0]])
        at = [some[c] for c in part.outputs]
        at += [some[operator.inputs[axis]] for axis in part.axes] or [np.zeros(number, dtype=np.int64)]
        found[tuple(at)] = True
    return found


def _column(operator: Operator, part: Part, reached: Any) -> tuple[Locality, list[bool]]:
    """The locality along one input axis, and for each output axis whether it is paired."""
    number = reached.shape[-1]
    most = int(reached.sum(axis=-1).max())
    local: Locality = "a" if most == number else "m" if most > 1 else "o"
    paired = []
    for leaf in operator.output:
        # An output axis on which nothing here depends adds nothing to an element's own preimage.
        slices = reached.any(axis=part.outputs.index(leaf)) if leaf in part.outputs else reached
        paired.append(bool(slices.all(axis=-1).any()))
    return local, paired
