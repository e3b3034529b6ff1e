"""Kernels of Canvas as JSON: a list of nodes that is read through the same checks as nodes taken by hand.

Tensors are numbered as in :mod:`syno_lab.canvas.kernel`. A file holds data alone, and no shape: shapes follow.
"""

from __future__ import annotations

import msgspec

from syno_lab.canvas.kernel import Kernel, Node
from syno_lab.canvas.primitives import Primitive
from syno_lab.errors import FormatError, PrimitiveError
from syno_lab.versioned import read_versioned

FORMAT = "syno-lab-canvas"
VERSION = 1
MAX_BYTES = 1 << 16


class _NodeRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A primitive, and its tensors by number."""

    primitive: str
    inputs: list[int]
    parameter: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A kernel file of version 1."""

    format: str
    version: int
    nodes: list[_NodeRecord]


def to_json(kernel: Kernel) -> str:
    """The text of a kernel file."""
    nodes = [_NodeRecord(node.primitive.name, list(node.inputs), node.primitive.parameter) for node in kernel.nodes]
    return msgspec.json.format(msgspec.json.encode(_File(FORMAT, VERSION, nodes)), indent=1).decode()


def from_json(text: str | bytes) -> Kernel:
    """Read a kernel file.

    Raises:
        FormatError: one line: what was expected, what was found and where.
    """
    record = read_versioned(text, _File, what="kernel file", name=FORMAT, version=VERSION, most=MAX_BYTES)
    nodes = tuple([Node(Primitive(node.primitive, node.parameter), tuple(node.inputs)) for node in record.nodes])
    try:
        return Kernel(nodes)
    except PrimitiveError as error:
        raise FormatError(f"kernel file: {error}") from None
