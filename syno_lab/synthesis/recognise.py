"""Recognise known operators: names of variables and the order of steps make no difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations

from syno_lab.common.size import Size
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.synthesis.rebuilding import rebuilt


def recognise(operator: Operator, known: Mapping[str, Callable[[], Operator]]) -> str | None:
    """The name of the first known operator with the same pGraph, up to renaming variables; None for none."""
    for name, make in known.items():
        if is_same_pgraph(operator, make()):
            return name
    return None


def is_same_pgraph(operator: Operator, other: Operator) -> bool:
    """Whether two operators have the same pGraph and input match, up to renaming variables and reductions.

    Budgets, bindings and variables that do not occur make no difference, and neither do axes marked as fixed.
    """
    if _outline(operator) != _outline(other):
        return False
    return any(_key_after(other, operator, names) == operator.key for names in _renamings(other, operator))


def _outline(operator: Operator) -> tuple[object, ...]:
    """Cheap and independent of names: axes, and how often each primitive is used with how many operands."""
    steps = sorted((s.primitive, len(s.operands), len(s.given)) for s in operator.steps)
    return len(operator.inputs), len(operator.output), len(operator.reductions), tuple(steps)


def _used(operator: Operator) -> tuple[list[str], list[str]]:
    """The primary and the coefficient variables that occur."""
    symbols = operator.spec.symbols
    sizes = [c.size for c in (*operator.inputs, *operator.output)]
    sizes += [step.parameter for step in operator.steps if step.parameter is not None]
    occurs = [any(size.exponents[i] for size in sizes) for i in range(len(symbols.names))]
    used = [name for name, is_used in zip(symbols.names, occurs, strict=True) if is_used]
    return [n for n in used if n in symbols.primary], [n for n in used if n in symbols.coefficient]


def _renamings(source: Operator, target: Operator) -> Iterator[dict[str, str]]:
    """All ways to call the source's variables by the target's names; the output's plain axes settle most of them."""
    settled: dict[str, str] = {}
    pairs = [*zip(source.output, target.output, strict=True), *zip(source.inputs, target.inputs, strict=True)]
    for one, other in pairs:
        left, right = _factors(one.size), _factors(other.size)
        if sorted(left.values()) != sorted(right.values()):
            return
        if len(left) == 1:
            (name,), (called,) = left, right
            if settled.setdefault(name, called) != called:
                return
    if len(set(settled.values())) != len(settled):
        return
    (primary, coefficient), (to_primary, to_coefficient) = _used(source), _used(target)
    if len(primary) != len(to_primary) or len(coefficient) != len(to_coefficient):
        return
    for first in _complete(primary, to_primary, settled):
        for second in _complete(coefficient, to_coefficient, settled):
            yield {**first, **second}


def _complete(names: list[str], to: list[str], settled: dict[str, str]) -> Iterator[dict[str, str]]:
    fixed = {name: settled[name] for name in names if name in settled}
    if not set(fixed.values()) <= set(to):
        return
    open_names = [name for name in names if name not in fixed]
    rest = [name for name in to if name not in fixed.values()]
    for chosen in permutations(rest):
        yield {**fixed, **dict(zip(open_names, chosen, strict=True))}


def _factors(size: Size) -> dict[str, int]:
    return {name: power for name, power in zip(size.symbols.names, size.exponents, strict=True) if power}


def _key_after(source: Operator, target: Operator, names: dict[str, str]) -> object:
    """The key of ``source`` built anew over the target's spec; None where that is not possible."""
    try:
        return rebuilt(source, target.spec, names).key
    except SynoError:  # not legal over the other spec, so it is not the same
        return None
