"""Semantic fingerprint: what an operator computes under a binding, as a hash of 128 bits.

An output element is a sum of terms. A term is a product of one input element and one element of every weight. The
fingerprint describes the multiset of terms. The fingerprint ignores the names of the elements of each weight, the order
of the weights, a global factor, and the inner order of unordered input axes. A weight absorbs another weight if it
determines the other weight's element in every term: the product of the two is one trainable number.

The terms of an operator are never listed together. The iterators form independent parts
(:mod:`syno_lab.ir.fingerprint_parts`), and each hash number of an operator is the product of its parts' numbers
(:mod:`syno_lab.ir.fingerprint_table`, with the proof). The numbers of parts are cached, because few different parts
form many operators. The fingerprint uses these facts:

* A weight absorbs another weight of the operator exactly if it does so in every part.
* A number for each weight describes which terms use the same element. Sorting the numbers removes the weights' order.
* If different terms have equal positions (a reduction indexes only weights), colour refinement distinguishes them
  (Weisfeiler and Leman's algorithm). Weights with equal numbers are tried in all orders; the least hash is used.

Operators with the same functions (one for each choice of weights) have equal fingerprints. A tie of the refinement or a
small binding can give different operators one fingerprint. No random or floating-point numbers: all machines agree.

Operators of one spec are compared under one small binding, which is enlarged only for operators that need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache, reduce
from hashlib import blake2b
from itertools import combinations, count, permutations, product
from math import factorial, lcm, prod

from syno_lab.common.size import Size
from syno_lab.common.terms import MAX_TERMS
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.fingerprint_parts import parts, sizes_under
from syno_lab.ir.fingerprint_table import MODULUS, Facts, facts, refined
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding, Spec

_SMALL = 5  # Coefficients up to this value keep their values.
_MOST_BLOCK = 16  # The limit of the block that divides a primary.
_MOST_POWER = 4


@lru_cache(maxsize=256)
def usual_items(spec: Spec) -> tuple[tuple[str, int], ...]:
    """Return :func:`fingerprint_binding` as pairs of name and value."""
    return tuple(_bind(spec, _small_coefficients(spec)).items())


def fingerprint_binding(spec: Spec) -> dict[str, int]:
    """Return the binding for comparing operators of ``spec``; it fits nearly all of them.

    Coefficients up to 5 keep their values. A larger coefficient becomes the least unused number from 4 on with the same
    parity. Divisors among the coefficients remain divisors. The value of a primary is a block times a factor. If a
    coefficient may divide the primary under the spec's bindings, it divides the block. The factor is at least 6,
    different for each primary, and prime if reductions may have the primary's size. No two relevant sizes are equal by
    chance. Fixed axes (the batch) have size 1.
    """
    return dict(usual_items(spec))


def confirming_binding(spec: Spec) -> dict[str, int]:
    """Return a larger binding that confirms whether two operators of ``spec`` are one function (DESIGN, section 3).

    Coefficients have their own values. With smaller values a digit of size 16 could get size 4. A window of 15 covers a
    digit of size 4, and four SHIFTs do not change this digit. Use this slow binding only for likely repeats.
    """
    return _bind(spec, _own_coefficients(spec))


def enlarged(operator: Operator) -> dict[str, int]:
    """Return the binding for an operator that the usual binding does not fit.

    Primaries are multiplied by the coefficients that should divide them. If this does not suffice, the coefficients
    have their own values.
    """
    spec = operator.spec
    binding = fingerprint_binding(spec)
    if not _enlarge(operator, binding):
        binding = _bind(spec, _own_coefficients(spec))
        _enlarge(operator, binding)
    return binding


def _enlarge(operator: Operator, binding: dict[str, int]) -> bool:
    """Multiply primaries until every size is an integer; return False if this is impossible."""
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
            used = {value for other, value in small.items()} | {value for value in own.values() if value <= _SMALL}
            multiples = count(-(-4 // block) * block, block)
            number = same or next(n for n in multiples if n % 2 == number % 2 and n not in used)
            number = min(number, own[name])
        small[name] = number
    return {name: small[name] for name in spec.symbols.coefficient}


def _bind(spec: Spec, coefficients: Binding) -> dict[str, int]:
    fixed = {name for i, _ in spec.fixed_io_pairs for name in spec.input_shape[i].variables}
    used = set(coefficients.values())
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
            if not {n, n * block} & used and (name not in reducible or all(n % d for d in range(2, n)))
        )
        used |= {factor, factor * block}
        binding[name] = factor * block
    binding = {name: binding[name] for name in spec.symbols.primary}
    return {**binding, **coefficients}


def _block(spec: Spec, primary: str, coefficients: Binding) -> int:
    """Return a number: if it divides ``primary``, each size that is legal under every binding is an integer.

    Without bindings, the number is a multiple of each coefficient.
    """
    names = [name for name in coefficients if spec.occurrence_limits[name] != 0]
    if not spec.bindings:
        return lcm(*(coefficients[name] for name in names))
    # Coefficients with equal values count together, because they divide the same sizes.
    kinds: Counter[tuple[tuple[int, ...], int]] = Counter()
    for name in names:
        kinds[tuple(bound[name] for bound in spec.binding_maps), coefficients[name]] += _limit(spec, name)
    for degree in (_MOST_POWER, 2, 1):
        block = _common_block(list(kinds.items()), [bound[primary] for bound in spec.binding_maps], degree)
        if block <= _MOST_BLOCK:
            break
    return block


def _common_block(kinds: list[tuple[tuple[tuple[int, ...], int], int]], wholes: list[int], degree: int) -> int:
    """Return the common multiple of the products (of at most ``degree`` coefficients) that divide each of ``wholes``.

    With a degree above 1, the function returns early when the multiple exceeds ``_MOST_BLOCK``.
    """
    block = 1
    todo = [(0, degree, wholes, 1)]
    while todo:
        start, remaining, rests, multiple = todo.pop()
        block = lcm(block, multiple)
        if degree > 1 and block > _MOST_BLOCK:
            return block
        for at in range(start, len(kinds)):
            (values, small), limit = kinds[at]
            quotients, product = rests, multiple
            for power in range(1, min(remaining, limit) + 1):
                if any(rest % number for rest, number in zip(quotients, values, strict=True)):
                    break
                quotients = [rest // number for rest, number in zip(quotients, values, strict=True)]
                product *= small
                todo.append((at + 1, remaining - power, quotients, product))
    return block


def _limit(spec: Spec, coefficient: str) -> int:
    limit = spec.occurrence_limits[coefficient]
    return _MOST_POWER if limit is None else limit


_MOST_ORDERS = 720  # the limit of tried orders of weights with equal numbers


def fingerprint(operator: Operator, binding: Binding | None = None) -> str:
    """Compute :meth:`.Operator.fingerprint`: 32 hexadecimal digits.

    Raises:
        SpecError: a size is no positive integer under the binding.
        SynoError: a part has more than ``MAX_TERMS`` terms; use a binding with small, pairwise different sizes.
    """
    return _fingerprint(operator, tuple(operator.complete_binding(binding).items()))


def distinct_key(
    operator: Operator, mirrors: Sequence[tuple[int, int]] = (), most_terms: int = MAX_TERMS
) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return a key for comparing operators of one spec: a binding, and the operator's fingerprint under this binding.

    The binding is :func:`.fingerprint_binding`, or :func:`.enlarged` if a size of ``operator`` would be no integer. The
    choice depends on how the operator is written, so equal operators can have different keys. In the conv spec, an
    operator needs ``enlarged`` only if it divides a product of two primaries by more coefficients than one primary.

    ``mirrors`` are pairs of an input and an output axis. With mirrors, two operators also have equal keys if they agree
    after input and output are reversed along some of the pairs. The key has the least fingerprint of all mirror images.
    Raises SynoError if a part of the operator has more than ``most_terms`` terms on the binding.
    """
    flips = [some for number in range(len(mirrors) + 1) for some in combinations(mirrors, number)]
    binding = usual_items(operator.spec)
    try:
        return binding, min(_fingerprint(operator, binding, some, most_terms) for some in flips)
    except SpecError:
        binding = tuple(enlarged(operator).items())
        return binding, min(_fingerprint(operator, binding, some, most_terms) for some in flips)


def confirmed_repeats(operators: Sequence[Operator], keys: Sequence[Hashable]) -> int:
    """Count operators that compute the function of an earlier operator with an equal key (:func:`distinct_key`).

    A larger binding, :func:`confirming_binding`, separates sizes that are equal by chance on the usual binding (DESIGN,
    section 3). An operator with too many terms under this binding counts as a repeat.
    """
    alike: dict[Hashable, list[Operator]] = {}
    for operator, key in zip(operators, keys, strict=True):
        alike.setdefault(key, []).append(operator)
    repeats = 0
    for group in alike.values():
        if len(group) > 1:
            binding = tuple(confirming_binding(group[0].spec).items())
            try:
                repeats += len(group) - len({_fingerprint(operator, binding) for operator in group})
            except SynoError:
                repeats += len(group) - 1
    return repeats


def _fingerprint(
    operator: Operator,
    binding: tuple[tuple[str, int], ...],
    flips: tuple[tuple[int, int], ...] = (),
    most_terms: int = MAX_TERMS,
) -> str:
    sizes = sizes_under(binding)
    spec = operator.spec
    free = spec.free_axes
    taken_apart = parts(operator, sizes, free, flips)
    largest = max((key.number for key, _ in taken_apart), default=0)
    if largest > most_terms:
        raise SynoError(f"fingerprint: expected at most {most_terms} terms, found {largest}; use a smaller binding")
    known = [(key, slots, facts(key)) for key, slots in taken_apart]
    head = (tuple(sizes[size] for size in spec.output_shape), tuple(sizes[size] for size in spec.input_shape), free)
    if any(fact.is_empty for _, _, fact in known):
        return _digest((head, "zero"))
    weights = len(operator.weights)
    seen = [(slots, fact) for _, slots, fact in known]
    remaining = _unabsorbed(seen, weights)
    if not remaining and not free:  # no two terms can share an element
        return _digest((head, _product(fact.apart for _, fact in seen)))
    number = {member: _pairs(seen, member) for member in (*remaining, *range(weights, weights + len(free)))}
    ranked = sorted(remaining, key=number.__getitem__)
    content = (head, tuple(number[w] for w in ranked), tuple(number[weights + i] for i in range(len(free))))
    if all(fact.is_visible for _, _, fact in known):
        return _digest(content)

    def colours(order: tuple[int, ...]) -> int:
        names = dict(zip((*order, *range(weights, weights + len(free))), range(len(order) + len(free)), strict=True))
        return _product(
            refined(
                key,
                tuple(names.get(member, -1) for member in slots),
                tuple(name for member, name in names.items() if member not in slots),
            )
            for key, slots, _ in known
        )

    ties: dict[int, list[int]] = {}
    for weight in ranked:
        ties.setdefault(number[weight], []).append(weight)
    if prod(factorial(len(tie)) for tie in ties.values()) > _MOST_ORDERS:
        return _digest(content)  # too many orders: different operators may get equal hashes
    orders = product(*(permutations(tie) for tie in ties.values()))
    return _digest((*content, min(colours(tuple(w for tie in order for w in tie)) for order in orders)))


def _unabsorbed(seen: list[tuple[tuple[int, ...], Facts]], weights: int) -> list[int]:
    """Merge each weight into a weight that determines its element in every part; return the remaining weights."""
    if weights < 2:
        return list(range(weights))
    finer = [(1 << weights) - 1] * weights  # for each weight, a mask of the weights that it determines so far
    for slots, fact in seen:
        single = (1 << weights) - 1  # the weights with one element in this part
        for i, member in enumerate(slots):
            if not fact.single >> i & 1:
                single &= ~(1 << member)
        for weight in range(weights):
            mask = single
            if weight in slots:
                local = fact.finer[slots.index(weight)]
                for i, member in enumerate(slots):
                    if local >> i & 1:
                        mask |= 1 << member
            finer[weight] &= mask
    remaining = list(range(weights))
    for small in range(weights):
        if any(big != small and finer[big] >> small & 1 for big in remaining):
            remaining.remove(small)
    return remaining


def _pairs(seen: list[tuple[tuple[int, ...], Facts]], member: int) -> int:
    """Return the number that describes which terms use the same element of ``member``."""
    return _product(fact.pairs[slots.index(member)] if member in slots else fact.apart for slots, fact in seen)


def _product(numbers: Iterable[int]) -> int:
    return reduce(lambda product, number: product * number % MODULUS, numbers, 1)


def _digest(content: object) -> str:
    return blake2b(repr(content).encode(), digest_size=16).hexdigest()
