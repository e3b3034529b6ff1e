"""αNAS: whole networks as graphs of operations, changed by their properties (Jin, Phothilimthana and Roy, 2022).

>>> import syno_lab as sl
>>> conv = sl.alpha.operation("conv", features=sl.alpha.Rel(2), kernel=3)
>>> print(sl.alpha.Graph.chain((8, 32, 32, 16), [conv, sl.alpha.operation("relu")]))
t0 = input: [8, 32, 32, 16]
t1 = conv(features=2*C) of t0: [8, 32, 32, 32]
t2 = relu of t1: [8, 32, 32, 32]
outputs: t2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syno_lab.alpha import drawing as _drawing
from syno_lab.alpha import files as _files
from syno_lab.alpha import menu as _menu
from syno_lab.alpha import wanted as _wanted
from syno_lab.alpha.blocks import Block as Block
from syno_lab.alpha.blocks import Network as Network
from syno_lab.alpha.blocks import find_blocks as find_blocks
from syno_lab.alpha.edits import Deletion as Deletion
from syno_lab.alpha.edits import Duplication as Duplication
from syno_lab.alpha.edits import Edit as Edit
from syno_lab.alpha.edits import Replacement as Replacement
from syno_lab.alpha.edits import Variant as Variant
from syno_lab.alpha.graph import Graph as Graph
from syno_lab.alpha.graph import Node as Node
from syno_lab.alpha.graph import Region as Region
from syno_lab.alpha.mutating import Mutations as Mutations
from syno_lab.alpha.mutating import mutate as mutate
from syno_lab.alpha.operations import OPERATIONS as OPERATIONS
from syno_lab.alpha.operations import Operation as Operation
from syno_lab.alpha.operations import Rel as Rel
from syno_lab.alpha.operations import operation as operation
from syno_lab.alpha.operator import NetworkOperator as NetworkOperator
from syno_lab.alpha.operator_node import operation_of as operation_of
from syno_lab.alpha.space import Evolution as Evolution
from syno_lab.alpha.space import NetworkState as NetworkState
from syno_lab.alpha.synthesis import Draft as Draft
from syno_lab.alpha.synthesis import synthesise as synthesise
from syno_lab.alpha.wanted import Properties as Properties

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.alpha.tracing import trace as trace


def _to_torch(graph: Graph, traced: Graph | None = None) -> nn.Module:
    from syno_lab.alpha.module import to_torch  # imports torch

    return to_torch(graph, traced)


def __getattr__(name: str) -> Any:
    if name == "trace":  # imports torch
        from syno_lab.alpha.tracing import trace

        return trace
    raise AttributeError(f"module 'syno_lab.alpha' has no attribute {name!r}")


# Methods for pictures, files and properties are added here: the modules of graphs and networks do not import them.
_METHODS: dict[type, dict[str, Any]] = {
    Graph: {
        "dot": _drawing.dot,
        "svg": _drawing.svg,
        "to_json": _files.to_json,
        "from_json": staticmethod(_files.from_json),
        "to_torch": _to_torch,
        "properties": lambda graph, **options: _wanted.Properties.of(graph, **options),
        "shape": _wanted.shape_of,
        "depth": _wanted.depth_of,
        "mixing": _wanted.mixing_of,
    },
    Draft: {"explain_distance": _menu.explain_distance},
    Network: {"to_json": _files.network_to_json, "from_json": staticmethod(_files.network_from_json)},
}
for _class, _methods in _METHODS.items():
    for _name, _method in _methods.items():
        setattr(_class, _name, _method)
