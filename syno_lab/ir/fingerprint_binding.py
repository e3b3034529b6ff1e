"""The binding under which operators of one spec are compared; it is enlarged only where an operator needs that."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import count
from math import lcm

from syno_lab.common.size import Size
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding, Spec

_SMALL = 5  # coefficients up to this keep their values
_MOST_BLOCK = 16  # the largest common block of a primary that is provided for
_MOST_POWER = 4


@lru_cache(maxsize=256)
def usual_items(spec: Spec) -> tuple[tuple[str, int], ...]:
    """:func:`fingerprint_binding` as items."""
    return tuple(_bind(spec, _small_coefficients(spec)).items())


def fingerprint_binding(spec: Spec) -> dict[str, int]:
    """The binding on which operators of ``spec`` are told apart; it fits nearly all of them.

    Coefficients up to 5 keep their values, larger ones become the least even or odd number from 4 on that no other has
    and that the coefficients which divided them still divide. A primary is a block, of what coefficients may divide it
    by under the spec's bindings, times a number from 6 on, another one for each primary and a prime where reductions
    may have its size, so that no two sizes that matter are equal by chance. Fixed axes (the batch) have 1.
    """
    return dict(usual_items(spec))


def confirming_binding(spec: Spec) -> dict[str, int]:
    """A larger binding on which to confirm that two operators of ``spec`` are one function (DESIGN, section 3).

    Coefficients have their own values, so that a digit of 16 is not taken for one of 4, which a window of 15 covers
    and four SHIFTs leave as it is. It costs several times what the usual one does: use it on repeats alone.
    """
    return _bind(spec, _own_coefficients(spec))


def enlarged(operator: Operator) -> dict[str, int]:
    """The binding for an operator that the usual one does not fit.

    Primaries are multiplied by the coefficients that should divide them, and where that does not help the coefficients
    have their own values.
    """
    spec = operator.spec
    binding = fingerprint_binding(spec)
    if not _enlarge(operator, binding):
        binding = _bind(spec, _own_coefficients(spec))
        _enlarge(operator, binding)
    return binding


def _enlarge(operator: Operator, binding: dict[str, int]) -> bool:
    """Multiply primaries until every size is an integer; False where that is out of their power."""
    symbols = operator.spec.symbols
    for size in sorted(_sizes(operator), key=lambda s: s.exponents):
        powers = dict(zip(symbols.names, size.exponents, strict=True))
        primary = next((name for name in symbols.primary if powers[name] > 0), None)
        for name in symbols.coefficient:
            for _ in range(-powers[name]):
                if primary is not None and not size.is_integral(binding):
                    binding[primary] *= binding[name]
        if not size.is_integral(binding):
            return False
    return True


def _sizes(operator: Operator) -> set[Size]:
    sizes = {c.size for c in (*operator.output, *operator.inputs, *operator.reductions)}
    for step in operator.steps:
        sizes.update(c.size for c in step.operands + step.given)
        if step.primitive not in ("REDUCE", "SHARE"):
            sizes.update(result.size for result in operator.state.results(step))
    return sizes


def _own_coefficients(spec: Spec) -> dict[str, int]:
    bound = spec.binding_maps[0] if spec.bindings else {}
    return {name: bound.get(name, spec.defaults.get(name, 2)) for name in spec.symbols.coefficient}


def _small_coefficients(spec: Spec) -> dict[str, int]:
    own = _own_coefficients(spec)
    small: dict[str, int] = {}
    for name in sorted(own, key=lambda n: (own[n], n)):
        number = own[name]
        if number > _SMALL:
            same = next((small[other] for other in small if own[other] == number), None)
            block = lcm(*(small[other] for other in small if own[other] > 1 and number % own[other] == 0))
            taken = {value for other, value in small.items()} | {value for value in own.values() if value <= _SMALL}
            multiples = count(-(-4 // block) * block, block)
            number = same or next(n for n in multiples if n % 2 == number % 2 and n not in taken)
            number = min(number, own[name])
        small[name] = number
    return {name: small[name] for name in spec.symbols.coefficient}


def _bind(spec: Spec, coefficients: Binding) -> dict[str, int]:
    fixed = {name for i, _ in spec.fixed_io_pairs for name in spec.input_shape[i].variables}
    taken = set(coefficients.values())
    binding: dict[str, int] = {}
    reducible = [name for name in spec.symbols.primary if spec.occurrence_limits[name] != 0]
    for name in sorted(spec.symbols.primary, key=lambda n: n not in reducible):
        if name in fixed:
            binding[name] = 1
            continue
        block = _block(spec, name, coefficients)
        factor = next(
            n
            for n in count(_SMALL + 1)
            if not {n, n * block} & taken and (name not in reducible or all(n % d for d in range(2, n)))
        )
        taken |= {factor, factor * block}
        binding[name] = factor * block
    binding = {name: binding[name] for name in spec.symbols.primary}
    return {**binding, **coefficients}


def _block(spec: Spec, primary: str, coefficients: Binding) -> int:
    """What ``primary`` must be divisible by for the sizes that are legal under every binding of the spec.

    Where there is none, each coefficient is provided for once.
    """
    names = [name for name in coefficients if spec.occurrence_limits[name] != 0]
    if not spec.bindings:
        return lcm(*(coefficients[name] for name in names))
    # Coefficients of equal values are one kind: what they divide is the same.
    kinds: Counter[tuple[tuple[int, ...], int]] = Counter()
    for name in names:
        kinds[tuple(bound[name] for bound in spec.binding_maps), coefficients[name]] += _limit(spec, name)
    for degree in (_MOST_POWER, 2, 1):
        block = _common_block(list(kinds.items()), [bound[primary] for bound in spec.binding_maps], degree)
        if block <= _MOST_BLOCK:
            break
    return block


def _common_block(kinds: list[tuple[tuple[tuple[int, ...], int], int]], wholes: list[int], degree: int) -> int:
    """The common multiple of all products of at most ``degree`` coefficients that divide ``wholes`` under each binding.

    A degree above 1 whose block is larger than is provided for is left early.
    """
    block = 1
    todo = [(0, degree, wholes, 1)]
    while todo:
        start, left, rests, made = todo.pop()
        block = lcm(block, made)
        if degree > 1 and block > _MOST_BLOCK:
            return block
        for at in range(start, len(kinds)):
            (values, small), limit = kinds[at]
            quotients, product = rests, made
            for power in range(1, min(left, limit) + 1):
                if any(rest % number for rest, number in zip(quotients, values, strict=True)):
                    break
                quotients = [rest // number for rest, number in zip(quotients, values, strict=True)]
                product *= small
                todo.append((at + 1, left - power, quotients, product))
    return block


def _limit(spec: Spec, coefficient: str) -> int:
    limit = spec.occurrence_limits[coefficient]
    return _MOST_POWER if limit is None else limit
