"""How much a tuning costs and how it searches, in three named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from syno_lab.errors import TuningError


class Budget(TypedDict, total=False):
    """What each of a network's tunings may cost; what is left out is as in
    :func:`~syno_lab.evaluate.tuning.tune.tune` (a function) or ``tune_queue`` (all layers).

    ``trials`` are those of each function or layer, the ``preset``'s unless given; ``deadline_s`` is in seconds.
    """

    trials: int | None
    preset: str
    seed: int
    deadline_s: float


@dataclass(frozen=True)
class Effort:
    """How a candidate is timed: ``repeat`` samples, each of at least ``min_ms`` milliseconds of calls."""

    repeat: int
    min_ms: int


@dataclass(frozen=True)
class Preset:
    """A way to search.

    ``trials`` candidates are measured unless told otherwise, ``batch`` at a time. The first ``warmup`` are random,
    before the cost model knows anything; then each batch is picked from a ``population`` that is bred for
    ``generations``. ``search`` is the effort for each candidate, ``final`` that for the ``finalists``, which are
    measured again: the least of many noisy numbers is not the best candidate.
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
    """Seconds that are enough for ``trials`` of each operator: one has been seen to take 12 on a busy machine."""
    return 600.0 + 15.0 * trials * operators


def find_preset(name: str) -> Preset:
    """The preset of that name. Raises :class:`TuningError`."""
    if name not in PRESETS:
        raise TuningError(f"expected a preset among {', '.join(PRESETS)}, found {name!r}")
    return PRESETS[name]
