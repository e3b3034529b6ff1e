"""A partial pGraph as an immutable value: built from the output on, one step at a time (Syno, sections 5 and 7.1).

A state is a set, not a sequence: the data coordinates on top, the weights so far, and the dropped coordinates. Two
states are equal when these sets agree up to the names of reductions; the order of the steps does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, permutations, product
from math import factorial, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from syno_lab.common.size import Size, shape_text
from syno_lab.errors import PrimitiveError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate, Node, output_coordinate, reduce_coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import MAX_STEPS, Spec
from syno_lab.later import later

if TYPE_CHECKING:
    from syno_lab.effort import Effort, Stop
    from syno_lab.ir.operator import Operator
    from syno_lab.later import Candidates, Explanation, Figure, PropertyExplanation, Rules

Key = tuple[Any, ...]
_MANY_RENAMINGS = 24  # up to this number, trying all renamings is faster than sorting reductions


def canonical_key(state: State, data: Iterable[Coordinate], ordered: bool = False) -> Key:
    """Return the least encoding of a pGraph over all renamings of reductions of equal size.

    The encoding does not depend on the names of reductions. ``ordered`` keeps the order of ``data`` (the input axes of
    a complete operator), else ``data`` is a set. With many renamings, only renamings are tried that keep the reductions
    sorted by their use.
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
        # One order suffices for a group if no swap of two neighbours changes the encoding.
        choices = [
            [tuple(g)] if _all_alike(encode, ranked, i, plain) else permutations(g) for i, g in enumerate(ranked)
        ]
    else:
        choices = [permutations(numbers) for numbers in ranked]
    return min(encode(orders) for orders in product(*choices))


def _told_apart(state: State, data: tuple[Coordinate, ...], ordered: bool, groups: list[list[int]]) -> list[list[int]]:
    """Split ``groups`` of reductions: two stay together if marking one gives the same encoding as marking the other."""
    parts: list[list[int]] = []
    unmarked = {number: 2 * rank for rank, numbers in enumerate(groups) for number in numbers}
    for numbers in groups:
        looks: dict[Key, list[int]] = {}
        for number in numbers:
            names = unmarked | {number: unmarked[number] + 1}
            looks.setdefault(_encode_state(state, data, ordered, names), []).append(number)
        parts += [looks[look] for look in sorted(looks)]
    return parts


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
    key = memo.get(coordinate)
    if key is None:
        node = coordinate.node
        tag = names[node.tag] if coordinate.is_reduction else node.tag
        parameter = () if node.parameter is None else node.parameter.exponents
        operands = tuple(_encode(c, names, memo) for c in node.operands)
        memo[coordinate] = key = (node.primitive, coordinate.index, tag, parameter, operands)
    return key


@dataclass(frozen=True)
class Weight:
    """A weight tensor, indexed first by the coordinates SHAREd with the data, then by the coordinates given to it."""

    shared: tuple[Coordinate, ...]
    given: tuple[Coordinate, ...] = ()

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Return the coordinates that index the weight, in the order of the dimensions."""
        return self.shared + self.given

    @property
    def shape(self) -> tuple[Size, ...]:
        """Return the sizes of the weight's dimensions."""
        return tuple(c.size for c in self.coordinates)


class Step(NamedTuple):
    """One step of a synthesis: a primitive with its bottom coordinates and its parameter.

    For SHARE (a whole CONTRACTION), ``operands`` are the shared coordinates and ``given`` the given coordinates.
    """

    primitive: str
    operands: tuple[Coordinate, ...] = ()
    parameter: Size | None = None
    given: tuple[Coordinate, ...] = ()


class Drawn:
    """The pictures of a partial or complete pGraph (syno_lab.codegen)."""

    def dot(
        self, *, highlight: Iterable[Coordinate | int] = (), title: str | None = None, is_steady: bool = False
    ) -> str:
        """Return the pGraph as DOT text; equal steps give equal texts.

        Args:
            highlight: the coordinates, and the steps by number, that get a thick border.
            title: a line above the drawing; any text, because it is escaped.
            is_steady: whether the nodes keep their positions from before the last step, for sequences of pictures;
                otherwise the layout program chooses the positions.
        """
        return later("dot", self, highlight=highlight, title=title, is_steady=is_steady)

    def svg(
        self, *, highlight: Iterable[Coordinate | int] = (), title: str | None = None, is_steady: bool = False
    ) -> str:
        """Draw the pGraph as an SVG element with a text alternative; the arguments are those of :meth:`dot`.

        Raises SynoError when the layout program is not installed.
        """
        return later("svg", self, highlight=highlight, title=title, is_steady=is_steady)

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclass(frozen=True, eq=False)
class State(Drawn):
    """A partial pGraph over ``spec``; :meth:`apply` returns the next state.

    Attributes:
        data: the coordinates on top of the data tensor; in a complete state they match the input.
        reductions: the reduction iterators, in order of creation.
        weights: the weights, in order of creation.
        expanded: the coordinates dropped by EXPAND.
        steps: the steps to this state; equality ignores them.
    """

    spec: Spec
    data: tuple[Coordinate, ...]
    reductions: tuple[Coordinate, ...] = ()
    weights: tuple[Weight, ...] = ()
    expanded: tuple[Coordinate, ...] = ()
    steps: tuple[Step, ...] = ()

    @classmethod
    def root(cls, spec: Spec) -> State:
        """Return the state with only output coordinates, where every synthesis begins."""
        return cls(spec, tuple(output_coordinate(axis, size) for axis, size in enumerate(spec.output_shape)))

    # -- the graph ---------------------------------------------------------------------------------------------------

    @property
    def output(self) -> tuple[Coordinate, ...]:
        """Return the output iterators."""
        return tuple(output_coordinate(axis, size) for axis, size in enumerate(self.spec.output_shape))

    @cached_property
    def fixed(self) -> frozenset[Coordinate]:
        """Return the output iterators that no step may use."""
        return frozenset(output_coordinate(out, self.spec.output_shape[out]) for out in self.spec.fixed_outputs)

    @cached_property
    def sharing(self) -> dict[Coordinate, frozenset[int]]:
        """Map each coordinate to the numbers of the weights that it is SHAREd with, if any."""
        sharing: dict[Coordinate, frozenset[int]] = {}
        for number, weight in enumerate(self.weights):
            for coordinate in weight.shared:
                sharing[coordinate] = sharing.get(coordinate, frozenset()) | {number}
        return sharing

    def results(self, step: Step) -> tuple[Coordinate, ...]:
        """Return the coordinates that ``step`` adds: a reduction's iterator or a view's results."""
        if step.primitive == "REDUCE":
            assert step.parameter is not None
            return (reduce_coordinate(len(self.reductions), step.parameter),)
        if step.primitive == "SHARE":
            return ()
        sizes = PRIMITIVES[step.primitive].result_sizes(tuple(c.size for c in step.operands), step.parameter)
        node = Node(step.primitive, step.operands, step.parameter)
        return tuple(Coordinate(node, i, size) for i, size in enumerate(sizes))

    def apply(self, step: Any) -> State:
        """Return the state after one more step (a :class:`Step`, or a candidate of this state).

        Raises PrimitiveError when Table 1 does not allow the step here.
        """
        step = getattr(step, "step", step)
        self.check(step)
        added = self.results(step)
        gone = step.given if step.primitive == "SHARE" else step.operands
        data = tuple(c for c in self.data if c not in gone) + added
        reductions, weights, expanded = self.reductions, self.weights, self.expanded
        if step.primitive == "REDUCE":
            reductions += added
        elif step.primitive == "SHARE":
            weights += (Weight(step.operands, step.given),)
        elif not added:
            expanded += step.operands
        return State(self.spec, data, reductions, weights, expanded, (*self.steps, step))

    def check(self, step: Step) -> None:
        """Refuse a step that Table 1 does not allow here. Raises PrimitiveError with the expected and found value."""
        primitive = PRIMITIVES.get(step.primitive)
        if primitive is None:
            raise PrimitiveError(
                f"unknown primitive {quoted(step.primitive)}; known are {', '.join(PRIMITIVES)}; one of your own is "
                "added by syno_lab.add_primitive"
            )
        if len(self.steps) >= MAX_STEPS:
            primitive.refuse(f"expected at most {MAX_STEPS} steps in one pGraph")
        if (primitive.parameter is None) != (step.parameter is None):
            shown = "none" if step.parameter is None else str(step.parameter)
            primitive.refuse(f"expected {primitive.parameter or 'no'} parameter, found {shown}")
        if step.parameter is not None and step.parameter.symbols != self.spec.symbols:
            primitive.refuse(f"parameter {step.parameter} is over other variables than this spec's")
        if step.primitive == "SHARE":
            if not step.operands:
                primitive.refuse("expected at least one shared coordinate, found none")
        elif len(step.operands) != len(primitive.operands) or step.given:
            names = ", ".join(primitive.operands) or "no coordinates"
            primitive.refuse(f"expected {names}, found {len(step.operands) + len(step.given)} coordinates")
        self._check_coordinates(step)
        primitive.check(tuple(c.size for c in step.operands), step.parameter, self.spec)

    def _check_coordinates(self, step: Step) -> None:
        primitive = PRIMITIVES[step.primitive]
        named = step.operands + step.given
        if len(set(named)) != len(named):
            primitive.refuse("a coordinate is named twice; a pGraph uses each coordinate once")
        for coordinate in named:
            if coordinate not in self.data:
                primitive.refuse(f"a coordinate of size {coordinate.size} is not on top of the data tensor (any more)")
            if coordinate in self.fixed:
                primitive.refuse(f"the output axis of size {coordinate.size} is fixed and takes part in nothing")
            if coordinate.node.primitive == "STRIDE" and step.primitive not in ("UNFOLD", "EXPAND"):
                primitive.refuse("a STRIDE's result must be consumed by a 1-to-many primitive (UNFOLD or EXPAND)")

    # -- completeness ------------------------------------------------------------------------------------------------

    def matches(self) -> Iterator[tuple[Coordinate, ...]]:
        """Yield the ways to match the data coordinates with the input axes: one coordinate for each axis.

        There are several ways only if input axes have equal sizes (transposition, section 7.1).
        """
        wanted = self.spec.input_shape
        if len(wanted) != len(self.data) or any(c.node.primitive == "STRIDE" for c in self.data):
            return
        pinned = {inp: output_coordinate(out, self.spec.output_shape[out]) for inp, out in self.spec.fixed_io_pairs}
        free: dict[Size, list[Coordinate]] = {}
        for coordinate in self.data:
            if coordinate not in self.fixed:
                free.setdefault(coordinate.size, []).append(coordinate)
        axes: dict[Size, list[int]] = {}
        for axis, size in enumerate(wanted):
            if axis not in pinned:
                axes.setdefault(size, []).append(axis)
        if {s: len(c) for s, c in free.items()} != {s: len(a) for s, a in axes.items()}:
            return
        for chosen in _arrangements([(axes[size], free[size]) for size in axes]):
            match = pinned | chosen
            yield tuple(match[axis] for axis in range(len(wanted)))

    def is_match(self, inputs: tuple[Coordinate, ...]) -> bool:
        """Return whether ``inputs`` is a match of :meth:`matches`, without listing the matches."""
        spec = self.spec
        return (
            len(inputs) == len(spec.input_shape) == len(self.data)
            and set(inputs) == set(self.data)
            and all(c.size == size for c, size in zip(inputs, spec.input_shape, strict=True))
            and all(inputs[inp] == output_coordinate(out, spec.output_shape[out]) for inp, out in spec.fixed_io_pairs)
            and all(c.node.primitive != "STRIDE" for c in inputs)
        )

    @cached_property
    def is_complete(self) -> bool:
        """Return whether the data coordinates match the input, so that the state is an operator."""
        return next(self.matches(), None) is not None

    def operator(self) -> Operator:
        """Return the operator of a complete state; of several matches the first.

        Raises PrimitiveError when the state is not complete.
        """
        from syno_lab.ir.operator import Operator

        match = next(self.matches(), None)
        if match is None:
            have, want = shape_text(c.size for c in self.data), shape_text(self.spec.input_shape)
            raise PrimitiveError(f"not an operator yet: the data have shape {have}, the input is {want}")
        return Operator(self, match)

    # -- the next steps, and the distance to the input (syno_lab.synthesis) -------------------------------------------

    def candidates(
        self, rules: Rules | None = None, *, effort: Effort | None = None, should_stop: Stop | None = None
    ) -> Candidates:
        """Return every legal next step that budgets of steps allow, with its verdict and distance, the nearest first.

        Args:
            rules: the rules that define canonical steps; None means ``sl.RULES``.
            effort: the limits of memory and time to count and sort the steps. By default, half of the machine's free
                memory and any time.
            should_stop: a callback that is called often; True stops the call.

        Returns:
            A sequence of :class:`syno_lab.Candidate`.

        Raises EffortError after a stop, and when a limit of ``effort`` is exceeded.
        """
        return later("candidates", self, rules, effort=effort, should_stop=should_stop)

    @property
    def distance(self) -> int | None:
        """Return the shape distance: a lower bound of the steps to the input; None if the input is out of reach."""
        return later("distance", self)

    def explain_distance(self, *, effort: Effort | None = None, should_stop: Stop | None = None) -> Explanation:
        """Return the shape distance with its reshape groups (Syno, section 7.1).

        As long as all steps are REDUCEs, further REDUCEs count too if they bring the input nearer. Only REDUCEs can add
        a primary variable that the output lacks. The arguments and errors are those of :meth:`candidates`.
        """
        return later("explain_distance", self, effort=effort, should_stop=should_stop)

    @property
    def property_distance(self) -> int | None:
        """Return a lower bound of the steps to an operator that meets the spec's wishes; None if none can meet them.

        Without wishes, the bound is the shape distance.
        """
        return later("property_distance", self)

    def explain_property_distance(
        self, *, effort: Effort | None = None, should_stop: Stop | None = None
    ) -> PropertyExplanation:
        """Return the property distance, and how each wish is met; arguments and errors as for :meth:`candidates`."""
        return later("explain_property_distance", self, effort=effort, should_stop=should_stop)

    def figure(self, *, title: str | None = None, highlight: Iterable[Coordinate | int] = ()) -> Figure:
        """Make a picture for a paper: ``state.figure().save("state.pdf")``; see :meth:`dot`."""
        return later("figure", self, title=title, highlight=highlight)

    # -- equality ----------------------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> Key:
        """Return a value that is equal for two states exactly when they are the same pGraph up to reduction names."""
        return canonical_key(self, self.data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self is other or (self.signature == other.signature and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        data, output = (shape_text(c.size for c in shape) for shape in (self.data, self.output))
        return f"<State data {data}, output {output}, {len(self.weights)} weights, {len(self.steps)} steps>"

    @property
    def signature(self) -> tuple[Any, ...]:
        """Return the facts in which comparable pGraphs agree: variables, shapes, fixed and unordered axes."""
        spec = self.spec
        return (spec.symbols, spec.input_shape, spec.output_shape, spec.fixed_io_pairs, spec.unordered)


def _arrangements(groups: list[tuple[list[int], list[Coordinate]]]) -> Iterator[dict[int, Coordinate]]:
    """Yield every way to assign the coordinates of each group to its axes."""
    if not groups:
        yield {}
        return
    (axes, coordinates), *rest = groups
    for order in permutations(coordinates):
        for further in _arrangements(rest):
            yield dict(zip(axes, order, strict=True)) | further
