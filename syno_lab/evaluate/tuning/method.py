"""How a tuning searches: the space and its rules, the strategy and the cost model, as one value. No TVM here.

The parts are MetaSchedule's (Shao et al., *Tensor program optimization with probabilistic programs*, sections 3 and 4):
rules are applied to every block of the program and give *sketches*, programs with random choices left in them; the
strategy draws and breeds choices, guided by the cost model. All of it runs in the tuning process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from syno_lab.errors import TuningError
from syno_lab.evaluate.tuning.user_code import UserCode, user_code

#: A rule or space of the user's: a function, or ``file.py:function``.
Code = UserCode | Callable[..., Any] | str

#: The target's own rules, in TVM's order.
DEFAULT = "default"

#: Our own rule, and beside it all that TVM has; on a GPU it changes nothing.
LANES = "channel-lanes"
OURS = (LANES, DEFAULT)

#: Rules for processors by name, and what each does.
RULES: dict[str, str] = {
    DEFAULT: "all rules that TVM has for the target",
    "inline": "computes a block inside the one that reads it",
    "rfactor": "splits a sum that has little beside it into partial sums",
    "tiling": "cuts the loops of a sum into tiles, four levels for outputs and two for what is summed (SSRSRS)",
    "parallel": "runs the outermost loops in threads",
    "vectorize": "runs the innermost loop in vector instructions",
    "unroll": "writes short inner loops out, up to 16, 64 or 512 steps or not at all",
    "compute-location": "moves blocks that were left alone, such as padding, into the loops of what reads them",
    LANES: "beside what is: sums output channels in the lanes of vector registers, where weights have them innermost",
}

#: What proposes candidates.
STRATEGIES: dict[str, str] = {
    "evolutionary": "breeds the choices of good candidates, guided by the cost model",
    "replay-trace": "draws the choices in the sketches anew each time, with no guide",
    "replay-func": "makes the whole space anew for each candidate, with no guide",
}

#: What guesses a candidate's latency before it is measured (evolutionary alone asks it).
COST_MODELS: dict[str, str] = {
    "xgboost": "boosted trees over the loop nest's features, taught by every batch",
    "random": "guesses at random: shows what the other is worth",
}


@dataclass(frozen=True)
class Method:
    """What a search is made of; by default TVM's own space for the target and ``channel-lanes``, searched by evolution
    and XGBoost. ``Method(rules=("default",))`` is TVM's own space alone.

    ``rules`` are applied to every block in this order: names of :data:`RULES`, and functions of your own, in a notebook
    cell or as ``"file.py:function"``. A rule is called with the schedule and one block of it (``tvm.s_tir``'s
    ``Schedule`` and ``SBlockRV``), and gives back a schedule, a list of them (alternatives, each to be searched), or
    nothing, where it has changed the one that it got. ``space`` is a function that schedules the whole program by
    itself, in place of all rules; it is called with the schedule and answers in the same way. What either draws with
    ``schedule.sample_…`` is what the search may vary.

    Functions run in the tuning process, never in this one: see :func:`~syno_lab.evaluate.tuning.user_code.user_code`
    for what they may refer to. Whatever they do, the winner's output is compared with the unscheduled program's.

    Raises :class:`TuningError` for unknown names, for a space beside rules, and for code that cannot be sent.
    """

    rules: Sequence[Code] = OURS
    space: Code | None = None
    strategy: str = "evolutionary"
    cost_model: str = "xgboost"

    def __post_init__(self) -> None:
        if isinstance(self.rules, str) or not isinstance(self.rules, Sequence):
            raise TuningError(f"expected rules as a list such as ('inline', 'tiling'), found {self.rules!r}")
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
                raise TuningError(f"expected a {what} among {', '.join(known)}, found {name!r}")

    @property
    def code(self) -> tuple[UserCode, ...]:
        """All that is the user's."""
        found = (*self.rules, self.space)
        return tuple(one for one in found if isinstance(one, UserCode))

    @property
    def is_guided(self) -> bool:
        """Whether the cost model is asked."""
        return self.strategy == "evolutionary"

    def __str__(self) -> str:
        """One line, with a digest of each text of the user's; empty for all that is TVM's own. Records are told apart
        by it, and those of versions that had no rule of ours are TVM's.
        """
        if self == Method(rules=(DEFAULT,)):
            return ""
        space = f"space {self.space}" if self.space else f"rules {', '.join(map(str, self.rules)) or 'none'}"
        return f"{space}; {self.strategy}{f', {self.cost_model}' if self.is_guided else ''}"

    def request(self, folder: Path) -> dict[str, Any]:
        """The method as JSON data for the tuning process; the user's texts are written to ``folder``."""

        def plain(one: Code) -> str | dict[str, str]:
            return one.write(folder) if isinstance(one, UserCode) else cast("str", one)

        return {
            "rules": [plain(one) for one in self.rules],
            "space": None if self.space is None else plain(self.space),
            "strategy": self.strategy,
            "cost_model": self.cost_model,
        }


def _rule(one: Code) -> str | UserCode:
    if isinstance(one, str) and one not in RULES:
        if ":" not in one:
            raise TuningError(
                f"expected a rule among {', '.join(RULES)}, a function or 'file.py:function', found {one!r}"
            )
        return user_code(one)
    return one if isinstance(one, str) else user_code(one)
