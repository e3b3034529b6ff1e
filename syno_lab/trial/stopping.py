"""Early termination: decide from a training's curve and its rivals' curves whether the training continues.

A curve is the measure (higher is better) after each epoch. A rule's method ``reason`` is called after every epoch
except the last, and returns a reason to stop, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    import optuna

Curve = Sequence[float]


class StoppingRule(Protocol):
    """A rule that ends trainings which are unlikely to become good."""

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to end a training of ``epochs`` epochs with this ``curve``, or None."""


#: The upper bounds of fields that are shares, and the lower bounds of fields that are counts, by the fields' names.
_MOST, _LEAST = {"theta": 1, "percentile": 100}, {"startup": 0, "warmup": 0, "least": 1, "reduction": 2, "patience": 1}


class _Bounded:
    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in _MOST and not 0 <= value <= _MOST[name]:
                raise TrainingError(f"stopping: expected {name} from 0 to {_MOST[name]}, found {quoted(value)}")
            if value < _LEAST.get(name, 0):
                least = _LEAST[name]
                raise TrainingError(
                    f"stopping: expected {name} as a whole number from {least} up, found {quoted(value)}"
                )


@dataclass(frozen=True)
class CanvasRule(_Bounded):
    """Canvas, section 7: a training must reach at each epoch a share of the best rival's measure at the same epoch.

    accuracy(epoch) >= λ · accuracy_max(epoch) with λ = f(epoch / epochs) and f(x) = θ + (1 - θ) x: λ grows from θ to 1.
    The best rival has the highest value in its curve; the first of equal rivals counts. If the best rival's curve is
    shorter than the training's, the rule does not stop the training. ``theta``: θ, from 0 to 1, typically 0.5.
    ``warmup``: first epochs that the rule ignores (our addition; the paper has none).
    """

    name: ClassVar[str] = "canvas"
    theta: float = 0.5
    warmup: int = 0

    def share(self, epoch: int, epochs: int) -> float:
        """Return the share λ after ``epoch`` of ``epochs``."""
        return self.theta + (1 - self.theta) * epoch / epochs

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to stop, or None; see :class:`StoppingRule`."""
        best = max((rival for rival in rivals if rival), key=max, default=())
        epoch = len(curve)
        if epoch <= self.warmup or len(best) < epoch:
            return None
        least = self.share(epoch, epochs) * best[epoch - 1]
        if curve[-1] >= least:
            return None
        return (
            f"{curve[-1]:.4f} after epoch {epoch} of {epochs}, below {self.share(epoch, epochs):.3f} of the best's "
            f"{best[epoch - 1]:.4f} (canvas, theta {self.theta:g})"
        )


@dataclass(frozen=True)
class PercentileRule(_Bounded):
    """Optuna's PercentilePruner: stop a training that is not among the rivals' best ``percentile`` % at an epoch.

    A training's best value so far counts. ``startup``: the least number of rivals; ``warmup``: first epochs ignored.
    """

    name: ClassVar[str] = "percentile"
    percentile: float = 25.0
    startup: int = 5
    warmup: int = 0

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to stop, or None; see :class:`StoppingRule`."""
        import optuna

        pruner = optuna.pruners.PercentilePruner(self.percentile, self.startup, self.warmup)
        if not _is_pruned(pruner, curve, rivals):
            return None
        return f"{curve[-1]:.4f} after epoch {len(curve)}, not among the best {self.percentile:g} % of {len(rivals)}"


@dataclass(frozen=True)
class MedianRule(_Bounded):
    """Optuna's MedianPruner: stop a training that is below the median of the rivals at the same epoch."""

    name: ClassVar[str] = "median"
    startup: int = 5
    warmup: int = 0

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to stop, or None; see :class:`StoppingRule`."""
        import optuna

        if not _is_pruned(optuna.pruners.MedianPruner(self.startup, self.warmup), curve, rivals):
            return None
        return f"{curve[-1]:.4f} after epoch {len(curve)}, below the median of {len(rivals)}"


@dataclass(frozen=True)
class HalvingRule(_Bounded):
    """Optuna's SuccessiveHalvingPruner (Li et al. 2018): at each rung the best 1/``reduction`` continue.

    Rung r is after ``least`` · ``reduction``^r epochs. The rivals are reported to Optuna first, in their order.
    """

    name: ClassVar[str] = "halving"
    least: int = 1
    reduction: int = 4

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to stop, or None; see :class:`StoppingRule`."""
        import optuna

        pruner = optuna.pruners.SuccessiveHalvingPruner(self.least, self.reduction)
        if not _is_pruned(pruner, curve, rivals, first_step=1, replay=True):
            return None
        return f"{curve[-1]:.4f} after epoch {len(curve)}, not among the best 1/{self.reduction} of its rung"


@dataclass(frozen=True)
class PatienceRule(_Bounded):
    """Stop a training after ``patience`` epochs in a row without a new best measure; rivals are ignored."""

    name: ClassVar[str] = "patience"
    patience: int = 3

    def reason(self, curve: Curve, rivals: Sequence[Curve], epochs: int) -> str | None:
        """Return the reason to stop, or None; see :class:`StoppingRule`."""
        if not curve or len(curve) - 1 - list(curve).index(max(curve)) < self.patience:
            return None
        return f"nothing above {max(curve):.4f} for {self.patience} epochs"


Rule = CanvasRule | PercentileRule | MedianRule | HalvingRule | PatienceRule
RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (CanvasRule, MedianRule, PercentileRule, HalvingRule, PatienceRule)
}


def parse_rule(data: Mapping[str, Any]) -> Rule:
    """Make a rule from ``{"rule": name, …}``. Raises TrainingError for an unknown rule, or numbers out of range."""
    name = data.get("rule")
    if name not in RULES:
        raise TrainingError(f"stopping: expected a rule among {', '.join(RULES)}, found {quoted(name)}")
    kind = RULES[name]
    numbers = {key: value for key, value in data.items() if key != "rule"}
    unknown = numbers.keys() - kind.__annotations__.keys()
    if unknown:
        raise TrainingError(f"stopping: the rule {name} has no {', '.join(sorted(unknown))}")
    try:
        return msgspec.convert(numbers, kind)
    except msgspec.ValidationError as error:
        raise TrainingError(f"stopping: the rule {name}: {error}") from None


def _is_pruned(
    pruner: optuna.pruners.BasePruner,
    curve: Curve,
    rivals: Sequence[Curve],
    *,
    first_step: int = 0,
    replay: bool = False,
) -> bool:
    """Return whether Optuna stops a training with this curve; a new study in memory has the rivals as trials.

    ``replay``: report the rivals to Optuna epoch by epoch too, for pruners that store state in each trial.
    """
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # Optuna logs every study
    try:
        study = optuna.create_study(direction="maximize", pruner=pruner)
    finally:
        optuna.logging.set_verbosity(verbosity)
    for rival in filter(None, rivals):
        if replay:
            _reported(study.ask(), rival, first_step)
        else:
            values = dict(enumerate(map(float, rival), start=first_step))
            study.add_trial(optuna.trial.create_trial(value=float(rival[-1]), intermediate_values=values))
    return _reported(study.ask(), curve, first_step)


def _reported(trial: optuna.Trial, curve: Curve, first_step: int) -> bool:
    """Report a curve to ``trial`` epoch by epoch, and return whether the trial is pruned after the last epoch."""
    verdict = False
    for step, value in enumerate(curve, start=first_step):
        trial.report(float(value), step)
        verdict = trial.should_prune()
    return verdict
