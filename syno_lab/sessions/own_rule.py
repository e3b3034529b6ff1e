"""Rules of the user's own: functions that refuse steps, for the searches and the sessions of every system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from syno_lab.blame import blamed
from syno_lab.errors import CodeError, SpecError
from syno_lab.inputs import plural, quoted
from syno_lab.user_code import UserCode, user_code

#: A rule as a function of a state and a step that is proposed there, or ``file.py:function``.
RuleFunction = Callable[[Any, Any], bool] | str

#: Names of absent rules that a status says.
_MOST_NAMES = 3


@dataclass(frozen=True)
class OwnRule:
    """A rule of the user's own in a search or a session (:func:`own_rule` makes it of a function).

    Attributes:
        name: what messages call it.
        reason: in one sentence.
        match: whether it refuses a step on a state, both as the system has them.
    """

    name: str
    reason: str
    match: Callable[[Any, Any], bool]


def own_rule(given: OwnRule | RuleFunction) -> OwnRule:
    """A rule as it is asked, in the process of the user who has given it.

    Args:
        given: a function of a state and a step that returns True to refuse the step; its name is the rule's, the first
            line of its docstring the reason. Or the same as ``file.py:function``, whose file is run here.

    Raises CodeError where it is neither, or the file cannot be run.
    """
    if isinstance(given, OwnRule):
        return given
    if isinstance(given, str):
        code = user_code(given)
        return rule_of(code.function(), code)
    name = getattr(given, "__name__", "")
    if not callable(given) or not name.isidentifier():
        raise CodeError(
            f"rules: expected a function written with def, or 'file.py:function', found {quoted(given)}; "
            "its name is the rule's"
        )
    return _rule(given, name, getattr(given, "__module__", None) or "the notebook")


def rule_of(function: Callable[[Any, Any], bool], code: UserCode) -> OwnRule:
    """The rule of a function that was made of this code."""
    return _rule(function, code.name, code.origin)


def refusing(rules: Iterable[OwnRule], state: Any, step: Any) -> OwnRule | None:
    """The first rule that refuses a step, None where none does. Raises CodeError where a rule fails."""
    return next((rule for rule in rules if rule.match(state, step)), None)


def check_names(names: Iterable[str]) -> None:
    """Raises SpecError where two rules have one name: messages could not tell them apart."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise SpecError(f"rules: expected a name of its own for each, found {quoted(twice[0])} twice; rename one")


def told(status: str, absent: Sequence[str]) -> str:
    """The status of a session, with a line more where rules that it was built with are ``absent``, by their names."""
    if not absent:
        return status
    shown = ", ".join(map(quoted, absent[:_MOST_NAMES]))
    more = "" if len(absent) <= _MOST_NAMES else f" and {len(absent) - _MOST_NAMES} more"
    noun, verb = plural(len(absent), "rule"), plural(len(absent), "is", "are")
    return (
        f"{status} This session was built with the {noun} {shown}{more}, which {verb} not here: lists and suggestions "
        "may differ. Give rules by Stepper.of(…, rules=[…])."
    )


def _rule(function: Callable[[Any, Any], bool], name: str, origin: str) -> OwnRule:
    where = f"{name} of {origin}"

    def match(state: Any, step: Any) -> bool:
        with blamed(where):
            found = function(state, step)
        if not isinstance(found, bool):
            raise CodeError(f"{where}: expected True or False, found {quoted(found)}")
        return found

    said = (function.__doc__ or "").strip().splitlines()
    return OwnRule(name.replace("_", "-"), said[0] if said else "A rule of the user's own refuses it.", match)
