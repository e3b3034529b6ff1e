"""The options of a tuning as one value: for one operator, a queue, a job and each function of a network; presets."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.tuning.board import Board
from syno_lab.tuning.method import Method

Folder = str | os.PathLike[str]
#: How the operators of a queue share the trials: each as many, or more for those that promise more of the time.
SCHEDULERS = ("equal", "gradient")


@dataclass(frozen=True)
class Effort:
    """How a candidate is timed: ``repeat`` samples, each of at least ``min_ms`` milliseconds of calls."""

    repeat: int
    min_ms: int


@dataclass(frozen=True)
class Preset:
    """A way to search.

    ``trials`` candidates are measured by default, ``batch`` at a time. The first ``warmup`` are random, before the cost
    model knows anything; then each batch is picked from a ``population`` that is bred for ``generations``. ``search``
    is the effort for each candidate, ``final`` the effort for the best candidates, the ``finalists``, which are
    measured again: the least of many noisy times is not always the best candidate.
    """

    name: str
    about: str
    trials: int
    population: int
    generations: int
    warmup: int
    batch: int
    search: Effort
    final: Effort
    finalists: int


# With TVM's 512 x 4 the mutations alone take 30 seconds for 32 trials, and its cost model guesses at random until it
# has seen 100 candidates; a tuning here may have no more than 16.
PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("quick", "about a minute: is it worth more?", 16, 64, 2, 16, 16, Effort(3, 10), Effort(12, 15), 3),
        Preset("normal", "several minutes: enough to compare", 96, 128, 3, 16, 16, Effort(3, 15), Effort(15, 20), 5),
        Preset("thorough", "tens of minutes: to be published", 512, 512, 4, 32, 32, Effort(5, 30), Effort(20, 30), 8),
    )
}


def enough_s(trials: int, operators: int = 1) -> float:
    """Seconds that suffice for ``trials`` of each operator: a trial took up to 12 seconds on a busy machine."""
    return 600.0 + 15.0 * trials * operators


def find_preset(name: str) -> Preset:
    """The preset of that name. Raises :class:`TuningError`."""
    if name not in PRESETS:
        raise TuningError(f"expected a preset among {', '.join(PRESETS)}, found {quoted(name)}")
    return PRESETS[name]


class Budget(TypedDict, total=False):
    """How each function of a network is tuned: fields of :class:`TuningOptions`, with the same defaults.

    ``board``: where the network runs, None for this machine.
    """

    board: Board | None
    target: str
    threads: int | None
    trials: int | None
    preset: str
    seed: int
    deadline_s: float
    scheduler: str
    total: int | None
    wait_s: float
    session_s: float


@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """How :func:`~syno_lab.tuning.tune.tune` and :func:`~syno_lab.tuning.tune.tune_queue` work.

    Attributes:
        work_dir: the folder for the log, which is named after the operator's label.
        tracker: the RPC tracker that has the device, as ``(host, port)`` or ``"host:port"``; None: this machine. Here
            each candidate runs in a child process of its own, with no tracker, server or socket that another user
            could reach.
        key: the key under which the device is registered at the tracker; all devices under it are used at once. Give
            both ``tracker`` and ``key``, or neither.
        target: a name that :func:`~syno_lab.codegen.target_names.describe` reads.
        threads: the threads that operators run in on this machine; None: as many as ``target`` says, else all
            processors. A board has threads of its own.
        trials: candidates to measure for each operator; None: as many as the preset says.
        scheduler: one of :data:`SCHEDULERS`. With ``gradient`` TVM's own task scheduler gives each operator turns by
            what it promises of the time of all (:attr:`~syno_lab.tuning.values.TuningTask.calls` x milliseconds):
            ``trials`` is then what an operator gets on average.
        total: candidates to measure for all operators together; None: ``trials`` for each.
        preset: one of :data:`PRESETS`.
        method: the space, rules, strategy and cost model, with the user's own code; None: ``Method()``. Records of
            different methods are kept apart.
        seed: the search's seed.
        deadline_s: seconds for the whole tuning; None: 900 for one operator, 3600 for a queue. The search ends after
            four fifths of it, to leave time for the final measurements.
        wait_s: the most seconds that a tuning waits for a busy device or an unreachable tracker.
        session_s: the most seconds that one candidate may hold a device, including the upload.
        records: a folder to which the schedules are exported as MetaSchedule's own database, for compiling with them
            later (:func:`save_library <syno_lab.codegen.library.save_library>`, :mod:`syno_lab.tuning.network`).
        store: a folder of records (:mod:`~syno_lab.tuning.records`). Every trial is written there before
            ``on_progress`` is called, and an interrupted tuning continues from there. If it has all trials of the same
            operator, sizes, dtype, target, TVM and board conditions, the recorded result is returned at once
            (``from_records``); a larger budget measures only the difference.
        start: a folder of records whose fastest trials of the same program, machine and TVM the search starts from,
            whatever method made them: it breeds from them, learns from them and may return one of them. They are no
            trials of this tuning, whose records are kept apart from those of tunings without a start.
    """

    work_dir: Folder
    tracker: tuple[str, int] | str | None = None
    key: str | None = None
    target: str = "local"
    threads: int | None = None
    trials: int | None = None
    preset: str = "quick"
    method: Method | None = None
    seed: int = 0
    deadline_s: float | None = None
    wait_s: float = 30.0
    session_s: float = 20.0
    records: Folder | None = None
    store: Folder | None = None
    start: Folder | None = None
    scheduler: str = "equal"
    total: int | None = None

    @classmethod
    def of(cls, options: TuningOptions | None, named: dict[str, Any]) -> TuningOptions:
        """``options`` with the fields in ``named`` changed; without ``options`` a value of these fields alone.

        Raises TypeError where a name is no field, or ``work_dir`` is missing.
        """
        return cls(**named) if options is None else replace(options, **named)

    @property
    def board(self) -> Board | None:
        """The device behind the tracker; None: this machine. Raises as :meth:`.Board.of`."""
        return Board.of(self.tracker, self.key)

    def on(self, board: Board | None) -> TuningOptions:
        """These options on ``board``, which has threads of its own; None: on this machine."""
        if board is None:
            return replace(self, tracker=None, key=None)
        return replace(self, tracker=board.address, key=board.key, threads=None)
