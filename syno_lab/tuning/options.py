"""The options of a tuning as one value, for an operator, a queue, a job or the functions of a network; presets."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.tuning.board import Board
from syno_lab.tuning.method import Method

Folder = str | os.PathLike[str]
#: The ways to share the trials of a queue: equally, or more for operators that promise to save more time.
SCHEDULERS = ("equal", "gradient")


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement: ``repeat`` samples, each of at least ``min_ms`` milliseconds of calls."""

    repeat: int
    min_ms: int


@dataclass(frozen=True)
class Preset:
    """A preset: the numbers that decide how long a search takes.

    ``trials`` candidates are measured by default, ``batch`` at a time. The first ``warmup`` candidates are random,
    because the cost model has no data yet. Later batches are chosen from a ``population`` that is mutated for
    ``generations``. ``search`` is the effort for each candidate. ``final`` is the effort for the best candidates, the
    ``finalists``, which are measured again, because the least of many noisy times is not always the best candidate.
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


# With TVM's population of 512 and 4 generations, the mutations alone take 30 seconds for 32 trials. TVM's cost model
# predicts at random until it has 100 candidates, and a tuning may have only 16 candidates.
PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("quick", "about a minute: is it worth more?", 16, 64, 2, 16, 16, Effort(3, 10), Effort(12, 15), 3),
        Preset("normal", "several minutes: enough to compare", 96, 128, 3, 16, 16, Effort(3, 15), Effort(15, 20), 5),
        Preset("thorough", "tens of minutes: to be published", 512, 512, 4, 32, 32, Effort(5, 30), Effort(20, 30), 8),
    )
}


def enough_s(trials: int, operators: int = 1) -> float:
    """Return a deadline in seconds for ``trials`` of each operator; a trial took up to 12 seconds on a busy machine."""
    return 600.0 + 15.0 * trials * operators


def find_preset(name: str) -> Preset:
    """Return the preset with this name. Raises :class:`TuningError`."""
    if name not in PRESETS:
        raise TuningError(f"expected a preset among {', '.join(PRESETS)}, found {quoted(name)}")
    return PRESETS[name]


class Budget(TypedDict, total=False):
    """The tuning of each function of a network: fields of :class:`TuningOptions`, with the same defaults.

    ``board``: the device of the network; None: this machine.
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
    """The options of :func:`~syno_lab.tuning.tune.tune` and :func:`~syno_lab.tuning.tune.tune_queue`.

    Attributes:
        work_dir: the folder for the log; the log is named after the operator's label.
        tracker: the RPC tracker that has the device, as ``(host, port)`` or ``"host:port"``; None: this machine. On
            this machine each candidate runs in its own child process, without a tracker, server or socket that another
            user could reach.
        key: the key under which the device is registered at the tracker; all devices under the key are used at once.
            Set ``tracker`` and ``key`` together, or neither.
        target: a name that :func:`~syno_lab.codegen.target_names.describe` reads.
        threads: the threads for operators on this machine; None: the number in ``target``, else all processors. A board
            has its own number of threads.
        trials: candidates to measure for each operator; None: the preset's number.
        scheduler: how operators share the trials, one of :data:`SCHEDULERS`. With ``gradient``, each turn is for the
            operator that promises to save the most time (:attr:`~syno_lab.tuning.values.TuningTask.calls` x
            milliseconds), by TVM's own task scheduler. With ``gradient``, ``trials`` is an average.
        total: candidates to measure for all operators together; None: ``trials`` for each.
        preset: how long the search takes, one of :data:`PRESETS`.
        method: the space, rules, strategy and cost model, with the user's own code; None: ``Method()``. Different
            methods have different records.
        seed: the search's seed.
        deadline_s: seconds for the whole tuning; None: 900 for one operator, 3600 for a queue. The search ends after
            four fifths of this time, before the final measurements.
        wait_s: the longest wait for a busy device or an unreachable tracker, in seconds.
        session_s: the longest time in seconds that a candidate may occupy a device, including the upload.
        records: a folder to which the schedules are exported as MetaSchedule's own database, for compiling with them
            later (:func:`save_library <syno_lab.codegen.library.save_library>`, :mod:`syno_lab.tuning.network`).
        store: a folder of records (:mod:`~syno_lab.tuning.records`). Every trial is written to the folder before
            ``on_progress`` is called; an interrupted tuning continues from it. If the folder has all trials for this
            operator, sizes, dtype, target, TVM and board conditions, the recorded result is returned at once
            (``from_records``). For a larger budget, only the additional trials are measured.
        start: a folder of records with trials of this program, machine and TVM by any method. The search starts from
            the fastest of these trials: it mutates them, learns from them, and may return one. Trials in this folder do
            not count as trials of this tuning. The use of ``start`` changes the records' key.
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
        """Return ``options`` with the changes in ``named``; without ``options``, return the options in ``named``.

        Raises TypeError for a name that is not a field, or if ``work_dir`` is missing.
        """
        return cls(**named) if options is None else replace(options, **named)

    @property
    def board(self) -> Board | None:
        """The device behind the tracker; None: this machine. Raises as :meth:`.Board.of`."""
        return Board.of(self.tracker, self.key)

    def on(self, board: Board | None) -> TuningOptions:
        """Return the options for ``board``, which has its own number of threads; None: for this machine."""
        if board is None:
            return replace(self, tracker=None, key=None)
        return replace(self, tracker=board.address, key=board.key, threads=None)
