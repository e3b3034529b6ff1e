"""The solver by shape matching: the ways to broadcast a tensor onto another (Canvas, sections 5 and 6.2).

Equal lists of sizes match element by element. From other lists, the longest common suffix is removed first, then the
longest common prefix. The rest of the left side, L, repeats inside the rest of the right side, R = M · L. If only L has
a dynamic variable, the candidates for this variable are all factors for which M is whole. A match is final: the
broadcast keeps the slots of R after later substitutions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from syno_lab.canvas.kernel import Draft, Substitution
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES, Primitive
from syno_lab.canvas.shape import Shape, factors, parse, variables_of
from syno_lab.errors import PrimitiveError
from syno_lab.inputs import quoted


class Match(NamedTuple):
    """One way to broadcast: the primitive's parameter, and a substitution in the whole draft before the primitive."""

    parameter: str
    substitution: Substitution | None = None


def broadcast(draft: Draft, name: str, lhs: int, rhs: int, by: str | None = None) -> Draft:
    """Return the draft with tensor ``lhs`` broadcast onto tensor ``rhs``.

    Args:
        draft: the draft with the two tensors.
        name: ``add``, ``sub``, ``mul``, ``min`` or ``max``.
        lhs: the number of the tensor that repeats.
        rhs: the number of the tensor whose shape the result has.
        by: the size for the left side's dynamic variable, such as ``C/G``, where a choice is necessary.

    Raises:
        PrimitiveError: where the tensors do not match, or ``by`` is not among the choices, which the message lists.
        SpecError: where ``by`` is no size.
    """
    if not all(0 <= number < len(draft.shapes) for number in (lhs, rhs)):
        raise PrimitiveError(f"{name}: expected tensors 0 to {len(draft.shapes) - 1}, found {lhs} and {rhs}")
    left, right = draft.shapes[lhs], draft.shapes[rhs]
    choices = {match.substitution.by if match.substitution else None: match for match in matches(left, right)}
    if not choices:
        raise PrimitiveError(f"{name}: expected a LHS that repeats inside a RHS, found {left} and {right}")
    match = choices.get(None if by is None else parse(by))
    if match is None:
        listed = ", ".join(size.pretty for size in choices if size is not None)
        expected = f"{listed} for x{left.free}" if listed else "no size, as nothing is left to choose"
        raise PrimitiveError(f"{name}: {left} onto {right}: expected {expected}, found {quoted(by)}")
    return draft.apply(Primitive(name, match.parameter), (lhs, rhs), match.substitution)


@lru_cache(maxsize=1 << 16)
def matches(lhs: Shape, rhs: Shape) -> tuple[Match, ...]:
    """Return all ways to broadcast a tensor of shape ``lhs`` onto a tensor of shape ``rhs``; empty if there is none.

    A substitution may make the shape of another tensor illegal: then :meth:`Draft.substitute` refuses it.
    """
    parameter = _unmatched(lhs, rhs)
    kind = PRIMITIVES[BROADCASTS[0]]  # all broadcasts apply to the same shapes
    repeats = rhs.volume / lhs.volume
    below = [number for number, power in variables_of(repeats) if power < 0]
    if not below:
        return (Match(parameter),) if kind.applies(parameter, (lhs, rhs)) else ()
    (number,) = below
    return tuple(
        [
            Match(parameter, Substitution(number, factor))
            for factor in factors(repeats)
            if (after := lhs.substituted(number, factor)).fault is None and kind.applies(parameter, (after, rhs))
        ]
    )


def _unmatched(lhs: Shape, rhs: Shape) -> str:
    """Return the parameter of a broadcast: the slots of ``rhs`` between the common prefix and the common suffix."""
    left, right, filled = lhs.sizes, rhs.sizes, rhs.filled
    suffix = prefix = 0
    while suffix < min(len(left), len(right)) and left[-1 - suffix] == right[-1 - suffix]:
        suffix += 1
    while prefix < min(len(left), len(right)) - suffix and left[prefix] == right[prefix]:
        prefix += 1
    block = filled[prefix : len(filled) - suffix]
    return "" if not block else block[0] if len(block) == 1 else f"{block[0]}..{block[-1]}"
