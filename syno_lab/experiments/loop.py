"""The parts that all searches share: choose operators (known ones first), store operators, show progress."""

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
from syno_lab.experiments.watching import PERIOD_S, RESULT_FILE, SETTINGS_FILE, Board, read_json, read_status
from syno_lab.protocol import Operator, SearchStep
from syno_lab.reports.searched import Baseline, Point, Recorded, Searched, Settings, searched
from syno_lab.search import Candidate, Search
from syno_lab.search.descent import Stop, never
from syno_lab.store import SearchLog, SearchTrial, Store
from syno_lab.systems import title_of
from syno_lab.trial import TrialOutcome
from syno_lab.versioned import JSON

#: CPU seconds without a new operator after which a search gives up. CPU time counts, because the search does not run
#: while its process is stopped or other processes use the CPU.
PATIENCE_S = 120.0


@dataclass
class Begun:
    """A search that has started or continues.

    The fields are the search space, the store's records, the search files, and the status from an earlier process.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    board: Board
    earlier: Searched

    @classmethod
    def of(cls, settings: SearchSettings, store: Store, folder: Path) -> Begun:
        """Start the search of these settings, with its files in ``folder``.

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
        """All settings. The returned type declares only the settings that readers of a result use."""
        return cast(Settings, self.settings)

    @property
    def ended(self) -> Searched:
        """The result of an earlier process of the search; empty where there is none."""
        return searched(read_json(self.board.folder / RESULT_FILE))

    def end(self, result: Searched, fields: Sequence[str]) -> dict[str, JSON]:
        """Write these fields of the result, with the path of the folder, and return the written data."""
        plain = msgspec.structs.replace(result, folder=str(self.board.folder)).said(fields)
        self.board.write(RESULT_FILE, msgspec.json.encode(plain))
        return plain

    def baseline(self, trained: Sequence[TrialOutcome]) -> Baseline:
        """Return the data of the baseline: the costs of the unchanged network, and the accuracies of its trainings."""
        accuracies = tuple([outcome.accuracy for outcome in trained if outcome.accuracy is not None])
        mean, costs = sum(accuracies) / len(accuracies) if accuracies else None, self.space.baseline
        return Baseline(costs.flops, costs.params, mean, accuracies, tuple([outcome.wall_s for outcome in trained]))

    def point(self, trial: SearchTrial, accuracy: float | None, ratio: float | None, known: str | None) -> Point:
        """Return a trial as a point of accuracy and FLOPs; ``ratio`` is its share of the replaced layers' FLOPs."""
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
        """Return a record of every trial with a reward, in the order of proposal; ``more`` adds fields to a record.

        ``known`` has the names of the known operators, by the operators' JSON.
        """
        steps = self.log.taken()
        records = []
        for trial in self.log.trials():
            if trial.reward is not None:
                record = Recorded(
                    number=trial.number,
                    steps=trial.steps,
                    taken=steps[trial.number],
                    state=trial.state,
                    reward=trial.reward,
                    flops=trial.flops,
                    params=trial.params,
                    known=known.get(trial.operator),
                    system=title_of(trial.operator),
                )
                records.append(more(record, trial))
        return tuple(records)


@dataclass
class Loop:
    """One search: a new search, or the continuation of an earlier search.

    Attributes:
        settings, space, log: the settings of the search, its search space, and its records in the store.
        report, should_stop: callbacks for the progress and for a request to stop.
        clock: a clock of wall seconds; ``cpu_clock``: a clock of this thread's CPU seconds.
        end_reason: why the search ended.
        known: the names of the known operators with which the search begins, by the operators' JSON.
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
    _upcoming: list[Operator] = field(default_factory=list)  # known operators that are not proposed yet
    _next_report: float = -float("inf")

    def start(self, prior: Callable[[Operator], float] | None = None) -> Search:
        """Return the search algorithm of the settings, and set ``known``."""
        search = self.space.search(self.settings, prior)
        if self.settings.starts_with_known:
            operators = self.space.operators.known(search.root)
            self._upcoming = list(operators.values())
            self.known = {operator.to_json(): name for name, operator in operators.items()}
        return search

    def next_known(self, search: Search) -> Candidate | None:
        """Return the next known operator that is in the search's space; None where none is left."""
        while self._upcoming:
            candidate = search.adopt(self._upcoming.pop(0))
            if candidate is not None:
                return candidate
        return None

    def out_of_patience(self) -> Stop:
        """Return a function that returns True once :data:`PATIENCE_S` CPU seconds have passed since this call."""
        deadline = self.cpu_clock() + PATIENCE_S
        return lambda: self.cpu_clock() > deadline

    @property
    def nothing_new(self) -> str:
        """The reason of the end if the search found no new operator in time."""
        return f"no new operator {self.space.limits} in {PATIENCE_S:g} s"

    def keep(self, operator: Operator, steps: Iterable[SearchStep]) -> int:
        """Store an operator, built by these steps; return its number in the store."""
        costs = self.space.fitting_costs(operator)
        name = self.space.operators.name_of(operator)
        sizes = self.space.sizes(operator)
        return self.log.add(name, operator.to_json(), steps, costs.flops, costs.params, sizes)

    def fraction(self, done: int, seconds: float) -> float:
        """Return the progress of the search, from 0 to 1, after ``done`` trials and ``seconds`` of wall time."""
        minutes, trials = self.settings.minutes, self.settings.trials
        shares = [] if trials is None else [done / trials]
        shares += [] if minutes is None else [seconds / (60 * minutes)]
        return min(1.0, max(shares))

    def is_due(self, *, now: bool = False) -> bool:
        """Whether to show progress: always with ``now``, else only some time after the last display."""
        if not now and self.clock() < self._next_report:
            return False
        self._next_report = self.clock() + PERIOD_S
        return True
