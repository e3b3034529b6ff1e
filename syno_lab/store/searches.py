"""The trials of one search in the store. Each trial is recorded exactly once, even if a process is killed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from syno_lab.errors import StoreError
from syno_lab.inputs import quoted
from syno_lab.protocol import SearchStep
from syno_lab.store.pareto import AXES, pareto_front
from syno_lab.versioned import JSON

from .database import Database
from .records import decoded, finite, from_text, now, to_text, whole
from .rungs import RungLog

#: States of a trial without a final outcome. An interrupted trial may get another outcome later.
WAITING, INTERRUPTED = "waiting", "interrupted"

_TRIAL = "search, number, fingerprint, operator, steps, flops, params, created"
_OUTCOME = "search, number, position, state, accuracy, reward, job, outcome, ended"
_LATENCY = "search, number, target, latency_ms, result"
_LAYERS = "search, number, sizes"
_FINISHED = (
    "SELECT number, accuracy, flops, params FROM syno_search_outcomes JOIN syno_search_trials USING (search, number) "
    "WHERE search=? AND state='finished' AND accuracy IS NOT NULL ORDER BY number"
)
_STEPS = msgspec.json.Decoder(tuple[SearchStep, ...])


class LayerSizes(msgspec.Struct, frozen=True):
    """The layers of one size: the name of the first, their number, and the sizes of the operator's variables there."""

    name: str
    number: int
    binding: dict[str, int]


Layers: TypeAlias = tuple[LayerSizes, ...]
_SIZES = msgspec.json.Decoder(Layers)


class _Gist(msgspec.Struct):
    """The fields of an outcome that a list of trials shows. The other fields are long and are not decoded."""

    reason: str | None = None
    wall_s: float | None = None
    cpu_s: float | None = None


class _Named(msgspec.Struct):
    """The fields of a step that a list of trials shows."""

    name: str
    steps: int


_GIST = msgspec.json.Decoder(_Gist)
_NAMED = msgspec.json.Decoder(tuple[_Named, ...])


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A trial: an operator of a search, with the outcome of its evaluation.

    Attributes:
        number: the trial's number in the order of proposal, from 0 on.
        fingerprint: the operator's fingerprint, unique in a search.
        operator: the operator's JSON.
        steps: the names of the search's steps, in order; ``lengths``: how many steps of the operator each contains.
        flops: the FLOPs of the whole backbone with the operator.
        params: the parameters of the whole backbone with the operator.
        created: the time of proposal (ISO 8601, UTC).
        state: ``waiting``, or the outcome's state.
        reason: the reason for the state, in one line.
        accuracy: the accuracy as a share of 1; None without an outcome.
        reward: the reward that the search has received for the trial, from 0 to 1; None before that.
        position: the position of the reward in the order of all rewards in the store; None before the reward.
        job: the number of the job that evaluated the trial.
        wall_s: the seconds of the evaluation.
        cpu_s: the processor seconds of the evaluation.
        ended: the time of the end (ISO 8601, UTC).
    """

    number: int
    fingerprint: str
    operator: str
    steps: tuple[str, ...]
    lengths: tuple[int, ...]
    flops: int
    params: int
    created: str
    state: str
    reason: str
    accuracy: float | None
    reward: float | None
    position: int | None
    job: int | None
    wall_s: float
    cpu_s: float
    ended: str | None
    _outcome: str | None

    @property
    def outcome(self) -> dict[str, JSON] | None:
        """The complete outcome of the evaluation; None while the trial waits."""
        return None if self._outcome is None else from_text(self._outcome, dict, "an outcome")


class SearchLog:
    """One search in a store, made by `Store.search`. A method that writes returns after the data are saved."""

    def __init__(self, database: Database, key: int, name: str, settings: str, created: str) -> None:
        self._database = database
        self._key = key
        self._settings = settings
        self.name = name
        self.created = created
        """The time of creation: ISO 8601, UTC."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._settings})"

    @property
    def settings(self) -> dict[str, JSON]:
        """The settings of the search; they never change."""
        return from_text(self._settings, dict, "settings")

    @property
    def rungs(self) -> RungLog:
        """The queue of the search's trainings, for a search in rungs."""
        return RungLog(self._database, self._key)

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(
        self, fingerprint: str, operator: str, steps: Iterable[SearchStep], flops: int, params: int, sizes: Layers = ()
    ) -> int:
        """Store an operator to evaluate and return its number. An operator that was stored before keeps its number.

        ``steps`` are the steps that built the operator, ``sizes`` the sizes of its layers in the network.

        Raises StoreError where a count is not a whole number.
        """
        texts = str(fingerprint), str(operator), msgspec.json.encode(list(steps)).decode()
        counts = whole(flops, "a trial's FLOPs", 0), whole(params, "a trial's parameters", 0)
        with self._database.transaction():
            query = "SELECT number FROM syno_search_trials WHERE search=? AND fingerprint=?"
            if known := self._database.column(query, (self._key, fingerprint)):
                return int(known[0])
            query = "SELECT COALESCE(MAX(number) + 1, 0) FROM syno_search_trials WHERE search=?"
            (number,) = self._database.column(query, (self._key,))
            row = (self._key, number, *texts, *counts, now())
            self._database.write("INSERT", "syno_search_trials", _TRIAL, row)
            if sizes:
                layers = (self._key, number, msgspec.json.encode(sizes).decode())
                self._database.write("INSERT", "syno_search_layers", _LAYERS, layers)
        return int(number)

    def record(
        self, number: int, outcome: Mapping[str, JSON], job: int | None = None, *, reward: float | None = None
    ) -> bool:
        """Store the outcome of a trial that has no final outcome; return whether the search gets the reward now.

        `outcome` has a `state` (not ``waiting``) and any other data, among them `accuracy`, `reason`, `wall_s` and
        `cpu_s`. The search receives `reward`: by default the accuracy, or 0 without an accuracy. The search receives no
        reward for an ``interrupted`` outcome, and a later outcome may replace it.

        Raises StoreError where the trial or the state is missing, the reward is outside [0, 1], or data are not plain.
        """
        state = outcome.get("state")
        if not isinstance(state, str) or state in ("", WAITING):
            raise StoreError(
                f"trial {number} of search {quoted(self.name)}: expected the state of an outcome, found {quoted(state)}"
            )
        accuracy = finite(outcome.get("accuracy"))
        stored_reward = (accuracy or 0.0) if reward is None else finite(reward)
        if stored_reward is None or not 0 <= stored_reward <= 1:
            raise StoreError(
                f"trial {number} of search {quoted(self.name)}: expected a reward from 0 to 1, found {quoted(reward)}"
            )
        text = to_text(outcome, "outcome")
        try:
            _GIST.decode(text)
        except msgspec.ValidationError as error:
            raise StoreError(f"trial {number} of search {quoted(self.name)}: {error}") from error
        with self._database.transaction():
            if not self._database.column(
                "SELECT 1 FROM syno_search_trials WHERE search=? AND number=?", (self._key, number)
            ):
                raise StoreError(f"search {quoted(self.name)} has no trial {number}: add it first")
            query = "SELECT state FROM syno_search_outcomes WHERE search=? AND number=?"
            old = self._database.column(query, (self._key, number))
            if old and old[0] != INTERRUPTED:
                return False
            # Rows are in the order of the rewards, so the last row with a reward has the highest position.
            query = "SELECT position FROM syno_search_outcomes WHERE position>=0 ORDER BY rowid DESC LIMIT 1"
            last = next(iter(self._database.column(query)), -1)
            position = -1 if state == INTERRUPTED else last + 1
            row = (self._key, number, position, state, accuracy, stored_reward, job, text, now())
            self._database.write("INSERT OR REPLACE", "syno_search_outcomes", _OUTCOME, row)
        return state != INTERRUPTED

    def record_latency(self, number: int, target: str, result: Mapping[str, JSON]) -> None:
        """Store the latency of a trial on a target: `latency_ms` in milliseconds, and any other data.

        All latencies on one `target` are of one kind: :mod:`syno_lab.store.latencies` names the kinds.

        Raises StoreError where there is no such trial, or no latency above 0.
        """
        latency = finite(result.get("latency_ms"))
        if latency is None or latency <= 0:
            raise StoreError(
                f"trial {number} on {target}: expected latency_ms in milliseconds above 0, "
                f"found {quoted(result.get('latency_ms'))}"
            )
        text = to_text(result, "latency")
        with self._database.transaction():
            self._one(number)
            row = (self._key, number, str(target), latency, text)
            self._database.write("INSERT OR REPLACE", "syno_search_latencies", _LATENCY, row)

    # -- reading -----------------------------------------------------------------------------------------------------

    def trials(self) -> list[SearchTrial]:
        """Return all trials in the order of proposal."""
        rest = "WHERE search=?"
        trials = self._database.read(_TRIAL, f"FROM syno_search_trials {rest} ORDER BY number", (self._key,))
        outcomes = self._database.read(_OUTCOME, f"FROM syno_search_outcomes {rest}", (self._key,))
        ended = {row[1]: row for row in outcomes}
        return [_trial(row, ended.get(row[1])) for row in trials]

    def trial(self, number: int) -> SearchTrial:
        """Return one trial. Raises StoreError where no trial has this number."""
        return self._one(number)

    def sizes(self) -> dict[int, Layers]:
        """Return the sizes of each trial's layers, the most FLOPs first; nothing for trials without stored sizes."""
        rows = self._database.read(_LAYERS, "FROM syno_search_layers WHERE search=?", (self._key,))
        return {row[1]: decoded(row[2], _SIZES, "sizes") for row in rows}

    def taken(self) -> dict[int, tuple[SearchStep, ...]]:
        """Return the steps that built each trial's operator, by the trial's number, in the order of proposal."""
        rows = self._database.read(_TRIAL, "FROM syno_search_trials WHERE search=? ORDER BY number", (self._key,))
        return {row[1]: decoded(row[4], _STEPS, "steps") for row in rows}

    def latencies(self, target: str) -> dict[int, dict[str, JSON]]:
        """Return the stored latency data on a target, by the number of the trial."""
        return {row[1]: from_text(row[4], dict, "a latency") for row in self._measured(target)}

    def milliseconds(self, target: str) -> dict[int, float]:
        """Return the latencies on a target in milliseconds, by the number of the trial."""
        return {row[1]: row[3] for row in self._measured(target)}

    def _measured(self, target: str) -> list[tuple[Any, ...]]:
        rest = "FROM syno_search_latencies WHERE search=? AND target=?"
        return self._database.read(_LATENCY, rest, (self._key, target))

    def told(self) -> list[tuple[str, float]]:
        """Return pairs (operator's JSON, reward) in the order in which the search received the rewards."""
        rest = "FROM syno_search_outcomes WHERE search=? AND position>=0 ORDER BY position"
        outcomes = self._database.read(_OUTCOME, rest, (self._key,))
        trials = self._database.read(_TRIAL, "FROM syno_search_trials WHERE search=?", (self._key,))
        operators = {row[1]: row[3] for row in trials}
        return [(operators[row[1]], row[5]) for row in outcomes]

    def front(self, axes: Sequence[str] = ("accuracy", "flops"), target: str | None = None) -> list[SearchTrial]:
        """Return the trials that no other trial beats on axes of `syno_lab.store.pareto.AXES`, in order of proposal.

        Trials whose training did not finish are ignored. ``latency_ms`` is the latency on `target`.

        Raises StoreError where an axis is unknown, or where latency is an axis but no target is named.
        """
        if unknown := [name for name in axes if name not in AXES]:
            raise StoreError(f"no axis {quoted(unknown[0])}: expected one of {', '.join(AXES)}")
        if "latency_ms" in axes and target is None:
            raise StoreError("a front in latency needs the target that it was measured on")
        # Read only numbers here, because the digests cover complete rows with long texts. The rows of the front are
        # read in full below.
        latencies = self.milliseconds(target) if target is not None else {}
        points = [
            {
                "number": number,
                "accuracy": accuracy,
                "flops": flops,
                "params": params,
                "latency_ms": latencies.get(number),
            }
            for number, accuracy, flops, params in self._database.columns(_FINISHED, (self._key,))
        ]
        most, least = ([name for name in axes if AXES[name].maximise is side] for side in (True, False))
        return [self._one(points[index]["number"]) for index in pareto_front(points, maximise=most, minimise=least)]

    # -- for other programs ------------------------------------------------------------------------------------------

    def publish(self, url: str) -> int:
        """Add the missing trials to an Optuna storage (``sqlite:///…``, ``postgresql://…``, ``mysql://…``).

        The study has the search's name, with accuracy (maximised) and FLOPs (minimised) as objectives. The study is for
        Optuna's dashboard and samplers; the lab never reads it. Trials without accuracy are added as failed.

        Returns:
            The number of added trials.

        Raises StoreError where the storage cannot be reached or written.
        """
        from .studies import publish_search

        return publish_search(url, self.name, [trial for trial in self.trials() if trial.state != WAITING])

    def _one(self, number: int) -> SearchTrial:
        key = (self._key, number)
        rows = self._database.read(_TRIAL, "FROM syno_search_trials WHERE search=? AND number=?", key)
        if not rows:
            raise StoreError(f"search {quoted(self.name)} has no trial {number}: add it first")
        ended = self._database.read(_OUTCOME, "FROM syno_search_outcomes WHERE search=? AND number=?", key)
        return _trial(rows[0], ended[0] if ended else None)


def _trial(row: tuple[Any, ...], ended: tuple[Any, ...] | None) -> SearchTrial:
    _, number, fingerprint, operator, steps, flops, params, created = row
    built = decoded(steps, _NAMED, "steps")
    names, lengths = tuple([step.name for step in built]), tuple([step.steps for step in built])
    known = (number, fingerprint, operator, names, lengths, flops, params, created)
    if ended is None:
        return SearchTrial(*known, WAITING, "", None, None, None, None, 0.0, 0.0, None, None)
    _, _, position, state, accuracy, reward, job, text, when = ended
    gist = decoded(text, _GIST, "an outcome")
    order, final_reward = (None, None) if position < 0 else (position, reward)
    times = (gist.wall_s or 0.0, gist.cpu_s or 0.0)
    return SearchTrial(*known, state, gist.reason or "", accuracy, final_reward, order, job, *times, when, text)
