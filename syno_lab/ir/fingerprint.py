"""Semantic fingerprint: what an operator computes under a binding, as a hash of 128 bits.

An output element is a sum of terms, each a product of one input element and one element of every weight. The
fingerprint is that of the multiset of terms up to renaming the elements of each weight, the order of the weights, one
global factor, and the inner order of input axes the spec calls unordered. A weight whose element is fixed by another
weight's element in every term is merged into it, because their product is one trainable number.

The terms are never listed together. Iterators fall into independent parts (:mod:`syno_lab.ir.fingerprint_parts`), and
the numbers of an operator are products of those of its parts (:mod:`syno_lab.ir.fingerprint_table`, with the proof).
These are remembered, as few different parts make many operators. What is read off:

- a weight absorbs another when it does so in every part;
- each weight's number says which terms meet in its elements; the order of weights is forgotten by sorting;
- where different terms have equal positions (a reduction that only weights see) colour refinement takes over
  (Weisfeiler and Leman's algorithm), with the weights in the order of their numbers, the least of all orders on a tie.

Equal families of functions have equal fingerprints; the converse can fail by a tie of the refinement or on a small
binding. No random numbers and no floating point are used, so fingerprints are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from itertools import combinations, permutations, product
from math import factorial, prod

from syno_lab.common.terms import MAX_TERMS
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.fingerprint_binding import confirming_binding, enlarged, usual_items
from syno_lab.ir.fingerprint_parts import parts, sizes_under
from syno_lab.ir.fingerprint_table import MODULUS, Facts, facts, refined
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

_MOST_ORDERS = 720  # of weights that their numbers do not tell apart


def fingerprint(operator: Operator, binding: Binding | None = None) -> str:
    """The method :meth:`.Operator.fingerprint`: 32 hexadecimal digits.

    Raises:
        SpecError: where a size is no positive integer under the binding.
        SynoError: when a part has more than ``MAX_TERMS`` terms; a binding with small, pairwise different sizes tells
            enough.
    """
    return _fingerprint(operator, tuple(operator.complete_binding(binding).items()))


def distinct_key(
    operator: Operator, mirrors: Sequence[tuple[int, int]] = (), most_terms: int = MAX_TERMS
) -> tuple[tuple[tuple[str, int], ...], str]:
    """What tells operators of one spec apart: a binding (:func:`.fingerprint_binding`), and the fingerprint on it.

    The binding is changed where a size of ``operator`` would not be an integer (:func:`.enlarged`). This depends on how
    the operator is written, so a repeat of an operator that fits as it is can be missed; in the conv spec no operator
    needs it but those that divide a product of two primaries by more coefficients than divide each of them.

    With ``mirrors``, pairs of an input and an output axis, mirror images are not told apart: operators of which one is
    the other with input and output turned around along some of the pairs. The least of their fingerprints stands for
    all of them.

    Raises:
        SynoError: where a part of the operator has more than ``most_terms`` terms on that binding.
    """
    flips = [some for number in range(len(mirrors) + 1) for some in combinations(mirrors, number)]
    binding = usual_items(operator.spec)
    try:
        return binding, min(_fingerprint(operator, binding, some, most_terms) for some in flips)
    except SpecError:
        binding = tuple(enlarged(operator).items())
        return binding, min(_fingerprint(operator, binding, some, most_terms) for some in flips)


def confirmed_repeats(operators: Sequence[Operator], keys: Sequence[Hashable]) -> int:
    """How many operators are the function of an earlier one, where equal ``keys`` (:func:`distinct_key`) suggest it.

    Sizes equal by chance on the usual binding are told apart by :func:`confirming_binding` (DESIGN, section 3). What
    has too many terms there counts as a repeat.
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
    free: tuple[int, ...] = ()
    if spec.unordered:
        free = tuple(axis for axis, size in enumerate(spec.input_shape) if str(size) in spec.unordered)
    taken_apart = parts(operator, sizes, free, flips)
    largest = max((key.number for key, _ in taken_apart), default=0)
    if largest > most_terms:
        raise SynoError(f"fingerprint: expected at most {most_terms} terms, found {largest}; use a smaller binding")
    found = [(key, slots, facts(key)) for key, slots in taken_apart]
    head = (
        tuple(sizes[size] for size in spec.output_shape),
        tuple(sizes[size] for size in spec.input_shape),
        free,
    )
    if any(fact.is_empty for _, _, fact in found):
        return _digest((head, "zero"))
    weights = len(operator.weights)
    seen = [(slots, fact) for _, slots, fact in found]
    kept = _unabsorbed(seen, weights)
    if not kept and not free:  # no two terms can share anything
        return _digest((head, _product(fact.apart for _, fact in seen)))
    number = {member: _pairs(seen, member) for member in (*kept, *range(weights, weights + len(free)))}
    ranked = sorted(kept, key=number.__getitem__)
    told = (head, tuple(number[w] for w in ranked), tuple(number[weights + i] for i in range(len(free))))
    if all(fact.is_visible for _, _, fact in found):
        return _digest(told)

    def colours(order: tuple[int, ...]) -> int:
        names = dict(zip((*order, *range(weights, weights + len(free))), range(len(order) + len(free)), strict=True))
        return _product(
            refined(
                key,
                tuple(names.get(member, -1) for member in slots),
                tuple(name for member, name in names.items() if member not in slots),
            )
            for key, slots, _ in found
        )

    ties: dict[int, list[int]] = {}
    for weight in ranked:
        ties.setdefault(number[weight], []).append(weight)
    if prod(factorial(len(tie)) for tie in ties.values()) > _MOST_ORDERS:
        return _digest(told)  # seven weights alike: less is told, nothing wrong
    orders = product(*(permutations(tie) for tie in ties.values()))
    return _digest((*told, min(colours(tuple(w for tie in order for w in tie)) for order in orders)))


def _unabsorbed(seen: list[tuple[tuple[int, ...], Facts]], weights: int) -> list[int]:
    """The weights that are left when each whose element another's fixes in every part is merged into that other."""
    if weights < 2:
        return list(range(weights))
    finer = [(1 << weights) - 1] * weights  # what each weight fixes in all parts so far
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
    kept = list(range(weights))
    for small in range(weights):
        if any(big != small and finer[big] >> small & 1 for big in kept):
            kept.remove(small)
    return kept


def _pairs(seen: list[tuple[tuple[int, ...], Facts]], member: int) -> int:
    """The number that says which terms meet in the elements of ``member``."""
    return _product(fact.pairs[slots.index(member)] if member in slots else fact.apart for slots, fact in seen)


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result = result * number % MODULUS
    return result


def _digest(facts_told: object) -> str:
    return blake2b(repr(facts_told).encode(), digest_size=16).hexdigest()
