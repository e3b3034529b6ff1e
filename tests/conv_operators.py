"""Many different operators of the conv spec, made cheaply: channels, windows and weights put together by chance.

They obey Table 1 and the sizes of the conv spec, no rule of canonicalization and no budget but the number of steps, so
that one function turns up written in several ways.
"""

from __future__ import annotations

import random

from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step

CHANNELS = (("C_in",), ("C_in",), ("g^-1*C_in", "g"), ("g", "g^-1*C_in"))
OTHERS = ("k_1", "k_1", "k_1", "k_2", "g", "C_in", "k_1*k_2", "g^-1*C_in")


def conv_operators(spec: Spec, rng: random.Random, count: int, least: int = 7, most: int = 12) -> list[Operator]:
    """``count`` operators of ``spec`` (``load_spec("conv-authors")``, free) with ``least`` to ``most`` steps."""
    found: list[Operator] = []
    while len(found) < count:
        operator = _Draft(spec, rng).operator()
        if operator is not None and least <= len(operator.steps) <= most:
            found.append(operator)
    return found


class _Draft:
    """A state that grows by moves; a move that is not legal here changes nothing."""

    def __init__(self, spec: Spec, rng: random.Random) -> None:
        self.rng = rng
        self.spec = spec
        self.state = State.root(spec)

    def operator(self) -> Operator | None:
        rng = self.rng
        for size in rng.choice(CHANNELS):
            self.take("REDUCE", parameter=size)
        for _ in range(rng.randint(0, 3)):
            self.take("REDUCE", parameter=rng.choice(OTHERS))
        moves = (self.weight, self.weight, self.window, self.window, self.digits, self.split, self.shift, self.rejoin)
        for _ in range(rng.randint(1, 6)):
            rng.choice(moves)()
        return self.close()

    def take(
        self,
        primitive: str,
        operands: tuple[Coordinate, ...] = (),
        parameter: str | None = None,
        given: tuple[Coordinate, ...] = (),
    ) -> tuple[Coordinate, ...] | None:
        step = Step(primitive, operands, None if parameter is None else self.spec.symbols.size(parameter), given)
        try:
            after = self.state.apply(step)
        except PrimitiveError:
            return None
        added = self.state.results(step)
        self.state = after
        return added

    def free(self) -> list[Coordinate]:
        return [c for c in self.state.data if c not in self.state.fixed]

    def some(self, *sizes: str) -> Coordinate | None:
        """A coordinate on top of one of ``sizes``; of any size where none is given."""
        found = [c for c in self.free() if not sizes or str(c.size) in sizes]
        return self.rng.choice(found) if found else None

    # -- moves -------------------------------------------------------------------------------------------------------

    def weight(self) -> None:
        if len(self.state.weights) == 2:
            return
        roles = [(c, self.rng.random()) for c in self.free()]
        shared = tuple(c for c, chance in roles if chance < 0.45)
        given = tuple(c for c, chance in roles if chance > 0.85 or (str(c.size) == "C_out" and chance > 0.6))
        self.take("SHARE", shared, given=given)

    def window(self) -> None:
        main = self.some("H", "W", "C_in", "g^-1*H", "g^-1*W", "g")
        window = self.some("k_1", "k_2", "k_1*k_2")
        if main and window:
            self.take("UNFOLD", (main, window))

    def digits(self) -> None:
        main = self.some("H", "W", "C_out", "g*H", "g*W", "C_in")
        if main:
            self.take("MERGE", (main,), self.rng.choice(("g", "g", str(main.size / self.spec.symbols.size("g")))))

    def split(self) -> None:
        one, two = self.some(), self.some()
        if one and two and one != two:
            self.take("SPLIT", (one, two))

    def rejoin(self) -> None:
        low, high = self.some("g"), self.some("g^-1*H", "g^-1*W", "g^-1*C_in", "g^-1*C_out")
        if low and high:
            self.take("SPLIT", (high, low) if self.rng.random() < 0.5 else (low, high))

    def shift(self) -> None:
        main = self.some()
        if main:
            self.take("SHIFT", (main,))

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> Operator | None:
        """Windows go into the image, digits together, the output channels into a weight, what is left away."""
        rng = self.rng
        for size in ("k_1", "k_2", "k_1*k_2"):
            while window := self.some(size):
                main = self.some("H", "W")
                if main is None or rng.random() < 0.1 or self.take("UNFOLD", (main, window)) is None:
                    self.take("EXPAND", (window,))
        for size in ("C_in", "H", "W"):
            if self.some(size) is None:
                high, low = self.some(f"g^-1*{size}"), self.some("g")
                if high is None or low is None:
                    return None
                self.take("SPLIT", (high, low) if rng.random() < 0.7 else (low, high))
        rest = self.free()
        for size in ("C_in", "H", "W"):
            rest.remove(rng.choice([c for c in rest if str(c.size) == size]))
        given = tuple(c for c in rest if rng.random() < 0.8)
        if len(self.state.weights) < 2 and given:
            shared = [c for c in self.free() if c not in rest and rng.random() < 0.4]
            shared = shared or [c for c in self.free() if str(c.size) == "C_in" and c not in rest]
            self.take("SHARE", tuple(shared), given=given)
        for coordinate in self.free():
            if coordinate in rest:
                self.take("EXPAND", (coordinate,))
        matches = list(self.state.matches())
        return Operator(self.state, rng.choice(matches)) if matches and self.state.weights else None
