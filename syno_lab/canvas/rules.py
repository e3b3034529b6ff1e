"""The pruning rules of Canvas, each with its reason (Canvas, section 6.1).

A rule looks at a node that would be added to a draft, and prunes it. An *exact* rule loses no kernel: what it prunes
computes what a draft of as many primitives or fewer computes without it (weights may take other values), or is
constant. An *approximate* one may lose kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from syno_lab.canvas.shape import SLOTS, Shape

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Node

ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh")
#: Whose results have no negative element.
NOT_NEGATIVE = ("relu", "sigmoid", "abs", "exp", "softmax")
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
    made = _made(nodes, inputs[0])
    return made is not None and made.name == "softmax" and made.parameter == primitive.parameter


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
        "no sign", "no element is negative, so nothing changes", _OURS, True, ("relu", "abs"), _follows(*NOT_NEGATIVE)
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
        "the mean over its axis is constant",
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
    Rule("twice", "the same primitive twice in a row", _OURS, False, (*ELEMENTWISE, "softmax"), _follows_itself),
    Rule(
        "order",
        "the two commute, and the other order is the one that is kept",
        _OURS,
        False,
        ("shift", "unfold", *ELEMENTWISE, *FOLDS),
        _is_out_of_order,
    ),
)

#: The rules that look at a primitive, by its name.
RULES_OF: dict[str, tuple[Rule, ...]] = {}
for _rule in RULES:
    for _name in _rule.primitives:
        RULES_OF[_name] = (*RULES_OF.get(_name, ()), _rule)


def pruning(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> Rule | None:
    """The first rule that prunes a node; None where it is canonical.

    Args:
        nodes: of the draft.
        shapes: of its tensors.
        primitive: of the node; it applies to the tensors.
        inputs: the numbers of the tensors.
    """
    for rule in RULES_OF.get(primitive.name, ()):
        if rule.prunes(nodes, shapes, primitive, inputs):
            return rule
    return None
