"""The layers at whose sizes an operator can be shown: those that it was made for, and ResNet's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from syno_lab.common.layers import RESNET
from syno_lab.errors import SynoError
from syno_lab.protocol import FitsPlaces, Operator
from syno_lab.systems import binding_for, system_of

#: Layers of a network: a name for people, and the sizes of an operator's variables.
Places = Sequence[tuple[str, Mapping[str, int]]]


def layers_of(operator: Operator, own: Places | None = None) -> list[tuple[str, dict[str, int]]]:
    """Return the layers at whose sizes a view can show an operator: the user's own, else those of ResNets that it fits.

    Without ``own``, the user's own layers are those that the operator was made for.
    """
    system = system_of(operator)
    if not own and isinstance(system, FitsPlaces):
        own = [*system.places(operator).items()]
    return [(name, dict(sizes)) for name, sizes in own] if own else [*_resnet(operator)]


def _resnet(operator: Operator) -> Iterator[tuple[str, dict[str, int]]]:
    system = system_of(operator)
    for name, (inputs, outputs) in RESNET.items():
        named = {"N": 1, "C_in": inputs[0], "C_out": outputs[0], "H": inputs[1], "W": inputs[2]}
        named |= {"window_h": 3, "window_w": 3}
        with suppress(SynoError):
            at = binding_for(operator, named, (1, *inputs), (1, *outputs))
            bound = operator.complete_binding({**system.example_binding(operator), **at})
            channels, *_ = operator.output_sizes(bound)[1:]
            if operator.input_sizes(bound) == (1, *inputs) and channels == outputs[0] and operator.flops(bound):
                yield name, bound
