"""The paper's tables and figures, run at the scale that a machine and some hours allow: ``syno-lab reproduce``.

:mod:`.scale` plans, :mod:`.run` runs the parts and stores each result as it comes; :mod:`syno_lab.reports.paper`
draws them.
"""

from syno_lab.experiments.reproduction.run import Reproduction, reproduce
from syno_lab.experiments.reproduction.scale import PARTS, Options, Plan, PlannedPart, Scale

__all__ = ["PARTS", "Options", "Plan", "PlannedPart", "Reproduction", "Scale", "reproduce"]
