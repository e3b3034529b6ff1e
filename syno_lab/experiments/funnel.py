"""The funnel of a search in rungs: how many operators came how far, and what each part cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syno_lab.models.rungs import Rung
from syno_lab.store.records import finite
from syno_lab.store.rungs import BASELINE, CONFIRM, RungTraining


@dataclass
class Draws:
    """Counts of different operators (:attr:`.Space.counts`), and CPU seconds of drawing and probing.

    Of a search that was continued they are at least so many: what an earlier process drew and did not store may be
    drawn again.
    """

    drawn: int = 0
    wished: int = 0
    affordable: int = 0
    probed: int = 0
    seconds: float = 0.0

    def see(self, drawn: int, wished: int, affordable: int, probed: int) -> None:
        """Take over the counts of a space; an earlier process of the search may have seen more."""
        self.drawn = max(self.drawn, drawn)
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

    @classmethod
    def begun(cls, earlier: Any) -> Funnel:
        """That of an earlier process of the search, by its status file; an empty one where there is none."""
        draws = earlier.get("draws") if isinstance(earlier, Mapping) else None
        if not isinstance(draws, Mapping):
            return cls()
        found = Draws(seconds=finite(draws.get("seconds")) or 0.0)
        found.see(**{name: int(finite(draws.get(name)) or 0) for name in ("drawn", "wished", "affordable", "probed")})
        return cls(found)

    def count(self, rungs: Sequence[Rung], trainings: Sequence[RungTraining], finals: str) -> None:
        """Count the trainings of the queue anew."""
        found = [one for one in trainings if one.number != BASELINE]
        last = rungs[-1]
        again = _counted(one for one in found if one.rung == last.name and one.seed >= last.seeds)
        self.rungs = {
            rung.name: _counted(one for one in found if one.rung == rung.name and one.seed < rung.seeds)
            for rung in rungs
        }
        if again["begun"]:
            self.rungs[CONFIRM] = again
        self.rungs[finals] = _counted(one for one in found if one.rung == finals)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"draws": asdict(self.draws), "rungs": self.rungs}

    def line(self) -> str:
        """The funnel in one line: ``2,031 drawn > 1,204 wished > 640 affordable > 640 probed > 212 on 40 steps``."""
        draws = self.draws
        parts = [f"{draws.drawn:,} drawn", f"{draws.wished:,} wished", f"{draws.affordable:,} affordable"]
        parts += [f"{draws.probed:,} probed"] if draws.probed else []
        parts += [f"{int(found['trained']):,} on {name}" for name, found in self.rungs.items() if found["begun"]]
        return " > ".join(parts)


def _counted(trainings: Iterable[RungTraining]) -> dict[str, float]:
    """Operators that began, that have all their trainings, and that failed; worker seconds."""
    mine = list(trainings)
    begun = {one.number for one in mine}
    waiting = {one.number for one in mine if not one.is_ended}
    failed = {one.number for one in mine if one.is_ended and one.state != "finished"}
    return {
        "begun": len(begun),
        "trained": len(begun - waiting - failed),
        "failed": len(failed),
        "seconds": sum(float(one.outcome.get("wall_s") or 0.0) for one in mine if one.is_ended),
    }
