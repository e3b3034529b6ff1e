"""Equality of pGraphs: an encoding that does not depend on the names of reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, permutations, product
from math import factorial, prod
from typing import TYPE_CHECKING, Any

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate

if TYPE_CHECKING:
    from syno_lab.ir.state import State

Key = tuple[Any, ...]
_MANY_RENAMINGS = 24  # below, trying all costs less than telling reductions apart


def canonical_key(state: State, data: Iterable[Coordinate], ordered: bool = False) -> Key:
    """The least encoding of a pGraph over all renamings of reductions of equal size.

    ``ordered`` keeps the order of ``data`` (the input axes of a complete operator), else it is a set. Where there are
    many renamings, only those are tried that put the reductions in an order that their use gives.
    """
    groups: dict[Size, list[int]] = {}
    for number, reduction in enumerate(state.reductions):
        groups.setdefault(reduction.size, []).append(number)
    ranked = [numbers for _, numbers in sorted(groups.items(), key=lambda item: item[0].exponents)]
    data = tuple(data)

    def encode(orders: Iterable[Sequence[int]]) -> Key:
        names = {number: name for name, number in enumerate(chain.from_iterable(orders))}
        return _encode_state(state, data, ordered, names)

    if prod(factorial(len(numbers)) for numbers in ranked) > _MANY_RENAMINGS:
        ranked = _told_apart(state, data, ordered, ranked)
        plain = encode(ranked)
        # A group whose neighbours may all be swapped without a difference needs one order alone.
        choices = [
            [tuple(g)] if _all_alike(encode, ranked, i, plain) else permutations(g) for i, g in enumerate(ranked)
        ]
    else:
        choices = [permutations(numbers) for numbers in ranked]
    return min(encode(orders) for orders in product(*choices))


def _told_apart(state: State, data: tuple[Coordinate, ...], ordered: bool, groups: list[list[int]]) -> list[list[int]]:
    """``groups`` split by how the pGraph looks when one reduction is marked and the others of its size are not."""
    found: list[list[int]] = []
    unmarked = {number: 2 * rank for rank, numbers in enumerate(groups) for number in numbers}
    for numbers in groups:
        looks: dict[Key, list[int]] = {}
        for number in numbers:
            names = unmarked | {number: unmarked[number] + 1}
            looks.setdefault(_encode_state(state, data, ordered, names), []).append(number)
        found += [looks[look] for look in sorted(looks)]
    return found


def _all_alike(encode: Callable[..., Key], groups: list[list[int]], which: int, plain: Key) -> bool:
    for place in range(len(groups[which]) - 1):
        swapped = list(groups[which])
        swapped[place : place + 2] = swapped[place + 1], swapped[place]
        if encode([*groups[:which], swapped, *groups[which + 1 :]]) != plain:
            return False
    return True


def _encode_state(state: State, data: tuple[Coordinate, ...], ordered: bool, names: dict[int, int]) -> Key:
    memo: dict[Coordinate, Key] = {}
    tops = tuple(_encode(c, names, memo) for c in data)
    return (
        tops if ordered else tuple(sorted(tops)),
        tuple(
            sorted(
                tuple(tuple(sorted(_encode(c, names, memo) for c in part)) for part in (weight.shared, weight.given))
                for weight in state.weights
            )
        ),
        tuple(sorted(_encode(c, names, memo) for c in state.expanded)),
        tuple(sorted((names[r.node.tag], r.size.exponents) for r in state.reductions)),
    )


def _encode(coordinate: Coordinate, names: dict[int, int], memo: dict[Coordinate, Key]) -> Key:
    found = memo.get(coordinate)
    if found is None:
        node = coordinate.node
        tag = names[node.tag] if coordinate.is_reduction else node.tag
        parameter = () if node.parameter is None else node.parameter.exponents
        operands = tuple(_encode(c, names, memo) for c in node.operands)
        memo[coordinate] = found = (node.primitive, coordinate.index, tag, parameter, operands)
    return found
