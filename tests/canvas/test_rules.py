"""The pruning rules: each has a case, and what an exact one prunes is had without it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from canvas_growth import BINDING

from syno_lab.canvas.growth import Candidate, Limit, candidates
from syno_lab.canvas.kernel import Draft, Node
from syno_lab.canvas.known import KNOWN
from syno_lab.canvas.primitives import Primitive, weight_of
from syno_lab.canvas.reference import value
from syno_lab.canvas.rules import RULES, Room, Rule, pruning
from syno_lab.canvas.values import ANY, NOT_NEGATIVE, SUMS, Term, left_after_cancelling, range_of, terms_of

#: After which a sum may not depend on one of its tensors.
LOSING = ("zero", "cancelled", "lost in a sum", "negated side", "sign twice")

#: For each rule nodes of which it prunes the last, and nodes of which no rule prunes the last.
CASES = {
    "once": ("relu 0; add 1 0; relu 0", "fc x0 0; fc x0 0"),
    "zero": ("fc C 0; sub 1 1", "fc C 0; sub 1 0"),
    "same sides": ("fc C 0; max 1 1", "fc C 0; max 1 0"),
    "double": ("fc C 0; add 1 1", "fc C 0; mul 1 1"),
    "no sign": ("softmax C 0; relu 1", "fc C 0; tanh 1; abs 2"),
    "sign twice": ("neg 0; abs 1", "neg 0; softmax C 1"),
    "negated side": ("fc C 0; neg 1; sub 0 2", "fc C 0; neg 1; mul 0 2"),
    "cancelled": ("fc C 0; neg 1; sub 2 0; add 0 3", "fc C 0; add 1 0; add 2 1"),
    "lost in a sum": ("fold_avg H 0; add:H 1 0; sub 0 2", "fold_avg H 0; add:H 1 0; add 0 2"),
    "one side": ("fc C 0; sigmoid 1; neg 2; max 2 3", "fc C 0; sigmoid 1; tanh 1; max 2 3"),
    "absorbed side": ("fc C 0; max 1 0; min 0 2", "fc C 0; fc C 0; max 1 2; min 0 3"),
    "absorbed sign": ("neg 0; fc C 1", "abs 0; fc C 1"),
    "one shift": ("shift H+1 0; shift H-1,W+1 1", "shift H+1 0; shift H+1 1"),
    "one unfold": ("unfold H 0; unfold W 1", "unfold H 0; fc C 1; unfold W 2"),
    "lost shift": ("shift H+1 0; fold_max H 1", "shift H+1 0; fold_max W 1"),
    "mean of softmax": ("softmax C 0; fold_avg C 1", "softmax C 0; fold_avg H 1"),
    "lost by softmax": ("fold_avg H 0; sub:H 1 0; softmax H 2", "fold_avg H 0; sub:H 1 0; softmax W 2"),
    "activation twice": ("fc C 0; tanh 1; sigmoid 2", "fc C 0; tanh 1; fc C 2; sigmoid 3"),
    "activation first": ("gelu 0", "neg 0"),
    "image without sign": ("fold_max H 0; relu 1", "fc C 0; relu 1"),
    "twice": ("sin 0; sin 1", "sin 0; exp 1; sin 2"),
    "order": ("shift W+1 0; sin 1", "sin 0; shift W+1 1"),
    "unbounded": ("fc C 0; exp 1", "fc C 0; tanh 1; exp 2"),
}


def read(text: str) -> tuple[Node, ...]:
    """Nodes of a text: ``add:C 1 0`` is an addition of tensors 1 and 0 along the slot C."""
    found = []
    for part in text.split("; "):
        words = part.split()
        name, _, span = words[0].partition(":")
        numbers = [word for word in words[1:] if word.isdigit()]
        parameter = span or " ".join(word for word in words[1:] if not word.isdigit())
        found.append(Node(Primitive(name, parameter), tuple(map(int, numbers))))
    return tuple(found)


def pruned_by(nodes: tuple[Node, ...]) -> str | None:
    """The rule that prunes the last of these nodes."""
    draft = Draft(nodes[:-1])
    rule = pruning(draft.nodes, draft.shapes, *nodes[-1])
    Draft(nodes)  # it applies
    return None if rule is None else rule.name


def test_each_rule_has_a_case() -> None:
    assert set(CASES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_prunes_its_case_and_no_other(name: str) -> None:
    pruned, kept = map(read, CASES[name])
    assert pruned_by(pruned) == name
    assert pruned_by(kept) is None


# -- what an exact rule prunes -----------------------------------------------------------------------------------------


def weight_for(draft: Draft, primitive: Primitive, tensor: int) -> np.ndarray | None:
    """A weight that depends on its sizes alone, so that FCs of equal tensors give equal results."""
    sizes = weight_of(primitive, draft.shapes[tensor])
    if sizes is None:
        return None
    return np.random.default_rng(7).standard_normal([size.at(BINDING) for size in sizes])


def computed(draft: Draft, found: list[np.ndarray], primitive: Primitive, inputs: tuple[int, ...]) -> np.ndarray:
    """The result of one more primitive."""
    shapes = tuple(draft.shapes[number] for number in inputs)
    weight = weight_for(draft, primitive, inputs[0])
    return value(primitive, shapes, [found[number] for number in inputs], BINDING, weight)


def values(draft: Draft, image: np.ndarray | None = None) -> list[np.ndarray]:
    """The tensors of a draft for one input."""
    if image is None:
        image = np.random.default_rng(1).standard_normal((2, *draft.shapes[0].at(BINDING)))
    found = [image]
    for node, shape in zip(draft.nodes, draft.shapes[1:], strict=True):
        found.append(computed(draft, found, *node).reshape(2, *shape.at(BINDING)))
    return found


def is_had_without(draft: Draft, one: Candidate, every: list[Candidate]) -> bool:
    """Whether a candidate is a tensor of the draft, constant, or what another primitive gives."""
    found = values(draft)
    result = computed(draft, found, one.primitive, one.inputs)
    shape = one.shape.at(BINDING)

    def is_it(other: np.ndarray) -> bool:
        return other.size == result.size and np.allclose(other.reshape(2, *shape), result.reshape(2, *shape))

    flat = result.reshape(2, -1)
    if np.allclose(flat, flat[:, :1]) and np.allclose(flat[0], flat[1]):
        return True
    if any(of is one.shape and is_it(other) for of, other in zip(draft.shapes, found, strict=True)):
        return True
    for other in every:
        if other.shape is one.shape and other[:2] != one[:2] and not isinstance(other.verdict, Limit):
            computation = computed(draft, found, other.primitive, other.inputs)
            if is_it(computation) or (one.primitive.name == "fc" and is_it(-computation)):
                return True
    if one.primitive.name == "softmax":  # of a difference: of the negated right side, and the difference is not needed
        right = draft.nodes[one.inputs[0] - 1].inputs[1]
        negated = -found[right]
        return is_it(value(one.primitive, (draft.shapes[right],), [negated], BINDING, None))
    return False


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.exact], ids=lambda rule: rule.name)
def test_an_exact_rule_prunes_what_is_had_without_it(rule: Rule) -> None:
    rng = random.Random(rule.name)
    names = {node.primitive.name for node in read(CASES[rule.name][0])} | {"fold_avg", "fc", "neg"}
    room = Room(12, must_mix=False, fcs=(0, 12), include=frozenset({*names, *rule.primitives}))
    cases = 0
    for _ in range(3000):
        draft = Draft()
        for _ in range(rng.randint(1, 3)):
            every = [one for one in candidates(draft, room) if not one.substitution]
            open_ones = [one for one in every if not isinstance(one.verdict, Limit)]
            one = rng.choice(open_ones)
            draft = draft.apply(one.primitive, one.inputs)
        every = [one for one in candidates(draft, room) if not one.substitution]
        pruned = [one for one in every if one.verdict is rule]
        if pruned:
            one = rng.choice(pruned)
            assert is_had_without(draft, one, every), f"{draft}\n{one}"
            cases += 1
            if cases == 12:
                return
    raise AssertionError(f"only {cases} cases")


@pytest.mark.parametrize("name", KNOWN)
def test_no_rule_prunes_a_known_kernel(name: str) -> None:
    kernel = KNOWN[name]()
    for number, node in enumerate(kernel.nodes):
        assert pruning(kernel.nodes[:number], kernel.shapes[: number + 1], *node) is None


# -- what rules are computed from --------------------------------------------------------------------------------------


def drawn(rng: random.Random, room: Room, length: int) -> Draft:
    """A draft of any primitives that fit, pruned ones among them."""
    draft = Draft()
    for _ in range(length):
        every = [one for one in candidates(draft, room) if not one.substitution]
        one = rng.choice([one for one in every if not isinstance(one.verdict, Limit)])
        draft = draft.apply(one.primitive, one.inputs)
    return draft


def test_no_element_lies_outside_its_range(rng: random.Random, np_rng: np.random.Generator) -> None:
    room = Room(12, must_mix=False, fcs=(0, 12))
    bounded = 0
    for _ in range(60):
        draft = drawn(rng, room, 6)
        image = np_rng.normal(size=(2, *draft.shapes[0].at(BINDING))) * np_rng.choice([0.1, 1, 5])
        for known, of in ((image, ANY), (np.abs(image), NOT_NEGATIVE)):
            with np.errstate(over="ignore", invalid="ignore"):
                found = values(draft, known)
            for tensor, elements in enumerate(found):
                low, high = range_of(draft.nodes, tensor, of)
                assert not np.isnan([low, high]).any()
                finite = elements[np.isfinite(elements)]
                # Sums of floating-point numbers may pass their bound by rounding.
                room_for_rounding = 1e-9 * max(1.0, np.abs(finite).max(initial=0))
                assert finite.min(initial=np.inf) >= low - room_for_rounding, f"{draft} t{tensor}"
                assert finite.max(initial=-np.inf) <= high + room_for_rounding, f"{draft} t{tensor}"
                bounded += np.isfinite([low, high]).all()
    assert bounded > 60, "nearly all ranges are infinite"


def repeated(found: np.ndarray, term: Term) -> np.ndarray:
    """A tensor repeated as a term says, its elements in order."""
    for prefix, repeats, lhs, suffix in ([size.at(BINDING) for size in parts] for parts in term.repeats[::-1]):
        found = np.repeat(found.reshape(-1, prefix, 1, lhs, suffix), repeats, 2)
    return found.reshape(2, -1)


def test_what_is_left_after_cancelling_is_the_sum(rng: random.Random) -> None:
    """And where nothing cancels, each tensor of the sum matters."""
    room = Room(12, must_mix=False, fcs=(0, 12), include=frozenset({"fc", "fold_avg", "add", "sub", "neg"}))
    cancelled = kept = 0
    while min(cancelled, kept) < 20:
        draft = drawn(rng, room, 5)
        *before, (primitive, inputs) = draft.nodes
        if primitive.name not in ("add", "sub"):
            continue
        found = values(draft)
        wanted = found[-1].reshape(2, -1)
        left = left_after_cancelling(before, draft.shapes[:-1], primitive, inputs)
        if left is not None:
            total = sum((number * repeated(found[term.tensor], term) for term, number in left.items()), 0 * wanted)
            np.testing.assert_allclose(total, wanted, atol=1e-9)
            cancelled += 1
            continue
        kept += 1
        for leaf in {term.tensor for side in inputs for term, _ in terms_of(before, draft.shapes, Term(side), SUMS)}:
            changed = found[: leaf + 1]
            changed[leaf] = changed[leaf] + np.random.default_rng(3).normal(size=changed[leaf].shape)
            for number, node in enumerate(draft.nodes[leaf:], start=leaf + 1):
                is_sum = node.primitive.name in SUMS
                result = computed(draft, changed, *node) if is_sum else found[number]
                changed.append(result.reshape(found[number].shape))
            lost = np.allclose(changed[-1], found[-1])
            rules = [pruning(draft.nodes[:at], draft.shapes[: at + 1], *node) for at, node in enumerate(draft.nodes)]
            assert not lost or any(rule is not None and rule.name in LOSING for rule in rules), f"{draft} t{leaf}"
