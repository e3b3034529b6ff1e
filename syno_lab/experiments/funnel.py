"""The funnel of a search in rungs: how many operators came how far, and what each part cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syno_lab.models.rungs import Rung
from syno_lab.store.rungs import BASELINE, RungTraining


@dataclass
class Draws:
    """Counts of different operators (:attr:`.Space.counts`), and CPU seconds of drawing and probing."""

    wished: int = 0
    affordable: int = 0
    probed: int = 0
    seconds: float = 0.0

    def see(self, wished: int, affordable: int, probed: int) -> None:
        """Take over the counts of a space; an earlier process of the search may have seen more."""
        self.wished = max(self.wished, wished)
        self.affordable = max(self.affordable, affordable)
        self.probed = max(self.probed, probed)


@dataclass
class Funnel:
    """Counts and seconds of a search, from the operators drawn to the finals.

    Attributes:
        draws: before any training.
        rungs: for each rung the operators that began, that have all their seeds, and worker seconds.
    """

    draws: Draws = field(default_factory=Draws)
    rungs: dict[str, dict[str, float]] = field(default_factory=dict)

    def count(
        self, rungs: Sequence[Rung], trainings: Sequence[RungTraining], finals: str, seconds: dict[str, float]
    ) -> None:
        """Count the trainings of the queue anew; ``seconds`` are worker seconds by rung."""
        for name in [*(rung.name for rung in rungs), finals]:
            mine = [one for one in trainings if one.rung == name and one.number != BASELINE]
            begun = {one.number for one in mine}
            waiting = {one.number for one in mine if not one.is_ended}
            failed = {one.number for one in mine if one.is_ended and one.state != "finished"}
            self.rungs[name] = {
                "begun": len(begun),
                "trained": len(begun - waiting - failed),
                "failed": len(failed),
                "seconds": seconds.get(name, 0.0),
            }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"draws": asdict(self.draws), "rungs": self.rungs}

    def line(self) -> str:
        """The funnel in one line: ``1,204 wished > 640 affordable > 640 probed > 212 on 40 steps > …``."""
        draws = self.draws
        parts = [f"{draws.wished:,} wished", f"{draws.affordable:,} affordable"]
        parts += [f"{draws.probed:,} probed"] if draws.probed else []
        parts += [f"{int(found['trained']):,} on {name}" for name, found in self.rungs.items() if found["begun"]]
        return " > ".join(parts)
