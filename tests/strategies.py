"""Random legal operators, with every corner of Table 1, for tests that compare two ways of computing one operator.

``random_operator(rng)`` is a plain seeded function; ``random_operators()`` the same as a Hypothesis strategy that
shrinks. Both build the steps first and then take whatever data coordinates are left, in any order, as the input.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step

PRIMARY = ("N", "C", "D", "H", "W")
COEFFICIENT = ("k", "e", "s", "g")
OUTPUTS = ("H", "W", "C", "D", "k", "s*C", "s*H", "s^-1*H", "g^-1*C", "C*D")
REDUCES = ("k", "e", "k", "e", "s", "g", "C", "D", "s^-1*H", "k*s")
WINDOWS = ("k", "e", "k", "W")  # W is at times larger than what it slides over: K > N
BLOCKS = ("s", "g", "k", "e", "C", "D", "H", "s*g", "s^-1*H", "g^-1*C")
STRIDES = ("s", "e", "g")


def random_binding(rng: random.Random) -> dict[str, int]:
    """Small sizes under which H/s and C/g are integers; k is odd, e even, and H, W, C, D mostly differ."""
    s, g = rng.choice((1, 2, 2, 2, 3, 3, 3)), rng.choice((1, 2, 2))
    return {
        "N": rng.choice((1, 2)),
        "C": g * rng.choice((1, 2, 3)),
        "D": rng.choice((2, 3)),
        "H": s * rng.choice((1, 2, 3)),
        "W": rng.choice((1, 2, 2, 3, 3, 5, 5)),
        "k": rng.choice((1, 3, 3, 5)),
        "e": rng.choice((2, 2, 4)),
        "s": s,
        "g": g,
    }


def random_operator(
    rng: random.Random,
    *,
    max_moves: int = 7,
    max_terms: int = 4000,
    max_elements: int = 4000,
    batch: bool | None = None,
) -> tuple[Operator, dict[str, int]]:
    """A random legal operator and the binding it is made for.

    Args:
        rng: the only source of chance.
        max_moves: how many times something is added; one move is up to three steps.
        max_terms: bound of the iterations of the whole loop nest.
        max_elements: bound of the elements of the input and of each weight.
        batch: whether output axis 0 is a fixed N; None: by chance.
    """
    binding = random_binding(rng)
    with_batch = rng.random() < 0.4 if batch is None else batch
    shape = ["N"] * with_batch + [rng.choice(OUTPUTS) for _ in range(rng.randint(1, 3))]
    spec = Spec.parse(
        "[N]" if with_batch else "[]",  # a stand-in until it is known what is left
        "[" + ", ".join(shape) + "]",
        PRIMARY,
        COEFFICIENT,
        mappings=[binding],
        fixed_io_pairs=[(0, 0)] if with_batch else [],
    )
    maker = _Maker(rng, binding, State.root(spec), max_terms, max_elements)
    moves = (
        maker.window,
        maker.window,
        maker.dilated_window,
        maker.strided_main,
        maker.dropped_stride,
        maker.contraction,
        maker.contraction,
        maker.contraction_of_a_window,
        maker.bridge,
        maker.merge,
        maker.split,
        maker.boundary,
        maker.shift,
        maker.expand,
        maker.expand_a_reduction,
        maker.reduce,
        maker.digits,
        maker.unfold_any,
    )
    for _ in range(rng.randint(1, max_moves)):
        rng.choice(moves)()
    maker.close_strides()
    inputs = list(maker.state.data)
    rng.shuffle(inputs)
    return on_what_is_left(maker.state, inputs), binding


@st.composite
def random_operators(draw: st.DrawFn, **limits: Any) -> tuple[Operator, dict[str, int]]:
    """Strategy of ``(operator, binding)``; ``limits`` are those of :func:`random_operator`."""
    return random_operator(draw(st.randoms(use_true_random=False)), **limits)


def random_arrays(
    operator: Operator, binding: dict[str, int], seed: int = 0, dtype: Any = np.float64
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A random input and random weights of the right shapes; integers are small so that sums are exact."""
    rng = np.random.default_rng(seed)

    def array(shape: tuple[int, ...]) -> np.ndarray:
        if np.issubdtype(dtype, np.integer):
            return rng.integers(-4, 5, shape).astype(dtype)
        return np.asarray(rng.standard_normal(shape)).astype(dtype)

    return array(operator.input_sizes(binding)), [array(shape) for shape in operator.weight_sizes(binding)]


def repro(operator: Operator, binding: dict[str, int]) -> str:
    """A program that builds the operator again: put it into the message of a failing assertion."""
    return (
        f"\nfrom syno_lab.ir.operator import Operator\nbinding = {binding}\n"
        f'operator = Operator.from_json("""{operator.to_json()}""")\n'
    )


class _Maker:
    """A state that grows by moves; a move that is not legal here, or too large, changes nothing."""

    def __init__(
        self, rng: random.Random, binding: dict[str, int], state: State, max_terms: int, max_elements: int
    ) -> None:
        self.rng, self.binding, self.state = rng, binding, state
        self.max_terms, self.max_elements = max_terms, max_elements

    def size(self, text: str) -> Size:
        return self.state.spec.symbols.size(text)

    def free(self) -> list[Coordinate]:
        """The data coordinates that may take part in anything."""
        return [c for c in self.state.data if c not in self.state.fixed and c.node.primitive != "STRIDE"]

    def strided(self) -> list[Coordinate]:
        return [c for c in self.state.data if c.node.primitive == "STRIDE"]

    def pick(self, number: int = 1) -> list[Coordinate] | None:
        free = self.free()
        return self.rng.sample(free, number) if len(free) >= number else None

    def take(
        self,
        primitive: str,
        operands: tuple[Coordinate, ...] = (),
        parameter: Size | None = None,
        given: tuple[Coordinate, ...] = (),
    ) -> tuple[Coordinate, ...] | None:
        """Apply a step; None when it is refused or too large."""
        step = Step(primitive, operands, parameter, given)
        try:
            after = self.state.apply(step)
            if not self.fits(after):
                return None
        except PrimitiveError:
            return None
        added = self.state.results(step)
        self.state = after
        return added

    def fits(self, state: State) -> bool:
        def elements(coordinates: tuple[Coordinate, ...]) -> int:
            return prod(c.size.at(self.binding) for c in coordinates)

        return (
            elements(state.output + state.reductions) <= self.max_terms
            and elements(state.data) <= self.max_elements
            and all(elements(w.coordinates) <= self.max_elements for w in state.weights)
            and len(state.weights) <= 3
        )

    # -- moves -------------------------------------------------------------------------------------------------------

    def reduce(self, sizes: tuple[str, ...] = REDUCES) -> Coordinate | None:
        added = self.take("REDUCE", parameter=self.size(self.rng.choice(sizes)))
        return added[0] if added else None

    def unfold_any(self) -> None:
        """Any two coordinates, be they outputs or reductions."""
        pair = self.pick(2)
        if pair:
            self.take("UNFOLD", tuple(pair))

    def window(self) -> None:
        """UNFOLD with a window that is REDUCEd, shared with a weight half of the time."""
        main = self.pick()
        window = self.reduce(WINDOWS)
        if main and window:
            if self.rng.random() < 0.5:
                self.take("SHARE", (window,))
            self.take("UNFOLD", (main[0], window))

    def dilated_window(self) -> None:
        """STRIDE under an UNFOLD's window."""
        main = self.pick()
        window = self.reduce(("k", "e"))
        if main and window:
            if self.rng.random() < 0.5:
                self.take("SHARE", (window,))
            strided = self.take("STRIDE", (window,), self.size(self.rng.choice(STRIDES)))
            if strided:
                self.take("UNFOLD", (main[0], strided[0]))

    def strided_main(self) -> None:
        """STRIDE under an UNFOLD's main coordinate."""
        main = self.pick()
        window = self.reduce(("k", "e", "s"))
        if main and window:
            strided = self.take("STRIDE", tuple(main), self.size(self.rng.choice(STRIDES)))
            if strided:
                self.take("UNFOLD", (strided[0], window))

    def dropped_stride(self) -> None:
        """STRIDE under an EXPAND, legal though it says no more than the EXPAND alone."""
        main = self.pick()
        if main and self.rng.random() < 0.5:
            strided = self.take("STRIDE", tuple(main), self.size(self.rng.choice(STRIDES)))
            if strided:
                self.take("EXPAND", strided)

    def contraction(self) -> None:
        """A weight that shares one to three coordinates and is given up to two."""
        free = self.free()
        self.rng.shuffle(free)
        shared = self.rng.randint(1, 3)
        given = self.rng.randint(0, 2)
        self.take("SHARE", tuple(free[:shared]), given=tuple(free[shared : shared + given]))

    def contraction_of_a_window(self) -> None:
        """A weight that shares an UNFOLD's result or is given it: the guard is no border of the input then."""
        unfolded = [c for c in self.free() if c.node.primitive == "UNFOLD"]
        others = [c for c in self.free() if c not in unfolded]
        if not unfolded:
            self.window()
        elif others and self.rng.random() < 0.5:
            self.take("SHARE", (self.rng.choice(others),), given=(self.rng.choice(unfolded),))
        else:
            self.take("SHARE", (self.rng.choice(unfolded), *self.rng.sample(others, min(1, len(others)))))

    def bridge(self) -> None:
        """A REDUCE that lives in two weights alone: shared with the first, given to the second."""
        free = self.free()
        middle = self.reduce(("D", "g", "C"))
        if middle and free:
            first, second = self.rng.choice(free), self.rng.choice(free)
            if self.take("SHARE", (first, middle)) is not None:
                self.take("SHARE", (second,), given=(middle,))

    def merge(self) -> tuple[Coordinate, ...] | None:
        main = self.pick()
        if not main:
            return None
        blocks = list(BLOCKS)
        self.rng.shuffle(blocks)
        for block in blocks:
            added = self.take("MERGE", tuple(main), self.size(block))
            if added:
                return added
        return None

    def digits(self) -> None:
        """MERGE, treat one digit alone, and perhaps SPLIT the digits in another order."""
        added = self.merge()
        if added:
            self.rng.choice((self.shift, self.contraction, self.window))()
            left = [c for c in added if c in self.state.data]
            if len(left) == 2 and self.rng.random() < 0.5:
                self.rng.shuffle(left)
                self.take("SPLIT", tuple(left))

    def split(self) -> None:
        """SPLIT of any two coordinates, one of them at times a SPLIT's result."""
        pair = self.pick(2)
        joined = pair and self.take("SPLIT", tuple(pair))
        others = [c for c in self.free() if c not in (joined or ())]
        if joined and others and self.rng.random() < 0.3:
            again = [*joined, self.rng.choice(others)]
            self.rng.shuffle(again)
            self.take("SPLIT", tuple(again))

    def boundary(self) -> None:
        """SPLIT, perhaps treat the result, and MERGE it where it was joined or at any other place."""
        pair = self.pick(2)
        joined = pair and self.take("SPLIT", tuple(pair))
        if pair and joined:
            shifted = self.take("SHIFT", joined) if self.rng.random() < 0.3 else None
            block = pair[1].size if self.rng.random() < 0.5 else self.size(self.rng.choice(BLOCKS))
            self.take("MERGE", shifted or joined, block)

    def shift(self) -> None:
        """SHIFT, of a view's result where there is one and chance has it, at times twice."""
        views = [c for c in self.free() if c.node.primitive in ("UNFOLD", "SPLIT", "MERGE")]
        main = [self.rng.choice(views)] if views and self.rng.random() < 0.5 else self.pick()
        shifted = self.take("SHIFT", tuple(main)) if main else None
        if shifted and self.rng.random() < 0.3:
            self.take("SHIFT", shifted)

    def expand(self) -> None:
        """EXPAND of anything, half of the time of what a view made."""
        if self.rng.random() < 0.5:
            views = [c for c in self.free() if not c.is_leaf]
            main = [self.rng.choice(views)] if views and self.rng.random() < 0.5 else self.pick()
            if main:
                self.take("EXPAND", tuple(main))

    def expand_a_reduction(self) -> None:
        """A REDUCE that is dropped: a constant factor, or a sum over a weight alone."""
        if self.rng.random() < 0.3:
            added = self.reduce(("k", "e", "s", "D"))
            if added:
                if self.rng.random() < 0.5:
                    self.take("SHARE", (added,))
                self.take("EXPAND", (added,))

    def close_strides(self) -> None:
        """Give every STRIDE's result to a 1-to-many primitive, as the paper demands."""
        for strided in self.strided():
            free = self.free()
            if free and self.rng.random() < 0.7:
                other = self.rng.choice(free)
                pair = (strided, other) if self.rng.random() < 0.5 else (other, strided)
                if self.take("UNFOLD", pair) is not None:
                    continue
            assert self.take("EXPAND", (strided,)) is not None


def on_what_is_left(state: State, inputs: Sequence[Coordinate]) -> Operator:
    """The same steps on the spec whose input has the data left as its axes, in the order of ``inputs``."""
    pairs = tuple((inputs.index(state.output[axis]), axis) for _, axis in state.spec.fixed_io_pairs)
    spec = replace(state.spec, input_shape=tuple(c.size for c in inputs), fixed_io_pairs=pairs)
    again = State.root(spec)
    for step in state.steps:
        again = again.apply(step)
    assert again.data == state.data
    assert again.is_match(tuple(inputs))
    return Operator(again, tuple(inputs))
