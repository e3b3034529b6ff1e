"""The eight primitives of Table 1, by name; a new one is one file and one line here."""

from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.primitives.expand import Expand
from syno_lab.ir.primitives.merge import Merge
from syno_lab.ir.primitives.reduce import Reduce
from syno_lab.ir.primitives.share import Share
from syno_lab.ir.primitives.shift import Shift
from syno_lab.ir.primitives.split import Split
from syno_lab.ir.primitives.stride import Stride
from syno_lab.ir.primitives.unfold import Unfold

PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (Split(), Merge(), Shift(), Expand(), Unfold(), Stride(), Reduce(), Share())
}

__all__ = ["PRIMITIVES", "Card", "Primitive"]
