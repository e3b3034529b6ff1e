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

#: A rule as a function of a state and a proposed step, or ``file.py:function``.
RuleFunction = Callable[[Any, Any], bool] | str

#: The limit of absent rules' names in a status.
_MOST_NAMES = 3


@dataclass(frozen=True)
class OwnRule:
    """A rule of the user's own in a search or a session (:func:`own_rule` makes it from a function).

    Attributes:
        name: the rule's name in messages.
        reason: the reason in one sentence.
        match: a function of a state and a step, in the system's types, that returns whether the rule refuses the step.
    """

    name: str
    reason: str
    match: Callable[[Any, Any], bool]


def own_rule(given: OwnRule | RuleFunction) -> OwnRule:
    """Make a rule from a user's function, which runs in this process.

    Args:
        given: a function of a state and a step that returns True to refuse the step. The function's name becomes the
            rule's name, and the first line of its docstring the reason. ``file.py:function`` also works; this process
            runs the file.

    Raises CodeError for any other value, and for a file that fails.
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
    """Make a rule from a function that this code defined."""
    return _rule(function, code.name, code.origin)


def refusing(rules: Iterable[OwnRule], state: Any, step: Any) -> OwnRule | None:
    """Return the first rule that refuses a step, or None. Raises CodeError when a rule fails."""
    return next((rule for rule in rules if rule.match(state, step)), None)


def check_names(names: Iterable[str]) -> None:
    """Raise SpecError if two rules have one name, because messages could not distinguish them."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise SpecError(f"rules: expected a different name for each rule, found {quoted(twice[0])} twice; rename one")


def told(status: str, absent: Sequence[str]) -> str:
    """Add to a session's status the names of ``absent`` rules: the session was built with these rules."""
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
            result = function(state, step)
        if not isinstance(result, bool):
            raise CodeError(f"{where}: expected True or False, found {quoted(result)}")
        return result

    lines = (function.__doc__ or "").strip().splitlines()
    return OwnRule(name.replace("_", "-"), lines[0] if lines else "A rule of the user's own refuses it.", match)
