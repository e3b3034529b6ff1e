"""The trainings of a search in rungs: a queue in the store, from which every worker takes the next one.

A *rung* is a way to train an operator, from a cheap proxy to the network itself (successive halving: Jamieson and
Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, AISTATS 2016). A training is one
operator on one rung with one seed. It is recorded once; one that was taken by a process that died is given out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from syno_lab.errors import StoreError
from syno_lab.inputs import quoted
from syno_lab.store.database import Database
from syno_lab.store.records import finite, from_text, to_text
from syno_lab.versioned import JSON

#: The number that stands for the network without an operator.
BASELINE = -1
#: The finals: the network with the full recipe, on all training images, measured on the test images.
FINAL = "final"
#: The best of the last rung on more seeds, of which the finalists are chosen: two trainings of one operator differ by
#: more than two good operators do. A part of the plan and a stage of the funnel; its trainings are of the last rung.
CONFIRM = "confirm"
#: The first batches of the full recipe, which tell how long it takes.
TIMING = "timing"
#: States of a training without an outcome.
WAITING, TAKEN = "waiting", "taken"
#: Processes that may die over one training before it counts as failed.
MOST_DEATHS = 2

_TABLE = "syno_search_rungs"
_COLUMNS = "place, search, number, rung, seed, priority, holder, deaths, state, measure, outcome, ended"
# The texts below are put together of our own names, never of anybody's data.
# ruff: noqa: S608
_KEY = "WHERE search=? AND number=? AND rung=? AND seed=?"


@dataclass(frozen=True, slots=True)
class RungTraining:
    """One training of a search in rungs.

    Attributes:
        number: the trial's; :data:`BASELINE` for the network without an operator.
        rung: the name of the rung.
        seed: of the training.
        priority: lower ones are taken first.
        state: ``waiting``, ``taken``, or the outcome's.
        measure: what the rung ranks by, higher is better; None without an outcome.
        ended: when (ISO 8601, UTC); None before.
        outcome: all that the training gave; {} before it has ended.
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
        """Whether it has an outcome."""
        return self.state not in (WAITING, TAKEN)

    @property
    def reason(self) -> str:
        """Why it did not finish, in one line; empty where nothing is said."""
        return str(self.outcome.get("reason") or "")

    def spent(self, kind: str) -> float:
        """Seconds that it took: ``wall_s``, ``cpu_s`` or ``work_s``; 0 where they are not known."""
        return finite(self.outcome.get(kind)) or 0.0


class RungLog:
    """The queue of one search, made by ``SearchLog.rungs``. Every method that writes has saved when it returns."""

    def __init__(self, database: Database, key: int) -> None:
        self._database = database
        self._key = key
        self._seen: tuple[int, int] | None = None  # the database's version of what is below
        self._known: dict[int, RungTraining] = {}  # by their place in the queue

    def queue(self, number: int, rung: str, seed: int, priority: int) -> bool:
        """Add a training; False where the queue has it already (its priority stays)."""
        with self._database.transaction():
            if self._row(number, rung, seed) is not None:
                return False
            (place,) = self._database.column(f"SELECT COALESCE(MAX(place) + 1, 0) FROM {_TABLE}")
            row = (place, self._key, number, rung, seed, priority, "", 0, WAITING, None, "", None)
            self._database.write("INSERT", _TABLE, _COLUMNS, row)
        return True

    def take(self, holder: str) -> RungTraining | None:
        """Give ``holder`` the waiting training of the lowest priority, the first of equals; None where none waits."""
        with self._database.transaction():
            query = (
                f"SELECT number, rung, seed FROM {_TABLE} WHERE search=? AND state=? ORDER BY priority, place LIMIT 1"
            )
            found = self._database.columns(query, (self._key, WAITING))
            if not found:
                return None
            row = self._row(*found[0])
            assert row is not None
            self._write((*row[:6], holder, row[7], TAKEN, *row[9:]))
        return _training(row)

    def record(self, one: RungTraining, outcome: Mapping[str, JSON], measure: float | None) -> None:
        """Keep the outcome of a training, with its ``state``; one that has an outcome keeps the first.

        An ``interrupted`` one waits again.

        Raises StoreError: the queue has no such training, or the outcome is no plain data.
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
                self._write((*row[:8], state, finite(measure), text, _now()))

    def release(self, holder: str, *, is_dead: bool = True) -> int:
        """Give out again what ``holder`` had taken, and return how many; after :data:`MOST_DEATHS` it has failed."""
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
                    self._write((*row[:7], deaths, "failed", None, to_text(outcome, "outcome"), _now()))
        return len(rows)

    def holders(self) -> set[str]:
        """Who has taken a training that has not ended."""
        query = f"SELECT DISTINCT holder FROM {_TABLE} WHERE search=? AND state=?"
        return set(self._database.column(query, (self._key, TAKEN)))

    def trainings(self, rung: str | None = None) -> list[RungTraining]:
        """Return the trainings, or those of a rung, in the order of queueing."""
        given: tuple[object, ...] = (self._key,)
        rest = f"FROM {_TABLE} WHERE search=?"
        if rung is not None:
            rest, given = f"{rest} AND rung=?", (*given, rung)
        return list(map(_training, self._database.read(_COLUMNS, f"{rest} ORDER BY place", given)))

    def current(self) -> list[RungTraining]:
        """As :meth:`trainings`, for whoever asks many times a second: only rows that changed are read again."""
        version = self._database.version()
        if version != self._seen:
            query = f"SELECT place, state FROM {_TABLE} WHERE search=? ORDER BY place"
            states: list[tuple[Any, ...]] = self._database.columns(query, (self._key,))
            for place, state in states:
                if place not in self._known or self._known[place].state != state:
                    rows = self._database.read(_COLUMNS, f"FROM {_TABLE} WHERE place=?", (place,))
                    self._known.update((place, _training(row)) for row in rows)
            self._seen = version
        return list(self._known.values())

    def _row(self, number: int, rung: str, seed: int) -> tuple[Any, ...] | None:
        rows = self._database.read(_COLUMNS, f"FROM {_TABLE} {_KEY}", (self._key, number, rung, seed))
        return rows[0] if rows else None

    def _write(self, row: tuple[Any, ...]) -> None:
        """Replace a row by its place in the queue."""
        self._database.write("REPLACE", _TABLE, _COLUMNS, row)


def _training(row: tuple[Any, ...]) -> RungTraining:
    _, _, number, rung, seed, priority, _, _, state, measure, text, ended = row
    outcome = from_text(text, dict, "an outcome") if text else {}
    return RungTraining(number, rung, seed, priority, state, measure, ended, outcome)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
