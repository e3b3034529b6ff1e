"""The fine-grained primitives of Canvas (Table 1, section 5): a registry with one row for each name.

A primitive is a name and a parameter as text. Its *kind*, the row of the registry, says to which shapes it applies,
what the shape of the result is, and what it costs; :mod:`syno_lab.canvas.reference` says what it computes.

Letters: a is the input, |a| the product of its sizes; v the channels after an FC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from syno_lab.canvas.shape import CHANNELS, SLOTS, SPATIAL, Shape
from syno_lab.canvas.sizes import ONE, G, Size, fault_of, is_legal, parse, substitute, variables_of
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import quoted


class Primitive(NamedTuple):
    """A primitive with its parameter: ``Primitive("shift", "H+1")``; :data:`PRIMITIVES` has the forms of parameters."""

    name: str
    parameter: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.parameter}" if self.parameter else self.name

    def substituted(self, number: int, by: Size) -> Primitive:
        """The primitive with ``by`` in the place of a dynamic variable; only the channels of an FC can have one."""
        if self.name != "fc":
            return self
        size = parse(self.parameter)
        after = substitute(size, number, by)
        return self if after is size else Primitive("fc", str(after))


class Cost(NamedTuple):
    """A number times a size."""

    number: int
    size: Size


FREE = Cost(0, ONE)

Offers = Callable[[Shape], tuple[str, ...]]
Result = Callable[[str, tuple[Shape, ...]], Shape]
Flops = Callable[[str, tuple[Shape, ...]], Cost]
#: ``[groups, outputs of a group, inputs of a group]``.
Weight = tuple[Size, Size, Size]


@dataclass(frozen=True)
class Kind:
    """A row of the table, and the card of its primitives.

    Attributes:
        name: of the primitives.
        family: ``rearrangement``, ``arithmetic`` or ``blending``, as in Table 1.
        arity: how many tensors it takes.
        parameter: what its parameter says; empty where it has none.
        before, after: shapes as text.
        meaning: the value, in a line.
        misuses: what is refused.
        offers: the parameters with which it applies to a tensor of a shape; for an FC the size is chosen by the draft,
            and for a broadcast by shape matching.
        result: the shape of the result; raises PrimitiveError where it does not apply.
        flops: of one example.
        weight: the sizes of its weight, ``[groups, outputs of a group, inputs of a group]``; None where it has none.
    """

    name: str
    family: str
    arity: int
    parameter: str
    before: str
    after: str
    meaning: str
    misuses: tuple[str, ...]
    offers: Offers
    result: Result
    flops: Flops
    weight: Callable[[str, Shape], Weight] | None = None

    def applies(self, parameter: str, shapes: tuple[Shape, ...]) -> bool:
        """Whether a primitive of this kind applies to tensors of these shapes."""
        return not isinstance(try_result(Primitive(self.name, parameter), shapes), str)

    @property
    def signature(self) -> str:
        """How it is written: ``shift(a; axes and offsets)``."""
        tensors = "a" if self.arity == 1 else "LHS, RHS"
        return f"{self.name}({tensors}{'; ' if self.parameter else ''}{self.parameter})"

    @property
    def card(self) -> str:
        """The primitive on one page."""
        refused = "".join(f"\n  refused: {line}" for line in self.misuses)
        return (
            f"{self.name}\n  {self.signature}\n  before: {self.before}\n  after:  {self.after}\n"
            f"  {self.meaning}{refused}\n  source: Canvas, Table 1 and section 5"
        )


def _refuse(expected: str, shape: Shape) -> PrimitiveError:
    return PrimitiveError(f"expected {expected}, found {shape}")


def _known(parameter: str, choices: tuple[str, ...]) -> None:
    if parameter not in choices:
        raise PrimitiveError(f"expected a parameter among {' | '.join(choices)}, found {quoted(parameter)}")


def _nothing(parameter: str) -> None:
    if parameter:
        raise PrimitiveError(f"expected no parameter, found {quoted(parameter)}")


def _no_offers(shape: Shape) -> tuple[str, ...]:
    return ()


def _offers_by(result: Result, choices: tuple[str, ...]) -> Offers:
    """The choices that apply: those for which ``result`` gives a legal shape."""

    def offers(shape: Shape) -> tuple[str, ...]:
        found = []
        for choice in choices:
            try:
                if result(choice, (shape,)).fault is None:
                    found.append(choice)
            except PrimitiveError:
                continue
        return tuple(found)

    return offers


def _no_flops(parameter: str, shapes: tuple[Shape, ...]) -> Cost:
    return FREE


def _each_element(number: int) -> Flops:
    """So many FLOPs for each element of the last input: of ``a``, or of a broadcast's RHS."""

    def flops(parameter: str, shapes: tuple[Shape, ...]) -> Cost:
        return Cost(number, shapes[-1].volume)

    return flops


# -- rearrangement -----------------------------------------------------------------------------------------------------

GROUPS = ("G", "each")


def _group(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    _known(parameter, GROUPS)
    channels = shape["C"]
    if shape["G"] is not None:
        raise _refuse("a tensor that is not in groups yet", shape)
    if channels is None:
        raise _refuse("a tensor with channels", shape)
    return shape.with_slots({"G": G, "C": channels / G} if parameter == "G" else {"G": channels, "C": None})


#: Of each axis by its parameter: the offset, 1 or -1.
SHIFTS: dict[str, tuple[tuple[str, int], ...]] = {}
for _axes in (("H",), ("W",), ("H", "W")):
    for _signs in product((1, -1), repeat=len(_axes)):
        _text = ",".join(f"{axis}{sign:+d}" for axis, sign in zip(_axes, _signs, strict=True))
        SHIFTS[_text] = tuple(zip(_axes, _signs, strict=True))


def _shift(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    _known(parameter, tuple(SHIFTS))
    for axis, _ in SHIFTS[parameter]:
        if shape[axis] is None:
            raise _refuse(f"a tensor with axis {axis}", shape)
    return shape


#: The axes that an unfold, a fold or a softmax names.
UNFOLDS = {"H": ("H",), "W": ("W",), "H,W": ("H", "W")}


def _unfold(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    _known(parameter, tuple(UNFOLDS))
    for axis in UNFOLDS[parameter]:
        if shape[axis] is None:
            raise _refuse(f"a tensor with axis {axis}", shape)
        if shape[f"K{axis}"] is not None:
            raise _refuse(f"a tensor without a window in slot K{axis}", shape)
    return shape.with_slots({f"K{axis}": parse(f"K{axis}") for axis in UNFOLDS[parameter]})


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _channels(parameter: str) -> Size:
    try:
        return parse(parameter)
    except SpecError as error:
        raise PrimitiveError(str(error)) from None


def _fc(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    channels = _channels(parameter)
    groups = shape.size("G")
    fault = fault_of(channels)
    if fault is not None:
        raise PrimitiveError(f"expected a size for the channels, found {channels.pretty}: {fault}")
    if variables_of(groups):
        raise _refuse("groups without a dynamic variable", shape)
    if not is_legal(channels / groups):
        raise PrimitiveError(f"expected channels that {groups.pretty} groups divide, found {channels.pretty}")
    return Shape((None, channels, None, None, shape["H"], shape["W"]))


def _fc_flops(parameter: str, shapes: tuple[Shape, ...]) -> Cost:
    (shape,) = shapes
    return Cost(2, parse(parameter) * shape.group_inputs * shape.size("H") * shape.size("W"))


def _fc_weight(parameter: str, shape: Shape) -> Weight:
    """The inputs of a group are in the order of C, KH, KW."""
    groups = shape.size("G")
    return groups, parse(parameter) / groups, shape.group_inputs


def _same(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    _nothing(parameter)
    return shapes[0]


def _fold(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    _known(parameter, SLOTS)
    if shape[parameter] is None:
        raise _refuse(f"a tensor with axis {parameter}", shape)
    return shape.with_slots({parameter: None})


def axes_of(parameter: str) -> tuple[str, ...]:
    """The slots that a softmax names: ``H,W``."""
    return tuple(parameter.split(","))


def _softmax(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    filled = shape.filled
    axes = axes_of(parameter)
    ends = (axes[0], axes[-1])
    if any(axis not in filled for axis in axes) or filled[filled.index(ends[0]) : filled.index(ends[1]) + 1] != axes:
        raise PrimitiveError(f"expected adjacent axes of {','.join(filled) or 'no axis'}, found {quoted(parameter)}")
    return shape


def _softmax_offers(shape: Shape) -> tuple[str, ...]:
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
    """The slots of RHS onto which LHS is repeated, as a range of :data:`SLOTS`; empty for element by element.

    The parameter names the first and the last of them: ``C``, or ``C..KW``. Raises PrimitiveError for another text.
    """
    if not parameter:
        return 0, 0
    first, dots, last = parameter.partition("..")
    if not dots:
        last = first
    if first not in SLOTS or last not in SLOTS or SLOTS.index(first) > SLOTS.index(last):
        raise PrimitiveError(f"expected slots such as C or C..KW, found {quoted(parameter)}")
    return SLOTS.index(first), SLOTS.index(last) + 1


def parts_of(parameter: str, lhs: Shape, rhs: Shape) -> Parts:
    """How a broadcast views its sides: LHS repeats inside the block of slots that the parameter names.

    Raises PrimitiveError where the rest of RHS is not the beginning and the end of LHS, or the block is no multiple.
    """
    start, stop = span_of(parameter)
    before = tuple([size for size in rhs.slots[:start] if size is not None])
    after = tuple([size for size in rhs.slots[stop:] if size is not None])
    rest = len(lhs.sizes) - len(before) - len(after)
    if rest < 0 or lhs.sizes[: len(before)] != before or lhs.sizes[len(before) + rest :] != after:
        where = f" but for {parameter}" if parameter else ""
        raise PrimitiveError(f"expected a LHS that begins and ends as {rhs}{where}, found {lhs}")
    prefix = repeated = suffix = ONE
    for size in before:
        prefix = prefix * size
    for size in lhs.sizes[len(before) : len(before) + rest]:
        repeated = repeated * size
    for size in after:
        suffix = suffix * size
    repeats = rhs.volume / lhs.volume
    for what, size in (("the repeated part", repeated), ("the number of repeats", repeats)):
        fault = fault_of(size)
        if fault is not None:
            raise PrimitiveError(f"expected a RHS whose {parameter or 'shape'} is a multiple of LHS: {what}: {fault}")
    return Parts(prefix, repeats, repeated, suffix)


def _broadcast(parameter: str, shapes: tuple[Shape, ...]) -> Shape:
    lhs, rhs = shapes
    parts_of(parameter, lhs, rhs)
    return rhs


# -- the registry ------------------------------------------------------------------------------------------------------


def _rows() -> list[Kind]:
    rearrangement, arithmetic, blending = "rearrangement", "arithmetic", "blending"
    rows = [
        Kind(
            "group",
            rearrangement,
            1,
            "G | each",
            "[C, …]",
            "[G, C/G, …], or [C, …] with every channel a group",
            "a view: channel c becomes (c div (C/G), c mod (C/G))",
            ("a tensor that is in groups", "a tensor without channels", "channels that G does not divide"),
            _offers_by(_group, GROUPS),
            _group,
            _no_flops,
        ),
        Kind(
            "shift",
            rearrangement,
            1,
            "offsets by axis",
            "[…, H, W]",
            "the same",
            "a roll: out(h) = a((h − o) mod H), o = 1 or −1 for each axis",
            ("an axis that is not there",),
            _offers_by(_shift, tuple(SHIFTS)),
            _shift,
            _no_flops,
        ),
        Kind(
            "unfold",
            rearrangement,
            1,
            "axes",
            "[…, H, W]",
            "[…, KH, …, H, W]",
            "windows: out(…, k, …, h, …) = a(…, h + k − (K − 1)/2, …), zero outside; K is odd",
            ("an axis that is not there", "a window that is there"),
            _offers_by(_unfold, tuple(UNFOLDS)),
            _unfold,
            _no_flops,
        ),
        Kind(
            "fc",
            arithmetic,
            1,
            "v",
            "[G, C, KH, KW, H, W]",
            "[v, H, W]",
            "out(g·v/G + o, h, w) = Σ of a · weight over C, KH, KW of group g; weight [G, v/G, C·KH·KW], no bias",
            ("a number of groups that has a dynamic variable", "channels v that the groups do not divide"),
            _no_offers,
            _fc,
            _fc_flops,
            _fc_weight,
        ),
        Kind(
            "softmax",
            arithmetic,
            1,
            "adjacent axes",
            "[…]",
            "the same",
            "exp(a), divided by its sum over the axes together",
            ("an axis that is not there", "axes that are not adjacent"),
            _softmax_offers,
            _softmax,
            _each_element(3),
        ),
    ]
    for name, number, meaning in (
        ("relu", 1, "max(a, 0)"),
        ("gelu", 4, "a · (1 + erf(a/√2))/2"),
        ("sigmoid", 3, "1/(1 + exp(−a))"),
        ("tanh", 5, "tanh(a)"),
        ("abs", 1, "|a|"),
        ("exp", 1, "exp(a)"),
        ("neg", 1, "−a"),
        ("sin", 1, "sin(π/2 · a)"),
    ):
        flops = _each_element(number)
        rows.append(Kind(name, arithmetic, 1, "", "[…]", "the same", meaning, (), lambda shape: ("",), _same, flops))
    for name, meaning in (("fold_avg", "the mean over the axis"), ("fold_max", "the maximum over the axis")):
        rows.append(
            Kind(
                name,
                arithmetic,
                1,
                "axis",
                "[…, X, …]",
                "[…, …]",
                meaning,
                ("an axis that is not there",),
                lambda shape: shape.filled,
                _fold,
                _each_element(1),
            )
        )
    for name, sign in (("add", "LHS + RHS"), ("sub", "LHS − RHS"), ("mul", "LHS · RHS"), ("min", ""), ("max", "")):
        meaning = f"{sign or f'{name}(LHS, RHS)'}, LHS viewed as [prefix, 1, L, suffix], RHS as [prefix, M, L, suffix]"
        rows.append(
            Kind(
                name,
                blending,
                2,
                "slots of RHS",
                "[prefix, L, suffix], [prefix, R, suffix]",
                "the shape of RHS",
                meaning,
                ("no M with M · L = R", "a LHS that begins or ends otherwise than RHS"),
                _no_offers,
                _broadcast,
                _each_element(1),
            )
        )
    return rows


PRIMITIVES: dict[str, Kind] = {kind.name: kind for kind in _rows()}
ELEMENTWISE = ("relu", "gelu", "sigmoid", "tanh", "abs", "exp", "neg", "sin")
BROADCASTS = ("add", "sub", "mul", "min", "max")
#: The broadcasts whose sides may change places where both have one shape.
COMMUTATIVE = ("add", "mul", "min", "max")


@lru_cache(maxsize=1 << 17)
def try_result(primitive: Primitive, shapes: tuple[Shape, ...]) -> Shape | str:
    """The shape of a result, or why the primitive does not apply."""
    kind = PRIMITIVES.get(primitive.name)
    if kind is None:
        return f"expected a primitive among {', '.join(PRIMITIVES)}, found {quoted(primitive.name)}"
    if len(shapes) != kind.arity:
        return f"{kind.name}: expected {kind.arity} inputs, found {len(shapes)}"
    try:
        shape = kind.result(primitive.parameter, shapes)
    except PrimitiveError as error:
        return f"{kind.name}: {error}"
    return shape if shape.fault is None else f"{primitive}: {shape.fault} of the result {shape}"


def result(primitive: Primitive, shapes: tuple[Shape, ...]) -> Shape:
    """The shape of a result. Raises PrimitiveError, in one line, where the primitive does not apply."""
    found = try_result(primitive, shapes)
    if isinstance(found, str):
        raise PrimitiveError(found)
    return found


@lru_cache(maxsize=1 << 17)
def flops_of(primitive: Primitive, shapes: tuple[Shape, ...]) -> Cost:
    """FLOPs for one example."""
    return PRIMITIVES[primitive.name].flops(primitive.parameter, shapes)


def weight_of(primitive: Primitive, shape: Shape) -> Weight | None:
    """The sizes of the weight of a primitive on a tensor of this shape; None where it has none."""
    weight = PRIMITIVES[primitive.name].weight
    return weight(primitive.parameter, shape) if weight is not None else None


@lru_cache(maxsize=1 << 17)
def conditions_of(primitive: Primitive, shapes: tuple[Shape, ...]) -> tuple[Size, ...]:
    """What must be a whole number beside the sizes of tensors: outputs of an FC's group, repeats of a broadcast."""
    if primitive.name == "fc":
        return (parse(primitive.parameter) / shapes[0].size("G"),)
    if primitive.name in BROADCASTS:
        parts = parts_of(primitive.parameter, *shapes)
        return parts.lhs, parts.repeats
    return ()
