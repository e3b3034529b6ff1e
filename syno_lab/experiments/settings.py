"""The settings of a search for operators of a backbone: plain data, the same in JSON."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from syno_lab.errors import SearchError
from syno_lab.inputs import is_plain_name, quoted
from syno_lab.settings import Method, Scheduler, SearchChoice, TuningSettings, check_bounds, setting
from syno_lab.store.latencies import network_on
from syno_lab.systems import DEFAULT
from syno_lab.trial import TrialRequest, parse_rule
from syno_lab.tuning.options import find_preset
from syno_lab.tuning.targets import check_target
from syno_lab.tuning.tracker import parse_address
from syno_lab.user_code import UserCode
from syno_lab.versioned import JSON

#: Objectives of the method ``pareto`` beside the accuracy; less is better. ``latency`` is the latency of the whole
#: network in Relax, tuned after each training as in :attr:`SearchSettings.tuning`; ``latency-pytorch`` is measured in
#: the process that trained the network (:attr:`.TrialOutcome.latency_ms`).
LATENCY, TORCH_LATENCY = "latency", "latency-pytorch"
OBJECTIVES = ("flops", "params", LATENCY, TORCH_LATENCY)
#: The default objectives.
USUAL_OBJECTIVES = OBJECTIVES[:2]
#: The policies of the method ``mcts``: the paper's UCT, or UCT with values of actions.
TreeKind = Literal["uct", "rave"]

#: Settings that may change when a search continues: limits, workers and tuning. The settings in the list have no effect
#: on the choice of operators.
CHANGEABLE = ("minutes", "trials", "workers", "gpus", "tuning", "equal_within", "anyway")

#: The default system.
DEFAULT_SYSTEM = DEFAULT
#: The value of ``wants`` for a wish that is derived from the replaced layers.
DERIVED = "derived"


class TuningChoice(TuningSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that decide which trials are tuned, and how they are tuned (Algorithm 1, lines 6 to 9).

    :class:`~syno_lab.settings.TuningSettings` has the other settings of a tuning.

    Attributes:
        scheduler: how a network's functions share the trials of a tuning (:data:`syno_lab.tuning.options.SCHEDULERS`).
        target: a name that :func:`syno_lab.tuning.targets.check_target` accepts.

    Raises:
        SearchError: for numbers out of range, and a key without a tracker.
        TuningError, TrackerError: for unknown targets and presets, and invalid addresses.
    """

    scheduler: Scheduler = "gradient"

    def __post_init__(self) -> None:
        if self.within is not None and not (math.isfinite(self.within) and 0 <= self.within <= 100):
            raise SearchError(f"tune within: expected percentage points from 0 to 100, found {self.within}")
        if self.trials is not None and self.trials < 1:
            raise SearchError(f"tuning trials: expected 1 or more, found {self.trials}")
        if self.key is not None and self.tracker is None:
            raise SearchError(f"expected a tracker beside the key {quoted(self.key)}, found none")
        check_target(self.target)
        find_preset(self.preset)
        if self.tracker is not None:
            parse_address(self.tracker)

    @property
    def is_whole(self) -> bool:
        """Whether the tuning measures the latency of the whole network, and not of layers."""
        return self.of == "network"

    @property
    def stored_as(self) -> str:
        """The name under which the store has the latencies."""
        return network_on(self.target) if self.is_whole else self.target

    @property
    def board_key(self) -> str:
        """The key of the boards that the tracker assigns."""
        return self.key or self.target


class SearchSettings(SearchChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one search (Syno, Algorithm 1), as plain data.

    :class:`~syno_lab.settings.SearchChoice` has its other settings.

    Attributes:
        name: the name of the search in its store.
        training: the request of every training, also of the baseline: backbone, options, data, epochs and the other
            fields of a :class:`.TrialRequest`. The search sets ``operator``, ``rivals``, ``gives_up`` and
            ``keep_predictions``.
        method: ``estimate`` (Bayesian), ``mcts``, ``evolution``, ``random``, ``elites``, or ``pareto`` (evolution along
            the front of accuracy and ``objectives``).
        tree: the policy of ``mcts``: ``uct``, as in section 7.2; ``rave``, which also shares an action's value among
            all states.
        minutes, trials: the limits of the search; at least one must be set; None: no limit.
        max_replaced_ratio: the largest share of the replaced layers' FLOPs that a trained operator may take (section
            7.2: a hard limit); for whole networks a share of the network's FLOPs.
        max_traffic_ratio: the most elements that an operator may store, divided by the elements of the replaced layers'
            outputs (:meth:`.System.traffic`). Operators above this limit are not trained, because their training steps
            are slow even with few FLOPs. None: no limit.
        workers: the number of trainings at a time.
        gpus: the number of GPUs for each training as a job; 0: trainings request none, and share the GPUs.
        seeds: seeds of the trainings of the baseline and the best operators; empty: no comparison.
        limits: limits of the system's space; for pGraphs ``max_primitives``, ``max_tensors``, …
            (:class:`syno_lab.ir.spec.Limits`).
        coefficients, occurrences: see :func:`syno_lab.pgraphs.of_network.derive_spec`; None: the system's defaults.
        weight_limits: ``primary``: primary variables in dimensions of weights count as occurrences too; ``free``: no
            such variable counts. A system has default limits for both values.
        starts_with_known: whether to train the space's known operators first (:meth:`.OperatorSpace.known`). The search
            learns from known operators and is compared with them. Known operators are trials, not discoveries.
        tuning: which trials are tuned, and how; None: no trial is tuned. The objective ``latency`` requires a tuning.
        untrained: whether operators are ranked by the system's probe (:meth:`.OperatorSpace.probe`); ``trials`` counts
            the examined operators.
        system: the format of the operators (:mod:`syno_lab.systems`); several formats with commas between them are
            searched together (:class:`.JointSpace`).
        lower_within: how accurate a trial must be to lower the limit of FLOPs (Canvas, section 8); None: never.
        objectives: for the method ``pareto``: some of :data:`OBJECTIVES`.
        system_options: options of the system's own space (:attr:`.Optioned.space_options`), by name.
        rungs: whether to train on the backbone's proxies first (:mod:`.rung_driver`); ``minutes`` then bound the whole
            search, baseline and finals included.
        rules: the user's own functions that reject steps, as text (:func:`.own_choice.with_choice`).
        reward: the user's own function for the reward, as text; None: the accuracy is the reward.
        wants: what every operator must read and mix (:attr:`.SpaceRequest.wants`); :data:`DERIVED`: what the replaced
            layers read and mix; None: nothing.

    Raises:
        SearchError: for numbers out of range, and a tuning without seeds to train the baseline on.
        TrainingError: for an unknown rule of early termination.
    """

    training: TrialRequest
    name: str = "search"
    method: Method = "estimate"
    tree: TreeKind = "uct"
    max_replaced_ratio: Annotated[float, setting(above=0)] = 0.4
    max_traffic_ratio: Annotated[float | None, setting(above=0)] = None
    workers: Annotated[int, setting(least=1)] = 1
    gpus: Annotated[float, setting(least=0)] = 0
    seeds: tuple[int, ...] = (0, 1, 2)
    limits: dict[str, int] = msgspec.field(default_factory=dict)
    coefficients: tuple[str, ...] | None = None
    occurrences: dict[str, int] | None = None
    weight_limits: Literal["free", "primary"] = "free"
    starts_with_known: bool = False
    tuning: TuningChoice | None = None
    system: str = DEFAULT_SYSTEM
    rungs: bool = False
    wants: str | None = None
    objectives: tuple[str, ...] = USUAL_OBJECTIVES
    system_options: dict[str, str] = msgspec.field(default_factory=dict)
    rules: tuple[UserCode, ...] = ()
    reward: UserCode | None = None

    def __post_init__(self) -> None:
        if self.minutes is None and self.trials is None:
            raise SearchError("expected minutes or trials to search for, found neither")
        check_bounds(self)
        if self.method != "mcts" and self.tree != "uct":
            raise SearchError(f"tree: expected the method mcts beside {self.tree}, found {self.method}")
        if self.virtual_loss and self.method != "mcts":
            raise SearchError("virtual_loss: expected the method mcts; leave it out")
        if len(set(self.seeds)) != len(self.seeds):
            raise SearchError(f"seeds: expected seeds that differ, found {', '.join(map(str, self.seeds))}")
        if (
            not self.objectives
            or len(set(self.objectives)) < len(self.objectives)
            or set(self.objectives) - {*OBJECTIVES}
        ):
            raise SearchError(
                f"objectives: expected some of {', '.join(OBJECTIVES)}, found {quoted(', '.join(self.objectives))}"
            )
        if self.method != "pareto" and self.objectives != USUAL_OBJECTIVES:
            raise SearchError(f"objectives: expected the method pareto beside them, found {self.method}")
        if self.training.folds is not None and not (self.rungs and self.seeds):
            raise SearchError(
                "folds: expected a search in rungs with seeds for its finals, found none; leave folds out"
            )
        if self.rungs:
            self._check_rungs()
        self._check_latency()
        if len(set(self.systems)) != len(self.systems):
            raise SearchError(f"system: expected systems that differ, found {quoted(self.system)}")
        if self.lower_within is not None:
            self._check_lower(self.lower_within)
        if self.tuning is not None and self.untrained:
            raise SearchError("tuning: expected a search that trains, found an untrained one; leave one of them out")
        if self.tuning is not None and self.tuning.within is not None and not self.seeds:
            raise SearchError(
                "tuning: expected seeds to train the baseline on, found none: its accuracy sets the margin"
            )
        if not is_plain_name(self.name):
            raise SearchError(f"name: expected a name that can be one of a folder, found {quoted(self.name)}")
        if self.training.stopping is not None:
            parse_rule(self.training.stopping)
        if len(set(map(str, self.rules))) != len(self.rules):
            raise SearchError(f"rules: expected rules that differ, found {', '.join(map(str, self.rules))}")
        if self.reward is not None and self.untrained:
            raise SearchError("reward: expected a search that trains, found an untrained one; leave one of them out")

    def _check_rungs(self) -> None:
        if self.minutes is None:
            raise SearchError("rungs: expected the minutes of the search, which rungs share, found trials alone")
        if self.untrained:
            raise SearchError("rungs: expected a search that trains, found an untrained one; leave one of them out")
        if {LATENCY, TORCH_LATENCY} & set(self.objectives):
            raise SearchError("rungs: expected objectives without latency, which only the full network has")
        if self.tuning is not None:
            raise SearchError("rungs: expected no tuning beside them, found one; leave one of them out")

    def _check_latency(self) -> None:
        if LATENCY not in self.objectives:
            if self.tuning is not None and self.tuning.within is None:
                raise SearchError("tuning: expected a margin, or the objective latency, found neither")
            return
        if self.tuning is None:
            raise SearchError(
                "objectives: expected a tuning for latency, the network's time in TVM, found none; "
                "PyTorch's time is latency-pytorch"
            )
        if self.tuning.within is not None or not self.tuning.is_whole:
            raise SearchError(
                "objectives: expected whole networks of all trials to be tuned for latency, found "
                + ("a margin of accuracy" if self.tuning.within is not None else "sums of layers")
            )

    def _check_lower(self, points: float) -> None:
        if not (math.isfinite(points) and 0 <= points <= 100):
            raise SearchError(f"lower within: expected percentage points from 0 to 100, found {points}")
        if self.untrained or self.rungs:
            raise SearchError(
                "lower within: expected a search that trains each operator in the network itself, found "
                f"{'rungs' if self.rungs else 'an untrained one'}; leave one of them out"
            )
        if not self.seeds:
            raise SearchError("lower within: expected seeds to train the baseline on, found none: it sets the margin")

    @property
    def resources(self) -> dict[str, float] | None:
        """The resources of each training that is a job; None: the default resources of jobs of kind ``train``."""
        return {"slot": 1, "GPU": self.gpus} if self.gpus else None

    @property
    def systems(self) -> tuple[str, ...]:
        """The formats of the systems whose operators are searched, in order."""
        return tuple(self.system.split(","))

    @property
    def identity(self) -> dict[str, JSON]:
        """The settings that must not change when a search continues."""
        plain = self.to_dict()
        for key in CHANGEABLE:
            plain.pop(key)
        for key in ("threads", "gives_up"):
            plain["training"].pop(key)
        # The names of network and data contain digests of the code in `own`.
        del plain["training"]["own"]
        code = sorted((self.training.own or {}).items())
        chosen = self.tuning if LATENCY in self.objectives else None  # the search uses a tuned latency
        return plain | {
            "primitives": [f"{role} {source.digest}" for role, source in code if role.startswith("primitive:")],
            "rules": list(map(str, self.rules)),
            "reward": None if self.reward is None else str(self.reward),
            "latency": None if chosen is None else [chosen.target, chosen.preset, chosen.trials, chosen.scheduler],
        }
