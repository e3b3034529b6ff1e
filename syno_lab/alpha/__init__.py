"""αNAS: whole networks as graphs of operations, changed by their properties (Jin, Phothilimthana and Roy, 2022)."""

from syno_lab.alpha.graph import Graph as Graph
from syno_lab.alpha.graph import Node as Node
from syno_lab.alpha.graph import Region as Region
from syno_lab.alpha.operations import OPERATIONS as OPERATIONS
from syno_lab.alpha.operations import Operation as Operation
from syno_lab.alpha.operations import Rel as Rel
from syno_lab.alpha.operations import operation as operation
from syno_lab.alpha.synthesis import Draft as Draft
from syno_lab.alpha.synthesis import synthesise as synthesise
from syno_lab.alpha.wanted import Properties as Properties
