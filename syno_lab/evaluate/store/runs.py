"""What one experiment has written: its operators, their trainings and their latencies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from syno_lab.errors import StoreError

from .database import Database
from .records import OperatorRecord, State, Trial, finite, to_text, whole
from .studies import Evaluation, Studies

if TYPE_CHECKING:
    import optuna

_OPERATOR = "run, position, fingerprint, operator, flops, params, label, baseline"
_TRAINING = "run, fingerprint, accuracy, result"
_LATENCY = "run, fingerprint, target, binding, count, latency_ms, result"
_BINDING = "run, binding, count"
_PUBLISHED = "run, fingerprint, target, accuracy, latency_ms"


class Run:
    """One experiment in a store, made by `Store.run`. Every method that writes has saved when it returns."""

    def __init__(self, database: Database, studies: Studies, key: int, name: str, settings: str, created: str) -> None:
        self._database = database
        self._studies = studies
        self._key = key
        self._settings = settings
        self.name = name
        self.created = created
        """When the run was first made: ISO 8601, UTC."""

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self._settings})"

    @property
    def settings(self) -> dict[str, Any]:
        """What the run was made with; it cannot change."""
        settings: dict[str, Any] = json.loads(self._settings)
        return settings

    def add_operator(self, record: OperatorRecord) -> bool:
        """Keep an operator; True when it is new.

        An operator with this fingerprint that is there already is kept as it is, except that one added later as the
        baseline makes it the baseline, under the baseline's label.
        """
        values = (
            str(record.fingerprint),
            str(record.operator),
            whole(record.flops, "an operator's FLOPs", 0),
            whole(record.params, "an operator's parameters", 0),
            str(record.label),
            int(record.baseline),
        )
        with self._database.transaction():
            old = self._operator(record.fingerprint)
            if not old:
                query = "SELECT COUNT(*) FROM syno_operators WHERE run=?"
                row = (self._key, *self._database.column(query, (self._key,)), *values)
                self._database.write("INSERT", "syno_operators", _OPERATOR, row)
            elif record.baseline and not old[0][-1]:
                row = (*old[0][:-2], *values[-2:])
                self._database.write("INSERT OR REPLACE", "syno_operators", _OPERATOR, row)
        return not old

    def operators(self) -> list[OperatorRecord]:
        """Return the operators in the order in which they were added."""
        rows = self._database.read(_OPERATOR, "FROM syno_operators WHERE run=? ORDER BY position", (self._key,))
        return [
            OperatorRecord(fingerprint, operator, flops, params, label, bool(baseline))
            for _, _, fingerprint, operator, flops, params, label, baseline in rows
        ]

    def set_bindings(self, bindings: Iterable[tuple[Mapping[str, int], int]]) -> None:
        """Declare the layers that a latency is the sum of: each binding with the number of layers that have it.

        The same binding given twice counts for both. Without a declaration the bindings of the run are all those for
        which any operator has a latency so far, and Optuna is given a trial only when its study is asked for.

        Raises:
            StoreError: other bindings were declared before, or latencies of others are there.

        """
        wanted: Counter[str] = Counter()
        for binding, count in bindings:
            wanted[_binding(binding)] += _count(count)
        if not wanted:
            raise StoreError(f"run {self.name!r}: expected at least one binding")
        with self._database.transaction():
            known = self._declared()
            if known and known != wanted:
                raise StoreError(
                    f"run {self.name!r}: its bindings are {sorted(known.items())}, not {sorted(wanted.items())}"
                )
            for row in self._latencies():
                _expected(self.name, wanted, row[3], row[4])
            for key, number in wanted.items():
                self._database.write("INSERT OR IGNORE", "syno_bindings", _BINDING, (self._key, key, number))
        self.settle()

    def record_training(self, fingerprint: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a training in place of any earlier one.

        `result` holds `accuracy` (a share of 1; None or NaN when the training failed) and whatever else is worth
        keeping, such as the `curve`. Numbers that are not finite come back as None.
        """
        if "accuracy" not in result:
            raise StoreError(f"the training of {fingerprint} has no 'accuracy': it has {sorted(map(str, result))}")
        accuracy = finite(result["accuracy"])
        text = to_text(result, "training")
        with self._database.transaction():
            self._known(fingerprint)
            self._database.write(
                "INSERT OR REPLACE", "syno_trainings", _TRAINING, (self._key, fingerprint, accuracy, text)
            )
        self.settle(fingerprint)

    def training(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of the operator's training, or None when there is none."""
        rows = self._trainings(fingerprint)
        return json.loads(rows[0][3]) if rows else None

    def record_latency(
        self, fingerprint: str, *, target: str, binding: Mapping[str, int], count: int, result: Mapping[str, Any]
    ) -> None:
        """Keep the latency of one layer in place of any earlier one.

        `result` holds `latency_ms` (milliseconds of one layer) and whatever else is worth keeping; `count` is the
        number of layers in the network that have this binding.
        """
        latency = finite(result.get("latency_ms"))
        if latency is None or latency <= 0:
            raise StoreError(
                f"the latency of {fingerprint} on {target}: expected latency_ms in milliseconds above 0, "
                f"found {result.get('latency_ms')!r}"
            )
        key, number, text = _binding(binding), _count(count), to_text(result, "latency")
        with self._database.transaction():
            self._known(fingerprint)
            if declared := self._declared():
                _expected(self.name, declared, key, number)
            row = (self._key, fingerprint, str(target), key, number, latency, text)
            self._database.write("INSERT OR REPLACE", "syno_latencies", _LATENCY, row)
        self.settle(fingerprint)

    def latencies(self, fingerprint: str, target: str) -> list[tuple[dict[str, int], int, dict[str, Any]]]:
        """Return (binding, count, result) of every layer of the operator that has a latency on the target."""
        rows = [row for row in self._latencies(fingerprint) if row[2] == target]
        return [(json.loads(row[3]), row[4], json.loads(row[6])) for row in rows]

    def latency_ms(self, fingerprint: str, target: str) -> float | None:
        """Return the operator's milliseconds in the network: the sum of count times latency over its layers.

        None while one of the run's bindings is missing.
        """
        return self._sums(fingerprint).get((fingerprint, target))

    def is_tuned(self, fingerprint: str, target: str, binding: Mapping[str, int]) -> bool:
        """Say whether the operator has a latency for this binding on this target."""
        rest = "FROM syno_latencies WHERE run=? AND fingerprint=? AND target=? AND binding=?"
        return bool(self._database.read(_LATENCY, rest, (self._key, fingerprint, target, _binding(binding))))

    def targets(self) -> list[str]:
        """Return the targets for which the run has a latency."""
        query = "SELECT DISTINCT target FROM syno_latencies WHERE run=? ORDER BY target"
        return self._database.column(query, (self._key,))

    def trials(self, target: str | None = None) -> list[Trial]:
        """Join all that is known, one trial an operator, in order of insertion.

        Raises:
            StoreError: the run has latencies for several targets and `target` names none of them.

        """
        chosen = self._target(target)
        accuracies = {row[1]: row[2] for row in self._trainings()}
        sums = self._sums()
        trials = []
        for record in self.operators():
            accuracy = accuracies.get(record.fingerprint)
            latency = sums.get((record.fingerprint, chosen)) if chosen is not None else None
            trials.append(
                Trial(
                    fingerprint=record.fingerprint,
                    label=record.label,
                    baseline=record.baseline,
                    accuracy=accuracy,
                    latency_ms=latency,
                    flops=record.flops,
                    params=record.params,
                    operator=record.operator,
                    state=_state(record.fingerprint in accuracies, accuracy, latency),
                )
            )
        return trials

    def study(self, target: str | None = None) -> optuna.Study:
        """Return the Optuna study `<run> @ <target>` over the same file, brought up to date.

        Objectives: accuracy (maximised) and latency_ms (minimised); user attributes: fingerprint, target, label,
        flops, params, baseline.
        """
        chosen = self._target(target)
        if chosen is None:
            raise StoreError(f"run {self.name!r} has no latency yet: name the target of its study")
        self._publish()
        with self._database.exclusive():
            return self._studies.study(self._study_name(chosen))

    def _study_name(self, target: str) -> str:
        return f"{self.name} @ {target}"

    def settle(self, fingerprint: str | None = None) -> None:
        """Give Optuna what is certainly whole: every record does it, and opening a run, for what a kill left undone."""
        if self._declared():
            self._publish(fingerprint)

    def _publish(self, fingerprint: str | None = None) -> None:
        """Give Optuna what is evaluated and not yet given to it, of one operator or of all, by whichever process."""
        if not self._unpublished(fingerprint):
            return
        with self._database.exclusive():
            fresh = self._unpublished(fingerprint)
            for target in sorted({evaluation.target for evaluation in fresh}):
                self._studies.publish(self._study_name(target), [e for e in fresh if e.target == target])
            if fresh:
                with self._database.transaction():
                    for evaluation in fresh:
                        row = (self._key, *evaluation[:4])
                        self._database.write("INSERT OR IGNORE", "syno_published", _PUBLISHED, row)

    def _unpublished(self, fingerprint: str | None) -> list[Evaluation]:
        rest = "FROM syno_published WHERE run=? AND (? IS NULL OR fingerprint=?)"
        rows = self._database.read(_PUBLISHED, rest, (self._key, fingerprint, fingerprint))
        done = {tuple(row[1:]) for row in rows}
        accuracies = {row[1]: row[2] for row in self._trainings(fingerprint) if row[2] is not None}
        whole = [
            (found, target, accuracies[found], latency)
            for (found, target), latency in self._sums(fingerprint).items()
            if found in accuracies
        ]
        fresh = [key for key in whole if key not in done]
        if not fresh:
            return []
        return [Evaluation(*key, **_attributes(self._operator(key[0])[0])) for key in fresh]

    def _target(self, target: str | None) -> str | None:
        targets = self.targets()
        if target is None and len(targets) > 1:
            raise StoreError(f"run {self.name!r} has latencies for several targets: name one of {', '.join(targets)}")
        return target if target is not None or not targets else targets[0]

    def _known(self, fingerprint: str) -> None:
        if not self._operator(fingerprint):
            raise StoreError(f"run {self.name!r} has no operator {fingerprint}: add_operator first")

    def _operator(self, fingerprint: str) -> list[tuple[Any, ...]]:
        rest = "FROM syno_operators WHERE run=? AND fingerprint=?"
        return self._database.read(_OPERATOR, rest, (self._key, fingerprint))

    def _trainings(self, fingerprint: str | None = None) -> list[tuple[Any, ...]]:
        rest = "FROM syno_trainings WHERE run=? AND (? IS NULL OR fingerprint=?)"
        return self._database.read(_TRAINING, rest, (self._key, fingerprint, fingerprint))

    def _latencies(self, fingerprint: str | None = None) -> list[tuple[Any, ...]]:
        rest = "FROM syno_latencies WHERE run=? AND (? IS NULL OR fingerprint=?)"
        return self._database.read(_LATENCY, rest, (self._key, fingerprint, fingerprint))

    def _declared(self) -> dict[str, int]:
        rows = self._database.read(_BINDING, "FROM syno_bindings WHERE run=?", (self._key,))
        return {binding: count for _, binding, count in rows}

    def _sums(self, fingerprint: str | None = None) -> dict[tuple[str, str], float]:
        """Map (fingerprint, target) to the whole latency, where no binding is missing."""
        query = "SELECT DISTINCT binding FROM syno_latencies WHERE run=?"
        needed = sorted(self._declared()) or sorted(self._database.column(query, (self._key,)))
        parts: dict[tuple[str, str], dict[str, float]] = {}
        for _, found, target, binding, count, latency, _ in self._latencies(fingerprint):
            parts.setdefault((found, target), {})[binding] = count * latency
        return {key: sum(part[b] for b in needed) for key, part in parts.items() if part.keys() >= set(needed)}


def _attributes(row: tuple[Any, ...]) -> dict[str, Any]:
    """Name what a trial of Optuna tells of an operator besides its results."""
    *_, flops, params, label, baseline = row
    return {"label": label, "flops": flops, "params": params, "baseline": bool(baseline)}


def _state(trained: bool, accuracy: float | None, latency: float | None) -> State:
    if trained and accuracy is None:
        return "failed"
    if trained:
        return "trained" if latency is None else "done"
    return "waiting" if latency is None else "tuned"


def _binding(binding: Mapping[str, int]) -> str:
    return to_text({name: whole(size, f"the size {name} of a binding", 1) for name, size in binding.items()}, "binding")


def _count(count: int) -> int:
    return whole(count, "the number of layers with a binding", 1)


def _expected(run: str, declared: Mapping[str, int], binding: str, count: int) -> None:
    if declared.get(binding) != count:
        found = f"{count} layers of {binding}"
        raise StoreError(f"run {run!r}: {found} are not among its bindings {sorted(declared.items())}")
