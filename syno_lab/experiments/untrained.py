"""A search without training: operators are ranked by the score of a probe (:meth:`.OperatorSpace.probe`).

To draw and examine an operator takes about a tenth of a second, where to train it takes seconds to hours: thousands are
examined within minutes. Any method may ask for them. Kept are the best few of each range of FLOPs
(:mod:`syno_lab.search.elites`), in the store as trials in the state ``probed``; the product is the front of score
against FLOPs. A search in rungs draws so too (:mod:`.rung_driver`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.experiments.driver import PATIENCE_S, Report, Stopped
from syno_lab.experiments.funnel import Funnel
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.experiments.validate_proxy import usable_probe, validations_in
from syno_lab.experiments.watching import (
    PERIOD_S,
    RESULT_FILE,
    SETTINGS_FILE,
    STATUS_FILE,
    Board,
    read_json,
)
from syno_lab.protocol import Operator
from syno_lab.reports import front_of, front_picture
from syno_lab.reports.rows import read_search
from syno_lab.search import Elite, Elites, Search, examine
from syno_lab.search.descent import Stop, never
from syno_lab.search.protocol import Trail
from syno_lab.store import SearchLog, Store
from syno_lab.systems import read_operator, system_of

#: The picture of the front, in the folder of the search.
FRONT_FILE = "front.svg"
#: The state of a trial that was examined and not trained.
PROBED = "probed"
#: Operators examined after which the elites are stored: by their number, so that the store does not depend on the time.
KEPT_EVERY = 32


@dataclass
class Untrained:
    """One search without training: a new one, or the continuation of an earlier one.

    Attributes:
        settings, space, log: the search's settings, its operators, and its records in the store.
        report, should_stop: functions of the job.
        clock: seconds of wall time; ``cpu_clock``: CPU seconds of this thread.
        examined: operators with a score so far; ``search_s``, ``cpu_s``: wall and CPU seconds. An earlier part of the
            search is counted.
        elites: the best few operators of each range of cost.
        known: names of the known operators with which the search begins, by the operators' JSON.
        end_reason: why it ended.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    report: Report = lambda fraction, message: None
    should_stop: Stop = never
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    examined: int = 0
    search_s: float = 0.0
    cpu_s: float = 0.0
    elites: Elites = field(default_factory=Elites)
    known: dict[str, str] = field(default_factory=dict)
    end_reason: str = ""
    funnel: Funnel = field(default_factory=Funnel)
    _numbers: dict[Operator, int] = field(default_factory=dict)  # of the trials in the store

    def run(self, show: Callable[[dict[str, Any]], None] = lambda status: None) -> None:
        """Examine operators until the time, the number or the space is used up; ``show`` is told how far it is.

        Raises:
            SpecError: the system has no probe.
            Stopped: ``should_stop`` returned True; the elites are in the store.
        """
        begun, begun_cpu = self.clock() - self.search_s, self.cpu_clock() - self.cpu_s
        shown, found_s = self.clock(), self.cpu_s
        search = self.space.search(self.settings)
        given = self._resumed(search)

        def is_over() -> bool:
            self.search_s, self.cpu_s = self.clock() - begun, self.cpu_clock() - begun_cpu
            return self._is_over(found_s) or self.should_stop()

        for one in examine(search, self.space.score, is_over, given):
            search.told.clear()  # an hour's operators would take a gigabyte; the elites are kept
            self.examined += 1
            self.elites.add(self._elite(one.trail, one.operator, one.score))
            found_s = self.cpu_clock() - begun_cpu
            if self.examined % KEPT_EVERY == 0:
                self._keep()
            if self.clock() >= shown + PERIOD_S:
                shown = self.clock()
                self.report(self.fraction, self.line())
                show(self.to_dict())
        self._keep()
        if not is_over():
            self.end_reason = "every operator of the space is examined"
        show(self.to_dict())
        if not self.end_reason:
            raise Stopped(f"stopped after {self.examined} operators; the best are in the store")

    def _elite(self, trail: Trail, operator: Operator, score: float) -> Elite:
        return Elite(trail, operator, score, self.space.share(operator), operator.format)

    def _resumed(self, search: Search) -> list[Operator]:
        """Tell the search what is stored; the known operators that are to be examined first."""
        told = [(read_operator(text), score) for text, score in self.log.told()]
        numbers = {trial.operator: trial.number for trial in self.log.trials()}
        self._numbers = {operator: numbers[operator.to_json()] for operator, _ in told}
        search.resume(told, self._numbers)  # given, all of them: what was examined in between is not stored
        for operator, score in told:
            self.elites.add(self._elite(Trail(()), operator, score))
        if self.examined:  # not the same questions again
            search.rng.seed(f"{self.settings.seed} {self.examined}")
        if not self.settings.starts_with_known:
            return []
        found = self.space.operators.known(search.root)
        self.known = {operator.to_json(): name for name, operator in found.items()}
        return [operator for operator in found.values() if operator not in self._numbers]

    def _is_over(self, found_s: float) -> bool:
        minutes, trials = self.settings.minutes, self.settings.trials
        if trials is not None and self.examined >= trials:
            self.end_reason = f"{trials} operators are examined"
        elif minutes is not None and self.search_s >= 60 * minutes:
            self.end_reason = f"{minutes:g} minutes are over"
        elif self.cpu_s - found_s > PATIENCE_S:
            self.end_reason = f"no new operator {self.space.limits} in {PATIENCE_S:g} s"
        return bool(self.end_reason)

    def _keep(self) -> None:
        """Store the elites that are not stored yet."""
        for elite in self.elites:
            if elite.operator in self._numbers:
                continue
            operator, costs = elite.operator, self.space.fitting_costs(elite.operator)
            name = self.space.operators.name_of(operator)
            number = self.log.add(name, operator.to_json(), elite.trail.records, costs.flops, costs.params)
            self._numbers[operator] = number
            outcome = {"state": PROBED, "probe": self.space.probe(operator)}
            self.log.record(number, outcome, reward=elite.score)

    # -- shown -------------------------------------------------------------------------------------------------------

    @property
    def fraction(self) -> float:
        """The share of the search that is done, from 0 to 1."""
        minutes, trials = self.settings.minutes, self.settings.trials
        shares = [] if trials is None else [self.examined / trials]
        shares += [] if minutes is None else [self.search_s / (60 * minutes)]
        return min(1.0, max(shares))

    def line(self) -> str:
        """The state of the search in one line of text."""
        rate = self.examined / self.cpu_s if self.cpu_s else 0.0
        front = self.elites.front()
        best = f"; best score {front[-1].score:.3f} at {front[-1].cost:.2f} of the limit" if front else ""
        return f"{self.examined} operators examined, {rate:.1f} a CPU-second; {len(front)} on the front{best}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the front has the cheapest first."""
        self.funnel.draws.see(**self.space.counts)
        self.funnel.draws.seconds = self.cpu_s
        return {
            "examined": self.examined,
            "funnel": self.funnel.to_dict(),
            "search_s": self.search_s,
            "cpu_s": self.cpu_s,
            "examined_per_cpu_s": self.examined / self.cpu_s if self.cpu_s else 0.0,
            "elites": len(self.elites),
            "end": self.end_reason,
            "front": [self._point(elite) for elite in self.elites.front()],
            "known": [self._point(elite) for elite in self.elites if elite.operator.to_json() in self.known],
        }

    def _point(self, elite: Elite) -> dict[str, Any]:
        costs = self.space.fitting_costs(elite.operator)
        return {
            "number": self._numbers.get(elite.operator),
            "score": elite.score,
            "flops_ratio": costs.flops / self.space.baseline.flops,
            "replaced_ratio": self.space.replaced_share(costs.flops),
            "params": costs.params,
            "known": self.known.get(elite.operator.to_json()),
            "system": system_of(elite.operator).title,
        }


def run_untrained(
    settings: SearchSettings,
    store: Store,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Stop = never,
) -> dict[str, Any]:
    """Search without training, continued from the store if it has begun, and return the result.

    ``folder`` gets the files that views read (:mod:`.watching`) and, at the end, the result and the picture of the
    front.

    Raises:
        SpecError: the backbone has nothing to replace, no operator can be within the limit, or the system has no probe.
        StoreError: the store has a search of this name with other settings, or cannot be written.
        Stopped: ``should_stop`` returned True.
    """
    space = Space(settings)
    for line in usable_probe(settings.training, validations_in(folder.parent.parent), settings.system)[1]:
        report(0.0, line)
    log = store.search(settings.name, settings.identity)
    board = Board(folder)
    board.write(SETTINGS_FILE, msgspec.json.encode(settings))
    earlier = read_json(folder / STATUS_FILE) or {}
    driver = Untrained(
        settings,
        space,
        log,
        report,
        should_stop,
        examined=int(earlier.get("examined") or 0),
        search_s=float(earlier.get("search_s") or 0.0),
        cpu_s=float(earlier.get("cpu_s") or 0.0),
        funnel=Funnel.begun(earlier.get("funnel")),
    )
    driver.run(lambda status: board.show({"phase": "search", **status}))
    result = driver.to_dict() | {
        "untrained": True,
        "settings": settings.to_dict(),
        "baseline": {"flops": space.baseline.flops, "params": space.baseline.params, "accuracy": None},
        "picture": str(folder / FRONT_FILE),
        "folder": str(folder),
    }
    _, rows = read_search(log, store, ())
    picture = front_picture(front_of(rows, ("flops", "probe")), title=f"{settings.name}: probed, not trained")
    board.write(FRONT_FILE, picture)
    board.write(RESULT_FILE, msgspec.json.encode(result))
    board.show({"phase": "done", **driver.to_dict()}, now=True)
    return result
