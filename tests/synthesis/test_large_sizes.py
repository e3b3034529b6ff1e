"""Sizes up to 10^18: whatever asks them ends or refuses in one line, within seconds of computing.

What a rule or a pane counts has a closed form or a bound; on small sizes the closed forms are compared with the loops.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import syno_lab as sl
from syno_lab import panes
from syno_lab.codegen import receptive_field
from syno_lab.errors import SpecError, SynoError
from syno_lab.synthesis.matches import _block_crossings

LARGE = [(10**6, 10**5), (10**12, 10**5), (999_999_999_999_999_989, 100_003), (9 * 10**17, 3)]


def sampler(size: int, window: int, output: str = "[N, D, H]") -> sl.Sampler:
    primaries = ["N=1: 0", f"C={size}: 2", f"D={size}: 2", f"H={size}: 1"]
    coefficients = [f"k={window}: 3", "s=2: 2"]
    return sl.Sampler("[N, C, H]", output, primaries, coefficients, fixed_io_pairs=[(0, 0)], max_primitives=6, seed=1)


def ends(call: Callable[[], Any], cpu_s: float) -> Any:
    """What a call gives, or its refusal; it takes at most so many seconds of computing."""
    begun = time.process_time()
    try:
        found = call()
    except SynoError as error:
        found = str(error)
        assert "\n" not in found
    assert time.process_time() - begun < cpu_s
    return found


def test_block_crossings_are_those_of_the_loop() -> None:
    for main, window, block in [(9, w, b) for w in range(1, 24) for b in range(1, 24)]:
        crossing = sum(min(block, abs(j - window // 2)) for j in range(window))
        assert _block_crossings(main, window, block) == crossing / (block * window)


@pytest.mark.parametrize(("size", "window"), LARGE[::2])
@pytest.mark.parametrize("output", ["[N, D, H]", "[N, C, H]"])
def test_operators_are_drawn_and_listed(size: int, window: int, output: str) -> None:
    drawn = sampler(size, window, output)
    assert isinstance(ends(lambda: drawn.sample(seconds=3), 5), sl.Operator)
    listed = ends(lambda: list(islice(sampler(size, window, output).enumerate(3), 200)), 4)
    assert listed
    assert ends(lambda: list(islice(drawn.samples(), 20)), 5)


@pytest.mark.parametrize(("size", "window"), LARGE)
def test_steps_are_judged_and_explained(size: int, window: int, fresh_seed: int) -> None:
    rng, state = random.Random(fresh_seed), sampler(size, window).root()

    def look() -> None:
        for candidate in islice(state.candidates(), 200):
            assert candidate.distance is None or candidate.distance >= 0
            assert candidate.verdict.latex is None or candidate.verdict.rule is not None
        state.explain_distance()
        state.dot()

    for _ in range(5):
        ends(look, 4)
        state = state.apply(rng.choice([one for one in state.candidates() if one.distance is not None]))


@pytest.mark.parametrize("name", ["conv1d", "operator_1"])
@pytest.mark.parametrize("size", [10**6, 9 * 10**17])
def test_every_form_of_an_operator_ends(name: str, size: int) -> None:
    operator: sl.Operator = getattr(sl.operators, name)()
    coefficients = operator.spec.symbols.coefficient
    sizes = {one: operator.spec.defaults.get(one, 2) if one in coefficients else size for one in operator.variables}
    forms: list[Callable[[], Any]] = [
        *(
            lambda name=name: getattr(operator, name)()
            for name in ("loops", "equation", "coordinates", "dot", "mixing")
        ),
        *(
            lambda name=name: getattr(operator, name)(sizes)
            for name in ("flops", "params", "memory", "to_torch_source", "mixing")
        ),
        lambda: operator.receptive_field("center", sizes),
        lambda: operator.receptive_field(None, sizes),
        operator.construct_kernel_packs,
    ]
    if size > 10**6:  # a million terms have a fingerprint, in some ten seconds
        forms.append(lambda: operator.fingerprint(sizes))
    for form in forms:
        ends(form, 5)
    asked = panes.Asked(operator, name, tuple(sizes.items()))
    for pane in panes.panes_of(operator):
        if pane not in ("tir", "image", "near"):  # they start a process, or take a picture's or the space's own sizes
            ends(lambda pane=pane: panes.read_pane(asked, pane), 5)


def test_terms_are_cut_into_few_large_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = sl.operators.conv1d()
    sizes = {"N": 2, "C_in": 3, "C_out": 2, "H": 11, "k_1": 3}
    whole = [operator.receptive_field(index, sizes).counts for index in (None, "center")]
    mixed = operator.mixing(sizes).marks
    for chunk in (1, 2, 5, 7, 40):
        monkeypatch.setattr(receptive_field, "_CHUNK", chunk)
        for index, counts in zip((None, "center"), whole, strict=True):
            assert (operator.receptive_field(index, sizes).counts == counts).all()
    monkeypatch.undo()
    assert operator.mixing(sizes).marks == mixed
    pieces = list(receptive_field.points(receptive_field.parts(operator)[-1], [], sizes | {"H": 3 << 20}, {}))
    assert len(pieces) < 30


def test_what_cannot_be_counted_is_refused() -> None:
    operator = sl.operators.conv1d()
    sizes = {"N": 1, "C_in": 1 << 14, "C_out": 1, "H": 1 << 14, "k_1": 3}
    with pytest.raises(SpecError, match=r"expected an input of at most 134,217,728 elements .* found 268,435,456"):
        operator.receptive_field("center", sizes)


@pytest.mark.parametrize("size", [1 << 31, 9 * 10**17])
def test_tvm_counts_in_32_bits(size: int) -> None:
    pytest.importorskip("tvm")
    with pytest.raises(SynoError, match=f"to_tvm: expected sizes below 2147483648, .* found {size}"):
        sl.operators.conv1x1().to_tvm({"N": 1, "C_in": size, "C_out": 1, "H": 1, "W": 1})
