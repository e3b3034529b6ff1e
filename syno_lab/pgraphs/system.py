"""The system of Syno's pGraphs (:class:`syno_lab.protocol.System`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from syno_lab.codegen.nest import layer_binding
from syno_lab.errors import SpecError
from syno_lab.ir.files import from_json, primitives_of
from syno_lab.ir.operator import FORMAT, Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.operators import KNOWN, OTHER_ORDERS
from syno_lab.protocol import Binding, OperatorSpace, Pane, Placement, PrimitiveCard, SpaceRequest, System, TracedStep
from syno_lab.synthesis.orders import recognise

if TYPE_CHECKING:
    from syno_lab.codegen.mixing import Mixing
    from syno_lab.ir.primitives.base import Card
    from syno_lab.ir.state import State
    from syno_lab.models.sites import Site, Strides
    from syno_lab.pgraphs.stepping import PGraphConstruction
    from syno_lab.sessions.own_rule import OwnRule

_SIDES = ("input", "output")


class PGraphs(System):
    """The system ``syno-lab-operator``; its packages are imported on use."""

    format = FORMAT
    title = "pGraphs"
    known = KNOWN

    read = staticmethod(from_json)

    def summary(self, text: str | bytes) -> str:
        """Return the primitives of an operator from the output to the input, each once."""
        return " ".join(dict.fromkeys(primitives_of(text)))

    def for_layer(self, site: Site) -> tuple[Operator, dict[str, int]]:
        """See :func:`syno_lab.pgraphs.of_network.for_layer`."""
        from syno_lab.pgraphs.of_network import for_layer

        return for_layer(site)

    def recognise(self, operator: Operator) -> str | None:
        """See :func:`syno_lab.synthesis.orders.recognise`."""
        return recognise(operator, KNOWN | OTHER_ORDERS)

    def binding_for(
        self, operator: Operator, named: Binding, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        """Return the sizes of an operator's variables for a layer.

        A variable that is the whole size of an input or output axis gets the size of the layer's axis. Other variables
        are matched by name (such as s, the stride). The first axis must be fixed. Without a fixed axis, an operator
        would need one batch size, and could mix images, or tokens with later tokens. Raises SpecError for another
        number of axes, or a first axis that is not fixed.
        """
        spec = operator.spec
        axis_sizes: dict[str, int] = {}
        shapes = (spec.input_shape, spec.output_shape)
        for axes, sizes, side in zip(shapes, (input_sizes, output_sizes), _SIDES, strict=True):
            if len(axes) != len(sizes):
                raise SpecError(
                    f"expected an operator whose {side} is {list(sizes)}, found one whose {side} has {len(axes)} axes"
                )
            for axis, size in zip(axes, sizes, strict=True):
                variables = [name for name, power in zip(spec.symbols.names, axis.exponents, strict=True) if power]
                if len(variables) == 1 and axis == spec.symbols.size(variables[0]):
                    axis_sizes.setdefault(variables[0], size)
        if (0, 0) not in spec.fixed_io_pairs:
            raise SpecError(
                "expected an operator whose first axis takes part in nothing, found no (0, 0) among its fixed_io_pairs"
            )
        return {name: size for name, size in named.items() if name in spec.symbols.names} | axis_sizes

    def placement(self, operator: Operator, sites: Sequence[Site], strides: Strides) -> Placement:
        """Return a placement of the operator in every slot that it fits."""
        from syno_lab.models.slot import InSlots

        return InSlots(operator, sites, strides)

    def space(self, request: SpaceRequest, rules: Sequence[OwnRule] = ()) -> OperatorSpace:
        """See :class:`syno_lab.pgraphs.of_network.NetworkSpace`; the user's own rules follow the system's rules."""
        from syno_lab.pgraphs.of_network import NetworkSpace

        return NetworkSpace(request, rules)

    ruled_space = space

    def traits(self, operator: Operator, binding: Binding) -> dict[str, int]:
        """See :func:`syno_lab.pgraphs.traits.traits`."""
        from syno_lab.pgraphs.traits import traits

        return traits(operator, binding)

    def traffic(self, operator: Operator, binding: Binding) -> int:
        """See :func:`syno_lab.pgraphs.traits.stored_elements`."""
        from syno_lab.pgraphs.traits import stored_elements

        return stored_elements(operator, binding)

    def traces(self, values: Sequence[Operator | State]) -> list[list[TracedStep]]:
        """See :func:`syno_lab.pgraphs.traces.traces`."""
        from syno_lab.pgraphs.traces import traces

        return traces(values)

    def mixing(self, operator: Operator, binding: Binding) -> Mixing:
        """See :func:`syno_lab.codegen.mixing.mixing`."""
        from syno_lab.codegen.mixing import mixing

        return mixing(operator, binding)

    def is_linear(self, operator: Operator) -> bool:
        """Return True, because every pGraph is linear."""
        return True

    def example_binding(self, operator: Operator) -> dict[str, int]:
        """Return the spec's first binding, else the sizes of :func:`syno_lab.codegen.nest.layer_binding`."""
        return operator.complete_binding() if operator.spec.bindings else layer_binding(operator)

    def places(self, operator: Operator) -> dict[str, dict[str, int]]:
        """Return the bindings of the spec, which are the different layers that the operator was made for."""
        if len(operator.spec.bindings) < 2:  # a single binding is the default sizes, not a layer
            return {}
        names = operator.spec.symbols.primary
        return {
            ", ".join(f"{name}={sizes[name]}" for name in names): dict(sizes) for sizes in operator.spec.binding_maps
        }

    def small_binding(self, operator: Operator) -> dict[str, int]:
        """See :attr:`syno_lab.ir.spec.Spec.small_binding`."""
        return operator.complete_binding(operator.spec.small_binding)

    def cards(self) -> Mapping[str, PrimitiveCard]:
        """Return the card of each primitive by its name."""
        return {name: _card(name, primitive.card) for name, primitive in PRIMITIVES.items()}

    @property
    def panes(self) -> Mapping[str, Pane]:
        """See :mod:`syno_lab.pgraphs.panes`."""
        from syno_lab.pgraphs.panes import PANES

        return PANES

    @property
    def construction(self) -> PGraphConstruction:
        """See :class:`syno_lab.pgraphs.stepping.PGraphConstruction`."""
        from syno_lab.pgraphs.stepping import CONSTRUCTION

        return CONSTRUCTION


def _card(name: str, card: Card) -> PrimitiveCard:
    def draw() -> str:
        from syno_lab.codegen.drawing import card_svg

        return card_svg(name)

    words = f"{name}: bottom {card.before}, top {card.after}; {card.top_down}"
    return PrimitiveCard(name, str(card), words, f"{name}: {card.before} <- {card.after}", draw)


PGRAPHS = PGraphs()
