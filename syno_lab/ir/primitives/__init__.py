"""The eight primitives of Table 1 by name, and the user's own; a new built-in primitive is a class in ``table``."""

from syno_lab.ir.primitives.base import Primitive
from syno_lab.ir.primitives.own import OwnPrimitive, add_primitive, is_own, own_primitives, remove_primitive
from syno_lab.ir.primitives.table import PRIMITIVES
