"""The fast slice of ``make trust``, the corners that it meets, and the faults that it must catch."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from strategies import random_operator

from syno_lab.api import Operator
from syno_lab.errors import SynoError
from syno_lab.operators import KNOWN, conv2d, grouped, half_step_shift, operator_1, strided
from trust import planted
from trust.corners import CORNERS, corners
from trust.harness import Failure, run
from trust.shrink import Edit, edited
from trust.sources import BUILT, SPECS, Case, cases
from trust.tvm_parent import Child

pytestmark = pytest.mark.cold

VALUES, TENTH = 400, 60
PLANTED = str(Path(planted.__file__))


@cache
def fresh(seed: int) -> list[Case]:
    """The operators of this run: other ones each time."""
    return list(islice(cases(seed), VALUES))


def check(counts: dict[str, int], seed: int) -> None:
    """Fail with the program of every failure."""
    report, failures = run(counts, seed, stream=fresh(seed))
    assert not failures, f"seed {seed}\n" + "\n".join(map(str, failures))
    assert report["checked"] == counts
    for name, sources in report["sources"].items():
        assert sources[BUILT] == counts[name] // 2, "half are built at random"
        assert {source for source in sources if source != BUILT} == set(SPECS), "every spec has its share"


def test_torch_agrees_with_the_loop_nest_on_a_fresh_slice(fresh_seed: int) -> None:
    check({"values": VALUES, "gradients": TENTH}, fresh_seed)


@pytest.mark.tvm
def test_compiled_tvm_code_agrees_with_the_loop_nest_on_a_fresh_slice(fresh_seed: int) -> None:
    check({"tvm": TENTH}, fresh_seed)


# -- corners ---------------------------------------------------------------------------------------------------------


def test_every_corner_is_met(fresh_seed: int) -> None:
    """The rarest corner is in 1.1 % of operators: less than three in so many are one run in 10^15."""
    met: Counter[str] = Counter()
    for offset in range(4000):
        met.update(corners(*random_operator(random.Random(fresh_seed + offset))))
        if not (rare := {name: met[name] for name in CORNERS if met[name] < 3}):
            break
    assert not rare, f"SYNO_LAB_SEED={fresh_seed}: {rare}"


@pytest.mark.parametrize(
    ("make", "has", "lacks"),
    [
        (
            conv2d,
            {"K odd", "two tensors", "a fixed batch", "an output in a weight alone"},
            {"K > N", "STRIDE of a view"},
        ),
        (grouped, {"a view's result in a weight", "three REDUCEs or more"}, {"three tensors", "SPLIT undoes MERGE"}),
        (operator_1, {"three tensors", "a REDUCE in two weights alone", "two stages or more"}, {"no REDUCE"}),
        (strided, {"STRIDE under UNFOLD's main"}, {"STRIDE under UNFOLD's window", "STRIDE under EXPAND"}),
        (half_step_shift, {"SHIFT over SPLIT", "MERGE or SPLIT over SHIFT"}, {"MERGE undoes SPLIT", "SHIFT twice"}),
    ],
)
def test_corners_of_known_operators(make: Callable[[], Operator], has: set[str], lacks: set[str]) -> None:
    operator = make()
    sizes = {name: operator.spec.defaults.get(name, 8) for name in operator.spec.symbols.names}
    found = corners(operator, sizes)
    assert has <= found
    assert not lacks & found


# -- faults that must be caught --------------------------------------------------------------------------------------


def outcome(program: str, path: Path, fault: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a printed program, with a fault planted or without."""
    path.write_text(program, encoding="utf-8")
    words = [sys.executable, str(path)] if fault is None else [sys.executable, PLANTED, fault, str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=path.parent)


def shows(failure: Failure, fault: str, path: Path) -> str:
    """What the program prints where the fault is; where it is not, everything must agree."""
    right = outcome(failure.program, path)
    assert right.returncode == 0, right.stderr
    assert right.stdout.endswith("agrees\n")
    wrong = outcome(failure.program, path, fault)
    assert wrong.returncode != 0
    return wrong.stdout + wrong.stderr + str(wrong.returncode)


def some(has_fault: Callable[[Operator, dict[str, int]], bool | None], seed: int) -> list[Case]:
    """One small operator built at random that meets a fault, between two that do not; none where that is unknown."""
    found: dict[bool | None, list[Case]] = {True: [], False: [], None: []}
    for offset in range(20_000):
        operator, binding = random_operator(random.Random(f"{seed}, {offset}"))
        if operator.weights and len(operator.steps) <= 4:
            found[has_fault(operator, binding)].append(Case(operator.to_json(), binding, offset, BUILT))
        if found[True] and len(found[False]) > 1:
            return [found[False][0], found[True][0], found[False][1]]
    raise AssertionError(f"seed {seed}: no small operator meets the fault")


def strides_a_window(operator: Operator, binding: dict[str, int]) -> bool:
    return not {"STRIDE under UNFOLD's window", "STRIDE under UNFOLD's main"}.isdisjoint(corners(operator, binding))


def needs_its_shift(operator: Operator, binding: dict[str, int]) -> bool | None:
    """Unknown where the fingerprint is the same without the SHIFT: a weight that is shifted has other values."""
    if (other := planted.without_shift(operator)) is operator:
        return False
    return True if other.fingerprint(binding) != operator.fingerprint(binding) else None


def expands(operator: Operator, _: dict[str, int]) -> bool:
    return bool(operator.expanded)


def splits(operator: Operator, _: dict[str, int]) -> bool:
    return any(step.primitive == "SPLIT" for step in operator.steps)


def test_a_wrong_padding_is_caught_and_shrunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh_seed: int) -> None:
    monkeypatch.setattr(Operator, "to_torch", Operator.to_torch)  # put back what the fault changes
    planted.padding()
    # The fault shows in one of five: in none of 150 is one run in 10^9. What is small already is left out.
    large = [case for case in fresh(fresh_seed) if len(case.operator.steps) > 3][:150]
    report, failures = run({"values": len(large)}, fresh_seed, stream=large)
    assert report["failed"]["values"] >= 1, f"SYNO_LAB_SEED={fresh_seed}"
    first = failures[0]
    assert first.steps <= 3, first.program  # a REDUCE and the UNFOLD, and a STRIDE where that brought the window in
    assert len(first.program) < 5000, first.program  # no variable that nothing uses
    assert "torch differs from the loop nest by" in shows(first, "padding", tmp_path / "program.py")


def test_a_wrong_gradient_is_caught_and_shrunk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh_seed: int
) -> None:
    monkeypatch.setattr(Operator, "to_torch", Operator.to_torch)
    planted.gradient()
    report, failures = run({"values": 3, "gradients": 3}, fresh_seed, stream=some(strides_a_window, fresh_seed))
    assert report["failed"] == {"values": 0, "gradients": 1}
    assert failures[0].steps <= 4, failures[0].program  # two REDUCEs or outputs, a STRIDE, an UNFOLD and a weight
    assert "torch's gradient by weight 1 differs" in shows(failures[0], "gradient", tmp_path / "program.py")


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("fault", "meets", "said"),
    [
        ("shift", needs_its_shift, "TVM differs from the loop nest by"),
        ("crash", expands, "-11"),
        ("refusal", splits, "SynoError: no SPLIT today"),
    ],
)
def test_faults_of_compiled_code_are_caught_and_shrunk(
    fault: str, meets: Callable[[Operator, dict[str, int]], bool | None], said: str, tmp_path: Path, fresh_seed: int
) -> None:
    command = (sys.executable, PLANTED, fault, Child().command[1])
    report, failures = run({"tvm": 3}, fresh_seed, stream=some(meets, fresh_seed), command=command)
    assert report["failed"]["tvm"] == 1, f"SYNO_LAB_SEED={fresh_seed}"
    assert report["checked"]["tvm"] == 3, "the others are checked all the same"
    assert said in failures[0].complaint
    assert failures[0].steps <= 2, failures[0].program
    assert said in shows(failures[0], fault, tmp_path / "program.py")
    assert (report["tvm_processes"] > 1) == (fault == "crash")


def test_a_process_that_does_not_answer_is_ended() -> None:
    with Child((sys.executable, "-c", "import time; time.sleep(60)"), seconds=0.5) as child:
        assert child.ask({"do": "run"})["failure"].startswith("the TVM process ended with -9")


# -- shrinking -------------------------------------------------------------------------------------------------------


def test_every_edit_of_every_known_operator_is_legal_or_refused() -> None:
    """What an edit gives can be written, read and run; dropping any step of conv2d does give something."""
    for make in KNOWN.values():
        operator = make()
        sizes = {name: operator.spec.defaults.get(name, 8) for name in operator.spec.symbols.names}
        for place in range(len(operator.steps)):
            try:
                smaller = edited(operator, Edit("step", place))
            except SynoError:
                continue
            again = Operator.from_json(smaller.to_json())
            assert again == smaller
            assert again.to_torch(sizes)(torch.zeros(again.input_sizes(sizes))).shape == again.output_sizes(sizes)
    for place in range(6):
        assert len(edited(conv2d(), Edit("step", place)).steps) < 6
    assert len(edited(conv2d(), Edit("axis", 2)).output) == 3


def test_what_a_reduce_sums_can_be_an_output_axis(np_rng: np.random.Generator) -> None:
    """Summed over that axis, what is left computes what the operator did."""
    for make in KNOWN.values():
        operator = make()
        sizes = {name: operator.spec.defaults.get(name, 8) for name in operator.spec.symbols.names}
        x = np_rng.standard_normal(operator.input_sizes(sizes))
        weights = [np_rng.standard_normal(shape) for shape in operator.weight_sizes(sizes)]
        for place, step in enumerate(operator.steps):
            if step.primitive == "REDUCE":
                opened = edited(operator, Edit("open", place))
                assert len(opened.steps) == len(operator.steps) - 1
                found = opened.reference(x, *weights, binding=sizes).sum(axis=-1)
                np.testing.assert_allclose(found, operator.reference(x, *weights, binding=sizes), rtol=1e-9, atol=1e-9)
