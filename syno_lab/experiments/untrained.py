"""A search without training: it ranks operators by the score of a probe (:meth:`.OperatorSpace.probe`).

Drawing and examining an operator takes about 0.1 s, and a training takes seconds to hours. So thousands of operators,
proposed by any method, are examined within minutes. The store gets the best few operators of each range of FLOPs
(:mod:`syno_lab.search.elites`) as trials in the state ``probed``. The result is the front of score against FLOPs. A
search in rungs draws operators in the same way (:mod:`.rung_driver`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import msgspec

from syno_lab.experiments.loop import Begun, Loop
from syno_lab.experiments.plan import Funnel
from syno_lab.experiments.runner import Report, Stopped
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.validate_proxy import usable_probe, validations_in
from syno_lab.protocol import Operator
from syno_lab.reports import front_of, front_picture
from syno_lab.reports.rows import read_search
from syno_lab.reports.searched import NOT_SAID, UNTRAINED, UNTRAINED_STATUS, Baseline, Point, Searched
from syno_lab.search import Elite, Elites, Search, examine
from syno_lab.search.descent import Stop, never
from syno_lab.search.protocol import Trail
from syno_lab.store import Store
from syno_lab.systems import read_operator, system_of
from syno_lab.versioned import JSON

#: The picture of the front, in the folder of the search.
FRONT_FILE = "front.svg"
#: The state of a trial that was examined and not trained.
PROBED = "probed"
#: The number of examined operators between two writes of the elites. A time would make the store depend on the speed.
KEPT_EVERY = 32


@dataclass
class Untrained(Loop):
    """A search without training.

    Attributes:
        examined: the number of operators with a score; ``search_s``, ``cpu_s``: wall and CPU seconds. The three numbers
            include earlier processes of the search.
        elites: the best few operators of each range of cost.
    """

    _: KW_ONLY
    examined: int = 0
    search_s: float = 0.0
    cpu_s: float = 0.0
    elites: Elites = field(default_factory=Elites)
    funnel: Funnel = field(default_factory=Funnel)
    _numbers: dict[Operator, int] = field(default_factory=dict)  # the numbers of the stored trials

    def run(self, show: Callable[[Searched], None] = lambda status: None) -> None:
        """Examine operators until the time is over, enough operators were examined, or none is left; show the status.

        Raises:
            SpecError: the system has no probe.
            Stopped: ``should_stop`` returned True; the elites are in the store.
        """
        start, start_cpu = self.clock() - self.search_s, self.cpu_clock() - self.cpu_s
        search, gives_up = self.start(), self.out_of_patience()
        self._resume(search)
        self.is_due(now=True)

        def is_over() -> bool:
            self.search_s, self.cpu_s = self.clock() - start, self.cpu_clock() - start_cpu
            return self._is_over(gives_up()) or self.should_stop()

        for examined in examine(search, self.space.score, is_over, self._upcoming):
            search.told.clear()  # one hour's operators take a gigabyte; only elites are used
            self.examined += 1
            self.elites.add(self._elite(examined.trail, examined.operator, examined.score))
            gives_up = self.out_of_patience()
            if self.examined % KEPT_EVERY == 0:
                self._keep()
            if self.is_due():
                self.report(self.fraction(self.examined, self.search_s), self.line())
                show(self.said())
        self._keep()
        if not is_over():
            self.end_reason = "every operator of the space is examined"
        show(self.said())
        if not self.end_reason:
            raise Stopped(f"stopped after {self.examined} operators; the best are in the store")

    def _elite(self, trail: Trail, operator: Operator, score: float) -> Elite:
        return Elite(trail, operator, score, self.space.share(operator), operator.format)

    def _resume(self, search: Search) -> None:
        """Tell the search the stored scores."""
        stored = [(read_operator(text), score) for text, score in self.log.told()]
        numbers = {trial.operator: trial.number for trial in self.log.trials()}
        self._numbers = {operator: numbers[operator.to_json()] for operator, _ in stored}
        search.resume(stored, self._numbers)  # only elites have stored scores
        for operator, score in stored:
            self.elites.add(self._elite(Trail(()), operator, score))
        if self.examined:  # a new seed draws new operators
            search.rng.seed(f"{self.settings.seed} {self.examined}")
        self._upcoming = [operator for operator in self._upcoming if operator not in self._numbers]

    def _is_over(self, gives_up: bool) -> bool:
        minutes, trials = self.settings.minutes, self.settings.trials
        if trials is not None and self.examined >= trials:
            self.end_reason = f"{trials} operators are examined"
        elif minutes is not None and self.search_s >= 60 * minutes:
            self.end_reason = f"{minutes:g} minutes are over"
        elif gives_up:
            self.end_reason = self.nothing_new
        return bool(self.end_reason)

    def _keep(self) -> None:
        """Store the elites that are not stored yet."""
        for elite in self.elites:
            if elite.operator not in self._numbers:
                number = self._numbers[elite.operator] = self.keep(elite.operator, elite.trail.records)
                outcome: dict[str, JSON] = {"state": PROBED, "probe": self.space.probe(elite.operator)}
                self.log.record(number, outcome, reward=elite.score)

    def line(self) -> str:
        """Return the state of the search in one line of text."""
        rate = self.examined / self.cpu_s if self.cpu_s else 0.0
        front = self.elites.front()
        best = f"; best score {front[-1].score:.3f} at {front[-1].cost:.2f} of the limit" if front else ""
        return f"{self.examined} operators examined, {rate:.1f} a CPU-second; {len(front)} on the front{best}"

    def said(self) -> Searched:
        """Return the status of the search; the front has the cheapest operator first."""
        self.funnel.see(self.space.counts)
        self.funnel.draws["seconds"] = self.cpu_s
        return Searched(
            examined=self.examined,
            funnel=self.funnel,
            search_s=self.search_s,
            cpu_s=self.cpu_s,
            examined_per_cpu_s=self.examined / self.cpu_s if self.cpu_s else 0.0,
            elites=len(self.elites),
            end=self.end_reason,
            front=tuple(map(self._point, self.elites.front())),
            known=[self._point(elite) for elite in self.elites if elite.operator.to_json() in self.known],
        )

    def _point(self, elite: Elite) -> Point:
        costs = self.space.fitting_costs(elite.operator)
        return Point(
            number=self._numbers.get(elite.operator),
            score=elite.score,
            accuracy=NOT_SAID,
            flops_ratio=costs.flops / self.space.baseline.flops,
            replaced_ratio=self.space.replaced_share(costs.flops),
            params=costs.params,
            known=self.known.get(elite.operator.to_json()),
            system=system_of(elite.operator).title,
        )


def run_untrained(
    settings: SearchSettings,
    store: Store,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Stop = never,
) -> dict[str, JSON]:
    """Run a search without training, or continue a stored search; return the result.

    ``folder`` gets the files for views (:mod:`.watching`) and, at the end, the result and the picture of the front.

    Raises:
        SpecError, StoreError: as :meth:`.Begun.of`; SpecError also where the system has no probe.
        Stopped: ``should_stop`` returned True.
    """
    search = Begun.of(settings, store, folder)
    for line in usable_probe(settings.training, validations_in(folder.parent.parent), settings.system)[1]:
        report(0.0, line)
    space, board, earlier = search.space, search.board, search.earlier
    driver = Untrained(
        settings,
        space,
        search.log,
        report=report,
        should_stop=should_stop,
        examined=earlier.examined,
        search_s=earlier.search_s,
        cpu_s=earlier.cpu_s,
        funnel=Funnel.after(earlier.funnel),
    )
    driver.run(lambda status: board.show(msgspec.structs.replace(status, phase="search"), UNTRAINED_STATUS))
    _, rows = read_search(search.log, store, ())
    picture = front_picture(front_of(rows, ("flops", "probe")), title=f"{settings.name}: probed, not trained")
    board.write(FRONT_FILE, picture)
    result = msgspec.structs.replace(
        driver.said(),
        untrained=True,
        settings=search.said_settings,
        baseline=Baseline(space.baseline.flops, space.baseline.params, accuracies=NOT_SAID),
        picture=str(folder / FRONT_FILE),
    )
    plain = search.end(result, UNTRAINED)
    board.show(msgspec.structs.replace(result, phase="done"), UNTRAINED_STATUS, now=True)
    return plain
