"""Canvas as one system of several (:class:`syno_lab.protocol.System`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syno_lab.canvas.drawing import svg
from syno_lab.canvas.files import from_json
from syno_lab.canvas.fitted import FORMAT, OUTER, Fitted, outer_of
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.known import FITTED, KNOWN
from syno_lab.canvas.matching import broadcast
from syno_lab.canvas.mixing import pairing_of
from syno_lab.canvas.panes import PANES, place_name
from syno_lab.canvas.places import obstacle_to
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES
from syno_lab.canvas.stepping import CONSTRUCTION, traces
from syno_lab.common.layers import LAYER
from syno_lab.errors import SpecError
from syno_lab.protocol import Binding, OperatorSpace, Placement, PrimitiveCard, SpaceRequest, System

if TYPE_CHECKING:
    from syno_lab.common.pairing import Pairing
    from syno_lab.models.sites import Site, Strides

#: Small sizes, all different.
_SMALL = {"N": 1, "C_in": 8, "C_out": 8, "H": 4, "W": 6, "KH": 3, "KW": 5}
#: Example primitives on the input, by name, with a parameter; other primitives have none, or blend (:func:`example`).
_EXAMPLES = {
    "group": "group G",
    "shift": "shift H+1",
    "unfold": "unfold H,W",
    "fc": "fc x0",
    "softmax": "softmax H,W",
    "fold_avg": "fold_avg H",
    "fold_max": "fold_max H",
}


class Canvas(System):
    """The system of ``syno-lab-canvas``."""

    format = FORMAT
    title = "Canvas"
    known = FITTED
    panes = PANES
    construction = CONSTRUCTION

    read = staticmethod(from_json)
    traces = staticmethod(traces)

    def summary(self, text: str | bytes) -> str:
        """Return the names of the primitives without repeats."""
        return " ".join(dict.fromkeys(node.primitive.name for node in from_json(text).kernel.nodes))

    def for_layer(self, site: Site) -> tuple[Fitted, dict[str, int]]:
        """Return the convolution as a kernel, for a dense convolution of stride 1.

        Raises SpecError for a layer that no kernel replaces, and for a stride, which would become a pooling.
        """
        if obstacle_to(site) is None and site.stride == (1, 1):
            operator = Fitted(KNOWN["convolution"]())
            rows, columns = site.kernel_size
            named = {**site.binding("shape"), "window_h": rows, "window_w": columns}
            shapes = [(1, channels, named["H"], named["W"]) for channels in (site.in_channels, site.out_channels)]
            return operator, self.binding_for(operator, named, *shapes)
        raise SpecError(f"{site.name}: expected a dense convolution of stride 1 that a kernel of Canvas can replace")

    def recognise(self, operator: Fitted) -> str | None:
        """Return the name of the known kernel that is isomorphic to the operator's kernel; the places do not matter."""
        return next((name for name, make in KNOWN.items() if make().key == operator.kernel.key), None)

    def mixing(self, operator: Fitted, binding: Binding) -> Pairing:
        """Return the mixing of the kernel at generic sizes, see :func:`syno_lab.canvas.mixing.pairing_of`."""
        if binding["C_in"] != binding["C_out"]:
            raise SpecError("mixing: expected as many channels out as in, as kernels run in parts otherwise")
        return pairing_of(operator.kernel, (binding["KH"], binding["KW"]))

    def is_linear(self, operator: Fitted) -> bool:
        """Return False: no kernel counts as linear."""
        return False

    def binding_for(
        self, operator: Fitted, named: Binding, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        """Return the binding for a layer on images. Raises SpecError for other layers and for fractional sizes."""
        if len(input_sizes) != 4 or len(output_sizes) != 4:
            raise SpecError(
                f"expected a convolution for {operator}, found a layer from {list(input_sizes)} to {list(output_sizes)}"
            )
        numbers = {name: named[name] for name in OUTER if name in named} | {"s": named.get("s", 1)}
        numbers |= {own: named[name] for own, name in (("KH", "window_h"), ("KW", "window_w")) if name in named}
        return operator.complete_binding(numbers)

    def placement(self, operator: Fitted, sites: Sequence[Site], strides: Strides) -> Placement:
        """Return a placement of the kernel in each convolution that it can replace, after a pooling for a stride."""
        from syno_lab.models.slot import InSlots

        return InSlots(operator, [replace(site, obstacle=obstacle_to(site)) for site in sites], "shape")

    def space(self, request: SpaceRequest) -> OperatorSpace:
        """See :class:`syno_lab.canvas.space.KernelSpace`."""
        from syno_lab.canvas.space import KernelSpace

        return KernelSpace(request)

    def traits(self, operator: Fitted, binding: Binding) -> Mapping[str, int]:
        """See :func:`syno_lab.canvas.space.traits_of`."""
        from syno_lab.canvas.space import traits_of

        return traits_of(operator.kernel)

    def example_binding(self, operator: Fitted) -> dict[str, int]:
        """Return the binding of the operator's first place, or of an example layer if the operator has no places."""
        return operator.complete_binding(None if operator.places else LAYER)

    def places(self, operator: Fitted) -> dict[str, dict[str, int]]:
        """Return the binding of each place of the operator, by the place's name (:func:`.place_name`)."""
        return {place_name(place): operator.complete_binding(outer_of(place)) for place in operator.places}

    def small_binding(self, operator: Fitted) -> dict[str, int]:
        """Return a binding with small sizes and 2 groups."""
        sizes = {**_SMALL, "G": 2} if "G" in operator.kernel.variables else _SMALL
        return operator.complete_binding(sizes)

    def operator_of(self, value: Any) -> Fitted | None:
        """Return a kernel as an operator without a network; None for any other value."""
        return Fitted(value) if isinstance(value, Kernel) else None

    def cards(self) -> Mapping[str, PrimitiveCard]:
        """Return the card of each primitive by name, with a picture of a small draft that uses the primitive."""
        return {name: _card(name) for name in PRIMITIVES}


def example(name: str) -> Draft:
    """Return the draft of a card's picture: its last tensor is the result of the primitive."""
    if name in BROADCASTS:
        # LHS is a mean over H that repeats along H, so the picture does not only show tensors of one shape.
        return broadcast(Draft().apply("fold_avg H"), name, 1, 0)
    return Draft().apply(_EXAMPLES.get(name, name))


def _card(name: str) -> PrimitiveCard:
    kind = PRIMITIVES[name]

    def draw() -> str:
        draft = example(name)
        return svg(draft, leaves_marked=False, title=kind.signature, highlight=(len(draft.nodes),))

    words = f"{kind.signature}: before {kind.before}, after {kind.after}; {kind.meaning}"
    return PrimitiveCard(name, kind.card, words, f"{name}: {kind.before} -> {kind.after}", draw)


CANVAS = Canvas()
