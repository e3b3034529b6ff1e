"""An operator under a binding as a product of independent parts; a small key describes each part.

Two iterators belong to one part if an input axis, a coordinate of a weight or an UNFOLD's bound contains both. The
terms of the operator are then all combinations of the parts' terms. Two terms use the same element of a weight exactly
when they do so in every part.

The module simplifies expressions without a change of any value: parts become smaller, and more operators have equal
keys. The module removes a SPLIT that undoes a MERGE, and a MERGE that undoes a SPLIT. The names of a weight's elements
do not matter. An index ``B*i + j`` of a weight becomes the indices ``i`` and ``j``, and an index ``(i+1) % N`` becomes
``i``. The fingerprint does not depend on the simplification.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import REDUCE, Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES, OwnPrimitive

# A tree is (mask of its iterators, operation, ...); the comments list the further entries for each operation.
ITERATOR = 0  # Entries: number, size.
SHIFT = 1  # Entries: tree, size.
SPLIT = 2  # Entries: block, offset, size of offset.
DIV = 3  # Entries: tree, block.
MOD = 4  # Entries: tree, block.
UNFOLD = 5  # Entries: main, window, window // 2, size of main.
STRIDE = 6  # Entries: tree, stride.
FLIP = 7  # Entries: tree, size.
OWN = 8  # Entries: tree, (name, meaning, size) of a user's primitive.
Tree = Any  # A nested tuple. An expression is a tree without masks, in which a number is an iterator.
Expression = Any

INPUT, MEMBER, BOUND = 0, 1, 2


class PartKey(NamedTuple):
    """A part as a cache key, which contains no names of reductions, weights or variables.

    Attributes:
        iterators: for each iterator the number of its output axis, or -1 for a reduction, and its size.
        inputs: (input axis, expression) for each input axis in the part.
        members: for each weight or unordered input axis in the part, the expressions that index it.
        bounds: expressions that index no tensor but contain an UNFOLD, whose bounds remove terms.
    """

    iterators: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[int, Expression], ...]
    members: tuple[tuple[Expression, ...], ...]
    bounds: tuple[Expression, ...]

    @property
    def number(self) -> int:
        """Return an upper bound of the part's terms: the number of combinations of the iterators' values."""
        return prod(size for _, size in self.iterators)


class Sizes(dict[Size, int]):
    """A cache of the values of sizes under one binding.

    Raises SpecError for a size that is no positive integer under the binding.
    """

    def __init__(self, binding: tuple[tuple[str, int], ...]) -> None:
        super().__init__()
        self.binding = dict(binding)

    def __missing__(self, size: Size) -> int:
        self[size] = number = size.at(self.binding)
        return number


@lru_cache(maxsize=256)
def sizes_under(binding: tuple[tuple[str, int], ...]) -> Sizes:
    """Return the cached sizes under ``binding``, a tuple of items."""
    return Sizes(binding)


def parts(
    operator: Operator, sizes: Sizes, free: tuple[int, ...], flips: tuple[tuple[int, int], ...] = ()
) -> list[tuple[PartKey, tuple[int, ...]]]:
    """Split ``operator`` into parts; return the key of each part and the numbers of its members.

    The members are the weights in order, then the input axes ``free``, whose positions may be renamed. Reductions that
    index nothing are left out, because they only add a global factor. With ``flips``, pairs of an input and an output
    axis that are reversed together, the result describes the operator's mirror image. Raises SpecError if a size is no
    positive integer under the binding.
    """
    outputs = operator.output
    items: list[tuple[int, int, Tree]] = []
    weights = operator.weights
    ends = {outputs[out]: sizes[outputs[out].size] for _, out in flips}
    for axis, coordinate in enumerate(operator.inputs):
        tree = _tree(coordinate, len(outputs), sizes, ends)
        if axis in {into for into, _ in flips}:
            tree = _flipped(tree, sizes[coordinate.size])
        if axis in free:
            items += [(MEMBER, len(weights) + free.index(axis), t) for t in _renamed([tree])]
        else:
            items.append((INPUT, axis, tree))
    for number, weight in enumerate(weights):
        trees = [_tree(c, len(outputs), sizes, ends) for c in weight.coordinates]
        items += [(MEMBER, number, tree) for tree in _renamed(trees)]
        # Renaming never drops an UNFOLD: it only removes SPLITs, SHIFTs and undone MERGEs from the top.
    for coordinate in operator.expanded:
        items += [(BOUND, 0, tree) for tree in _bounds(_tree(coordinate, len(outputs), sizes, ends))]

    groups: list[tuple[int, list[tuple[int, int, Tree]]]] = []
    for item in items:
        mask = item[2][0]
        members = [item]
        apart = []
        for group in groups:
            if group[0] & mask:
                mask |= group[0]
                members = group[1] + members
            else:
                apart.append(group)
        apart.append((mask, members))
        groups = apart

    reached = 0
    keys = []
    for mask, members in groups:
        reached |= mask
        keys.append(_key(members, len(outputs)))
    for axis, coordinate in enumerate(outputs):
        if not reached >> axis & 1:
            keys.append((PartKey(((axis, sizes[coordinate.size]),), (), (), ()), ()))
    return keys


def _tree(coordinate: Coordinate, outputs: int, sizes: Sizes, ends: Mapping[Coordinate, int]) -> Tree:
    """Return the tree of a coordinate; ``ends`` holds the sizes of output iterators that count down."""
    node = coordinate.node
    primitive = node.primitive
    operands = node.operands
    if not operands:
        number = node.tag + outputs if primitive == REDUCE else node.tag
        tree = (1 << number, ITERATOR, number, sizes[coordinate.size])
        return _flipped(tree, ends[coordinate]) if coordinate in ends else tree
    if primitive == "MERGE":
        assert node.parameter is not None
        block = sizes[node.parameter]
        inner = operands[0].node
        if inner.primitive == "SPLIT" and sizes[inner.operands[1].size] == block:
            return _tree(inner.operands[coordinate.index], outputs, sizes, ends)
        sizes[coordinate.size]  # refuses a fractional size
        child = _tree(operands[0], outputs, sizes, ends)
        return (child[0], MOD if coordinate.index else DIV, child, block)
    if primitive == "SPLIT":
        high, low = operands
        if (
            high.node.primitive == "MERGE"
            and high.index == 0
            and low.index == 1
            and (high.node is low.node or high.node == low.node)
        ):
            return _tree(high.node.operands[0], outputs, sizes, ends)
        above, below = _tree(high, outputs, sizes, ends), _tree(low, outputs, sizes, ends)
        return (above[0] | below[0], SPLIT, above, below, sizes[low.size])
    if primitive == "UNFOLD":
        main, window = (_tree(c, outputs, sizes, ends) for c in operands)
        return (main[0] | window[0], UNFOLD, main, window, sizes[operands[1].size] // 2, sizes[coordinate.size])
    child = _tree(operands[0], outputs, sizes, ends)
    if primitive == "SHIFT":
        return (child[0], SHIFT, child, sizes[coordinate.size])
    if primitive != "STRIDE":
        own = PRIMITIVES[primitive]
        assert isinstance(own, OwnPrimitive)
        return (child[0], OWN, child, (primitive, own.meaning, sizes[coordinate.size]))
    assert node.parameter is not None
    return (child[0], STRIDE, child, sizes[node.parameter])


def _flipped(tree: Tree, size: int) -> Tree:
    return tree[2] if tree[1] == FLIP else (tree[0], FLIP, tree, size)


def _renamed(trees: list[Tree]) -> list[Tree]:
    """Simplify the trees of a weight's indices; the new trees distinguish the same elements of the weight."""
    simpler: list[Tree] = []
    stack = trees[::-1]
    while stack:
        tree = stack.pop()
        operation = tree[1]
        if operation == SPLIT:
            stack += (tree[3], tree[2])
        elif operation in (SHIFT, STRIDE, FLIP) or (operation == OWN and PRIMITIVES[tree[3][0]].is_one_to_one):
            stack.append(tree[2])
        elif operation in (DIV, MOD):
            other = (tree[0], DIV + MOD - operation, *tree[2:])
            if other in simpler:
                simpler.remove(other)
                stack.append(tree[2])
            else:
                simpler.append(tree)
        else:
            simpler.append(tree)
    return simpler


def _bounds(tree: Tree) -> list[Tree]:
    """Return the largest trees below ``tree`` that begin with an UNFOLD."""
    operation = tree[1]
    if operation == UNFOLD:
        return [tree]
    if operation == ITERATOR:
        return []
    return _bounds(tree[2]) + _bounds(tree[3]) if operation == SPLIT else _bounds(tree[2])


def _key(items: list[tuple[int, int, Tree]], outputs: int) -> tuple[PartKey, tuple[int, ...]]:
    numbers: dict[int, int] = {}
    iterators: list[tuple[int, int]] = []

    def expression(tree: Tree) -> Expression:
        operation = tree[1]
        if operation == ITERATOR:
            number = numbers.get(tree[2])
            if number is None:
                numbers[tree[2]] = number = len(iterators)
                iterators.append((tree[2] if tree[2] < outputs else -1, tree[3]))
            return number
        if operation in (SPLIT, UNFOLD):
            return (operation, expression(tree[2]), expression(tree[3]), *tree[4:])
        return (operation, expression(tree[2]), tree[3])

    inputs = []
    bounds = []
    members: dict[int, list[Expression]] = {}
    for kind, which, tree in sorted(items, key=itemgetter(0, 1)) if len(items) > 1 else items:
        if kind == INPUT:
            inputs.append((which, expression(tree)))
        elif kind == BOUND:
            bounds.append(expression(tree))
        else:
            members.setdefault(which, []).append(expression(tree))
    return (
        PartKey(tuple(iterators), tuple(inputs), tuple(map(tuple, members.values())), tuple(bounds)),
        tuple(members),
    )
