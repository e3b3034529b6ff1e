"""The pruning rules of Canvas, each with its reason, and the limits of a growing kernel (section 6.1).

A rule checks a node before it is added to a draft, and may prune it. An *exact* rule loses no kernel: it prunes a node
whose result is constant, or whose result another draft computes without the node, perhaps with other weights. The draft
without the node has at most as many primitives. An *approximate* rule may lose kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import inf, isinf
from typing import NamedTuple

from syno_lab.canvas.filling import ratios_of
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import (
    BROADCASTS,
    COMMUTATIVE,
    ELEMENTWISE,
    FOLDS,
    PRIMITIVES,
    SHIFTS,
    Primitive,
    axes_of,
    flops_of,
    parts_of,
    span_of,
    weight_of,
)
from syno_lab.canvas.shape import SLOTS, Shape, Size, volume_of
from syno_lab.canvas.values import (
    ANY,
    NOT_NEGATIVE,
    Nodes,
    Range,
    Shapes,
    is_absorbed,
    is_at_hand,
    left_after_cancelling,
    range_of,
)
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh")
_SUMS, _EXTREMES = ("add", "sub"), ("min", "max")


class Added(NamedTuple):
    """A node that may be added to a draft: the draft's nodes and shapes, and the node's primitive and inputs."""

    nodes: Nodes
    shapes: Shapes
    primitive: Primitive
    inputs: tuple[int, ...]

    def made(self, side: int = 0) -> Primitive:
        """Return the primitive that computes an input; for the image a placeholder."""
        tensor = self.inputs[side]
        return self.nodes[tensor - 1].primitive if tensor else _IMAGE

    @property
    def is_of_one_shape(self) -> bool:
        """Whether the two inputs have equal shapes."""
        return self.shapes[self.inputs[0]] is self.shapes[self.inputs[1]]


_IMAGE = Primitive("image")
Prunes = Callable[[Added], bool]


@dataclass(frozen=True)
class Rule:
    """A reason for pruning a primitive."""

    name: str  # The rule's name, a few words.
    sentence: str  # The reason for pruning, as text.
    primitives: tuple[str, ...]  # The names of the primitives that the rule checks.
    prunes: Prunes  # Whether the rule prunes a node.
    exact: bool = True  # Whether the rule loses no kernel.
    source: str = "ours"  # The source of the rule.

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence} ({self.source}{'' if self.exact else '; may lose kernels'})"


def _follows(*names: str) -> Prunes:
    """Return whether the first input is a result of one of these primitives."""
    return lambda at: at.made().name in names


def _is_repeated(at: Added) -> bool:
    turned = at.inputs
    if at.primitive.name in COMMUTATIVE and at.is_of_one_shape:
        turned = at.inputs[::-1]
    return any(node.primitive == at.primitive and node.inputs in (at.inputs, turned) for node in at.nodes)


def _is_the_same(at: Added) -> bool:
    return at.made() == at.primitive


def _is_of_itself(at: Added) -> bool:
    return at.inputs[0] == at.inputs[1]


def _has_a_negated_side(at: Added) -> bool:
    left, right = (at.made(side).name == "neg" for side in (0, 1))
    return right or (left and at.primitive.name == "add" and at.is_of_one_shape)


def _could_shift_at_once(at: Added) -> bool:
    """Return whether the input is a shift, and the two shifts together move no axis by more than 1."""
    last = at.made()
    before = dict(SHIFTS.get(last.parameter, ()))
    return last.name == "shift" and all(before.get(axis) != by for axis, by in SHIFTS[at.primitive.parameter])


def _shifts_what_it_folds(at: Added) -> bool:
    last = at.made()
    return last.name == "shift" and all(axis == at.primitive.parameter for axis, _ in SHIFTS[last.parameter])


def _is_mean_of_softmax(at: Added) -> bool:
    """Return whether this mean and the means before it cover all axes of an earlier softmax."""
    axes = {at.primitive.parameter}
    while at.made().name == "fold_avg":
        axes.add(at.made().parameter)
        at = at._replace(inputs=at.nodes[at.inputs[0] - 1].inputs)
    return at.made().name == "softmax" and axes >= set(axes_of(at.made().parameter))


def _has_one_sign(at: Added, image: Range = ANY) -> bool:
    """Return whether the input has no negative or no positive elements, for images with values in a range."""
    low, high = range_of(at.nodes, at.inputs[0], image)
    return low >= 0 or high <= 0


def _one_side(at: Added, image: Range) -> tuple[bool, bool]:
    """Return whether the result equals the left side, and whether it equals the right side, for images in a range."""
    left = range_of(at.nodes, at.inputs[0], image)
    if left == ANY:
        return False, False
    right = range_of(at.nodes, at.inputs[1], image)
    is_above, is_below = left.low >= right.high, right.low >= left.high
    return (is_above, is_below) if at.primitive.name == "max" else (is_below, is_above)


def _is_one_side(at: Added) -> bool:
    """Return whether the result equals the right side, or equals the left side and the left side does not repeat."""
    is_left, is_right = _one_side(at, ANY)
    return is_right or (is_left and at.is_of_one_shape)


def _needs_a_sign(at: Added) -> bool:
    """Return whether the primitive has an effect only where the image has negative elements."""
    return any(_one_side(at, NOT_NEGATIVE)) if at.primitive.name in _EXTREMES else _has_one_sign(at, NOT_NEGATIVE)


def _cancels_to_what_is_there(at: Added) -> bool:
    left = left_after_cancelling(*at)
    return left is not None and is_at_hand(at.shapes, left, at.shapes[at.inputs[1]])


def _is_unbounded(at: Added) -> bool:
    low, high = range_of(at.nodes, at.inputs[0])
    return isinf(high) or (at.primitive.name == "sin" and isinf(low))


def _is_constant_along(at: Added) -> bool:
    """Return whether the input is a sum with a side that is constant along the axes of the softmax."""
    last = at.made()
    if last.name not in _SUMS:
        return False
    left, right = (at.shapes[number] for number in at.nodes[at.inputs[0] - 1].inputs)
    start, stop = span_of(last.parameter)
    if not parts_of(last.parameter, left, right).lhs.is_one:
        return False
    return all(axis in SLOTS[start:stop] for axis in axes_of(at.primitive.parameter))


def _is_out_of_order(at: Added) -> bool:
    """Return whether the input's primitive commutes with the new primitive and must come after the new primitive."""
    (name, parameter), (before, of_it) = at.primitive, at.made()
    if name in ELEMENTWISE:
        return before in ("shift", "group") or (before == "unfold" and name not in ("sigmoid", "exp"))
    if name in FOLDS:
        return name == before and SLOTS.index(parameter) < SLOTS.index(of_it)
    if name == "shift":
        return before == "group" or (before == "shift" and parameter < of_it)
    return name == "unfold" and before == "group"


_PAPER = "Canvas, section 6.1"
_REPEATED = ("group", "shift", "unfold", "softmax", *ELEMENTWISE, *FOLDS, *BROADCASTS)
_IN_ORDER = ("shift", "unfold", *ELEMENTWISE, *FOLDS)

_approximate = partial(Rule, exact=False)

RULES: tuple[Rule, ...] = (
    Rule("once", "the same primitive on the same tensors is in the kernel", _REPEATED, _is_repeated, source=_PAPER),
    Rule("zero", "a tensor minus itself is 0", ("sub",), _is_of_itself, source=_PAPER),
    Rule("same sides", "the larger or the smaller of a tensor and itself is the tensor", _EXTREMES, _is_of_itself),
    _approximate("double", "a tensor plus itself is only twice as large", ("add",), _is_of_itself),
    Rule("no sign", "no element is negative and nothing changes, or none is positive", ("relu", "abs"), _has_one_sign),
    Rule("sign twice", "the sign was changed just before", ("abs", "neg"), _follows("neg")),
    Rule(
        "negated side",
        "a sum with a negated side is a difference, and a difference with a negated side is a sum",
        _SUMS,
        _has_a_negated_side,
    ),
    Rule(
        "cancelled",
        "a term of one side cancels with a term of the other, and one primitive computes the rest",
        _SUMS,
        _cancels_to_what_is_there,
    ),
    _approximate(
        "lost in a sum",
        "a term of one side cancels with a term of the other, so its computation is lost",
        _SUMS,
        lambda at: left_after_cancelling(*at) is not None,
    ),
    Rule("one side", "every element of one side is the larger, so the result is a side", _EXTREMES, _is_one_side),
    Rule(
        "absorbed side",
        "min(a, max(a, b)) is a, and min(a, min(a, b)) is min(a, b); the same holds with min and max exchanged",
        _EXTREMES,
        lambda at: is_absorbed(*at),
    ),
    Rule("absorbed sign", "the weights of the FC can contain the sign", ("fc",), _follows("neg")),
    Rule("one shift", "one shift, or none, has the same effect", ("shift",), _could_shift_at_once),
    Rule("one unfold", "one unfold makes the windows of both axes", ("unfold",), _follows("unfold")),
    Rule("lost shift", "a fold of the axis does not see the shift", FOLDS, _shifts_what_it_folds),
    Rule("mean of softmax", "the mean over its axes is constant", ("fold_avg",), _is_mean_of_softmax),
    Rule(
        "lost by softmax",
        "softmax ignores a constant along its axes, which was just added",
        ("softmax",),
        _is_constant_along,
    ),
    _approximate(
        "activation twice", "an activation follows an activation", ACTIVATIONS, _follows(*ACTIVATIONS), source=_PAPER
    ),
    _approximate(
        "activation first", "the network has an activation before the kernel", ACTIVATIONS, lambda at: at.inputs == (0,)
    ),
    _approximate(
        "image without sign",
        "behind an activation no element of the image is negative: then nothing changes, or one side is the result",
        ("relu", "abs", *_EXTREMES),
        _needs_a_sign,
    ),
    _approximate("twice", "the same primitive twice in a row", (*ELEMENTWISE, "softmax"), _is_the_same),
    _approximate("order", "the two primitives commute, and only the other order is kept", _IN_ORDER, _is_out_of_order),
    _approximate(
        "unbounded",
        "the input has no bounds, and its gradients by exp and sin grow from layer to layer",
        ("exp", "sin"),
        _is_unbounded,
    ),
)

RulesOf = Mapping[str, tuple[Rule, ...]]


@lru_cache(maxsize=1 << 8)
def rules_of(rules: tuple[Rule, ...]) -> RulesOf:
    """Return the rules for each primitive, by the primitive's name."""
    by_name: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for name in rule.primitives:
            by_name[name] = (*by_name.get(name, ()), rule)
    return by_name


RULES_OF = rules_of(RULES)


def rules_without(names: Collection[str]) -> tuple[Rule, ...]:
    """Return :data:`RULES` without the rules of these names. Raises SpecError for an unknown name."""
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
    """Return the first rule that prunes an applicable node; None for a canonical node."""
    added = Added(nodes, shapes, primitive, inputs)
    for rule in rules.get(primitive.name, ()):
        if rule.prunes(added):
            return rule
    return None


# -- limits ------------------------------------------------------------------------------------------------------------


class LeastCosts:
    """The least FLOPs and parameters of primitives, summed over all layers: every dynamic variable is 1.

    ``groups`` are the possible numbers for G.
    """

    def __init__(self, places: Sequence[Place], budget: Budget, *groups: int) -> None:
        self.most_flops = inf if budget.max_flops is None else budget.max_flops
        self.most_params = inf if budget.max_params is None else budget.max_params
        self.pooling = sum(place.pooling for place in places)
        self._ratios = [
            [(place.parts * place.layers, ratios_of(place, number)) for place in places] for number in groups
        ]
        #: FLOPs and parameters of a primitive on tensors of these shapes, cached because calls repeat often.
        self.of_node = lru_cache(maxsize=1 << 16)(self._of_node)

    def of(self, size: Size) -> float:
        """Return the least value of a size, summed over all parts of all layers; each summand is at least 1."""
        terms = [[(times, *known[size]) for times, known in row] for row in self._ratios]
        return min([sum([times * max(1.0, above / below) for times, above, below in row]) for row in terms])

    def _of_node(self, primitive: Primitive, shapes: tuple[Shape, ...]) -> tuple[float, float]:
        flops = flops_of(primitive, shapes)
        weight = weight_of(primitive, shapes[0])
        return (
            flops.number * self.of(flops.size) if flops.number else 0.0,
            0.0 if weight is None else self.of(volume_of(weight)),
        )


@dataclass(frozen=True)
class Room:
    """The limits of a kernel: its number of primitives, and its required and allowed primitives.

    Attributes:
        primitives: the number of primitives of a kernel, without input and output.
        width: the largest number of leaves at a time.
        fcs: the least and the largest number of FCs.
        include: the names of the allowed primitives.
        must_have: the names of the required primitives, each at least once.
        without: primitives, as text, that are useless here: ``group G`` if channels have no common divisor.
        must_mix: whether the kernel must have a primitive that reads along H, and one along W.
        prefers_free: whether random steps prefer primitives that keep dynamic variables.
        costs: the least costs of primitives, with the budget that limits their sum; None: no budget.
        rules: the rules that prune steps.
    """

    primitives: int
    width: int = 8
    fcs: tuple[int, int] = (1, 4)
    include: frozenset[str] = frozenset(PRIMITIVES)
    must_have: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    must_mix: bool = True
    prefers_free: bool = False
    costs: LeastCosts | None = field(default=None, compare=False)
    rules: tuple[Rule, ...] = RULES

    @cached_property
    def rules_of(self) -> RulesOf:
        """The rules for each primitive, by the primitive's name."""
        return rules_of(self.rules)
