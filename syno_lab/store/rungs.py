"""The trainings of a search in rungs: a queue in the store, from which every worker takes the next training.

A *rung* is a way to train an operator, from a cheap proxy to the network itself (successive halving: Jamieson and
Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, AISTATS 2016). A training is one
operator on one rung with one seed. Each training is recorded only once. A training runs again if its process dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syno_lab.errors import StoreError
from syno_lab.inputs import quoted
from syno_lab.store.database import Database
from syno_lab.store.records import finite, from_text, now, to_text
from syno_lab.versioned import JSON

#: The trial number that stands for the network without an operator.
BASELINE = -1
#: The rung of the finals: the network with the full recipe, on all training images, measured on the test images.
FINAL = "final"
#: The part of the plan that trains the best operators of the last rung with more seeds, to choose the finalists,
#: because accuracies differ more between seeds than between good operators. These trainings run on the last rung.
CONFIRM = "confirm"
#: The rung that trains a few batches of the full recipe, to measure how long a training takes.
TIMING = "timing"
#: The part of the plan that measures the times of the finalists and the baseline, after the finals.
TIMES = "times"
#: The part of the plan that trains the rivals of a finalist once each. Such a training has the finalist's number, and
#: its rung is this name with the rival's name behind a colon.
RIVALS = "rivals"
#: The states of a training without an outcome.
WAITING, TAKEN = "waiting", "taken"
#: A training fails after the deaths of this many of its processes.
MOST_DEATHS = 2

_TABLE = "syno_search_rungs"
_COLUMNS = "place, search, number, rung, seed, priority, holder, deaths, state, measure, outcome, ended"
# The SQL texts below contain only names of this module, and no data.
# ruff: noqa: S608
_KEY = "WHERE search=? AND number=? AND rung=? AND seed=?"


@dataclass(frozen=True, slots=True)
class RungTraining:
    """One training of a search in rungs.

    Attributes:
        number: the trial's number; :data:`BASELINE` for the network without an operator.
        rung: the name of the rung.
        seed: the seed of the training.
        priority: trainings with a lower number start first.
        state: ``waiting``, ``taken``, or the outcome's state.
        measure: the value by which the rung ranks operators, higher is better; None without an outcome.
        ended: the time of the end (ISO 8601, UTC); None before the end.
        outcome: the outcome of the training; {} before the end.
    """

    number: int
    rung: str
    seed: int
    priority: int
    state: str
    measure: float | None
    ended: str | None
    outcome: Mapping[str, JSON]

    @property
    def is_ended(self) -> bool:
        """Whether the training has an outcome."""
        return self.state not in (WAITING, TAKEN)

    @property
    def reason(self) -> str:
        """The reason why the training did not finish, in one line; else empty."""
        return str(self.outcome.get("reason") or "")

    @property
    def part(self) -> str:
        """The part of the plan: the rung, for every rival :data:`RIVALS`."""
        return self.rung.partition(":")[0]

    def spent(self, kind: str) -> float:
        """Return the seconds that the training took: ``wall_s``, ``cpu_s`` or ``work_s``; 0 where they are unknown."""
        return finite(self.outcome.get(kind)) or 0.0


class RungLog:
    """The queue of one search, made by ``SearchLog.rungs``. A method that writes returns after the write."""

    def __init__(self, database: Database, key: int) -> None:
        self._database = database
        self._key = key
        self._seen: tuple[int, int] | None = None  # The version of the database when `_known` was read.
        self._known: dict[int, RungTraining] = {}  # The keys are positions in the queue.

    def queue(self, number: int, rung: str, seed: int, priority: int) -> bool:
        """Add a training. If the queue already has the training, do not change its priority, and return False."""
        with self._database.transaction():
            if self._row(number, rung, seed) is not None:
                return False
            (position,) = self._database.column(f"SELECT COALESCE(MAX(place) + 1, 0) FROM {_TABLE}")
            row = (position, self._key, number, rung, seed, priority, "", 0, WAITING, None, "", None)
            self._database.write("INSERT", _TABLE, _COLUMNS, row)
        return True

    def take(self, holder: str) -> RungTraining | None:
        """Assign ``holder`` the oldest waiting training of the lowest priority; return it, or None if none waits."""
        with self._database.transaction():
            query = (
                f"SELECT number, rung, seed FROM {_TABLE} WHERE search=? AND state=? ORDER BY priority, place LIMIT 1"
            )
            rows = self._database.columns(query, (self._key, WAITING))
            if not rows:
                return None
            row = self._row(*rows[0])
            assert row is not None
            self._write((*row[:6], holder, row[7], TAKEN, *row[9:]))
        return _training(row)

    def record(self, one: RungTraining, outcome: Mapping[str, JSON], measure: float | None) -> None:
        """Store the outcome of a training, with its ``state``. The first outcome of a training is final.

        An ``interrupted`` training waits again.

        Raises StoreError where the queue has no such training, or the outcome is not plain data.
        """
        text = to_text(outcome, "outcome")
        with self._database.transaction():
            row = self._row(one.number, one.rung, one.seed)
            if row is None:
                raise StoreError(f"no training of {one.number} on rung {quoted(one.rung)} with seed {one.seed}")
            if row[8] not in (WAITING, TAKEN):
                return
            state = str(outcome.get("state"))
            if state == "interrupted":
                self._write((*row[:6], "", row[7], WAITING, None, "", None))
            else:
                self._write((*row[:8], state, finite(measure), text, now()))

    def release(self, holder: str, *, is_dead: bool = True) -> int:
        """Queue the trainings of ``holder`` again; return their number. A training fails after :data:`MOST_DEATHS`."""
        with self._database.transaction():
            rows = self._database.read(
                _COLUMNS, f"FROM {_TABLE} WHERE search=? AND holder=? AND state=?", (self._key, holder, TAKEN)
            )
            for row in rows:
                deaths = row[7] + is_dead
                if deaths < MOST_DEATHS:
                    self._write((*row[:6], "", deaths, WAITING, None, "", None))
                else:
                    outcome = {"state": "failed", "reason": f"its process died {deaths} times", "accuracy": None}
                    self._write((*row[:7], deaths, "failed", None, to_text(outcome, "outcome"), now()))
        return len(rows)

    def holders(self) -> set[str]:
        """Return the holders of the trainings that are running."""
        query = f"SELECT DISTINCT holder FROM {_TABLE} WHERE search=? AND state=?"
        return set(self._database.column(query, (self._key, TAKEN)))

    def trainings(self, rung: str | None = None) -> list[RungTraining]:
        """Return the trainings of a rung, by default of all rungs, in the order of the queue."""
        values: tuple[object, ...] = (self._key,)
        rest = f"FROM {_TABLE} WHERE search=?"
        if rung is not None:
            rest, values = f"{rest} AND rung=?", (*values, rung)
        return list(map(_training, self._database.read(_COLUMNS, f"{rest} ORDER BY place", values)))

    def current(self) -> list[RungTraining]:
        """Return all trainings, as :meth:`trainings` does, but read only changed rows again, for frequent calls."""
        version = self._database.version()
        if version != self._seen:
            query = f"SELECT place, state FROM {_TABLE} WHERE search=? ORDER BY place"
            states: list[tuple[Any, ...]] = self._database.columns(query, (self._key,))
            for position, state in states:
                if position not in self._known or self._known[position].state != state:
                    rows = self._database.read(_COLUMNS, f"FROM {_TABLE} WHERE place=?", (position,))
                    self._known.update((position, _training(row)) for row in rows)
            self._seen = version
        return list(self._known.values())

    def _row(self, number: int, rung: str, seed: int) -> tuple[Any, ...] | None:
        rows = self._database.read(_COLUMNS, f"FROM {_TABLE} {_KEY}", (self._key, number, rung, seed))
        return rows[0] if rows else None

    def _write(self, row: tuple[Any, ...]) -> None:
        """Replace the row at a position in the queue."""
        self._database.write("REPLACE", _TABLE, _COLUMNS, row)


def _training(row: tuple[Any, ...]) -> RungTraining:
    _, _, number, rung, seed, priority, _, _, state, measure, text, ended = row
    outcome = from_text(text, dict, "an outcome") if text else {}
    return RungTraining(number, rung, seed, priority, state, measure, ended, outcome)
