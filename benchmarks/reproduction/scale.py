"""What each part of a reproduction does, and how long it takes: hours are shared among the parts before any runs.

A part takes its share of the hours, or the least with which its figure says anything. Parts that end by the clock take
that share; those that count (candidates, batches) get numbers from what a candidate or a batch takes here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

#: The parts in the order in which they run, and their shares of the hours.
SHARES = {
    "table-2": 0.05,
    "distance": 0.05,
    "layers": 0.20,
    "text-search": 0.08,
    "text": 0.14,
    "search": 0.20,
    "accuracy": 0.16,
    "networks": 0.12,
}
PARTS = tuple(SHARES)
#: Seconds that a candidate of a tuning takes: the median of a quiet machine with two cores is 0.3 to 0.7, and 1.1 to
#: 2.0 beside other work.
CANDIDATE_S = 0.8
#: Operators train slower than the convolutions that they replace (:data:`..plan.SLOWER`).
SLOWER = 1.4
#: Operators on each layer of Figure 9 and its layers; networks of Figures 5, 6 and 8, and different functions of one.
OPERATORS, LAYERS, NETWORKS, FUNCTIONS = 6, 4, 6, 16
#: Operators that a search should train at least; the two best go on.
SEARCHED = 16
#: Languages models that are trained: the network as it is, grouped layers, and the best that the search found.
LANGUAGE_MODELS = 3
_LEAST_SECONDS = 2.0  # of a part that ends by the clock
_LEAST_SEARCH_S = 120.0  # a search lists its space before it trains
_MOST_CANDIDATES, _MOST_STEPS = 1024, 200_000


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reproduction is of.

    Attributes:
        hours: for all parts together.
        data: images, as of :class:`.TrialRequest`: a folder of CIFAR or of images, or ``digits``.
        text: a text file for the language model; None: Figure 10 shows the paper's points alone.
        seed: of draws, searches and tunings.
    """

    hours: float = 1.0
    data: str = "digits"
    text: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.hours) and 0 < self.hours <= 10_000):
            raise SpecError(f"hours: expected a number above 0, at most 10,000, found {self.hours}")


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each part does.

    Attributes:
        rates_s: seconds of drawing for Table 2. ``distance_s``: of each of the two runs of the distance ablation.
        layer_candidates: of each tuning of Figure 9. ``network_candidates``: of each function of a network.
        text_search_s, text_s: seconds of the search for the language model, and of each of its trainings.
        search_s, search_steps: seconds of the search on images, and batches of each of its trainings.
        steps, seeds: batches and seeds of the trainings of Figures 5, 6 and 8.
        options: of the network for images (its size). ``batch_size``: images.
    """

    rates_s: float
    distance_s: float
    layer_candidates: int
    text_search_s: float
    text_s: float
    search_s: float
    search_steps: int
    steps: int
    seeds: int
    network_candidates: int
    options: dict[str, Any] = {}
    batch_size: int = 64


@dataclass(frozen=True)
class PlannedPart:
    """A part of the plan: its name, the figures that it is for, what it does, and its seconds as planned."""

    name: str
    figures: str
    what: str
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The parts in order."""

    parts: tuple[PlannedPart, ...]

    @property
    def seconds(self) -> float:
        """Of all parts."""
        return sum(part.seconds for part in self.parts)


def scale_for(options: Options, step_s: float) -> Scale:
    """Share the hours.

    Args:
        options: with the hours.
        step_s: seconds of one batch of the baseline's training on the images.
    """
    total = 3600 * options.hours

    def seconds(part: str, among: float = 1.0) -> float:
        return max(_LEAST_SECONDS, SHARES[part] * total / among)

    def steps(part: str, trainings: int, least: int) -> int:
        found = SHARES[part] * total / trainings / (SLOWER * max(step_s, 1e-4))
        return int(min(_MOST_STEPS, max(least, found)))

    seeds = 1 + sum(options.hours >= hours for hours in (4, 12))
    return Scale(
        rates_s=seconds("table-2"),
        distance_s=seconds("distance", 2),
        layer_candidates=_candidates(SHARES["layers"] * total, OPERATORS * LAYERS),
        text_search_s=max(_LEAST_SEARCH_S, seconds("text-search")),
        text_s=seconds("text", LANGUAGE_MODELS),
        search_s=max(_LEAST_SEARCH_S, seconds("search")),
        search_steps=steps("search", SEARCHED, 10),
        steps=steps("accuracy", NETWORKS * seeds, 20),
        seeds=seeds,
        network_candidates=_candidates(SHARES["networks"] * total, NETWORKS * FUNCTIONS),
        options=size_of(options.data),
    )


def _candidates(seconds: float, tunings: int) -> int:
    return int(min(_MOST_CANDIDATES, max(2, seconds / tunings / CANDIDATE_S)))


def size_of(data: str) -> dict[str, Any]:
    """The options of ResNet-20 for these images: a small one for the digits, which have 8x8 pixels."""
    return {"width": 8, "blocks": 1} if data == "digits" else {}


def plan_of(options: Options, scale: Scale, step_s: float, parts: Sequence[str] = PARTS) -> Plan:
    """The plan of the chosen parts, with the seconds that the scale takes, which may be more than the hours' share."""
    training = SLOWER * step_s
    images = "digits" if options.data == "digits" else "the images"
    each = {
        "table-2": ("Table 2", f"draws for {scale.rates_s:.0f} s", scale.rates_s),
        "distance": ("section 9.4", f"two runs of {scale.distance_s:.0f} s", 2 * scale.distance_s),
        "layers": (
            "Figure 9",
            f"{OPERATORS} operators on {LAYERS} layers, {scale.layer_candidates} candidates each",
            OPERATORS * LAYERS * scale.layer_candidates * CANDIDATE_S,
        ),
        "text-search": ("Figure 10", f"a search of {scale.text_search_s:.0f} s", scale.text_search_s),
        "text": (
            "Figure 10",
            f"{LANGUAGE_MODELS} trainings of {scale.text_s:.0f} s",
            LANGUAGE_MODELS * scale.text_s,
        ),
        "search": (
            "Figures 5, 6, 8",
            f"a search on {images}, {scale.search_steps} batches a training",
            scale.search_s,
        ),
        "accuracy": (
            "Figures 5, 6, 8",
            f"{NETWORKS} networks, {scale.steps} batches, {scale.seeds} seed{'s' * (scale.seeds > 1)}",
            NETWORKS * scale.seeds * scale.steps * training,
        ),
        "networks": (
            "Figures 5, 6, 8",
            f"{NETWORKS} whole networks, {scale.network_candidates} candidates a function",
            NETWORKS * FUNCTIONS * scale.network_candidates * CANDIDATE_S,
        ),
    }
    is_left_out = options.text is None
    found = [
        PlannedPart(name, figures, "left out: no text is given", 0.0)
        if is_left_out and name in ("text-search", "text")
        else PlannedPart(name, figures, what, seconds)
        for name, (figures, what, seconds) in each.items()
        if name in parts
    ]
    return Plan(tuple(found))


def check_parts(names: Sequence[str]) -> tuple[str, ...]:
    """These parts in the order in which they run. Raises SpecError for an unknown one."""
    for name in names:
        if name not in PARTS:
            raise SpecError(f"parts: expected some of {', '.join(PARTS)}, found {quoted(name)}")
    return tuple(name for name in PARTS if name in names)
