"""Rules and a reward of the user's own: what a search may propose, and what it looks for, as functions in a notebook.

The settings of a search carry the functions as text (:class:`.UserCode`), so that a job in another process has them
too. The text alone runs nothing, because settings may come from a lab's folder: :func:`bring_choice` runs it, and is
called where the user has given the functions or named their file, and in the process of a job whose signature holds.
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

#: A reward of the user's own as a function of :class:`Judged`, or ``file.py:function``.
RewardFunction = Callable[["Judged"], float] | str

#: The functions that this process has made of code, by the code.
_BROUGHT: dict[UserCode, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Judged:
    """What a reward of the user's own is told of an operator that was trained.

    Attributes:
        accuracy: from 0 to 1; of a training that was stopped early, until then; in a search in rungs the measure of the
            rung, the mean over its seeds.
        flops_ratio, params_ratio: FLOPs and parameters of the network with the operator, over the baseline's.
        replaced_ratio: FLOPs of the replaced layers with it, over theirs without.
        latency_ms: of the network through TVM (objective ``latency``), else in PyTorch (``latency-pytorch``); None
            unless one of the two is an objective of the search.
    """

    accuracy: float
    flops_ratio: float
    params_ratio: float
    replaced_ratio: float
    latency_ms: float | None = None


#: A reward is tried on this one before a search begins.
_TRIED = Judged(0.5, 0.5, 0.5, 0.5)


def with_choice(
    settings: SearchSettings, rules: Sequence[RuleFunction] = (), reward: RewardFunction | None = None
) -> SearchSettings:
    """The settings with rules and a reward of the user's own, whose code is run here: the user has given it.

    Primitives of one's own that this process has (:func:`syno_lab.add_primitive`) go along.

    Args:
        settings: of a search.
        rules: each is asked with a state (:class:`syno_lab.State`) and a step (its ``primitive``, ``operands``,
            ``parameter``, ``given``) and returns True to refuse the step. The first line of its docstring is the
            reason.
        reward: gives from a :class:`Judged` a number from 0 to 1, the higher the better. It may be asked several times
            about one operator, and must answer the same.

    Raises CodeError where a function's source cannot be found, or it fails; SearchError where the search cannot have
    them.
    """
    found = msgspec.structs.replace(
        settings,
        training=with_primitives(settings.training),
        rules=tuple(map(user_code, rules)),
        reward=None if reward is None else user_code(reward),
    )
    bring_choice(found)
    return found


def bring_choice(settings: SearchSettings) -> None:
    """Run the code of the settings' rules and reward in this process, once.

    Only for code that the user has given or named, or whose job they have signed.

    Raises CodeError: the code cannot be run, or the reward fails on an example.
    """
    for code in (*settings.rules, settings.reward):
        if code is not None and code not in _BROUGHT:
            _BROUGHT[code] = code.function()
    reward = own_reward(settings)
    if reward is not None:
        reward(_TRIED)


def own_rules(settings: SearchSettings) -> tuple[OwnRule, ...]:
    """The rules of the user's own. Raises CodeError for code that this process was not given."""
    return tuple([rule_of(_brought(code), code) for code in settings.rules])


def own_reward(settings: SearchSettings) -> Callable[[Judged], float] | None:
    """The reward of the user's own, None for the accuracy. Raises CodeError for code that this process was not given.

    The function raises CodeError where the user's fails, or returns no number from 0 to 1.
    """
    code = settings.reward
    if code is None:
        return None
    function, where = _brought(code), f"{code.name} of {code.origin}"

    def reward(trial: Judged) -> float:
        with blamed(where):
            found = function(trial)
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(found, bool | str) or not 0 <= number <= 1:
            raise CodeError(f"{where}: expected a reward from 0 to 1, found {quoted(found)} for {trial}")
        return number

    return reward


def _brought(code: UserCode) -> Callable[..., Any]:
    found = _BROUGHT.get(code)
    if found is None:
        raise CodeError(
            f"expected code that this process was given, found {quoted(str(code))} of {quoted(code.origin)}; "
            "read it, and give it again"
        )
    return found
