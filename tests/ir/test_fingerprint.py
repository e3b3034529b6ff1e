"""The semantic fingerprint: what it must not see, and what it must."""

import random

import numpy as np
import pytest
from strategies import random_operator, repro
from whole_fingerprint import terms

from syno_lab.errors import SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.fingerprint import distinct_key, fingerprint
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State, Step

BINDING = {"N": 1, "C_in": 4, "C_out": 6, "H": 5, "W": 7, "k": 3}
CONV = ("[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], ["k"])


def conv(swap: bool = False, shift: bool = False, twice: bool = False) -> Operator:
    build = Build(*CONV, fixed_io_pairs=[(0, 0)])
    n, c_out, h, w = build.output
    if swap:
        q, p, c = build.reduce("k"), build.reduce("k"), build.reduce("C_in")
    else:
        c, p, q = build.reduce("C_in"), build.reduce("k"), build.reduce("k")
    if twice:
        build.expand(build.reduce("k"))
    if shift:
        h = build.shift(h)
    build.contract(share=[q, c, p] if swap else [c, p, q], give=[c_out])
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def test_order_of_steps_and_layout_of_weights_do_not_show() -> None:
    assert conv().fingerprint(BINDING) == conv(swap=True).fingerprint(BINDING)


def test_a_global_factor_does_not_show() -> None:
    assert conv().fingerprint(BINDING) == conv(twice=True).fingerprint(BINDING)


def test_a_shift_shows() -> None:
    assert conv().fingerprint(BINDING) != conv(shift=True).fingerprint(BINDING)


def test_a_weight_within_another_is_merged() -> None:
    def matmul(scaled: bool) -> Operator:
        build = Build("[M, K]", "[M, N]", ["M", "K", "N"])
        m, n = build.output
        k = build.reduce("K")
        if scaled:
            build.contract(share=[k])
        build.contract(share=[k], give=[n])
        return build.finish(m, k)

    binding = {"M": 2, "K": 3, "N": 5}
    assert matmul(True).fingerprint(binding) == matmul(False).fingerprint(binding)


def test_the_order_of_weights_does_not_show() -> None:
    def scaled(first: str) -> Operator:
        build = Build("[A, B]", "[A, B]", ["A", "B"])
        a, b = build.output
        for axis in (a, b) if first == "A" else (b, a):
            build.contract(share=[axis])
        return build.finish(a, b)

    binding = {"A": 3, "B": 4}
    assert scaled("A").fingerprint(binding) == scaled("B").fingerprint(binding)


def test_unordered_axes_hide_a_permutation_within_them() -> None:
    def grouped(high_first: bool, unordered: tuple[str, ...]) -> Operator:
        build = Build("[C, H]", "[O, H]", ["C", "O", "H"], ["g"], unordered=unordered)
        o, h = build.output
        c, g = build.reduce("g^-1*C"), build.reduce("g")
        build.contract(share=[c], give=[])
        build.contract(share=[g], give=[o])
        return build.finish(build.split(c, g) if high_first else build.split(g, c), h)

    binding = {"C": 6, "O": 5, "H": 2, "g": 2}
    assert grouped(True, ()).fingerprint(binding) != grouped(False, ()).fingerprint(binding)
    assert grouped(True, ("C",)).fingerprint(binding) == grouped(False, ("C",)).fingerprint(binding)


@pytest.mark.parametrize("seed", range(80))
def test_equal_operators_have_equal_fingerprints(seed: int) -> None:
    """Steps replayed in another legal order, with reductions and weights renumbered."""
    rng = random.Random(seed)
    operator, binding = random_operator(rng)
    other = replayed(operator, rng)
    assert other == operator, repro(operator, binding)
    assert fingerprint(other, binding) == fingerprint(operator, binding), repro(operator, binding)


def replayed(operator: Operator, rng: random.Random) -> Operator:
    """The same pGraph by the same steps in a random order that respects what depends on what."""
    todo = list(operator.steps)
    renamed = {c: c for c in operator.output}
    state = State.root(operator.spec)
    number = 0
    reductions = {step: operator.reductions[i] for i, step in enumerate_reduces(operator)}
    while todo:
        ready = []
        for i, step in enumerate(todo):
            if not all(c in renamed and renamed[c] in state.data for c in step.operands + step.given):
                continue
            # A step that takes a coordinate away waits for every contraction that shares it.
            gone = step.given if step.primitive == "SHARE" else step.operands
            if any(s is not step and s.primitive == "SHARE" and set(gone) & set(s.operands) for s in todo[:i]):
                continue
            ready.append(i)
        i = rng.choice(ready)
        step = todo.pop(i)
        moved = Step(
            step.primitive,
            tuple(renamed[c] for c in step.operands),
            step.parameter,
            tuple(renamed[c] for c in step.given),
        )
        results = state.results(moved)
        old = (reductions[id(step)],) if step.primitive == "REDUCE" else operator.state.results(step)
        renamed.update(zip(old, results, strict=True))
        state = state.apply(moved)
        number += 1
    return Operator(state, tuple(renamed[c] for c in operator.inputs))


def enumerate_reduces(operator: Operator) -> list[tuple[int, int]]:
    reduces = [step for step in operator.steps if step.primitive == "REDUCE"]
    return [(i, id(step)) for i, step in enumerate(reduces)]


def test_terms_are_the_non_zero_terms_of_a_convolution() -> None:
    build = Build("[H]", "[H]", ["H"], ["k"])
    (h,) = build.output
    r = build.reduce("k")
    build.contract(share=[r])
    table = terms(build.finish(build.unfold(h, r)), {"H": 3, "k": 3})
    rows = sorted(zip(table.y.tolist(), table.x.tolist(), table.weights[0].tolist(), strict=True))
    assert rows == [(0, 0, 1), (0, 1, 2), (1, 0, 0), (1, 1, 1), (1, 2, 2), (2, 1, 0), (2, 2, 1)]
    assert np.all(table.count == 1)


def test_too_large_a_binding_is_refused() -> None:
    full_size = {"N": 64, "C_in": 512, "C_out": 512, "H": 56, "W": 56, "k": 3}
    with pytest.raises(SynoError, match="use a smaller binding"):
        terms(conv(), full_size)
    assert len(conv().fingerprint(full_size)) == 32  # never listed as a whole
    build = Build("[H*W]", "[H, W]", ["H", "W"])
    mixed = build.finish(build.split(*build.output))
    with pytest.raises(SynoError, match="use a smaller binding"):
        mixed.fingerprint({"H": 8192, "W": 8192})


def test_distinct_key_enlarges_the_binding_where_it_must() -> None:
    build = Build("[H]", "[H]", ["H"], ["s=4"])
    (h,) = build.output
    high, low = build.merge(h, "s^2")
    operator = build.finish(build.split(low, high))
    binding, _ = distinct_key(operator)
    assert dict(binding)["H"] % 16 == 0
