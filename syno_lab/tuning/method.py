"""The method of a tuning as one value: the space and its rules, the strategy and the cost model. Imports no TVM.

The parts are MetaSchedule's (Shao et al., *Tensor program optimization with probabilistic programs*, sections 3 and 4):
rules are applied to every block of the program and give *sketches*, programs with random choices left in them; the
strategy draws and breeds choices, guided by the cost model. All of it runs in the tuning process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.user_code import UserCode, user_code

#: A rule or space written by the user: a function, or ``file.py:function``.
Code = UserCode | Callable[..., Any] | str

#: The target's own rules, in TVM's order.
DEFAULT = "default"

#: The lab's own rule, which applies in addition to TVM's rules; on a GPU it changes nothing.
LANES = "channel-lanes"
OURS = (LANES, DEFAULT)

#: Rules for processors by name, and what each does.
RULES: dict[str, str] = {
    DEFAULT: "all rules that TVM has for the target",
    "inline": "computes a block inside the one that reads it",
    "rfactor": "splits a sum with few parallel outputs into partial sums",
    "tiling": "cuts the loops of a sum into tiles, four levels for outputs and two for summed axes (SSRSRS)",
    "parallel": "runs the outermost loops in threads",
    "vectorize": "runs the innermost loop in vector instructions",
    "unroll": "writes short inner loops out, up to 16, 64 or 512 steps or not at all",
    "compute-location": "moves remaining blocks, such as padding, into the loops of the block that reads them",
    LANES: "a variant that sums output channels in vector lanes, where the weights have them innermost",
}

#: The strategies, which propose candidates.
STRATEGIES: dict[str, str] = {
    "evolutionary": "breeds the choices of good candidates, guided by the cost model",
    "replay-trace": "draws the choices in the sketches anew each time, with no guide",
    "replay-func": "makes the whole space anew for each candidate, with no guide",
}

#: The cost models, which predict a candidate's latency before it is measured (only ``evolutionary`` asks them).
COST_MODELS: dict[str, str] = {
    "xgboost": "boosted trees over the loop nest's features, trained on every batch",
    "random": "predicts at random, to compare the other with",
}


@dataclass(frozen=True)
class Method:
    """What a search is made of; by default TVM's own space for the target and ``channel-lanes``, searched by evolution
    and XGBoost. ``Method(rules=("default",))`` is TVM's own space alone.

    ``rules`` are applied to every block in this order: names of :data:`RULES`, and functions of your own, in a notebook
    cell or as ``"file.py:function"``. A rule is called with the schedule and one block of it (``tvm.s_tir``'s
    ``Schedule`` and ``SBlockRV``), and returns a schedule, a list of schedules (alternatives, each of them searched),
    or None if it has changed the given schedule in place. ``space`` is a function that schedules the whole program by
    itself, in place of all rules; it is called with the schedule and returns the same. The search varies the values
    that either function draws with ``schedule.sample_…``.

    Functions run in the tuning process, never in this one: :func:`~syno_lab.user_code.user_code` says which
    names they may use. In every case the winner's output is compared with the unscheduled program's.

    Raises :class:`TuningError` for unknown names, for a space beside rules, and for code that cannot be sent.
    """

    rules: Sequence[Code] = OURS
    space: Code | None = None
    strategy: str = "evolutionary"
    cost_model: str = "xgboost"

    def __post_init__(self) -> None:
        if isinstance(self.rules, str) or not isinstance(self.rules, Sequence):
            raise TuningError(f"expected rules as a list such as ('inline', 'tiling'), found {quoted(self.rules)}")
        object.__setattr__(self, "rules", tuple(_rule(one) for one in self.rules))
        if self.space is not None:
            if self.rules not in (OURS, (DEFAULT,)):
                raise TuningError(
                    "expected rules or a space of one's own, which takes the place of all rules; not both"
                )
            object.__setattr__(self, "space", user_code(self.space))
        for what, name, known in (
            ("strategy", self.strategy, STRATEGIES),
            ("cost model", self.cost_model, COST_MODELS),
        ):
            if name not in known:
                raise TuningError(f"expected a {what} among {', '.join(known)}, found {quoted(name)}")

    @property
    def code(self) -> tuple[UserCode, ...]:
        """The user's own functions in this method."""
        found = (*self.rules, self.space)
        return tuple(one for one in found if isinstance(one, UserCode))

    @property
    def is_guided(self) -> bool:
        """Whether the strategy uses the cost model."""
        return self.strategy == "evolutionary"

    def __str__(self) -> str:
        """One line, with a digest of each text of the user's; empty for all that is TVM's own. Records are keyed by it;
        records of versions without the lab's own rule count as TVM's.
        """
        if self == Method(rules=(DEFAULT,)):
            return ""
        space = f"space {self.space}" if self.space else f"rules {', '.join(map(str, self.rules)) or 'none'}"
        return f"{space}; {self.strategy}{f', {self.cost_model}' if self.is_guided else ''}"

    def request(self, folder: Path) -> dict[str, Any]:
        """The method as JSON data for the tuning process; the user's code is written to ``folder``."""

        def plain(one: Code) -> str | dict[str, str]:
            return one.write(folder) if isinstance(one, UserCode) else cast("str", one)

        return {
            "rules": [plain(one) for one in self.rules],
            "space": None if self.space is None else plain(self.space),
            "strategy": self.strategy,
            "cost_model": self.cost_model,
        }


def to_job(method: Method) -> dict[str, Any]:
    """A method as parameters of a job, including the user's code as text."""

    def plain(one: Code) -> Any:
        return one.to_dict() if isinstance(one, UserCode) else one

    more = {} if method.space is None else {"space": plain(method.space)}
    rules = [plain(one) for one in method.rules]
    return {"rules": rules, "strategy": method.strategy, "cost_model": method.cost_model, **more}


def from_job(params: Mapping[str, Any]) -> Method:
    """The method in a job's parameters, also of earlier versions; a missing part has its default.

    The user's code is there only as text, never as the name of a file or module, whose content may have changed.

    Raises:
        TuningError: for anything else.
    """
    given = {name: params[name] for name in ("strategy", "cost_model", "space") if params.get(name) is not None}
    if any(not isinstance(given[name], str) for name in ("strategy", "cost_model") if name in given):
        raise TuningError(f"tune: expected a strategy and a cost model by their names, found {quoted(given)}")
    if "space" in given:
        given["space"] = UserCode.from_dict(given["space"])
    rules = params.get("rules")
    if rules is not None:
        if not isinstance(rules, list) or any(isinstance(one, str) and one not in RULES for one in rules):
            raise TuningError(f"tune: expected rules among {', '.join(RULES)}, or code; found {quoted(rules)}")
        given["rules"] = tuple(one if isinstance(one, str) else UserCode.from_dict(one) for one in rules)
    return Method(**given)


def _rule(one: Code) -> str | UserCode:
    if isinstance(one, str) and one not in RULES:
        if ":" not in one:
            raise TuningError(
                f"expected a rule among {', '.join(RULES)}, a function or 'file.py:function', found {quoted(one)}"
            )
        return user_code(one)
    return one if isinstance(one, str) else user_code(one)
