"""Compiled TVM code against the loop nest; TVM itself runs in a child process, see ``tvm_child.py``."""

import random
from typing import Any

import pytest
from strategies import random_operator, repro
from trust.tvm_parent import ask

from syno_lab.codegen.tvm_padding import can_be_padded, clipping, padding
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.operators import KNOWN, conv2d, half_step_shift, operator_1

RANDOM_OPERATORS = 20
#: Differences relative to the largest output; float16 sums up to a few hundred products.
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 3e-2}
SMALL = {"N": 2, "C_out": 16, "H": 6, "W": 4, "k": 3, "s": 2, "g": 4}


def task(operator: Operator, binding: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"do": "run", "operator": operator.to_json(), "binding": binding, "dtype": "float64", "order": "best",
            "seed": 1, "text": True, **more}  # fmt: skip


def sizes(operator: Operator) -> dict[str, int]:
    """Small sizes, most of them different; whatever an operator adds to these is 8, or its spec's default."""
    spec = operator.spec
    return operator.complete_binding(
        {name: SMALL.get(name, 8) for name in spec.symbols.names if name not in spec.defaults}
    )


def agree(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = ask(tasks)
    for one, answer in zip(tasks, answers, strict=True):
        where = f"{one['order']} {one['dtype']} binding {one['binding']}\n{one['operator']}\n{answer}"
        assert "failure" not in answer, f"{where}\n{answer['failure']}"
        assert float(answer["error"]) <= TOLERANCE[one["dtype"]], where
    return answers


# -- operators where one thing can go wrong --------------------------------------------------------------------------


def window_shared_after_sliding() -> tuple[Operator, dict[str, int]]:
    """A weight along the UNFOLD's result: no copy of the input can stand for the guard."""
    build = Build("[C, H]", "[C, H]", ["C", "H"], ["k"])
    c, h = build.output
    k = build.reduce("k")
    build.contract([k])
    u = build.unfold(h, k)
    build.contract([u])
    return build.finish(c, build.shift(u)), {"C": 3, "H": 5, "k": 3}


def window_dropped() -> tuple[Operator, dict[str, int]]:
    """The UNFOLD's result reaches nothing, and its guard counts all the same."""
    build = Build("[C]", "[C, H]", ["C", "H"], ["k"])
    c, h = build.output
    build.expand(build.unfold(h, build.reduce("k")))
    return build.finish(c), {"C": 3, "H": 5, "k": 4}


def window_of_a_window() -> tuple[Operator, dict[str, int]]:
    """Two UNFOLDs along one coordinate, the lower one with a weight and out of bounds where the upper one is not."""
    build = Build("[H]", "[H]", ["H"], ["k"])
    (h,) = build.output
    i, j = build.reduce("k"), build.reduce("k")
    build.contract([i, j])
    return build.finish(build.unfold(build.unfold(h, i), j)), {"H": 4, "k": 5}


def views_above_a_window() -> tuple[Operator, dict[str, int]]:
    """The padded copy undoes SHIFT, SPLIT and MERGE, which are only defined in bounds."""
    build = Build("[k, k^-1*C*H]", "[C, H]", ["C", "H"], ["k"])
    c, h = build.output
    k = build.reduce("k")
    build.contract([k])
    joined = build.split(build.shift(build.unfold(h, k)), c)
    low_first = build.merge(joined, "k")
    return build.finish(low_first[1], low_first[0]), {"C": 3, "H": 5, "k": 3}


def window_wider_than_the_axis() -> tuple[Operator, dict[str, int]]:
    build = Build("[H]", "[H]", ["H"], ["k"])
    (h,) = build.output
    k = build.reduce("k")
    build.contract([k])
    return build.finish(build.unfold(h, k)), {"H": 2, "k": 7}


def pooled_first() -> tuple[Operator, dict[str, int]]:
    """Figure 4 with channels: a mere sum, then a window over what it gives."""
    build = Build("[C, s*H, W]", "[D, H, W]", ["C", "D", "H", "W"], ["k", "s"])
    d, h, w = build.output
    c, k, s = build.reduce("C"), build.reduce("k"), build.reduce("s")
    build.contract([c, k], [d])
    return build.finish(c, build.split(build.unfold(h, k), s), w), {"C": 8, "D": 8, "H": 7, "W": 8, "k": 3, "s": 2}


def shifted_twice() -> tuple[Operator, dict[str, int]]:
    """TVM 0.27 simplifies ((i + 1) % n + 1) % n wrongly."""
    build = Build("[H]", "[H]", ["H"])
    (h,) = build.output
    return build.finish(build.shift(build.shift(h))), {"H": 5}


def digits_shifted() -> tuple[Operator, dict[str, int]]:
    """Both digits of one iterator, which TVM 0.27 gets wrong too."""
    build = Build("[k^-1*H, k]", "[H]", ["H"], ["k"])
    high, low = build.merge(build.output[0], "k")
    return build.finish(build.shift(high), build.shift(low)), {"H": 12, "k": 2}


def summed_copies() -> tuple[Operator, dict[str, int]]:
    """A REDUCE that no tensor is read at, and an input of one number."""
    build = Build("[]", "[H]", ["H"], ["k"])
    build.expand(build.output[0])
    build.expand(build.reduce("k"))
    return build.finish(), {"H": 4, "k": 3}


def bridge() -> tuple[Operator, dict[str, int]]:
    """A REDUCE that lives in two weights alone."""
    build = Build("[C]", "[C]", ["C"], ["k"])
    (c,) = build.output
    middle = build.reduce("k")
    build.contract([c, middle])
    build.contract([c], [middle])
    return build.finish(c), {"C": 4, "k": 3}


def identity() -> tuple[Operator, dict[str, int]]:
    build = Build("[W, H]", "[H, W]", ["H", "W"])
    h, w = build.output
    return build.finish(w, h), {"H": 2, "W": 3}


CASES = (
    window_shared_after_sliding,
    window_dropped,
    window_of_a_window,
    views_above_a_window,
    window_wider_than_the_axis,
    pooled_first,
    shifted_twice,
    digits_shifted,
    summed_copies,
    bridge,
    identity,
)

# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_known_operators_and_corners_agree_with_the_loop_nest() -> None:
    pairs = [(operator, sizes(operator)) for operator in (make() for make in KNOWN.values())]
    pairs += [make() for make in CASES]
    tasks = [task(*pair, order=order) for pair in pairs for order in ("best", "naive")]
    tasks += [task(conv2d(), sizes(conv2d()), dtype=dtype) for dtype in ("float16", "float32")]
    agree(tasks)


@pytest.mark.tvm
def test_random_operators_agree_with_the_loop_nest(fresh_seed: int) -> None:
    pairs = [random_operator(random.Random(fresh_seed + i)) for i in range(RANDOM_OPERATORS)]
    tasks = [
        task(*pair, order=order, seed=fresh_seed + i) for i, pair in enumerate(pairs) for order in ("best", "naive")
    ]
    for place, answer in enumerate(ask(tasks)):
        told = f"seed {fresh_seed}, {tasks[place]['order']}{repro(*pairs[place // 2])}{answer}"
        assert "failure" not in answer, f"{told}\n{answer['failure']}"
        assert float(answer["error"]) <= TOLERANCE["float64"], told


# -- the shape of the program ----------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_windows_are_read_from_padded_copies_and_intermediates_vectorize() -> None:
    convolution, two_stages, guarded, pooled = agree(
        [
            task(conv2d(), sizes(conv2d())),
            task(operator_1(), sizes(operator_1())),
            task(*window_shared_after_sliding()),
            task(*pooled_first()),
        ]
    )
    text = convolution["text"]
    assert "X_padded = T.sblock_alloc_buffer((2, 8, 8, 6)" in text
    assert text.count("if_then_else") == 1  # in the copy, none where numbers are multiplied
    assert "main(X: T.Buffer((2, 8, 6, 4)" in text
    # n, then what will be summed, then h and w: the last axis of Z1 is the output's. Z1 reaches out of bounds along h,
    # where it is zero, because MetaSchedule loses the border of a padded copy of it.
    assert "Z1 = T.sblock_alloc_buffer((2, 4, 2, 3, 8, 4)" in two_stages["text"]
    assert two_stages["text"].count("if_then_else") == 1
    assert "padded" not in guarded["text"]
    # MetaSchedule schedules a mere sum wrongly now and then: it is told not to.
    assert pooled["text"].count('"schedule_rule": "None"') == 1


@pytest.mark.tvm
def test_metaschedule_finds_schedules_that_compute_the_same() -> None:
    large = {"N": 1, "C_in": 16, "C_out": 16, "H": 8, "W": 8}
    pairs = [(make(), make().complete_binding(large)) for make in (conv2d, operator_1, half_step_shift)]
    pairs += [pooled_first(), window_shared_after_sliding(), views_above_a_window(), shifted_twice()]
    tasks = [{**task(*pair), "do": "search", "target": {"kind": "llvm", "num-cores": 2}} for pair in pairs]
    for one, answer in zip(tasks, ask(tasks), strict=True):
        where = f"{one['operator']}\n{answer}"
        assert "failure" not in answer, where
        assert answer["sketches"] >= 1, where
        assert answer["candidates"] >= 1, where
        assert len(answer["errors"]) == answer["candidates"], where
        assert all(error <= TOLERANCE["float32"] for error in answer["errors"]), where


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_refusals() -> None:
    good = task(conv2d(), sizes(conv2d()), do="raises")
    dtype, text, binding, fine = ask(
        [{**good, "dtype": "complex64"}, {**good, "operator": "{}"}, {**good, "binding": {"N": 1}}, good]
    )
    assert dtype["kind"] == "SynoError"
    assert "float16, float32, float64" in dtype["message"]
    assert "complex64" in dtype["message"]
    assert text["kind"] == "FormatError"
    assert binding["kind"] == "UnboundError"
    assert fine["kind"] is None


# -- padding, without TVM --------------------------------------------------------------------------------------------


def test_only_windows_over_the_tensor_itself_are_padded() -> None:
    expected = {
        window_shared_after_sliding: [False],
        window_dropped: [False],
        window_of_a_window: [True, False],  # top-down
        views_above_a_window: [True],
    }
    for make, wanted in expected.items():
        operator, binding = make()
        (stage,) = plan(operator, binding, "naive").stages
        assert [can_be_padded(operator, stage, c) for c in clipping(operator, stage)] == wanted, make.__name__


def test_a_padded_copy_keeps_the_order_of_axes_and_undoes_the_views_above() -> None:
    operator, binding = views_above_a_window()
    (stage,) = plan(operator, binding, "naive").stages
    (clipped,) = clipping(operator, stage)
    copy = padding(operator, stage, [clipped])
    assert [step.primitive for step in copy.lifted] == ["MERGE", "SPLIT", "SHIFT"]
    assert copy.axes == (clipped, operator.output[0])
