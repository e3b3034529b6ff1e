"""What a search for operators of a backbone is asked for: plain data, the same in JSON."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from syno_lab.errors import FormatError, SearchError
from syno_lab.evaluate.trial import TrialRequest, parse_rule
from syno_lab.evaluate.tuning.presets import find_preset
from syno_lab.evaluate.tuning.targets import check_target
from syno_lab.evaluate.tuning.tracker import parse_address

Method = Literal["mcts", "random", "evolution"]

#: What may differ when a search goes on: how long, with how many hands, and what is tuned; none changes its course.
CHANGEABLE = ("minutes", "trials", "workers", "threads", "tuning")


class TuningChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which trials of a search are tuned, and how (Algorithm 1, lines 6 to 9).

    Attributes:
        within: percentage points that a trial may be less accurate than the baseline's seeds are on average.
        target: of :func:`syno_lab.evaluate.tuning.targets.check_target`.
        tracker: ``host:port`` of an RPC tracker; None for a board of our own on this machine.
        key: of the devices there; None: the target's name.
        preset, trials: what a tuning of one size may cost; ``trials`` None: the preset's.

    Raises:
        SearchError: for numbers that make no sense, and a key without a tracker.
        TuningError, TrackerError: for targets, presets and addresses that are none.
    """

    within: float
    target: str = "local"
    tracker: str | None = None
    key: str | None = None
    preset: str = "quick"
    trials: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.within) and 0 <= self.within <= 100):
            raise SearchError(f"tune within: expected percentage points from 0 to 100, found {self.within}")
        if self.trials is not None and self.trials < 1:
            raise SearchError(f"tuning trials: expected 1 or more, found {self.trials}")
        if self.key is not None and self.tracker is None:
            raise SearchError(f"expected a tracker beside the key {self.key!r}, found none")
        check_target(self.target)
        find_preset(self.preset)
        if self.tracker is not None:
            parse_address(self.tracker)

    @property
    def board_key(self) -> str:
        """The key of the devices."""
        return self.key or self.target


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One search (Syno, Algorithm 1), everything it needs and no objects.

    Attributes:
        name: of the search in its store.
        training: how every operator is trained, and the baseline alike: backbone, options, data, epochs and the rest
            of a :class:`.TrialRequest`; its ``operator``, ``rivals``, ``gives_up`` and ``keep_predictions`` are the
            search's to set.
        method: ``mcts``, ``random`` or ``evolution``.
        seed: of the search's choices.
        minutes: how long to search, baseline and comparison not counted; None: no limit.
        trials: how many operators to evaluate at most; None: no limit. One of the two is given.
        max_flops_ratio: operators with which the network has more than this share of the baseline's FLOPs are not
            trained (section 7.2: a hard limit).
        max_traffic_ratio: operators that store more than so many times the elements that the layers in their places
            put out are not trained: their training steps are slow, whatever their FLOPs (:mod:`.traffic`); None: all.
        workers: trainings at a time.
        seeds: on which the baseline and the best operators are trained; none to compare nothing.
        limits: of the spec: ``max_primitives``, ``max_tensors``, … (:class:`syno_lab.ir.spec.Limits`).
        coefficients, occurrences: of :func:`syno_lab.models.derive.derive_spec`; None: its own.
        starts_with_known: train the known operators that the space has first (:mod:`.known`): the search learns from
            them, and is measured against them. They count as trials; the best operators are named among the others.
        tuning: which trials are tuned; None for none.

    Raises:
        SearchError: for numbers that make no sense, and a tuning without seeds to train the baseline on.
        TrainingError: for a rule of early termination that there is not.
    """

    training: TrialRequest
    name: str = "search"
    method: Method = "mcts"
    seed: int = 0
    minutes: float | None = None
    trials: int | None = None
    max_flops_ratio: float = 0.5
    max_traffic_ratio: float | None = None
    workers: int = 1
    seeds: tuple[int, ...] = (0, 1, 2)
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    coefficients: tuple[str, ...] | None = None
    occurrences: dict[str, int] | None = None
    starts_with_known: bool = False
    tuning: TuningChoice | None = None

    def __post_init__(self) -> None:
        if self.minutes is None and self.trials is None:
            raise SearchError("expected minutes or trials to search for, found neither")
        for what, value in (("minutes", self.minutes), ("trials", self.trials)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise SearchError(f"{what}: expected a number above 0, found {value}")
        if not (math.isfinite(self.max_flops_ratio) and self.max_flops_ratio > 0):
            raise SearchError(f"max_flops_ratio: expected a number above 0, found {self.max_flops_ratio}")
        if self.max_traffic_ratio is not None and not (
            math.isfinite(self.max_traffic_ratio) and self.max_traffic_ratio > 0
        ):
            raise SearchError(f"max_traffic_ratio: expected a number above 0, found {self.max_traffic_ratio}")
        if self.workers < 1:
            raise SearchError(f"workers: expected 1 or more, found {self.workers}")
        if len(set(self.seeds)) != len(self.seeds):
            raise SearchError(f"seeds: expected seeds that differ, found {', '.join(map(str, self.seeds))}")
        if self.tuning is not None and not self.seeds:
            raise SearchError("tuning: expected seeds to train the baseline on, found none: what is within its margin?")
        if not self.name or any(letter in self.name for letter in "/\\\0") or self.name.startswith("."):
            raise SearchError(f"name: expected a name that can be one of a folder, found {self.name!r}")
        if self.training.stopping is not None:
            parse_rule(self.training.stopping)

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same when a search goes on."""
        plain = self.to_dict()
        for key in CHANGEABLE:
            plain.pop(key, None)
        for key in ("threads", "gives_up"):
            plain["training"].pop(key)
        if self.max_traffic_ratio is None:  # as searches were before there was such a limit
            plain.pop("max_traffic_ratio")
        if not self.starts_with_known:  # alike
            plain.pop("starts_with_known")
        return plain

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dictionaries, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, data: object) -> SearchSettings:
        """Make the settings of what :meth:`to_dict` returned; FormatError where it is something else."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected the settings of a search, found: {error}") from None
