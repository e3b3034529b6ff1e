"""What search remembers of coordinates and of views of them, so that nodes that have them in common share it."""

from __future__ import annotations

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import Step
from syno_lab.synthesis.digits import Digit


class Look:
    """A coordinate as search sees it: one for all states that have the very same one, shared by the same weights.

    Attributes:
        coordinate: the coordinate.
        feature: the number of what rules see of it (:mod:`syno_lab.synthesis.features`).
        packed: its packed size.
        root: the MERGE of which it is a digit, or None.
        changed: its looks once a weight shares it, by the number of the weight; at -1 once its other digit is dropped.
    """

    __slots__ = ("changed", "coordinate", "feature", "packed", "root")

    def __init__(self, coordinate: Coordinate, feature: int, packed: int, root: Digit | None) -> None:
        self.coordinate = coordinate
        self.feature = feature
        self.packed = packed
        self.root = root
        self.changed: dict[int, Look] = {}


class Viewed:
    """A view that no rule rejects: its step, the occurrences that it costs, its results, and their looks once asked."""

    __slots__ = ("looks", "results", "spent", "step")

    def __init__(self, step: Step, spent: tuple[int, ...], results: tuple[Coordinate, ...]) -> None:
        self.step = step
        self.spent = spent
        self.results = results
        self.looks: tuple[Look, ...] | None = None
