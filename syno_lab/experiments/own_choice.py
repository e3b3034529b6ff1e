"""A user's own rules and reward: functions of a notebook that restrict and rate the operators of a search.

The settings of a search have the functions' source text (:class:`.UserCode`) for jobs in other processes. Reading
settings does not run this text, because settings may come from a lab's folder. :func:`bring_choice` runs the text:
where the user has passed the functions or named their file, and in a job with a valid signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.blame import blamed
from syno_lab.errors import CodeError
from syno_lab.inputs import quoted
from syno_lab.sessions.own_rule import OwnRule, RuleFunction, rule_of
from syno_lab.trial.own import with_primitives
from syno_lab.user_code import UserCode, user_code

if TYPE_CHECKING:
    from syno_lab.experiments.settings import SearchSettings

#: A user's own reward: a function of :class:`Judged`, or ``file.py:function``.
RewardFunction = Callable[["Judged"], float] | str

#: The functions from users' code that this process has run, by their code.
_BROUGHT: dict[UserCode, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Judged:
    """The data about a trained operator for a user's own reward.

    Attributes:
        accuracy: the accuracy from 0 to 1; after an early stop, the accuracy until then; in a search in rungs, the mean
            of a rung's measure over the seeds.
        flops_ratio, params_ratio: FLOPs and parameters of the network with the operator, divided by the baseline's.
        replaced_ratio: FLOPs of the operator in the replaced layers, divided by the FLOPs of these layers.
        latency_ms: the network's latency in TVM (objective ``latency``), else in PyTorch (``latency-pytorch``); None
            without such an objective.
    """

    accuracy: float
    flops_ratio: float
    params_ratio: float
    replaced_ratio: float
    latency_ms: float | None = None


#: The example on which a reward is tried before a search begins.
_TRIED = Judged(0.5, 0.5, 0.5, 0.5)


def with_choice(
    settings: SearchSettings, rules: Sequence[RuleFunction] = (), reward: RewardFunction | None = None
) -> SearchSettings:
    """Return the settings with a user's own rules and reward, and run the code, because the user has passed it.

    The settings also get the user's own primitives of this process (:func:`syno_lab.add_primitive`).

    Args:
        settings: the settings of a search.
        rules: functions of a state (:class:`syno_lab.State`) and a step (its ``primitive``, ``operands``,
            ``parameter``, ``given``) that return True to reject the step. The docstring's first line is the reason.
        reward: a function from a :class:`Judged` to a number from 0 to 1, more is better. Repeated calls for one
            operator must return the same number.

    Raises CodeError where a function's source cannot be found, or the function fails; SearchError where the search does
    not support the functions.
    """
    with_code = msgspec.structs.replace(
        settings,
        training=with_primitives(settings.training),
        rules=tuple(map(user_code, rules)),
        reward=None if reward is None else user_code(reward),
    )
    bring_choice(with_code)
    return with_code


def bring_choice(settings: SearchSettings) -> None:
    """Run the code of the settings' rules and reward in this process, once.

    Call this only for code that the user has passed or named, or whose job the user has signed.

    Raises CodeError where the code cannot be run, or the reward fails on an example.
    """
    for code in (*settings.rules, settings.reward):
        if code is not None and code not in _BROUGHT:
            _BROUGHT[code] = code.function()
    reward = own_reward(settings)
    if reward is not None:
        reward(_TRIED)


def own_rules(settings: SearchSettings) -> tuple[OwnRule, ...]:
    """Return the user's own rules. Raises CodeError for code that this process has not run."""
    return tuple([rule_of(_function(code), code) for code in settings.rules])


def own_reward(settings: SearchSettings) -> Callable[[Judged], float] | None:
    """Return the user's own reward; None: the accuracy. Raises CodeError for code that this process has not run.

    The returned function raises CodeError where the user's function fails, or returns no number from 0 to 1.
    """
    code = settings.reward
    if code is None:
        return None
    function, where = _function(code), f"{code.name} of {code.origin}"

    def reward(trial: Judged) -> float:
        with blamed(where):
            value = function(trial)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(value, bool | str) or not 0 <= number <= 1:
            raise CodeError(f"{where}: expected a reward from 0 to 1, found {quoted(value)} for {trial}")
        return number

    return reward


def _function(code: UserCode) -> Callable[..., Any]:
    function = _BROUGHT.get(code)
    if function is None:
        raise CodeError(
            f"expected code that this process has run, found {quoted(str(code))} of {quoted(code.origin)}; "
            "read it, and pass it again"
        )
    return function
