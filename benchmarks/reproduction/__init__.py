"""The paper's tables and figures, run at the scale that a machine and some hours allow: ``reproduce.py``.

:mod:`.scale` plans, :mod:`.run` runs the parts and stores each result as it comes; :mod:`reproduction.paper`
draws them.
"""

from reproduction.run import Reproduction, reproduce
from reproduction.scale import PARTS, Options, Plan, PlannedPart, Scale

__all__ = ["PARTS", "Options", "Plan", "PlannedPart", "Reproduction", "Scale", "reproduce"]
