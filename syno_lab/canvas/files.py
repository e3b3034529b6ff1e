"""Kernels of Canvas as JSON: a list of nodes; reading applies the checks of the constructors.

Tensors are numbered as in :mod:`syno_lab.canvas.kernel`. A file contains data only, and no shapes, which follow from
the nodes. If the kernel is fitted to a network, the file contains the places with their solutions.
"""

from __future__ import annotations

import msgspec

from syno_lab.canvas.fitted import FORMAT, Fitted
from syno_lab.canvas.kernel import Kernel, Node
from syno_lab.canvas.places import Place
from syno_lab.canvas.primitives import Primitive
from syno_lab.errors import FormatError, PrimitiveError, SpecError
from syno_lab.versioned import read_versioned

VERSION = 1
MAX_BYTES = 1 << 16


class _NodeRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    primitive: str
    inputs: list[int]
    parameter: str = ""


class PlaceFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Place`."""

    c_in: int
    c_out: int
    h: int
    w: int
    kh: int = 3
    kw: int = 3
    stride: int = 1
    layers: int = 1


class _PlaceRecord(PlaceFields, forbid_unknown_fields=True, omit_defaults=True):
    solution: list[int] = []


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: str
    version: int
    nodes: list[_NodeRecord]
    normalise: bool = False
    groups: int = 1
    places: list[_PlaceRecord] = []


def to_json(operator: Fitted) -> str:
    """Return the text of a kernel file."""
    kernel = operator.kernel
    nodes = [_NodeRecord(node.primitive.name, list(node.inputs), node.primitive.parameter) for node in kernel.nodes]
    places = [
        _PlaceRecord(**vars(place), solution=list(solution))
        for place, solution in zip(operator.places, operator.solutions, strict=True)
    ]
    record = _File(FORMAT, VERSION, nodes, kernel.normalise, operator.groups, places)
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode()


def from_json(text: str | bytes) -> Fitted:
    """Read a kernel file. Raises FormatError with one line: expected value, found value, and where in the file."""
    record = read_versioned(text, _File, what="kernel file", name=FORMAT, version=VERSION, most=MAX_BYTES)
    nodes = tuple([Node(Primitive(node.primitive, node.parameter), tuple(node.inputs)) for node in record.nodes])
    try:
        places = tuple([Place(*msgspec.structs.astuple(place)[:-1]) for place in record.places])
        solutions = tuple([tuple(place.solution) for place in record.places])
        return Fitted(Kernel(nodes, record.normalise), record.groups, places, solutions)
    except (PrimitiveError, SpecError) as error:
        raise FormatError(f"kernel file: {error}") from None
