"""The numbers of a fitted kernel at every place of its network, and how they came about (Canvas, section 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from syno_lab.canvas.filling import conditions_of, lcms_of, ratios_of, solve
from syno_lab.canvas.fitted import Fitted, outer_of
from syno_lab.canvas.places import Budget, Place


class Number(NamedTuple):
    """The number of one dynamic variable at one place.

    Attributes:
        place: the name of the place (:func:`place_name`).
        layers: how many layers of the network are there.
        variable: ``x0``.
        lcm: what it must be a multiple of.
        base: its number in the base solution; None where there is none.
        doublings: how often the base was doubled; None where the number is less than the base.
        more: the number, less the doubled base.
        value: the number.
        is_solved: whether the place is one of those that the kernel was fitted to.
    """

    place: str
    layers: int
    variable: str
    lcm: int
    base: int | None
    doublings: int | None
    more: int | None
    value: int
    is_solved: bool


def place_name(place: Place) -> str:
    """A place for people, as an entry of a menu; two places of a network have two names."""
    stride = f", stride {place.stride}" if place.stride > 1 else ""
    return f"{place.c_in} to {place.c_out} channels, {place.h}x{place.w}, window {place.kh}x{place.kw}{stride}"


def numbers(operator: Fitted, places: Sequence[Place]) -> list[Number]:
    """The numbers of all dynamic variables at these places, with what they were made from.

    Places that the operator was not fitted to have the base solution that they would have alone.
    """
    kernel = operator.kernel
    solved = {replace(place, layers=1) for place in operator.places}
    base = dict(_base(operator, operator.places))
    found = []
    for place in places:
        alone = replace(place, layers=1)
        is_solved = alone in solved
        bases = base if is_solved else dict(_base(operator, (alone,)))
        bound = operator.complete_binding(outer_of(place))
        units = lcms_of(conditions_of(kernel)[1], len(kernel.free), ratios_of(place, operator.groups))
        for number, name in enumerate(kernel.free):
            least = bases[alone][number] if alone in bases else None
            doublings, more = _grown(least, bound[name])
            ends = (name, units[number], least, doublings, more, bound[name], is_solved)
            found.append(Number(place_name(place), place.layers, *ends))
    return found


def _base(operator: Fitted, places: tuple[Place, ...]) -> list[tuple[Place, tuple[int, ...]]]:
    """The base solution of places that share one; none where there is none."""
    found = solve(operator.kernel, places, Budget(), operator.groups) if places else ""
    if isinstance(found, str):
        return []
    return [(replace(place, layers=1), row) for place, row in zip(found.places, found.numbers, strict=True)]


def _grown(base: int | None, value: int) -> tuple[int | None, int | None]:
    """How often a base was doubled to come to a number, and what is left."""
    if base is None or value < base:
        return None, None
    doublings = (value // base).bit_length() - 1
    return doublings, value - (base << doublings)


def solutions(operator: Fitted) -> list[dict[str, int]]:
    """The solution of each place of the network that an operator was fitted to.

    Returns:
        For each place its sizes (``c_in``, ``c_out``, ``h``, ``w``, ``kh``, ``kw``, ``stride``), how many ``layers``
        and ``parts`` it has, the number of each variable that was determined (``G``, ``x0``, ...), ``flops`` for one
        example and ``params`` of one layer, and of all its layers as ``layers_flops`` and ``layers_params``. The last
        two sum to :attr:`.Fitted.spent`.
    """
    found = []
    for place in operator.places:
        bound = operator.complete_binding(outer_of(place))
        flops, params = operator.flops(bound), operator.params(bound)
        found.append(
            {
                **vars(place),
                "parts": place.parts,
                **{name: bound[name] for name in operator.inner},
                "flops": flops,
                "params": params,
                "layers_flops": place.layers * flops,
                "layers_params": place.layers * params,
            }
        )
    return found
