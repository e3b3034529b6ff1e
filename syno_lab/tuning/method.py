"""The method of a tuning as one value: the space and its rules, the strategy and the cost model. Imports no TVM.

The parts are MetaSchedule's (Shao et al., *Tensor program optimization with probabilistic programs*, sections 3 and 4):
rules are applied to every block of the program and give *sketches*, programs with random choices left in them; the
strategy draws and breeds choices, guided by the cost model. All of it runs in the tuning process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.user_code import UserCode, user_code
from syno_lab.versioned import JSON

#: A part that the user has written: a function, ``file.py:function``, or for cost models a class.
Code = UserCode | Callable[..., Any] | str

#: The target's own rules, in TVM's order.
DEFAULT = "default"

#: The lab's own rules, which apply before TVM's rules; on a GPU they change nothing.
FUSION = "fuse-stages"
LANES = "channel-lanes"
OURS = (FUSION, LANES, DEFAULT)

#: Rules by name, and what each does: on a GPU those of :data:`GPU_RULES`, on a processor those of :data:`CPU_RULES`.
RULES: dict[str, str] = {
    DEFAULT: "all rules that TVM has for the target",
    "inline": "computes a block inside the one that reads it",
    "rfactor": "splits a sum with few parallel outputs into partial sums",
    "tiling": "cuts the loops of a sum into tiles, four levels for outputs and two for summed axes (SSRSRS)",
    "parallel": "runs the outermost loops in threads",
    "vectorize": "runs the innermost loop in vector instructions",
    "unroll": "writes short inner loops out, up to 16, 64 or 512 steps or not at all",
    "compute-location": "moves remaining blocks, such as padding, into the loops of the block that reads them",
    "tensor-cores": "on a GPU: cuts a matrix product into tiles for Tensor Cores",
    "cross-thread": "on a GPU: divides a sum among the threads of a block",
    "bind": "on a GPU: binds the loops of remaining blocks to threads",
    FUSION: "computes the stages of a chain in blocks of rows: a block stays in one core's cache, and in one thread",
    LANES: "sums in vector lanes: output channels where the weights have them innermost, else pixels of a row",
}

_EVERYWHERE = ("inline", "tiling", "unroll")
GPU_RULES = (*_EVERYWHERE, "tensor-cores", "cross-thread", "bind")
CPU_RULES = tuple(one for one in RULES if one not in ("tensor-cores", "cross-thread", "bind", DEFAULT, FUSION, LANES))

#: The rules whose space has changed, as records name them.
_REVISED = {FUSION: f"{FUSION}:2", LANES: f"{LANES}:4"}

#: Mutators by name: they change a drawn choice of a candidate.
MUTATORS: dict[str, str] = {
    "tile-size": "moves a factor from one tile of a loop to another",
    "unroll": "draws another limit of unrolling",
    "parallel": "runs other outer loops in threads",
    "compute-location": "computes a block in another loop",
    "thread-binding": "on a GPU: draws another number of threads",
}

#: Postprocessors by name: they finish every candidate, or reject it.
POSTPROCESSORS: dict[str, str] = {
    "no-dynamic-loop": "rejects loops of unknown length",
    "parallel-vectorize-unroll": "writes the marks of the rules into the loops",
    "reduction": "sets sums to zero ahead of their loops",
    "layout": "lays weights out as they are read",
    "cooperative-fetch": "on a GPU: lets the threads of a block load shared memory together",
    "unbound-block": "on a GPU: binds the loops that no rule bound",
    "tensorize": "replaces marked loops by tensor instructions",
    "verify-gpu": "on a GPU: rejects programs that take too many threads or too much memory",
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


#: The names of a method's fields, as parameters of jobs have them.
PARTS = ("rules", "space", "strategy", "cost_model", "mutators", "postprocessors")


@dataclass(frozen=True)
class Method:
    """What a search is made of; by default TVM's own space for the target, ``fuse-stages`` and ``channel-lanes``,
    searched by evolution and XGBoost. ``Method(rules=("default",))`` is TVM's own space alone.

    ``rules`` are applied to every block in this order: names of :data:`RULES`, and functions of your own, in a notebook
    cell or as ``"file.py:function"``. A rule is called with the schedule and one block of it (``tvm.s_tir``'s
    ``Schedule`` and ``SBlockRV``), and returns a schedule, a list of schedules (alternatives, each of them searched),
    or None if it has changed the given schedule in place. ``space`` is a function that schedules the whole program by
    itself, in place of all rules; it is called with the schedule and returns the same. The search varies the values
    that either function draws with ``schedule.sample_…``.

    ``cost_model`` may be a class of your own, in a cell or as ``"file.py:Class"``, with three methods:
    ``extract(context, candidates)`` returns what it wants to know of each candidate (``candidate.sch`` is its schedule;
    ``ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)`` gives TVM's features),
    ``update(features, seconds)`` is told measured candidates (infinity for one that failed), and ``predict(features)``
    returns a number for each, a greater one for a faster candidate.

    ``mutators`` are names of :data:`MUTATORS` or functions, each with its share of all mutations; a function is called
    with a trace (``tvm.s_tir``'s ``Trace``) and returns another or None. ``postprocessors`` are names of
    :data:`POSTPROCESSORS` or functions, applied in this order; a function is called with a schedule, may change it in
    place, and returns False to reject the candidate. None for either: the target's own, in TVM.

    Functions run in the tuning process, never in this one: :func:`~syno_lab.user_code.user_code` says which
    names they may use. In every case the winner's output is compared with the unscheduled program's.

    Raises :class:`TuningError` for unknown names, for a space beside rules, and for code that cannot be sent.
    """

    rules: Sequence[Code] = OURS
    space: Code | None = None
    strategy: str = "evolutionary"
    cost_model: Code = "xgboost"
    mutators: Mapping[Code, float] | Sequence[tuple[Code, float]] | None = None
    postprocessors: Sequence[Code] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _all(self.rules, RULES, "rule", "('inline', 'tiling')"))
        if self.space is not None:
            if self.rules not in (OURS, (DEFAULT,)):
                raise TuningError(
                    "expected rules or a space of one's own, which takes the place of all rules; not both"
                )
            object.__setattr__(self, "space", user_code(self.space))
        if not isinstance(self.strategy, str) or self.strategy not in STRATEGIES:
            raise TuningError(f"expected a strategy among {', '.join(STRATEGIES)}, found {quoted(self.strategy)}")
        object.__setattr__(self, "cost_model", _named(self.cost_model, COST_MODELS, "cost model", "class"))
        if self.mutators is not None:
            object.__setattr__(self, "mutators", _shares(self.mutators))
        if self.postprocessors is not None:
            found = _all(self.postprocessors, POSTPROCESSORS, "postprocessor", "('layout', 'reduction')")
            object.__setattr__(self, "postprocessors", found)

    @property
    def code(self) -> tuple[UserCode, ...]:
        """The user's own functions in this method."""
        changes = [one for one, _ in self.mutations or ()]
        found = (*self.rules, self.space, self.cost_model, *changes, *(self.postprocessors or ()))
        return tuple(one for one in found if isinstance(one, UserCode))

    @property
    def mutations(self) -> tuple[tuple[str | UserCode, float], ...] | None:
        """The mutators with their shares."""
        return cast("tuple[tuple[str | UserCode, float], ...] | None", self.mutators)

    @property
    def is_guided(self) -> bool:
        """Whether the strategy uses the cost model."""
        return self.strategy == "evolutionary"

    def __str__(self) -> str:
        """One line, with a digest of each text of the user's; empty for TVM's own. Records are keyed by it."""
        if self == Method(rules=(DEFAULT,)):
            return ""
        rules = ", ".join(_REVISED.get(one, one) for one in map(str, self.rules))
        space = f"space {self.space}" if self.space else f"rules {rules or 'none'}"
        text = f"{space}; {self.strategy}{f', {self.cost_model}' if self.is_guided else ''}"
        if self.mutations is not None:
            text += f"; mutators {', '.join(f'{one} {share:g}' for one, share in self.mutations) or 'none'}"
        if self.postprocessors is not None:
            text += f"; postprocessors {', '.join(map(str, self.postprocessors)) or 'none'}"
        return text


def to_job(method: Method) -> dict[str, JSON]:
    """A method as parameters of a job, including the user's code as text."""

    def plain(one: Code) -> JSON:
        return msgspec.to_builtins(one) if isinstance(one, UserCode) else str(one)

    found = {"strategy": method.strategy, "cost_model": plain(method.cost_model)}
    found["rules"] = [plain(one) for one in method.rules]
    if method.space is not None:
        found["space"] = plain(method.space)
    if method.mutations is not None:
        found["mutators"] = [[plain(one), share] for one, share in method.mutations]
    if method.postprocessors is not None:
        found["postprocessors"] = [plain(one) for one in method.postprocessors]
    return found


def from_job(params: Mapping[str, JSON]) -> Method:
    """The method in a job's parameters; a missing part has its default.

    The user's code is there only as text, never as the name of a file or module, whose content may have changed. Raises
    TuningError for anything else, and CodeError for code that is none.
    """

    def read(one: JSON, known: Mapping[str, str], what: str) -> str | UserCode:
        if isinstance(one, str) and one not in known:
            raise TuningError(f"tune: expected a {what} among {', '.join(known)}, or code; found {quoted(one)}")
        return one if isinstance(one, str) else UserCode.from_dict(one)

    def listed(name: str) -> list[JSON]:
        if not isinstance(found := given[name], list):
            raise TuningError(f"tune: expected a list of {name}, found {quoted(found)}")
        return found

    given = {name: params[name] for name in PARTS if params.get(name) is not None}
    found: dict[str, Any] = dict(given)
    for name, known in (("rules", RULES), ("postprocessors", POSTPROCESSORS)):
        if name in given:
            found[name] = tuple(read(one, known, name.removesuffix("s")) for one in listed(name))
    if "mutators" in given:
        pairs = [one for one in listed("mutators") if isinstance(one, list) and len(one) == 2]
        if pairs != given["mutators"]:
            raise TuningError(
                f"tune: expected mutators as pairs of a mutator and its share, found {quoted(given['mutators'])}"
            )
        found["mutators"] = tuple((read(one, MUTATORS, "mutator"), share) for one, share in pairs)
    if "cost_model" in given:
        found["cost_model"] = read(given["cost_model"], COST_MODELS, "cost model")
    if "space" in given:
        found["space"] = UserCode.from_dict(given["space"])
    return Method(**found)


def _named(one: Code, known: Mapping[str, str], what: str, kind: str = "function") -> str | UserCode:
    """A known name as it is, and all else as code."""
    if isinstance(one, str) and one not in known and ":" not in one:
        raise TuningError(
            f"expected a {what} among {', '.join(known)}, a {kind} or 'file.py:{kind}', found {quoted(one)}"
        )
    return one if isinstance(one, str) and one in known else user_code(one, is_class=kind == "class")


def _all(given: Sequence[Code], known: Mapping[str, str], what: str, example: str) -> tuple[str | UserCode, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TuningError(f"expected {what}s as a list such as {example}, found {quoted(given)}")
    return tuple(_named(one, known, what) for one in given)


def _shares(
    given: Mapping[Code, float] | Sequence[tuple[Code, float]],
) -> tuple[tuple[str | UserCode, float], ...]:
    pairs = list(given.items()) if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else []
    if isinstance(given, str) or any(not isinstance(one, tuple) or len(one) != 2 for one in pairs):
        raise TuningError(f"expected mutators with their shares, as in {{'tile-size': 0.9}}, found {quoted(given)}")
    for _, share in pairs:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
            raise TuningError(f"expected the share of a mutator as a number above 0, found {quoted(share)}")
    return tuple((_named(one, MUTATORS, "mutator"), float(share)) for one, share in pairs)
