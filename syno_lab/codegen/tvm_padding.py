"""Which UNFOLDs of a stage are zero-padded copies for TVM, and over which coordinates such a copy runs.

A window that only slides over the incoming tensor reads a padded copy of it, as TVM's own convolutions do: the copy
alone asks whether an index is in bounds, and the loops that multiply stay free of branches, so that they vectorize.
The views above the UNFOLD are undone by the copy as well, for they are only defined in bounds. Where a weight shares
the UNFOLD's result or an EXPAND drops it, the copy would be no copy of the incoming tensor, and the stage asks itself.

Nothing here needs TVM.
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
    """A padded copy of the tensor that comes into a stage.

    Attributes:
        lifted: the views that the copy undoes, top-down.
        axes: the coordinates of the copy's axes; the padded ones are results of UNFOLDs.
    """

    lifted: tuple[Step, ...]
    axes: tuple[Coordinate, ...]


def clipping(operator: Operator, stage: Stage) -> dict[Coordinate, Step]:
    """The coordinates that ``stage`` must find in bounds, with the step (an UNFOLD) that each comes from."""
    return {
        result: step
        for step in stage.undo
        if PRIMITIVES[step.primitive].clips
        for result in operator.state.results(step)
    }


def can_be_padded(operator: Operator, stage: Stage, clipped: Coordinate) -> bool:
    """Whether an UNFOLD's result reaches the incoming tensor through views alone, and through no other UNFOLD."""
    lifted = _above(operator, stage, (clipped,))
    return all(is_view(step) and not PRIMITIVES[step.primitive].clips for step in lifted)


def padding(operator: Operator, stage: Stage, padded: Iterable[Coordinate]) -> Padding:
    """The copy whose axes ``padded`` are, each of which :func:`can_be_padded`.

    The operands of a view stand where its first result stood, so that the copy keeps the tensor's layout.
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
    """The steps of ``stage`` between the incoming tensor and ``coordinates``, top-down."""
    reached = set(coordinates)
    found = []
    for step in reversed(stage.undo):
        if not reached.isdisjoint(step.operands + step.given):
            found.append(step)
            reached.update(operator.state.results(step))
    return tuple(reversed(found))
