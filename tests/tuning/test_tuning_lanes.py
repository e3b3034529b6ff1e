"""The schedule rule ``channel-lanes``: where it applies, where it does not, and that it computes the same."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from strategies import random_operator, repro
from trust.tvm_parent import Child

import syno_lab as sl
from syno_lab.ir.operator import Operator
from syno_lab.operators import KNOWN
from syno_lab.tuning import Method, TuningTask, explain_space

RANDOM_OPERATORS = 16
CHILD = (sys.executable, str(Path(__file__).with_name("lanes_child.py")))
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
#: Sixteen channels are two vectors of eight float32; nothing else divides into them.
SMALL = {"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 10, "k": 3, "s": 2, "g": 2}


def task(operator: Operator, binding: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"operator": operator.to_json(), "binding": binding, "dtype": "float32", "bits": 256, "cores": 1,
            "sketches": 8, "draws": 2, **more}  # fmt: skip


def sizes(operator: Operator, **more: int) -> dict[str, int]:
    spec = operator.spec
    given = SMALL | more
    return operator.complete_binding(
        {name: given.get(name, 16) for name in spec.symbols.names if name not in spec.defaults or name in given}
    )


def agree(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every program that was drawn computes what the loop nest computes."""
    answers = []
    with Child(CHILD) as child:
        for one in tasks:
            answer = child.ask(one)
            where = f"binding {one['binding']} {one['dtype']}\n{one['operator']}\n{answer}"
            assert "failure" not in answer, f"{where}\n{answer['failure']}"
            assert all(float(error) <= TOLERANCE[one["dtype"]] for error in answer["errors"]), where
            answers.append(answer)
    return answers


@pytest.mark.tvm
def test_it_applies_to_sums_with_channels_innermost_in_a_weight() -> None:
    conv2d, matmul = sl.operators.conv2d(), sl.operators.conv1x1()
    cases = {
        "two vectors": task(conv2d, sizes(conv2d), draws=3),
        "in threads": task(conv2d, sizes(conv2d), cores=4, draws=3),
        "half a vector": task(conv2d, sizes(conv2d, C_out=12)),
        "no weight along a window": task(matmul, sizes(matmul)),
        "float64": task(conv2d, sizes(conv2d), dtype="float64"),
        "channels that are no vectors": task(conv2d, sizes(conv2d, C_out=10 + 5, W=9)),
        "one pixel": task(conv2d, sizes(conv2d, H=1, W=1)),
        "no vector registers": task(conv2d, sizes(conv2d), bits=0),
    }
    found = dict(zip(cases, agree(list(cases.values())), strict=True))
    for name in ("two vectors", "in threads", "half a vector", "no weight along a window", "float64"):
        assert found[name]["changed"] == ["Y"], name
        assert found[name]["errors"], f"{name}: {found[name]}"
        assert not found[name]["refused"], name
        # Its tiles keep the registers busy, so that TVM's own need not be tried.
        assert not found[name]["plain"], name
    for name in ("channels that are no vectors", "one pixel", "no vector registers"):
        assert (found[name]["changed"], found[name]["sketches"]) == ([], 0), name
    # A GPU has no such registers, so that a GPU's space is left as it is.
    assert found["two vectors"]["widths"] == {"jetson-orin-nano-cpu": 128, "jetson-orin-nano": 0}


@pytest.mark.tvm
def test_it_applies_along_rows_where_a_stage_gives_few_channels() -> None:
    conv2d, strided, chain = sl.operators.conv2d(), sl.operators.KNOWN["strided"](), sl.operators.operator_1()
    cases = {
        # The bottleneck has two channels: its sums lie along the row and are stored as they are, Y's are transposed.
        "a chain": task(chain, sizes(chain, C_out=8, W=16), draws=3),
        "a convolution to few channels": task(conv2d, sizes(conv2d, C_out=6, W=24), draws=3),
        "both": task(conv2d, sizes(conv2d, W=16), draws=3),
        "pixels that are not neighbours": task(strided, sizes(strided, C_out=3, W=16)),
        "few sums, so TVM's tiles as well": task(conv2d, sizes(conv2d, C_out=2, H=1, W=8)),
    }
    found = dict(zip(cases, agree(list(cases.values())), strict=True))
    assert found["a chain"]["changed"] == ["Y", "Z1"]
    assert set(found["a chain"]["transposed"]) == {"0 of 2", "1 of 2"}
    assert set(found["a convolution to few channels"]["transposed"]) == {"0 of 1"}
    assert set(found["both"]["transposed"]) == {"0 of 1", "1 of 1"}
    assert found["pixels that are not neighbours"]["changed"] == []
    assert found["few sums, so TVM's tiles as well"]["changed"] == ["Y"]
    beside = {name for name, one in found.items() if one["changed"] and one["plain"]}
    assert beside == {"few sums, so TVM's tiles as well"}
    assert all(one["errors"] and not one["refused"] for one in found.values() if one["changed"]), found


@pytest.mark.tvm
def test_a_small_tile_is_no_long_vector_and_short_sums_are_on_the_stack() -> None:
    matmul = sl.operators.conv1x1()
    cases = {
        # Twelve pixels of four channels: TVM would vectorize all 48, whose elements lie in many places.
        "a small tile": task(matmul, sizes(matmul, C_out=4, W=12), bits=128),
        # Sixteen sums of 512 bits are 1024 bytes.
        "few terms": task(matmul, sizes(matmul, C_out=16, W=16), bits=512),
        "many terms": task(matmul, sizes(matmul, C_in=128, C_out=16, W=16), bits=512),
    }
    found = dict(zip(cases, agree(list(cases.values())), strict=True))
    assert all(one["changed"] == ["Y"] and one["errors"] for one in found.values()), found
    assert found["a small tile"]["transposed"][0] == "1 of 1"
    assert found["a small tile"]["longest vector"] <= 12
    assert found["few terms"]["workspaces"] == 0
    assert found["many terms"]["workspaces"] > 0


@pytest.mark.tvm
def test_vectors_hold_several_rows_that_follow_each_other_in_memory() -> None:
    matmul, conv2d, chain = sl.operators.conv1x1(), sl.operators.conv2d(), sl.operators.operator_2()
    few, wide = {"C_out": 6}, {"bits": 512}
    cases = {
        "two rows": task(matmul, sizes(matmul, **few, H=6, W=8), **wide),
        "four rows of two samples": task(matmul, sizes(matmul, **few, N=2, H=8, W=4), **wide),
        "two rows, where a window moves along columns": task(chain, sizes(chain, C_in=16, H=8, W=8), **wide),
        "two rows in blocks": task(chain, sizes(chain, C_in=16, H=8, W=8), **wide, cores=2, sketches=4),
        "an odd number of rows": task(matmul, sizes(matmul, **few, H=5, W=8), **wide),
        "rows of a padded copy, with pixels between them": task(conv2d, sizes(conv2d, **few, H=6, W=8), **wide),
        "whole vectors in a row": task(matmul, sizes(matmul, **few, H=6, W=16), **wide),
    }
    found = dict(zip(cases, agree(list(cases.values())), strict=True))
    for name in list(cases)[:4]:
        assert found[name]["rows"] > 0, f"{name}: {found[name]}"
    for name in list(cases)[4:]:
        assert found[name]["rows"] == 0, f"{name}: {found[name]}"
    assert all(one["changed"] and one["errors"] and not one["refused"] for one in found.values()), found


@pytest.mark.tvm
def test_every_known_operator_computes_the_same() -> None:
    known = {name: make() for name, make in KNOWN.items()}
    found = dict(zip(known, agree([task(one, sizes(one), sketches=1, draws=1) for one in known.values()]), strict=True))
    assert found["conv2d"]["changed"] == ["Y"]
    assert found["operator_1"]["changed"], found["operator_1"]
    assert any(not one["changed"] for one in found.values()), "there are operators that it does not fit"


@pytest.mark.tvm
def test_random_operators_compute_the_same(rng: random.Random) -> None:
    drawn = [random_operator(rng, batch=True) for _ in range(RANDOM_OPERATORS)]
    try:
        agree([task(one, sizes, dtype="float64", bits=128, sketches=2, draws=1) for one, sizes in drawn])
    except AssertionError:
        print(*(repro(*one) for one in drawn), sep="\n")
        raise


@pytest.mark.tvm
def test_it_is_part_of_the_default_and_takes_the_place_of_tvm_s_tiling() -> None:
    conv2d = sl.operators.conv2d()
    small = TuningTask("conv2d", conv2d.to_json(), sizes(conv2d, W=14))
    ours, theirs = (explain_space(small, one, target="local:1") for one in (Method(), Method(rules=("default",))))
    assert ours.changed["channel-lanes"] == ("Y",)
    assert ours.changed["MultiLevelTiling"] == ()
    assert "channel-lanes" not in theirs.changed
    assert len(theirs.sketches) == 3
    assert ours.sketches
    for sketch in ours.sketches:
        assert any("lay a tensor of Y out" in step for step in sketch.steps)
        assert "Y_global" in sketch.after


@pytest.mark.tvm
def test_terms_are_summed_in_the_order_of_the_weight_in_memory() -> None:
    chain = sl.operators.operator_1()
    sketch, *_ = explain_space(TuningTask("chain", chain.to_json(), sizes(chain, W=14)), target="local:1").sketches
    read = re.search(r"W1\[(r\d), (r\d), (r\d), (r\d), i1\]", sketch.after)
    assert read is not None, sketch.after
    loops = re.findall(r"\b(r\d)(?:_\d)? < \d+", sketch.after[: read.start()])
    assert loops[-4:] == list(read.groups()), sketch.after
