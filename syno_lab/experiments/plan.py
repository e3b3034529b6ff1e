"""The plan of a search in rungs, stated before it begins, and its funnel: how many operators came how far.

All numbers of the plan are seconds of one worker. The finals and the baseline are part of the minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor

import msgspec

from syno_lab.errors import SearchError
from syno_lab.inputs import quoted
from syno_lab.models.rungs import Rung
from syno_lab.reports.searched import Amount, Counts, Plan, PlanPart
from syno_lab.reports.searched import Funnel as SaidFunnel
from syno_lab.store.rungs import BASELINE, CONFIRM, RungTraining

#: The shares of the time without finals: drawing and probing, each rung, and the best of the last one on more seeds.
#: Later rungs train fewer operators longer. Chosen after a half-hour run on ResNet-20 in which too few operators were
#: drawn, and too few trained on the first rung.
DRAWS_SHARE = 0.13
RUNG_SHARES = (0.31, 0.18, 0.25)
CONFIRM_SHARE = 0.13
#: Seeds of the network that an operator is trained on in the part :data:`.store.rungs.CONFIRM`.
MORE_SEEDS = 2
#: Operators in the finals, beside the baseline: the best within each share of the FLOPs.
FINALISTS = 2
#: The share of the time that finals may take at most.
MOST_FINALS = 0.6
#: The fewest operators that a rung must be able to train, or it decides nothing.
FEWEST = 2
#: Operators train slower than the layers that they replace: planned seconds over the baseline's. The median of the
#: operators of the first half-hour searches was 1.4.
SLOWER = 1.4
_DRAWS = ("drawn", "wished", "affordable", "probed")


def as_begun(rungs: Sequence[Rung], plan: Plan | None) -> tuple[Rung, ...]:
    """Those of a backbone's rungs that the plan of a search has, with the measures that the search began with.

    A search that is continued goes on with these, whatever is declared now. Without a plan yet, or with one of a
    damaged file, which lacks the network itself: the rungs as they are.
    """
    parts = {} if plan is None else {part.name: part for part in plan.parts}
    if not any(rung.is_full and rung.name in parts for rung in rungs):
        return tuple(rungs)
    return tuple(
        rung if rung.is_full else replace(rung, measure=parts[rung.name].measure or rung.measure)
        for rung in rungs
        if rung.name in parts
    )


def worthwhile(rungs: Sequence[Rung], each_s: Mapping[str, float]) -> tuple[Rung, ...]:
    """The rungs that cost at most half of what the network itself costs; others decide nothing that it would not.

    Args:
        rungs: the cheapest first, the network itself last.
        each_s: as for :func:`plan_for`.
    """
    full_s = each_s[rungs[-1].name]
    return tuple(rung for rung in rungs if rung.is_full or 2 * rung.seeds * each_s[rung.name] <= full_s)


def plan_for(minutes: float, workers: int, rungs: Sequence[Rung], each_s: Mapping[str, float], seeds: int) -> Plan:
    """Share ``minutes`` among drawing, the rungs and the finals.

    Args:
        minutes: of the whole search.
        workers: trainings at a time.
        rungs: the cheapest first, the network itself last.
        each_s: seconds of one training of the baseline on each rung, by the rung's name.
        seeds: of the finals; 0 for no finals.

    Raises:
        SearchError: the minutes are too few for one of the rungs, or for the finals; one line with the minutes needed.
    """
    total = 60 * minutes * workers
    full_s = each_s[rungs[-1].name]
    finals = PlanPart("finals", seeds * FINALISTS, SLOWER * full_s, seeds * FINALISTS * SLOWER * full_s)
    baseline = PlanPart("baseline", seeds, full_s, seeds * full_s)
    last = finals.seconds + baseline.seconds
    if last > MOST_FINALS * total:
        raise SearchError(
            f"minutes: expected at least {last / MOST_FINALS / workers / 60:.0f}, found {minutes:g}: the finals take "
            f"{last / workers / 60:.0f} minutes ({seeds} seeds of the baseline and of {FINALISTS} operators, "
            f"{full_s:.0f} s each or more); give --minutes more, or --seeds fewer"
        )
    rest = total - last
    shares = [*RUNG_SHARES[: len(rungs) - 1], RUNG_SHARES[-1]] if len(rungs) > 1 else [sum(RUNG_SHARES)]
    whole = DRAWS_SHARE + sum(shares) + CONFIRM_SHARE
    parts = [baseline, PlanPart("draws", 0, 0.0, rest * DRAWS_SHARE / whole)]
    for rung, share in zip(rungs, shares, strict=True):
        one_s = rung.seeds * SLOWER * each_s[rung.name]
        seconds = rest * share / whole
        trainings = floor(seconds / one_s)
        if trainings < FEWEST:
            needed = (FEWEST * one_s * whole / share + last) / workers / 60
            raise SearchError(
                f"minutes: expected at least {needed:.0f} for the rung {quoted(rung.name)}, found {minutes:g}: "
                f"it would train {trainings} operators"
            )
        parts.append(PlanPart(rung.name, trainings, one_s, seconds, rung.measure))
    seconds = rest * CONFIRM_SHARE / whole
    parts.append(PlanPart(CONFIRM, floor(seconds / finals.each_s), finals.each_s, seconds))
    return Plan(sum(part.seconds for part in (*parts, finals)) / workers / 60, workers, (*parts, finals))


class Funnel(SaidFunnel):
    """Counts and seconds of a search, from the operators drawn to the finals.

    ``draws`` are counts of different operators (:attr:`.Space.counts`) and CPU seconds of drawing and probing. Of a
    search that was continued they are at least so many: what an earlier process drew and did not store may be drawn
    again.
    """

    draws: dict[str, Amount] = msgspec.field(default_factory=lambda: {**dict.fromkeys(_DRAWS, 0), "seconds": 0.0})

    @classmethod
    def after(cls, earlier: SaidFunnel | None) -> Funnel:
        """That of a search which an earlier process has begun."""
        found = cls()
        if earlier is not None:
            found.see({name: count for name, count in earlier.draws.items() if name in found.draws})
        return found

    def see(self, counts: Mapping[str, float]) -> None:
        """Take over the counts of a space; an earlier process of the search may have seen more."""
        self.draws |= {name: max(self.draws[name], count) for name, count in counts.items()}

    def spend(self, seconds: float) -> None:
        """Count CPU seconds of drawing and probing."""
        self.draws["seconds"] += seconds

    def count(self, rungs: Sequence[Rung], trainings: Sequence[RungTraining], finals: str) -> None:
        """Count the trainings of the queue anew."""
        found = [one for one in trainings if one.number != BASELINE]
        last = rungs[-1]
        again = _counted(one for one in found if one.rung == last.name and one.seed >= last.seeds)
        self.rungs = {
            rung.name: _counted(one for one in found if one.rung == rung.name and one.seed < rung.seeds)
            for rung in rungs
        }
        if again.begun:
            self.rungs[CONFIRM] = again
        self.rungs[finals] = _counted(one for one in found if one.rung == finals)

    def line(self) -> str:
        """The funnel in one line: ``2,031 drawn > 1,204 wished > 640 affordable > 640 probed > 212 on 40 steps``."""
        parts = [f"{self.draws[name]:,} {name}" for name in _DRAWS if self.draws[name] or name != "probed"]
        parts += [f"{found.trained:,} on {name}" for name, found in self.rungs.items() if found.begun]
        return " > ".join(parts)


def _counted(trainings: Iterable[RungTraining]) -> Counts:
    """Operators that began, that have all their trainings, and that failed; worker seconds."""
    mine = list(trainings)
    begun = {one.number for one in mine}
    waiting = {one.number for one in mine if not one.is_ended}
    failed = {one.number for one in mine if one.is_ended and one.state != "finished"}
    seconds = sum(one.spent("wall_s") for one in mine if one.is_ended)
    return Counts(len(begun), len(begun - waiting - failed), len(failed), seconds)
