"""The public names that need neither torch nor TVM. ``syno_lab`` imports this module when one of the names is used."""

from syno_lab import operators
from syno_lab.common.size import Size
from syno_lab.errors import SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES, add_primitive, own_primitives, remove_primitive
from syno_lab.ir.spec import Limits, Spec
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.candidates import Candidate
from syno_lab.synthesis.rules import RULES, Rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.tasks import open_lab, read, search, session, train, tune
