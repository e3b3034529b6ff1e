"""The parts of a rewrite: two small parts of a pGraph over the same bottom coordinates (Syno, section 6).

The paper marks the bottom coordinates of a subgraph as wildcards ``#0``, ``#1``, ... and rewrites the expressions on
top of it. Coordinates, dimensions of weights and input axes that the rewrite does not use are left out. ``X`` is the
result of all steps above, ``W`` a weight, and ``1[c]`` a tensor of ones for an EXPAND. Elements out of bounds are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node, output_coordinate, reduce_coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding, Spec
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.expressions import Expression, expression, iterators, name, size, size_latex
from syno_lab.synthesis.rewrites_numbers import difference

if TYPE_CHECKING:
    import sympy


class Part:
    """A part of a pGraph that grows upwards from wildcards, which are the output axes of a separate state.

    Steps are not checked against Table 1: a rewrite is an equation, which may also contain illegal steps.

    Attributes:
        of: the coordinates of another state that the wildcards represent, if any.
        bottoms: the wildcards.
        here: maps coordinates of the other state to coordinates of this part.
        summed: the reductions of the other state that this part's reductions represent.
    """

    def __init__(self, spec: Spec, sizes: Sequence[Size], of: Sequence[Coordinate] = ()) -> None:
        self._spec = Spec(spec.symbols, (), tuple(sizes), spec.variables, bindings=spec.bindings)
        self.of = tuple(of)
        self.bottoms = tuple(output_coordinate(number, item) for number, item in enumerate(sizes))
        self.here: dict[Coordinate, Coordinate] = dict(zip(self.of, self.bottoms, strict=False))
        self.summed: tuple[Coordinate, ...] = ()
        self._reductions: list[Coordinate] = []
        self._weights: list[Weight] = []
        self._expanded: list[Coordinate] = []
        self._steps: list[Step] = []
        self._views: dict[Node, tuple[Coordinate, ...]] = {}

    def reduce(self, size: Size) -> Coordinate:
        """Add a reduction; the first reduction is ``r0``."""
        self._reductions.append(reduce_coordinate(len(self._reductions), size))
        self._steps.append(Step("REDUCE", (), size))
        return self._reductions[-1]

    def sums(self, *coordinates: Coordinate) -> tuple[Coordinate, ...]:
        """Add reductions that represent reductions of the other state, or digits of a reduction."""
        self.summed += coordinates
        self.here.update({c: self.reduce(c.size) for c in coordinates})
        return self.built(*coordinates)

    def view(self, primitive: str, *operands: Coordinate, parameter: Size | None = None) -> tuple[Coordinate, ...]:
        """Return the results of a view of ``operands``; repeated calls return the same view."""
        node = Node(primitive, operands, parameter)
        if node not in self._views:
            self._steps.append(Step(primitive, operands, parameter))
            sizes = PRIMITIVES[primitive].result_sizes(tuple(c.size for c in operands), parameter)
            self._views[node] = tuple(Coordinate(node, index, item) for index, item in enumerate(sizes))
        return self._views[node]

    def merge(self, whole: Coordinate, *, block: Size | None) -> tuple[Coordinate, Coordinate]:
        """Return the two digits of a MERGE, the high digit first."""
        high, low = self.view("MERGE", whole, parameter=block)
        return high, low

    def split(self, *parts: Coordinate) -> Coordinate:
        """Join several coordinates by SPLITs, from the left."""
        joined, *offsets = parts
        for offset in offsets:
            (joined,) = self.view("SPLIT", joined, offset)
        return joined

    def shift(self, coordinate: Coordinate, count: int = 1) -> Coordinate:
        """Return ``coordinate``, SHIFTed ``count`` times."""
        for _ in range(count):
            (coordinate,) = self.view("SHIFT", coordinate)
        return coordinate

    def unfold(self, main: Coordinate, window: Coordinate) -> Coordinate:
        """Return a window that slides along ``main``."""
        (unfolded,) = self.view("UNFOLD", main, window)
        return unfolded

    def built(self, *coordinates: Coordinate) -> tuple[Coordinate, ...]:
        """Build coordinates of the other state in this part. Raises KeyError for an iterator without a counterpart."""
        return tuple([self._built(c) for c in coordinates])

    def _built(self, coordinate: Coordinate) -> Coordinate:
        if coordinate in self.here or coordinate.is_leaf:
            return self.here[coordinate]
        node = coordinate.node
        return self.view(node.primitive, *self.built(*node.operands), parameter=node.parameter)[coordinate.index]

    def taken(self, step: Step) -> tuple[Coordinate, ...]:
        """Apply a step of the other state (no REDUCE) in this part; return the coordinates on top after the step."""
        operands = self.built(*step.operands)
        if step.primitive == "SHARE":
            self.share(operands, self.built(*step.given))
            return operands
        if step.primitive == "EXPAND":
            self.expand(*operands)
            return ()
        return self.view(step.primitive, *operands, parameter=step.parameter)

    def share(self, shared: Sequence[Coordinate], given: Sequence[Coordinate] = (), *, times: int = 1) -> None:
        """Add a weight, or ``times`` equal weights."""
        self._weights += [Weight(tuple(shared), tuple(given))] * times
        self._steps += [Step("SHARE", tuple(shared), given=tuple(given))] * times

    def expand(self, *coordinates: Coordinate) -> None:
        """Drop coordinates."""
        self._expanded += coordinates
        self._steps += [Step("EXPAND", (c,)) for c in coordinates]

    def side(self, *tops: Coordinate, factor: Size | None = None) -> Side:
        """Return the current part as a side; ``tops`` are the axes of ``X``."""
        state = State(
            replace(self._spec, input_shape=tuple(c.size for c in tops)),
            tops,
            tuple(self._reductions),
            tuple(self._weights),
            tuple(self._expanded),
            tuple(self._steps),
        )
        return Side(state, tops, factor or self._spec.symbols.one)


def parts(state: State, bottoms: Sequence[Coordinate] = ()) -> tuple[Part, Part]:
    """Return the two empty sides over wildcards for ``bottoms``."""
    sizes = [c.size for c in bottoms]
    return Part(state.spec, sizes, bottoms), Part(state.spec, sizes, bottoms)


def arrow(
    before: Part,
    left: Sequence[Coordinate],
    after: Part,
    right: Sequence[Coordinate],
    *,
    factor: Size | None = None,
    in_steps: bool = False,
) -> Rewrite:
    """Return the rewrite of ``left`` on top of one part to ``right`` on top of the other part, times ``factor``."""
    right_side = after.side(*right, factor=factor)
    return Rewrite(before.of, before.side(*left), right_side, before.summed, in_steps=in_steps)


@dataclass(frozen=True)
class Side:
    """One side of a rewrite: ``factor * sum over reductions of X[tops] * W[...] * 1[...]``.

    Attributes:
        state: the part of the pGraph; its output axes are the wildcards.
        tops: the top coordinates, which index ``X``, in the same order on both sides.
        factor: a constant factor.
    """

    state: State
    tops: tuple[Coordinate, ...]
    factor: Size

    @cached_property
    def names(self) -> dict[Coordinate, Expression]:
        """Name the coordinates: ``#0`` is the first wildcard, ``r0`` the first reduction."""
        return iterators(self.state) | {c: name(f"#{number}") for number, c in enumerate(self.state.output)}

    @property
    def coordinates(self) -> tuple[Expression, ...]:
        """Return the expressions of ``tops`` over wildcards and reductions."""
        return self._over(self.tops)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Return the sizes of ``tops``."""
        return tuple(c.size for c in self.tops)

    @property
    def is_plain(self) -> bool:
        """Return whether the side consists of coordinates only."""
        return self.factor.is_one and not (self.state.weights or self.state.reductions or self.state.expanded)

    @property
    def operator(self) -> Operator:
        """Return an operator with the input ``X`` and the wildcards as output, without ``factor``."""
        return Operator(self.state, self.tops)

    def _over(self, coordinates: Sequence[Coordinate]) -> tuple[Expression, ...]:
        return tuple(expression(c, self.names) for c in coordinates)

    def factors(self) -> list[tuple[str, tuple[Expression, ...]]]:
        """Return the multiplied tensors, each with its index expressions."""
        weights = self.state.weights
        numbers = [""] if len(weights) == 1 else [str(i + 1) for i in range(len(weights))]
        return [
            ("X", self.coordinates),
            *((f"W{number}", self._over(w.coordinates)) for number, w in zip(numbers, weights, strict=True)),
            *(("1", self._over([c])) for c in self.state.expanded),
        ]

    # -- reading -----------------------------------------------------------------------------------------------------

    def text(self, plain: bool) -> str:
        """Write the side as text: a list of coordinates if ``plain``, else a sum of products."""
        if plain:
            return _listed(self.coordinates)
        parts = [] if self.factor.is_one else [size(self.factor).as_factor()[0]]
        body = "*".join(parts + [tensor + _listed(index) for tensor, index in self.factors()])
        sums = ", ".join(f"{self.names[r]} < {r.size.code}" for r in self.state.reductions)
        return f"sum[{sums}] {body}" if sums else body

    def latex(self, plain: bool) -> str:
        """Write the side as LaTeX, in the form of :meth:`text`."""
        if plain:
            return _listed_latex(self.coordinates)
        tensors = [
            (r"\mathbf{1}" if tensor == "1" else tensor if len(tensor) == 1 else f"{tensor[0]}_{{{tensor[1:]}}}")
            + _listed_latex(index)
            for tensor, index in self.factors()
        ]
        factor = [] if self.factor.is_one else [size(self.factor).as_factor()[1]]
        sums = [rf"\sum_{{{self.names[r].latex} < {size_latex(r.size)}}}" for r in self.state.reductions]
        return " ".join([*sums, r" \, ".join(factor + tensors)])

    def sympy(self, plain: bool) -> sympy.Basic:
        """Convert to sympy: a ``Tuple`` of coordinates if ``plain``, else a ``Sum`` over ``Indexed`` tensors."""
        import sympy

        if plain:
            return sympy.Tuple(*(c.sympy() for c in self.coordinates))
        tensors = [
            # sympy has no tensor without indices: a scalar is a symbol.
            sympy.IndexedBase(tensor)[tuple(c.sympy() for c in index)] if index else sympy.Symbol(tensor)
            for tensor, index in self.factors()
        ]
        body = sympy.Mul(self.factor.to_sympy(), *tensors)
        limits = [(self.names[r].sympy(), 0, r.size.to_sympy() - 1) for r in self.state.reductions]
        return sympy.Sum(body, *limits) if limits else body

    def steps_text(self) -> str:
        """Write the steps in order: ``SHIFT(#0), REDUCE(k)``; a CONTRACTION as ``SHARE(shared; given)``."""
        return ", ".join(self._step(step, str, lambda s: s.code) for step in self.state.steps)

    def steps_latex(self) -> str:
        """Write the steps in order, as LaTeX."""
        steps = (self._step(step, lambda e: e.latex, size_latex) for step in self.state.steps)
        return r",\; ".join(rf"\mathrm{{{step.partition('(')[0]}}}({step.partition('(')[2]}" for step in steps)

    def _step(self, step: Step, show: Callable[[Expression], str], measure: Callable[[Size], str]) -> str:
        inside = [show(e) for e in self._over(step.operands)]
        if step.parameter is not None:
            inside.append(measure(step.parameter))
        given = ", ".join(show(e) for e in self._over(step.given))
        return f"{step.primitive}({', '.join(inside)}{'; ' * bool(given)}{given})"

    # -- numbers -----------------------------------------------------------------------------------------------------

    def points(self, binding: Binding) -> int:
        """Return the number of combinations of the wildcards' and reductions' values."""
        return prod(c.size.at(binding) for c in (*self.state.output, *self.state.reductions))


@dataclass(frozen=True)
class Rewrite:
    """A proposed step and its canonical form, for one state.

    Attributes:
        bottoms: the state's coordinates that the wildcards ``#0``, ``#1``, ... represent.
        before: the proposed side.
        after: the canonical side.
        summed: the state's reductions that the reductions of ``before`` represent, if the state has them.
        in_steps: whether the two sides are one formula and differ only in the order of their steps.
    """

    bottoms: tuple[Coordinate, ...]
    before: Side
    after: Side
    summed: tuple[Coordinate, ...] = ()
    in_steps: bool = field(default=False, kw_only=True)

    @property
    def _plain(self) -> bool:
        return self.before.is_plain and self.after.is_plain

    def texts(self) -> tuple[str, str]:
        """Write the two sides as text."""
        if self.in_steps:
            return self.before.steps_text(), self.after.steps_text()
        return self.before.text(self._plain), self.after.text(self._plain)

    def text(self) -> str:
        """Write ``before -> after``, with the sizes of the wildcards."""
        before, after = self.texts()
        domains = ", ".join(f"#{i} < {c.size.code}" for i, c in enumerate(self.before.state.output))
        return f"{before} -> {after}" + (f" for {domains}" if domains else "")

    def latex(self) -> str:
        """Write the two sides as LaTeX with an arrow, for display mathematics."""
        sides = [s.steps_latex() if self.in_steps else s.latex(self._plain) for s in (self.before, self.after)]
        return r" \;\rightarrow\; ".join(sides)

    def sympy(self) -> tuple[sympy.Basic, sympy.Basic]:
        """Convert the two sides to unevaluated sympy."""
        return self.before.sympy(self._plain), self.after.sympy(self._plain)

    def points(self, binding: Binding) -> int:
        """Return the number of points for :meth:`differing`, on the larger side."""
        return max(self.before.points(binding), self.after.points(binding))

    def differing(self, binding: Binding) -> float:
        """Return the share of points (values of wildcards and reductions) at which the sides read different elements.

        Points out of bounds on both sides do not differ. Elements of weights may be renamed one-to-one, and a weight
        that another weight determines is merged into the other weight. Sums are compared as multisets of terms, up to
        one common factor. Raises SynoError for too many points.
        """
        return difference(self.before, self.after, binding)


def _listed(index: Sequence[Expression]) -> str:
    return "[" + ", ".join(map(str, index)) + "]"


def _listed_latex(index: Sequence[Expression]) -> str:
    return r"\left[" + (r",\; ".join(e.latex for e in index) or r"\,") + r"\right]"
