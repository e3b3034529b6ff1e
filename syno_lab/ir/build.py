"""Build a pGraph by hand, from the output to the input, in a few readable lines.

>>> build = Build("[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], fixed_io_pairs=[(0, 0)])
>>> n, c_out, h, w = build.output
>>> c_in = build.reduce("C_in")
>>> build.contract(share=[c_in], give=[c_out])
>>> print(build.finish(n, c_in, h, w))
[N, C_in, H, W] -> [N, C_out, H, W] with [C_in, C_out], 2 steps
"""

from __future__ import annotations

from collections.abc import Iterable

from syno_lab.common.size import Size, shape_text
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Cap, Mappings, Pairs, Spec, Texts, WeightLimits
from syno_lab.ir.state import State, Step


class Build:
    """A pGraph that grows step by step: each method applies one primitive and returns the resulting coordinates.

    The arguments are those of :meth:`Spec.parse`. The attribute :attr:`state` is the current state, an immutable value.
    """

    def __init__(
        self,
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
    ) -> None:
        spec = Spec.parse(
            input_shape,
            output_shape,
            primary_specs,
            coefficient_specs,
            mappings=mappings,
            fixed_io_pairs=fixed_io_pairs,
            unordered=unordered,
            weight_limits=weight_limits,
            wants=wants,
            **limits,
        )
        self.state = State.root(spec)

    @property
    def output(self) -> tuple[Coordinate, ...]:
        """Return the output iterators, where every pGraph starts."""
        return self.state.output

    def reduce(self, size: str | Size) -> Coordinate:
        """REDUCE: add an iterator of ``size``, and sum over the iterator."""
        return self._apply("REDUCE", parameter=size)[0]

    def split(self, block: Coordinate, offset: Coordinate) -> Coordinate:
        """SPLIT: ``[i, j]: [G, B] <- [B*i + j]: [G*B]``."""
        return self._apply("SPLIT", (block, offset))[0]

    def merge(self, main: Coordinate, block: str | Size) -> tuple[Coordinate, Coordinate]:
        """MERGE: ``[i]: [N] <- [i / B, i % B]: [N/B, B]``."""
        high, low = self._apply("MERGE", (main,), block)
        return high, low

    def shift(self, main: Coordinate) -> Coordinate:
        """SHIFT: ``[i]: [N] <- [(i + 1) % N]: [N]``."""
        return self._apply("SHIFT", (main,))[0]

    def view(self, name: str, main: Coordinate) -> Coordinate:
        """Apply a primitive of the user's own (:func:`.add_primitive`): ``[i]: [N] <- [index(i, N)]: [N]``."""
        return self._apply(name, (main,))[0]

    def expand(self, main: Coordinate) -> None:
        """EXPAND: drop the coordinate."""
        self._apply("EXPAND", (main,))

    def unfold(self, main: Coordinate, window: Coordinate) -> Coordinate:
        """UNFOLD: ``[i, j]: [N, K] <- [i + j - K/2]: [N]``."""
        return self._apply("UNFOLD", (main, window))[0]

    def stride(self, main: Coordinate, stride: str | Size) -> Coordinate:
        """STRIDE: ``[i]: [K] <- [S*i]: [S*K]``."""
        return self._apply("STRIDE", (main,), stride)[0]

    def contract(self, share: Iterable[Coordinate], give: Iterable[Coordinate] = ()) -> None:
        """CONTRACTION: add a weight, indexed by the shared and then by the given coordinates."""
        self.state = self.state.apply(Step("SHARE", tuple(share), given=tuple(give)))

    def finish(self, *inputs: Coordinate) -> Operator:
        """Return the operator whose input axes are indexed by ``inputs``, in this order.

        Raises PrimitiveError if ``inputs`` are not the remaining data coordinates, or have other sizes than the input.
        """
        if not self.state.is_match(inputs):
            have, passed = (shape_text(c.size for c in coordinates) for coordinates in (self.state.data, inputs))
            want = shape_text(self.state.spec.input_shape)
            raise PrimitiveError(
                f"cannot match the input {want} with {passed}: the data coordinates left have sizes {have}"
            )
        return Operator(self.state, inputs)

    def _apply(
        self, primitive: str, operands: tuple[Coordinate, ...] = (), parameter: str | Size | None = None
    ) -> tuple[Coordinate, ...]:
        size = None if parameter is None else self.state.spec.symbols.size(parameter)
        step = Step(primitive, operands, size)
        after = self.state.apply(step)
        added = self.state.results(step)
        self.state = after
        return added
