"""What all searches do alike: they ask, known operators first, keep what they asked for, and show how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from syno_lab.experiments.runner import Report
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.experiments.watching import PERIOD_S, RESULT_FILE, SETTINGS_FILE, Board, read_status
from syno_lab.protocol import Operator, SearchStep
from syno_lab.reports.searched import Baseline, Point, Recorded, Searched, Settings
from syno_lab.search import Candidate, Search
from syno_lab.search.descent import Stop, never
from syno_lab.store import SearchLog, SearchTrial, Store
from syno_lab.systems import title_of
from syno_lab.trial import TrialOutcome
from syno_lab.versioned import JSON

#: CPU seconds without a new operator after which a search gives up. CPU time counts, because the search does not look
#: for operators while its process is stopped or other processes use the CPU.
PATIENCE_S = 120.0


@dataclass
class Begun:
    """A search that is begun, or gone on with.

    It has its operators, its records in the store, its files, and the status that an earlier process of it wrote.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    board: Board
    earlier: Searched

    @classmethod
    def of(cls, settings: SearchSettings, store: Store, folder: Path) -> Begun:
        """Begin the search of these settings; its files are in ``folder``.

        Raises:
            SpecError: the backbone has nothing to replace, or no operator can be within the limit.
            StoreError: the store has a search of this name with other settings, or cannot be written.
        """
        space = Space(settings)
        log, board = store.search(settings.name, settings.identity), Board(folder)
        board.write(SETTINGS_FILE, msgspec.json.encode(settings))
        return cls(settings, space, log, board, read_status(folder))

    @property
    def said_settings(self) -> Settings:
        """All settings, of which readers of a result know a few."""
        return cast(Settings, self.settings)

    def end(self, result: Searched, fields: Sequence[str]) -> dict[str, JSON]:
        """Write these fields of the result, with the folder in it, and return them as plain data."""
        plain = msgspec.structs.replace(result, folder=str(self.board.folder)).said(fields)
        self.board.write(RESULT_FILE, msgspec.json.encode(plain))
        return plain

    def baseline(self, trained: Sequence[TrialOutcome]) -> Baseline:
        """The network without an operator: its costs, and the accuracies of its trainings."""
        found = tuple([one.accuracy for one in trained if one.accuracy is not None])
        mean, costs = sum(found) / len(found) if found else None, self.space.baseline
        return Baseline(costs.flops, costs.params, mean, found, tuple([one.wall_s for one in trained]))

    def point(self, trial: SearchTrial, accuracy: float | None, ratio: float | None, known: str | None) -> Point:
        """A trial on a front of accuracy and FLOPs; ``ratio`` is its share of the replaced layers' FLOPs."""
        return Point(
            number=trial.number,
            accuracy=accuracy,
            flops_ratio=trial.flops / self.space.baseline.flops,
            replaced_ratio=ratio,
            params=trial.params,
            known=known,
            system=title_of(trial.operator),
        )

    def recorded(
        self, known: Mapping[str, str], more: Callable[[Recorded, SearchTrial], Recorded]
    ) -> tuple[Recorded, ...]:
        """Every trial that was told in short, in the order of asking; ``more`` adds what a kind of search has.

        ``known`` has the names of known operators by their JSON.
        """
        taken = self.log.taken()
        found = []
        for trial in self.log.trials():
            if trial.reward is not None:
                one = Recorded(
                    number=trial.number,
                    steps=trial.steps,
                    taken=taken[trial.number],
                    state=trial.state,
                    reward=trial.reward,
                    flops=trial.flops,
                    params=trial.params,
                    known=known.get(trial.operator),
                    system=title_of(trial.operator),
                )
                found.append(more(one, trial))
        return tuple(found)


@dataclass
class Loop:
    """One search: a new one, or the continuation of an earlier one.

    Attributes:
        settings, space, log: the search's settings, its operators, and its records in the store.
        report, should_stop: functions of the job.
        clock: seconds of wall time; ``cpu_clock``: CPU seconds of this thread.
        end_reason: why it ended.
        known: names of the known operators with which the search begins, by the operators' JSON.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    _: KW_ONLY
    report: Report = lambda fraction, message: None
    should_stop: Stop = never
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    end_reason: str = ""
    known: dict[str, str] = field(default_factory=dict)
    _given: list[Operator] = field(default_factory=list)  # known operators that were not asked for yet
    _next_report: float = -float("inf")

    def start(self, prior: Callable[[Operator], float] | None = None) -> Search:
        """The search by the settings' method; ``known`` are known from now on."""
        search = self.space.search(self.settings, prior)
        if self.settings.starts_with_known:
            found = self.space.operators.known(search.root)
            self._given = list(found.values())
            self.known = {operator.to_json(): name for name, operator in found.items()}
        return search

    def next_known(self, search: Search) -> Candidate | None:
        """The next known operator that the search's space has; None where there is none left."""
        while self._given:
            candidate = search.adopt(self._given.pop(0))
            if candidate is not None:
                return candidate
        return None

    def out_of_patience(self) -> Stop:
        """Whether so many CPU seconds have passed since this call that the search gives up."""
        deadline = self.cpu_clock() + PATIENCE_S
        return lambda: self.cpu_clock() > deadline

    @property
    def nothing_new(self) -> str:
        """Why a search ends that has given up."""
        return f"no new operator {self.space.limits} in {PATIENCE_S:g} s"

    def keep(self, operator: Operator, steps: Iterable[SearchStep]) -> int:
        """Put an operator, built by these steps, into the store; its number there."""
        costs = self.space.fitting_costs(operator)
        name = self.space.operators.name_of(operator)
        return self.log.add(name, operator.to_json(), steps, costs.flops, costs.params)

    def fraction(self, done: int, seconds: float) -> float:
        """The share of the search that is done, from 0 to 1, after so many trials and wall seconds."""
        minutes, trials = self.settings.minutes, self.settings.trials
        shares = [] if trials is None else [done / trials]
        shares += [] if minutes is None else [seconds / (60 * minutes)]
        return min(1.0, max(shares))

    def is_due(self, *, now: bool = False) -> bool:
        """Whether the state is to be shown: ``now``, or because it was not for a while."""
        if not now and self.clock() < self._next_report:
            return False
        self._next_report = self.clock() + PERIOD_S
        return True
