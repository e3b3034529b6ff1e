"""The specification of operators: symbolic input and output shapes, variables with limits, and bindings.

The strings have the form of Syno's own programming interface (``syno-readme.md``): ``"[H, W]"`` for a shape and
``"k_1=3: 4"`` for a variable with a default value and a limit of occurrences.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import lcm
from typing import Literal, TypeVar

from syno_lab.common.size import Size, Symbols, split_shape
from syno_lab.common.wants import Wish, parse_wants
from syno_lab.errors import ReadingWarning, SpecError, UnboundError
from syno_lab.inputs import MOST_DIGITS, QUOTED, integer, nearest, positive, printable, quoted

Binding = Mapping[str, int]
#: The types of a spec's arguments: texts such as ``"k_1=3: 4"``, bindings, pairs of an input and an output axis, and
#: limits (None means no limit).
Texts = Iterable[str]
Mappings = Iterable[Binding]
Pairs = Iterable[Sequence[int]]
Cap = int | None
_Item = TypeVar("_Item")
WeightLimits = Literal["free", "primary"]
#: Limits that keep a search feasible: axes of a shape, variables, steps of one pGraph, digits of a limit.
MAX_AXES, MAX_VARIABLES, MAX_STEPS, MAX_LIMIT = 64, 256, 64, 10**18
_VARIABLE = re.compile(r"\s*(?P<name>[^\s=:]+)\s*(?:=\s*(?P<default>[^:]*?)\s*)?(?::\s*(?P<limit>.*?)\s*)?")


@dataclass(frozen=True)
class Variable:
    """A variable as the user declares it: ``"H = 28: 2"``."""

    name: str
    default: int | None = None
    limit: int | None = None  # the limit of occurrences in the operator; None: no limit

    @classmethod
    def parse(cls, text: str) -> Variable:
        """Parse ``"name"``, ``"name: limit"``, ``"name=default"`` or ``"name=default: limit"``.

        Raises SpecError for any other text.
        """
        match = _VARIABLE.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise SpecError(f"variable {quoted(text)}: expected name=default: limit, as in k_1=3: 4")
        written, most = match["default"], match["limit"]
        default = None if written is None else integer(written)
        if written is not None and not default:
            raise SpecError(
                f"variable {quoted(text)}: expected a positive integer after '=', found {quoted(written)}; "
                f"at most {MOST_DIGITS} digits are read, and several values are mappings=[{{'H': 28}}, {{'H': 56}}]"
            )
        limit = None if most is None else integer(most)
        if most is not None and limit is None:
            raise SpecError(
                f"variable {quoted(text)}: expected a limit of 0 or more after ':', found {quoted(most)}; "
                f"at most {MOST_DIGITS} digits are read, and without ':' there is no limit"
            )
        return cls(match["name"], default, limit)

    def __str__(self) -> str:
        default = "" if self.default is None else f"={self.default}"
        return f"{self.name}{default}" + ("" if self.limit is None else f": {self.limit}")


#: Limits that must be numbers, because no synthesis ends without them.
NEEDED_LIMITS = ("max_primitives", "max_tensors", "max_reduces", "min_weights")


@dataclass(frozen=True)
class Limits:
    """Budgets of a synthesis. FLOPs, parameters and bytes are counted for the first binding.

    None means no limit; :data:`NEEDED_LIMITS` must be numbers.
    """

    max_primitives: int = 8
    max_tensors: int = 3  # 3 allows the input and two weights
    max_reduces: int = 5
    max_splits: Cap = None
    max_merges: Cap = None
    max_shifts: int = 2
    max_expands: int = 2
    max_unfolds: Cap = None
    max_strides: int = 2
    max_contractions: Cap = None
    max_flops: Cap = None
    min_flops: Cap = None
    max_params: Cap = None
    max_memory: Cap = None  # bytes in float32: input, output, weights, largest live intermediates
    min_weights: int = 1

    def __post_init__(self) -> None:
        for item in fields(self):
            number = getattr(self, item.name)
            if number is None and item.name in NEEDED_LIMITS:
                raise SpecError(
                    f"{item.name}: expected an integer of 0 or more, found None; a synthesis needs this limit"
                )
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
                raise SpecError(f"{item.name}: expected an integer of 0 or more, found {quoted(number)}")
            if number is not None and number >= MAX_LIMIT:
                raise SpecError(f"{item.name}: expected an integer of at most 18 digits, found a larger one")
        if self.max_primitives > MAX_STEPS:
            raise SpecError(
                f"max_primitives: expected at most {MAX_STEPS}, the most steps of one pGraph, "
                f"found {self.max_primitives}"
            )
        if self.min_flops is not None and self.max_flops is not None and self.min_flops > self.max_flops:
            raise SpecError(f"min_flops {self.min_flops} is more than max_flops {self.max_flops}: no operator fits")
        if self.max_tensors < 1:
            raise SpecError("max_tensors counts the input and must be at least 1, found 0")
        if self.min_weights > self.max_tensors - 1:
            raise SpecError(
                f"min_weights {self.min_weights} needs max_tensors of at least {self.min_weights + 1}, "
                f"found {self.max_tensors} (the input counts as one)"
            )

    def of(self, primitive: str) -> int | None:
        """Return the limit of steps of a primitive, by its name in Table 1 of the paper; None: no limit."""
        if primitive == "SHARE":
            counts = [self.max_tensors - 1] + ([] if self.max_contractions is None else [self.max_contractions])
            return min(counts)
        return getattr(self, f"max_{primitive.lower()}s", None)


@dataclass(frozen=True)
class Spec:
    """Symbolic input and output shapes, with all limits of a synthesis.

    ``fixed_io_pairs`` are pairs of an input and an output axis that are the same coordinate and that no primitive uses
    (the batch). ``unordered`` names input axes whose inner order does not matter in the final match.
    ``weight_limits`` chooses the limits of occurrences that bind the dimensions of weights: none (``free``), or the
    limits of primary variables (``primary``), as in the authors' engine.
    ``wants`` are properties that every operator must have (:mod:`syno_lab.common.wants`).
    ``bindings`` are the concrete sizes that every operator must fit; budgets are counted for the first binding.
    """

    symbols: Symbols
    input_shape: tuple[Size, ...]
    output_shape: tuple[Size, ...]
    variables: tuple[Variable, ...] = ()
    fixed_io_pairs: tuple[tuple[int, int], ...] = ()
    unordered: tuple[str, ...] = ()
    bindings: tuple[tuple[tuple[str, int], ...], ...] = ()
    limits: Limits = field(default_factory=Limits)
    weight_limits: WeightLimits = "free"
    wants: tuple[Wish, ...] = ()

    def __post_init__(self) -> None:
        for name, number, most in (
            ("input_shape", len(self.input_shape), MAX_AXES),
            ("output_shape", len(self.output_shape), MAX_AXES),
            ("variables", len(self.symbols.names), MAX_VARIABLES),
        ):
            if number > most:
                raise SpecError(f"{name}: expected at most {most}, found {number}; no machine could search more")

    @classmethod
    def parse(
        cls,
        input_shape: str,
        output_shape: str,
        primary_specs: Texts,
        coefficient_specs: Texts = (),
        *,
        mappings: Mappings | None = None,
        fixed_io_pairs: Pairs = (),
        unordered: Texts = (),
        weight_limits: WeightLimits = "free",
        wants: str | None = None,
        **limits: Cap,
    ) -> Spec:
        """Build a spec from the strings of ``syno-readme.md``; ``limits`` are the fields of :class:`Limits`.

        An axis of the input may have the form ``C_in: unordered``, as in Syno's configurations. At an output axis
        ``unordered`` has no effect and causes a :class:`.ReadingWarning`. Raises SpecError with one line that names the
        wrong part.
        """
        primary = _parse_variables("primary_specs", primary_specs)
        coefficient = _parse_variables("coefficient_specs", coefficient_specs)
        symbols = Symbols(tuple(v.name for v in primary), tuple(v.name for v in coefficient))
        known = {item.name for item in fields(Limits)}
        for name in limits:
            if name not in known:
                names = nearest(name, sorted(known))
                raise SpecError(f"unknown limit {quoted(name)}; known are {', '.join(names)}")
        axes, free = _parse_shape("input_shape", input_shape, symbols)
        shapes = axes, _parse_shape("output_shape", output_shape, symbols)[0]
        spec = cls(
            symbols,
            *shapes,
            (*primary, *coefficient),
            _parse_pairs(fixed_io_pairs),
            tuple(dict.fromkeys((*_parse_names(unordered, symbols), *free))),
            limits=Limits(**limits),  # type: ignore[arg-type]  # Limits checks which may be None
            weight_limits=read_weight_limits(weight_limits),
            wants=parse_wants(wants, *shapes, symbols),
        )
        spec._check_axes()
        return spec.bound(mappings if mappings is not None else ())

    def bound(self, mappings: Mappings) -> Spec:
        """Return the spec with bindings: ``mappings`` completed by defaults; without mappings, complete defaults."""
        completed: dict[tuple[tuple[str, int], ...], None] = {}
        for mapping in _listed("mappings", mappings, "[{'H': 32, 'W': 32}]"):
            binding = self.complete_binding(mapping)
            completed[tuple((name, binding[name]) for name in self.symbols.names)] = None
        if not completed and all(self.defaults.get(name) for name in self.symbols.names):
            completed[tuple((name, self.defaults[name]) for name in self.symbols.names)] = None
        for item in completed:
            for shape in (self.input_shape, self.output_shape):
                for size in shape:
                    size.at(dict(item))
        return replace(self, bindings=tuple(completed))

    def with_wants(self, wants: str | None) -> Spec:
        """Return the spec with other wishes, such as ``"C_in>=m, H>=m"``.

        Raises SpecError for a text that is no wish, and for a wish about a fixed axis.
        """
        spec = replace(self, wants=parse_wants(wants, self.input_shape, self.output_shape, self.symbols))
        spec._check_wants()
        return spec

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (
                self.symbols,
                self.input_shape,
                self.output_shape,
                self.fixed_io_pairs,
                self.limits,
                self.bindings,
                self.weight_limits,
                self.wants,
                self.unordered,
            )
        )

    @cached_property
    def defaults(self) -> dict[str, int]:
        """Return the default values of the variables."""
        return {v.name: v.default for v in self.variables if v.default is not None}

    @cached_property
    def occurrence_limits(self) -> dict[str, int | None]:
        """Return how often each variable may occur; None means no limit."""
        limits: dict[str, int | None] = dict.fromkeys(self.symbols.names)
        limits.update({v.name: v.limit for v in self.variables})
        return limits

    def complete_binding(self, mapping: Binding) -> dict[str, int]:
        """Complete ``mapping`` by the defaults.

        Raises SpecError for a variable without a value, an unknown variable, or a value that is no positive integer of
        at most 18 digits.
        """
        if not isinstance(mapping, Mapping):
            raise SpecError(f"binding: expected a mapping such as {{'H': 32, 'W': 32}}, found {quoted(mapping)}")
        binding = dict(self.defaults)
        for name, value in mapping.items():
            if not isinstance(name, str) or name not in self.symbols.position:
                declared = printable(", ".join(self.symbols.names), QUOTED)
                raise SpecError(f"binding: unknown variable {quoted(name)}; declared are {declared}")
            number = positive(value)
            if number is None:
                raise SpecError(
                    f"binding {printable(name, QUOTED)}={quoted(value)}: expected a positive integer "
                    f"(of at most {MOST_DIGITS} digits)"
                )
            binding[name] = number
        missing = [name for name in self.symbols.names if name not in binding]
        if missing:
            names, first = printable(", ".join(missing), QUOTED), printable(missing[0], QUOTED)
            raise UnboundError(f"no value for {names}: give a default (as in '{first}=16') or bind it", tuple(missing))
        return {name: binding[name] for name in self.symbols.names}

    @cached_property
    def binding_maps(self) -> tuple[dict[str, int], ...]:
        """Return the bindings as dictionaries."""
        return tuple(dict(item) for item in self.bindings)

    def weight_cost(self, size: Size) -> tuple[int, ...]:
        """Count the occurrences of each variable in a weight's dimension of this size; empty if none are counted."""
        if self.weight_limits == "free":
            return ()
        primaries = len(self.symbols.primary)
        return tuple([abs(power) if i < primaries else 0 for i, power in enumerate(size.exponents)])

    def is_legal(self, size: Size) -> bool:
        """Return whether a coordinate may have this size: plausible, and an integer under every binding."""
        known = self._legal.get(size.exponents)
        if known is None:
            known = size.is_plausible and all(size.is_integral(b) for b in self.binding_maps)
            self._legal[size.exponents] = known
        return known

    @cached_property
    def _legal(self) -> dict[tuple[int, ...], bool]:
        """Cache whether a coordinate may have a size, because rules often check the same few sizes."""
        return {}

    @cached_property
    def fixed_outputs(self) -> dict[int, int]:
        """Map each fixed output axis to its input axis."""
        return {out: inp for inp, out in self.fixed_io_pairs}

    @cached_property
    def matched(self) -> tuple[int, ...]:
        """Return the input axes that are matched with data coordinates: all axes that are not fixed."""
        fixed = {inp for inp, _ in self.fixed_io_pairs}
        return tuple([axis for axis in range(len(self.input_shape)) if axis not in fixed])

    @cached_property
    def free_axes(self) -> tuple[int, ...]:
        """Return the input axes whose inner order is free."""
        return tuple([axis for axis, size in enumerate(self.input_shape) if str(size) in self.unordered])

    @cached_property
    def small_binding(self) -> dict[str, int]:
        """Return a small binding that separates operators: primaries all different and larger than the coefficients.

        A primary is divisible by the coefficients that divide it in every binding of the spec (by all coefficients if
        there is no binding). Coefficients keep their defaults (2 without a default), because operators must fit them.
        """
        coefficients = {name: self.defaults.get(name, 2) for name in self.symbols.coefficient}
        most = max(coefficients.values(), default=1)
        fixed = {name for i, _ in self.fixed_io_pairs for name in self.input_shape[i].variables}
        binding: dict[str, int] = {}
        for name in self.symbols.primary:
            if name in fixed:
                binding[name] = 1
                continue
            divisors = [
                number
                for coefficient, number in coefficients.items()
                if self.occurrence_limits[coefficient] != 0
                and all(bound[name] % number == 0 for bound in self.binding_maps)
            ]
            step = lcm(*divisors)
            if step >= MAX_LIMIT:
                raise SpecError(
                    f"no small sizes for {name}: a multiple of all {len(divisors)} coefficients has more than 18 digits"
                )
            number = step * (most // step + 1)
            while number in binding.values():
                number += step
            binding[name] = number
        return {**binding, **coefficients}

    def _check_axes(self) -> None:
        for inp, out in self.fixed_io_pairs:
            if not (0 <= inp < len(self.input_shape) and 0 <= out < len(self.output_shape)):
                raise SpecError(
                    f"fixed_io_pairs ({quoted(inp)}, {quoted(out)}): expected input axis below {len(self.input_shape)} "
                    f"and output axis below {len(self.output_shape)}"
                )
            if self.input_shape[inp] != self.output_shape[out]:
                raise SpecError(
                    f"fixed_io_pairs ({inp}, {out}): input axis has size {_cut(self.input_shape[inp])}, "
                    f"output axis {_cut(self.output_shape[out])}; a fixed pair must be equal"
                )
        for side in (0, 1):
            axes = [pair[side] for pair in self.fixed_io_pairs]
            if len(set(axes)) != len(axes):
                raise SpecError(f"fixed_io_pairs {quoted(list(self.fixed_io_pairs))}: an axis is fixed twice")
        names = {str(size) for size in self.input_shape}
        for name in self.unordered:
            if name not in names:
                sizes = printable(", ".join(sorted(names)), QUOTED)
                raise SpecError(f"unordered {quoted(name)}: no input axis has that size; they are {sizes}")
        self._check_wants()
        for size in (*self.input_shape, *self.output_shape):
            if not size.is_plausible:
                raise SpecError(
                    f"size {_cut(size)} can never be a positive integer: primaries may not be in a denominator"
                )

    def _check_wants(self) -> None:
        for wish in self.wants:
            for inp, out in self.fixed_io_pairs:
                if wish.axis == inp and (wish.least != "o" or wish.output not in (None, out)):
                    text = quoted(wish.text(self.input_shape, self.output_shape))
                    raise SpecError(
                        f"wants {text}: expected axes that take part in something, found input axis {inp}, which is "
                        f"fixed: one-to-one with output axis {out} and not paired with others"
                    )


def read_weight_limits(text: object) -> WeightLimits:
    """Return the text ``free`` or ``primary``. Raises SpecError for any other value."""
    if text == "free" or text == "primary":
        return text
    raise SpecError(f"weight_limits: expected 'free' or 'primary', found {quoted(text)}")


def _parse_variables(where: str, specs: Texts) -> tuple[Variable, ...]:
    return tuple(Variable.parse(text) for text in _listed(where, specs, "['H: 2', 'W: 2']"))


def _parse_names(names: Texts, symbols: Symbols) -> tuple[str, ...]:
    """Normalise the texts of sizes; a text that is no size stays, and :meth:`Spec._check_axes` refuses it."""
    sizes = _listed("unordered", names, "['C_in']")
    for i, name in enumerate(sizes):
        if not isinstance(name, str):
            raise SpecError(f"unordered: expected the size of an input axis as text, found {quoted(name)}")
        with contextlib.suppress(SpecError):
            sizes[i] = str(symbols.size(name))
    return tuple(sizes)


def _listed(where: str, values: Iterable[_Item], example: str) -> list[_Item]:
    if isinstance(values, str | Mapping):  # ``list`` would split a text into letters, and keep only a mapping's keys
        shown = f"the text {quoted(values)}" if isinstance(values, str) else quoted(values)
        raise SpecError(f"{where}: expected a list such as {example}, found {shown}")
    try:
        return list(values)
    except TypeError:
        raise SpecError(f"{where}: expected a list such as {example}, found {quoted(values)}") from None


def _cut(size: Size | str) -> str:
    return printable(str(size), QUOTED)


def _parse_shape(where: str, text: str, symbols: Symbols) -> tuple[tuple[Size, ...], list[str]]:
    """Parse the sizes of the axes; also return, as texts, the sizes with ``: unordered``."""
    if not isinstance(text, str):
        raise SpecError(f"{where}: expected a text such as '[N, C_in, H, W]', found {quoted(text)}")
    sizes, free, ordered = [], [], set()
    try:
        for part in split_shape(text):
            size, colon, word = part.partition(":")
            sizes.append(symbols.size(size))
            if not colon:
                ordered.add(str(sizes[-1]))
            elif word.strip().lower() == "unordered":
                free.append(str(sizes[-1]))
            else:
                raise SpecError(
                    f"axis {quoted(part)}: expected 'unordered' or nothing after ':', found {quoted(word.strip())}; "
                    "limits and values stand with the variables, as in 'H=28: 2'"
                )
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    if free and where == "output_shape":
        warnings.warn(
            f"output_shape: {_cut(', '.join(free))} is read without ': unordered': only axes of the input can be so "
            "(unordered=[…]), and operators that differ in the inner order of an output axis are all given",
            ReadingWarning,
            stacklevel=3,
        )
    elif both := [name for name in free if name in ordered]:
        raise SpecError(
            f"{where}: expected ': unordered' at all axes of the size {_cut(both[0])} or at none, found some without; "
            "write it at each, or declare another variable for those without"
        )
    return tuple(sizes), free


def _parse_pairs(pairs: Pairs) -> tuple[tuple[int, int], ...]:
    result = []
    for pair in _listed("fixed_io_pairs", pairs, "[(0, 0)]"):
        if (
            not isinstance(pair, Sequence)
            or len(pair) != 2
            or not all(isinstance(axis, int) and not isinstance(axis, bool) for axis in pair)
        ):
            raise SpecError(f"fixed_io_pairs: expected pairs of an input and an output axis, found {quoted(pair)}")
        result.append((pair[0], pair[1]))
    return tuple(result)
