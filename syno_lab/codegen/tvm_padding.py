"""Choose the UNFOLDs of a stage for which TVM code makes a zero-padded copy, and the axes of the copy.

A window that only slides over the stage's input reads a padded copy, as TVM's own convolutions do. Only the copy checks
indices against bounds, so the loops that multiply have no branches and vectorize. The copy also computes the views
above the UNFOLD, because views are only defined in bounds. If a weight shares the UNFOLD's result, or an EXPAND drops
the result, the padded tensor would be no copy of the input. Without a copy, the stage checks the bounds itself.

This module needs no TVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syno_lab.codegen.walk import is_view
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Stage
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import Step


@dataclass(frozen=True)
class Padding:
    """A padded copy of a stage's incoming tensor.

    Attributes:
        lifted: the views that are computed in the copy, top-down.
        axes: the coordinates of the copy's axes; the padded axes are results of UNFOLDs.
    """

    lifted: tuple[Step, ...]
    axes: tuple[Coordinate, ...]


def clipping(operator: Operator, stage: Stage) -> dict[Coordinate, Step]:
    """Return the coordinates that ``stage`` must check against bounds, each with the UNFOLD that makes it."""
    return {
        result: step
        for step in stage.undo
        if PRIMITIVES[step.primitive].clips
        for result in operator.state.results(step)
    }


def can_be_padded(operator: Operator, stage: Stage, clipped: Coordinate) -> bool:
    """Check whether an UNFOLD's result reaches the incoming tensor through views alone, without another UNFOLD."""
    lifted = _above(operator, stage, (clipped,))
    return all(is_view(step) and not PRIMITIVES[step.primitive].clips for step in lifted)


def padding(operator: Operator, stage: Stage, padded: Iterable[Coordinate]) -> Padding:
    """Return the padded copy with the padded axes ``padded``; :func:`can_be_padded` must hold for each padded axis.

    The operands of a view take the place of its first result, so that the copy keeps the tensor's layout.
    """
    lifted = _above(operator, stage, padded)
    axes = list(stage.inputs)
    for step in lifted:
        results = operator.state.results(step)
        place = axes.index(results[0])
        axes[place : place + 1] = step.operands
        for result in results[1:]:
            axes.remove(result)
    return Padding(lifted, tuple(axes))


def _above(operator: Operator, stage: Stage, coordinates: Iterable[Coordinate]) -> tuple[Step, ...]:
    """Return the steps of ``stage`` between the incoming tensor and ``coordinates``, top-down."""
    reached = set(coordinates)
    steps = []
    for step in reversed(stage.undo):
        if not reached.isdisjoint(step.operands + step.given):
            steps.append(step)
            reached.update(operator.state.results(step))
    return tuple(reversed(steps))
