"""The pruning rules of Canvas, each with its reason (Canvas, section 6.1).

A rule looks at a node that would be added to a draft, and prunes it. An *exact* rule loses no kernel: what it prunes
computes what a draft of as many primitives or fewer computes without it (weights may take other values), or is
constant. An *approximate* one may lose kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isinf
from typing import TYPE_CHECKING

from syno_lab.canvas.primitives import (
    BROADCASTS,
    COMMUTATIVE,
    ELEMENTWISE,
    SHIFTS,
    Primitive,
    axes_of,
    parts_of,
    span_of,
)
from syno_lab.canvas.ranges import ANY, NOT_NEGATIVE, Range, range_of
from syno_lab.canvas.shape import SLOTS, Shape
from syno_lab.canvas.sums import is_absorbed, is_at_hand, left_after_cancelling
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Node

ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh")
FOLDS = ("fold_avg", "fold_max")

Nodes = Sequence["Node"]
Shapes = Sequence[Shape]
#: Whether a rule prunes a node with these inputs: the nodes and shapes of the draft, the node's primitive, its inputs.
Prunes = Callable[[Nodes, Shapes, Primitive, tuple[int, ...]], bool]


@dataclass(frozen=True)
class Rule:
    """One reason for which a primitive is not taken.

    Attributes:
        name: in a few words.
        sentence: why, for people.
        source: where it is from.
        exact: whether no kernel is lost by it.
        primitives: the names of the primitives that it looks at.
        prunes: whether it prunes a node.
    """

    name: str
    sentence: str
    source: str
    exact: bool
    primitives: tuple[str, ...]
    prunes: Prunes

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence} ({self.source}{'' if self.exact else '; may lose kernels'})"


def _made(nodes: Nodes, tensor: int) -> Primitive | None:
    """The primitive whose result a tensor is; None for the input."""
    return nodes[tensor - 1].primitive if tensor else None


def _follows(*names: str) -> Prunes:
    """Whether the first input is a result of one of these primitives."""

    def prunes(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
        made = _made(nodes, inputs[0])
        return made is not None and made.name in names

    return prunes


def _is_repeated(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    turned = inputs
    if primitive.name in COMMUTATIVE and shapes[inputs[0]] is shapes[inputs[1]]:
        turned = inputs[::-1]
    return any(node.primitive == primitive and node.inputs in (inputs, turned) for node in nodes)


def _follows_itself(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    return _made(nodes, inputs[0]) == primitive


def _is_of_itself(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    return inputs[0] == inputs[1]


def _is_first(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    return inputs == (0,)


def _has_a_negated_side(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    left, right = (made is not None and made.name == "neg" for made in (_made(nodes, side) for side in inputs))
    return right or (left and primitive.name == "add" and shapes[inputs[0]] is shapes[inputs[1]])


def _could_shift_at_once(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """After a shift with which it moves no axis by more than 1."""
    made = _made(nodes, inputs[0])
    if made is None or made.name != "shift":
        return False
    before = dict(SHIFTS[made.parameter])
    return all(before.get(axis) != offset for axis, offset in SHIFTS[primitive.parameter])


def _shifts_what_it_folds(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    made = _made(nodes, inputs[0])
    return made is not None and made.name == "shift" and all(axis == primitive.parameter for axis, _ in SHIFTS[made[1]])


def _is_mean_of_softmax(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """After means over the other axes of the softmax, if it has others."""
    tensor, axes = inputs[0], {primitive.parameter}
    while (made := _made(nodes, tensor)) is not None and made.name == "fold_avg":
        axes.add(made.parameter)
        (tensor,) = nodes[tensor - 1].inputs
    return made is not None and made.name == "softmax" and axes >= set(axes_of(made.parameter))


def _has_one_sign(image: Range) -> Prunes:
    """Whether no element of the input is negative, or none positive, for images in a range."""

    def prunes(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
        low, high = range_of(nodes, inputs[0], image)
        return low >= 0 or high <= 0

    return prunes


def _one_side(nodes: Nodes, primitive: Primitive, inputs: tuple[int, ...], image: Range) -> tuple[bool, bool]:
    """Whether the result is the left side, and whether it is the right one, for images in a range."""
    left = range_of(nodes, inputs[0], image)
    if left == ANY:
        return False, False
    right = range_of(nodes, inputs[1], image)
    is_above, is_below = left.low >= right.high, right.low >= left.high
    return (is_above, is_below) if primitive.name == "max" else (is_below, is_above)


def _is_one_side(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """The right side, or a left side that is not repeated."""
    is_left, is_right = _one_side(nodes, primitive, inputs, ANY)
    return is_right or (is_left and shapes[inputs[0]] is shapes[inputs[1]])


def _needs_a_sign(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """Something changes, or both sides matter, only where the image has negative elements."""
    if primitive.name in ("min", "max"):
        return any(_one_side(nodes, primitive, inputs, NOT_NEGATIVE))
    return _has_one_sign(NOT_NEGATIVE)(nodes, shapes, primitive, inputs)


def _cancels(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    return left_after_cancelling(nodes, shapes, primitive, inputs) is not None


def _cancels_to_what_is_there(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    left = left_after_cancelling(nodes, shapes, primitive, inputs)
    return left is not None and is_at_hand(shapes, left, shapes[inputs[1]])


def _is_unbounded(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    low, high = range_of(nodes, inputs[0])
    return isinf(high) or (primitive.name == "sin" and isinf(low))


def _is_constant_along(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """A softmax over axes along which one side of the sum before it is constant."""
    made = _made(nodes, inputs[0])
    if made is None or made.name not in ("add", "sub"):
        return False
    left, right = (shapes[number] for number in nodes[inputs[0] - 1].inputs)
    start, stop = span_of(made.parameter)
    if not parts_of(made.parameter, left, right).lhs.is_one:
        return False
    return all(axis in SLOTS[start:stop] for axis in axes_of(primitive.parameter))


def _is_out_of_order(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """After a primitive with which it commutes and that is written behind it."""
    made = _made(nodes, inputs[0])
    if made is None:
        return False
    name, before = primitive.name, made.name
    if name in ELEMENTWISE:
        return before in ("shift", "group") or (before == "unfold" and name not in ("sigmoid", "exp"))
    if name in FOLDS:
        return name == before and SLOTS.index(primitive.parameter) < SLOTS.index(made.parameter)
    if name == "shift":
        return before == "group" or (before == "shift" and primitive.parameter < made.parameter)
    return name == "unfold" and before == "group"


_PAPER = "Canvas, section 6.1"
_OURS = "ours"

RULES: tuple[Rule, ...] = (
    Rule(
        "once",
        "the same primitive on the same tensors is in the kernel",
        _PAPER,
        True,
        ("group", "shift", "unfold", "softmax", *ELEMENTWISE, *FOLDS, *BROADCASTS),
        _is_repeated,
    ),
    Rule("zero", "a tensor minus itself is 0", _PAPER, True, ("sub",), _is_of_itself),
    Rule(
        "same sides",
        "the larger or the smaller of a tensor and itself is the tensor",
        _OURS,
        True,
        ("min", "max"),
        _is_of_itself,
    ),
    Rule("double", "a tensor plus itself is only twice as large", _OURS, False, ("add",), _is_of_itself),
    Rule(
        "no sign",
        "no element is negative and nothing changes, or none is positive",
        _OURS,
        True,
        ("relu", "abs"),
        _has_one_sign(ANY),
    ),
    Rule("sign twice", "the sign was changed just before", _OURS, True, ("abs", "neg"), _follows("neg")),
    Rule(
        "negated side",
        "the sum of a tensor and a negated one is a difference, and the other way round",
        _OURS,
        True,
        ("add", "sub"),
        _has_a_negated_side,
    ),
    Rule(
        "cancelled",
        "a term of one side cancels with one of the other, and one primitive gives what is left",
        _OURS,
        True,
        ("add", "sub"),
        _cancels_to_what_is_there,
    ),
    Rule(
        "lost in a sum",
        "a term of one side cancels with one of the other, so what made it is lost",
        _OURS,
        False,
        ("add", "sub"),
        _cancels,
    ),
    Rule(
        "one side",
        "every element of one side is the larger, so the result is a side",
        _OURS,
        True,
        ("min", "max"),
        _is_one_side,
    ),
    Rule(
        "absorbed side",
        "min(a, max(a, b)) is a, and min(a, min(a, b)) is min(a, b); so with min and max exchanged",
        _OURS,
        True,
        ("min", "max"),
        is_absorbed,
    ),
    Rule("absorbed sign", "the weights of an FC can have the sign", _OURS, True, ("fc",), _follows("neg")),
    Rule("one shift", "one shift does it, or none", _OURS, True, ("shift",), _could_shift_at_once),
    Rule("one unfold", "one unfold makes the windows of both axes", _OURS, True, ("unfold",), _follows("unfold")),
    Rule(
        "lost shift",
        "a fold of the axis does not see the shift",
        _OURS,
        True,
        FOLDS,
        _shifts_what_it_folds,
    ),
    Rule(
        "mean of softmax",
        "the mean over its axes is constant",
        _OURS,
        True,
        ("fold_avg",),
        _is_mean_of_softmax,
    ),
    Rule(
        "lost by softmax",
        "softmax ignores what is constant along its axes, and that was just added",
        _OURS,
        True,
        ("softmax",),
        _is_constant_along,
    ),
    Rule(
        "activation twice",
        "an activation follows an activation",
        _PAPER,
        False,
        ACTIVATIONS,
        _follows(*ACTIVATIONS),
    ),
    Rule(
        "activation first",
        "the network has an activation before it",
        _OURS,
        False,
        ACTIVATIONS,
        _is_first,
    ),
    Rule(
        "image without sign",
        "behind an activation no element of the image is negative: then nothing changes, or one side is the result",
        _OURS,
        False,
        ("relu", "abs", "min", "max"),
        _needs_a_sign,
    ),
    Rule("twice", "the same primitive twice in a row", _OURS, False, (*ELEMENTWISE, "softmax"), _follows_itself),
    Rule(
        "order",
        "the two commute, and the other order is the one that is kept",
        _OURS,
        False,
        ("shift", "unfold", *ELEMENTWISE, *FOLDS),
        _is_out_of_order,
    ),
    Rule(
        "unbounded",
        "its input has no bounds, and the gradients of such exp and sin grow from layer to layer",
        _OURS,
        False,
        ("exp", "sin"),
        _is_unbounded,
    ),
)

RulesOf = Mapping[str, tuple[Rule, ...]]


@lru_cache(maxsize=1 << 8)
def rules_of(rules: tuple[Rule, ...]) -> RulesOf:
    """Those that look at a primitive, by its name."""
    found: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for name in rule.primitives:
            found[name] = (*found.get(name, ()), rule)
    return found


RULES_OF = rules_of(RULES)


def rules_without(names: Collection[str]) -> tuple[Rule, ...]:
    """:data:`RULES` without those of these names.

    Raises:
        SpecError: for a name that no rule has.
    """
    known = [rule.name for rule in RULES]
    if isinstance(names, str):
        raise SpecError(f"without_rules: expected a list of names, found the text {quoted(names)}")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SpecError(f"without_rules: expected rules among {', '.join(known)}, found {quoted(unknown[0])}")
    return tuple([rule for rule in RULES if rule.name not in names])


def pruning(
    nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...], rules: RulesOf = RULES_OF
) -> Rule | None:
    """The first rule that prunes a node; None where it is canonical.

    Args:
        nodes: of the draft.
        shapes: of its tensors.
        primitive: of the node; it applies to the tensors.
        inputs: the numbers of the tensors.
        rules: that decide, by the names of primitives.
    """
    for rule in rules.get(primitive.name, ()):
        if rule.prunes(nodes, shapes, primitive, inputs):
            return rule
    return None
