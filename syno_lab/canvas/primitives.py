"""The fine-grained primitives of Canvas (Table 1, section 5): a registry with one row for each name.

A primitive is a name and a parameter as text. A primitive's *kind*, a row of the registry, has the rules for the
accepted shapes, the result's shape and the cost; :mod:`syno_lab.canvas.reference` computes the value.

Letters: a is the input, |a| the product of its sizes; v is the number of channels after an FC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

from syno_lab.canvas.shape import (
    CHANNELS,
    ONE,
    SLOTS,
    SPATIAL,
    G,
    Shape,
    Size,
    fault_of,
    is_legal,
    parse,
    substitute,
    variables_of,
    volume_of,
)
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import quoted


class Primitive(NamedTuple):
    """A primitive with its parameter: ``Primitive("shift", "H+1")``; :data:`PRIMITIVES` has the forms of parameters."""

    name: str
    parameter: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.parameter}" if self.parameter else self.name

    def substituted(self, number: int, by: Size) -> Primitive:
        """Return the primitive with the size ``by`` for a dynamic variable; only an FC can have a dynamic variable."""
        if self.name != "fc":
            return self
        size = parse(self.parameter)
        after = substitute(size, number, by)
        return self if after is size else Primitive("fc", str(after))


class Cost(NamedTuple):
    """A cost: a number times a size."""

    number: int
    size: Size


FREE = Cost(0, ONE)

Family = Literal["rearrangement", "arithmetic", "blending"]
Result = Callable[[str, tuple[Shape, ...]], Shape]
#: ``[groups, outputs of a group, inputs of a group]``.
Weight = tuple[Size, Size, Size]


@dataclass(frozen=True)
class Kind:
    """A row of the table, and the card of its primitives.

    ``choices``: the possible parameters, or a function from a shape to the useful parameters. An FC has no choices,
    because the draft chooses its size. A broadcast has no choices, because shape matching computes its parameter.
    """

    name: str
    family: Family  # The primitive's family in Table 1.
    meaning: str  # The value that the primitive computes, in one line.
    result: Result  # The shape of the result; raises PrimitiveError if the kind does not apply.
    choices: tuple[str, ...] | Callable[[Shape], tuple[str, ...]] = ()
    flops: int = 0  # FLOPs per element of ``a``, or of a broadcast's RHS; not of an FC.
    parameter: str = ""  # The meaning of the primitive's parameter; empty without a parameter.
    before: str = "[…]"  # Shapes as text.
    after: str = "the same"
    misuses: tuple[str, ...] = ()  # Examples of refused inputs, as text.
    arity: int = 1  # The number of input tensors.

    def offers(self, shape: Shape) -> tuple[str, ...]:
        """Return the choices with which the kind applies to a tensor of this shape."""
        choices = self.choices(shape) if callable(self.choices) else self.choices
        return tuple([choice for choice in choices if self.applies(choice, (shape,))])

    def applies(self, parameter: str, shapes: tuple[Shape, ...]) -> bool:
        """Return whether a primitive of this kind applies to tensors of these shapes."""
        return not isinstance(try_result(Primitive(self.name, parameter), shapes), str)

    @property
    def signature(self) -> str:
        """The form of a call: ``shift(a; axes and offsets)``."""
        tensors = "a" if self.arity == 1 else "LHS, RHS"
        return f"{self.name}({tensors}{'; ' if self.parameter else ''}{self.parameter})"

    @property
    def card(self) -> str:
        """The description of the primitive on one page."""
        refused = "".join(f"\n  refused: {line}" for line in self.misuses)
        return (
            f"{self.name}\n  {self.signature}\n  before: {self.before}\n  after:  {self.after}\n"
            f"  {self.meaning}{refused}\n  source: Canvas, Table 1 and section 5"
        )


def _refuse(expected: str, shape: Shape) -> PrimitiveError:
    return PrimitiveError(f"expected {expected}, found {shape}")


# -- rearrangement -----------------------------------------------------------------------------------------------------


def _group(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    channels = shape["C"]
    if shape["G"] is not None:
        raise _refuse("a tensor that is not in groups yet", shape)
    if channels is None:
        raise _refuse("a tensor with channels", shape)
    return shape.with_slots({"G": G, "C": channels / G} if parameter == "G" else {"G": channels, "C": None})


#: The axes of a shift by its parameter, each with its offset, 1 or -1.
SHIFTS: dict[str, tuple[tuple[str, int], ...]] = {}
for _axes in (("H",), ("W",), ("H", "W")):
    for _signs in product((1, -1), repeat=len(_axes)):
        _text = ",".join(f"{axis}{sign:+d}" for axis, sign in zip(_axes, _signs, strict=True))
        SHIFTS[_text] = tuple(zip(_axes, _signs, strict=True))


def _shift(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    for axis, _ in SHIFTS[parameter]:
        if shape[axis] is None:
            raise _refuse(f"a tensor with axis {axis}", shape)
    return shape


#: The axes of an unfold by its parameter.
UNFOLDS = {"H": ("H",), "W": ("W",), "H,W": ("H", "W")}


def _unfold(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    for axis in UNFOLDS[parameter]:
        if shape[axis] is None:
            raise _refuse(f"a tensor with axis {axis}", shape)
        if shape[f"K{axis}"] is not None:
            raise _refuse(f"a tensor without a window in slot K{axis}", shape)
    return shape.with_slots({f"K{axis}": parse(f"K{axis}") for axis in UNFOLDS[parameter]})


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _fc(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    channels, groups = parse(parameter), shape.size("G")
    fault = fault_of(channels)
    if fault is not None:
        raise PrimitiveError(f"expected a size for the channels, found {channels.pretty}: {fault}")
    if variables_of(groups):
        raise _refuse("groups without a dynamic variable", shape)
    if not is_legal(channels / groups):
        raise PrimitiveError(f"expected channels that {groups.pretty} groups divide, found {channels.pretty}")
    return Shape((None, channels, None, None, shape["H"], shape["W"]))


def _same(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    return shapes[0]


def _fold(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    if shape[parameter] is None:
        raise _refuse(f"a tensor with axis {parameter}", shape)
    return shape.with_slots({parameter: None})


def axes_of(parameter: str) -> tuple[str, ...]:
    """Return the slots of a softmax's parameter: ``H,W``."""
    return tuple(parameter.split(","))


def _softmax(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    filled = shape.filled
    axes = axes_of(parameter)
    ends = (axes[0], axes[-1])
    if any(axis not in filled for axis in axes) or filled[filled.index(ends[0]) : filled.index(ends[1]) + 1] != axes:
        raise PrimitiveError(f"expected adjacent axes of {','.join(filled) or 'no axis'}, found {quoted(parameter)}")
    return shape


def _softmax_choices(shape: Shape) -> tuple[str, ...]:
    channels = [name for name in shape.filled if name in CHANNELS]
    spatial = [name for name in shape.filled if name in SPATIAL]
    together = [",".join(names) for names in (channels, spatial) if len(names) > 1]
    return (*shape.filled, *together)


# -- blending ----------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """LHS as ``[prefix, 1, lhs, suffix]`` and RHS as ``[prefix, repeats, lhs, suffix]``."""

    prefix: Size
    repeats: Size
    lhs: Size
    suffix: Size


def span_of(parameter: str) -> tuple[int, int]:
    """Return the slots of RHS onto which LHS repeats, as a range of :data:`SLOTS`; empty for sides of equal sizes.

    The parameter names the first and last slot: ``C``, or ``C..KW``. Raises PrimitiveError for any other form.
    """
    if not parameter:
        return 0, 0
    first, dots, last = parameter.partition("..")
    if not dots:
        last = first
    if first not in SLOTS or last not in SLOTS or SLOTS.index(first) > SLOTS.index(last):
        raise PrimitiveError(f"expected slots such as C or C..KW, found {quoted(parameter)}")
    return SLOTS.index(first), SLOTS.index(last) + 1


@lru_cache(maxsize=1 << 16)
def parts_of(parameter: str, lhs: Shape, rhs: Shape) -> Parts:
    """Return the two sides of a broadcast as views: LHS repeats inside the block of slots that the parameter names.

    Raises PrimitiveError where LHS and RHS differ outside of the block, or the block is not a multiple of LHS.
    """
    start, stop = span_of(parameter)
    before = tuple([size for size in rhs.slots[:start] if size is not None])
    after = tuple([size for size in rhs.slots[stop:] if size is not None])
    rest = len(lhs.sizes) - len(before) - len(after)
    if rest < 0 or lhs.sizes[: len(before)] != before or lhs.sizes[len(before) + rest :] != after:
        where = f" but for {parameter}" if parameter else ""
        raise PrimitiveError(f"expected a LHS that begins and ends as {rhs}{where}, found {lhs}")
    prefix, repeated, suffix = map(volume_of, (before, lhs.sizes[len(before) : len(before) + rest], after))
    repeats = rhs.volume / lhs.volume
    for part, size in (("the repeated part", repeated), ("the number of repeats", repeats)):
        fault = fault_of(size)
        if fault is not None:
            raise PrimitiveError(f"expected a RHS whose {parameter or 'shape'} is a multiple of LHS: {part}: {fault}")
    return Parts(prefix, repeats, repeated, suffix)


def _broadcast(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    lhs, rhs = shapes
    parts_of(parameter, lhs, rhs)
    return rhs


# -- the registry ------------------------------------------------------------------------------------------------------


_NOT_THERE = "an axis that is not there"


def _elementwise(name: str, flops: int, meaning: str) -> Kind:
    return Kind(name, "arithmetic", meaning, _same, ("",), flops)


def _folding(name: str, meaning: str) -> Kind:
    return Kind(
        name,
        "arithmetic",
        f"the {meaning} over the axis",
        _fold,
        SLOTS,
        1,
        parameter="axis",
        before="[…, X, …]",
        after="[…, …]",
        misuses=(_NOT_THERE,),
    )


def _blending(name: str, value: str) -> Kind:
    return Kind(
        name,
        "blending",
        f"{value}, LHS viewed as [prefix, 1, L, suffix], RHS as [prefix, M, L, suffix]",
        _broadcast,
        flops=1,
        parameter="slots of RHS",
        before="[prefix, L, suffix], [prefix, R, suffix]",
        after="the shape of RHS",
        misuses=("no M with M · L = R", "a LHS that begins or ends otherwise than RHS"),
        arity=2,
    )


_KINDS = (
    Kind(
        "group",
        "rearrangement",
        "a view: channel c becomes (c div (C/G), c mod (C/G))",
        _group,
        ("G", "each"),
        parameter="G | each",
        before="[C, …]",
        after="[G, C/G, …], or [C, …] with every channel a group",
        misuses=("a tensor that is in groups", "a tensor without channels", "channels that G does not divide"),
    ),
    Kind(
        "shift",
        "rearrangement",
        "a roll: out(h) = a((h − o) mod H), o = 1 or −1 for each axis",
        _shift,
        tuple(SHIFTS),
        parameter="offsets by axis",
        before="[…, H, W]",
        misuses=(_NOT_THERE,),
    ),
    Kind(
        "unfold",
        "rearrangement",
        "windows: out(…, k, …, h, …) = a(…, h + k − (K − 1)/2, …), zero outside; K is odd",
        _unfold,
        tuple(UNFOLDS),
        parameter="axes",
        before="[…, H, W]",
        after="[…, KH, …, H, W]",
        misuses=(_NOT_THERE, "a window that is there"),
    ),
    Kind(
        "fc",
        "arithmetic",
        "out(g·v/G + o, h, w) = Σ of a · weight over C, KH, KW of group g; weight [G, v/G, C·KH·KW], no bias",
        _fc,
        parameter="v",
        before="[G, C, KH, KW, H, W]",
        after="[v, H, W]",
        misuses=("a number of groups that has a dynamic variable", "channels v that the groups do not divide"),
    ),
    Kind(
        "softmax",
        "arithmetic",
        "exp(a), divided by its sum over the axes together",
        _softmax,
        _softmax_choices,
        3,
        parameter="adjacent axes",
        misuses=(_NOT_THERE, "axes that are not adjacent"),
    ),
    _elementwise("relu", 1, "max(a, 0)"),
    _elementwise("gelu", 4, "a · (1 + erf(a/√2))/2"),
    _elementwise("sigmoid", 3, "1/(1 + exp(−a))"),
    _elementwise("tanh", 5, "tanh(a)"),
    _elementwise("abs", 1, "|a|"),
    _elementwise("exp", 1, "exp(a)"),
    _elementwise("neg", 1, "−a"),
    _elementwise("sin", 1, "sin(π/2 · a)"),
    _folding("fold_avg", "mean"),
    _folding("fold_max", "maximum"),
    _blending("add", "LHS + RHS"),
    _blending("sub", "LHS − RHS"),
    _blending("mul", "LHS · RHS"),
    _blending("min", "min(LHS, RHS)"),
    _blending("max", "max(LHS, RHS)"),
)
PRIMITIVES: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
ELEMENTWISE, FOLDS, BROADCASTS = (
    tuple([kind.name for kind in _KINDS if kind.result is result]) for result in (_same, _fold, _broadcast)
)
#: Broadcasts whose two sides can be exchanged if they have one shape.
COMMUTATIVE = ("add", "mul", "min", "max")


@lru_cache(maxsize=1 << 17)
def try_result(primitive: Primitive, shapes: tuple[Shape, ...]) -> Shape | str:
    """Return the shape of a result, or the reason why the primitive does not apply."""
    kind = PRIMITIVES.get(primitive.name)
    if kind is None:
        return f"expected a primitive among {', '.join(PRIMITIVES)}, found {quoted(primitive.name)}"
    if len(shapes) != kind.arity:
        return f"{kind.name}: expected {kind.arity} inputs, found {len(shapes)}"
    if isinstance(kind.choices, tuple) and kind.choices and primitive.parameter not in kind.choices:
        expected = f"a parameter among {' | '.join(kind.choices)}" if kind.choices[0] else "no parameter"
        return f"{kind.name}: expected {expected}, found {quoted(primitive.parameter)}"
    try:
        shape = kind.result(primitive.parameter, shapes)
    except (PrimitiveError, SpecError) as error:
        return f"{kind.name}: {error}"
    return shape if shape.fault is None else f"{primitive}: {shape.fault} of the result {shape}"


@lru_cache(maxsize=1 << 17)
def flops_of(primitive: Primitive, shapes: tuple[Shape, ...]) -> Cost:
    """Return the FLOPs for one example."""
    if primitive.name == "fc":
        (shape,) = shapes
        return Cost(2, parse(primitive.parameter) * shape.group_inputs * shape.size("H") * shape.size("W"))
    number = PRIMITIVES[primitive.name].flops
    return Cost(number, shapes[-1].volume) if number else FREE


def weight_of(primitive: Primitive, shape: Shape) -> Weight | None:
    """Return the sizes of an FC's weight for an input of this shape, inputs ordered as C, KH, KW; else None."""
    if primitive.name != "fc":
        return None
    groups = shape.size("G")
    return groups, parse(primitive.parameter) / groups, shape.group_inputs


@lru_cache(maxsize=1 << 17)
def conditions_of(primitive: Primitive, shapes: tuple[Shape, ...]) -> tuple[Size, ...]:
    """Return the sizes, beside the shapes, that must be whole: outputs of an FC's group, or repeats of a broadcast."""
    if primitive.name == "fc":
        return (parse(primitive.parameter) / shapes[0].size("G"),)
    if primitive.name in BROADCASTS:
        parts = parts_of(primitive.parameter, *shapes)
        return parts.lhs, parts.repeats
    return ()
