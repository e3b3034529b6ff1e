"""The plan of a search in rungs, made before the rungs begin, and the funnel: how many operators reached each stage.

Times of the plan are in seconds of one worker. The finals and the baseline are part of the minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor

import msgspec

from syno_lab.errors import SearchError
from syno_lab.experiments.rivals import NAMES
from syno_lab.inputs import quoted
from syno_lab.models.rungs import Rung
from syno_lab.reports.searched import Amount, Counts, Plan, PlanPart
from syno_lab.reports.searched import Funnel as SaidFunnel
from syno_lab.store.rungs import BASELINE, CONFIRM, FINAL, RIVALS, TIMES, RungTraining

#: The shares of the time before the finals: drawing and probing, each rung, and more seeds for the last rung's best
#: operators. Later rungs train fewer operators, for longer. The shares follow a half-hour run on ResNet-20 that drew
#: too few operators and trained too few on the first rung.
DRAWS_SHARE = 0.13
RUNG_SHARES = (0.31, 0.18, 0.25)
CONFIRM_SHARE = 0.13
#: The number of additional seeds in the part :data:`.store.rungs.CONFIRM`.
MORE_SEEDS = 2
#: The number of operators in the finals, beside the baseline: the best within each share of the FLOPs.
FINALISTS = 2
#: The share of the minutes in which the times of the finalists and the baseline are measured, at the end.
TIMES_SHARE = 0.02
#: The largest share of the time that the rivals may take.
RIVALS_SHARE = 0.2
#: The largest share of the time that the finals may take.
MOST_FINALS = 0.6
#: The fewest operators on a rung. With fewer operators a rung decides nothing.
FEWEST = 2
#: Networks with operators train slower: the planned seconds of a training, divided by the baseline's. The median
#: slowdown in the first half-hour searches was 1.4.
SLOWER = 1.4
_DRAWS = ("drawn", "wished", "affordable", "probed")


def as_begun(rungs: Sequence[Rung], plan: Plan | None) -> tuple[Rung, ...]:
    """Return the backbone's rungs that are in a search's plan, with the measures of the plan.

    A continued search keeps the rungs of its plan, also if the backbone declares other rungs now. Without a plan, or
    with a damaged plan that lacks the network itself, the rungs are returned unchanged.
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
    """Return the rungs whose trainings take at most half of the full network's time. Slower rungs are left out.

    Args:
        rungs: the rungs, the cheapest first, the network itself last.
        each_s: as for :func:`plan_for`.
    """
    full_s = each_s[rungs[-1].name]
    return tuple(rung for rung in rungs if rung.is_full or 2 * rung.seeds * each_s[rung.name] <= full_s)


def plan_for(
    minutes: float, workers: int, rungs: Sequence[Rung], each_s: Mapping[str, float], seeds: int, folds: int = 0
) -> Plan:
    """Return a plan that shares ``minutes`` among drawing, the rungs and the finals.

    Args:
        minutes: the minutes of the whole search.
        workers: the number of trainings at a time.
        rungs: the rungs, the cheapest first, the network itself last.
        each_s: seconds of one training of the baseline on each rung, by the rung's name; with ``folds`` also in the
            finals, by :data:`.store.rungs.FINAL`.
        seeds: the number of seeds in the finals; 0 for no finals.
        folds: the number of folds on which the finals train each seed; 0: they train once.

    Raises:
        SearchError: too few minutes for a rung or the finals; the message has the needed minutes.
    """
    total = 60 * minutes * workers
    full_s, runs = each_s[FINAL if folds else rungs[-1].name], folds or 1
    finals = PlanPart("finals", runs * seeds * FINALISTS, SLOWER * full_s, runs * seeds * FINALISTS * SLOWER * full_s)
    baseline = PlanPart("baseline", runs * seeds, full_s, runs * seeds * full_s)
    times = PlanPart(TIMES, 0, 0.0, TIMES_SHARE * total * (seeds > 0))
    last = finals.seconds + baseline.seconds
    if last > MOST_FINALS * total:
        many, also = (f"{seeds} seeds on {folds} folds", " or --folds") if folds else (f"{seeds} seeds", "")
        raise SearchError(
            f"minutes: expected at least {max(0.1, last / MOST_FINALS / workers / 60):.1f}, found {minutes:g}: "
            f"the finals take {max(0.1, last / workers / 60):.1f} minutes ({many} of the baseline and of "
            f"{FINALISTS} operators, {full_s:.2g} s each or more); give --minutes more, or --seeds{also} fewer"
        )
    shares = [*RUNG_SHARES[: len(rungs) - 1], RUNG_SHARES[-1]] if len(rungs) > 1 else [sum(RUNG_SHARES)]
    all_shares = DRAWS_SHARE + sum(shares) + CONFIRM_SHARE
    ones = [rung.seeds * SLOWER * each_s[rung.name] for rung in rungs]
    needed_s = max(FEWEST * one_s * all_shares / share for one_s, share in zip(ones, shares, strict=True))
    rest = total - last - times.seconds
    most_s = min(RIVALS_SHARE * total, rest - needed_s)  # the rungs come before the rivals
    count = min(len(NAMES), max(0, int(most_s / (runs * finals.each_s) - 1e-6))) if seeds else 0
    rivals = PlanPart(RIVALS, runs * count, finals.each_s, runs * count * finals.each_s)
    rest -= rivals.seconds
    parts = [baseline, PlanPart("draws", 0, 0.0, rest * DRAWS_SHARE / all_shares)]
    for rung, one_s, share in zip(rungs, ones, shares, strict=True):
        seconds = rest * share / all_shares
        trainings = floor(seconds / one_s)
        if trainings < FEWEST:
            needed = (FEWEST * one_s * all_shares / share + last) / workers / 60 / (1 - TIMES_SHARE)
            raise SearchError(
                f"minutes: expected at least {max(0.1, needed):.1f} for the rung {quoted(rung.name)}, "
                f"found {minutes:g}: it would train {trainings} operators"
            )
        parts.append(PlanPart(rung.name, trainings, one_s, seconds, rung.measure))
    seconds = rest * CONFIRM_SHARE / all_shares
    one_s = SLOWER * each_s[rungs[-1].name]
    parts.append(PlanPart(CONFIRM, floor(seconds / one_s), one_s, seconds))
    parts += [finals, rivals, times]
    return Plan(sum(part.seconds for part in parts) / workers / 60, workers, tuple(parts))


class Funnel(SaidFunnel):
    """Counts and seconds of a search, from the operators drawn to the finals.

    ``draws`` has counts of different operators (:attr:`.Space.counts`) and CPU seconds of drawing and probing. In a
    continued search the counts are lower bounds: an earlier process may have drawn operators that it did not store.
    """

    draws: dict[str, Amount] = msgspec.field(default_factory=lambda: {**dict.fromkeys(_DRAWS, 0), "seconds": 0.0})

    @classmethod
    def after(cls, earlier: SaidFunnel | None) -> Funnel:
        """Return a funnel with the counts of an earlier process of the search."""
        funnel = cls()
        if earlier is not None:
            funnel.see({name: count for name, count in earlier.draws.items() if name in funnel.draws})
        return funnel

    def see(self, counts: Mapping[str, float]) -> None:
        """Take a space's count where it is higher; a lower count lacks an earlier process's operators."""
        self.draws |= {name: max(self.draws[name], count) for name, count in counts.items()}

    def spend(self, seconds: float) -> None:
        """Add CPU seconds of drawing and probing."""
        self.draws["seconds"] += seconds

    def count(self, rungs: Sequence[Rung], trainings: Sequence[RungTraining], finals: str) -> None:
        """Count the operators in the queue's trainings, for each rung and the finals."""
        rows = [row for row in trainings if row.number != BASELINE]
        last = rungs[-1]
        again = _counted(row for row in rows if row.rung == last.name and row.seed >= last.seeds)
        self.rungs = {
            rung.name: _counted(row for row in rows if row.rung == rung.name and row.seed < rung.seeds)
            for rung in rungs
        }
        if again.begun:
            self.rungs[CONFIRM] = again
        self.rungs[finals] = _counted(row for row in rows if row.rung == finals)

    def line(self) -> str:
        """Return the counts: ``2,031 drawn > 1,204 wished > 640 affordable > 640 probed > 212 on 40 steps``."""
        parts = [f"{self.draws[name]:,} {name}" for name in _DRAWS if self.draws[name] or name != "probed"]
        parts += [f"{counts.trained:,} on {name}" for name, counts in self.rungs.items() if counts.begun]
        return " > ".join(parts)


def _counted(trainings: Iterable[RungTraining]) -> Counts:
    """Return the numbers of operators that began, finished all trainings and failed, and the trainings' seconds."""
    rows = list(trainings)
    started = {row.number for row in rows}
    waiting = {row.number for row in rows if not row.is_ended}
    failed = {row.number for row in rows if row.is_ended and row.state != "finished"}
    seconds = sum(row.spent("wall_s") for row in rows if row.is_ended)
    return Counts(len(started), len(started - waiting - failed), len(failed), seconds)
