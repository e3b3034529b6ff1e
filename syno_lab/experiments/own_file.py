"""Writes a Python file that needs torch alone; its function ``patch(net)`` puts an operator into a network's layers.

The file's modules have the names of :class:`syno_lab.models.slot.Slot`, so a patched network can load the weights of a
network from the lab: ``patch(net).load_state_dict(trained.state_dict())``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from syno_lab.errors import SpecError
from syno_lab.models import stand_in
from syno_lab.models.sites import Site, Strides
from syno_lab.models.slot import Place
from syno_lab.protocol import Operator, with_pool
from syno_lab.systems import system_of

_HEAD = '''"""{title}

``patch(net)`` puts the operator of trial {number} into {count} layers of the network, in place, with new weights; the
bias of a layer stays. It needs torch alone. {system}: {operator}.
"""
'''

_PLACES = '''
class Place(InPlaceOf):
    """Stands where a layer was: the operator, the pooling that its stride becomes, and its bias."""

    def __init__(self, operator, old, stride, name):
        super().__init__(old, name)
        self.placeholder = nn.ModuleDict({"kernel": operator})
        self.is_linear = not isinstance(old, nn.Conv2d)
        self.pool = None if stride is None else nn.AvgPool2d(stride, ceil_mode=True)

    def operate(self, x):
        return self.placeholder["kernel"](x)


def patch(net):
    """Put the operator into ``net``, in place, and return it."""
    for name, (operator, stride) in LAYERS.items():
        parent, _, last = name.rpartition(".")
        holder, old = net.get_submodule(parent), net.get_submodule(name)
        if isinstance(old.weight, nn.parameter.UninitializedParameter):
            raise RuntimeError(f"expected layers with shapes, found the lazy {name}: run one example through it first")
        new = Place(operator(), old, stride, name).to(old.weight.device, old.weight.dtype)
        setattr(holder, last, new.train(old.training))
    keep_padding(net)
    return net
'''


def network_file(operator: Operator, places: Sequence[tuple[Site, Place]], number: int, strides: Strides) -> str:
    """Return the text of the file for an operator.

    Args:
        operator: an operator of any system whose operators replace layers.
        places: the layers, and the operator's sizes in each layer.
        number: the number of the operator's trial, for the text.
        strides: how strides are replaced, ``pool`` or ``shape``.

    Raises SpecError where the operator replaces no layer.
    """
    classes: dict[Any, str] = {}
    sources: list[str] = []
    layers: list[str] = []
    for site, place in places:
        if place.binding is None:
            continue
        stride = site.pool(strides)
        key = tuple(place.binding.items()), stride
        if key not in classes:
            classes[key] = f"Operator{len(classes) + 1}"
            source = operator.to_torch_source(place.binding, **with_pool(operator, stride))
            sources.append(source.replace("class SynoOperator(", f"class {classes[key]}(", 1))
        layers.append(f"    {site.name!r}: ({classes[key]}, {stride}),")
    if not layers:
        raise SpecError(f"expected an operator that replaces layers, found trial {number} in no layer")
    imports: dict[str, None] = {}
    bodies: list[str] = []
    answers = re.sub(r"  # type: ignore\[.*?\]", "", inspect.getsource(stand_in).split('"""', 2)[2])
    for source in (answers, *sources):
        lines = source.splitlines()
        imports |= dict.fromkeys(line for line in lines if line.startswith(("import ", "from ")))
        bodies.append("\n".join(line for line in lines if not line.startswith(("import ", "from "))).strip("\n"))
    imports.setdefault("from torch import nn")
    head = _HEAD.format(
        title=f"The operator of trial {number}, for a network.",
        number=number,
        count=len(layers),
        system=system_of(operator).title,
        operator=str(operator).splitlines()[0].replace("\\", "").replace('"', "'"),
    )
    table = "\n".join(["#: The class of the operator in each layer, and the stride that a pooling does.", "LAYERS = {"])
    return "\n".join(
        [head, *imports, "", "", "\n\n\n".join(bodies), "", _PLACES, "", "\n".join([table, *layers, "}"]), ""]
    )
