"""The method of a tuning as one value: design space and rules, strategy and cost model. Imports no TVM.

The parts are MetaSchedule's (Shao et al., *Tensor program optimization with probabilistic programs*, sections 3 and 4).
Rules are applied to every block of the program and make *sketches*, programs that still have random choices. The
strategy draws choices and mutates them, guided by the cost model. Everything runs in the tuning process.
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

#: A part that the user has written: a function, ``file.py:function``, or a class for cost models.
Code = UserCode | Callable[..., Any] | str

#: The name that stands for all of TVM's rules for the target, in TVM's order.
DEFAULT = "default"

#: The lab's own rules, which apply before TVM's rules; on a GPU they change nothing.
FUSION = "fuse-stages"
LANES = "channel-lanes"
OURS = (FUSION, LANES, DEFAULT)

#: Schedule rules by name, with descriptions: :data:`GPU_RULES` are for a GPU, :data:`CPU_RULES` for a processor.
RULES: dict[str, str] = {
    DEFAULT: "all rules that TVM has for the target",
    "inline": "computes a block inside its reader",
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
CPU_RULES = tuple(key for key in RULES if key not in ("tensor-cores", "cross-thread", "bind", DEFAULT, FUSION, LANES))

#: Rules whose sketches have changed between versions of the lab, with the rules' present names in records.
_REVISED = {FUSION: f"{FUSION}:2", LANES: f"{LANES}:4"}

#: Mutators by name; a mutator changes a drawn choice of a candidate.
MUTATORS: dict[str, str] = {
    "tile-size": "moves a factor from one tile of a loop to another",
    "unroll": "draws another limit of unrolling",
    "parallel": "runs other outer loops in threads",
    "compute-location": "computes a block in another loop",
    "thread-binding": "on a GPU: draws another number of threads",
}

#: Postprocessors by name; a postprocessor finishes or rejects a candidate.
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

#: The cost models, which predict a candidate's latency before it is measured (only ``evolutionary`` uses them).
COST_MODELS: dict[str, str] = {
    "xgboost": "boosted trees over the loop nest's features, trained on every batch",
    "random": "predicts at random, for comparisons",
}


#: The names of a method's fields in the parameters of jobs.
PARTS = ("rules", "space", "strategy", "cost_model", "mutators", "postprocessors")


@dataclass(frozen=True)
class Method:
    """The parts of a tuning's search. The default is TVM's own space for the target, with ``fuse-stages`` and
    ``channel-lanes``, searched by evolution and XGBoost. ``Method(rules=("default",))`` is TVM's own space.

    ``rules`` are applied to every block in this order: names of :data:`RULES`, and functions of your own, in a notebook
    cell or as ``"file.py:function"``. A rule is called with the schedule and a block of it (``tvm.s_tir``'s
    ``Schedule`` and ``SBlockRV``). The rule returns a schedule, a list of schedules (alternatives that are all
    searched), or None if it has changed the given schedule in place. ``space`` is a function that schedules the whole
    program and replaces all rules; it is called with the schedule and returns the values of a rule. The search varies
    the values that a rule or ``space`` draws with ``schedule.sample_…``.

    ``cost_model`` may be a class of your own, in a cell or as ``"file.py:Class"``, with three methods:
    ``extract(context, candidates)`` returns features of each candidate (``candidate.sch`` is its schedule;
    ``ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)`` returns TVM's features),
    ``update(features, seconds)`` receives measured candidates (infinity for a failed candidate), and
    ``predict(features)`` returns a number for each candidate, greater for a faster candidate.

    ``mutators`` are names of :data:`MUTATORS` or functions, each with its share of all mutations; a function is called
    with a trace (``tvm.s_tir``'s ``Trace``) and returns another trace or None. ``postprocessors`` are names of
    :data:`POSTPROCESSORS` or functions, applied in this order; a function is called with a schedule, may change it in
    place, and returns False to reject the candidate. None: TVM's own mutators or postprocessors are used.

    Functions run in the tuning process, never in this process: :func:`~syno_lab.user_code.user_code` describes the
    names that they may use. The best candidate's output is always compared with the output of the unscheduled program.

    Raises :class:`TuningError` for unknown names, for ``space`` with ``rules``, and for code that cannot be sent.
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
                raise TuningError("expected rules or a space of your own, not both: a space replaces all rules")
            object.__setattr__(self, "space", user_code(self.space))
        if not isinstance(self.strategy, str) or self.strategy not in STRATEGIES:
            raise TuningError(f"expected a strategy among {', '.join(STRATEGIES)}, found {quoted(self.strategy)}")
        object.__setattr__(self, "cost_model", _named(self.cost_model, COST_MODELS, "cost model", "class"))
        if self.mutators is not None:
            object.__setattr__(self, "mutators", _shares(self.mutators))
        if self.postprocessors is not None:
            checked = _all(self.postprocessors, POSTPROCESSORS, "postprocessor", "('layout', 'reduction')")
            object.__setattr__(self, "postprocessors", checked)

    @property
    def code(self) -> tuple[UserCode, ...]:
        """The user's own functions in this method."""
        changes = [mutation for mutation, _ in self.mutations or ()]
        members = (*self.rules, self.space, self.cost_model, *changes, *(self.postprocessors or ()))
        return tuple(part for part in members if isinstance(part, UserCode))

    @property
    def mutations(self) -> tuple[tuple[str | UserCode, float], ...] | None:
        """The mutators with their shares."""
        return cast("tuple[tuple[str | UserCode, float], ...] | None", self.mutators)

    @property
    def is_guided(self) -> bool:
        """Whether the strategy uses the cost model."""
        return self.strategy == "evolutionary"

    def __str__(self) -> str:
        """Return a line for the keys of records, with digests of the user's functions; empty for TVM's own method."""
        if self == Method(rules=(DEFAULT,)):
            return ""
        rules = ", ".join(_REVISED.get(name, name) for name in map(str, self.rules))
        space = f"space {self.space}" if self.space else f"rules {rules or 'none'}"
        text = f"{space}; {self.strategy}{f', {self.cost_model}' if self.is_guided else ''}"
        if self.mutations is not None:
            text += f"; mutators {', '.join(f'{mutation} {share:g}' for mutation, share in self.mutations) or 'none'}"
        if self.postprocessors is not None:
            text += f"; postprocessors {', '.join(map(str, self.postprocessors)) or 'none'}"
        return text


def to_job(method: Method) -> dict[str, JSON]:
    """Return a method as parameters of a job, including the user's code as text."""
    parts: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(method))  # lists in place of tuples
    return {name: part for name, part in parts.items() if part is not None}


def from_job(params: Mapping[str, JSON]) -> Method:
    """Return the method in a job's parameters; a missing field has its default.

    The user's code must be text, and not the name of a file or module, whose content may have changed. Raises
    TuningError for other parameters, and CodeError for text that is not code.
    """

    def read(item: JSON, names: Mapping[str, str], role: str) -> str | UserCode:
        if isinstance(item, str) and item not in names:
            raise TuningError(f"tune: expected a {role} among {', '.join(names)}, or code; found {quoted(item)}")
        return item if isinstance(item, str) else UserCode.from_dict(item)

    def listed(name: str) -> list[JSON]:
        if not isinstance(value := settings[name], list):
            raise TuningError(f"tune: expected a list of {name}, found {quoted(value)}")
        return value

    settings = {name: params[name] for name in PARTS if params.get(name) is not None}
    parts: dict[str, Any] = dict(settings)
    for name, allowed in (("rules", RULES), ("postprocessors", POSTPROCESSORS)):
        if name in settings:
            parts[name] = tuple(read(item, allowed, name.removesuffix("s")) for item in listed(name))
    if "mutators" in settings:
        pairs = [item for item in listed("mutators") if isinstance(item, list) and len(item) == 2]
        if pairs != settings["mutators"]:
            raise TuningError(
                f"tune: expected mutators as pairs of a mutator and its share, found {quoted(settings['mutators'])}"
            )
        parts["mutators"] = tuple((read(item, MUTATORS, "mutator"), share) for item, share in pairs)
    if "cost_model" in settings:
        parts["cost_model"] = read(settings["cost_model"], COST_MODELS, "cost model")
    if "space" in settings:
        parts["space"] = UserCode.from_dict(settings["space"])
    return Method(**parts)


def _named(part: Code, names: Mapping[str, str], role: str, kind: str = "function") -> str | UserCode:
    """Return a known name unchanged, and any other value as code."""
    if isinstance(part, str) and part not in names and ":" not in part:
        raise TuningError(
            f"expected a {role} among {', '.join(names)}, a {kind} or 'file.py:{kind}', found {quoted(part)}"
        )
    return part if isinstance(part, str) and part in names else user_code(part, is_class=kind == "class")


def _all(parts: Sequence[Code], names: Mapping[str, str], role: str, example: str) -> tuple[str | UserCode, ...]:
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise TuningError(f"expected {role}s as a list such as {example}, found {quoted(parts)}")
    return tuple(_named(item, names, role) for item in parts)


def _shares(value: Mapping[Code, float] | Sequence[tuple[Code, float]]) -> tuple[tuple[str | UserCode, float], ...]:
    pairs = list(value.items()) if isinstance(value, Mapping) else list(value) if isinstance(value, Sequence) else []
    if isinstance(value, str) or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise TuningError(f"expected mutators with their shares, as in {{'tile-size': 0.9}}, found {quoted(value)}")
    for _, share in pairs:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
            raise TuningError(f"expected the share of a mutator as a number above 0, found {quoted(share)}")
    return tuple((_named(item, MUTATORS, "mutator"), float(share)) for item, share in pairs)
