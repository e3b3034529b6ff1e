"""Presets of a tuning: its budget and its search, in three named sizes."""

from __future__ import annotations

from dataclasses import dataclass

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted


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
