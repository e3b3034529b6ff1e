"""What a run of the demo wrote until the demo became a search: its operators, their trainings and their latencies.

Nothing writes runs any more; labs that have some are read.
"""

from __future__ import annotations

from typing import Any

from syno_lab.errors import StoreError
from syno_lab.inputs import QUOTED, printable, quoted

from .entry import Entry
from .records import OperatorRecord, State, Trial, from_text

_OPERATOR = "run, position, fingerprint, operator, flops, params, label, baseline"
_TRAINING = "run, fingerprint, accuracy, result"
_LATENCY = "run, fingerprint, target, binding, count, latency_ms, result"
_BINDING = "run, binding, count"


class Run(Entry):
    """One run in a store, of `Store.runs`."""

    def operators(self) -> list[OperatorRecord]:
        """Return the operators in the order in which they were added."""
        rows = self._database.read(_OPERATOR, "FROM syno_operators WHERE run=? ORDER BY position", (self._key,))
        return [
            OperatorRecord(fingerprint, operator, flops, params, label, bool(baseline))
            for _, _, fingerprint, operator, flops, params, label, baseline in rows
        ]

    def training(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the result of the operator's training, or None when there is none."""
        rows = self._trainings(fingerprint)
        return from_text(rows[0][3], dict, "a training") if rows else None

    def latencies(self, fingerprint: str, target: str) -> list[tuple[dict[str, int], int, dict[str, Any]]]:
        """Return (binding, count, result) of every layer of the operator that has a latency on the target."""
        rows = [row for row in self._latencies(fingerprint) if row[2] == target]
        return [(from_text(row[3], dict, "a binding"), row[4], from_text(row[6], dict, "a latency")) for row in rows]

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

    def _target(self, target: str | None) -> str | None:
        targets = self.targets()
        if target is None and len(targets) > 1:
            known = printable(", ".join(targets), 2 * QUOTED)
            raise StoreError(f"run {quoted(self.name)} has latencies for several targets: name one of {known}")
        return target if target is not None or not targets else targets[0]

    def _trainings(self, fingerprint: str | None = None) -> list[tuple[Any, ...]]:
        rest = "FROM syno_trainings WHERE run=? AND (? IS NULL OR fingerprint=?)"
        return self._database.read(_TRAINING, rest, (self._key, fingerprint, fingerprint))

    def _latencies(self, fingerprint: str | None = None) -> list[tuple[Any, ...]]:
        rest = "FROM syno_latencies WHERE run=? AND (? IS NULL OR fingerprint=?)"
        return self._database.read(_LATENCY, rest, (self._key, fingerprint, fingerprint))

    def _bindings(self) -> list[str]:
        """What a latency is the sum over, where the run said so: its layers' bindings."""
        rows = self._database.read(_BINDING, "FROM syno_bindings WHERE run=?", (self._key,))
        return [binding for _, binding, _ in rows]

    def _sums(self) -> dict[tuple[str, str], float]:
        """Map (fingerprint, target) to the whole latency, where no binding is missing."""
        query = "SELECT DISTINCT binding FROM syno_latencies WHERE run=?"
        needed = sorted(self._bindings()) or sorted(self._database.column(query, (self._key,)))
        parts: dict[tuple[str, str], dict[str, float]] = {}
        for _, found, target, binding, count, latency, _ in self._latencies():
            parts.setdefault((found, target), {})[binding] = count * latency
        return {key: sum(part[b] for b in needed) for key, part in parts.items() if part.keys() >= set(needed)}


def _state(trained: bool, accuracy: float | None, latency: float | None) -> State:
    if trained and accuracy is None:
        return "failed"
    if trained:
        return "trained" if latency is None else "done"
    return "waiting" if latency is None else "tuned"
