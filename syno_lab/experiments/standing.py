"""The summary of a search: trials by outcome, trials an hour, the best operator within each share of the FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from syno_lab.reports.searched import NOT_SAID, Outcome, Point, Searched

#: Shares of the replaced layers' FLOPs; a result names the best operator within each share.
SHARES = {"replaced_0.4": 0.4, "replaced_0.25": 0.25}
#: Shares of the whole network's FLOPs, for searches of whole networks.
NETWORK_SHARES = {"half": 0.5, "quarter": 0.25}


@dataclass
class Times:
    """The time of a search by purpose, in seconds, summed over all its processes.

    Attributes:
        search_s: wall seconds from the start of the first trial to the end of the last trial.
        asking_s: wall seconds for preparing the search, choosing operators and learning from outcomes.
        store_s: wall seconds for writing the store and the search files, and for submitting trainings.
        held_s: overhead in worker seconds. Each worker that waits for the search or the store counts its wall seconds.
            If no worker waits, CPU seconds of search and store count, as trainings may lose them.
    """

    search_s: float = 0.0
    asking_s: float = 0.0
    store_s: float = 0.0
    held_s: float = 0.0


class Best(Point, frozen=True, kw_only=True):
    """A finished trial; ``known``: the operator's name, if the search began with the operator."""

    number: int
    accuracy: float


class Standing:
    """Counts and best trials of one search.

    Args:
        baseline_flops: FLOPs of the network without an operator.
        workers: the number of trainings at a time.
        replaced_flops: FLOPs of the replaced layers, if shares refer to these; None: shares of the network's FLOPs.

    Attributes:
        shares: shares of FLOPs, by their names in a result; the result has the best operator within each share.
    """

    def __init__(self, baseline_flops: int, workers: int, replaced_flops: int | None = None) -> None:
        self._baseline_flops = baseline_flops
        self._replaced_flops = replaced_flops
        self.shares = NETWORK_SHARES if replaced_flops is None else SHARES
        self._workers = workers
        self.states: Counter[str] = Counter()
        self.training_s = 0.0
        self.last_reason = ""
        self._finished: list[Best] = []
        self._rewards: dict[int, float] = {}

    def add(
        self,
        number: int,
        flops: int,
        params: int,
        outcome: Outcome,
        known: str | None = None,
        reward: float | None = None,
    ) -> None:
        """Count a trial that has ended.

        ``known`` is the operator's name if the search began with the operator. ``reward`` decides the best operator;
        None: the accuracy.
        """
        self.states[outcome.state] += 1
        self.training_s += outcome.wall_s or 0.0
        accuracy = outcome.trained
        if accuracy is not None:
            self._rewards[number] = accuracy if reward is None else reward
            self._finished.append(
                Best(
                    number=number,
                    accuracy=accuracy,
                    flops_ratio=flops / self._baseline_flops,
                    replaced_ratio=self.replaced_ratio(flops),
                    params=params,
                    known=known,
                    system=NOT_SAID,
                )
            )
        elif outcome.state not in ("finished", "pruned"):
            self.last_reason = f"trial {number}: {outcome.state}: {outcome.reason or 'no reason given'}"

    def replaced_ratio(self, flops: int) -> float | None:
        """Return the share of the replaced layers' FLOPs; None if shares refer to the network's FLOPs."""
        return None if self._replaced_flops is None else 1 - (self._baseline_flops - flops) / self._replaced_flops

    @property
    def total(self) -> int:
        """The number of trials that have ended."""
        return self.states.total()

    def best(self, share: float) -> Best | None:
        """Return the first discovered operator with the highest reward within a share of the FLOPs."""
        return self._best(b for b in self._finished if b.known is None and b.ratio <= share)

    @property
    def known(self) -> list[Best]:
        """The known operators whose trials have finished, in the order of their trials."""
        return sorted((b for b in self._finished if b.known is not None), key=lambda b: b.number)

    @property
    def best_known(self) -> Best | None:
        """The known operator with the highest reward."""
        return self._best(self.known)

    def _best(self, candidates: Iterable[Best]) -> Best | None:
        return max(candidates, key=lambda best: self._rewards[best.number], default=None)

    def said(self, times: Times) -> Searched:
        """Return the data about the trials for the search files; ``times`` is part of these data."""
        total = self.total
        workers_s = self._workers * times.search_s
        return Searched(
            trials=total,
            states=dict(self.states),
            trials_per_hour=3600 * total / times.search_s if times.search_s else 0.0,
            pruned_share=self.states["pruned"] / total if total else 0.0,
            best={name: self.best(share) for name, share in self.shares.items()},
            known=list(self.known),
            search_s=times.search_s,
            training_s=self.training_s,
            asking_s=times.asking_s,
            store_s=times.store_s,
            held_s=times.held_s,
            overhead_s_per_trial=times.held_s / total if total else 0.0,
            overhead_share=times.held_s / self.training_s if self.training_s else 0.0,
            idle_share=max(0.0, 1 - self.training_s / workers_s) if workers_s else 0.0,
            last_failure=self.last_reason,
        )

    def line(self, times: Times) -> str:
        """Return the summary in one line of text."""
        total = self.total
        speed = 3600 * total / times.search_s if times.search_s else 0.0
        parts = [f"{total} trials, {speed:.0f} an hour"]
        if total:
            parts.append(f"{self.states['pruned'] / total:.0%} pruned")
        for share in self.shares.values():
            best = self.best(share)
            if best is not None:
                parts.append(f"best within {share:g}: {best.accuracy:.4f} at {best.ratio:.2f} (trial {best.number})")
        if self.best_known is not None:
            parts.append(f"best known: {self.best_known.accuracy:.4f} ({self.best_known.known})")
        if self.last_reason:
            parts.append(self.last_reason)
        return "; ".join(parts)


def share_text(name: str) -> str:
    """Return the words for a name in :data:`SHARES` or :data:`NETWORK_SHARES`."""
    return f"{SHARES[name]:g} of the replaced FLOPs" if name in SHARES else f"{NETWORK_SHARES[name]:g} of the FLOPs"
